"""The table of commands: what a row says, and how a row is found.

A row is all that the server knows about a command: its group and name, how many arguments it takes (Redis's arity: the
name counts; negative means at least), its handler, where its keys stand, and its flags. There are three kinds of
handlers:

    READ        (transaction, arguments) -> reply
    WRITE       (transaction, arguments) -> (reply, operations)
    CONNECTION  (session, arguments) -> reply            changes the session or the server, never the keyspace

The ACL categories of a command follow from its flags and its group, as in Redis. A category that does not is written
among the flags, with its `@`.

`arguments[0]` is the name as the client wrote it. A handler that refuses raises `CommandError`, and nothing happened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from tidelog.errors import CommandError
from tidelog.resp.encoder import Reply
from tidelog.store.keyspace import Database
from tidelog.store.large import Pieces
from tidelog.store.transaction import Transaction

Arguments = Sequence[bytes]
Decision = tuple[Reply, Sequence[Any]]
"""What a command that writes has decided: its reply, and the operations that make its change."""
ReadHandler = Callable[[Transaction, Arguments], Reply]
WriteHandler = Callable[[Transaction, Arguments], Decision]
ConnectionHandler = Callable[[Any, Arguments], Reply]
"""The first argument is a `Session`."""
LargeOf = Callable[[Database, Arguments], list[tuple[bytes, Pieces]]]
"""The strings that a command is going to put in the selected database, each with its key."""

REDIS_VERSION: Final = b"7.2.4"
"""The version of Redis whose commands these are: clients choose what they send by it."""
KEYWORD: Final = b"STREAMS"
"""The word that keys follow (`Keys.keyword_from`)."""
REDACTED: Final = b"(redacted)"
"""What is shown in the place of a password."""
_DIGITS_MAX: Final = 19
"""A number of keys with as many is none."""


class HandlerKind(Enum):
    """Which kind of handler a row has."""

    READ = "read"
    WRITE = "write"
    CONNECTION = "connection"


@dataclass(frozen=True, slots=True)
class Keys:
    """Where the keys of a command stand: first, last (negative: from the end) and step; (0, 0, 0): it has none."""

    first: int = 0
    last: int = 0
    step: int = 0
    count_at: int = 0
    """Not 0: the argument there says how many keys follow it; those come after the ones above."""
    may_be_none: bool = False
    """That argument may be 0: the command needs no keys."""
    keyword_from: int = 0
    """Not 0: the first half of what follows the word STREAMS are keys; it is looked for from here on."""


def find_keys(keys: Keys, words: Sequence[bytes]) -> list[bytes]:
    """The keys among the words of a command."""
    found: list[bytes] = []
    if keys.first:
        last = keys.last if keys.last >= 0 else len(words) + keys.last
        found += words[keys.first : last + 1 : keys.step]
    if keys.count_at:
        text = words[keys.count_at]
        count = int(text) if text.isdigit() and len(text) < _DIGITS_MAX else 0
        counted = words[keys.count_at + 1 : keys.count_at + 1 + count]
        if len(counted) < count or not (counted or (keys.may_be_none and text == b"0")):
            raise CommandError("ERR Invalid arguments specified for command")
        found += counted
    if keys.keyword_from:
        at = next((at for at in range(keys.keyword_from, len(words)) if words[at].upper() == KEYWORD), len(words))
        named = words[at + 1 : at + 1 + (len(words) - at - 1) // 2]
        if not named:
            raise CommandError("ERR Invalid arguments specified for command")
        found += named
    return found


NO_KEYS = Keys()
ONE_KEY = Keys(1, 1, 1)
ALL_KEYS = Keys(1, -1, 1)


@dataclass(frozen=True, slots=True)
class CommandGroup:
    """A group of commands, under Redis's name."""

    name: str
    category: str | None = None
    """The ACL category of all its commands; None: it has none, or the flags say which."""


STRING = CommandGroup("string", "@string")
GENERIC = CommandGroup("generic", "@keyspace")
HASH = CommandGroup("hash", "@hash")
SET = CommandGroup("set", "@set")
SORTED_SET = CommandGroup("sorted-set", "@sortedset")
LIST = CommandGroup("list", "@list")
STREAM = CommandGroup("stream", "@stream")
PUBSUB = CommandGroup("pubsub")
TRANSACTIONS = CommandGroup("transactions", "@transaction")
CONNECTION = CommandGroup("connection", "@connection")
SERVER = CommandGroup("server")
SCRIPTING = CommandGroup("scripting", "@scripting")

_BY_FLAG: dict[str, tuple[str, ...]] = {
    "write": ("@write",),
    "readonly": ("@read",),
    "admin": ("@admin", "@dangerous"),
    "pubsub": ("@pubsub",),
    "blocking": ("@blocking",),
}
"""Flag -> ACL categories."""


