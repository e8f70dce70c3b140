"""COMMAND: what commands there are, and what a row of the table says of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from tidelog.commands.arguments import syntax_error
from tidelog.commands.help import help_reply
from tidelog.engine.session import Session
from tidelog.engine.table import CONNECTION, KEYWORD, Arguments, Command, CommandTable, Keys, connection, find_keys
from tidelog.errors import CommandError
from tidelog.resp.encoder import Reply, SetReply
from tidelog.store.glob import matcher

_OF_CONTAINERS: Final = "@slow"
"""The category that a container such as CLIENT has."""

# --- the reply of COMMAND INFO ----------------------------------------------------------------------------------


def _describe(row: Command, subcommands: Sequence[Command] = ()) -> Reply:
    keys = row.keys
    return [
        row.name.lower().encode(),
        row.arity,
        SetReply(sorted(row.flags)),
        keys.first,
        keys.last,
        keys.step,
        SetReply(sorted(row.categories)),
        SetReply(),
        SetReply(_key_specs(row)),
        SetReply(_describe(subcommand) for subcommand in subcommands),
    ]


def _describe_container(name: bytes, rows: Sequence[Command]) -> Reply:
    return [name.lower(), -2, SetReply(), 0, 0, 0, SetReply([_OF_CONTAINERS]), SetReply(), SetReply(), SetReply(map(_describe, rows))]  # fmt: skip # noqa: E501


def _key_specs(row: Command) -> list[Reply]:
    """Where the keys stand, in the form of Redis 7. What is done to them is told only as reading or changing."""
    flags = SetReply(["RO", "access"] if "readonly" in row.flags else ["RW", "update"])
    keys = row.keys
    specs = []
    if keys.first:
        last = keys.last - keys.first if keys.last >= 0 else keys.last
        specs.append(_spec(flags, keys.first, b"range", {b"lastkey": last, b"keystep": keys.step, b"limit": 0}))
    if keys.count_at:
        specs.append(_spec(flags, keys.count_at, b"keynum", {b"keynumidx": 0, b"firstkey": 1, b"keystep": 1}))
    if keys.keyword_from:
        begin = {b"type": b"keyword", b"spec": {b"keyword": KEYWORD, b"startfrom": keys.keyword_from}}
        found = {b"type": b"range", b"spec": {b"lastkey": -1, b"keystep": 1, b"limit": 2}}
        specs.append({b"flags": flags, b"begin_search": begin, b"find_keys": found})
    return specs


def _spec(flags: SetReply, index: int, kind: bytes, spec: dict[bytes, int]) -> Reply:
    return {
        b"flags": flags,
        b"begin_search": {b"type": b"index", b"spec": {b"index": index}},
        b"find_keys": {b"type": kind, b"spec": spec},
    }


def _info(table: CommandTable, name: bytes) -> Reply:
    row = table.find(name)
    if row is not None:
        return _describe(row)
    container, _, subcommand = name.partition(b"|")
    rows = table.subcommands(container)
    if rows is None:
        return None
    if subcommand:
        row = rows.get(subcommand.upper())
        return None if row is None else _describe(row)
    bare = table.bare(container)
    return _describe_container(name, list(rows.values())) if bare is None else _describe(bare, list(rows.values()))


def _top_level(table: CommandTable) -> list[bytes]:
    names = [row.name.encode() for row in table.rows() if "|" not in row.name]
    return list(dict.fromkeys([*names, *table.containers()]))


def command(session: Session, _arguments: Arguments) -> Reply:
    table = session.engine.table
    return [_info(table, name) for name in _top_level(table)]


def command_count(session: Session, _arguments: Arguments) -> Reply:
    return len(_top_level(session.engine.table))


def command_info(session: Session, arguments: Arguments) -> Reply:
    table = session.engine.table
    return [_info(table, name) for name in arguments[2:] or _top_level(table)]


# --- the others -------------------------------------------------------------------------------------------------


def command_list(session: Session, arguments: Arguments) -> Reply:
    table = session.engine.table
    if len(arguments) == 2:
        return _names(table.rows()) + _containers(table)
    if len(arguments) != 5 or arguments[2].upper() != b"FILTERBY":
        raise syntax_error()
    what, value = arguments[3].upper(), arguments[4]
    if what == b"MODULE":
        return []
    if what == b"ACLCAT":
        category = "@" + value.decode("utf-8", "surrogateescape").lower()
        found = _names([row for row in table.rows() if category in row.categories])
        return found + _containers(table) if category == _OF_CONTAINERS else found
    if what == b"PATTERN":
        return list(filter(matcher(value.lower()), _names(table.rows()) + _containers(table)))
    raise syntax_error()


def _names(rows: Iterable[Command]) -> list[bytes]:
    return [row.name.lower().encode() for row in rows]


def _containers(table: CommandTable) -> list[bytes]:
    """Those that have a name and no row, such as CLIENT."""
    return [name.lower() for name in table.containers() if table.bare(name) is None]


def command_docs(session: Session, arguments: Arguments) -> Reply:
    table = session.engine.table
    found: dict[bytes, Reply] = {}
    for name in arguments[2:] or _top_level(table):
        docs = _docs(table, name)
        if docs is not None:
            found[name.lower()] = docs
    return found


def _docs(table: CommandTable, name: bytes) -> Reply:
    container, _, subcommand = name.partition(b"|")
    row, rows = table.find(name), table.subcommands(container)
    if row is not None:
        return _document(row)
    if rows is None:
        return None
    if subcommand:
        row = rows.get(subcommand.upper())
        return None if row is None else _document(row)
    title = container.decode().upper()
    docs = {
        b"summary": f"commands that begin with {title}".encode(),
        b"group": next(iter(rows.values())).group.name.encode(),
    }
    return {**docs, b"subcommands": {each.name.lower().encode(): _document(each) for each in rows.values()}}


def _document(row: Command) -> dict[bytes, Reply]:
    return {b"summary": row.summary.encode(), b"group": row.group.name.encode()}


def command_getkeys(session: Session, arguments: Arguments) -> Reply:
    words = arguments[2:]
    table = session.engine.table
    row = table.find(words[0])
    if row is None:
        rows = table.subcommands(words[0])
        row = None if rows is None or len(words) < 2 else rows.get(words[1].upper())
    if row is None:
        raise CommandError("ERR Invalid command specified")
    if row.keys == Keys():
        raise CommandError("ERR The command has no key arguments")
    if not row.takes(len(words)):
        raise CommandError("ERR Invalid number of arguments specified for command")
    return find_keys(row.keys, words)


def command_help(_session: Session, _arguments: Arguments) -> Reply:
    return help_reply(
        "COMMAND",
        """
        (no subcommand)
            Return details about all Redis commands.
        COUNT
            Return the total number of commands in this Redis server.
        LIST
            Return a list of all commands in this Redis server.
        INFO [<command-name> ...]
            Return details about multiple Redis commands.
            If no command names are given, documentation details for all
            commands are returned.
        DOCS [<command-name> ...]
            Return documentation details about multiple Redis commands.
            If no command names are given, documentation details for all
            commands are returned.
        GETKEYS <full-command>
            Return the keys from a full Redis command.
        """,
    )


_FLAGS = "loading stale"

COMMANDS: list[Command] = [
    connection(CONNECTION, "COMMAND", -1, command, _FLAGS, summary="return details about all commands"),
    connection(CONNECTION, "COMMAND|COUNT", 2, command_count, _FLAGS, summary="return the number of commands"),
    connection(CONNECTION, "COMMAND|INFO", -2, command_info, _FLAGS, summary="return details about some commands"),
    connection(
        CONNECTION, "COMMAND|DOCS", -2, command_docs, _FLAGS, summary="return a line of documentation for each command"
    ),
    connection(CONNECTION, "COMMAND|LIST", -2, command_list, _FLAGS, summary="return the names of commands"),
    connection(
        CONNECTION,
        "COMMAND|GETKEYS",
        -4,
        command_getkeys,
        _FLAGS,
        summary="return the keys among the arguments of a command",
    ),
    connection(CONNECTION, "COMMAND|HELP", 2, command_help, _FLAGS, summary="list the subcommands of COMMAND"),
]
