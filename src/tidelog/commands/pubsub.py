"""SUBSCRIBE and its relatives, PUBLISH, PUBSUB."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidelog.commands.help import help_reply
from tidelog.engine.session import Replies, Session
from tidelog.engine.table import ALL_KEYS, ONE_KEY, PUBSUB, Arguments, Command, connection
from tidelog.errors import CommandError
from tidelog.resp.encoder import Push, Reply, Wire, encode

SubscriptionChange = Callable[[Session, bytes], None]


def _confirm(
    session: Session,
    kind: bytes,
    names: Sequence[bytes | None],
    change: SubscriptionChange,
    count: Callable[[Session], int],
) -> Reply:
    """One confirmation for each name. They are pushes: encoded one after the other, and sent also with replies off."""
    parts = []
    for name in names:
        if name is not None:
            change(session, name)
        parts.append(encode(Push([kind, name, count(session)]), session.protocol))
    session.state_changed()
    if session.replies is Replies.ON:
        return Wire(b"".join(parts))
    session.push(b"".join(parts))
    return Wire()


def _count(session: Session) -> int:
    return len(session.channels) + len(session.patterns)


def _shard_count(session: Session) -> int:
    return len(session.shard_channels)


def subscribe(session: Session, arguments: Arguments) -> Reply:
    return _confirm(session, b"subscribe", arguments[1:], session.engine.subscriptions.subscribe, _count)


def psubscribe(session: Session, arguments: Arguments) -> Reply:
    return _confirm(session, b"psubscribe", arguments[1:], session.engine.subscriptions.subscribe_pattern, _count)


def ssubscribe(session: Session, arguments: Arguments) -> Reply:
    return _confirm(session, b"ssubscribe", arguments[1:], session.engine.subscriptions.subscribe_shard, _shard_count)


def unsubscribe(session: Session, arguments: Arguments) -> Reply:
    names: Sequence[bytes | None] = arguments[1:] or sorted(session.channels) or (None,)
    return _confirm(session, b"unsubscribe", names, session.engine.subscriptions.unsubscribe, _count)


def punsubscribe(session: Session, arguments: Arguments) -> Reply:
    names: Sequence[bytes | None] = arguments[1:] or sorted(session.patterns) or (None,)
    return _confirm(session, b"punsubscribe", names, session.engine.subscriptions.unsubscribe_pattern, _count)


def sunsubscribe(session: Session, arguments: Arguments) -> Reply:
    names: Sequence[bytes | None] = arguments[1:] or sorted(session.shard_channels) or (None,)
    return _confirm(session, b"sunsubscribe", names, session.engine.subscriptions.unsubscribe_shard, _shard_count)


def publish(session: Session, arguments: Arguments) -> Reply:
    return session.engine.publishing.publish(arguments[1], arguments[2])


def spublish(session: Session, arguments: Arguments) -> Reply:
    return session.engine.publishing.publish(arguments[1], arguments[2], is_sharded=True)


def _pattern(arguments: Arguments) -> bytes | None:
    if len(arguments) > 3:
        shown = arguments[1].decode("utf-8", "surrogateescape")
        raise CommandError(f"ERR unknown subcommand or wrong number of arguments for '{shown}'. Try PUBSUB HELP.")
    return arguments[2] if len(arguments) == 3 else None


def pubsub_channels(session: Session, arguments: Arguments) -> Reply:
    return session.engine.subscriptions.channels(_pattern(arguments))


def pubsub_shardchannels(session: Session, arguments: Arguments) -> Reply:
    return session.engine.subscriptions.shard_channels(_pattern(arguments))


def pubsub_numsub(session: Session, arguments: Arguments) -> Reply:
    listeners = session.engine.subscriptions.listeners
    return [item for channel in arguments[2:] for item in (channel, listeners(channel))]


def pubsub_shardnumsub(session: Session, arguments: Arguments) -> Reply:
    listeners = session.engine.subscriptions.shard_listeners
    return [item for channel in arguments[2:] for item in (channel, listeners(channel))]


def pubsub_numpat(session: Session, _arguments: Arguments) -> Reply:
    return session.engine.subscriptions.pattern_count()


def pubsub_help(_session: Session, _arguments: Arguments) -> Reply:
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


COMMANDS: list[Command] = [
    connection(PUBSUB, "SUBSCRIBE", -2, subscribe, _LISTENING, summary="listen to channels"),
    connection(PUBSUB, "PSUBSCRIBE", -2, psubscribe, _LISTENING, summary="listen to channels that match patterns"),
    connection(PUBSUB, "SSUBSCRIBE", -2, ssubscribe, _LISTENING, summary="listen to shard channels", keys=ALL_KEYS),
    connection(PUBSUB, "UNSUBSCRIBE", -1, unsubscribe, _LISTENING, summary="stop listening to channels"),
    connection(PUBSUB, "PUNSUBSCRIBE", -1, punsubscribe, _LISTENING, summary="stop listening to patterns"),
    connection(
        PUBSUB,
        "SUNSUBSCRIBE",
        -1,
        sunsubscribe,
        _LISTENING,
        summary="stop listening to shard channels",
        keys=ALL_KEYS,
    ),
    connection(PUBSUB, "PUBLISH", 3, publish, "pubsub loading stale fast", summary="send a message to a channel"),
    connection(
        PUBSUB,
        "SPUBLISH",
        3,
        spublish,
        "pubsub loading stale fast",
        summary="send a message to a shard channel",
        keys=ONE_KEY,
    ),
    connection(
        PUBSUB,
        "PUBSUB|CHANNELS",
        -2,
        pubsub_channels,
        "pubsub loading stale",
        summary="return the channels that have listeners",
    ),
    connection(
        PUBSUB, "PUBSUB|NUMSUB", -2, pubsub_numsub, "pubsub loading stale", summary="count the listeners of channels"
    ),
    connection(
        PUBSUB,
        "PUBSUB|NUMPAT",
        2,
        pubsub_numpat,
        "pubsub loading stale",
        summary="count the patterns that have listeners",
    ),
    connection(
        PUBSUB,
        "PUBSUB|SHARDCHANNELS",
        -2,
        pubsub_shardchannels,
        "pubsub loading stale",
        summary="return the shard channels that have listeners",
    ),
    connection(
        PUBSUB,
        "PUBSUB|SHARDNUMSUB",
        -2,
        pubsub_shardnumsub,
        "pubsub loading stale",
        summary="count the listeners of shard channels",
    ),
    connection(PUBSUB, "PUBSUB|HELP", 2, pubsub_help, "loading stale", summary="list the subcommands of PUBSUB"),
]
