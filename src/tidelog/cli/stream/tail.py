"""`tidelog stream tail`: the entries of a stream, the last ones or all, and those that come."""

from __future__ import annotations

import sys
from typing import Annotated, Any, Final

import typer

from tidelog.address import URL_DEFAULT
from tidelog.cli.exits import FINE, guarded, until_pipe_closes
from tidelog.cli.options import AsJson, DatabaseNumber, PasswordFile, Url
from tidelog.cli.output.stdout import Column, Output
from tidelog.cli.output.values import bytes_to_text
from tidelog.cli.server_link import ServerLink, find_address
from tidelog.cli.stream.facts import facts_of
from tidelog.cli.stream.following import Beginning, FollowedStream, read_entries, show_entries
from tidelog.resp.json_form import bytes_to_json

EPILOG: Final = """\
Examples:

  tidelog stream tail orders

  tidelog stream tail orders --from 1 --json > orders.jsonl

  tidelog stream tail orders --follow

JSON: kind "entry" (offset, tag, and entry; an entry that XADD wrote has fields instead of entry).

With --follow, the command connects again after a lost connection, and prints no entry twice and leaves none out. If the
URL names several servers, it goes on at the one that leads then, and also waits at its start until one of them leads;
if none of them answers, for half a minute. Messages about that go to stderr. If the server does not have all that was
printed, because another one was lost before it had passed it on, stderr says from which offset on, and the entries that
have these offsets now are printed.

Exit status: 0 at the end, 2 if there is no such stream or no server answers, 130 for Ctrl-C."""

_COLUMNS: Final = (Column("offset", 12, right=True, style="bold"), Column("tag", 16), Column("entry"))


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
    address = find_address(url, password_file, database)

    def show(number: int, tag: bytes, content: Any) -> None:
        _show(output, number, tag, content)

    def begin(link: ServerLink) -> Beginning:
        [(first, last)] = link.call(b"TREAD", name, b"1", b"0", b"WITHINFO")
        if not as_json:
            output.header(_COLUMNS)
            sys.stdout.flush()
        if start is not None:
            return Beginning(max(first, start))
        offset = max(first, last - count + 1)
        return Beginning(offset, offset - 1)

    with until_pipe_closes():
        if follow:
            FollowedStream(address, name, show, sys.stdout.flush).run(begin)
        with ServerLink(address) as link:
            last = facts_of(link.call(b"TINFO", name))["last-offset"]
            offset, _ = begin(link)
            while offset <= last and (found := read_entries(link, name, offset)):
                offset = show_entries(found, offset, show)
    return FINE


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
