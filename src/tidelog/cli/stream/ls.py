"""`tidelog stream ls`: the streams of a server."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from tidelog.address import URL_DEFAULT
from tidelog.cli.exits import FINE, guarded, until_pipe_closes
from tidelog.cli.options import AsJson, DatabaseNumber, PasswordFile, Url
from tidelog.cli.output.stdout import Column, Output
from tidelog.cli.output.values import bytes_to_text
from tidelog.cli.server_link import ServerLink, connect
from tidelog.cli.stream.facts import facts_of
from tidelog.errors import ServerRefused
from tidelog.resp.json_form import bytes_to_json

EPILOG: Final = """\
Examples:

  tidelog stream ls

  tidelog stream ls 'orders:*' --json

JSON: kind "stream" (key, length, first_offset, last_offset, last_id, nodes, cold_nodes, bytes, memory_bytes,
disk_bytes, remote_bytes, groups, pending); bytes is the sum of memory_bytes, disk_bytes and remote_bytes (what
lies only in the copy in an object store)."""

_COLUMNS: Final = (
    Column("stream", 24, style="bold"),
    Column("entries", 12, right=True),
    Column("first", 12, right=True),
    Column("last", 12, right=True),
    Column("memory bytes", 14, right=True),
    Column("disk bytes", 14, right=True),
    Column("in the copy", 14, right=True),
    Column("groups", 7, right=True),
    Column("pending", 8, right=True),
)
_MEMBERS: Final = (
    "length",
    "first-offset",
    "last-offset",
    "nodes",
    "cold-nodes",
    "bytes",
    "memory-bytes",
    "disk-bytes",
    "remote-bytes",
)
_SCAN_COUNT: Final = b"1000"


@guarded
def ls(
    pattern: Annotated[
        str, typer.Argument(metavar="[PATTERN]", help="Only streams whose keys match this pattern, such as 'orders:*'.")
    ] = "*",
    url: Url = URL_DEFAULT,
    password_file: PasswordFile = None,
    database: DatabaseNumber = 0,
    as_json: AsJson = False,
) -> int:
    """List the streams, and what they take in memory and on disk."""
    output = Output(as_json=as_json)
    with connect(url, password_file, database) as link, until_pipe_closes():
        if not as_json:
            output.header(_COLUMNS)
        for key in _keys(link, pattern.encode("utf-8", "surrogateescape")):
            _show(link, output, key)
    return FINE


def _keys(link: ServerLink, pattern: bytes) -> list[bytes]:
    found: dict[bytes, None] = {}
    cursor = b"0"
    while True:
        cursor, keys = link.call(b"SCAN", cursor, b"MATCH", pattern, b"COUNT", _SCAN_COUNT, b"TYPE", b"stream")
        found.update(dict.fromkeys(keys))
        if cursor == b"0":
            return sorted(found)


def _show(link: ServerLink, output: Output, key: bytes) -> None:
    try:
        facts = facts_of(link.call(b"TINFO", key))
    except ServerRefused:
        return  # it is gone since
    pending = sum(group["pending"] for group in facts["groups"])
    if output.as_json:
        members = {name.replace("-", "_"): facts[name] for name in _MEMBERS}
        members |= {"last_id": facts["last-id"].decode(), "groups": len(facts["groups"]), "pending": pending}
        output.object("stream", {"key": bytes_to_json(key), **members})
        return
    cells = [
        facts["length"],
        facts["first-offset"],
        facts["last-offset"],
        facts["memory-bytes"],
        facts["disk-bytes"],
        facts["remote-bytes"],
        len(facts["groups"]),
        pending,
    ]
    output.row(_COLUMNS, [bytes_to_text(key), *cells])
