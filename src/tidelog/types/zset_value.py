"""The value of a sorted set: members, each with its score, ordered by score and then by member.

    packed     up to PACKED_ITEMS_MAX short members     | count | scores | members |
    otherwise                                           `SortedMembers`

    count      one byte; its highest bit says that Redis would keep the set in a skip list
    scores     doubles of 8 bytes each
    members    as `packed_items` has them, in the same order

A set that was once too large to be packed is not packed again.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from librt.strings import read_f64_le
from mypy_extensions import i64, mypyc_attr

from tidelog.types.encoding_bounds import EncodingBounds
from tidelog.types.packed_items import (
    ITEM_BYTES_MAX,
    LENGTHS,
    PACKED_BYTES_MAX,
    PACKED_ITEMS_MAX,
    are_short,
    find_item,
    pack,
    pass_over,
    unpack,
)
from tidelog.types.sorted_members import ScoredMember, SortedMembers

_LARGE: Final = 0x80
_COUNT: Final = 0x7F
_EMPTY: Final = b"\0"
_SCORE_BYTES: Final = 8
_PACK_SCORE: Final = struct.Struct("<d").pack
_ONE_BY_ONE_MEMBERS_MAX: Final = 2
"""A packed set that takes more than this at once is made anew."""


@mypyc_attr(acyclic=True)
class ZSet:
    """Members with scores; a place is how many entries stand before it. One slot, and none of the garbage collector."""

    __slots__ = ("_data",)

    def __init__(self) -> None:
        self._data: object = _EMPTY
        """`bytes`, or `SortedMembers`."""

    # --- reading ------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        data = self._data
        return data[0] & _COUNT if isinstance(data, bytes) else len(_sorted(data))

    def __contains__(self, member: bytes) -> bool:
        data = self._data
        return _find(data, member) >= 0 if isinstance(data, bytes) else member in _sorted(data)

    def __iter__(self) -> Iterator[ScoredMember]:
        """Entries in order."""
        data = self._data
        return iter(_entries(data)) if isinstance(data, bytes) else iter(_sorted(data))

    def __repr__(self) -> str:
        return f"ZSet({self.entries()!r})"

    def entries(self) -> list[ScoredMember]:
        """In order."""
        data = self._data
        return _entries(data) if isinstance(data, bytes) else list(_sorted(data))

    def members(self) -> Collection[bytes]:
        """The members, in no order that means something; not to be changed."""
        data = self._data
        if isinstance(data, bytes):
            count: i64 = data[0] & _COUNT
            return unpack(data, 1 + _SCORE_BYTES * count, count)
        return _sorted(data).members()

    def score(self, member: bytes) -> float | None:
        """Hot."""
        data = self._data
        if not isinstance(data, bytes):
            return _sorted(data).score(member)
        place = _find(data, member)
        return None if place < 0 else read_f64_le(data, 1 + _SCORE_BYTES * place)

    def rank(self, member: bytes) -> int | None:
        """The place of a member."""
        data = self._data
        if not isinstance(data, bytes):
            return _sorted(data).rank(member)
        place = _find(data, member)
        return None if place < 0 else place

    def at(self, place: int) -> ScoredMember:
        """The entry at a place; negative: from the end."""
        data = self._data
        if not isinstance(data, bytes):
            return _sorted(data).at(place)
        count: i64 = data[0] & _COUNT
        wanted: i64 = place
        if wanted < 0:
            wanted += count
        if not 0 <= wanted < count:
            raise IndexError(f"a sorted set of {count} members has none at {place}")
        at = pass_over(data, 1 + _SCORE_BYTES * count, wanted)
        return read_f64_le(data, 1 + _SCORE_BYTES * wanted), data[at + 1 : at + 1 + data[at]]

    def slice(self, start: int, stop: int) -> list[ScoredMember]:
        """Entries from a place to before another, in order."""
        data = self._data
        return _entries(data)[start:stop] if isinstance(data, bytes) else _sorted(data).slice(start, stop)

    def place_of_score(self, score: float, *, after: bool) -> int:
        """How many entries have a lower score, or with `after` also how many have this one."""
        data = self._data
        if not isinstance(data, bytes):
            return _sorted(data).place_of_score(score, after=after)
        place: i64 = 0
        count: i64 = data[0] & _COUNT
        while place < count:
            each = read_f64_le(data, 1 + _SCORE_BYTES * place)
            if each > score or (each == score and not after):
                break
            place += 1
        return place

    def place_of_entry(self, score: float, member: bytes, *, after: bool) -> int:
        """How many entries stand before this one, or with `after` up to it; it need not be there."""
        data = self._data
        if not isinstance(data, bytes):
            return _sorted(data).place_of_entry(score, member, after=after)
        return _place_of_entry(data, score, member, after)

    @property
    def is_large(self) -> bool:
        """Redis would keep it in a skip list, not in a listpack."""
        data = self._data
        return data[0] >= _LARGE if isinstance(data, bytes) else _sorted(data).is_large

    @property
    def packed(self) -> bytes | None:
        """What it is packed as; None: it is too large for that."""
        data = self._data
        return data if isinstance(data, bytes) else None

    def copy(self) -> ZSet:
        """One that changes by itself."""
        other, data = ZSet(), self._data
        other._data = data if isinstance(data, bytes) else _sorted(data).copy()
        return other

    # --- changing -----------------------------------------------------------------------------------------------

    def set_one(self, score: float, member: bytes, bounds: EncodingBounds) -> None:
        """As `update`, for one member. Hot."""
        data = self._data
        if not isinstance(data, bytes):
            members = _sorted(data)
            if member in members:
                members.set_one(score, member)
                return
            members.set_one(score, member)
        else:
            old = _find(data, member)
            if old >= 0:
                if read_f64_le(data, 1 + _SCORE_BYTES * old) == score:
                    return
                data = _without(data, old)
            count: i64 = data[0] & _COUNT
            size: i64 = len(member)
            if (
                count >= PACKED_ITEMS_MAX
                or size > ITEM_BYTES_MAX
                or len(data) + _SCORE_BYTES + 1 + size > PACKED_BYTES_MAX
            ):
                self._grow([*_entries(data), (score, member)], data[0] >= _LARGE)
            else:
                place: i64 = _place_of_entry(data, score, member, False)
                scores_at: i64 = 1 + _SCORE_BYTES * place
                members_at: i64 = 1 + _SCORE_BYTES * count
                at = pass_over(data, members_at, place)
                self._data = b"%b%b%b%b%b%b%b%b" % (
                    LENGTHS[data[0] + 1],
                    data[1:scores_at],
                    _PACK_SCORE(score),
                    data[scores_at:members_at],
                    data[members_at:at],
                    LENGTHS[size],
                    member,
                    data[at:],
                )
            if old >= 0:
                return
        if len(member) > bounds.zset_value or len(self) > bounds.zset_entries:
            self._mark_large()

    def update(self, entries: Sequence[ScoredMember], bounds: EncodingBounds) -> None:
        """Set scores; later ones win."""
        data = self._data
        if isinstance(data, bytes) and len(entries) <= _ONE_BY_ONE_MEMBERS_MAX:
            for score, member in entries:
                self.set_one(score, member, bounds)
            return
        if isinstance(data, bytes) and len(entries) > PACKED_ITEMS_MAX:
            self._grow([*_entries(data), *entries], data[0] >= _LARGE)
        elif isinstance(data, bytes):
            scores = {member: score for score, member in [*_entries(data), *entries]}
            self._replace(sorted([(score, member) for member, score in scores.items()]), data[0] >= _LARGE)
        else:
            _sorted(data).update(entries)
        if not self.is_large:
            bound = bounds.zset_value
            if len(self) > bounds.zset_entries or max([len(member) for _, member in entries]) > bound:
                self._mark_large()

    def discard(self, members: Collection[bytes]) -> None:
        """Remove members; fine if they are not there."""
        data = self._data
        if not isinstance(data, bytes):
            _sorted(data).discard(members)
            return
        for member in members:
            place = _find(data, member)
            if place >= 0:
                data = _without(data, place)
        self._data = data

    def _replace(self, entries: list[ScoredMember], is_large: bool) -> None:
        """Other entries, in order."""
        count = len(entries)
        if count <= PACKED_ITEMS_MAX:
            members = [member for _, member in entries]
            if are_short(members) and sum(map(len, members)) + count * (_SCORE_BYTES + 1) < PACKED_BYTES_MAX:
                scores = b"".join([_PACK_SCORE(score) for score, _ in entries])
                self._data = pack(LENGTHS[count | _LARGE if is_large else count] + scores, members)
                return
        self._grow(entries, is_large)

    def _grow(self, entries: list[ScoredMember], is_large: bool) -> None:
        grown = SortedMembers(entries)
        grown.is_large = is_large
        self._data = grown

    def _mark_large(self) -> None:
        data = self._data
        if not isinstance(data, bytes):
            _sorted(data).is_large = True
        elif data[0] < _LARGE:
            self._data = LENGTHS[data[0] | _LARGE] + data[1:]


def zset_of(entries: Sequence[ScoredMember], bounds: EncodingBounds | None = None) -> ZSet:
    """A sorted set of entries."""
    value = ZSet()
    value.update(entries, bounds if bounds is not None else EncodingBounds())
    return value


def _sorted(data: object) -> SortedMembers:
    assert isinstance(data, SortedMembers)
    return data


def _find(data: bytes, member: bytes) -> i64:
    """The place of a member; -1: it is not there. Hot."""
    count: i64 = data[0] & _COUNT
    return find_item(data, 1 + _SCORE_BYTES * count, count, member)


def _entries(data: bytes) -> list[ScoredMember]:
    found: list[ScoredMember] = []
    count: i64 = data[0] & _COUNT
    at: i64 = 1 + _SCORE_BYTES * count
    place: i64 = 0
    while place < count:
        end: i64 = at + 1 + data[at]
        found.append((read_f64_le(data, 1 + _SCORE_BYTES * place), data[at + 1 : end]))
        at = end
        place += 1
    return found


def _place_of_entry(data: bytes, score: float, member: bytes, after: bool) -> i64:
    count: i64 = data[0] & _COUNT
    at: i64 = 1 + _SCORE_BYTES * count
    place: i64 = 0
    while place < count:
        each = read_f64_le(data, 1 + _SCORE_BYTES * place)
        if each > score:
            break
        end: i64 = at + 1 + data[at]
        if each == score:
            there = data[at + 1 : end]
            if there > member or (there == member and not after):
                break
        at = end
        place += 1
    return place


def _without(data: bytes, place: i64) -> bytes:
    """Without the entry at a place."""
    count: i64 = data[0] & _COUNT
    scores_at: i64 = 1 + _SCORE_BYTES * place
    at = pass_over(data, 1 + _SCORE_BYTES * count, place)
    end: i64 = at + 1 + data[at]
    return b"%b%b%b%b" % (LENGTHS[data[0] - 1], data[1:scores_at], data[scores_at + _SCORE_BYTES : at], data[end:])
