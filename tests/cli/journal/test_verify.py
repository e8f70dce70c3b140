"""`tidelog journal verify`: the report, its forms, and the exit status."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.cli.command_line import invoke, run, run_on_terminal
from tests.cli.conftest import Made
from tests.cli.directories import GEOMETRY, SHARDS, first_segment, flip_bit
from tidelog.system.disk import SystemDisk


def test_a_sound_directory_as_json(made: Made) -> None:
    outcome = run("journal", "verify", made.path, "--json")
    assert (outcome.status, outcome.stderr) == (0, "")
    records = Counter(record.shard for record in made.written)
    shards = outcome.of_kind("shard")
    assert [(each["shard"], each["records"]) for each in shards] == [(shard, records[shard]) for shard in range(SHARDS)]
    for each in shards:
        ours = [record for record in made.written if record.shard == each["shard"]]
        assert each["transactions"] == len({record.ts for record in ours})
        assert each["blobs"] == sum(len(record.payload) > GEOMETRY.payload_bytes_max for record in ours)
        files = list((made.path / f"shard-{each['shard']}").glob("journal-*"))
        assert (each["segments"], each["bytes"]) == (len(files), sum(file.stat().st_size for file in files))
    summary = outcome.objects[-1]
    assert summary == {
        "kind": "summary",
        "sound": True,
        "starts": True,
        "problems": 0,
        "snapshots": 1,
        "nodes": 0,
        "lost_nodes": 0,
        "remote_node_files": 0,
        "cycle": summary["cycle"],
        "synced_cycle": summary["synced_cycle"],
        "last_ts": max(record.ts for record in made.written),
        "last_time": summary["last_time"],
        "tail_bytes": 0,
    }


def test_plain_text_in_a_pipe(made: Made) -> None:
    outcome = run("journal", "verify", made.path)
    assert (outcome.status, outcome.stderr) == (0, "")
    lines = outcome.stdout.splitlines()
    assert lines[0].split() == ["shard", "segments", "frames", "records", "transactions", "blobs", "bytes"]
    assert lines[SHARDS + 1].split()[3] == str(len(made.written))
    assert lines[-1] == "sound"


@pytest.mark.parametrize("options", [(), ("--no-progress",)])
def test_a_progress_bar_only_on_a_terminal(made: Made, options: tuple[str, ...]) -> None:
    outcome = run_on_terminal("journal", "verify", made.path, *options)
    assert outcome.status == 0
    assert ("verifying" in outcome.stdout) == (not options)
    assert "sound" in outcome.stdout


def test_damage_is_a_problem_and_1(copied: Made) -> None:
    path = copied.path / first_segment(1)
    flip_bit(SystemDisk(), str(path), 1000)
    outcome = run("journal", "verify", copied.path, "--json")
    assert outcome.status == 1
    problems = outcome.of_kind("problem")
    assert (problems[0]["path"], problems[0]["frame"]) == (str(path), 0)
    assert problems[0]["position"] <= 1000
    assert (outcome.objects[-1]["sound"], outcome.objects[-1]["problems"]) == (False, len(problems))
    assert "damage found" in outcome.stderr
    text = run("journal", "verify", copied.path)
    assert text.status == 1
    assert f"problem: {path}, frame 0, position " in text.stdout
    assert text.stdout.splitlines()[-1] == "DAMAGED"


def test_a_torn_tail_is_a_note(copied: Made) -> None:
    path = max((copied.path / "shard-0").glob("journal-*"))
    with path.open("ab") as file:
        file.write(b"\x01\x11torn")
    outcome = invoke("journal", "verify", copied.path, "--json")
    assert outcome.status == 0
    [note] = outcome.of_kind("note")
    assert "6 bytes" in note["text"]
    assert outcome.objects[-1]["tail_bytes"] == 6
    assert "note: 6 bytes" in invoke("journal", "verify", copied.path).stdout


def test_a_snapshot_and_one_shard(made: Made) -> None:
    snapshot = invoke("journal", "verify", made.snapshot, "--json")
    assert snapshot.status == 0
    assert [each["records"] for each in snapshot.of_kind("shard")] == [1] * SHARDS
    shard = invoke("journal", "verify", made.path / "shard-1", "--json")
    assert shard.status == 0
    assert len(shard.of_kind("shard")) == SHARDS
    assert str(made.path) in shard.of_kind("note")[0]["text"]


def test_a_damaged_snapshot_is_damage_of_the_directory_too(copied: Made) -> None:
    flip_bit(SystemDisk(), str(copied.snapshot / first_segment(0)), 70)
    for path in (copied.path, copied.snapshot):
        outcome = invoke("journal", "verify", path, "--json")
        assert outcome.status == 1
        assert outcome.of_kind("problem")[0]["path"] == str(copied.snapshot / first_segment(0))
