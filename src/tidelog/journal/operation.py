"""What records mean: the table of operations, and the four that the journal itself knows.

An operation is a deterministic effect: it carries results, never conditions. The types register theirs in an
`OperationTable`: how it is encoded and decoded, and which keys a payload names, so that feeds and sidecars can
match records without knowing the type. Code that decodes is given a table; there is no global one.

Opcodes by family (a number is never given a second meaning):

    0x01 val      0x02 del      0x03 flushdb  0x04 start     0x05-0x0F  keys (`types/key.py`)
    0x10-0x1F  hashes           0x20-0x2F  sets              0x30-0x3F  sorted sets
    0x40-0x4F  lists            0x50-0x6F  streams           0x70-0x7F  libraries of functions
    0x80-0x8F  holds of named feeds                          0x90-0xEF  free
    0xF0 and above: the journal itself (`control`)

Payloads:

    val      | pairs flit | key_len flit, value_len flit ... | key, value ... |      string values; expire in the header
    del      | keys flit  | key_len flit ... | key ... |
    flushdb  | |
    start    | ts 8 | shards flit | shard flit ... |     opens a transaction over several shards, in the first of them
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple

from tidelog import limits
from tidelog.errors import FormatError, InternalError
from tidelog.ids import ShardId, Ts
from tidelog.journal import flit
from tidelog.journal.large_bytes import cut
from tidelog.journal.record import CONTROL

VAL: Final = 0x01
DEL: Final = 0x02
FLUSHDB: Final = 0x03
START: Final = 0x04
DELRANGE: Final = 0x06
NODES: Final = 0x5E
"""References of a snapshot to nodes in node files (`streams/effects`): what moves a snapshot has to know of them."""
"""Its operation is one of keys (`types/key.py`); like a flush, every shard has a record of it."""

_U64: Final = struct.Struct("<Q")
_LARGE: Final = limits.STAGED_BYTES_MIN
_ODD: Final = bytes(range(1, 256, 2))
"""The first bytes of flits that have only one."""
_SHORT_FLITS: Final = _ODD + bytes(128)
"""Number -> such a flit ..."""
_SHORT_SIZES: Final = bytes(byte >> 1 for byte in range(256))
"""... and back."""


class Val(NamedTuple):
    """Set each key to a string value; the former value and its expiry are gone."""

    pairs: Sequence[tuple[bytes, bytes]]
    expire_ms: int | None = None


_make_val: Final = partial(tuple.__new__, Val)  # hot: the call of the class itself is Python


class Del(NamedTuple):
    """Delete keys, whatever their type."""

    keys: Sequence[bytes]


class FlushDb(NamedTuple):
    """Delete every key of the database."""


class Start(NamedTuple):
    """A transaction over several shards begins; each of them ends its part with FINISH."""

    ts: Ts
    shards: Sequence[ShardId]


@dataclass(frozen=True, slots=True)
class OperationKind:
    """One row of the table."""

    opcode: int
    name: str
    encode: Callable[[Any], bytes]
    """The payload of an operation."""
    decode: Callable[[bytes, int | None], Any]
    """The operation of a payload and an expiry (absolute ms); `FormatError` if the payload is malformed."""
    keys: Callable[[bytes], Sequence[bytes] | None]
    """The keys that a payload names; None: every key of the database."""
    last: Callable[[Any], bytes] | None = None
    """The item with which the payload of an operation ends, be it large or not; None: there is no such ..."""
    parts: Callable[[Any], list[bytes]] | None = None
    """... and what `encode` joins, that item last."""


class OperationTable:
    """Opcode -> what it means."""

    def __init__(
        self,
        kinds: Iterable[OperationKind] = (),
        more: Callable[[], Iterable[OperationKind]] | None = None,
        of_more: range = range(0),
    ) -> None:
        self._by_opcode: dict[int, OperationKind] = {}
        self._by_name: dict[str, OperationKind] = {}
        self._more = more
        """Further rows, which take long to get: asked for when one of them is wanted ..."""
        self._of_more = of_more
        """... whose opcodes these are."""
        for kind in kinds:
            self.register(kind)

    def register(self, kind: OperationKind) -> None:
        if not 0 < kind.opcode < CONTROL:
            raise InternalError(f"opcode 0x{kind.opcode:02x} of {kind.name!r} is not one of an operation")
        if kind.opcode in self._by_opcode or kind.name in self._by_name:
            raise InternalError(f"operation {kind.name!r} (0x{kind.opcode:02x}) is registered already")
        self._by_opcode[kind.opcode] = kind
        self._by_name[kind.name] = kind

    def get(self, opcode: int) -> OperationKind | None:
        if opcode in self._of_more:
            self._register_more()
        return self._by_opcode.get(opcode)

    def _register_more(self) -> None:
        if self._more is not None:
            more, self._more = self._more, None
            for kind in more():
                self.register(kind)

    def is_known(self, opcode: int) -> bool:
        return self.get(opcode) is not None

    def kind(self, opcode: int) -> OperationKind:
        """The row of an opcode that must be known."""
        found = self.get(opcode)
        if found is None:
            raise InternalError(f"opcode 0x{opcode:02x} is not in the table")
        return found

    def named(self, name: str) -> OperationKind | None:
        if name not in self._by_name:
            self._register_more()
        return self._by_name.get(name)

    def names(self) -> list[str]:
        self._register_more()
        return sorted(self._by_name)

    def decode(self, opcode: int, payload: bytes, expire_ms: int | None) -> Any:
        """The operation of a record. Hot."""
        kind = self._by_opcode.get(opcode) or self.get(opcode)
        if kind is None:
            raise FormatError(f"opcode 0x{opcode:02x} is unknown: a newer version wrote it")
        return kind.decode(payload, expire_ms)

    def keys(self, opcode: int, payload: bytes) -> Sequence[bytes] | None:
        """The keys that a record names; None: all of them (an unknown opcode may name any). Hot."""
        kind = self._by_opcode.get(opcode) or self.get(opcode)
        return None if kind is None else kind.keys(payload)


def core_table() -> OperationTable:
    """A new table with the operations that the journal itself knows."""
    return OperationTable(
        (
            OperationKind(VAL, "val", _encode_val, _decode_val, pair_keys, lambda op: op.pairs[-1][1], _val_parts),
            OperationKind(DEL, "del", lambda op: encode_items(op.keys), _decode_del, decode_items),
            OperationKind(FLUSHDB, "flushdb", lambda _: b"", _decode_flushdb, lambda _: None),
            OperationKind(START, "start", encode_start, decode_start, lambda _: ()),
        )
    )


def _encode_sizes(items: Sequence[bytes]) -> bytes:
    sizes = [*map(len, items)]
    if sizes and max(sizes) < 128:
        return bytes(sizes).translate(_SHORT_FLITS)
    return b"".join([*map(flit.encode, sizes)])


def encode_items(items: Sequence[bytes]) -> bytes:
    """`| count flit | length flit ... | item ... |`"""
    return b"".join(item_parts(items))


def item_parts(items: Sequence[bytes]) -> list[bytes]:
    """What `encode_items` joins."""
    return [flit.encode(len(items)), _encode_sizes(items), *items]


def encode_pair(key: bytes, value: bytes) -> bytes:
    """What `encode_pairs` makes of one pair. Hot."""
    key_size, value_size = len(key), len(value)
    if key_size < 128 and value_size < 128:
        return b"\3%c%c%b%b" % (key_size << 1 | 1, value_size << 1 | 1, key, value)
    return encode_pairs(((key, value),))


def encode_pairs(pairs: Collection[tuple[bytes, bytes]]) -> bytes:
    """`| pairs flit | key_len flit, value_len flit ... | key, value ... |`"""
    return encode_flat([*chain.from_iterable(pairs)])


def encode_flat(items: list[bytes]) -> bytes:
    """The same for key, value, key, value ... Hot."""
    return b"".join(_flat_parts(items))


def _flat_parts(items: list[bytes]) -> list[bytes]:
    return [flit.encode(len(items) // 2), _encode_sizes(items), *items]


def _decode_sizes(payload: bytes, per_item: int) -> tuple[list[int], int]:
    """The sizes of items, and where the first begins; they must fill the payload."""
    try:
        count, at = flit.decode(payload, 0)
        count *= per_item
        if count > len(payload):
            raise FormatError(f"a payload of {len(payload)} bytes claims {count} items")
        head = payload[at : at + count]
        sizes = []
        if len(head) == count and not head.translate(None, _ODD):  # flits of one byte each
            sizes = list(head.translate(_SHORT_SIZES))
            at += count
        else:
            for _ in range(count):
                size, at = flit.decode(payload, at)
                sizes.append(size)
    except IndexError:
        raise FormatError("a payload ends inside its lengths") from None
    if at + sum(sizes) != len(payload):
        raise FormatError(f"a payload of {len(payload)} bytes has items for {at + sum(sizes)}")
    return sizes, at


def _decode_blocks(payload: bytes, per_item: int) -> list[bytes]:
    sizes, at = _decode_sizes(payload, per_item)
    items = []
    for size in sizes:
        items.append(payload[at : at + size] if size < _LARGE else cut(payload, at, at + size))
        at += size
    return items


def first_item(payload: bytes) -> bytes | None:
    """The first of what `encode_items` was given, without making the others, which may be large; None: it was given
    none."""
    sizes, at = _decode_sizes(payload, 1)
    return payload[at : at + sizes[0]] if sizes else None


def decode_items(payload: bytes) -> list[bytes]:
    """What `encode_items` was given."""
    return _decode_blocks(payload, 1)


def decode_pairs(payload: bytes) -> list[tuple[bytes, bytes]]:
    """What `encode_pairs` was given."""
    if len(payload) > 2 and payload[0] == 3:  # one pair with short lengths: nearly every record there is
        key_size, value_size = payload[1], payload[2]
        if key_size & 1:
            key_end = 3 + (key_size >> 1)
            if value_size & 1 and key_end + (value_size >> 1) == len(payload):
                return [(payload[3:key_end], payload[key_end:])]
    flat = _decode_blocks(payload, 2)
    return list(zip(flat[::2], flat[1::2], strict=True))


def head_of_pair(beginning: bytes, size: int) -> tuple[bytes, int] | None:
    """The key of a payload that is one pair, and where its value begins; None: it is not, or that comes later.

    `beginning` is what the payload begins with, and `size` what all of it has."""
    try:
        count, at = flit.decode(beginning, 0)
        key_size, at = flit.decode(beginning, at)
        value_size, at = flit.decode(beginning, at)
    except IndexError:
        return None
    if count != 1 or at + key_size > len(beginning) or at + key_size + value_size != size:
        return None
    return beginning[at : at + key_size], at + key_size


def _encode_val(op: Val) -> bytes:
    return encode_pair(*op.pairs[0]) if len(op.pairs) == 1 else encode_pairs(op.pairs)


def _val_parts(op: Val) -> list[bytes]:
    return _flat_parts([*chain.from_iterable(op.pairs)])


def _decode_val(payload: bytes, expire_ms: int | None) -> Val:
    return _make_val((decode_pairs(payload), expire_ms))


def pair_keys(payload: bytes, sizes_wanted: set[int] | None = None) -> list[bytes]:
    """The keys of what `encode_pairs` was given, or those of some sizes; values are not made. Hot: feeds look at every
    write."""
    keys: list[bytes] = []
    try:
        count, at = flit.decode(payload, 0)
        if 2 * count > len(payload):
            raise FormatError(f"a payload of {len(payload)} bytes claims {count} pairs")
        sizes_at = at
        for _ in range(2 * count):
            if payload[at] & 1:
                at += 1
            else:
                _, at = flit.decode(payload, at)
        for _ in range(count):
            key_size = payload[sizes_at]
            if key_size & 1:
                key_size >>= 1
                sizes_at += 1
            else:
                key_size, sizes_at = flit.decode(payload, sizes_at)
            value_size = payload[sizes_at]
            if value_size & 1:
                value_size >>= 1
                sizes_at += 1
            else:
                value_size, sizes_at = flit.decode(payload, sizes_at)
            if sizes_wanted is None or key_size in sizes_wanted:
                keys.append(payload[at : at + key_size])
            at += key_size + value_size
    except IndexError:
        raise FormatError("a payload ends inside its lengths") from None
    if at != len(payload):
        raise FormatError(f"a payload of {len(payload)} bytes has pairs for {at}")
    return keys


def _decode_del(payload: bytes, _expire_ms: int | None) -> Del:
    return Del(decode_items(payload))


def _decode_flushdb(payload: bytes, _expire_ms: int | None) -> FlushDb:
    if payload:
        raise FormatError(f"flushdb has a payload of {len(payload)} bytes")
    return FlushDb()


def encode_start(op: Start) -> bytes:
    """`| ts 8 | shards flit | shard flit ... |`"""
    return b"".join([_U64.pack(op.ts), flit.encode(len(op.shards)), *[flit.encode(shard) for shard in op.shards]])


def decode_start(payload: bytes, _expire_ms: int | None = None) -> Start:
    """What `encode_start` was given."""
    try:
        (ts,) = _U64.unpack_from(payload)
        count, at = flit.decode(payload, _U64.size)
        shards = []
        for _ in range(min(count, len(payload))):
            shard, at = flit.decode(payload, at)
            shards.append(ShardId(shard))
    except (IndexError, struct.error):
        raise FormatError("a start record is cut short") from None
    if len(shards) != count or at != len(payload):
        raise FormatError(f"a start record has {len(payload)} bytes for {count} shards")
    return Start(Ts(ts), shards)
