"""Sorted sets: members with scores under one key, ordered by score and then by member.

0x30 zadd   | key | score, member ... |     a score is a double, 8 bytes; the set is made if it is not there
0x31 zrem   | key | member ... |            members are gone; a set without members is gone too

A set is kept in one of two ways. Most sets of a keyspace are small, and for them what an object costs is what counts:
two columns in order, searched from one end to the other, take a seventh of the memory. A dict that is sorted when it is
asked for its order was tried for them too: three times the columns, and every range paid for a sort.

    packed     up to PACKED_MEMBERS_MAX      a list of members, an array of their scores, both in the set's order
    indexed    larger                        a dict member -> score, and a SortedList of (score, member)

A score is never NaN, and a zero has no sign: `zadd` takes it away, as Redis does where it stores small sets.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from math import inf, nextafter
from typing import Any, Final, NamedTuple

from sortedcontainers import SortedList

from tidelog.resp.encoder import format_double
from tidelog.types.change import Change, bulk
from tidelog.types.effect import Effect, Keyspace, keyed_effect, split_long
from tidelog.types.value_type import ValueType, fits_listpack, in_pieces, sampled_bytes

ZADD: Final = 0x30
ZREM: Final = 0x31

_NAME: Final = b"zset"
_LISTPACK_MEMBERS_MAX: Final = 128

PACKED_MEMBERS_MAX: Final = 128
"""A set that grows past this is indexed (Redis draws the line between listpack and skip list at the same place) ..."""
PACKED_AGAIN_MEMBERS: Final = PACKED_MEMBERS_MAX // 2
"""... and one that shrinks to this is packed again; between the two it stays what it is."""
_ONE_BY_ONE_MEMBERS_MAX: Final = 8
"""A packed set that takes or loses more than this at once is made anew."""
_REBUILD_FRACTION: Final = 4
"""So is an indexed one, once it is more than one in this many of its members."""

_DOUBLE: Final = struct.Struct("<d")
pack_score = _DOUBLE.pack

ScoredMember = tuple[float, bytes]
"""Score and member: what a set is ordered by."""


class _Index:
    """A large set: both parts always hold the same members."""

    __slots__ = ("ordered", "scores")

    def __init__(self, scores: dict[bytes, float]) -> None:
        self.scores = scores
        self.ordered: SortedList[ScoredMember] = SortedList((score, member) for member, score in scores.items())


class ZSet:
    """Members, each with its score, in order; a place is how many entries stand before it."""

    __slots__ = ("_index", "_members", "_scores")

    def __init__(self, entries: Iterable[ScoredMember] = ()) -> None:
        self._members: list[bytes] = []
        """In order while the set is packed, else empty."""
        self._scores: array[float] = array("d")
        """Those of `_members`."""
        self._index: _Index | None = None
        """None: the set is packed."""
        if entries:
            self.update(entries)

    # --- reading ------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._members) if self._index is None else len(self._index.scores)

    def __contains__(self, member: object) -> bool:
        return member in (self._members if self._index is None else self._index.scores)

    def __iter__(self) -> Iterator[ScoredMember]:
        """Entries in order."""
        return zip(self._scores, self._members, strict=True) if self._index is None else iter(self._index.ordered)

    def __repr__(self) -> str:
        return f"ZSet({list(self)!r})"

    def members(self) -> Collection[bytes]:
        """The members, in no order that means something; not to be changed."""
        return self._members if self._index is None else self._index.scores.keys()

    def score(self, member: bytes) -> float | None:
        if self._index is not None:
            return self._index.scores.get(member)
        place = self.rank(member)
        return None if place is None else self._scores[place]

    def rank(self, member: bytes) -> int | None:
        """The place of a member."""
        if self._index is not None:
            score = self._index.scores.get(member)
            return None if score is None else self._index.ordered.index((score, member))
        members = self._members
        return members.index(member) if member in members else None  # an exception costs more than a second look

    def at(self, place: int) -> ScoredMember:
        """The entry at a place; negative: from the end."""
        if self._index is not None:
            return self._index.ordered[place]
        return self._scores[place], self._members[place]

    def slice(self, start: int, stop: int) -> list[ScoredMember]:
        """Entries from a place to before another, in order."""
        if self._index is not None:
            return list(self._index.ordered.islice(start, stop))
        return list(zip(self._scores[start:stop], self._members[start:stop], strict=True))

    def place_of_score(self, score: float, *, after: bool) -> int:
        """How many entries have a lower score, or with `after` also how many have this one."""
        if self._index is None:
            return bisect_right(self._scores, score) if after else bisect_left(self._scores, score)
        if after:
            if score == inf:
                return len(self)
            score = nextafter(score, inf)
        # A tuple of one element sorts before every longer one that begins with it.
        return self._index.ordered.bisect_left((score,))  # type: ignore[arg-type]

    def place_of_entry(self, score: float, member: bytes, *, after: bool) -> int:
        """How many entries stand before this one, or with `after` up to it; it need not be there."""
        if self._index is not None:
            ordered = self._index.ordered
            return ordered.bisect_right((score, member)) if after else ordered.bisect_left((score, member))
        scores = self._scores
        low = bisect_left(scores, score)
        if low == len(scores) or scores[low] != score:
            return low
        high = bisect_right(scores, score, low)
        return (bisect_right if after else bisect_left)(self._members, member, low, high)

    def copy(self) -> ZSet:
        """One that changes by itself."""
        other = ZSet()
        if self._index is None:
            other._members, other._scores = self._members[:], self._scores[:]
        else:
            index = other._index = _Index({})
            index.scores = self._index.scores.copy()
            index.ordered.update(self._index.ordered)
        return other

    # --- changing -----------------------------------------------------------------------------------------------

    def update(self, entries: Iterable[ScoredMember]) -> None:
        """Set scores; later ones win."""
        fresh = {member: score for score, member in entries}
        index = self._index
        if index is None:
            if len(fresh) > _ONE_BY_ONE_MEMBERS_MAX:
                self._rebuild({**dict(zip(self._members, self._scores, strict=True)), **fresh})
            else:
                for member, score in fresh.items():
                    self.set_one(score, member)
        elif len(fresh) * _REBUILD_FRACTION > len(index.scores):
            self._rebuild({**index.scores, **fresh})
        else:
            for member, score in fresh.items():
                self._set_indexed(index, score, member)

    def discard(self, members: Collection[bytes]) -> None:
        """Remove members; fine if they are not there."""
        index = self._index
        if index is None:
            if len(members) > _ONE_BY_ONE_MEMBERS_MAX:
                gone = set(members)
                self._pack([entry for entry in self if entry[1] not in gone])
                return
            for member in members:
                at = self.rank(member)
                if at is not None:
                    del self._members[at], self._scores[at]
            return
        if len(members) * _REBUILD_FRACTION > len(index.scores):
            gone = set(members)
            self._rebuild({member: score for member, score in index.scores.items() if member not in gone})
            return
        for member in members:
            score = index.scores.pop(member, None)
            if score is not None:
                index.ordered.remove((score, member))
        if len(index.scores) <= PACKED_AGAIN_MEMBERS:
            self._pack(index.ordered)

    def set_one(self, score: float, member: bytes) -> None:
        """As `update`, for one member. Hot."""
        if self._index is not None:  # the members before this one were too many
            self._set_indexed(self._index, score, member)
            return
        members, scores = self._members, self._scores
        if not members:
            members.append(member)
            scores.append(score)
            return
        at = self.rank(member)
        if at is not None:
            if scores[at] == score:
                return
            del members[at], scores[at]
        elif len(members) >= PACKED_MEMBERS_MAX:
            self._rebuild({**dict(zip(members, scores, strict=True)), member: score})
            return
        at = self.place_of_entry(score, member, after=False)
        members.insert(at, member)
        scores.insert(at, score)

    @staticmethod
    def _set_indexed(index: _Index, score: float, member: bytes) -> None:
        before = index.scores.get(member)
        if before is not None:
            if before == score:
                return
            index.ordered.remove((before, member))
        index.scores[member] = score
        index.ordered.add((score, member))

    def _rebuild(self, scores: dict[bytes, float]) -> None:
        bound = PACKED_MEMBERS_MAX if self._index is None else PACKED_AGAIN_MEMBERS
        if len(scores) <= bound:
            self._pack(sorted((score, member) for member, score in scores.items()))
        else:
            self._index = _Index(scores)
            self._members, self._scores = [], array("d")

    def _pack(self, ordered: Iterable[ScoredMember]) -> None:
        entries = list(ordered)
        self._index = None
        self._members = [member for _, member in entries]
        self._scores = array("d", [score for score, _ in entries])


class ZAdd(NamedTuple):
    """Set scores; `items` is score (8 bytes), member, score, member ..."""

    key: bytes
    items: Sequence[bytes]


_make_zadd: Final = partial(tuple.__new__, ZAdd)  # hot: the call of the class itself is Python


class ZRem(NamedTuple):
    """Remove members."""

    key: bytes
    members: Sequence[bytes]


def zadd(key: bytes, items: Iterable[tuple[float, bytes]]) -> list[ZAdd]:
    """Set scores, in as many records as they need."""
    flat: list[bytes] = []
    for score, member in items:
        flat += (pack_score(score + 0.0), member)  # adding it makes a zero positive
    return [ZAdd(key, run) for run in split_long(key, flat, 2)]


def zadd_one(key: bytes, score: float, member: bytes) -> list[ZAdd]:
    """Set one score: as `zadd`, and hot."""
    return [_make_zadd((key, [pack_score(score + 0.0), member]))]


def zrem(key: bytes, members: Sequence[bytes]) -> list[ZRem]:
    """Remove members, in as many records as they need."""
    return [ZRem(key, run) for run in split_long(key, members)]


def _apply_zadd(keyspace: Keyspace, op: ZAdd) -> None:
    key, items = op
    value = keyspace.change(key)
    if value is None:
        value = ZSet()
        keyspace.put(key, value)
    if len(items) == 2:
        value.set_one(_DOUBLE.unpack(items[0])[0], items[1])
        return
    scores = [_DOUBLE.unpack(score)[0] for score in items[::2]]
    value.update(zip(scores, items[1::2], strict=True))


def _apply_zrem(keyspace: Keyspace, op: ZRem) -> None:
    value = keyspace.change(op.key)
    if value is None:
        return
    value.discard(op.members)
    if not value:
        keyspace.remove(op.key)


def _changes_of_zadd(op: ZAdd) -> list[Change]:
    items = op.items
    return [
        Change(op.key, _NAME, items[at + 1], bulk(format_double(_DOUBLE.unpack(items[at])[0])))
        for at in range(0, len(items), 2)
    ]


def _changes_of_zrem(op: ZRem) -> list[Change]:
    return [Change(op.key, _NAME, member, None) for member in op.members]


def effects() -> list[Effect]:
    """Every operation of this module."""
    return [
        keyed_effect(ZADD, "zadd", ZAdd, _apply_zadd, _changes_of_zadd, step=2),
        keyed_effect(ZREM, "zrem", ZRem, _apply_zrem, _changes_of_zrem),
    ]


def _operations(key: bytes, value: ZSet) -> list[Any]:
    return list(zadd(key, value))


def _pieces(key: bytes, value: ZSet) -> Iterator[Any]:
    return in_pieces(key, list(value), zadd)


def _copy(value: ZSet) -> ZSet:
    return value.copy()


def _initial(key: bytes, value: ZSet) -> Iterator[Change]:
    return (Change(key, _NAME, member, bulk(format_double(score))) for score, member in list(value))


def _encoding(value: ZSet) -> bytes:
    is_small = len(value) <= _LISTPACK_MEMBERS_MAX and fits_listpack(value.members())
    return b"listpack" if is_small else b"skiplist"


def _size_bytes(value: ZSet, samples: int) -> int:
    return sampled_bytes(value, value, samples)


ZSET_TYPE: Final = ValueType(
    name=_NAME,
    value_class=ZSet,
    effects=effects(),
    operations=_operations,
    pieces=_pieces,
    copy=_copy,
    initial=_initial,
    encoding=_encoding,
    size_bytes=_size_bytes,
)
