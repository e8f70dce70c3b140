"""`tidelog journal show`, every option against the list of what was written."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_line import Outcome, invoke, run, run_on_terminal
from tests.cli.conftest import Made
from tests.cli.directories import (
    BINARY_KEY,
    GEOMETRY,
    UNKNOWN,
    Written,
    fill,
    first_segment,
    flip_bit,
    keys_of,
    open_journal,
)
from tidelog.cli.output.values import time_of
from tidelog.ids import ShardId, Ts
from tidelog.journal.new_record import NewRecord
from tidelog.journal.operation import DEL, START, VAL, core_table, decode_pairs
from tidelog.journal.rewind import rewind
from tidelog.system.disk import SystemDisk
from tidelog.testing.clock import SimulatedClock
from tidelog.types.list import LIST_TYPE, LRem, LSet, LTrim, RPush

FRAME = GEOMETRY.frame_bytes


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Also what a newer version wrote can be shown."""
    path = tmp_path_factory.mktemp("newer") / "data"
    return Made(path, fill(SystemDisk(), str(path), snapshot=True, sidecars=True))


def show(made: Made, *options: str) -> Outcome:
    outcome = invoke("journal", "show", made.path, "--json", *options)
    assert (outcome.status, outcome.stderr) == (0, "")
    return outcome


def lsns(outcome: Outcome) -> list[tuple[int, int]]:
    return [(each["shard"], each["lsn"]) for each in outcome.of_kind("record") if each["lsn"] is not None]


def expected(made: Made, is_wanted: Callable[[Written], bool]) -> list[tuple[int, int]]:
    return [(record.shard, record.lsn) for record in made.written if is_wanted(record)]


def to_bytes(found: Any) -> bytes:
    return found.encode() if isinstance(found, str) else base64.b64decode(found["base64"])


# --- what is shown ----------------------------------------------------------------------------------------------------


def test_every_record_with_its_fields(made: Made) -> None:
    found = [each for each in show(made).of_kind("record") if each["lsn"] is not None]
    names = {VAL: "val", DEL: "del", START: "start", 3: "flushdb", UNKNOWN: "0x7e"}
    for each, record in zip(found, made.written, strict=True):
        assert (each["shard"], each["lsn"], each["ts"]) == (record.shard, record.lsn, record.ts)
        assert each["time"] == time_of(record.ts)
        assert (each["opcode"], each["opcode_number"]) == (names[record.opcode], record.opcode)
        assert (each["database"], each["expire_ms"]) == (record.database, record.expire_ms)
        assert ("expire" in each["flags"]) == (record.expire_ms is not None)
        if "next_cont" not in each["flags"]:
            assert each["payload_bytes"] == len(record.payload)
        assert each["file"] == f"journal-{each['segment']:016x}.dj0"
        assert each["frame"] == each["position"] // FRAME
        assert (each["proved"], each["continues"]) == (True, False)
        assert set(each) == {
            "kind", "shard", "segment", "file", "frame", "position", "lsn", "ts", "time", "opcode", "opcode_number",
            "flags", "database", "expire_ms", "payload_bytes", "continues", "proved",
        }  # fmt: skip
    assert {flag for each in found for flag in each["flags"]} == {"ts", "expire", "next_cont", "finish", "blob"}


def test_payloads_are_decoded(made: Made) -> None:
    found = [each for each in show(made, "--payload").of_kind("record") if each["lsn"] is not None]
    table = core_table()
    for each, record in zip(found, made.written, strict=True):
        payload = each["payload"]
        if record.opcode == UNKNOWN:
            assert to_bytes(payload["raw"]) == record.payload
            continue
        operation = table.decode(record.opcode, record.payload, record.expire_ms)
        if record.opcode == VAL:
            assert [(to_bytes(key), to_bytes(value)) for key, value in payload["pairs"]] == operation.pairs
            assert payload["expire_ms"] == record.expire_ms
        elif record.opcode == DEL:
            assert [to_bytes(key) for key in payload["keys"]] == operation.keys
        elif record.opcode == START:
            assert (payload["ts"], payload["shards"]) == (operation.ts, operation.shards)
        else:
            assert payload == {}
    continuations = [each for each in show(made, "--payload").of_kind("record") if each["continues"]]
    assert continuations
    assert all(each["payload"] is None and each["lsn"] is None for each in continuations)


