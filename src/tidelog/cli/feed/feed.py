"""`tidelog feed`: prints the changes of a server as they happen, on the Python client."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperCommand

from tidelog.address import URL_DEFAULT, ServerAddress
from tidelog.cli.exits import FINE, Terminated, guarded, terminate_in_order
from tidelog.cli.feed.delivery import Confirmed, Executed, Printed
from tidelog.cli.feed.lines import FeedLines
from tidelog.cli.feed.order import Ordered
from tidelog.cli.options import AsJson, FromFollowers, PasswordFile, Url
from tidelog.cli.outage import Outage
from tidelog.cli.output.stdout import Output
from tidelog.cli.output.values import parse_moment, time_or_number
from tidelog.cli.server_link import find_address
from tidelog.errors import ClientError, FeedDiverged, TooOld

if TYPE_CHECKING:
    from tidelog.client.event import Checkpoint, Event
    from tidelog.client.feed import Lost
    from tidelog.client.listening import Listener

EPILOG: Final = """\
Examples:

  tidelog feed --prefix user:

  tidelog feed --key greeting --key counter --initial

  tidelog feed --since 2025-11-15T20:03:20Z --until-now > changes.jsonl

  tidelog feed --initial --until-now --ordered --no-checkpoints > state.jsonl

  tidelog feed --url redis://10.0.0.1:6399,10.0.0.2:6399 --from-followers

  tidelog feed --name exporter --prefix order: --exec ./export-some

  tidelog feed --name exporter --prefix order: --ack-from 0 <from-exporter >to-exporter

JSON: kind "value" (ts, key, type, field, value; value null: deleted), "deleterange" (ts, start, end), "steady" (ts),
"checkpoint" (ts, start, end, epoch, seen), "commit" (ts), "expire" (ts, key, expire_ms). Bytes are text if they are
UTF-8, otherwise {"base64": "..."}.

After a lost connection, the feed connects again and misses nothing. If the URL names several servers, it goes on at the
one that leads then, and also waits at its start until one of them leads; if none of them answers, for half a minute.
Messages about that go to stderr. A feed with --name is always the leader's.

With --name, the feed continues after what was acknowledged, so some events may come again. By default, that is what the
next program has taken out of the pipe. With --ack-from FD, it is what that program confirms: it writes the ts of an
event or a checkpoint (or the whole line) to FD when it has handled everything up to there. With --exec CMD, the shell
runs CMD for each batch of events, with the lines on its standard input. If CMD ends with 0, the batch is acknowledged;
otherwise CMD gets the same batch again.

Exit status: 0 at the end (--until, SIGTERM, a closed pipe), 2 if the feed cannot be read or another reader took its
name, 130 for Ctrl-C."""

_SOON_MS: Final = 50


def _as_it_is(words: Any) -> Any:
    """Some versions of typer pass a pair of words, others each word. Neither must become text."""
    return words


class FeedCommand(TyperCommand):
    """A command with a repeatable option of two words. Typer has no such option; click, on which it is built, has."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for parameter in self.params:
            if parameter.name == "spans":
                parameter.nargs = 2


