"""`tidelog view ls`: lists the views of a server."""

from __future__ import annotations

import json
import time
from typing import Any, Final

from tidelog.address import URL_DEFAULT
from tidelog.cli.exits import FINE, guarded, until_pipe_closes
from tidelog.cli.options import AsJson, DatabaseNumber, PasswordFile, Url
from tidelog.cli.output.stdout import Column, Output
from tidelog.cli.server_link import ServerLink, connect
from tidelog.keys import JOB_INDEX, PIPELINE_PREFIX, VIEW_JOB_PREFIX

EPILOG: Final = """\
Examples:

  tidelog view ls

  tidelog view ls --url redis://10.0.0.5:6399 --json

The list has all views that `tidelog pipeline view` keeps or has kept. It reads the hashes tidelog:pipeline:view:*.

JSON: kind "view" (view, state, version, view_rows, source_rows, source, sql, key, ts, age_seconds).

Exit status: 0, or 2 if no server answers."""

_COLUMNS: Final = (
    Column("view", style="bold"),
    Column("state"),
    Column("version", right=True),
    Column("rows", right=True),
    Column("source"),
    Column("key"),
    Column("sql"),
)
_SQL_CHARS_SHOWN: Final = 80


@guarded
def ls(
    url: Url = URL_DEFAULT, password_file: PasswordFile = None, database: DatabaseNumber = 0, as_json: AsJson = False
) -> int:
    """List the views of a server, with their sources and definitions."""
    output = Output(as_json=as_json)
    with connect(url, password_file, database) as link, until_pipe_closes():
        found = views_of(link)
        if as_json:
            for view in found:
                output.object("view", view)
        elif not found:
            output.line("there are no views: see `tidelog pipeline view --help`")
        else:
            output.table(_COLUMNS, [_row(view) for view in found])
    return FINE


def views_of(link: ServerLink) -> list[dict[str, Any]]:
    """What is said of each view, by name."""
    jobs = link.call(b"SMEMBERS", JOB_INDEX.encode())
    names = sorted(name for name in jobs if name.startswith(VIEW_JOB_PREFIX.encode()))
    found = []
    for name in names:
        flat = link.call(b"HGETALL", PIPELINE_PREFIX.encode() + name)
        fields = {flat[at].decode(): flat[at + 1].decode(errors="replace") for at in range(0, len(flat), 2)}
        if fields:
            found.append(_members(name.decode().removeprefix(VIEW_JOB_PREFIX), fields))
    return found


def _members(name: str, fields: dict[str, str]) -> dict[str, Any]:
    age_ms = time.time_ns() // 1_000_000 - int(fields.get("updated_ms") or 0)
    numbers = {each: int(fields[each]) if fields.get(each) else None for each in _NUMBERS}
    return {
        "view": name,
        "state": fields.get("state", ""),
        **numbers,
        "source": fields.get("source", ""),
        "sql": fields.get("sql", ""),
        "key": json.loads(fields.get("key") or "[]"),
        "age_seconds": round(max(0, age_ms) / 1000, 1),
    }


_NUMBERS: Final = ("version", "view_rows", "source_rows", "ts")


def _row(view: dict[str, Any]) -> list[Any]:
    sql = " ".join(view["sql"].split())
    shown = sql if len(sql) <= _SQL_CHARS_SHOWN else sql[: _SQL_CHARS_SHOWN - 1] + "…"
    named = (view["view"], view["state"], view["version"], view["view_rows"], view["source"])
    return [*named, ", ".join(view["key"]), shown]
