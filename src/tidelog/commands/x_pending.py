"""XPENDING, XCLAIM and XAUTOCLAIM: what consumers have not acknowledged, and giving it to others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from tidelog.commands.arguments import I64_MAX, integer, syntax_error
from tidelog.commands.stream_ids import first_of_interval, id_text, last_of_interval, parse_id, strict_id
from tidelog.commands.stream_replies import array_for_x
from tidelog.commands.streams import find_stream
from tidelog.commands.x_reading import check_consumer, text
from tidelog.engine.table import ONE_KEY, STREAM, Arguments, Command, Decision, read, write
from tidelog.errors import CommandError
from tidelog.resp.encoder import NULL_ARRAY, Reply, Wire
from tidelog.store.transaction import Transaction
from tidelog.streams.dump import group_set
from tidelog.streams.group import NO_CONSUMER, Group
from tidelog.streams.operations import ConsumerSet, GroupSet, PendingItem, acks, pends
from tidelog.streams.stream import Stream

_CLAIMED_COUNT: Final = 100
"""Entries that XAUTOCLAIM gives out unless it is told otherwise ..."""
_ATTEMPTS_FACTOR: Final = 10
"""... and how many it looks at for each."""
_COUNT_MAX: Final = I64_MAX // 16


def _find(transaction: Transaction, arguments: Arguments) -> tuple[Stream, Group]:
    stream = find_stream(transaction, arguments[1])
    group = stream.groups.get(arguments[2]) if stream is not None else None
    if stream is None or group is None:
        raise CommandError(f"NOGROUP No such key '{text(arguments[1])}' or consumer group '{text(arguments[2])}'")
    return stream, group


# --- XPENDING ---------------------------------------------------------------------------------------------------


class _Range(NamedTuple):
    """Which pending entries are asked for."""

    idle_ms: int
    first: int
    last: int
    count_max: int
    consumer: bytes | None


def xpending(transaction: Transaction, arguments: Arguments) -> Reply:
    if len(arguments) == 3:
        return _summary(_find(transaction, arguments)[1])
    wanted = _range(arguments)
    _, group = _find(transaction, arguments)
    if wanted.consumer not in group.consumers and wanted.consumer not in (None, NO_CONSUMER):
        return []
    found: list[Reply] = []
    now_ms = transaction.now_ms
    for number in group.ids.from_id(wanted.first) if wanted.count_max else ():
        if number > wanted.last:
            break
        pending = group.pending[group.ids.offsets[number]]
        if wanted.consumer is not None and pending.consumer != wanted.consumer:
            continue
        idle_ms = now_ms - pending.delivered_ms
        if wanted.idle_ms and idle_ms < wanted.idle_ms:
            continue
        found.append([id_text(number), pending.consumer, max(idle_ms, 0), pending.deliveries])
        if len(found) == wanted.count_max:
            break
    return found


def _range(arguments: Arguments) -> _Range:
    if not 6 <= len(arguments) <= 9:
        raise syntax_error()
    at, idle_ms = 3, 0
    if arguments[3].upper() == b"IDLE":
        idle_ms = integer(arguments[4])
        if len(arguments) < 8:
            raise syntax_error()
        at = 5
    count = max(integer(arguments[at + 2]), 0)
    first, last = first_of_interval(arguments[at]), last_of_interval(arguments[at + 1])
    return _Range(idle_ms, first, last, count, arguments[at + 3] if at + 3 < len(arguments) else None)


def _summary(group: Group) -> Reply:
    if not group.pending:
        return [0, None, None, NULL_ARRAY]
    counts = {name: consumer.pending_count for name, consumer in sorted(group.consumers.items())}
    unnamed = len(group.pending) - sum(counts.values())
    counts = ({NO_CONSUMER: unnamed} if unnamed else {}) | counts
    return [
        len(group.pending),
        id_text(next(group.ids.from_id(0))),
        id_text(group.ids.largest),
        [[name, b"%d" % count] for name, count in counts.items() if count],
    ]


# --- claiming ---------------------------------------------------------------------------------------------------


class _Claim:
    """Entries that go to a consumer, and those that are gone from the stream and no longer pending."""

    def __init__(self, stream: Stream, group: Group, now_ms: int, *, only_ids: bool) -> None:
        self._stream = stream
        self._group = group
        self._now_ms = now_ms
        self._only_ids = only_ids
        self._claimed: list[tuple[int, int]] = []
        """Ids and offsets."""
        self.items: dict[int, PendingItem] = {}
        """By id: an id that is given twice is claimed twice."""
        self.gone: dict[int, int] = {}
        """Id -> offset."""

    def claim(self, number: int, delivered_ms: int, deliveries: int | None, idle_ms: int, *, makes: bool) -> None:
        """One entry, if it is there and idle for long enough; `makes`: also if it is not pending."""
        offset = None if number in self.gone else self._group.offset_of(number)
        if offset is not None and self._group.pending[offset].has_expired(self._now_ms):
            return
        there = self._stream.offset_of(number) if offset is None else offset
        if there is None or not self._stream.has(there):
            if offset is not None:
                self.gone[number] = offset
            return
        if number in self.items:
            before = self.items[number][2], self.items[number][3]
        elif offset is not None:
            before = self._group.pending[offset].delivered_ms, self._group.pending[offset].deliveries
        elif makes:
            before = self._now_ms - idle_ms, 1
        else:
            return
        if idle_ms and self._now_ms - before[0] < idle_ms:
            return
        if deliveries is None:
            deliveries = before[1] + (not self._only_ids)
        self.items[number] = there, number, delivered_ms, deliveries, 0, 0
        self._claimed.append((number, there))

    def replies(self) -> list[Reply]:
        """What was claimed, in order: the nodes of all of it are needed at once."""
        if self._only_ids:
            return [id_text(number) for number, _ in self._claimed]
        self._stream.require_offsets(offset for _, offset in self._claimed)
        return [Wire(array_for_x(self._stream.read(offset, 1, offset))) for _, offset in self._claimed]

    def operations(self, key: bytes, name: bytes, consumer: bytes) -> list[Any]:
        known = self._group.consumers.get(consumer)
        active_ms = known.active_ms if known is not None else -1
        operations: list[Any] = [
            ConsumerSet(key, name, consumer, self._now_ms, self._now_ms if self.items else active_ms)
        ]
        operations += acks(key, name, sorted(self.gone.values()))
        operations += pends(key, name, consumer, list(self.items.values()))
        return operations


class _Options(NamedTuple):
    """The options of XCLAIM."""

    makes: bool = False
    only_ids: bool = False
    delivered_ms: int | None = None
    deliveries: int | None = None
    last_id: int = 0


def _options(words: Arguments, now_ms: int) -> _Options:
    found: dict[str, Any] = {}
    at = 0
    while at < len(words):
        option, has_more = words[at].upper(), at + 1 < len(words)
        at += 1
        if option == b"FORCE":
            found["makes"] = True
            continue
        if option == b"JUSTID":
            found["only_ids"] = True
            continue
        if option not in (b"IDLE", b"TIME", b"RETRYCOUNT", b"LASTID") or not has_more:
            raise CommandError(f"ERR Unrecognized XCLAIM option '{text(words[at - 1])}'")
        if option == b"LASTID":
            found["last_id"] = strict_id(words[at])
        else:
            number = integer(words[at], f"ERR Invalid {option.decode()} option argument for XCLAIM")
            if option == b"RETRYCOUNT":
                found["deliveries"] = number if number >= 0 else None
            else:
                found["delivered_ms"] = now_ms - number if option == b"IDLE" else number
        at += 1
    return _Options(**found)


def xclaim(transaction: Transaction, arguments: Arguments) -> Decision:
    key, name, consumer = arguments[1:4]
    stream, group = _find(transaction, arguments)
    idle_ms = max(integer(arguments[4], "ERR Invalid min-idle-time argument for XCLAIM"), 0)
    ids: list[int] = []
    for word in arguments[5:]:
        number = parse_id(word)
        if number is None:
            break
        ids.append(number)
    now_ms = transaction.now_ms
    options = _options(arguments[5 + len(ids) :], now_ms)
    check_consumer(consumer)
    delivered_ms = options.delivered_ms
    if delivered_ms is None or not 0 <= delivered_ms <= now_ms:
        delivered_ms = now_ms
    claim = _Claim(stream, group, now_ms, only_ids=options.only_ids)
    stream.require_ids(number for number in ids if group.offset_of(number) is None)
    for number in ids:
        claim.claim(number, delivered_ms, options.deliveries, idle_ms, makes=options.makes)
    operations = claim.operations(key, name, consumer)
    if options.last_id > group.last_id:
        operations.insert(0, _moved(key, name, stream, group, options.last_id))
    return claim.replies(), operations


def _moved(key: bytes, name: bytes, stream: Stream, group: Group, last_id: int) -> GroupSet:
    last_offset = max(group.last_offset, stream.offset_at_or_after(last_id + 1) - 1)
    return group_set(key, name, group)._replace(last_offset=last_offset, last_id=last_id)


def xautoclaim(transaction: Transaction, arguments: Arguments) -> Decision:
    key, name, consumer = arguments[1:4]
    idle_ms = max(integer(arguments[4], "ERR Invalid min-idle-time argument for XAUTOCLAIM"), 0)
    first = first_of_interval(arguments[5])
    count, only_ids = _CLAIMED_COUNT, False
    at = 6
    while at < len(arguments):
        option = arguments[at].upper()
        if option == b"COUNT" and at + 1 < len(arguments):
            count = integer(arguments[at + 1], "ERR COUNT must be > 0")
            if not 1 <= count <= _COUNT_MAX:
                raise CommandError("ERR COUNT must be > 0")
            at += 2
        elif option == b"JUSTID":
            only_ids = True
            at += 1
        else:
            raise syntax_error()
    stream, group = _find(transaction, arguments)
    check_consumer(consumer)
    claim = _Claim(stream, group, transaction.now_ms, only_ids=only_ids)
    cursor = _claim_idle(group.ids.from_id(first), claim, count, idle_ms, transaction.now_ms)
    reply = [id_text(cursor), claim.replies(), [id_text(number) for number in claim.gone]]
    return reply, claim.operations(key, name, consumer)


def _claim_idle(ids: Iterator[int], claim: _Claim, count: int, idle_ms: int, now_ms: int) -> int:
    """Claim what has been idle for long enough; returns where the next call goes on, 0: it is through."""
    attempts = count * _ATTEMPTS_FACTOR
    for number in ids:
        if not attempts or len(claim.items) + len(claim.gone) == count:
            return number
        attempts -= 1
        claim.claim(number, now_ms, None, idle_ms, makes=False)
    return 0


COMMANDS: list[Command] = [
    read(STREAM, "XPENDING", -3, xpending, ONE_KEY, summary="return the pending entries of a group"),
    write(STREAM, "XCLAIM", -6, xclaim, ONE_KEY, "fast", summary="give pending entries to a consumer"),
    write(
        STREAM,
        "XAUTOCLAIM",
        -6,
        xautoclaim,
        ONE_KEY,
        "fast",
        summary="give entries that have been pending for long to a consumer",
    ),
]
