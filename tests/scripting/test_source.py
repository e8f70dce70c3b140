"""What is refused before it is compiled, and how tail calls keep their line."""

from __future__ import annotations

import pytest

from tidelog import limits
from tidelog.scripting.source import (
    PRECOMPILED,
    TOO_LONG,
    TOO_MANY_BRANCHES,
    TOO_MANY_PARAMETERS,
    keep_lines,
    problem_of,
)


def test_problems() -> None:
    assert problem_of(b"return 1") == 0
    assert problem_of(b"\x1bLua") == PRECOMPILED
    assert problem_of(b"-" * limits.SCRIPT_BYTES_MAX) == 0
    assert problem_of(b"-" * (limits.SCRIPT_BYTES_MAX + 1)) == TOO_LONG
    branches = limits.SCRIPT_BRANCHES_MAX
    assert problem_of(b"return a" + b" or a" * branches) == 0
    assert problem_of(b"return a" + b" or a" * (branches + 1)) == TOO_MANY_BRANCHES
    assert problem_of(b"return " + b"operator, " * (branches + 1) + b"1") == 0


@pytest.mark.parametrize(
    "text",
    [
        b"function f(a, b, c, ...) end",
        b"function f(a,b,c,...)end",
        b"local f = function (\na,\nb,\nc,\n...) end",
        b"function f(a, --[[ x ]] b, --y\n c, [==[no]==] ...) end function g(a,b,c,...) end",
        b"function f(a,--[==[ ]] ( ]==]b,c,...) end",
    ],
)
def test_too_many_parameters(text: bytes) -> None:
    assert problem_of(text) == TOO_MANY_PARAMETERS


@pytest.mark.parametrize(
    "text",
    [
        b"function f(a, b, ...) end",
        b"function f(...) end",
        b"local s = '(a, b, c, ...)'",
        b"local s = [[(a, b, c, ...)]]",
        b"-- (a, b, c, ...)",
        b"f(a, b, c) g(...)",
        b"f(x.a, x.b, x.c, ...)",
        b"return {a, b, c, ...}",
    ],
)
def test_few_enough(text: bytes) -> None:
    assert problem_of(text) == 0


def test_a_call_with_dots_is_no_list_of_parameters() -> None:
    """Only what follows the word `function`, and perhaps a name, is one."""
    assert problem_of(b"return select('#', a, b, c, ...)") == 0
    assert problem_of(b"return g(a, b, c, ...)") == 0
    assert problem_of(b"return (a)(a, b, c, ...)") == 0
    assert problem_of(b"function t.a.b:c(a, b, c, ...) end") == TOO_MANY_PARAMETERS


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (b"return redis.call('get', KEYS[1])", b"return (redis.call('get', KEYS[1]))"),
        (b"return redis.pcall(f(1), {2}, (3))", b"return (redis.pcall(f(1), {2}, (3)))"),
        (
            b"if x then return redis.call('a') else return redis.call('b') end",
            b"if x then return (redis.call('a')) else return (redis.call('b')) end",
        ),
        (b"return redis.call('a') + 1", b"return redis.call('a') + 1"),
        (b"return redis.call('a'), 2", b"return redis.call('a'), 2"),
        (b"return redis.call('a').ok", b"return redis.call('a').ok"),
        (b"return redis.call('a')[1]", b"return redis.call('a')[1]"),
        (b"return redis.call 'a'", b"return redis.call 'a'"),
        (b"return redis.call(')')", b"return (redis.call(')'))"),
        (b"return redis.call('a' -- )\n)", b"return (redis.call('a' -- )\n))"),
        (b"-- return redis.call('a')", b"-- return redis.call('a')"),
        (b"return \"return redis.call('a')\"", b"return \"return redis.call('a')\""),
        (b"return table.concat(t)", b"return (table.concat(t))"),
        (b"return string.find(s, 'x')", b"return string.find(s, 'x')"),
        (b"return f(x)", b"return f(x)"),
        (b"return redis.call('a'", b"return redis.call('a'"),
    ],
)
def test_tail_calls(text: bytes, kept: bytes) -> None:
    assert keep_lines(text) == kept
    assert keep_lines(text).count(b"\n") == text.count(b"\n")
