"""XINFO: what there is to know about a stream, its groups and their consumers.

What Redis tells of its radix tree is told of nodes: as many keys as there are nodes, and one more for the root.
"""

from __future__ import annotations

from itertools import islice

from tidelog.commands.arguments import I64_MAX, integer
from tidelog.commands.help import help_reply
from tidelog.commands.stream_ids import LARGEST_ID, id_text
from tidelog.commands.stream_replies import array_for_x, x_entries
from tidelog.commands.streams import find_stream
from tidelog.commands.x_groups import bad_subcommand, no_group
from tidelog.engine.table import STREAM, Arguments, Command, Keys, connection, read
from tidelog.errors import CommandError
from tidelog.resp.encoder import Reply, Wire
from tidelog.store.transaction import Transaction
from tidelog.streams.group import UNKNOWN, Group
from tidelog.streams.progress import first_id, lag
from tidelog.streams.stream import Stream

_SECOND = Keys(2, 2, 1)
_FULL_COUNT = 10
"""Entries and pending entries that FULL shows unless it is told otherwise."""


def _stream(transaction: Transaction, key: bytes) -> Stream:
    stream = find_stream(transaction, key)
    if stream is None:
        raise CommandError("ERR no such key")
    return stream


def xinfo_stream(transaction: Transaction, arguments: Arguments) -> Reply:
    stream = _stream(transaction, arguments[2])
    options = arguments[3:]
    count = _FULL_COUNT
    if options:
        if len(options) not in (1, 3) or options[0].upper() != b"FULL":
            raise bad_subcommand(arguments)
        if len(options) == 3:
            if options[1].upper() != b"COUNT":
                raise bad_subcommand(arguments)
            count = integer(options[2])
            count = _FULL_COUNT if count < 0 else count or I64_MAX
    node_count = len(stream.sealed) + bool(stream.active.entries)
    found: dict[bytes, Reply] = {
        b"length": stream.length,
        b"radix-tree-keys": node_count,
        b"radix-tree-nodes": node_count + 1,
        b"last-generated-id": id_text(stream.last_id),
        b"max-deleted-entry-id": id_text(stream.max_deleted_id),
        b"entries-added": stream.entries_added,
        b"recorded-first-entry-id": id_text(first_id(stream)),
    }
    if not options:
        return found | {
            b"groups": len(stream.groups),
            b"first-entry": _one(stream, is_last=False),
            b"last-entry": _one(stream, is_last=True),
        }
    groups = [_group_in_full(stream, name, group, count) for name, group in sorted(stream.groups.items())]
    return found | {b"entries": x_entries(stream.find_ids(0, LARGEST_ID, count)), b"groups": groups}


def _one(stream: Stream, *, is_last: bool) -> Reply:
    rows = stream.find_ids_back(LARGEST_ID, 0, 1).rows() if is_last else stream.read_ids(0, LARGEST_ID, 1)
    return Wire(array_for_x(rows)) if rows.entries else None


def _group_in_full(stream: Stream, name: bytes, group: Group, count: int) -> Reply:
    return {
        b"name": name,
        b"last-delivered-id": id_text(group.last_id),
        b"entries-read": None if group.entries_read == UNKNOWN else group.entries_read,
        b"lag": lag(stream, group),
        b"pel-count": len(group.pending),
        b"pending": [
            [id_text(number), pending.consumer, pending.delivered_ms, pending.deliveries]
            for number, pending in _pending(group, count)
        ],
        b"consumers": [_consumer_in_full(group, each, count) for each in sorted(group.consumers)],
    }


def _consumer_in_full(group: Group, name: bytes, count: int) -> Reply:
    consumer = group.consumers[name]
    return {
        b"name": name,
        b"seen-time": consumer.last_seen_ms,
        b"active-time": consumer.active_ms,
        b"pel-count": consumer.pending_count,
        b"pending": [
            [id_text(number), pending.delivered_ms, pending.deliveries]
            for number, pending in _pending(group, min(count, consumer.pending_count), name)
        ],
    }


def _pending(group: Group, count: int, consumer: bytes | None = None) -> list[tuple[int, Reply]]:
    """Pending entries with their ids, in order."""
    found = ((number, group.pending[group.ids.offsets[number]]) for number in group.ids.from_id(0))
    wanted = (each for each in found if consumer is None or each[1].consumer == consumer)
    return list(islice(wanted, min(count, len(group.pending))))


def xinfo_groups(transaction: Transaction, arguments: Arguments) -> Reply:
    stream = _stream(transaction, arguments[2])
    return [
        {
            b"name": name,
            b"consumers": len(group.consumers),
            b"pending": len(group.pending),
            b"last-delivered-id": id_text(group.last_id),
            b"entries-read": None if group.entries_read == UNKNOWN else group.entries_read,
            b"lag": lag(stream, group),
        }
        for name, group in sorted(stream.groups.items())
    ]


def xinfo_consumers(transaction: Transaction, arguments: Arguments) -> Reply:
    group = _stream(transaction, arguments[2]).groups.get(arguments[3])
    if group is None:
        raise no_group(arguments[2], arguments[3])
    now_ms = transaction.now_ms
    return [
        {
            b"name": name,
            b"pending": consumer.pending_count,
            b"idle": max(now_ms - consumer.last_seen_ms, 0),
            b"inactive": now_ms - consumer.active_ms if consumer.active_ms >= 0 else -1,
        }
        for name, consumer in sorted(group.consumers.items())
    ]


def xinfo_help(_client: object, _arguments: Arguments) -> Reply:
    return help_reply(
        "XINFO",
        """
        CONSUMERS <key> <groupname>
            Show consumers of <groupname>.
        GROUPS <key>
            Show the stream consumer groups.
        STREAM <key> [FULL [COUNT <count>]
            Show information about the stream.
        """,
    )


COMMANDS: list[Command] = [
    read(STREAM, "XINFO|STREAM", -3, xinfo_stream, _SECOND, summary="return facts about a stream"),
    read(STREAM, "XINFO|GROUPS", 3, xinfo_groups, _SECOND, summary="return the groups of a stream"),
    read(STREAM, "XINFO|CONSUMERS", 4, xinfo_consumers, _SECOND, summary="return the consumers of a group"),
    connection(STREAM, "XINFO|HELP", 2, xinfo_help, "loading stale", summary="list the subcommands of XINFO"),
]
