"""Streams: TWRITE, TEVICT, TCONFIG, TCOMPACT, TINFO. Reading is in `stream_reading`, groups in `stream_groups`."""

from __future__ import annotations

from itertools import islice
from typing import Any, Final

from tidelog import limits
from tidelog.commands.arguments import integer, syntax_error
from tidelog.engine.table import ONE_KEY, STREAM, Arguments, Command, Decision, read, write
from tidelog.errors import CommandError
from tidelog.resp.encoder import Reply
from tidelog.store.transaction import Transaction
from tidelog.streams.cold import NodesAway
from tidelog.streams.compaction import Compaction, entries_to_drop, is_large
from tidelog.streams.group import Group
from tidelog.streams.node import TAGGED, pack_id
from tidelog.streams.operations import StreamAppend, StreamConfig, StreamEvict, appends, cuts
from tidelog.streams.progress import next_id
from tidelog.streams.stream import RetentionRule, Stream
from tidelog.streams.trimming import boundary_below, boundary_keeping

_OPTIONS: Final = {b"BACKLOG": 1, b"MAXAGE": 1, b"PRODUCER": 2}
"""Of TWRITE: how many words each takes."""
_RULE: Final = {b"MAXBYTES": "bytes_max", b"MAXAGE": "age_max_ms", b"BACKLOG": "backlog"}
"""Of TCONFIG: which part of the rule each says."""


def find_stream(transaction: Transaction, key: bytes) -> Stream | None:
    stream: Stream | None = transaction.find_typed(key, Stream)
    return stream


def twrite(transaction: Transaction, arguments: Arguments) -> Decision:
    if len(arguments) == 4:
        return _append(transaction, arguments[1], arguments[2:], {})
    options, at = _write_options(arguments)
    flat = arguments[at:]
    if not flat or len(flat) % 2:
        raise CommandError("ERR ENTRIES takes pairs of a tag and an entry")
    return _append(transaction, arguments[1], flat, options)


def _write_options(arguments: Arguments) -> tuple[dict[bytes, Any], int]:
    """The options before ENTRIES, and where the entries begin."""
    options: dict[bytes, Any] = {}
    at = 2
    while at < len(arguments):
        name = arguments[at].upper()
        if name == b"ENTRIES":
            return options, at + 1
        taken = _OPTIONS.get(name, 0)
        if not taken or name in options or at + taken >= len(arguments):
            raise syntax_error()
        if name == b"PRODUCER":
            producer, seq = arguments[at + 1], integer(arguments[at + 2])
            if not producer or len(producer) > limits.PRODUCER_NAME_BYTES_MAX:
                raise CommandError(f"ERR a producer's id has 1 to {limits.PRODUCER_NAME_BYTES_MAX} bytes")
            if seq < 0:
                raise CommandError("ERR a producer's seq must not be negative")
            options[name] = producer, seq
        else:
            options[name] = _not_negative(arguments[at + 1], name)
        at += taken + 1
    raise CommandError("ERR TWRITE takes a tag and an entry, or options and ENTRIES")


def _not_negative(argument: bytes, name: bytes) -> int:
    number = integer(argument)
    if number < 0:
        raise CommandError(f"ERR {name.decode()} must not be negative")
    return number


def _append(transaction: Transaction, key: bytes, flat: Arguments, options: dict[bytes, Any]) -> Decision:
    stream = find_stream(transaction, key)
    producer, seq_of_producer = options.get(b"PRODUCER", (b"", 0))
    if producer and stream is not None and producer in stream.producers:
        known = stream.producers[producer]
        if seq_of_producer <= known.last_seq:
            offset = known.offset_of(seq_of_producer)
            if offset is None:
                raise CommandError(
                    f"ERR the producer is at seq {known.last_seq} already, and what {seq_of_producer} got is forgotten"
                )
            return offset, []
    count = len(flat) // 2
    ms, seq = next_id(stream, transaction.now_ms, count)
    offset = stream.next if stream is not None else 1
    made = StreamAppend(key, offset, ms, seq, TAGGED, flat[::2], flat[1::2], producer, seq_of_producer)
    operations: list[Any] = [*(appends(made) if count > 1 else (made,))]
    if stream is not None:
        operations += _evictions(stream, key, count, options, transaction.now_ms)
    return offset, operations


def _evictions(stream: Stream, key: bytes, count: int, options: dict[bytes, Any], now_ms: int) -> list[StreamEvict]:
    firsts: list[int] = []
    if b"BACKLOG" in options:
        firsts.append(boundary_keeping(stream, options[b"BACKLOG"], coming=count))
    if b"MAXAGE" in options:
        firsts.append(first_younger_than(stream, now_ms - options[b"MAXAGE"]))
    first = min(firsts, default=0)  # both keep at least what they say
    return [StreamEvict(key, first)] if first > stream.first else []


def first_younger_than(stream: Stream, ms: int) -> int:
    """The first offset of the first node that has an entry of that time or later."""
    if ms <= 0:
        return stream.first
    return boundary_below(stream, stream.offset_at_or_after(pack_id(ms, 0)))


