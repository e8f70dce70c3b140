"""Decoded values as JSON; bytes alone are tested with those of the command line."""

from __future__ import annotations

from tidelog.resp.json_form import reply_to_json


def test_a_reply_of_all_kinds() -> None:
    reply = [1, b"text", None, [b"\xff", [2.5]], "simple", True]
    assert reply_to_json(reply) == [1, "text", None, [{"base64": "/w=="}, [2.5]], "simple", True]
