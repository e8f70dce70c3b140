"""Members with scores in order, of a sorted set that is too large for one string (`zset_value`).

    columns    up to COLUMNS_MEMBERS_MAX     a list of members, an array of their scores, both in order
    indexed    larger                        a dict member -> score, and a SortedList of (score, member)

Columns are searched from one end to the other, and take a fraction of the memory. A dict that is sorted when it is
asked for its order was tried in their place: three times the columns, and every range paid for a sort.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator
from math import inf, nextafter
from typing import Final

from sortedcontainers import SortedList

COLUMNS_MEMBERS_MAX: Final = 128
"""More members than this are indexed ..."""
COLUMNS_AGAIN_MEMBERS: Final = COLUMNS_MEMBERS_MAX // 2
"""... and if they shrink to this they are columns again; between the two they stay what they are."""
_ONE_BY_ONE_MEMBERS_MAX: Final = 8
"""Columns that take or lose more than this at once are made anew."""
_REBUILD_FRACTION: Final = 4
"""So is an index, once it is more than one in this many of its members."""

ScoredMember = tuple[float, bytes]
"""Score and member: what a set is ordered by."""


class _Index:
    """A large set: both parts always hold the same members."""

    __slots__ = ("ordered", "scores")

    def __init__(self, scores: dict[bytes, float]) -> None:
        self.scores = scores
        self.ordered: SortedList[ScoredMember] = SortedList((score, member) for member, score in scores.items())


class SortedMembers:
    """Members, each with its score, in order; a place is how many entries stand before it."""

    __slots__ = ("_index", "_members", "_scores", "is_large")

    def __init__(self, entries: Iterable[ScoredMember] = ()) -> None:
        self._members: list[bytes] = []
        """In order while they are columns, else empty."""
        self._scores: array[float] = array("d")
        """Those of `_members`."""
        self._index: _Index | None = None
        """None: they are columns."""
        self.is_large = False
        """Redis would keep the set in a skip list."""
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
        return f"SortedMembers({list(self)!r})"

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

    def copy(self) -> SortedMembers:
        """One that changes by itself."""
        other = SortedMembers()
        other.is_large = self.is_large
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
        if len(index.scores) <= COLUMNS_AGAIN_MEMBERS:
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
        elif len(members) >= COLUMNS_MEMBERS_MAX:
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
        bound = COLUMNS_MEMBERS_MAX if self._index is None else COLUMNS_AGAIN_MEMBERS
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
