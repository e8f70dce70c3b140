"""What is asked of a store is counted, and passed on as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.system.counted_store import CountedStore
from tidelog.system.object_store import open_object_store


def test_calls_and_bytes(tmp_path: Path) -> None:
    told: list[int] = []
    counted = CountedStore(open_object_store(str(tmp_path)), lambda: told.append(counted.bytes_put))
    counted.put("a/b", [b"123", b"45"])
    with pytest.raises(FileExistsError):
        counted.put("a/b", [b"x"])
    assert counted.get("a/b") == b"12345"
    assert counted.read("a/b", 1, 2) == b"23"
    assert counted.size("a/b") == 5
    assert counted.folders("") == ["a"]
    assert [entry.name for entry in counted.list("a/")] == ["a/b"]
    counted.delete("a/b")
    assert counted.requests == {"put": 1, "get": 1, "read": 1, "size": 1, "folders": 1, "list": 1, "delete": 1}
    assert (counted.bytes_put, counted.bytes_read) == (5, 7)
    assert told == [5, 5, 5]
