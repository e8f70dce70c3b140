"""`tidelog events tail`: prints the events of a job set over all its days, and new events as they come."""

from __future__ import annotations

import sys
import time
from io import TextIOWrapper
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tidelog.address import URL_DEFAULT, ServerAddress
from tidelog.cli.exits import FINE, Terminated, complain, guarded, terminate_in_order, until_pipe_closes
from tidelog.cli.options import DatabaseNumber, IsCluster, JobSetName, PasswordFile, Queue, Url
from tidelog.cli.outage import Outage
from tidelog.cli.output.stdout import Column, Output
from tidelog.cli.output.values import bytes_to_text, time_of
from tidelog.cli.server_link import connected, find_address
from tidelog.errors import ClientError, ServerUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.days.message import EventId, Message
    from tidelog.days.reader import Reader, ReaderStart

EPILOG: Final = """\
Examples:

  tidelog events tail reports nightly

  tidelog events tail reports nightly --from now --json | jq .event

  tidelog events tail reports nightly --from 1731700000000-0 --until-now --json > events.jsonl

With --json, each line has the form that `tidelog events put` reads: {"id": "1731700000000-0", "timestamp_ms":
1731700000000, "event": {...}}. An event that is not JSON is printed as text, or as {"base64": "..."}.

If ID is older than the first day, printing starts with that day. If a day is removed before all of it was printed, or
the job set's index names a stream that does not exist, the command ends with an error. With --skip-missing it says so
on stderr and goes on with the next day.

After a lost connection, the command connects again and goes on where it was. If the URL names several servers, it goes
on at the one that leads then, and also waits at its start until one of them leads. Messages about that go to stderr.

Exit status: 0 at the end (--until-now, SIGTERM, a closed pipe), 1 if an entry or a batch is damaged, 2 if a day is
missing or no server answers, 130 for Ctrl-C."""

_COLUMNS: Final = (Column("id", 20, style="bold"), Column("time", 27), Column("event"))
_PAGE: Final = 1000
_WAIT_S: Final = 1.0


@guarded
def tail(
    queue: Queue,
    jobset: JobSetName,
    start: Annotated[
        str,
        typer.Option(
            "--from", metavar="beginning|now|ID", help="Where to start. The message with this ID is not printed."
        ),
    ] = "beginning",
    until_now: Annotated[bool, typer.Option("--until-now", help="Stop after printing all current messages.")] = False,
    skip_missing: Annotated[
        bool, typer.Option("--skip-missing", help="Go on after a day that is missing, with a warning.")
    ] = False,
    url: Url = URL_DEFAULT,
    password_file: PasswordFile = None,
    database: DatabaseNumber = 0,
    cluster: IsCluster = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON lines that `tidelog events put` can read.")
    ] = False,
) -> int:
    """Print the events of a job set over all its days, and new events as they come, until Ctrl-C."""
    output = Output(as_json=as_json)
    if as_json and isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # JSON is UTF-8, whatever the encoding of the terminal is
    address = find_address(url, password_file, database, is_cluster=cluster, takes_cluster=True)
    with connected(address, waits=until_now) as server:
        from tidelog.days.jobset import JobSet
        from tidelog.days.reader import Reader

        on_gone = (lambda error: complain(f"skipped: {error}")) if skip_missing else None
        place = _start(start)

        def make_reader() -> Reader:
            reader = Reader(server, JobSet(queue, jobset), place, on_gone=on_gone)
            if not as_json:
                output.header(_COLUMNS)
                sys.stdout.flush()
            return reader

        terminate_in_order()
        try:
            with until_pipe_closes():
                if until_now:
                    _show(output, make_reader().until_now())
                else:
                    _follow(output, make_reader, address)
        except Terminated:
            return FINE
    return FINE


def _start(text: str) -> ReaderStart | EventId:
    from tidelog.days.message import parse_id
    from tidelog.days.reader import ReaderStart

    try:
        return ReaderStart(text) if text in ("beginning", "now") else parse_id(text)
    except ValueError as error:
        raise ClientError(f"--from takes beginning, now or an id: {error}") from None


def _follow(output: Output, make_reader: Callable[[], Reader], address: ServerAddress) -> None:
    """Runs until it is interrupted. After a lost connection it connects again, and the reader goes on where it was."""
    import redis

    from tidelog.client.patience import Patience
    from tidelog.redis_client import explained

    patience, outage = Patience(at_start=address.names_several), Outage()
    reader: Reader | None = None
    while True:
        try:
            if reader is None:
                reader = make_reader()
                patience.reached()
            messages = reader.read(_PAGE, _WAIT_S)
        except (redis.ConnectionError, redis.TimeoutError) as error:
            found = explained(error, address.url)
            pause_s = patience.pause_s(found) if isinstance(found, ServerUnreachable) else None
            if pause_s is None:
                raise found from None
            then = "" if reader is None else f"resuming after {reader.position}"
            outage.on_lost(str(found), then, has_begun=reader is not None)
            time.sleep(pause_s)
            continue
        patience.reset()
        outage.end()
        if messages:
            _show(output, messages)
            sys.stdout.flush()


def _show(output: Output, messages: Any) -> None:
    from tidelog.days.message import json_of_message

    message: Message
    for message in messages:
        if output.as_json:
            sys.stdout.write(json_of_message(message) + "\n")
        else:
            moment = time_of(1000 * message.timestamp_ms) or str(message.timestamp_ms)
            output.row(_COLUMNS, [str(message.id), moment, bytes_to_text(message.event)])
