"""Events as they come from the server."""

from __future__ import annotations

from dataclasses import fields

import pytest

from tidelog.client.event import Checkpoint, Commit, DeleteRange, Expiry, Steady, Value, event_of
from tidelog.errors import CommandError
from tidelog.feeds.event import FIELDS


def test_every_kind() -> None:
    assert event_of([b"value", 1, b"k", b"hash", b"f", None]) == Value(1, b"k", "hash", b"f", None)
    assert event_of([b"deleterange", 1, b"a", b""]) == DeleteRange(1, b"a", b"")
    assert event_of([b"expire", 1, b"k", 5]) == Expiry(1, b"k", 5)
    assert event_of([b"steady", 1]) == Steady(1)
    assert event_of([b"checkpoint", 1, b"a", b"b", 2, 3]) == Checkpoint(1, b"a", b"b", 2, 3)
    assert event_of([b"commit", 1]) == Commit(1)


def test_what_is_no_event() -> None:
    with pytest.raises(CommandError, match="which is not an event"):
        event_of([b"message", b"channel", b"text"])


def test_fields_are_called_as_everywhere() -> None:
    kinds = (Value, DeleteRange, Expiry, Steady, Checkpoint, Commit)
    assert {kind.kind.encode(): tuple(field.name for field in fields(kind)) for kind in kinds} == FIELDS
