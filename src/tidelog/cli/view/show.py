"""`tidelog view show`: shows the rows of a view, as an application reads them."""

from __future__ import annotations

import re
from itertools import islice
from typing import Annotated, Any, Final

import typer

from tidelog import limits
from tidelog.address import URL_DEFAULT
from tidelog.cli.exits import FINE, guarded, until_pipe_closes
from tidelog.cli.options import AsJson, DatabaseNumber, PasswordFile, Url, ViewName
from tidelog.cli.output.stdout import Column, Output
from tidelog.cli.server_link import ServerLink, connect
from tidelog.cli.view.ls import views_of
from tidelog.errors import ClientError
from tidelog.keys import VIEW_ROW_PREFIX

EPILOG: Final = """\
Examples:

  tidelog view show orders_by_state

  tidelog view show orders_by_state --limit 10 --json

Each row is a hash view:NAME:*, as HGETALL returns it. Rows are sorted by their keys.

JSON: kind "row" (key, and a member "fields" with all columns that are not null, as text).

Exit status: 0, or 2 if no server answers or there is no such view."""


@guarded
def show(
    name: ViewName,
    url: Url = URL_DEFAULT,
    password_file: PasswordFile = None,
    database: DatabaseNumber = 0,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Show at most this many rows.")] = 1000,
    as_json: AsJson = False,
) -> int:
    """Show the rows of a view."""
    output = Output(as_json=as_json)
    with connect(url, password_file, database) as link, until_pipe_closes():
        prefix = f"{VIEW_ROW_PREFIX}{name}:".encode()
        keys = sorted(_keys(link, prefix))
        if not keys and name not in [view["view"] for view in views_of(link)]:
            raise ClientError(f"there is no view {name!r}: `tidelog view ls` lists all views")
        rows = [_fields(link.call(b"HGETALL", key)) for key in islice(keys, limit)]
        _show(output, [key.removeprefix(prefix).decode(errors="replace") for key in keys[:limit]], rows, len(keys))
    return FINE


def _keys(link: ServerLink, prefix: bytes) -> set[bytes]:
    pattern = re.sub(rb"([*?[\]\\])", rb"\\\1", prefix) + b"*"  # a name is a name, whatever characters it has
    found: set[bytes] = set()
    cursor = b"0"
    while True:
        cursor, keys = link.call(b"SCAN", cursor, b"MATCH", pattern, b"COUNT", b"%d" % limits.VIEW_SCAN_KEYS)
        found.update(keys)
        if cursor == b"0":
            return found


def _fields(flat: list[bytes]) -> dict[str, str]:
    texts = [each.decode(errors="replace") for each in flat]
    return dict(zip(texts[::2], texts[1::2], strict=True))


def _show(output: Output, keys: list[str], rows: list[dict[str, str]], count: int) -> None:
    if output.as_json:
        for key, row in zip(keys, rows, strict=True):
            output.object("row", {"key": key, "fields": row})
        return
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = [Column("key", style="bold"), *(Column(name) for name in names)]
    cells: list[list[Any]] = [[key, *(row.get(name) for name in names)] for key, row in zip(keys, rows, strict=True)]
    output.table(columns, cells)
    if count > len(keys):
        output.line(f"and {count - len(keys)} more: see --limit")
