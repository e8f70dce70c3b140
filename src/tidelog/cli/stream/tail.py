"""`tidelog stream tail`: the entries of a stream, the last ones or all, and those that come."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from tidelog.address import URL_DEFAULT
from tidelog.cli.exits import FINE, guarded, until_pipe_closes
from tidelog.cli.options import AsJson, DatabaseNumber, PasswordFile, Url
from tidelog.cli.output.stdout import Column, Output
from tidelog.cli.output.values import bytes_to_text
from tidelog.cli.server_link import ServerLink, connect
from tidelog.cli.stream.facts import facts_of
from tidelog.resp.json_form import bytes_to_json

EPILOG: Final = """\
Examples:

  tidelog stream tail orders

  tidelog stream tail orders --from 1 --json > orders.jsonl

  tidelog stream tail orders --follow

JSON: kind "entry" (offset, tag, and entry; an entry that XADD wrote has fields instead of entry)."""

_COLUMNS: Final = (Column("offset", 12, right=True, style="bold"), Column("tag", 16), Column("entry"))
_AT_ONCE: Final = 1000
_BLOCK_MS: Final = b"1000"
"""How long one call waits, so that Ctrl-C does not have to."""


@guarded
def tail(
    key: Annotated[str, typer.Argument(metavar="KEY", help="The stream.")],
    start: Annotated[
        int | None,
        typer.Option("--from", metavar="OFFSET", help="Start at this offset instead of with the last entries.", min=0),
    ] = None,
    count: Annotated[
        int, typer.Option("--count", "-c", metavar="N", help="Print this many of the last entries.", min=0)
    ] = 10,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Also print new entries as they come, until Ctrl-C.")
    ] = False,
    url: Url = URL_DEFAULT,
    password_file: PasswordFile = None,
    database: DatabaseNumber = 0,
    as_json: AsJson = False,
) -> int:
    """Print the last entries of a stream, or all entries from an offset on."""
    output = Output(as_json=as_json)
    name = key.encode("utf-8", "surrogateescape")
    with connect(url, password_file, database) as link, until_pipe_closes():
        if not follow or start is None:
            facts = facts_of(link.call(b"TINFO", name)) if not follow or link.call(b"EXISTS", name) else None
            first, last = (facts["first-offset"], facts["last-offset"]) if facts is not None else (1, 0)
        else:
            first, last = start, 0
        offset = max(first, start) if start is not None else max(first, last - count + 1)
        if not as_json:
            output.header(_COLUMNS)
        while follow or offset <= last:
            offset = _show_some(link, output, name, offset, follow)
    return FINE


def _show_some(link: ServerLink, output: Output, key: bytes, offset: int, follow: bool) -> int:
    """Print some entries from an offset on; returns where to go on."""
    waiting = (b"BLOCK", _BLOCK_MS) if follow else ()
    found: list[Any] = link.call(b"TREAD", key, b"%d" % offset, b"%d" % _AT_ONCE, *waiting) or []
    for entry in found:
        if entry is None:  # evicted
            offset += 1
            continue
        number, tag, content = entry
        offset = number + 1
        _show(output, number, tag, content)
    if not found and not follow:
        offset += _AT_ONCE  # nothing but holes
    return offset


def _show(output: Output, number: int, tag: bytes, content: Any) -> None:
    fields = isinstance(content, list)
    if output.as_json:
        pairs = zip(content[::2], content[1::2], strict=True) if fields else ()
        value = {"fields": [[bytes_to_json(name), bytes_to_json(each)] for name, each in pairs]}
        members = value if fields else {"entry": bytes_to_json(content)}
        output.object("entry", {"offset": number, "tag": bytes_to_json(tag), **members})
        return
    text = " ".join(map(bytes_to_text, content)) if fields else bytes_to_text(content)
    output.row(_COLUMNS, [number, bytes_to_text(tag), text])