def test_operations_on_lists_are_decoded(tmp_path: Path) -> None:
    folder, clock = str(tmp_path / "data"), SimulatedClock()
    operations = [RPush(b"k", [b"a", b"\xff"]), LSet(b"k", 1, b"b"), LRem(b"k", [0], b"a"), LTrim(b"k", 0, 0)]
    kinds = {effect.operation: effect.kind for effect in LIST_TYPE.effects}
    journal = open_journal(SystemDisk(), folder, clock, shards=1)
    records = [NewRecord(ShardId(0), kinds[type(op)].opcode, kinds[type(op)].encode(op), None, 0) for op in operations]
    journal.writer.append(journal.hlc.next(), records)
    journal.close()
    found = show(Made(tmp_path / "data", []), "--payload", "--no-control", "--key", "k").of_kind("record")
    assert [(each["opcode"], each["payload"]) for each in found] == [
        ("rpush", {"key": "k", "elements": ["a", {"base64": "/w=="}]}),
        ("lset", {"key": "k", "place": 1, "element": "b"}),
        ("lrem", {"key": "k", "positions": [0], "element": "a"}),
        ("ltrim", {"key": "k", "start": 0, "stop": 0}),
    ]


def test_records_about_the_journal_are_decoded(made: Made) -> None:
    everything = show(made, "--payload").of_kind("record")
    first = everything[0]
    assert (first["opcode"], first["lsn"]) == ("epoch", None)
    assert first["payload"] == {"id": 7, "lsns": [0, 0, 0], "last_ts": 0, "first_ts": 1_700_000_000_000_000}
    marks = [each["payload"] for each in everything if each["opcode"] == "mark"]
    assert all(set(mark) == {"cycle", "last_ts", "synced_cycle", "ends", "crc"} for mark in marks)
    assert max(mark["last_ts"] for mark in marks) == max(record.ts for record in made.written)
    assert {each["payload"]["database"] for each in everything if each["opcode"] == "select"} == {0, 2}


# --- what is selected -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bounds", ["10..20", "..5", "100..", "42", "999999.."])
def test_lsns(made: Made, bounds: str) -> None:
    first, _, last = bounds.partition("..")
    low = int(first) if first else 0
    high = low if ".." not in bounds else int(last) if last else 10**9
    assert lsns(show(made, "--lsn", bounds)) == expected(made, lambda record: low <= record.lsn <= high)


