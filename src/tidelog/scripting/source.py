"""What is refused before it is compiled, because the compiler of Lua 5.1 cannot be interrupted or does not check it.

    bytecode            a made-up one reads and writes any memory
    length              compiling takes time in proportion
    branches            the compiler walks all open jumps for each new one: their number squared
    names in scope      it looks for each name among all local names around it, function by function
    different words     names, texts and numbers are found by weak hashes: where many are alike, all are looked at
    `...`               a function that has it and many parameters may write behind the end of the stack when it is
                        called with fewer

A call in tail position takes the place of its caller, so an error of `return redis.call(...)` would not know its line.
Such a call is put into parentheses, which is the same call but not a tail call, if it has one result.

All of it is found out in one pass over the tokens: a long text must not take long here either.
"""

from __future__ import annotations

import re
from typing import Final

from tidelog import limits

PRECOMPILED: Final = 1
TOO_LONG: Final = 2
TOO_MANY_BRANCHES: Final = 3
TOO_MANY_PARAMETERS: Final = 4
TOO_MANY_NAMES: Final = 5
TOO_MANY_WORDS: Final = 6

_PARAMETERS_MAX: Final = 2
"""Lua keeps five slots of the stack in reserve; each parameter may need two."""
_UPVALUES_MAX: Final = 60
"""Names of enclosing functions that a function can use, all of which are looked at."""
_SMALL_BYTES: Final = 8192
"""A text that is no longer cannot have too much of anything but parameters: a name and a local take two bytes each."""

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
_KEYWORDS: Final = frozenset(
    b"and break do else elseif end false for function if in local nil not or "
    b"repeat return then true until while".split()
)
_BRANCHES: Final = frozenset([b"and", b"or", b"elseif", b"break"])
_ONE_RESULT: Final = frozenset(
    [
        *(b"redis." + name for name in (b"call", b"pcall", b"sha1hex", b"acl_check_cmd")),
        *(b"bit." + name for name in b"arshift band bnot bor bswap bxor lshift rol ror rshift tobit tohex".split()),
        *(b"cjson." + name for name in (b"encode", b"decode")),
        *(b"cmsgpack." + name for name in (b"pack",)),
        *(b"math." + name for name in (b"random",)),
        *(b"string." + name for name in (b"format", b"rep")),
        *(b"struct." + name for name in (b"pack", b"size")),
        *(b"table." + name for name in (b"concat",)),
    ]
)
"""Functions that are put into parentheses."""
_OWN_CALL: Final = re.compile(rb"\breturn\s+(?:redis|bit|cjson|cmsgpack|math|string|struct|table)\b")
_ENDS: Final = frozenset([b"end", b"else", b"elseif", b"until", b";", b""])


def problem_of(text: bytes) -> int:
    """Why a text is not compiled; 0: it may be."""
    return prepare(text)[0]


def prepare(text: bytes) -> tuple[int, bytes]:
    """Why a text is not compiled (0: it may be), and what is compiled in its place: the same, with tail calls of ours
    in parentheses."""
    if text.startswith(b"\x1b"):
        return PRECOMPILED, text
    if len(text) > limits.SCRIPT_BYTES_MAX:
        return TOO_LONG, text
    if len(text) <= _SMALL_BYTES and b"..." not in text and _OWN_CALL.search(text) is None:
        return 0, text
    scopes = _Scopes()
    calls = _TailCalls()
    words: set[bytes] = set()
    branches = 0
    for found in _TOKEN.finditer(text):
        kind = found.lastgroup
        if kind == "skip":
            continue
        if kind == "unfinished":
            break  # Lua stops here too
        word = found[0]
        if kind != "sign":
            if kind == "name" and word in _BRANCHES:
                branches += 1
                if branches > limits.SCRIPT_BRANCHES_MAX:
                    return TOO_MANY_BRANCHES, text
            words.add(word)
            if len(words) > limits.SCRIPT_WORDS_MAX:
                return TOO_MANY_WORDS, text
        if kind != "text" and kind != "number":
            problem = scopes.take(word, kind == "name")
            if problem:
                return problem, text
        calls.take(word if kind != "text" else b"''", found.start())
    calls.take(b"", len(text))
    return 0, calls.applied(text)


