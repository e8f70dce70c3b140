"""X commands on the entries of streams: XADD, XLEN, XRANGE, XREVRANGE, XDEL, XTRIM, XSETID."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from tidelog import limits
from tidelog.commands.arguments import I64_MAX, integer, syntax_error
from tidelog.commands.stream_ids import (
    INVALID_ID,
    LARGEST_ID,
    first_of_interval,
    last_of_interval,
    parse_id,
    parse_open_id,
    strict_id,
)
from tidelog.commands.stream_replies import pieces_of_fields, tagged_of_fields, x_entries
from tidelog.commands.streams import find_stream
from tidelog.engine.table import ONE_KEY, STREAM, Arguments, Command, Decision, read, write
from tidelog.errors import CommandError
from tidelog.resp.encoder import NULL_ARRAY, Reply
from tidelog.store.keyspace import Database
from tidelog.store.large import Pieces
from tidelog.store.transaction import Transaction
from tidelog.streams.node import SEQ_MAX, pack_id, unpack_id
from tidelog.streams.operations import StreamAppend, StreamEvict, StreamPlace, cuts
from tidelog.streams.progress import next_id, top_id
from tidelog.streams.rows import listed
from tidelog.streams.stream import Stream
from tidelog.streams.trimming import Trim, first_to_keep

_TOO_SMALL: Final = "ERR The ID specified in XADD is equal or smaller than the target stream top item"
_EXHAUSTED: Final = "ERR The stream has exhausted the last possible ID, unable to add more items"


# --- options of XADD and XTRIM ----------------------------------------------------------------------------------


class _Options(NamedTuple):
    """The options between the key and the fields of XADD, and after the key of XTRIM."""

    trim: Trim | None
    makes_stream: bool
    at: int
    """Where the id of XADD stands."""


def _options(arguments: Arguments, *, is_add: bool) -> _Options:
    trim: Trim | None = None
    limit: int | None = None
    makes_stream = True
    at = 2
    while at < len(arguments):
        option, more = arguments[at].upper(), len(arguments) - at - 1
        if option == b"*" and is_add:
            break
        if option in (b"MAXLEN", b"MINID") and more:
            if trim is not None:
                raise CommandError("ERR syntax error, MAXLEN and MINID options at the same time are not compatible")
            trim, at = _trim(arguments, at)
        elif option == b"LIMIT" and more:
            limit = integer(arguments[at + 1])
            if limit < 0:
                raise CommandError("ERR The LIMIT argument must be >= 0.")
            at += 2
        elif option == b"NOMKSTREAM" and is_add:
            makes_stream = False
            at += 1
        elif is_add:
            if parse_id(arguments[at]) is None and parse_open_id(arguments[at]) is None:
                raise CommandError(INVALID_ID)
            break
        else:
            raise syntax_error()
    return _Options(_limited(trim, limit, is_add=is_add), makes_stream, at)


def _trim(arguments: Arguments, at: int) -> tuple[Trim, int]:
    """A trimming strategy, and the place behind it."""
    is_length, mark = arguments[at].upper() == b"MAXLEN", arguments[at + 1]
    at += 1
    if mark in (b"~", b"=") and at + 1 < len(arguments):
        at += 1
    if not is_length:
        return Trim(None, strict_id(arguments[at]), mark != b"~"), at + 1
    length = integer(arguments[at])
    if length < 0:
        raise CommandError("ERR The MAXLEN argument must be >= 0.")
    return Trim(length, 0, mark != b"~"), at + 1


def _limited(trim: Trim | None, limit: int | None, *, is_add: bool) -> Trim | None:
    if trim is None:
        if limit:
            raise CommandError("ERR syntax error, LIMIT cannot be used without specifying a trimming strategy")
        if not is_add:
            raise CommandError("ERR syntax error, XTRIM must be called with a trimming strategy")
    if limit is not None and (trim is None or trim.is_exact):
        raise CommandError("ERR syntax error, LIMIT cannot be used without the special ~ option")
    if trim is None or trim.is_exact:
        return trim
    return trim._replace(limit=limits.TRIMMED_ENTRIES_MAX if limit is None else limit)


def _large_xadd(_database: Database, arguments: Arguments) -> list[tuple[bytes, Pieces]]:
    if sum(map(len, arguments)) < limits.STAGED_BYTES_MIN:
        return []
    try:
        at = 2 if arguments[2] == b"*" else _options(arguments, is_add=True).at
    except CommandError:
        return []
    fields = arguments[at + 1 :]
    if len(fields) % 2 or sum(map(len, fields)) < limits.STAGED_BYTES_MIN:
        return []
    return [(arguments[1], pieces_of_fields(fields)[2])]


# --- adding -----------------------------------------------------------------------------------------------------


def xadd(transaction: Transaction, arguments: Arguments) -> Decision:
    trim: Trim | None = None
    makes_stream, at = True, 2
    if arguments[2] != b"*":
        trim, makes_stream, at = _options(arguments, is_add=True)
    fields = arguments[at + 1 :]
    if not fields or len(fields) % 2:
        raise CommandError("ERR wrong number of arguments for 'xadd' command")
    key, word = arguments[1], arguments[at]
    if parse_id(word) == 0:
        raise CommandError("ERR The ID specified in XADD must be greater than 0-0")
    stream = find_stream(transaction, key)
    if stream is None and not makes_stream:
        return None, []
    ms, seq = _new_id(stream, word, transaction.now_ms)
    if sum(map(len, fields)) < limits.STAGED_BYTES_MIN:
        kind, tag, entry = tagged_of_fields(listed(fields), 0)
    else:
        kind, tag, pieces = pieces_of_fields(fields)
        entry = transaction.join(pieces)
    offset = stream.next if stream is not None else 1
    operations: list[Any] = [StreamAppend(key, offset, ms, seq, kind, [tag], [entry])]
    if trim is not None:
        kept, gone = first_to_keep(stream if stream is not None else Stream(), trim, pack_id(ms, seq))
        if gone:
            operations.append(StreamEvict(key, kept))
    return b"%d-%d" % (ms, seq), operations


def _new_id(stream: Stream | None, word: bytes, now_ms: int) -> tuple[int, int]:
    """The id that XADD gives an entry."""
    last_id = stream.last_id if stream is not None else 0
    if last_id == LARGEST_ID:
        raise CommandError(_EXHAUSTED)
    if word == b"*":
        return next_id(stream, now_ms)
    number = parse_id(word)
    if number is None:  # ms-*
        ms = parse_open_id(word) or 0
        last_ms, last_seq = unpack_id(last_id)
        if ms == last_ms and last_seq == SEQ_MAX:
            raise CommandError(_TOO_SMALL)
        number = last_id + 1 if ms == last_ms else pack_id(ms, 0)
    if number <= last_id:
        raise CommandError(_TOO_SMALL)
    return unpack_id(number)


# --- reading ----------------------------------------------------------------------------------------------------


def xlen(transaction: Transaction, arguments: Arguments) -> Reply:
    stream = find_stream(transaction, arguments[1])
    return stream.length if stream is not None else 0


def xrange(transaction: Transaction, arguments: Arguments) -> Reply:
    return _range(transaction, arguments, arguments[2], arguments[3])


def xrevrange(transaction: Transaction, arguments: Arguments) -> Reply:
    return _range(transaction, arguments, arguments[3], arguments[2], is_backward=True)


def _range(
    transaction: Transaction, arguments: Arguments, start: bytes, end: bytes, *, is_backward: bool = False
) -> Reply:
    first, last = first_of_interval(start), last_of_interval(end)
    count = I64_MAX
    for at in range(4, len(arguments), 2):
        if arguments[at].upper() != b"COUNT" or at + 1 == len(arguments):
            raise syntax_error()
        count = max(integer(arguments[at + 1]), 0)
    stream = find_stream(transaction, arguments[1])
    if stream is None:
        return []
    if not count:
        return NULL_ARRAY
    return x_entries(stream.find_ids_back(last, first, count) if is_backward else stream.find_ids(first, last, count))


# --- removing ---------------------------------------------------------------------------------------------------


def xdel(transaction: Transaction, arguments: Arguments) -> Decision:
    stream = find_stream(transaction, arguments[1])
    if stream is None:
        return 0, []
    ids = [strict_id(word) for word in arguments[2:]]
    stream.require_ids(ids)
    gone: dict[int, int] = {}
    """Offset -> id."""
    for number in ids:
        offset = stream.offset_of(number)
        if offset is not None:
            gone[offset] = number
    return len(gone), cuts(arguments[1], sorted(gone), max(gone.values(), default=0))


def xtrim(transaction: Transaction, arguments: Arguments) -> Decision:
    trim = _options(arguments, is_add=False).trim
    stream = find_stream(transaction, arguments[1])
    if stream is None or trim is None:
        return 0, []
    first, gone = first_to_keep(stream, trim)
    return gone, [StreamEvict(arguments[1], first)] if gone else []


# --- the last id ------------------------------------------------------------------------------------------------


def xsetid(transaction: Transaction, arguments: Arguments) -> Decision:
    key, number = arguments[1], strict_id(arguments[2])
    added: int | None = None
    deleted = 0
    for at in range(3, len(arguments), 2):
        option = arguments[at].upper()
        if option not in (b"ENTRIESADDED", b"MAXDELETEDID") or at + 1 == len(arguments):
            raise syntax_error()
        if option == b"ENTRIESADDED":
            added = integer(arguments[at + 1])
            if added < 0:
                raise CommandError("ERR entries_added must be positive")
        else:
            deleted = strict_id(arguments[at + 1])
            if number < deleted:
                raise CommandError("ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id")
    stream = find_stream(transaction, key)
    if stream is None:
        raise CommandError("ERR no such key")
    if number < stream.max_deleted_id:
        raise CommandError("ERR The ID specified in XSETID is smaller than current max_deleted_entry_id")
    if stream.length and number < top_id(stream):
        raise CommandError("ERR The ID specified in XSETID is smaller than the target stream top item")
    if stream.length and added is not None and added < stream.length:
        raise CommandError("ERR The entries_added specified in XSETID is smaller than the target stream length")
    beside = stream.added_beside if added is None else added - (stream.next - 1)
    place = StreamPlace(key, stream.first, stream.next, number, deleted or stream.max_deleted_id, beside)
    return "OK", [place]


COMMANDS: list[Command] = [
    write(
        STREAM,
        "XADD",
        -5,
        xadd,
        ONE_KEY,
        "denyoom fast",
        summary="append an entry of fields to a stream",
        large=_large_xadd,
    ),
    read(STREAM, "XLEN", 2, xlen, ONE_KEY, "fast", summary="return the number of entries"),
    read(STREAM, "XRANGE", -4, xrange, ONE_KEY, summary="return the entries between two ids"),
    read(STREAM, "XREVRANGE", -4, xrevrange, ONE_KEY, summary="return the entries between two ids, newest first"),
    write(STREAM, "XDEL", -3, xdel, ONE_KEY, "fast", summary="remove entries by their ids"),
    write(STREAM, "XTRIM", -4, xtrim, ONE_KEY, summary="remove the oldest entries"),
    write(STREAM, "XSETID", -3, xsetid, ONE_KEY, "denyoom fast", summary="set the last id of a stream"),
]
