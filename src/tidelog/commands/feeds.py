"""CHANGEFEED and FEED: watching what changes.

    CHANGEFEED [NAME n] [SHARD i] [SINCE ts [EPOCH e SEEN s] | INITIAL] [UNTIL ts]
               (KEY k | PREFIX p | SPAN a b) ... [CHECKPOINT ms] [ONECHECKPOINT] [TXN] [GROUPS] [EXPIRY]

There is no reply but the events, which follow until the feed ends; an error is a reply.
"""

from __future__ import annotations

from dataclasses import replace

from tidelog import limits
from tidelog.commands.arguments import integer, quoted, syntax_error
from tidelog.commands.help import help_reply
from tidelog.engine.session import Session
from tidelog.engine.table import SERVER, Arguments, Command, connection
from tidelog.errors import ClientError, CommandError, FeedBehind, FeedDiverged, HolderLapsed, TooOld
from tidelog.feeds.feed import ChangeFeedRequest
from tidelog.feeds.span import Span, span_of_key, span_of_prefix
from tidelog.ids import ShardId, Ts
from tidelog.resp.encoder import Reply, Wire

_OPTIONS = {
    b"NAME": 1,
    b"SHARD": 1,
    b"SINCE": 1,
    b"EPOCH": 1,
    b"SEEN": 1,
    b"UNTIL": 1,
    b"CHECKPOINT": 1,
    b"INITIAL": 0,
    b"ONECHECKPOINT": 0,
    b"TXN": 0,
    b"GROUPS": 0,
    b"EXPIRY": 0,
}
"""How many arguments each has."""


def changefeed(session: Session, arguments: Arguments) -> Reply:
    if session.is_listening:
        raise CommandError("ERR this connection listens to something already")
    request = _request(arguments, session.database, session.engine.store.journal.meta.shard_count)
    try:
        session.engine.feeding.open(session, request)
    except TooOld as error:
        raise CommandError(f"FEEDTOOOLD oldest={error.oldest}") from error
    except FeedDiverged as error:
        raise CommandError(f"FEEDDIVERGED since={error.since}") from error
    except CommandError:
        raise  # the role of the server forbids it, or its disk is full
    except FeedBehind as error:
        raise CommandError(f"TRYAGAIN {error}") from error
    except (HolderLapsed, ClientError) as error:
        raise CommandError(f"ERR {error}") from error
    return Wire()


def _request(arguments: Arguments, database: int, shard_count: int) -> ChangeFeedRequest:
    spans: list[Span] = []
    given: dict[bytes, bytes] = {}
    at = 1
    while at < len(arguments):
        word = arguments[at].upper()
        rest = arguments[at + 1 :]
        at += 1
        if word in _OPTIONS:
            if word in given or len(rest) < _OPTIONS[word]:
                raise syntax_error()
            given[word] = rest[0] if _OPTIONS[word] else b""
            at += _OPTIONS[word]
        elif word == b"KEY" and rest:
            spans.append(span_of_key(rest[0]))
            at += 1
        elif word == b"PREFIX" and rest:
            spans.append(span_of_prefix(rest[0]))
            at += 1
        elif word == b"SPAN" and len(rest) > 1:
            spans.append(Span(rest[0], rest[1]))
            at += 2
        else:
            raise syntax_error()
    _check(given, spans)
    shard = _number(given, b"SHARD")
    if shard is not None and shard >= shard_count:
        raise CommandError(f"ERR there is no shard {shard}: they are 0 to {shard_count - 1}")
    since, seen, until = (_number(given, word) for word in (b"SINCE", b"SEEN", b"UNTIL"))
    return ChangeFeedRequest(
        spans=list(dict.fromkeys(spans)),
        database=database,
        name=_name(given.get(b"NAME")),
        shard=None if shard is None else ShardId(shard),
        since=None if since is None else Ts(since),
        epoch=_number(given, b"EPOCH"),
        seen=None if seen is None else Ts(seen),
        is_initial=b"INITIAL" in given,
        until=None if until is None else Ts(until),
        checkpoint_ms=_checkpoint_ms(given),
        has_one_checkpoint=b"ONECHECKPOINT" in given,
        has_commits=b"TXN" in given,
        has_groups=b"GROUPS" in given,
        has_expiry=b"EXPIRY" in given,
    )


def _check(given: dict[bytes, bytes], spans: list[Span]) -> None:
    if not spans:
        raise CommandError("ERR a feed needs at least one KEY, PREFIX or SPAN")
    if len(spans) > limits.FEED_SPANS_MAX:
        raise CommandError(f"ERR a feed has at most {limits.FEED_SPANS_MAX} spans")
    for span in spans:
        if span.is_empty:
            raise CommandError(f"ERR SPAN {quoted(span.start)} {quoted(span.end)} ends before it begins")
    if b"SINCE" in given and b"INITIAL" in given:
        raise CommandError("ERR SINCE and INITIAL cannot be used together")
    if (b"EPOCH" in given) != (b"SEEN" in given) or (b"EPOCH" in given and b"SINCE" not in given):
        raise CommandError("ERR EPOCH and SEEN come together, after SINCE")


def _number(given: dict[bytes, bytes], word: bytes) -> int | None:
    if word not in given:
        return None
    number = integer(given[word])
    if number < 0:
        raise CommandError(f"ERR {word.decode()} is negative")
    return number


def _checkpoint_ms(given: dict[bytes, bytes]) -> int | None:
    found = _number(given, b"CHECKPOINT")
    if found is not None and not limits.FEED_CHECKPOINT_MS_MIN <= found <= limits.FEED_CHECKPOINT_MS_MAX:
        raise CommandError(
            f"ERR CHECKPOINT is {limits.FEED_CHECKPOINT_MS_MIN} to {limits.FEED_CHECKPOINT_MS_MAX} milliseconds"
        )
    return found


