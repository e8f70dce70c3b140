"""`tidelog pipeline status`: shows the progress that jobs report in their hashes, and their lag behind the server."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import typer

from tidelog import limits
from tidelog.address import URL_DEFAULT, ServerAddress
from tidelog.cli.exits import FINE, guarded, until_pipe_closes
from tidelog.cli.kept_link import KeptLink
from tidelog.cli.options import AsJson, DatabaseNumber, IsCluster, PasswordFile, Url
from tidelog.cli.output.job_figures import STATE_STYLES, JobFigures, json_text, json_value, shown_seconds
from tidelog.cli.output.stdout import Cell, Column, Output, Styled, rich_table
from tidelog.cli.server_link import ServerLink, find_address
from tidelog.errors import ClientError, ServerRefused
from tidelog.keys import JOB_INDEX, PIPELINE_PREFIX

if TYPE_CHECKING:
    from rich.console import RenderableType

EPILOG: Final = """\
Examples:

  tidelog pipeline status

  tidelog pipeline status lake --watch

  tidelog pipeline status --json | jq 'select(.lag_seconds > 60)'

The state `silent` means that a running job has not reported for 10 seconds: it was killed, or cannot reach the server.
The lag is measured now, also for jobs that have ended. The column `days` says what compress and expire have done.

JSON: kind "job" (job, state, age_seconds, and all figures that the job reports: updated_ms, ts, lag_seconds,
lag_records, rows, rows_per_second, batches, batch_seconds, last_error ...).

With --watch, the command connects again after a lost connection. If the URL names several servers, it goes on at the
one that leads then, and also waits at its start until one of them leads.

