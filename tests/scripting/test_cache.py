"""The scripts that EVALSHA finds."""

from __future__ import annotations

import pytest

from tidelog import limits
from tidelog.errors import LimitExceeded
from tidelog.scripting.cache import ScriptCache
from tidelog.scripting.script import Script


def script(number: int, size: int = 10) -> Script:
    return Script(b"-" * size, b"%d" % number)


def test_scripts_of_eval_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = ScriptCache()
    for number in range(limits.SCRIPTS_PASSING_MAX):
        assert cache.add(script(number)) == []
    assert cache.find(b"0") is not None  # which is the newest use now
    assert [gone.sha for gone in cache.add(script(1000))] == [b"1"]
    assert cache.find(b"1") is None
    assert len(cache) == limits.SCRIPTS_PASSING_MAX
    assert cache.evicted_count == 1


def test_their_size_is_limited() -> None:
    cache = ScriptCache()
    size = limits.SCRIPTS_PASSING_BYTES_MAX // 4
    for number in range(4):
        assert cache.add(script(number, size)) == []
    assert [gone.sha for gone in cache.add(script(9, 2 * size))] == [b"0", b"1"]


def test_scripts_of_load_stay_and_are_limited() -> None:
    cache = ScriptCache()
    one = script(1, limits.SCRIPTS_KEPT_BYTES_MAX // 2)
    cache.add(one)
    cache.keep(one)
    cache.keep(one)
    assert len(cache) == 1
    for number in range(2, limits.SCRIPTS_PASSING_MAX + 3):
        cache.add(script(number))
    assert cache.find(b"1") is one
    with pytest.raises(LimitExceeded, match="SCRIPT FLUSH"):
        cache.keep(script(5000, limits.SCRIPTS_KEPT_BYTES_MAX // 2))
    cache.clear()
    assert len(cache) == cache.size_bytes == 0
