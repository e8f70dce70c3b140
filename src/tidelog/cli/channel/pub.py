"""`tidelog channel pub`: publishes messages, from the command line or from lines."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Annotated, Final, cast

import typer

from tidelog import limits
from tidelog.address import URL_DEFAULT
from tidelog.cli.channel.json_documents import MessageMaker
from tidelog.cli.exits import FINE, TERMINATED, Terminated, finished_first, guarded, terminate_in_order
from tidelog.cli.options import ChannelExpire, ChannelName, ChannelUrl, PasswordFile, ShowsLine
from tidelog.cli.outage import Outage
from tidelog.cli.output.running_counts import RunningCounts
from tidelog.cli.output.stdout import Output
from tidelog.cli.server_link import find_address
from tidelog.errors import (
    BadChannelInput,
    ClientError,
    LimitExceeded,
    NotConfirmed,
    ServerUnreachable,
    TidelogError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidelog.channels import ChannelMessage, PublishedMessage
    from tidelog.cli.channel.json_documents import ByteSource
    from tidelog.client.channel import Channel
    from tidelog.client.listening import Listener

EPILOG: Final = """\
Examples:

  tidelog channel pub orders '{"total": 3}' --id order-17

  tidelog channel pub orders < orders.jsonl

  tidelog channel pub orders --id-from number < orders.jsonl

  tidelog channel pub orders '"a text needs quotes of its own"' --url redis+cluster://10.0.0.1:6379,10.0.0.2:6379

A channel keeps one message of each id. Publishing an id again changes nothing, and is counted as known. So with --id or
--id-from you can run the command again after any error. Without them each message gets a new random id.

An id is a letter or a digit, then up to 62 more, or _ and -. The content is published as the text that it is.

If a line is not JSON, the command ends; all messages before that line are published. After a lost connection the
command tries again for a minute; if the URL names several servers, also at its start.

JSON: with CONTENT, kind "published" (id, clock, is_new); otherwise kind "summary" (published, known).

`tidelog channel sub` prints messages; `tidelog channels serve` serves channels over HTTP.

Exit status: 0 if everything was published; 2 if a message cannot be published or no server answers; 130 for Ctrl-C; 143
for SIGTERM before the last line."""

_COUNTED: Final = ("published", "known")


@guarded
def pub(
    channel: ChannelName,
    content: Annotated[
        str | None,
        typer.Argument(
            metavar="[CONTENT]",
            help="The content of one message, as JSON. Without it, each line of standard input is one.",
            show_default=False,
        ),
    ] = None,
    message_id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="The id of the message, with CONTENT.")
    ] = None,
    id_from: Annotated[
        str | None,
        typer.Option("--id-from", metavar="FIELD", help="Take the id of each message from this member of its content."),
    ] = None,
    expire: ChannelExpire = "30m",
    confirm_replicas: Annotated[
        int,
        typer.Option(
            "--confirm-replicas",
            metavar="N",
            min=0,
            max=100,
            help="A message is published only when this many replicas of the server have it.",
        ),
    ] = 0,
    url: ChannelUrl = URL_DEFAULT,
    password_file: PasswordFile = None,
    progress: ShowsLine = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> int:
    """Publish messages to a channel: one, or one for each line of standard input."""
    if message_id is not None and id_from is not None:
        raise ClientError("--id and --id-from cannot be used together")
    if message_id is not None and content is None:
        raise ClientError("--id is for one message: it needs CONTENT; for lines there is --id-from")
    from tidelog.client.channel import fresh_id
    from tidelog.client.listening import Listener
    from tidelog.server.configuration import setting_of
    from tidelog.server.setting_values import read_channel_expiry

    expire_ms = setting_of("--expire", read_channel_expiry, expire)
    address = find_address(url, password_file, takes_settings=True, takes_cluster=True)
    maker = MessageMaker(id_from, fresh_id)
    output = Output(as_json=as_json)
    with Listener(address) as listener:
        opened = listener.client.channel(channel, expire=expire_ms / 1000, confirm_replicas=confirm_replicas)
        publisher = _Publisher(listener, opened)
        if content is not None:
            publisher.publish([_only_message(maker, content, message_id)], lambda found: _show(output, found[0]))
            return FINE
        terminate_in_order()
        try:
            with RunningCounts(output, _COUNTED, is_shown=progress) as counts:
                _publish_lines(publisher, maker, counts)
        except Terminated:
            return TERMINATED
    return FINE


def _only_message(maker: MessageMaker, content: str, message_id: str | None) -> ChannelMessage:
    try:
        return maker.message(os.fsencode(content), message_id)
    except BadChannelInput as error:
        hint = "; a text needs quotes of its own: '\"hello\"'" if str(error).startswith("not JSON") else ""
        raise ClientError(f"CONTENT: {error}{hint}") from None


def _show(output: Output, published: PublishedMessage) -> None:
    if output.as_json:
        output.object("published", published._asdict())
    else:
        output.line(f"{published.id} {'is published' if published.is_new else 'was published before'}")


def _publish_lines(publisher: _Publisher, maker: MessageMaker, counts: RunningCounts) -> None:
    from tidelog.client.channel import portions_of

    batches = maker.messages(cast("ByteSource", sys.stdin.buffer))
    while True:
        try:
            messages = next(batches, None)
        except (BadChannelInput, LimitExceeded) as error:
            raise ClientError(f"{error}; {_done(counts)}") from None
        if messages is None:
            return
        for portion in portions_of(messages):
            try:
                publisher.publish(portion, lambda found: _count(counts, found))
            except TidelogError as error:
                raise ClientError(f"{error}; {_done(counts)}, and perhaps some of the next {len(portion)}") from None


def _count(counts: RunningCounts, published: Sequence[PublishedMessage]) -> None:
    new = sum(each.is_new for each in published)
    counts.add(new, len(published) - new)


def _done(counts: RunningCounts) -> str:
    number = sum(counts.counts.values())
    return f"the {number} messages before are published" if number else "nothing is published"


class _Publisher:
    """Publishes to a channel, and waits for a server that has answered before, or is one of several."""

    def __init__(self, listener: Listener, channel: Channel) -> None:
        self._listener = listener
        self._channel = channel
        self._patience = listener.client.patience(limits.CHANNEL_PUBLISH_AWAY_S)
        self._outage = Outage()

    def publish(
        self, messages: Sequence[ChannelMessage], on_published: Callable[[Sequence[PublishedMessage]], None]
    ) -> None:
        while True:
            try:
                with finished_first():  # what is published is counted
                    on_published(self._listener.run_through(self._channel.publish_messages(messages)))
            except (ServerUnreachable, NotConfirmed) as error:
                pause_s = self._patience.pause_s(error)
                if pause_s is None:
                    raise
                self._outage.tell(f"{error}: trying again", has_begun=self._patience.has_reached)
                time.sleep(pause_s)
            else:
                self._patience.reset()
                self._outage.end()
                return
