"""What is refused before it is compiled, because the compiler of Lua 5.1 cannot be interrupted or does not check it.

    bytecode            a made-up one reads and writes any memory
    length              compiling takes time in proportion
    branches            the compiler walks all open jumps for each new one: their number squared
    `...`               a function that has it and many parameters may write behind the end of the stack when it is
                        called with fewer

A call in tail position takes the place of its caller, so an error of `return redis.call(...)` would not know its line.
`keep_lines` puts such a call into parentheses, which is the same call but not a tail call, if it has one result.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tidelog import limits

PRECOMPILED: Final = 1
TOO_LONG: Final = 2
TOO_MANY_BRANCHES: Final = 3
TOO_MANY_PARAMETERS: Final = 4

_PARAMETERS_MAX: Final = 2
"""Lua keeps five slots of the stack in reserve; each parameter may need two."""
_BRANCH: Final = re.compile(rb"\b(?:and|or|elseif|break)\b")
_TOKEN: Final = re.compile(
    rb"""
      (?P<skip> \s+ | --\[(?P<c>=*)\[.*?\](?P=c)\] | --(?!\[=*\[)[^\r\n]* )
    | (?P<text> \[(?P<l>=*)\[.*?\](?P=l)\] | "(?:[^"\\\r\n]|\\\r\n|\\\n\r|\\.)*"
        | '(?:[^'\\\r\n]|\\\r\n|\\\n\r|\\.)*' )
    | (?P<unfinished> --\[ | \[=*\[ | ["'] )
    | (?P<name> [A-Za-z_]\w* )
    | (?P<number> \.?\d[\d.]*(?:[eE][+-]?)?\w* )
    | (?P<sign> \.\.\.|\.\.|[=~<>]=|. )
    """,
    re.VERBOSE | re.DOTALL,
)
"""As the lexer of Lua: what this took for a comment and Lua for code would not be looked at."""
_ONE_RESULT: Final = {
    b"redis": frozenset([b"call", b"pcall", b"sha1hex", b"acl_check_cmd"]),
    b"table": frozenset([b"concat"]),
    b"string": frozenset([b"format", b"rep"]),
    b"cjson": frozenset([b"encode", b"decode"]),
}
"""Functions that are put into parentheses, by their libraries."""
_OWN_CALL: Final = re.compile(rb"\breturn\s+(?:redis|table|string|cjson)\b")
_ENDS: Final = frozenset([b"end", b"else", b"elseif", b"until", b";", b""])

Token = tuple[str, bytes, int]
"""Its kind, its text and where it begins."""


def problem_of(text: bytes) -> int:
    """Why a text is not compiled; 0: it may be."""
    if text.startswith(b"\x1b"):
        return PRECOMPILED
    if len(text) > limits.SCRIPT_BYTES_MAX:
        return TOO_LONG
    if len(text) > limits.SCRIPT_BRANCHES_MAX and len(_BRANCH.findall(text)) > limits.SCRIPT_BRANCHES_MAX:
        return TOO_MANY_BRANCHES
    if b"..." in text and _has_many_parameters(text):
        return TOO_MANY_PARAMETERS
    return 0


def keep_lines(text: bytes) -> bytes:
    """The text with `return redis.call(...)` as `return (redis.call(...))`, and some others."""
    if _OWN_CALL.search(text) is None:
        return text
    tokens = [*_tokens(text), ("end", b"", len(text))]
    closings = _closings(tokens)
    inserts: list[tuple[int, bytes]] = []
    for at in range(len(tokens) - 4):
        if tokens[at][1] != b"return" or tokens[at][0] != "name":
            continue
        words = [token[1] for token in tokens[at + 1 : at + 5]]
        if words[1] == b"." and words[2] in _ONE_RESULT.get(words[0], ()) and words[3] == b"(":
            close = closings.get(at + 4)
            if close is not None and tokens[close + 1][1] in _ENDS and tokens[close + 1][0] != "text":
                inserts += ((tokens[at + 1][2], b"("), (tokens[close][2] + 1, b")"))
    parts: list[bytes] = []
    done = 0
    for where, sign in sorted(inserts):
        parts += (text[done:where], sign)
        done = where
    return b"".join([*parts, text[done:]])


def _tokens(text: bytes) -> Iterator[Token]:
    """Up to where a text or a comment begins that does not end: there Lua stops too."""
    for found in _TOKEN.finditer(text):
        kind = found.lastgroup or ""
        for name in ("skip", "text", "unfinished", "name", "number", "sign"):
            if found[name] is not None:
                kind = name
                break
        if kind == "unfinished":
            return
        if kind != "skip":
            yield kind, found[0], found.start()


def _closings(tokens: list[Token]) -> dict[int, int]:
    """Where each bracket is closed, by the place where it opens."""
    closings: dict[int, int] = {}
    opened: list[int] = []
    for place, (kind, word, _) in enumerate(tokens):
        if kind == "sign":
            if word in (b"(", b"{", b"["):
                opened.append(place)
            elif word in (b")", b"}", b"]") and opened:
                closings[opened.pop()] = place
    return closings


def _has_many_parameters(text: bytes) -> bool:
    """Whether some function has `...` behind too many names."""
    is_head = False  # after the word `function`, and perhaps a name
    names = -1  # since the parenthesis that opens its parameters; -1: outside of them
    for kind, word, _ in _tokens(text):
        if names >= 0:
            if kind == "name":
                names += 1
            elif word == b"..." and names > _PARAMETERS_MAX:
                return True
            elif word != b",":
                names = -1
        elif word == b"function":
            is_head = True
        elif is_head and word == b"(":
            is_head, names = False, 0
        elif is_head and kind != "name" and word not in (b".", b":"):
            is_head = False
    return False
