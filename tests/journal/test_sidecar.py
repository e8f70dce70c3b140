"""Sidecars: never a no for what is there, seldom a yes for what is not, and made anew whenever in doubt."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.journal.machine import FOLDER, FRAME_BYTES, TABLE, Machine
from tidelog import limits
from tidelog.errors import Corruption
from tidelog.ids import Lsn, ShardId, Ts
from tidelog.journal import sidecar
from tidelog.journal.new_record import NewRecord
from tidelog.journal.operation import DEL, FLUSHDB, VAL, encode_items, encode_pairs
from tidelog.journal.reader import ShardReader
from tidelog.journal.record import BLOB
from tidelog.journal.segment import sidecar_name
from tidelog.journal.sidecar import FrameSummary, Sidecars, decode_summaries, encode_summary, summarise_frame

KEYS = st.sets(st.binary(max_size=300), min_size=1, max_size=60)
PATH = f"{FOLDER}/shard-0/{sidecar_name(Lsn(0))}"


def summary_of(keys: set[bytes]) -> FrameSummary:
    return sidecar._summary(0, False, Lsn(0), Lsn(1), Ts(1), Ts(2), keys)


def sealed_frames(machine: Machine) -> int:
    return len([1 for shard, position in machine.journal.writer.sealed if (shard, position.segment) == (0, 0)])


def summaries(machine: Machine) -> list[FrameSummary]:
    return list(Sidecars(machine.disk, machine.source(), TABLE).summaries(Lsn(0), sealed_frames(machine)))


def keys_by_frame(machine: Machine) -> list[set[bytes]]:
    """The naive answer: for each sealed frame of the first segment, the keys of the records that lie in it, by lsn."""
    reader = ShardReader(machine.source(), lambda: machine.journal.writer.visible.ends[0])
    reader.seek_start()
    frames = sealed_frames(machine)
    heads = [machine.source().frame_header(Lsn(0), frame * FRAME_BYTES) for frame in range(frames + 1)]
    found: list[set[bytes]] = [set() for _ in range(frames)]
    while (parts := reader.read()) is not None:
        for part in parts:
            for record in part.records:
                keys = TABLE.keys(record.opcode, reader.payload_of(record)) or ()
                for frame in range(frames):
                    continued = heads[frame].prev_record_offset is not None and record.lsn == heads[frame].lsn - 1
                    if heads[frame].lsn <= record.lsn < heads[frame + 1].lsn or continued:
                        found[frame].update(keys)
    return found


# --- the filter -------------------------------------------------------------------------------------------------


@given(KEYS)
@settings(max_examples=150)
def test_a_key_that_is_there_is_never_denied(keys: set[bytes]) -> None:
    summary = summary_of(keys)
    for key in keys:
        assert summary.may_hold_key(key)
        assert summary.may_hold_span(key, key + b"\0")
        assert summary.may_hold_span(key, b"")
        assert summary.may_hold_span(b"", key + b"\xff")


@given(KEYS, st.binary(max_size=300), st.binary(max_size=300))
@settings(max_examples=150)
def test_a_span_is_denied_only_if_no_key_lies_in_it(keys: set[bytes], start: bytes, end: bytes) -> None:
    inside = [key for key in keys if start <= key and (not end or key < end)]
    assert summary_of(keys).may_hold_span(start, end) or not inside


@pytest.mark.parametrize("prefix", [b"", b"user:", b"{a long common prefix of every key there is}:"])
@pytest.mark.parametrize("count", [100, 10_000])
def test_a_key_that_is_not_there_is_accepted_once_in_fifty_at_most(prefix: bytes, count: int) -> None:
    present = {b"%s%d" % (prefix, number) for number in range(0, 2 * count, 2)}
    summary = summary_of(present)
    absent = [b"%s%d" % (prefix, number) for number in range(1, 2 * count, 2)]
    accepted = sum(summary.may_hold_key(key) for key in absent)
    assert accepted <= max(0.02 * len(absent), 8)


def test_keys_outside_of_the_range_are_denied_without_the_filter() -> None:
    summary = summary_of({b"b", b"d"})._replace(bloom=b"\xff" * 8)
    assert [summary.may_hold_key(key) for key in (b"a", b"b", b"c", b"d", b"e")] == [False, True, True, True, False]
    assert not summary.may_hold_span(b"e", b"")
    assert not summary.may_hold_span(b"", b"b")


def test_a_frame_without_keys_holds_none() -> None:
    summary = summary_of(set())
    assert not summary.may_hold_key(b"")
    assert not summary.may_hold_span(b"", b"")


@pytest.mark.parametrize("length", [127, 128, 129, 5000])
def test_very_long_keys_are_cut_and_never_denied(length: int) -> None:
    keys = {b"a" * length, b"z" * length, b"z" * (length - 1) + b"~"}
    summary = summary_of(keys)
    assert len(summary.smallest) <= limits.SIDECAR_KEY_BYTES_MAX
    assert len(summary.largest) <= limits.SIDECAR_KEY_BYTES_MAX
    for key in keys:
        assert summary.may_hold_key(key)
        assert summary.may_hold_span(key, b"")
    assert summary.may_hold_span(b"\xff", b"") == (length > limits.SIDECAR_KEY_BYTES_MAX), "what was cut has no end"


def test_the_filter_is_bounded() -> None:
    keys = {b"%d" % number for number in range(3000)}
    assert len(summary_of(keys).bloom) == 3000 * limits.SIDECAR_BLOOM_BITS_PER_KEY // 8
    assert len(summary_of({b"one"}).bloom) == 8


# --- what lies in a frame ---------------------------------------------------------------------------------------


def test_summaries_name_the_keys_of_each_frame_also_of_records_that_are_split() -> None:
    machine = Machine(shards=1, frames_per_segment=64)
    for number in range(60):
        machine.commit((0, b"key-%04d" % number, bytes(number * 37 % 250)))
    found, naive = summaries(machine), keys_by_frame(machine)
    assert len(found) > 8
    heads = [machine.source().frame_header(Lsn(0), frame * FRAME_BYTES) for frame in range(len(found))]
    assert any(head.prev_record_offset is not None for head in heads), "some records are split"
    for summary, keys, head in zip(found, naive, heads, strict=True):
        assert all(summary.may_hold_key(key) for key in keys)
        assert (summary.smallest, summary.largest) == (min(keys), max(keys))
        assert summary.first_lsn == head.lsn
    assert [summary.end_lsn for summary in found[:-1]] == [summary.first_lsn for summary in found[1:]]
    assert all(summary.first_ts <= summary.last_ts for summary in found)
    assert [summary.frame for summary in found] == list(range(len(found)))


def test_first_and_last_ts_are_those_of_the_records_in_the_frame() -> None:
    machine = Machine(shards=1, frames_per_segment=64)
    written = machine.fill(40, size=100)
    for summary in summaries(machine):
        inside = written[summary.first_lsn : summary.end_lsn]
        assert summary.last_ts == inside[-1]
        assert summary.first_ts in (inside[0], written[max(summary.first_lsn - 1, 0)])


def test_the_keys_of_whales_are_found_in_the_blob_file() -> None:
    machine = Machine(shards=1, frames_per_segment=64)
    for number in range(20):
        machine.commit((0, b"whale-%d" % number, bytes(900)))
    reader = machine.journal.reader_since(Ts(0))
    assert all(tx.parts[0].records[0].flags & BLOB for tx in reader.read())
    found, naive = summaries(machine), keys_by_frame(machine)
    assert found
    for summary, keys in zip(found, naive, strict=True):
        assert keys
        assert all(summary.may_hold_key(key) for key in keys)


@pytest.mark.parametrize("opcode", [FLUSHDB, 0xEE])
def test_flushdb_and_unknown_operations_may_name_any_key(opcode: int) -> None:
    machine = Machine(shards=1, frames_per_segment=64)
    ts = machine.journal.hlc.next()
    machine.journal.writer.append(ts, [NewRecord(ShardId(0), opcode, b"")])
    machine.fill(20)
    first, *rest = summaries(machine)
    assert first.may_hold_key(b"anything")
    assert first.may_hold_span(b"x", b"y")
    assert not any(summary.may_hold_key(b"anything") for summary in rest)


def test_deleted_keys_count() -> None:
    machine = Machine(shards=1, frames_per_segment=64)
    ts = machine.journal.hlc.next()
    machine.journal.writer.append(ts, [NewRecord(ShardId(0), DEL, encode_items([b"gone", b"also gone"]))])
    machine.fill(20)
    first = summaries(machine)[0]
    assert first.may_hold_key(b"gone")
    assert first.smallest == b"also gone"


def test_a_damaged_frame_is_named_and_not_summarised() -> None:
    machine = Machine(shards=1)
    machine.fill(20)
    machine.disk.flip_bit(machine.path(), 8 * (FRAME_BYTES + 300))
    with pytest.raises(Corruption, match="the checksum of the frame is wrong") as caught:
        summarise_frame(machine.source(), Lsn(0), 1, TABLE)
    assert (caught.value.path, caught.value.frame) == (machine.path(), 1)


def test_a_frame_that_is_not_there_is_not_summarised() -> None:
    machine = Machine(shards=1, frames_per_segment=64)
    machine.fill(20)
    for frame in (10, 50):
        with pytest.raises(Corruption) as caught:
            summarise_frame(machine.source(), Lsn(0), frame, TABLE)
        assert caught.value.path == machine.path()


def test_a_payload_that_its_operation_cannot_read_is_named_by_its_place() -> None:
    machine = Machine(shards=1)
    machine.commit((0, b"k", b"v"))
    ts = machine.journal.hlc.next()
    machine.journal.writer.append(ts, [NewRecord(ShardId(0), VAL, b"\xff malformed")])
    machine.fill(10)
    with pytest.raises(Corruption, match="claims") as caught:
        summarise_frame(machine.source(), Lsn(0), 0, TABLE)
    assert caught.value.frame == 0
    assert machine.disk.read_file(machine.path())[caught.value.position or 0] == VAL


# --- keeping them -----------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            *[st.integers(0, 2**64 - 1)] * 4,
            st.binary(max_size=128),
            st.binary(max_size=128),
            st.binary(max_size=100),
        ),
        max_size=5,
    )
)
def test_summaries_are_decoded_as_they_were_encoded(
    rows: list[tuple[int, int, int, int, int, bytes, bytes, bytes]],
) -> None:
    expected = [
        FrameSummary(index, flags, Lsn(a), Lsn(b), Ts(c), Ts(d), smallest, largest, bloom)
        for index, (flags, a, b, c, d, smallest, largest, bloom) in enumerate(rows)
    ]
    assert decode_summaries(b"TLSC" + b"".join(map(encode_summary, expected))) == expected


@given(st.binary(max_size=300))
def test_any_bytes_are_summaries_or_none(data: bytes) -> None:
    assert decode_summaries(data) == []
    good = encode_summary(summary_of({b"k"}))
    assert decode_summaries(b"TLSC" + good + data)[:1] == [summary_of({b"k"})]


@pytest.mark.parametrize("zeros", [8, 51, 52, 60, 1000])
def test_zeros_that_a_power_cut_left_are_no_summary(zeros: int) -> None:
    good = encode_summary(summary_of({b"k"}))
    assert decode_summaries(b"TLSC" + good + bytes(zeros)) == [summary_of({b"k"})]
    assert decode_summaries(b"TLSC" + bytes(zeros)) == []


@pytest.fixture(scope="module")
def with_sidecar() -> Machine:
    machine = Machine(shards=1, frames_per_segment=64)
    machine.fill(40)
    summaries(machine)
    return machine


def test_what_was_made_is_not_made_again(with_sidecar: Machine) -> None:
    expected = summaries(with_sidecar)
    read, operations = with_sidecar.disk.bytes_read_by_path.get(with_sidecar.path(), 0), with_sidecar.disk.operations
    assert summaries(with_sidecar) == expected
    assert with_sidecar.disk.bytes_read_by_path.get(with_sidecar.path(), 0) == read
    assert with_sidecar.disk.operations == operations


def test_a_sidecar_that_is_missing_is_made_anew(with_sidecar: Machine) -> None:
    expected, data = summaries(with_sidecar), with_sidecar.disk.read_file(PATH)
    with_sidecar.disk.remove(PATH)
    assert summaries(with_sidecar) == expected
    assert with_sidecar.disk.read_file(PATH) == data


def test_a_sidecar_that_is_cut_anywhere_is_made_anew(with_sidecar: Machine) -> None:
    expected, data = summaries(with_sidecar), with_sidecar.disk.read_file(PATH)
    for size in range(0, len(data), 7):
        with_sidecar.disk.write_file(PATH, data[:size])
        assert summaries(with_sidecar) == expected
        assert with_sidecar.disk.read_file(PATH) == data


def test_a_sidecar_with_a_flipped_bit_anywhere_is_made_anew(with_sidecar: Machine) -> None:
    expected, data = summaries(with_sidecar), with_sidecar.disk.read_file(PATH)
    for bit in range(0, 8 * len(data), 61):
        with_sidecar.disk.flip_bit(PATH, bit)
        assert summaries(with_sidecar) == expected
        assert with_sidecar.disk.read_file(PATH) == data


def test_a_sidecar_grows_by_what_was_sealed_since() -> None:
    machine = Machine(shards=1, frames_per_segment=64)
    sizes = []
    for _ in range(4):
        machine.fill(20)
        assert [each.frame for each in summaries(machine)] == list(range(sealed_frames(machine)))
        sizes.append(len(machine.disk.read_file(PATH)))
    assert sizes == sorted(set(sizes))
    whole = machine.disk.read_file(PATH)
    machine.disk.remove(PATH)
    summaries(machine)
    assert machine.disk.read_file(PATH) == whole


def test_the_journal_makes_sidecars_a_few_frames_at_a_time() -> None:
    machine = Machine(shards=2)
    machine.fill(30, shard=0)
    machine.fill(30, shard=1)
    left = [machine.journal.make_sidecars(TABLE, 3)]
    while left[-1]:
        left.append(machine.journal.make_sidecars(TABLE, 3))
    assert len(left) > 3
    assert all(0 <= before - after <= 3 for before, after in pairwise(left))
    for shard in (0, 1):
        full = machine.segments(shard)[:-1]
        names = machine.disk.list(f"{FOLDER}/shard-{shard}")
        assert [sidecar_name(segment) in names for segment in full] == [True] * len(full)
    encoded = machine.disk.read_file(PATH)
    assert len(decode_summaries(encoded)) == machine.settings.geometry.frames_per_segment


def test_keys_of_several_pairs_in_one_record_all_count() -> None:
    machine = Machine(shards=1)
    ts = machine.journal.hlc.next()
    pairs = [(b"pair-%d" % number, b"v") for number in range(15)]
    machine.journal.writer.append(ts, [NewRecord(ShardId(0), VAL, encode_pairs(pairs))])
    machine.fill(10)
    assert all(summaries(machine)[0].may_hold_key(key) for key, _ in pairs)
