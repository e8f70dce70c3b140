"""The reference of commands, `docs/commands.md`, made from the command table.

A test holds that the page is current. To write it anew:

    python -m tidelog.commands.reference > docs/commands.md
"""

from __future__ import annotations

import sys
from typing import Final

from tidelog.commands import replication
from tidelog.commands.families import command_table
from tidelog.engine.table import Command, CommandTable

_TITLES: Final = {
    "generic": "Keys",
    "string": "Strings",
    "hash": "Hashes",
    "set": "Sets",
    "sorted-set": "Sorted sets",
    "list": "Lists",
    "stream": "Streams",
    "pubsub": "Pub/sub",
    "transactions": "Transactions",
    "connection": "Connections",
    "server": "Server",
    "replication": "Replication",
    "feed": "Change feeds",
}
"""Group -> heading, in the order of the page. Other groups follow under their own names."""

_OWN_SYNTAX: Final = {
    "DELRANGE": "start end",
    "DELPREFIX": "prefix",
    "TWRITE": "key tag entry \\| key [BACKLOG n] [MAXAGE ms] [PRODUCER id seq] ENTRIES tag entry ...",
    "TREAD": "key offset count [REV] [BLOCK ms] [GROUP g \\| NEWGROUP g] [RETRY retry-ms expire-ms] [WITHINFO]",
    "TACK": "key group offset\\|start-end ...",
    "TGROUP": "key group [MAXPENDING n] [DEADLETTER key MAXDELIVERIES n] [START offset]",
    "TEVICT": "key offset \\| key -n \\| key AGE ms",
    "TCONFIG": "key [MAXBYTES n] [MAXAGE ms] [BACKLOG n]",
    "TCOMPACT": "key",
    "TINFO": "key",
    "CHANGEFEED": "[NAME n] [SHARD i] [SINCE ts [EPOCH e SEEN s] \\| INITIAL] [UNTIL ts] "
    "(KEY k \\| PREFIX p \\| SPAN a b) ... [CHECKPOINT ms] [ONECHECKPOINT] [TXN] [GROUPS] [EXPIRY]",
    "FEED|LIST": "",
    "FEED|KILL": "id",
    "FEED|POSITION": "[SINCE ts (RECORDS n \\| BEHIND)]",
    "FEED|ACK": "name ts",
    "FEED|HOLDS": "",
    "FEED|DROP": "name",
    "FEED|HELP": "",
    "TSYNC": "",
}
"""Commands that Redis does not have -> their arguments."""

_OPENING: Final = """# Commands

<!-- Made from the command table: python -m tidelog.commands.reference > docs/commands.md -->

Every command that a Tidelog server understands. Any Redis client can send them.

- **Redis** commands take the arguments and give the replies of Redis 7.2, whose
  [own reference](https://redis.io/docs/latest/commands/) describes them. A test suite sends the same commands to a real
  Redis and compares the replies. Two differ on purpose: scores have up to 17 digits, as in Redis 7.0
  (`0.10000000000000001`), and `OBJECT IDLETIME` can be too short, but never too long: the last use is noted for
  the keys of a slot together.
- **Tidelog** commands are its own. [Streams](streams.md) and [change feeds](feeds.md) describe them.

*Arguments* counts the words after the name: `2` is exactly two, `2+` is two or more. `COMMAND DOCS name` returns the
same summary from a running server.

The server answers `ERR unknown command` to everything else: among other things it has no bitmaps, HyperLogLogs,
geospatial commands, ACL users or cluster commands, and no SORT or DUMP.
"""


def is_own(row: Command) -> bool:
    """Whether Tidelog has the command and Redis does not."""
    return row.name in _OWN_SYNTAX


def command_reference(table: CommandTable) -> str:
    """The whole page, as Markdown."""
    groups: dict[str, list[Command]] = {group: [] for group in _TITLES}
    for row in table.rows():
        groups.setdefault(_group(row), []).append(row)
    sections = [_section(_TITLES.get(group, group), rows) for group, rows in groups.items() if rows]
    return "\n".join([_OPENING, *sections])


def _group(row: Command) -> str:
    """The section of a command: feeds and replication are worth their own, whatever group COMMAND DOCS puts them in."""
    if row.name.startswith(("CHANGEFEED", "FEED|")):
        return "feed"
    return "replication" if row in replication.COMMANDS else row.group.name


def _section(title: str, rows: list[Command]) -> str:
    lines = [_line(row) for row in sorted(rows, key=lambda row: row.name)]
    return "\n".join([f"## {title}", "", "| command | arguments | | from |", "|---|---|---|---|", *lines, ""])


def _line(row: Command) -> str:
    name = row.name.replace("|", " ")
    if is_own(row):
        arguments = f"`{_OWN_SYNTAX[row.name]}`" if _OWN_SYNTAX[row.name] else ""
    else:
        arguments = _count(row)
    return f"| `{name}` | {arguments} | {row.summary} | {'Tidelog' if is_own(row) else 'Redis'} |"


def _count(row: Command) -> str:
    """How many words follow the name; a subcommand's name has two words."""
    least = abs(row.arity) - len(row.name.split("|"))
    return f"{least}+" if row.arity < 0 else str(least)


if __name__ == "__main__":
    sys.stdout.write(command_reference(command_table()))
