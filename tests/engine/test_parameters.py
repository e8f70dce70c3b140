"""Values of parameters."""

from __future__ import annotations

import pytest

from tidelog.engine.parameters import (
    BadValue,
    Parameters,
    constant,
    fixed,
    memory,
    number,
    read_age,
    read_integer,
    read_memory,
)


def test_memory() -> None:
    assert [read_memory(text) for text in ("0", "10b", "1K", "1kb", "2Mb", "1g")] == [0, 10, 1000, 1024, 2 << 20, 10**9]
    for text in ("", "1.5gb", "-1", "gb", "1tb", "10%", " 1"):
        with pytest.raises(BadValue):
            read_memory(text)


def test_integers() -> None:
    assert read_integer("-1", -1, 5) == -1
    for text in ("", "x", "1.0", "6", "-2", "99999999999999999999"):
        with pytest.raises(BadValue):
            read_integer(text, -1, 5)


def test_kinds() -> None:
    held = [1, 2]
    parameters = Parameters(
        [
            number("a", lambda: held[0], lambda value: held.__setitem__(0, value)),
            memory("b", lambda: held[1], lambda value: held.__setitem__(1, value)),
            constant("c", "yes", "it is always yes"),
            fixed("d", 5),
        ]
    )
    a, b, c, d = parameters
    assert parameters.find("A") is a
    assert parameters.find("e") is None
    assert a.read is not None
    assert b.read is not None
    assert c.read is not None
    work = a.read("7"), b.read("1kb"), c.read("YES")
    assert held == [1, 2]
    for put_to_work in work:
        put_to_work()
    assert held == [7, 1024]
    with pytest.raises(BadValue, match="it is always yes"):
        c.read("no")
    assert (c.get(), d.get(), d.read) == ("yes", "5", None)


def test_ages() -> None:
    assert [read_age(text) for text in ("0", "90", "90s", "2M", "24h", "7d")] == [0, 90, 90, 120, 86_400, 604_800]
    for text in ("", "-1", "1w", "1.5h", "h", "1 h"):
        with pytest.raises(BadValue, match="number of seconds"):
            read_age(text)