def tevict(transaction: Transaction, arguments: Arguments) -> Decision:
    key = arguments[1]
    if len(arguments) == 4:
        if arguments[2].upper() != b"AGE":
            raise syntax_error()
        age_ms = _not_negative(arguments[3], b"AGE")
        stream = find_stream(transaction, key)
        first = first_younger_than(stream, transaction.now_ms - age_ms) if stream is not None else 0
    else:
        if len(arguments) != 3:
            raise syntax_error()
        offset = integer(arguments[2])
        stream = find_stream(transaction, key)
        if stream is None:
            first = 0
        elif offset < 0:
            first = boundary_keeping(stream, -offset)
        else:
            first = boundary_below(stream, offset + 1)
    if stream is None or first <= stream.first:
        return 0, []
    return stream.count_below(first), [StreamEvict(key, first)]


def tconfig(transaction: Transaction, arguments: Arguments) -> Decision:
    key = arguments[1]
    said: dict[str, int] = {}
    for at in range(2, len(arguments), 2):
        option = arguments[at].upper()
        name = _RULE.get(option, "")
        if not name or name in said or at + 1 >= len(arguments):
            raise syntax_error()
        said[name] = _not_negative(arguments[at + 1], option)
    stream = find_stream(transaction, key)
    if not said:
        if stream is None:
            raise CommandError("ERR no such key")
        return _rule_info(stream), []
    before = stream.rule if stream is not None and stream.rule is not None else RetentionRule()
    return "OK", [StreamConfig(key, *before._replace(**said))]


def _only_asks(arguments: Arguments) -> bool:
    """Whether a TCONFIG changes nothing."""
    return len(arguments) == 2


def _rule_info(stream: Stream) -> dict[bytes, int]:
    rule = stream.rule if stream.rule is not None else RetentionRule()
    return {b"max-bytes": rule.bytes_max, b"max-age": rule.age_max_ms, b"backlog": rule.backlog}


def tcompact(transaction: Transaction, arguments: Arguments) -> Decision:
    stream = find_stream(transaction, arguments[1])
    if stream is None:
        return 0, []
    compaction = transaction.compaction
    if compaction is None or compaction.stream is not stream:
        compaction = Compaction(stream, transaction.now_ms)
    if transaction.fetches and is_large(stream) and compaction.times_begun <= limits.FETCHED_TIMES_MAX:
        return _compact_portion(compaction, arguments[1])
    dropped = entries_to_drop(stream, transaction.now_ms)
    if not dropped:
        return compaction.dropped_count, []
    return compaction.dropped_count + len(dropped), cuts(arguments[1], dropped, stream.ids_from(dropped[-1], 1)[0])


def _compact_portion(compaction: Compaction, key: bytes) -> Decision:
    """What the next portion loses; with `NodesAway` if there is another one."""
    nodes = compaction.next_nodes()
    if any(node.is_away for node in nodes):
        raise NodesAway(nodes, compaction)
    compaction.look_at_all(nodes)
    dropped = compaction.take_dropped()
    operations = cuts(key, dropped, compaction.newest_dropped_id) if dropped else []
    following = compaction.next_nodes()
    compaction.expect_cuts(len(operations))
    if following:
        raise NodesAway(following, compaction, operations)
    return compaction.dropped_count, operations


def tinfo(transaction: Transaction, arguments: Arguments) -> Reply:
    stream = find_stream(transaction, arguments[1])
    if stream is None:
        raise CommandError("ERR no such key")
    return {
        b"length": stream.length,
        b"first-offset": stream.first_entry,
        b"last-offset": stream.last,
        b"last-id": b"%d-%d" % (stream.last_ms, stream.last_seq),
        b"nodes": sum(1 for _ in stream.nodes()),
        b"cold-nodes": sum(node.is_cold for node in stream.sealed),
        b"bytes": stream.size_bytes + stream.disk_bytes + stream.remote_bytes,
        b"memory-bytes": stream.size_bytes,
        b"disk-bytes": stream.disk_bytes,
        b"remote-bytes": stream.remote_bytes,
        b"entry-bytes": stream.entry_bytes,
        **_rule_info(stream),
        b"producers": len(stream.producers),
        b"groups": [_group_info(name, group, transaction.now_ms) for name, group in stream.groups.items()],
    }


def _group_info(name: bytes, group: Group, now_ms: int) -> Reply:
    times_ms = [each.retry_ms for each in islice(group.due.values(), 1)]
    if group.expiries is not None:
        times_ms.append(group.expiries.first_ms(group.pending))
    due_ms = min(filter(None, times_ms), default=0)
    return {
        b"name": name,
        b"last-offset": group.last_offset,
        b"ack-offset": group.ack_offset,
        b"pending": len(group.pending),
        b"max-pending": group.pending_max or limits.PENDING_MAX_DEFAULT,
        b"consumers": len(group.consumers),
        b"dead-letter": group.dead_letter or None,
        b"max-deliveries": group.deliveries_max,
        b"due-in-ms": max(due_ms - now_ms, 0) if due_ms else None,
    }


COMMANDS: list[Command] = [
    write(STREAM, "TWRITE", -4, twrite, ONE_KEY, "denyoom fast", summary="append entries to a stream"),
    write(STREAM, "TEVICT", -3, tevict, ONE_KEY, summary="remove the oldest entries of a stream"),
    write(
        STREAM,
        "TCONFIG",
        -2,
        tconfig,
        ONE_KEY,
        summary="say which entries a stream keeps by itself, or return that",
        is_read=_only_asks,
    ),
    write(STREAM, "TCOMPACT", 2, tcompact, ONE_KEY, summary="keep only the newest entry of each tag"),
    read(STREAM, "TINFO", 2, tinfo, ONE_KEY, summary="return facts about a stream and its groups"),
]
