"""`tidelog stream info`: one stream and its groups."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from tidelog.address import URL_DEFAULT
from tidelog.cli.exits import FINE, guarded, until_pipe_closes
from tidelog.cli.options import AsJson, DatabaseNumber, PasswordFile, Url
from tidelog.cli.output.stdout import Column, Output
from tidelog.cli.output.values import bytes_to_text
from tidelog.cli.server_link import connect
from tidelog.cli.stream.facts import facts_of
from tidelog.resp.json_form import bytes_to_json

EPILOG: Final = """\
Examples:

  tidelog stream info orders

JSON: kind "stream", then kind "group" for each consumer group."""

_FACTS: Final = (Column("fact", style="bold"), Column("value", right=True))
_GROUPS: Final = (
    Column("group", style="bold"),
    Column("last", right=True),
    Column("acknowledged below", right=True),
    Column("pending", right=True),
    Column("at most", right=True),
    Column("consumers", right=True),
    Column("due in ms", right=True),
    Column("dead letters"),
)


@guarded
def info(
    key: Annotated[str, typer.Argument(metavar="KEY", help="The stream.")],
    url: Url = URL_DEFAULT,
    password_file: PasswordFile = None,
    database: DatabaseNumber = 0,
    as_json: AsJson = False,
) -> int:
    """Show the size, the offsets and the consumer groups of a stream."""
    output = Output(as_json=as_json)
    name = key.encode("utf-8", "surrogateescape")
    with connect(url, password_file, database) as link, until_pipe_closes():
        facts = facts_of(link.call(b"TINFO", name))
        groups = facts.pop("groups")
        if as_json:
            output.object("stream", {"key": bytes_to_json(name), **_members(facts)})
            for group in groups:
                output.object("group", _members(group))
            return FINE
        output.table(_FACTS, [(fact, _cell(value)) for fact, value in facts.items()])
        if groups:
            output.line()
            output.table(_GROUPS, [_row(group) for group in groups])
    return FINE


def _members(facts: dict[str, Any]) -> dict[str, Any]:
    return {
        name.replace("-", "_"): bytes_to_json(value) if isinstance(value, bytes) else value
        for name, value in facts.items()
    }


def _cell(value: Any) -> str | int | None:
    return value.decode() if isinstance(value, bytes) else value


def _row(group: dict[str, Any]) -> list[str | int | None]:
    letters = group["dead-letter"]
    return [
        bytes_to_text(group["name"]),
        group["last-offset"],
        group["ack-offset"],
        group["pending"],
        group["max-pending"],
        group["consumers"],
        group["due-in-ms"],
        bytes_to_text(letters) if letters else None,
    ]
