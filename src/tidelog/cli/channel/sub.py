"""`tidelog channel sub`: prints the messages of a subscriber, and acknowledges what the reader of its output has."""

from __future__ import annotations

import json
import logging
import re
import sys
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tidelog import limits
from tidelog.address import URL_DEFAULT
from tidelog.cli.exits import FINE, Terminated, complain, guarded, terminate_in_order
from tidelog.cli.options import ChannelExpire, ChannelName, ChannelUrl, PasswordFile, SubscriberName
from tidelog.cli.outage import Outage
from tidelog.cli.output.pipe import StdoutPipe
from tidelog.cli.output.stdout import json_line
from tidelog.cli.server_link import find_address
from tidelog.errors import BadChannelInput, ClientError, LimitExceeded, SubscriptionNotFound

if TYPE_CHECKING:
    from tidelog.client.message_source import ChannelOutage
    from tidelog.client.received_message import ReceivedMessage

EPILOG: Final = """\
Examples:

  tidelog channel sub orders me

  tidelog channel sub orders me --no-follow > orders.jsonl

  tidelog channel sub orders me --output content | jq .total

  tidelog channel sub orders worker --max 1

A subscriber gets every message that was published since it was made, in order. If it does not exist, the command makes
it, and says so on stderr. The server remembers how far each subscriber is: run the command again, and it goes on there.

A message is acknowledged when the next program has taken it out of the pipe; without a pipe, when it is printed. What
was not acknowledged is printed again the next time, so a message may come twice, and none is left out. Note that `head`
takes more out of a pipe than it prints: use --max instead.

A subscriber that neither reads nor acknowledges anything for as long as --expire says is removed. If that happens while
the command runs, the command ends with status 2; with --anew, it goes on with messages from then on.

JSON: kind "message" (id, content). With --output content, only the content.

After a lost connection, the command connects again and misses nothing. If the URL names several servers, it goes on at
the one that leads then, and also waits at its start until one of them leads; if none of them answers, for half a
minute. Messages about that go to stderr.

`tidelog channel pub` publishes, `tidelog channel rm` removes a subscriber. `tidelog channels serve` serves channels
over HTTP.

Exit status: 0 at the end (--max, --no-follow, SIGTERM, a closed pipe), 2 if there is no such subscriber any more or no
server answers, 130 for Ctrl-C."""

_NOT_ASCII: Final = re.compile(r"[^\x20-\x7e]")
_SPACES: Final = str.maketrans("\t\r\n", "   ")


class MessageForm(Enum):
    """What is printed of a message."""

    MESSAGE = "message"
    CONTENT = "content"


@guarded
def sub(
    channel: ChannelName,
    subscriber: SubscriberName,
    count_max: Annotated[
        int | None, typer.Option("--max", metavar="N", min=1, help="Stop after this many messages.")
    ] = None,
    follow: Annotated[
        bool,
        typer.Option("--follow/--no-follow", help="Wait for new messages, or stop after printing those there are."),
    ] = True,
    form: Annotated[
        MessageForm,
        typer.Option("--output", metavar="message|content", help="Print whole messages, or only their content."),
    ] = MessageForm.MESSAGE,
    anew: Annotated[
        bool, typer.Option("--anew", help="If the subscriber expires meanwhile, go on with what is published then.")
    ] = False,
    expire: ChannelExpire = "30m",
    url: ChannelUrl = URL_DEFAULT,
    password_file: PasswordFile = None,
) -> int:
    """Print the messages of a subscriber as JSON lines, and new messages as they come, until Ctrl-C."""
    from tidelog.server.configuration import setting_of
    from tidelog.server.setting_values import read_channel_expiry

    expire_ms = setting_of("--expire", read_channel_expiry, expire)
    address = find_address(url, password_file, takes_settings=True, takes_cluster=True)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="tidelog: %(message)s")

    from tidelog.client.listening import Listener
    from tidelog.client.receiving import receive

    printer = _Printer(form, count_max)
    terminate_in_order()
    try:
        with Listener(address) as listener:
            receive(
                listener,
                channel,
                subscriber,
                printer.take,
                handled=lambda: printer.pipe.taken,
                on_begin=lambda is_new: printer.begin(is_new, channel, subscriber),
                on_idle=printer.look,
                idle_s=limits.CHANNEL_PIPE_LOOK_S if printer.pipe.is_pipe else None,
                on_end=lambda is_at_end: printer.pipe.finish(waits=is_at_end),
                follows=follow,
                channel_options={"expire": expire_ms / 1000},
                begins_anew=anew,
                batch=min(count_max or limits.CHANNEL_FETCH_MESSAGES_MAX, limits.CHANNEL_FETCH_MESSAGES_DEFAULT),
                on_lost=printer.on_lost,
            )
    except Terminated:
        return FINE
    except SubscriptionNotFound as error:
        raise ClientError(f"{error}; with --anew, the command does so by itself") from None
    return FINE


class _Printer:
    """Prints messages, and knows which of them were taken."""

    def __init__(self, form: MessageForm, count_max: int | None) -> None:
        self._form = form
        self._count_left = count_max
        self.pipe: StdoutPipe[ReceivedMessage] = StdoutPipe()
        self._outage = Outage()

    def begin(self, is_new: bool, channel: str, subscriber: str) -> None:
        self._outage.end()
        if is_new:
            complain(f"{subscriber} is a new subscriber of {channel}: it gets messages from now on")

    def take(self, message: ReceivedMessage) -> bool:
        self._outage.end()
        self.pipe.check_reader()
        try:
            line = line_of(message, self._form)
        except (BadChannelInput, LimitExceeded) as error:
            complain(f"passed over a message that another program wrote: {error}")
            line = ""
        sys.stdout.write(line)
        self.pipe.printed_bytes += len(line)  # which is ASCII
        self.pipe.mark(message)
        if self._count_left is not None and line:
            self._count_left -= 1
        return self._count_left == 0

    def look(self) -> None:
        self.pipe.check_reader()
        self.pipe.look()

    def on_lost(self, outage: ChannelOutage) -> None:
        self._outage.on_lost(outage.reason, "trying again", has_begun=outage.has_begun)


def line_of(message: ReceivedMessage, form: MessageForm) -> str:
    """A message as a line of ASCII; `BadChannelInput` if its content is not JSON.

    The content stays the text that was published, but for line breaks, which are never part of a JSON string, and
    characters that are written with an escape.
    """
    from tidelog.channels import made_message

    checked = made_message(message.id, message.json)
    text = checked.content.decode().translate(_SPACES)
    content = (
        text
        if text.isascii() and text.isprintable()
        else _NOT_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], text)
    )
    if form is MessageForm.CONTENT:
        return f"{content}\n"
    return json_line("message", {"id": message.id, "content": None}).removesuffix("null}\n") + content + "}\n"
