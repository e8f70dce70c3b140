"""What operations on one key share: long ones are cut into runs, and payloads come back as they went."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog import limits
from tidelog.errors import FormatError
from tidelog.journal.operation import encode_items
from tidelog.types.effect import decode_keyed, encode_keyed, keyed_keys, split_long

ITEMS = st.lists(st.binary(max_size=20), min_size=1, max_size=40)


def test_short_operations_are_one_run() -> None:
    items = [b"x"] * limits.RECORD_MEMBERS_MAX
    assert split_long(b"key", items) == [items]
    assert split_long(b"key", items * 2, 2) == [items * 2]
    large = [b"x" * (limits.RECORD_SPLIT_BYTES - 3)]
    assert split_long(b"key", large) == [large]


def test_too_many_items_are_cut() -> None:
    items = [b"%d" % number for number in range(2 * limits.RECORD_MEMBERS_MAX + 1)]
    runs = split_long(b"key", items)
    assert [len(run) for run in runs] == [limits.RECORD_MEMBERS_MAX, limits.RECORD_MEMBERS_MAX, 1]
    assert [item for run in runs for item in run] == items


def test_what_belongs_together_stays_together() -> None:
    half = b"x" * (limits.RECORD_SPLIT_BYTES // 2 + 1)
    assert split_long(b"key", [b"f", half, b"g", half, b"h", b"1"], 2) == [[b"f", half], [b"g", half, b"h", b"1"]]
    whale = b"x" * (2 * limits.RECORD_SPLIT_BYTES)
    assert split_long(b"key", [b"f", whale, b"g", b"1"], 2) == [[b"f", whale], [b"g", b"1"]]
    assert split_long(b"key", [b"f", b"1", b"g", whale], 2) == [[b"f", b"1"], [b"g", whale]]


@given(ITEMS, st.integers(1, 3), st.integers(1, 10), st.integers(1, 60))
def test_runs_are_all_items_within_bounds(items: list[bytes], step: int, members_max: int, bytes_max: int) -> None:
    items *= step
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "RECORD_MEMBERS_MAX", members_max)
        patch.setattr(limits, "RECORD_SPLIT_BYTES", bytes_max)
        runs = split_long(b"key", items, step)
    assert [item for run in runs for item in run] == items
    for run in runs:
        assert len(run) % step == 0
        assert 0 < len(run) <= members_max * step
        assert len(run) == step or sum(map(len, run)) <= bytes_max


@given(st.binary(max_size=10), ITEMS)
def test_payloads_come_back(key: bytes, items: list[bytes]) -> None:
    payload = encode_keyed(key, items)
    assert decode_keyed(payload) == (key, items)
    assert keyed_keys(payload) == [key]


def test_malformed_payloads_are_refused() -> None:
    with pytest.raises(FormatError):
        decode_keyed(encode_items([]))
    with pytest.raises(FormatError):
        decode_keyed(encode_items([b"key", b"field without a value"]), 2)
    with pytest.raises(FormatError):
        decode_keyed(encode_keyed(b"key", [b"a", b"b"])[:-1])
    with pytest.raises(FormatError):
        decode_keyed(b"")
