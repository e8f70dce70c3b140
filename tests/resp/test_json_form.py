"""Decoded values as JSON; bytes alone are tested with those of the command line."""

from __future__ import annotations

import json

import pytest

from tidelog.resp.json_form import reply_to_json, string_pieces


def test_a_reply_of_all_kinds() -> None:
    reply = [1, b"text", None, [b"\xff", [2.5]], "simple", True]
    assert reply_to_json(reply) == [1, "text", None, [{"base64": "/w=="}, [2.5]], "simple", True]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"plain " * 50_000,
        'quoted " \\ \n and ünïcode \U0001f30a '.encode() * 30_000,
        bytes(range(256)) * 1200,
        b"x" * 200_000 + b"\xff",
        b"x" * (96 * 1024 - 1) + "ü".encode(),
        b"ends in the middle of \xc3",
    ],
)
def test_a_large_string_in_pieces_is_what_it_is_as_a_whole(data: bytes) -> None:
    pieces = list(string_pieces(lambda at, size: data[at : at + size], len(data)))
    assert json.loads(b"".join(pieces)) == reply_to_json(data)
    assert max(map(len, pieces)) < 1_000_000
