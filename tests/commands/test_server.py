"""How much memory a value takes, roughly."""

from __future__ import annotations

import tracemalloc

import pytest

from tidelog.commands.server import _leading_float, size_of


@pytest.mark.parametrize("count", [10, 1000, 20_000])
def test_a_dict_is_about_as_large_as_it_is(count: int) -> None:
    tracemalloc.start()
    value = {b"field:%d" % number: b"x" * 50 for number in range(count)}
    for key in value:
        value[key] = bytes(bytearray(b"x" * 50))
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0.6 < size_of(value, 5) / taken < 1.7
    assert 0.6 < size_of(value, 0) / taken < 1.7


def test_strings() -> None:
    assert 1000 < size_of(b"x" * 1000, 5) < 1100


@pytest.mark.parametrize(("text", "seconds"), [(b"1.5", 1.5), (b"2x", 2.0), (b"x", 0.0), (b"-1", 0.0), (b".5", 0.5)])
def test_numbers_as_strtod_reads_them(text: bytes, seconds: float) -> None:
    assert _leading_float(text) == seconds
