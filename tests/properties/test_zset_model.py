"""A sorted set against a dict that is sorted whenever it is asked."""

from __future__ import annotations

from math import inf

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tidelog.types.encoding_bounds import EncodingBounds
from tidelog.types.packed_items import PACKED_ITEMS_MAX
from tidelog.types.sorted_members import COLUMNS_AGAIN_MEMBERS, COLUMNS_MEMBERS_MAX, ScoredMember, SortedMembers
from tidelog.types.zset_value import ZSet, zset_of

BOUNDS = EncodingBounds()
SCORES = st.one_of(
    st.sampled_from([0.0, 1.0, 2.0, -1.0, inf, -inf, 0.1]), st.floats(allow_nan=False).map(lambda score: score + 0.0)
)
MEMBERS = st.one_of(st.integers(0, 300).map(lambda number: b"%d" % number), st.binary(max_size=3))
FEW = st.lists(st.tuples(SCORES, MEMBERS), max_size=10)
MANY = st.builds(
    lambda first, count, step: [(float(i % step), b"%d" % i) for i in range(first, first + count)],
    st.integers(0, 200),
    st.integers(1, 250),
    st.integers(1, 60),
)
"""Enough to cross the size at which the representation changes, for little drawing."""
SOME = st.builds(
    lambda first, count: [b"%d" % i for i in range(first, first + count)], st.integers(0, 300), st.integers(1, 300)
)


class Model:
    """What a sorted set is, and nothing more."""

    def __init__(self) -> None:
        self.scores: dict[bytes, float] = {}

    def update(self, entries: list[ScoredMember]) -> None:
        self.scores.update((member, score) for score, member in entries)

    def discard(self, members: list[bytes]) -> None:
        for member in members:
            self.scores.pop(member, None)

    def ordered(self) -> list[ScoredMember]:
        return sorted((score, member) for member, score in self.scores.items())


class ZSetMachine(RuleBasedStateMachine):
    """The same changes on both; they never differ, and a copy never sees what comes after it."""

    def __init__(self) -> None:
        super().__init__()
        self.zset = ZSet()
        self.model = Model()
        self.copies: list[tuple[ZSet, list[ScoredMember]]] = []

    @rule(entries=st.one_of(FEW, MANY))
    def update(self, entries: list[ScoredMember]) -> None:
        self.zset.update(entries, BOUNDS)
        self.model.update(entries)

    @rule(members=st.one_of(st.lists(MEMBERS, max_size=10), SOME))
    def discard(self, members: list[bytes]) -> None:
        self.zset.discard(members)
        self.model.discard(members)

    @rule()
    def copy(self) -> None:
        self.copies = [*self.copies[-2:], (self.zset, self.model.ordered())]
        self.zset = self.zset.copy()

    @rule(entry=st.tuples(SCORES, MEMBERS))
    def look(self, entry: ScoredMember) -> None:
        score, member = entry
        ordered = self.model.ordered()
        assert self.zset.place_of_score(score, after=False) == sum(each < score for each, _ in ordered)
        assert self.zset.place_of_score(score, after=True) == sum(each <= score for each, _ in ordered)
        assert self.zset.place_of_entry(score, member, after=False) == sum(each < entry for each in ordered)
        assert self.zset.place_of_entry(score, member, after=True) == sum(each <= entry for each in ordered)
        assert self.zset.score(member) == self.model.scores.get(member)
        assert (member in self.zset) == (member in self.model.scores)
        rank = self.zset.rank(member)
        assert (ordered[rank][1] if rank is not None else None) == (member if member in self.zset else None)

    @rule(start=st.integers(0, 400), count=st.integers(0, 400))
    def slice(self, start: int, count: int) -> None:
        assert self.zset.slice(start, start + count) == self.model.ordered()[start : start + count]
        if start < len(self.zset):
            assert self.zset.at(start) == self.model.ordered()[start]
            assert self.zset.at(-1 - start) == self.model.ordered()[-1 - start]

    @invariant()
    def is_the_same(self) -> None:
        ordered = self.model.ordered()
        assert list(self.zset) == ordered
        assert len(self.zset) == len(ordered)
        assert sorted(self.zset.members()) == sorted(self.model.scores)

    @invariant()
    def has_the_right_representation(self) -> None:
        size, members = len(self.zset), self.zset._data
        if size > PACKED_ITEMS_MAX:
            assert isinstance(members, SortedMembers)
        if isinstance(members, SortedMembers):
            if size > COLUMNS_MEMBERS_MAX:
                assert members._index is not None
            if size <= COLUMNS_AGAIN_MEMBERS:
                assert members._index is None
            if members._index is not None:
                assert not members._members
                assert {member: score for score, member in members._index.ordered} == members._index.scores

    @invariant()
    def copies_stay_as_they_were(self) -> None:
        for zset, ordered in self.copies:
            assert list(zset) == ordered


TestZSet = ZSetMachine.TestCase
TestZSet.settings = settings(max_examples=60, stateful_step_count=30)


@given(entries=st.lists(st.tuples(SCORES, MEMBERS), max_size=200))
def test_the_order_of_arrival_does_not_matter(entries: list[ScoredMember]) -> None:
    """But for a member's last score; one at a time or all at once."""
    last = {member: score for score, member in entries}
    at_once, one_by_one = zset_of(entries), ZSet()
    for entry in entries:
        one_by_one.update([entry], BOUNDS)
    assert list(at_once) == list(one_by_one) == sorted((score, member) for member, score in last.items())
