"""XREAD and XREADGROUP: entries of several streams after the ids given, or the next ones of a group.

    XREAD [COUNT n] [BLOCK ms] STREAMS key ... id ...
    XREADGROUP GROUP group consumer [COUNT n] [BLOCK ms] [NOACK] STREAMS key ... id ...

A client that waits runs the same command again, with `$` replaced by the id that it meant at first. A consumer that
polls and gets nothing is journaled as seen once a second at most; in between, memory alone knows it.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from tidelog import limits
from tidelog.commands.arguments import I64_MAX, integer, syntax_error
from tidelog.commands.stream_ids import LARGEST_ID, id_text, strict_id
from tidelog.commands.stream_replies import array_for_x, x_entries, x_rows
from tidelog.commands.streams import find_stream
from tidelog.commands.timeouts import ms_to_wait
from tidelog.engine.table import STREAM, Arguments, Command, Decision, Keys, read, write
from tidelog.engine.would_block import WouldBlock
from tidelog.errors import CommandError
from tidelog.resp.encoder import NULL_ARRAY, ByKey, Reply, Wire
from tidelog.store.transaction import Transaction
from tidelog.streams.group import NO_CONSUMER, Consumer, Group, Pending
from tidelog.streams.operations import ConsumerSet, Deliver, PendingItem, delivers, pends
from tidelog.streams.progress import entries_read_after, next_rows, top_id
from tidelog.streams.stream import Stream

NEW: Final = LARGEST_ID
"""What `>` stands for."""

_MEANINGLESS: Final = (
    "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer by "
    "specifying a proper ID, or use the > ID to get new messages. The $ ID would just return an empty result set."
)
_ONLY_GROUPS: Final = (
    "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option."
)


class _Options(NamedTuple):
    """The options of XREAD and XREADGROUP."""

    first: int
    """Where the first key stands."""
    count_max: int
    block_ms: int | None
    group: bytes
    consumer: bytes
    keeps: bool
    """Entries that are given out become pending."""


def text(name: bytes) -> str:
    """A name as error messages show it."""
    return name.partition(b"\0")[0].decode("utf-8", "surrogateescape")


def _options(arguments: Arguments, now_ms: int, *, has_group: bool) -> _Options:
    count, block_ms, group, keeps = 0, None, None, True
    at = 1
    while at < len(arguments):
        option, more = arguments[at].upper(), len(arguments) - at - 1
        if option == b"BLOCK" and more:
            block_ms = ms_to_wait(arguments[at + 1], now_ms)
            at += 2
        elif option == b"COUNT" and more:
            count = max(integer(arguments[at + 1]), 0)
            at += 2
        elif option == b"STREAMS" and more:
            if more % 2:
                name, mark = ("xreadgroup", ">") if has_group else ("xread", "$")
                raise CommandError(
                    f"ERR Unbalanced '{name}' list of streams: for each stream key an ID or '{mark}' must be specified."
                )
            break
        elif option == b"GROUP" and more > 1:
            if not has_group:
                raise _only_for_groups("GROUP")
            group = arguments[at + 1], arguments[at + 2]
            at += 3
        elif option == b"NOACK":
            if not has_group:
                raise _only_for_groups("NOACK")
            keeps = False
            at += 1
        else:
            raise syntax_error()
    else:
        raise syntax_error()
    if has_group and group is None:
        raise CommandError("ERR Missing GROUP option for XREADGROUP")
    return _Options(at + 1, count or I64_MAX, block_ms, *(group or (b"", NO_CONSUMER)), keeps)


def _only_for_groups(option: str) -> CommandError:
    return CommandError(f"ERR The {option} option is only supported by XREADGROUP. You called XREAD instead.")


def check_consumer(name: bytes) -> None:
    """The empty name stands for all readers with TREAD."""
    if name == NO_CONSUMER:
        raise CommandError("ERR the name of a consumer must not be empty")


# --- XREAD ------------------------------------------------------------------------------------------------------


def xread(transaction: Transaction, arguments: Arguments) -> Reply:
    options = _options(arguments, transaction.now_ms, has_group=False)
    words = arguments[options.first :]
    half = len(words) // 2
    streams: list[Stream | None] = []
    after: list[int] = []
    for key, word in zip(words[:half], words[half:], strict=True):
        stream = find_stream(transaction, key)
        streams.append(stream)
        if word == b"$":
            after.append(stream.last_id if stream is not None else 0)
        elif word == b">":
            raise CommandError(_ONLY_GROUPS)
        else:
            after.append(strict_id(word))
    found = ByKey()
    for key, stream, number in zip(words[:half], streams, after, strict=True):
        if stream is not None and top_id(stream) > number:
            found.append((key, x_entries(stream.find_ids(number + 1, LARGEST_ID, options.count_max))))
    if not found and options.block_ms is not None:
        again = [*arguments[: options.first + half], *map(id_text, after)]
        raise WouldBlock(words[:half], again, options.block_ms, awaits=Stream)
    return found or NULL_ARRAY


# --- XREADGROUP -------------------------------------------------------------------------------------------------


def xreadgroup(transaction: Transaction, arguments: Arguments) -> Decision:
    options = _options(arguments, transaction.now_ms, has_group=True)
    words = arguments[options.first :]
    half = len(words) // 2
    reads = []
    for key, word in zip(words[:half], words[half:], strict=True):
        stream = find_stream(transaction, key)
        group = stream.groups.get(options.group) if stream is not None else None
        if stream is None or group is None:
            raise CommandError(
                f"NOGROUP No such key '{text(key)}' or consumer group '{text(options.group)}' in XREADGROUP with "
                f"GROUP option"
            )
        if word == b"$":
            raise CommandError(_MEANINGLESS)
        reads.append((key, stream, group, NEW if word == b">" else strict_id(word)))
    check_consumer(options.consumer)
    found = ByKey()
    operations: list[Any] = []
    moved: dict[bytes, Group] = {}
    """Where groups are after what this command has read already: a key may be named twice."""
    is_repeated = half > 1 and len(set(words[:half])) < half
    now_ms = transaction.now_ms
    for key, stream, before, number in reads:
        group = moved.get(key, before)
        if number == NEW:
            delivery, entries = _deliver(key, stream, group, options, now_ms)
            if delivery is not None:
                if is_repeated:
                    moved[key] = _after_delivery(group, delivery)
                operations += delivers(delivery)
                found.append((key, entries))
                continue
        operations += _saw(key, options, group.consumers.get(options.consumer), now_ms)
        if number != NEW:
            again, entries = _history(stream, group, number, options, now_ms)
            operations += pends(key, options.group, options.consumer, again)
            if is_repeated:
                moved[key] = _after(group, options.consumer, again)
            found.append((key, entries))
    if not found and options.block_ms is not None:
        raise WouldBlock(words[:half], arguments, options.block_ms, operations=operations, kin=options.group)
    return found or NULL_ARRAY, operations


def _deliver(key: bytes, stream: Stream, group: Group, options: _Options, now_ms: int) -> tuple[Deliver | None, Reply]:
    """Give out the next entries, if there are any. Hot."""
    if top_id(stream) <= group.last_id:
        return None, None
    rows = next_rows(stream, group, options.count_max)
    if not rows.entries:
        return None, None
    ids, offsets = rows.ids, rows.offsets
    read = entries_read_after(stream, group, ids)
    cursor, keeps = (offsets[-1], ids[-1], read), options.keeps
    delivery = Deliver(
        key, options.group, options.consumer, now_ms, 0, 0, *cursor, keeps, offsets, ids if keeps else ()
    )
    return delivery, x_rows(rows)


def _after_delivery(group: Group, delivery: Deliver) -> Group:
    """A group as it will be once this is delivered."""
    offsets = delivery.offsets if delivery.keeps else ()
    items = [(offset, number, delivery.now_ms, 1, 0, 0) for offset, number in zip(offsets, delivery.ids, strict=True)]
    made = _after(group, delivery.consumer, items)
    made.last_offset, made.last_id, made.entries_read = delivery.last_offset, delivery.last_id, delivery.entries_read
    return made


def _after(group: Group, consumer: bytes, items: list[PendingItem]) -> Group:
    """A group as it will be once these are pending for a consumer."""
    made = group.copy()
    for offset, number, delivered_ms, deliveries, retry_after_ms, expire_ms in items:
        made.consumers.setdefault(consumer, Consumer(delivered_ms))
        made.add(offset, Pending(number, consumer, delivered_ms, deliveries, retry_after_ms, expire_ms))
    return made


def _saw(key: bytes, options: _Options, consumer: Consumer | None, now_ms: int) -> list[ConsumerSet]:
    """A consumer that is given nothing new was there."""
    if consumer is None:
        return [ConsumerSet(key, options.group, options.consumer, now_ms, -1)]
    if now_ms - consumer.seen_ms < limits.CONSUMER_SEEN_MS:
        consumer.polled_ms = now_ms  # not worth a record
        return []
    return [ConsumerSet(key, options.group, options.consumer, now_ms, consumer.active_ms)]


def _history(
    stream: Stream, group: Group, after: int, options: _Options, now_ms: int
) -> tuple[list[PendingItem], Reply]:
    """The pending entries of a consumer after an id, which are given out once more."""
    again: list[PendingItem] = []
    entries: list[Reply] = []
    found: list[tuple[int, int]] = []
    """Ids and offsets."""
    left = group.consumers[options.consumer].pending_count if options.consumer in group.consumers else 0
    if not left:
        return again, entries
    for number in group.ids.from_id(after + 1):
        offset = group.ids.offsets[number]
        pending = group.pending[offset]
        if pending.consumer != options.consumer:
            continue
        found.append((number, offset))
        if len(found) == left or len(found) == options.count_max:
            break
    stream.require_offsets(offset for _, offset in found)
    for number, offset in found:
        rows = stream.read(offset, 1, offset)
        if rows.entries:
            entries.append(Wire(array_for_x(rows)))
            again.append((offset, number, now_ms, group.pending[offset].deliveries + 1, 0, 0))
        else:
            entries.append([id_text(number), NULL_ARRAY])
    return again, entries


COMMANDS: list[Command] = [
    read(
        STREAM,
        "XREAD",
        -4,
        xread,
        Keys(keyword_from=1),
        "blocking movablekeys",
        summary="read entries after given ids, from several streams",
    ),
    write(
        STREAM,
        "XREADGROUP",
        -7,
        xreadgroup,
        Keys(keyword_from=4),
        "blocking movablekeys",
        summary="read entries for a consumer of a group, from several streams",
    ),
]
