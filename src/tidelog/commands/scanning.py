"""SCAN and its relatives: their arguments, and slices of large collections.

A collection of at most `SCAN_WHOLE_MAX` members is returned whole, whatever the cursor and COUNT. A larger one is
walked in the order of its members' hashes; see `store/scan_orders.py` for what the cursor is and why nothing is missed.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from tidelog import limits
from tidelog.commands.arguments import integer, syntax_error
from tidelog.engine.table import Arguments
from tidelog.errors import CommandError
from tidelog.store.glob import matcher
from tidelog.store.transaction import Transaction

COUNT_DEFAULT: Final = 10
_U64_MAX: Final = 2**64 - 1
_CURSOR: Final = re.compile(rb"([+-]?)0*([0-9]{1,20})")


@dataclass(frozen=True, slots=True)
class ScanOptions:
    """The options of a scan."""

    cursor: int
    pattern: bytes | None
    """None: everything, which `*` asks for as well."""
    count: int
    type: bytes | None
    """In small letters; None: any."""


def scan_cursor(argument: bytes) -> int:
    """A cursor as strtoul reads it: up to a zero byte, nothing is 0, a minus wraps around."""
    text = argument.partition(b"\0")[0]
    if not text:
        return 0
    found = _CURSOR.fullmatch(text)
    if found is None or int(found[2]) > _U64_MAX:
        raise CommandError("ERR invalid cursor")
    return int(found[2]) if found[1] != b"-" else -int(found[2]) & _U64_MAX


def scan_options(arguments: Arguments, cursor_at: int, *, takes_type: bool = False) -> ScanOptions:
    """The cursor, which is the argument at `cursor_at`, and the options after it."""
    cursor, pattern, count, kind = scan_cursor(arguments[cursor_at]), None, COUNT_DEFAULT, None
    for at in range(cursor_at + 1, len(arguments), 2):
        option = arguments[at].upper()
        if at + 1 == len(arguments):
            raise syntax_error()
        value = arguments[at + 1]
        if option == b"COUNT":
            count = integer(value)
            if count < 1:
                raise syntax_error()
        elif option == b"MATCH":
            pattern = value if value != b"*" else None
        elif option == b"TYPE" and takes_type:
            kind = value.lower()
        else:
            raise syntax_error()
    return ScanOptions(cursor, pattern, count, kind)


def scan_members(
    transaction: Transaction, key: bytes, members: Collection[bytes], options: ScanOptions
) -> tuple[int, list[bytes]]:
    """The next members of a collection that match, and the cursor after them; 0: there are no more."""
    cursor, found = 0, list[bytes]()
    if len(members) <= limits.SCAN_WHOLE_MAX:
        found = list(members)
    else:
        orders = transaction.store.scan_orders
        place = transaction.database.number, key
        cursor, taken = orders.take(place, members, options.cursor, options.count, transaction.now_ms)
        found = [member for member in taken if member in members]
    if options.pattern is not None:
        is_match = matcher(options.pattern)
        found = [member for member in found if is_match(member)]
    return cursor, found
