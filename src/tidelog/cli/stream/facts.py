"""What a server says about a stream: TINFO's reply as a dict."""

from __future__ import annotations

from typing import Any


def facts_of(reply: list[Any]) -> dict[str, Any]:
    """The reply lists names and values in turn, and so does each group in it."""
    found = {name.decode(): value for name, value in zip(reply[::2], reply[1::2], strict=True)}
    if "groups" in found:
        found["groups"] = [facts_of(group) for group in found["groups"]]
    return found