@guarded
def feed(
    keys: Annotated[
        list[str] | None, typer.Option("--key", metavar="KEY", help="Print changes of this key; repeatable.")
    ] = None,
    prefixes: Annotated[
        list[str] | None,
        typer.Option("--prefix", metavar="PREFIX", help="Print changes of keys with this prefix; repeatable."),
    ] = None,
    spans: Annotated[
        list[Any] | None,
        typer.Option(
            "--span",
            parser=_as_it_is,
            metavar="A B",
            help="Print changes of keys from A up to, but not including, B; an empty B means no upper bound; "
            "repeatable. Without --key, --prefix and --span, changes of all keys are printed.",
        ),
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TS", help="Start after this moment: a number of µs, or an ISO time in UTC.")
    ] = None,
    initial: Annotated[bool, typer.Option("--initial", help="Start with the current values.")] = False,
    until: Annotated[str | None, typer.Option(metavar="TS", help="Stop at this moment.")] = None,
    until_now: Annotated[
        bool, typer.Option("--until-now", help="Stop after printing everything that has happened up to now.")
    ] = False,
    name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Register this reader with the server. The server remembers how far it has read, and keeps the "
            "journal from there on. Without --since, the feed continues where this reader stopped; a new name "
            "needs --since or --initial.",
        ),
    ] = None,
    ack_from: Annotated[
        int | None,
        typer.Option(
            "--ack-from",
            metavar="FD",
            min=0,
            help="With --name: read from this file descriptor, such as 0 for standard input, how far the consumer is.",
        ),
    ] = None,
    command: Annotated[
        str | None,
        typer.Option("--exec", metavar="CMD", help="With --name: run this command for each batch of events."),
    ] = None,
    txn: Annotated[bool, typer.Option("--txn", help="Print a commit after the changes of each transaction.")] = False,
    groups: Annotated[bool, typer.Option("--groups", help="Also print changes of consumer groups.")] = False,
    expiry: Annotated[bool, typer.Option("--expiry", help="Also print when keys expire.")] = False,
    ordered: Annotated[
        bool,
        typer.Option(
            "--ordered",
            help="Print all events in the order of their ts. Events stay in memory until the next checkpoint, and are "
            "printed then; if there are too many, the command ends with status 2.",
        ),
    ] = False,
    checkpoints: Annotated[
        bool | None,
        typer.Option(
            "--checkpoints/--no-checkpoints", help="Print checkpoints. By default they are printed only as JSON."
        ),
    ] = None,
    one_checkpoint: Annotated[
        bool,
        typer.Option("--one-checkpoint", help="Get one checkpoint for all keys together instead of one for each."),
    ] = False,
    database: Annotated[
        int, typer.Option("--db", "-n", metavar="N", help="The number of the database.", min=0, max=15)
    ] = 0,
    url: Url = URL_DEFAULT,
    password_file: PasswordFile = None,
    from_followers: FromFollowers = False,
    as_json: AsJson = False,
) -> int:
    """Print changes as they happen: in columns on a terminal, otherwise as JSON lines."""
    if since is not None and initial:
        raise ClientError("--since and --initial cannot be used together")
    if until is not None and until_now:
        raise ClientError("--until and --until-now cannot be used together")
    if ack_from is not None and command is not None:
        raise ClientError("--ack-from and --exec cannot be used together")
    if name is None and (ack_from is not None or command is not None):
        raise ClientError("--ack-from and --exec need --name")
    address = find_address(url, password_file, database, takes_settings=True)
    wanted: dict[str, Any] = {
        "prefix": [os.fsencode(each) for each in prefixes or []],
        "keys": [os.fsencode(each) for each in keys or []],
        "spans": [(os.fsencode(start), os.fsencode(end)) for start, end in spans or []],  # see FeedCommand
        "since": _moment("--since", since),
        "initial": initial,
        "until": _moment("--until", until),
        "name": name,
        "txn": txn,
        "groups": groups,
        "expiry": expiry,
        "one_checkpoint": one_checkpoint,
        "from_followers": from_followers,
    }
    output = Output(as_json=as_json or not sys.stdout.isatty())
    shows_checkpoints = output.as_json and command is None if checkpoints is None else checkpoints
    lines = FeedLines(output, has_checkpoints=shows_checkpoints)
    delivery = _delivery(lines, ack_from, command)
    terminate_in_order()
    try:
        with _listener(address) as listener:
            _listen(listener, delivery, wanted, is_ordered=ordered, is_until_now=until_now)
    except Terminated:
        return FINE
    except TooOld as error:
        raise ClientError(
            f"{error}: start with --since {error.oldest}, or with --initial to get the current values"
        ) from None
    except FeedDiverged as error:
        raise ClientError(
            f"{error}, and some of it was printed already: discard what came after that ts, and go on with --since "
            f"{error.since}"
        ) from None
    return FINE


def _delivery(lines: FeedLines, ack_from: int | None, command: str | None) -> Printed | Confirmed | Executed:
    if command is not None:
        return Executed(lines, command)
    return Printed(lines) if ack_from is None else Confirmed(lines, ack_from)


def _listen(
    listener: Listener,
    delivery: Printed | Confirmed | Executed,
    wanted: dict[str, Any],
    *,
    is_ordered: bool,
    is_until_now: bool,
) -> None:
    order = Ordered() if is_ordered else None
    outage = Outage()

    def on_lost(lost: Lost) -> None:
        place = "at the beginning" if lost.since is None else f"after {time_or_number(lost.since)}"
        outage.on_lost(lost.reason, f"resuming {place}", has_begun=lost.has_begun)
        delivery.on_lost()

    # The current values are read one by one while others write: they are complete at the first checkpoint.
    ends_at_checkpoint = is_until_now and wanted["initial"]
    if ends_at_checkpoint:
        wanted["checkpoint_ms"] = _SOON_MS
    elif is_until_now:
        wanted["until"] = listener.newest_ts(on_lost)
        outage.end()

    newest: Checkpoint | None = None

    def handle(event: Event, checkpoint: Checkpoint | None) -> bool:
        nonlocal newest
        outage.end()
        for each in [event] if order is None else order.take(event, checkpoint):
            delivery.take(each)
        if checkpoint is not None and checkpoint is not newest:
            newest = checkpoint
            delivery.checkpoint(checkpoint.ts)
        return ends_at_checkpoint and checkpoint is not None

    confirmed = delivery if isinstance(delivery, Confirmed) else None
    listener.listen(
        handle,
        handled_ts=lambda: delivery.handled_ts,
        on_end=delivery.finish,
        source=None if confirmed is None else confirmed.source,
        on_source=confirmed.read if confirmed is not None else lambda: True,
        on_lost=on_lost,
        **wanted,
    )


def _listener(address: ServerAddress) -> Listener:
    from tidelog.client.listening import Listener  # only here: it brings redis-py

    return Listener(address)


def _moment(option: str, text: str | None) -> int | None:
    try:
        return None if text is None else parse_moment(text)
    except ValueError as error:
        raise ClientError(f"{option}: {error}") from None
