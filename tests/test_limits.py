"""Limits: what they must be to each other, and that the format's are what the design promises."""

from __future__ import annotations

from tidelog import limits
from tidelog.journal import control
from tidelog.journal.frame import Geometry

NUMBERS = {name: value for name, value in vars(limits).items() if name.isupper() and not isinstance(value, tuple)}


def test_every_limit_is_a_positive_number() -> None:
    assert NUMBERS
    assert all(isinstance(value, int | float) and value > 0 for value in NUMBERS.values())


def test_the_format_is_what_the_design_promises() -> None:
    assert [size // limits.MIB for size in limits.FRAME_BYTES_CHOICES] == [1, 2, 4]
    assert limits.FRAME_BYTES_DEFAULT == 2 * limits.MIB
    assert limits.FRAMES_PER_SEGMENT_MAX == 64
    assert limits.FRAME_TS_SPAN_US_MAX == 2**32 - 1
    assert (limits.RECORD_MEMBERS_MAX, limits.RECORD_SPLIT_BYTES) == (512, 256 * limits.KIB)


def test_a_mark_of_all_shards_fits_half_of_the_smallest_frame() -> None:
    assert control.mark_bytes(limits.SHARDS_MAX) <= min(limits.FRAME_BYTES_CHOICES) // 2


def test_a_record_of_an_operation_that_was_split_never_becomes_a_whale() -> None:
    assert all(Geometry(size).payload_bytes_max >= limits.RECORD_SPLIT_BYTES for size in limits.FRAME_BYTES_CHOICES)


def test_the_clock_is_renewed_long_before_its_bound_is_reached() -> None:
    assert limits.SYNC_EVERY_US * 2 < limits.CLOCK_BOUND_RENEW_US < limits.CLOCK_BOUND_AHEAD_WALL_US


def test_a_batch_that_is_not_full_takes_any_transaction_and_any_command() -> None:
    room = limits.BATCH_BYTES_MAX - limits.BATCH_BYTES_FULL
    assert max(limits.TRANSACTION_BYTES_MAX, limits.COMMAND_BYTES_MAX) < room