class _Scopes:
    """Follows blocks and functions, and counts the local names in them: what the compiler looks at for each name."""

    def __init__(self) -> None:
        self._locals: list[int] = [0]
        """Local names of each open block."""
        self._is_function: list[bool] = [True]
        self._awaits_do: list[bool] = [False]
        """Whether a block has begun with `for` or `while`, whose `do` is still to come."""
        self._in_scope = 0
        self._functions = 1
        self._looks = 0
        """What the compiler has looked at."""
        self._is_local = False
        """After `local` or `for`: names are declared."""
        self._is_head = False
        """After `function`, and perhaps a name."""
        self._parameters = -1
        """Since the parenthesis that opens them; -1: outside of them."""

    def take(self, word: bytes, is_name: bool) -> int:
        """The next name or sign; a problem, or 0."""
        if is_name and word in _KEYWORDS:
            self._take_keyword(word)
            return 0
        if is_name:
            if self._is_local or self._parameters >= 0:
                self._locals[-1] += 1
                self._in_scope += 1
                self._parameters += self._parameters >= 0
            self._looks += self._in_scope + _UPVALUES_MAX * self._functions
            return TOO_MANY_NAMES if self._looks > limits.SCRIPT_LOOKS_MAX else 0
        if self._parameters >= 0:
            if word == b"..." and self._parameters > _PARAMETERS_MAX:
                return TOO_MANY_PARAMETERS
            if word != b",":
                self._parameters = -1
        elif self._is_head:
            if word == b"(":
                self._is_head, self._parameters = False, 0
            elif word not in (b".", b":"):
                self._is_head = False
        elif word != b",":
            self._is_local = False
        return 0

    def _take_keyword(self, word: bytes) -> None:
        self._is_head, self._parameters = False, -1
        if word == b"function":
            if self._is_local:  # its name is local to the block around it
                self._locals[-1] += 1
                self._in_scope += 1
            self._open(is_function=True)
            self._is_head = True
        elif word in (b"if", b"repeat"):
            self._open()
        elif word in (b"for", b"while"):
            self._open(awaits_do=True)
        elif word == b"do":
            if self._awaits_do[-1]:
                self._awaits_do[-1] = False
            else:
                self._open()
        elif word in (b"else", b"elseif"):
            self._in_scope -= self._locals[-1]
            self._locals[-1] = 0
        elif word in (b"end", b"until"):
            self._close()
        self._is_local = word in (b"local", b"for")

    def _open(self, *, is_function: bool = False, awaits_do: bool = False) -> None:
        self._locals.append(0)
        self._is_function.append(is_function)
        self._awaits_do.append(awaits_do)
        self._functions += is_function

    def _close(self) -> None:
        if len(self._locals) > 1:  # else it is not Lua
            self._in_scope -= self._locals.pop()
            self._functions -= self._is_function.pop()
            self._awaits_do.pop()


class _TailCalls:
    """Finds `return redis.call(...)` and its like, and where the parentheses go."""

    def __init__(self) -> None:
        self._inserts: list[tuple[int, bytes]] = []
        self._matched: list[bytes] = []
        """The beginning of `return library . function (` that the newest tokens are."""
        self._begins_at = 0
        """Where the name of its library is."""
        self._opened: list[int] = []
        """Open brackets: where such a call begins, or -1."""
        self._closed: tuple[int, int] | None = None
        """The call that the newest token closes: where it begins and ends."""

    def take(self, word: bytes, at: int) -> None:
        """The next token."""
        closed, self._closed = self._closed, None
        if closed is not None and word in _ENDS:
            self._inserts += ((closed[0], b"("), (closed[1], b")"))
        if word in (b"(", b"{", b"["):
            is_ours = word == b"(" and len(self._matched) == 4 and b"".join(self._matched[1:]) in _ONE_RESULT
            self._opened.append(self._begins_at if is_ours else -1)
        elif word in (b")", b"}", b"]") and self._opened:
            begins_at = self._opened.pop()
            if begins_at >= 0:
                self._closed = begins_at, at + 1
        self._match(word, at)

    def _match(self, word: bytes, at: int) -> None:
        if word == b"return":
            self._matched = [word]
        elif self._matched:
            if len(self._matched) == 1:
                self._begins_at = at
            if len(self._matched) < 4 and (word == b".") == (len(self._matched) == 2):
                self._matched.append(word)
            else:
                self._matched = []

    def applied(self, text: bytes) -> bytes:
        if not self._inserts:
            return text
        parts: list[bytes] = []
        done = 0
        for where, sign in sorted(self._inserts):
            parts += (text[done:where], sign)
            done = where
        return b"".join([*parts, text[done:]])
