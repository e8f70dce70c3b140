"""SUBSCRIBE and its relatives, PUBLISH, PUBSUB."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tidelog.commands.client import Client, Replies
from tidelog.commands.help import help_reply
from tidelog.commands.table import ALL_KEYS, NO_KEYS, ONE_KEY, Arguments, Command, Keys, connection
from tidelog.errors import CommandError
from tidelog.resp.encoder import Push, Reply, Wire, encode

Change = Callable[[Client, bytes], None]


def _confirm(
    client: Client, kind: bytes, names: Sequence[bytes | None], change: Change, count: Callable[[Client], int]
) -> Reply:
    """One confirmation for each name. They are pushes: encoded one after the other, and sent also with replies off."""
    parts = []
    for name in names:
        if name is not None:
            change(client, name)
        parts.append(encode(Push([kind, name, count(client)]), client.protocol))
    client.state_changed()
    if client.replies is Replies.ON:
        return Wire(b"".join(parts))
    client.push(b"".join(parts))
    return Wire()


def _count(client: Client) -> int:
    return len(client.channels) + len(client.patterns)


def _shard_count(client: Client) -> int:
    return len(client.shard_channels)


def subscribe(client: Client, arguments: Arguments) -> Reply:
    return _confirm(client, b"subscribe", arguments[1:], client.server.subscriptions.subscribe, _count)


def psubscribe(client: Client, arguments: Arguments) -> Reply:
    return _confirm(client, b"psubscribe", arguments[1:], client.server.subscriptions.subscribe_pattern, _count)


def ssubscribe(client: Client, arguments: Arguments) -> Reply:
    return _confirm(client, b"ssubscribe", arguments[1:], client.server.subscriptions.subscribe_shard, _shard_count)


def unsubscribe(client: Client, arguments: Arguments) -> Reply:
    names: Sequence[bytes | None] = arguments[1:] or sorted(client.channels) or (None,)
    return _confirm(client, b"unsubscribe", names, client.server.subscriptions.unsubscribe, _count)


def punsubscribe(client: Client, arguments: Arguments) -> Reply:
    names: Sequence[bytes | None] = arguments[1:] or sorted(client.patterns) or (None,)
    return _confirm(client, b"punsubscribe", names, client.server.subscriptions.unsubscribe_pattern, _count)


def sunsubscribe(client: Client, arguments: Arguments) -> Reply:
    names: Sequence[bytes | None] = arguments[1:] or sorted(client.shard_channels) or (None,)
    return _confirm(client, b"sunsubscribe", names, client.server.subscriptions.unsubscribe_shard, _shard_count)


def publish(client: Client, arguments: Arguments) -> Reply:
    return client.server.subscriptions.publish(arguments[1], arguments[2])


def spublish(client: Client, arguments: Arguments) -> Reply:
    return client.server.subscriptions.publish_shard(arguments[1], arguments[2])


def _pattern(arguments: Arguments) -> bytes | None:
    if len(arguments) > 3:
        shown = arguments[1].decode("utf-8", "surrogateescape")
        raise CommandError(f"ERR unknown subcommand or wrong number of arguments for '{shown}'. Try PUBSUB HELP.")
    return arguments[2] if len(arguments) == 3 else None


def pubsub_channels(client: Client, arguments: Arguments) -> Reply:
    return client.server.subscriptions.channels(_pattern(arguments))


def pubsub_shardchannels(client: Client, arguments: Arguments) -> Reply:
    return client.server.subscriptions.shard_channels(_pattern(arguments))


def pubsub_numsub(client: Client, arguments: Arguments) -> Reply:
    listeners = client.server.subscriptions.listeners
    return [item for channel in arguments[2:] for item in (channel, listeners(channel))]


def pubsub_shardnumsub(client: Client, arguments: Arguments) -> Reply:
    listeners = client.server.subscriptions.shard_listeners
    return [item for channel in arguments[2:] for item in (channel, listeners(channel))]


def pubsub_numpat(client: Client, _arguments: Arguments) -> Reply:
    return client.server.subscriptions.pattern_count()


def pubsub_help(_client: Client, _arguments: Arguments) -> Reply:
    return help_reply(
        "PUBSUB",
        """
        CHANNELS [<pattern>]
            Return the currently active channels matching a <pattern> (default: '*').
        NUMPAT
            Return number of subscriptions to patterns.
        NUMSUB [<channel> ...]
            Return the number of subscribers for the specified channels, excluding
            pattern subscriptions(default: no channels).
        SHARDCHANNELS [<pattern>]
            Return the currently active shard level channels matching a <pattern> (default: '*').
        SHARDNUMSUB [<shardchannel> ...]
            Return the number of subscribers for the specified shard level channel(s)
        """,
    )


_LISTENING = "pubsub noscript loading stale"


def _row(name: str, arity: int, handler: Any, flags: str, summary: str, keys: Keys = NO_KEYS) -> Command:
    return connection(name, arity, handler, flags, summary=summary, keys=keys)


COMMANDS: list[Command] = [
    _row("SUBSCRIBE", -2, subscribe, _LISTENING, "listen to channels"),
    _row("PSUBSCRIBE", -2, psubscribe, _LISTENING, "listen to channels that match patterns"),
    _row("SSUBSCRIBE", -2, ssubscribe, _LISTENING, "listen to shard channels", ALL_KEYS),
    _row("UNSUBSCRIBE", -1, unsubscribe, _LISTENING, "listen no longer to channels"),
    _row("PUNSUBSCRIBE", -1, punsubscribe, _LISTENING, "listen no longer to patterns"),
    _row("SUNSUBSCRIBE", -1, sunsubscribe, _LISTENING, "listen no longer to shard channels", ALL_KEYS),
    _row("PUBLISH", 3, publish, "pubsub loading stale fast", "send a message to a channel"),
    _row("SPUBLISH", 3, spublish, "pubsub loading stale fast", "send a message to a shard channel", ONE_KEY),
    _row("PUBSUB|CHANNELS", -2, pubsub_channels, "pubsub loading stale", "channels that someone listens to"),
    _row("PUBSUB|NUMSUB", -2, pubsub_numsub, "pubsub loading stale", "how many listen to channels"),
    _row("PUBSUB|NUMPAT", 2, pubsub_numpat, "pubsub loading stale", "how many patterns are listened to"),
    _row("PUBSUB|SHARDCHANNELS", -2, pubsub_shardchannels, "pubsub loading stale", "as CHANNELS, of shard channels"),
    _row("PUBSUB|SHARDNUMSUB", -2, pubsub_shardnumsub, "pubsub loading stale", "as NUMSUB, of shard channels"),
    _row("PUBSUB|HELP", 2, pubsub_help, "loading stale", "what PUBSUB can do"),
]