def test_ts_as_numbers_and_times(made: Made) -> None:
    rng = random.Random(3)
    for _ in range(5):
        low, high = sorted(record.ts for record in rng.choices(made.written, k=2))
        wanted = expected(made, lambda record, low=low, high=high: low <= record.ts <= high)  # type: ignore[misc]
        assert lsns(show(made, "--ts", f"{low}..{high}")) == wanted
        assert lsns(show(made, "--ts", f"{time_of(low)}..{time_of(high)}")) == wanted
    middle = made.written[len(made.written) // 2].ts
    assert lsns(show(made, "--ts", f"{time_of(middle)}..")) == expected(made, lambda record: record.ts >= middle)
    assert lsns(show(made, "--ts", "..2023-11-14")) == []


@pytest.mark.parametrize("keys", [["key:3"], ["key:1", "other"], ["never written"]])
def test_keys(made: Made, keys: list[str]) -> None:
    wanted = {key.encode() for key in keys}
    options = [option for key in keys for option in ("--key", key)]
    outcome = show(made, *options)
    assert lsns(outcome) == expected(made, lambda r: (named := keys_of(r)) is None or not wanted.isdisjoint(named))
    assert all("payload" not in each for each in outcome.of_kind("record"))


def test_a_key_of_any_bytes(made: Made) -> None:
    key = BINARY_KEY.replace(b"\0", b"")
    assert key != BINARY_KEY  # an argument cannot hold a zero byte, so this one is not there
    outcome = run("journal", "show", made.path, "--json", "--key", key.decode(errors="surrogateescape"))
    assert outcome.status == 0
    assert lsns(outcome) == expected(made, lambda record: keys_of(record) is None)


def test_opcodes_by_name_and_number(made: Made) -> None:
    assert lsns(show(made, "--opcode", "del")) == expected(made, lambda record: record.opcode == DEL)
    both = expected(made, lambda record: record.opcode in (DEL, UNKNOWN))
    assert lsns(show(made, "--opcode", "DEL", "--opcode", "0x7E")) == both
    marks = show(made, "--opcode", "mark").of_kind("record")
    assert {each["opcode_number"] for each in marks} == {0xF0}


def test_shard_limit_and_control(made: Made) -> None:
    everything = show(made).of_kind("record")
    assert show(made, "--shard", "2").of_kind("record") == [each for each in everything if each["shard"] == 2]
    assert show(made, "--limit", "7").of_kind("record") == everything[:7]
    assert show(made, "--limit", "0").of_kind("record") == []
    plain = [each for each in everything if each["opcode_number"] < 0xF0]
    assert show(made, "--no-control").of_kind("record") == plain
    assert show(made, "--control").of_kind("record") == everything
    folder = invoke("journal", "show", made.path / "shard-2", "--json").of_kind("record")
    assert folder == [each for each in everything if each["shard"] == 2]


def test_all_options_together(made: Made) -> None:
    middle = made.written[len(made.written) // 2].ts
    options = [
        "--lsn",
        "5..80",
        "--ts",
        f"..{middle}",
        "--opcode",
        "val",
        "--key",
        "key:2",
        "--no-control",
        "--payload",
    ]
    outcome = show(made, *options)
    assert lsns(outcome) == expected(
        made,
        lambda r: 5 <= r.lsn <= 80 and r.ts <= middle and r.opcode == VAL and b"key:2" in (keys_of(r) or []),
    )
    heads = [each for each in outcome.of_kind("record") if not each["continues"]]
    assert all(each["payload"]["pairs"][0][0] == "key:2" for each in heads)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--lsn", "abc"),
        ("--lsn", "5..2"),
        ("--lsn", ".."),
        ("--ts", "noon"),
        ("--opcode", "nonsense"),
        ("--opcode", "0x00"),
        ("--opcode", "0x100"),
        ("--opcode", "0xzz"),
        ("--shard", "3"),
        ("--shard", "-1"),
        ("--limit", "-1"),
        ("--limit", "many"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused(made: Made, option: str, value: str) -> None:
    outcome = invoke("journal", "show", made.path, option, value)
    assert (outcome.status, outcome.stdout) == (2, "")
    assert option in outcome.stderr


def test_a_snapshot(made: Made) -> None:
    outcome = invoke("journal", "show", made.snapshot, "--json", "--payload", "--no-control")
    assert [each["payload"]["pairs"][0][0] for each in outcome.of_kind("record")] == ["whole:0", "whole:1", "whole:2"]


# --- how it looks -----------------------------------------------------------------------------------------------------


def test_plain_text_in_a_pipe(made: Made) -> None:
    outcome = run("journal", "show", made.path, "--payload", "--limit", "200")
    assert (outcome.status, outcome.stderr) == (0, "")
    lines = outcome.stdout.splitlines()
    assert " ".join(lines[0].split()) == "shard segment frame position lsn ts opcode db bytes flags expire"
    assert lines[1].split()[:7] == ["0", "0", "0", "20", "-", "2023-11-14T22:13:20.000000Z", "epoch"]
    assert lines[2] == "        id=7 lsns=[0, 0, 0] last_ts=0 first_ts=1700000000000000"
    assert 'keys=["key:' in outcome.stdout
    assert '"\\xff\\x00key"' in outcome.stdout
    assert "2027-01-15T08:00:00.000000Z" in outcome.stdout
    assert all(line.isprintable() for line in lines)


def test_colours_on_a_terminal(made: Made) -> None:
    outcome = run_on_terminal("journal", "show", made.path, "--payload", "--limit", "40")
    assert outcome.status == 0
    assert "\x1b[1mepoch" in outcome.stdout
    assert "ts+finish" in outcome.stdout


# --- damage -----------------------------------------------------------------------------------------------------------


def test_what_can_be_shown_is_shown_and_then_where_the_damage_is(copied: Made) -> None:
    path = copied.path / first_segment(0)
    whole = show(copied).of_kind("record")
    flip_bit(SystemDisk(), str(path), 2 * FRAME)
    outcome = run("journal", "show", copied.path, "--json")
    assert outcome.status == 1
    assert outcome.of_kind("record") == [
        each for each in whole if (each["shard"], each["segment"], each["frame"]) != (0, 0, 2)
    ]
    assert outcome.objects[-1] == {
        "kind": "damage",
        "path": str(path),
        "frame": 2,
        "position": 2 * FRAME,
        "problem": outcome.objects[-1]["problem"],
    }
    assert outcome.stderr.count("\n") == 1
    text = run("journal", "show", copied.path)
    assert text.status == 1
    assert text.stdout.splitlines()[-1].startswith(f"damage: {path}, frame 2, position {2 * FRAME}: ")


def test_what_nothing_vouches_for_says_so(copied: Made) -> None:
    flip_bit(SystemDisk(), str(copied.path / first_segment(0)), FRAME + 3000)
    outcome = invoke("journal", "show", copied.path, "--json")
    assert outcome.status == 1
    unproved = {(each["segment"], each["frame"]) for each in outcome.of_kind("record") if not each["proved"]}
    assert unproved == {(0, 1)}
    assert "unproved" in invoke("journal", "show", copied.path).stdout


def test_a_damaged_whale_is_a_problem_of_its_record(copied: Made) -> None:
    blob = next((copied.path / "shard-1").glob("blob-*.bin"))
    flip_bit(SystemDisk(), str(blob), 100)
    assert invoke("journal", "show", copied.path).status == 0  # headers do not need it
    outcome = invoke("journal", "show", copied.path, "--payload", "--json")
    assert outcome.status == 1
    [record] = [each for each in outcome.of_kind("record") if "problem" in (each["payload"] or {})]
    assert "checksum" in record["payload"]["problem"]
    assert [each["path"] for each in outcome.of_kind("damage")] == [str(blob)]
    assert "checksum" in invoke("journal", "show", copied.path, "--payload").stdout


def test_a_payload_that_does_not_decode_is_shown_raw(copied: Made) -> None:
    position = next(
        each["position"]
        for each in show(copied, "--opcode", "val", "--shard", "0").of_kind("record")
        if "blob" not in each["flags"] and "next_cont" not in each["flags"]
    )
    path = str(copied.path / first_segment(0))
    file = SystemDisk().open(path, "write")
    file.write(position, [b"\x04"])  # a val becomes a start: it has a payload, but not one of those
    file.close()
    outcome = invoke("journal", "show", copied.path, "--payload", "--json", "--shard", "0")
    assert outcome.status == 1
    [record] = [each for each in outcome.of_kind("record") if "problem" in (each["payload"] or {})]
    assert record["position"] == position
    assert "raw" in record["payload"]


@pytest.mark.parametrize("share", [0.3, 0.8], ids=["before the snapshot", "behind it"])
def test_what_was_set_aside_is_shown_like_any_journal(copied: Made, share: float) -> None:
    """On the real disk: every record that is not shared, with all that it had."""
    times = sorted({record.ts for record in copied.written})
    since = Ts(times[int(share * len(times))])
    rewound = rewind(SystemDisk(), str(copied.path), since, 7)
    outcome = invoke("journal", "show", rewound.path, "--json", "--payload", "--no-control")
    assert (outcome.status, outcome.stderr) == (0, "")
    shown = [each for each in outcome.of_kind("record") if not each["continues"]]
    lost = [record for record in copied.written if record.ts > since]
    assert [
        (each["shard"], each["lsn"], each["ts"], each["opcode_number"], each["database"], each["expire_ms"])
        for each in shown
        if each["ts"] > since
    ] == [record[:6] for record in lost]
    assert rewound.records == len(lost)
    before = {(record.shard, record.lsn): record for record in copied.written}
    for each in shown:
        record = before[each["shard"], each["lsn"]]
        if record.opcode == VAL:
            assert [to_bytes(pair[1]) for pair in each["payload"]["pairs"]] == [
                value for _, value in decode_pairs(record.payload)
            ]
    assert bool(list((copied.path / "snapshots").iterdir())) == (share > 0.5)
    assert invoke("journal", "ls", rewound.path).status == 0
