"""`tidelog channel rm`: removes a subscriber."""

from __future__ import annotations

from typing import Final

from tidelog.address import URL_DEFAULT
from tidelog.cli.exits import FINE, guarded
from tidelog.cli.options import AsJson, ChannelName, ChannelUrl, PasswordFile, SubscriberName
from tidelog.cli.output.stdout import Output
from tidelog.cli.server_link import find_address

EPILOG: Final = """\
Examples:

  tidelog channel rm orders me

The server forgets how far the subscriber is. Messages stay until they expire, and so does a channel that nobody uses. A
subscriber of the same name that is made later gets messages from then on.

JSON: kind "removed" (channel, subscriber, was_there).

Exit status: 0, also if there was no such subscriber; 2 if no server answers."""


@guarded
def rm(
    channel: ChannelName,
    subscriber: SubscriberName,
    url: ChannelUrl = URL_DEFAULT,
    password_file: PasswordFile = None,
    as_json: AsJson = False,
) -> int:
    """Remove a subscriber of a channel."""
    address = find_address(url, password_file, takes_settings=True, takes_cluster=True)
    output = Output(as_json=as_json)

    from tidelog.client.listening import Listener

    with Listener(address) as listener:
        was_there = listener.run(listener.client.channel(channel).unsubscribe(subscriber))
    if as_json:
        output.object("removed", {"channel": channel, "subscriber": subscriber, "was_there": was_there})
    elif was_there:
        output.line(f"{subscriber} is no longer a subscriber of {channel}")
    else:
        output.line(f"{channel} has no subscriber {subscriber}")
    return FINE