def _name(name: bytes | None) -> str | None:
    if name is None:
        return None
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise CommandError("ERR the name of a feed is not UTF-8") from None


# --- FEED -------------------------------------------------------------------------------------------------------


def feed_list(session: Session, _arguments: Arguments) -> Reply:
    return session.engine.feeding.list()


def feed_kill(session: Session, arguments: Arguments) -> Reply:
    number = integer(arguments[2])
    if not session.engine.feeding.kill(number):
        raise CommandError(f"ERR there is no feed {number}: FEED LIST has all there are")
    return "OK"


def feed_position(session: Session, arguments: Arguments) -> Reply:
    """Per shard: its number, the visible ts, the epoch, and what is asked about SINCE.

    RECORDS n   a ts after it with about so many records in between
    BEHIND      how many records the shard's journal has after it, and where they begin: at SINCE, or with the journal,
                whose first record may be much younger
    """
    journal = session.engine.store.journal
    since, records = _position_asked(arguments[2:])
    visible, epoch, shards = journal.writer.visible.ts, journal.epoch_id, journal.meta.shard_count
    more: list[list[int]] = [[]] * shards
    if since is not None and records is not None:
        more = [[max(since, journal.ts_after(since, records))]] * shards
    elif since is not None:
        begin = journal.begin_of(since)
        more = [[count, begin] for count in journal.records_after(since)]
    return [[shard, visible, epoch, *more[shard]] for shard in range(shards)]


def _position_asked(words: Arguments) -> tuple[Ts | None, int | None]:
    """SINCE, and RECORDS unless it is BEHIND."""
    if not words:
        return None, None
    if words[0].upper() != b"SINCE" or len(words) < 3:
        raise syntax_error()
    since, what = integer(words[1]), words[2].upper()
    if since < 0:
        raise CommandError("ERR SINCE is negative")
    if what == b"BEHIND" and len(words) == 3:
        return Ts(since), None
    if what != b"RECORDS" or len(words) != 4:
        raise syntax_error()
    records = integer(words[3])
    if records <= 0:
        raise CommandError("ERR RECORDS is not positive")
    return Ts(since), records


def feed_ack(session: Session, arguments: Arguments) -> Reply:
    name, ts = _name(arguments[2]), integer(arguments[3])
    if name is None or ts < 0:
        raise syntax_error()
    try:
        session.engine.feeding.acknowledge(session.database, name, Ts(ts), session.engine.transaction)
    except CommandError:
        raise
    except ClientError as error:
        raise CommandError(f"ERR {error}") from error
    return "OK"


def feed_holds(session: Session, _arguments: Arguments) -> Reply:
    return session.engine.feeding.list_holds()


def feed_drop(session: Session, arguments: Arguments) -> Reply:
    name = _name(arguments[2])
    assert name is not None
    try:
        session.engine.feeding.drop(session.database, name, session.engine.transaction)
    except CommandError:
        raise
    except ClientError as error:
        raise CommandError(f"ERR {error}") from error
    return "OK"


def feed_help(_session: Session, _arguments: Arguments) -> Reply:
    return help_reply(
        "FEED",
        """
        ACK <name> <ts>
            A named feed of this database needs nothing at or below <ts> any more.
        DROP <name>
            Forget the name of a feed of this database: the journal is not kept for it any more.
        HOLDS
            All names: how far their readers have come, when they last said so, and which feed has the name now.
        KILL <id>
            End a feed, after a last checkpoint.
        LIST
            All feeds: where they are, and how far behind.
        POSITION [SINCE <ts> (RECORDS <count> | BEHIND)]
            Per shard: its number, the newest visible ts, the epoch. With RECORDS also a ts, the same for all shards,
            up to which each has about that many records, so that UNTIL can cut a history in parts. With BEHIND also
            how many records it has after <ts>, and <ts>, or the first that the journal has if that is later.
        """,
    )


_CHANGEFEED = connection(
    SERVER,
    "CHANGEFEED",
    -3,
    changefeed,
    "pubsub noscript no_multi",
    summary="turn the connection into a change feed",
)


def _as_called(session: Session, arguments: Arguments) -> Command:
    """A feed with a name writes: the journal has the names of feeds."""
    try:
        request = _request(arguments, session.database, session.engine.store.journal.meta.shard_count)
    except CommandError:
        return _CHANGEFEED  # which says so itself
    return _CHANGEFEED if request.name is None else replace(_CHANGEFEED, flags=_CHANGEFEED.flags | {"write"})


COMMANDS: list[Command] = [
    replace(_CHANGEFEED, as_called=_as_called),
    connection(
        SERVER,
        "FEED|LIST",
        2,
        feed_list,
        "admin noscript stale",
        summary="return all open feeds and how far behind they are",
    ),
    connection(SERVER, "FEED|KILL", 3, feed_kill, "admin noscript stale", summary="end a feed"),
    connection(
        SERVER,
        "FEED|POSITION",
        -2,
        feed_position,
        "noscript stale fast",
        summary="return how far each shard is visible",
    ),
    connection(
        SERVER,
        "FEED|ACK",
        4,
        feed_ack,
        "write noscript fast",
        summary="tell a named feed how far its reader has come",
    ),
    connection(
        SERVER,
        "FEED|HOLDS",
        2,
        feed_holds,
        "admin noscript stale",
        summary="return the names of feeds and how far their readers have come",
    ),
    connection(SERVER, "FEED|DROP", 3, feed_drop, "write admin noscript", summary="forget the name of a feed"),
    connection(SERVER, "FEED|HELP", 2, feed_help, "loading stale", summary="list the subcommands of FEED"),
]
