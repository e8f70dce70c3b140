"""`tidelog channel ls`: lists channels, their subscribers, and how far each is behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from tidelog.address import URL_DEFAULT
from tidelog.cli.exits import FINE, guarded
from tidelog.cli.options import AsJson, ChannelUrl, PasswordFile
from tidelog.cli.output.job_figures import shown_seconds
from tidelog.cli.output.stdout import Cell, Column, Output
from tidelog.cli.server_link import find_address

if TYPE_CHECKING:
    from tidelog.channels import ListedChannel

EPILOG: Final = """\
Examples:

  tidelog channel ls

  tidelog channel ls orders --json

  tidelog channel ls --url redis+cluster://10.0.0.1:6379,10.0.0.2:6379

The lag of a subscriber is the number of messages that it has not acknowledged, expired ones included. A channel or a
subscriber that is not used is removed when the time in the last column is over. The command looks through all keys of
the server, page by page.

JSON: kind "channel" (channel, clock, expires_in_ms), then for each of its subscribers kind "subscriber" (channel,
subscriber, lag, expires_in_ms). The lag is null if the subscriber can no longer be used and has to be made again.

`tidelog channels serve` serves channels over HTTP.

Exit status: 0; 2 if no server answers."""

_COLUMNS: Final = (
    Column("channel", style="bold"),
    Column("subscriber"),
    Column("lag", right=True),
    Column("expires in", right=True),
)


@guarded
def ls(
    channel: Annotated[
        str | None,
        typer.Argument(metavar="[CHANNEL]", help="Only this channel; without it, all of them.", show_default=False),
    ] = None,
    url: ChannelUrl = URL_DEFAULT,
    password_file: PasswordFile = None,
    as_json: AsJson = False,
) -> int:
    """List the channels of a server, their subscribers, and how many messages each is behind."""
    address = find_address(url, password_file, takes_settings=True, takes_cluster=True)
    output = Output(as_json=as_json)

    from tidelog.client.listening import Listener

    with Listener(address) as listener:
        listed = listener.run(listener.client.list_channels(channel))
    if as_json:
        for each in listed:
            _show_json(output, each)
    else:
        output.table(_COLUMNS, [row for each in listed for row in _rows(each)])
    return FINE


def _show_json(output: Output, listed: ListedChannel) -> None:
    output.object("channel", {"channel": listed.channel, "clock": listed.clock, "expires_in_ms": listed.expires_in_ms})
    for row in listed.subscribers:
        output.object("subscriber", {"channel": listed.channel, **row._asdict()})


def _rows(listed: ListedChannel) -> list[list[Cell]]:
    """One for the channel if it has no subscribers, else one for each of them."""
    if not listed.subscribers:
        return [[listed.channel, None, None, shown_seconds(listed.expires_in_ms / 1000)]]
    return [
        [listed.channel, row.subscriber, row.lag, shown_seconds(row.expires_in_ms / 1000)] for row in listed.subscribers
    ]