@dataclass(frozen=True, slots=True)
class Command:
    """One row."""

    group: CommandGroup
    name: str
    """In capitals; a subcommand is `CONTAINER|NAME`."""
    arity: int
    handler: Callable[..., Any]
    kind: HandlerKind
    keys: Keys
    flags: frozenset[str]
    """As COMMAND INFO names them: readonly, write, fast, denyoom, admin, pubsub, noscript, no_auth ..."""
    categories: frozenset[str]
    """The ACL categories."""
    summary: str
    """One line for the documentation."""
    is_read: Callable[[Arguments], bool] | None = None
    """Whether a command that may write only reads with these arguments; None: it never only reads."""
    secret_from: int = 0
    """Arguments from this one on may hold a password and are never shown; 0: all may be."""
    large: LargeOf | None = None
    """Says which strings it is going to put somewhere, as they may be large; None: all large values are arguments."""
    as_called: Callable[[Any, Arguments], Command] | None = None
    """The row for a session and these arguments, if its flags depend on them: a script may say what it needs."""

    def writes(self, arguments: Arguments) -> bool:
        """Whether it may change keys with these arguments."""
        return self.kind is HandlerKind.WRITE and (self.is_read is None or not self.is_read(arguments))

    def journals(self, arguments: Arguments) -> bool:
        """Whether it may change anything that is journaled: keys, or functions, or the name of a feed."""
        return "write" in self.flags and (self.is_read is None or not self.is_read(arguments))

    def takes(self, count: int) -> bool:
        """Whether it takes this many arguments, its name among them."""
        return count == self.arity if self.arity > 0 else count >= -self.arity


def row_as_called(row: Command, session: Any, arguments: Arguments) -> Command:
    """A row with the flags that it has with these arguments."""
    return row if row.as_called is None else row.as_called(session, arguments)


def read(
    group: CommandGroup, name: str, arity: int, handler: ReadHandler, keys: Keys, flags: str = "", *, summary: str
) -> Command:
    """A row for a command that reads."""
    return _row(group, name, arity, handler, HandlerKind.READ, keys, f"readonly {flags}", summary)


def write(
    group: CommandGroup,
    name: str,
    arity: int,
    handler: WriteHandler,
    keys: Keys,
    flags: str = "",
    *,
    summary: str,
    is_read: Callable[[Arguments], bool] | None = None,
    large: LargeOf | None = None,
) -> Command:
    """A row for a command that changes keys."""
    row = _row(group, name, arity, handler, HandlerKind.WRITE, keys, f"write {flags}", summary, is_read)
    return row if large is None else replace(row, large=large)


def connection(
    group: CommandGroup,
    name: str,
    arity: int,
    handler: ConnectionHandler,
    flags: str,
    *,
    summary: str,
    keys: Keys = NO_KEYS,
    secret_from: int = 0,
) -> Command:
    """A row for a command that concerns the session or the server."""
    return _row(group, name, arity, handler, HandlerKind.CONNECTION, keys, flags, summary, None, secret_from)


def _row(
    group: CommandGroup,
    name: str,
    arity: int,
    handler: Callable[..., Any],
    kind: HandlerKind,
    keys: Keys,
    words: str,
    summary: str,
    is_read: Callable[[Arguments], bool] | None = None,
    secret_from: int = 0,
) -> Command:
    """`words`: flags, and categories that follow from none of them."""
    flags = frozenset(word for word in words.split() if not word.startswith("@"))
    categories = {word for word in words.split() if word.startswith("@")}
    categories |= {category for flag in flags for category in _BY_FLAG.get(flag, ())}
    categories.add("@fast" if "fast" in flags else "@slow")
    if group is SCRIPTING:  # whoever may read may not therefore run scripts that only read
        categories.discard("@read")
    if group.category is not None:
        categories.add(group.category)
    return Command(group, name, arity, handler, kind, keys, flags, frozenset(categories), summary, is_read, secret_from)


class CommandTable:
    """Name -> row. Names are found in any case; a container (CONFIG, CLIENT ...) has its subcommands."""

    def __init__(self, rows: Iterable[Command]) -> None:
        self._by_name: dict[bytes, Command] = {}
        self._containers: dict[bytes, dict[bytes, Command]] = {}
        for row in rows:
            name = row.name.encode()
            container, _, subcommand = name.partition(b"|")
            place, key = self._by_name, name
            if subcommand:
                place, key = self._containers.setdefault(container, {}), subcommand
            assert key not in place, f"two rows for {row.name}"
            place[key] = row
        self._bare = {name: self._by_name.pop(name) for name in self._containers if name in self._by_name}
        """Containers that are commands themselves when they are given no argument: COMMAND."""

    def find(self, name: bytes) -> Command | None:
        """The row of a command without subcommands."""
        return self._by_name.get(name) or self._by_name.get(name.upper())

    def subcommands(self, name: bytes) -> dict[bytes, Command] | None:
        """The rows of a container; None: it is none."""
        return self._containers.get(name.upper())

    def bare(self, name: bytes) -> Command | None:
        """The row of a container that is given no argument; None: it needs one."""
        return self._bare.get(name.upper())

    def rows(self) -> list[Command]:
        """All rows, those of subcommands too."""
        in_containers = (row for rows in self._containers.values() for row in rows.values())
        return [*self._by_name.values(), *self._bare.values(), *in_containers]

    def containers(self) -> list[bytes]:
        return list(self._containers)