Exit status: 0, 2 if no server answers or there is no such job, 130 for Ctrl-C."""

_ERROR_CHARS_SHOWN: Final = 60
_DAY_FIGURES: Final = (
    ("streams", "compressed"),
    ("days", "removed"),
    ("left_hot", "left hot"),
    ("failed", "failed"),
)
"""Figures of compress and expire, and how they are called."""

_COLUMNS: Final = (
    Column("job", 16, style="bold"),
    Column("state", 8),
    Column("heard", 9, right=True),
    Column("lag", 9, right=True),
    Column("records", 11, right=True),
    Column("rows", 13, right=True),
    Column("rows/s", 9, right=True),
    Column("batch", 8, right=True),
    Column("days", 24),
    Column("last error", style="red"),
)


@guarded
def status(
    jobs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[JOB]...", help="Show only these jobs and their parts: view, view:orders.", show_default=False
        ),
    ] = None,
    url: Url = URL_DEFAULT,
    password_file: PasswordFile = None,
    database: DatabaseNumber = 0,
    cluster: IsCluster = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show it again every second, until Ctrl-C.")] = False,
    as_json: AsJson = False,
) -> int:
    """Show the jobs of a server: their state, lag, rows, batch times, and what was done to days."""
    output = Output(as_json=as_json)
    address = find_address(url, password_file, database, is_cluster=cluster, takes_cluster=True)
    with until_pipe_closes():
        if watch:
            _watch(address, jobs, output)
        with ServerLink(address) as link:
            found = _ask(link, jobs)
            _check_names(jobs, found)
            _show(output, found)
    return FINE


# --- asking -----------------------------------------------------------------------------------------------------------


def _ask(link: ServerLink, wanted: Sequence[str] | None) -> list[JobFigures]:
    """The jobs that have said something, by name."""
    names = sorted(_decoded(name) for name in link.call(b"SMEMBERS", JOB_INDEX.encode()))
    found = []
    for name in names:
        if not wanted or any(name == job or name.startswith(f"{job}:") for job in wanted):
            fields = _fields(link, name)
            if fields:
                found.append(JobFigures(name, {**fields, **_lag_now(link, JobFigures(name, fields))}))
    return found


def _fields(link: ServerLink, job: str) -> dict[str, str]:
    try:
        reply = link.call(b"HGETALL", f"{PIPELINE_PREFIX}{job}".encode("utf-8", "surrogateescape"))
    except ServerRefused as error:
        if "WRONGTYPE" not in str(error):
            raise
        return {}  # no hash
    return {_decoded(name): _decoded(value) for name, value in zip(reply[::2], reply[1::2], strict=True)}


def _lag_now(link: ServerLink, told: JobFigures) -> dict[str, int | float]:
    """How far the server is ahead of it; nothing if the job does not say how far it is, or this is no Tidelog."""
    ts = told.whole("ts")
    if ts is None or ts < 0:
        return {}
    try:
        rows = link.call(b"FEED", b"POSITION", b"SINCE", b"%d" % ts, b"BEHIND")
    except ServerRefused:
        return {}
    behind_us = max(0, rows[0][1] - rows[0][4])  # as `tidelog.spark.source.feed.position.ask_behind` has it
    return {"lag_seconds": behind_us / 1e6, "lag_records": max(1, sum(row[3] for row in rows)) if behind_us else 0}


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _check_names(wanted: Sequence[str] | None, found: list[JobFigures]) -> None:
    for job in wanted or ():
        if not any(told.job == job or told.job.startswith(f"{job}:") for told in found):
            raise ClientError(f"no job {job!r} has reported to this server, in this database")


# --- showing ----------------------------------------------------------------------------------------------------------


def _show(output: Output, found: list[JobFigures]) -> None:
    now_ms = _now_ms()
    if output.as_json:
        _show_objects(output, found, now_ms)
    elif found:
        output.table(_COLUMNS, [_cells(told, now_ms) for told in found])
    else:
        output.line("no job has reported to this server, in this database")


def _show_objects(output: Output, found: list[JobFigures], now_ms: int) -> None:
    for told in found:
        fields = {name: json_value(value) for name, value in told.fields.items() if name != "kind"}
        age_s = told.age_s(now_ms)
        ours = {"job": json_text(told.job), "state": told.state(now_ms), "age_seconds": age_s}
        output.object("job", {**ours, **fields, **ours})


def _cells(told: JobFigures, now_ms: int) -> list[Cell]:
    state = told.state(now_ms)
    error = told.text("last_error")
    if error is not None and len(error) > _ERROR_CHARS_SHOWN:
        error = error[:_ERROR_CHARS_SHOWN] + "…"
    return [
        told.job,
        Styled(state, STATE_STYLES.get(state, "")),
        shown_seconds(told.age_s(now_ms)),
        shown_seconds(told.number("lag_seconds")),
        told.whole("lag_records"),
        told.whole("rows"),
        told.whole("rows_per_second"),
        shown_seconds(told.number("batch_seconds")),
        _days_done(told),
        error,
    ]


def _days_done(told: JobFigures) -> str | None:
    """What `compress` and `expire` have done, and what failed; None for other jobs."""
    done = [f"{count:,} {what}" for name, what in _DAY_FIGURES if (count := told.whole(name))]
    ratio = told.number("ratio")
    if ratio is not None:
        done.append(f"{ratio:g} times smaller")
    return ", ".join(done) or None


def _watch(address: ServerAddress, jobs: Sequence[str] | None, output: Output) -> NoReturn:
    """Until Ctrl-C, also over a restart of the server or a failover."""
    kept = KeptLink(address)
    needs_header = not output.as_json and not output.is_terminal

    def watch(link: ServerLink) -> NoReturn:
        def ask() -> list[JobFigures]:
            nonlocal needs_header
            found = _ask(link, jobs)
            kept.answered()
            if needs_header:
                output.header(_COLUMNS)
                needs_header = False
            return found

        if output.is_terminal:
            _redraw(ask)
        _repeat(ask, output)

    kept.run(watch, lambda: "trying again")


def _redraw(ask: Callable[[], list[JobFigures]]) -> NoReturn:
    """A table on the terminal that stays in its place."""
    from rich.live import Live
    from rich.text import Text

    def render() -> RenderableType:
        now_ms = _now_ms()
        rows = [_cells(told, now_ms) for told in ask()]
        return rich_table(_COLUMNS, rows) if rows else Text("no job has reported yet")

    with Live(render(), auto_refresh=False) as live:
        while True:
            time.sleep(limits.PIPELINE_REPORT_S)
            live.update(render(), refresh=True)


def _repeat(ask: Callable[[], list[JobFigures]], output: Output) -> NoReturn:
    """A line for each job, once a second: for a file, or a program."""
    while True:
        found, now_ms = ask(), _now_ms()
        if output.as_json:
            _show_objects(output, found, now_ms)
        else:
            for told in found:
                output.row(_COLUMNS, _cells(told, now_ms))
        sys.stdout.flush()
        time.sleep(limits.PIPELINE_REPORT_S)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
