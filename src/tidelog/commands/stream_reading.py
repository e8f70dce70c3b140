"""TREAD: entries of a stream from an offset on (REV: down), or the next ones of a group.

    TREAD key offset count [REV] [BLOCK ms] [GROUP g | NEWGROUP g] [RETRY retry-ms expire-ms] [WITHINFO]

A group read gives what is due again first, then new entries as far as the group may have more pending. Whatever a
reader is given, and that something expired, are operations: a restart knows exactly what is pending.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tidelog import limits
from tidelog.commands.arguments import integer, syntax_error
from tidelog.commands.stream_groups import GroupRead
from tidelog.commands.stream_replies import array_for_t, t_entries
from tidelog.commands.streams import find_stream
from tidelog.engine.table import ONE_KEY, STREAM, Arguments, Command, Decision, write
from tidelog.engine.would_block import WouldBlock
from tidelog.errors import CommandError
from tidelog.resp.encoder import Reply, Spliced
from tidelog.store.transaction import Transaction
from tidelog.streams.stream import Stream


class _Options(NamedTuple):
    """What TREAD was asked for."""

    key: bytes
    offset: int
    count_max: int
    block_ms: int | None = None
    group: bytes | None = None
    is_new: bool = False
    """NEWGROUP: a group that is made starts after the last entry."""
    retry: tuple[int, int] | None = None
    with_info: bool = False
    is_backward: bool = False
    """REV: from the offset down; 0 and offsets after the last begin there."""


def _options(arguments: Arguments) -> _Options:
    offset = integer(arguments[2], "ERR offset is not an integer or out of range")
    count = integer(arguments[3], "ERR count is not an integer or out of range")
    if offset < 0 or count < 0:
        raise CommandError(f"ERR {'offset' if offset < 0 else 'count'} must not be negative")
    found: dict[str, Any] = {}
    at = 4
    while at < len(arguments):
        name = arguments[at].upper()
        words = arguments[at + 1 :]
        if name == b"WITHINFO" and "with_info" not in found:
            found["with_info"] = True
            at += 1
        elif name == b"REV" and "is_backward" not in found:
            found["is_backward"] = True
            at += 1
        elif name == b"BLOCK" and words and "block_ms" not in found:
            found["block_ms"] = _time(words[0], "timeout")
            at += 2
        elif name in (b"GROUP", b"NEWGROUP") and words and "group" not in found:
            found["group"], found["is_new"] = words[0], name == b"NEWGROUP"
            at += 2
        elif name == b"RETRY" and len(words) > 1 and "retry" not in found:
            found["retry"] = _time(words[0], "retry time"), _time(words[1], "expire time")
            at += 3
        else:
            raise syntax_error()
    if "retry" in found and "group" not in found:
        raise CommandError("ERR RETRY requires GROUP")
    if "is_backward" in found and "group" in found:
        raise CommandError("ERR REV is for reads without a group")
    return _Options(arguments[1], offset, count, **found)


def _time(argument: bytes, what: str) -> int:
    number = integer(argument, f"ERR {what} is not an integer or out of range")
    if number < 0:
        raise CommandError(f"ERR {what} is negative")
    return number


def tread(transaction: Transaction, arguments: Arguments) -> Decision:
    options = _options(arguments)
    stream = find_stream(transaction, options.key)
    if options.group is not None:
        return _read_group(transaction, options, stream)
    found = _read_back(options, stream) if options.is_backward else _read_plain(options, stream)
    if found is None:
        if options.count_max and options.block_ms is not None:
            raise WouldBlock([options.key], arguments, options.block_ms)
        return _reply(stream, options), []
    return found, []


def _read_plain(options: _Options, stream: Stream | None) -> Reply | None:
    """The reply, if there is an entry at or after the offset."""
    offset = options.offset or 1
    if stream is None or offset >= stream.next or not options.count_max:
        return None
    count = min(options.count_max, limits.READ_ENTRIES_MAX)
    evicted = min(max(stream.first - offset, 0), count)
    found = stream.find(max(offset, stream.first), count - evicted)
    if not evicted and not found.count:
        return None
    head: list[Reply] = [_info(stream)] if options.with_info else []
    return t_entries(found, head, nulls_before=evicted)


def _read_back(options: _Options, stream: Stream | None) -> Reply | None:
    """The reply, if there is, or was, an entry at or below the offset."""
    if stream is None or not options.count_max:
        return None
    offset = min(options.offset or stream.last, stream.last)
    count = min(options.count_max, limits.READ_ENTRIES_MAX)
    found = stream.find_back(offset, count)
    evicted = min(offset, stream.first - 1, count - found.count)
    head: list[Reply] = [_info(stream)] if options.with_info else []
    return t_entries(found, head, nulls_after=evicted) if found.count or evicted else None


def _info(stream: Stream | None) -> Reply:
    return [stream.first_entry, stream.last] if stream is not None else [1, 0]


def _reply(stream: Stream | None, options: _Options, body: bytes = b"", count: int = 0) -> Reply:
    """`[[first, last],] entry ...`"""
    return Spliced([_info(stream)] if options.with_info else [], [body], count)


def _read_group(transaction: Transaction, options: _Options, stream: Stream | None) -> Decision:
    read = GroupRead(transaction, options.key, options.group or b"", stream, is_new=options.is_new)
    read.take(options.count_max, options.retry)
    if read.rows or not options.count_max or options.block_ms is None:
        body = b"".join(array_for_t(rows) for rows in read.rows)
        count = sum(len(rows.entries) for rows in read.rows)
        return _reply(stream, options, body, count), read.operations
    raise WouldBlock(
        [options.key],
        _waiting(options),
        options.block_ms,
        operations=read.operations,
        kin=options.group,
        due_ms=read.next_due_ms(),
        needs_key=True,
    )


def _waiting(options: _Options) -> Arguments:
    """The command as it is run again: where its group begins is settled, so that what comes next is never skipped."""
    words = [b"TREAD", options.key, b"%d" % options.offset, b"%d" % options.count_max, b"GROUP", options.group or b""]
    words += [b"BLOCK", b"%d" % (options.block_ms or 0)]
    if options.retry is not None:
        words += [b"RETRY", b"%d" % options.retry[0], b"%d" % options.retry[1]]
    return [*words, b"WITHINFO"] if options.with_info else words


def _is_read(arguments: Arguments) -> bool:
    """Without a group nothing changes. What is no TREAD at all is refused either way."""
    try:
        return _options(arguments).group is None
    except CommandError:
        return True


COMMANDS: list[Command] = [
    write(
        STREAM,
        "TREAD",
        -4,
        tread,
        ONE_KEY,
        "blocking",
        summary="read entries from an offset on or down, or the next entries of a group",
        is_read=_is_read,
    ),
]
