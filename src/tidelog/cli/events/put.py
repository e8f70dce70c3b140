"""`tidelog events put`: writes messages into the day streams of a job set, from lines or from another stream."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import typer

from tidelog import limits
from tidelog.address import URL_DEFAULT
from tidelog.cli.exits import FINE, TERMINATED, Terminated, complain, finished_first, guarded, terminate_in_order
from tidelog.cli.options import DatabaseNumber, IsCluster, JobSetName, PasswordFile, Queue, Url
from tidelog.cli.output.running_counts import RunningCounts
from tidelog.cli.output.stdout import Output
from tidelog.cli.server_link import connected, find_address
from tidelog.errors import ClientError

if TYPE_CHECKING:
    from tidelog.days.inputs import LineSource
    from tidelog.days.writer import Writer

EPILOG: Final = """\
Examples:

  tidelog events put reports nightly < events.jsonl

  tidelog events put reports nightly --file events.jsonl --url redis://127.0.0.1:6379

  tidelog events put reports nightly --from-stream incoming --group days --consumer one

A line looks like this: {"id": "1731700000000-0", "timestamp_ms": 1731700000000, "event": {...}}. The message goes into
the stream of the UTC day of timestamp_ms; other members of the object are dropped. A message that was written before is
counted as a duplicate. A message that comes too late for its day, or whose time or id lies more than --max-ahead in the
future, goes to the stream {QUEUE_JOBSET}_late. If a line is not a message, the command ends; all messages before that
line are written.

An entry of --from-stream must have a field event. The message takes its id and timestamp_ms from fields of these names,
or from the id of the entry. The entry is acknowledged once the message is written. An entry that is not a message goes
to {QUEUE_JOBSET}_late with the reason, and counts as late.

JSON: kind "summary" (written, duplicate, late).

Exit status: 0 if everything was written, or SIGTERM ended --from-stream; 2 if a line is not a message or no server
answers; 130 for Ctrl-C; 143 for SIGTERM before the last line."""

_WAIT_S: Final = 1.0
_COUNTED: Final = ("written", "duplicate", "late")


@guarded
def put(
    queue: Queue,
    jobset: JobSetName,
    file: Annotated[
        str | None, typer.Option("--file", metavar="FILE", help="Read lines from this file instead of standard input.")
    ] = None,
    stream: Annotated[
        str | None,
        typer.Option("--from-stream", metavar="KEY", help="Read entries of this stream instead, as they come."),
    ] = None,
    group: Annotated[str | None, typer.Option(metavar="G", help="The consumer group that reads the stream.")] = None,
    consumer: Annotated[
        str,
        typer.Option(
            metavar="C", help="The consumer in the group. If you start it again, it continues where it stopped."
        ),
    ] = "events-put",
    until_now: Annotated[
        bool, typer.Option("--until-now", help="Stop when all current entries of the stream are written.")
    ] = False,
    max_ahead: Annotated[
        float,
        typer.Option(
            "--max-ahead",
            metavar="S",
            min=0,
            help="Messages whose time or id lies more than this many seconds in the future are late. inf: none.",
        ),
    ] = limits.DAYS_AHEAD_S_MAX,
    url: Url = URL_DEFAULT,
    password_file: PasswordFile = None,
    database: DatabaseNumber = 0,
    cluster: IsCluster = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> int:
    """Write messages into the day streams of a job set."""
    if stream is not None and file is not None:
        raise ClientError("--file and --from-stream cannot be used together")
    if stream is None and (group is not None or until_now):
        raise ClientError("--group and --until-now need --from-stream")
    if stream is not None and group is None:
        raise ClientError("--from-stream needs --group")
    with connected(find_address(url, password_file, database, is_cluster=cluster, takes_cluster=True)) as server:
        from tidelog.days.jobset import JobSet
        from tidelog.days.writer import Writer

        writer = Writer(server, JobSet(queue, jobset), max_ahead_s=max_ahead)
        server.ping()
        terminate_in_order()
        with RunningCounts(Output(as_json=as_json), _COUNTED) as counts:
            try:
                if stream is not None and group is not None:
                    key = stream.encode("utf-8", "surrogateescape")
                    _put_stream(writer, counts, server, key, group, consumer, until_now=until_now)
                else:
                    with _lines(file) as source:
                        _put_lines(writer, counts, source)
            except Terminated:
                return TERMINATED if stream is None else FINE  # a stream has no end, and keeps the rest
    return FINE


def _put_lines(writer: Writer, counts: RunningCounts, source: LineSource) -> None:
    from tidelog.days.inputs import json_lines

    for messages in json_lines(source):
        with finished_first():  # what is written is counted
            counts.add(*writer.write(messages))


def _put_stream(
    writer: Writer, counts: RunningCounts, server: Any, key: bytes, group: str, consumer: str, *, until_now: bool
) -> None:
    from tidelog.days.inputs import StreamInput

    source = StreamInput(server, key, group, consumer)
    is_told = False
    while True:
        delivery = source.read(0.0 if until_now else _WAIT_S)
        if delivery.entry_ids:
            with finished_first():  # what is written is counted
                counts.add(*writer.write(delivery.messages))
                counts.add(*writer.set_aside(delivery.bad))
                source.acknowledge(delivery)
            if delivery.bad and not is_told:
                is_told = True  # once: there may be as many as the stream has entries
                first = delivery.bad[0]
                complain(
                    f"entry {first.entry_id.decode()} and perhaps others went to the late messages: {first.reason}"
                )
        elif until_now:
            return


@contextmanager
def _lines(file: str | None) -> Iterator[LineSource]:
    if file is None or file == "-":
        yield cast("LineSource", sys.stdin.buffer)
    else:
        with open(file, "rb") as opened:
            yield opened
