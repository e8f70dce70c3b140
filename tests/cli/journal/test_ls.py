"""`tidelog journal ls`, on real directories: whole, damaged, and while they are written."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from tests.cli.command_line import invoke, run, run_on_terminal
from tests.cli.conftest import Made
from tests.cli.directories import GEOMETRY, SHARDS, first_segment, flip_bit
from tests.store.cold import made as made_cold
from tidelog.system.disk import SystemDisk

FRAME = GEOMETRY.frame_bytes


def segment_files(path: Path) -> list[Path]:
    return sorted(path.glob("shard-*/journal-*.dj0"))


def test_segments_as_json(made: Made) -> None:
    outcome = run("journal", "ls", made.path, "--json")
    assert (outcome.status, outcome.stderr) == (0, "")
    segments = outcome.of_kind("segment")
    files = segment_files(made.path)
    assert [(f"shard-{each['shard']}", each["file"]) for each in segments] == [
        (file.parent.name, file.name) for file in files
    ]
    for segment, file in zip(segments, files, strict=True):
        size = file.stat().st_size
        blob = file.with_name(file.name.replace("journal-", "blob-").replace(".dj0", ".bin"))
        assert segment == {
            "kind": "segment",
            "shard": int(file.parent.name.removeprefix("shard-")),
            "file": file.name,
            "first_lsn": int(file.name[8:24], 16),
            "frames": -(-size // FRAME),
            "bytes": size,
            "blob_bytes": blob.stat().st_size if blob.exists() else 0,
            "first_ts": segment["first_ts"],
            "first_time": segment["first_time"],
            "last_frame_ts": segment["last_frame_ts"],
            "last_frame_time": segment["last_frame_time"],
            "state": "sealed" if size == GEOMETRY.segment_bytes else "open",
        }
        assert type(segment["first_ts"]) is int
        assert segment["first_time"].startswith("2023-11-14T22:13:2")
    [total] = outcome.of_kind("total")
    assert total == {
        "kind": "total",
        "segments": len(files),
        "frames": sum(each["frames"] for each in segments),
        "bytes": sum(each["bytes"] for each in segments),
        "blob_bytes": sum(each["blob_bytes"] for each in segments),
        "damage": 0,
    }
    assert Counter(each["kind"] for each in outcome.objects) == {"segment": len(files), "snapshot": 1, "total": 1}


def test_snapshots_are_listed_and_can_be_looked_into(made: Made) -> None:
    [snapshot] = invoke("journal", "ls", made.path, "--json").of_kind("snapshot")
    assert snapshot["name"] == made.snapshot.name == f"snapshot-{snapshot['point_ts']:016x}"
    assert snapshot["state"] == "complete"
    assert len(snapshot["point_lsns"]) == SHARDS
    assert snapshot["bytes"] == sum(file.stat().st_size for file in made.snapshot.rglob("*") if file.is_file())
    inside = invoke("journal", "ls", made.snapshot, "--json")
    assert inside.status == 0
    assert [(each["shard"], each["state"]) for each in inside.of_kind("segment")] == [
        (shard, "sealed") for shard in range(SHARDS)
    ]
    assert "a snapshot of 2023-11-14T" in invoke("journal", "ls", made.snapshot).stdout


def test_frames_as_json(made: Made) -> None:
    plain = invoke("journal", "ls", made.path, "--json")
    outcome = invoke("journal", "ls", made.path, "--json", "--frames")
    assert outcome.status == 0
    frames = outcome.of_kind("frame")
    assert not plain.of_kind("frame")
    assert len(frames) == outcome.of_kind("total")[0]["frames"]
    records = Counter(record.shard for record in made.written)
    for shard in range(SHARDS):
        ours = [frame for frame in frames if frame["shard"] == shard]
        assert sum(frame["records"] for frame in ours) == records[shard]
        assert [frame["checksum"] for frame in ours] == ["ok"] * (len(ours) - 1) + ["open"]
        assert all(frame["position"] == frame["frame"] * FRAME for frame in ours)
        for frame in ours:
            assert ("continues" in frame["flags"]) == (frame["prev_record_offset"] is not None)
            assert "checksum" in frame["flags"]
            assert set(frame) == {
                "kind", "shard", "segment", "frame", "position", "lsn", "ts", "time", "flags", "prev_record_offset",
                "records", "last_ts", "last_time", "used_bytes", "checksum",
            }  # fmt: skip
    assert any("continues" in frame["flags"] for frame in frames)


def test_plain_text_in_a_pipe(made: Made) -> None:
    outcome = run("journal", "ls", made.path, "--frames")
    assert outcome.status == 0
    lines = outcome.stdout.splitlines()
    assert lines[0] == f"{made.path}: a data directory, 3 shards, frames of 4096 bytes, 4 to a segment"
    titles = "shard file first lsn frames bytes blob bytes first ts last frame's ts state"
    assert " ".join(lines[2].split()) == titles
    files = segment_files(made.path)
    rows = lines[3 : 3 + len(files)]
    assert [row.split()[1] for row in rows] == [file.name for file in files]
    assert lines[3 + len(files)].startswith("total")
    assert "\x1b" not in outcome.stdout
    assert "," not in "".join(rows)
    assert f"{made.snapshot.name}  complete" in outcome.stdout
    assert sum(" ok " in line for line in lines) == sum(file.stat().st_size // FRAME for file in files)


def test_a_table_on_a_terminal(made: Made) -> None:
    outcome = run_on_terminal("journal", "ls", made.path)
    assert outcome.status == 0
    assert "\x1b[" in outcome.stdout
    assert "─" in outcome.stdout
    assert all(file.name in outcome.stdout for file in segment_files(made.path))
    assert "16,384" in outcome.stdout


def test_one_shard_by_its_folder_also_from_inside(made: Made) -> None:
    whole = invoke("journal", "ls", made.path, "--json").of_kind("segment")
    expected = [each for each in whole if each["shard"] == 1]
    assert invoke("journal", "ls", made.path / "shard-1", "--json").of_kind("segment") == expected
    assert run("journal", "ls", ".", "--json", cwd=made.path / "shard-1").of_kind("segment") == expected
    assert run("journal", "ls", "shard-1", "--json", cwd=made.path).of_kind("segment") == expected
    assert run("journal", "ls", ".", "--json", cwd=made.path).of_kind("segment") == whole


def test_nothing_is_changed_and_no_lock_taken(copied: Made) -> None:
    def state() -> dict[str, tuple[int, int]]:
        return {str(f): (f.stat().st_size, f.stat().st_mtime_ns) for f in copied.path.rglob("*")}

    before = state()
    lock = SystemDisk().lock(str(copied.path / "lock"))
    before |= {name: value for name, value in state().items() if name.endswith("/lock")}
    assert invoke("journal", "ls", copied.path, "--frames").status == 0
    assert invoke("journal", "show", copied.path, "--payload", "--key", "key:1").status == 0
    assert invoke("journal", "verify", copied.path).status == 0
    lock.release()
    assert state() == before


# --- damage -----------------------------------------------------------------------------------------------------------


def test_a_damaged_frame_is_named_and_the_rest_is_listed(copied: Made) -> None:
    path = copied.path / first_segment(1)
    flip_bit(SystemDisk(), str(path), FRAME + 500)
    assert invoke("journal", "ls", copied.path).status == 0  # heads only
    outcome = run("journal", "ls", copied.path, "--frames", "--json")
    assert outcome.status == 1
    assert [(each["shard"], each["frame"]) for each in outcome.of_kind("frame") if each["checksum"] == "BAD"] == [
        (1, 1)
    ]
    [damage] = outcome.of_kind("damage")
    assert (damage["path"], damage["frame"]) == (str(path), 1)
    assert FRAME <= damage["position"] <= FRAME + 500
    assert "checksum" in damage["problem"]
    assert outcome.of_kind("total")[0]["damage"] == 1
    assert outcome.stderr.count("\n") == 1
    assert "damage in 1 place" in outcome.stderr
    text = run("journal", "ls", copied.path, "--frames")
    assert text.status == 1
    assert f"damage: {path}, frame 1, position {damage['position']}: " in text.stdout


def test_a_damaged_head_is_reported_once(copied: Made) -> None:
    flip_bit(SystemDisk(), str(copied.path / first_segment(0)), 1)
    for options in ((), ("--frames",)):
        outcome = invoke("journal", "ls", copied.path, "--json", *options)
        assert outcome.status == 1
        assert [(each["frame"], each["position"]) for each in outcome.of_kind("damage")] == [(0, 0)]
        assert outcome.of_kind("segment")[0]["first_ts"] is None


def test_snapshots_that_are_damaged_or_half_written(copied: Made) -> None:
    (copied.path / "snapshots" / f"snapshot-{5:016x}.partial" / "shard-0").mkdir(parents=True)
    (next((copied.path / "snapshots").glob("snapshot-*[!l]")) / "meta.json").write_text("nonsense")
    outcome = invoke("journal", "ls", copied.path, "--json")
    assert outcome.status == 1
    assert [each["state"] for each in outcome.of_kind("snapshot")] == ["partial", "damaged"]
    assert outcome.of_kind("snapshot")[0]["point_ts"] is None
    assert "meta.json" in outcome.of_kind("damage")[0]["path"]


def test_a_tail_is_told_and_no_damage(copied: Made) -> None:
    path = segment_files(copied.path / ".")[-1]
    end = path.stat().st_size
    with path.open("ab") as file:
        file.write(b"\x01\x11half a record")
    outcome = invoke("journal", "ls", copied.path, "--frames", "--json")
    assert outcome.status == 0
    [tail] = outcome.of_kind("tail")
    assert tail == {"kind": "tail", "shard": 2, "path": str(path), "position": end, "bytes": 15}
    assert "not under a mark" in invoke("journal", "ls", copied.path, "--frames").stdout


def test_what_was_set_aside_is_mentioned(copied: Made) -> None:
    (copied.path / "set-aside-1").mkdir()
    assert invoke("journal", "ls", copied.path, "--json").of_kind("set_aside") == [
        {"kind": "set_aside", "name": "set-aside-1"}
    ]
    assert "set-aside-1: what a repair cut out" in invoke("journal", "ls", copied.path).stdout


def test_a_missing_shard_is_damage(copied: Made) -> None:
    os.rename(copied.path / "shard-1", copied.path / "elsewhere")
    outcome = invoke("journal", "ls", copied.path, "--json")
    assert outcome.status == 1
    assert [each["path"] for each in outcome.of_kind("damage")] == [str(copied.path / "shard-1")]
    assert {each["shard"] for each in outcome.of_kind("segment")} == {0, 2}


@pytest.mark.parametrize("junk", [b"", b"\0" * 100, b"junk" * 2000])
def test_a_file_of_junk_does_not_stop_it(copied: Made, junk: bytes) -> None:
    (copied.path / "shard-0" / f"journal-{0xFFFF:016x}.dj0").write_bytes(junk)
    outcome = invoke("journal", "ls", copied.path, "--frames", "--json")
    assert "Traceback" not in outcome.stderr
    assert len(outcome.of_kind("segment")) == len(segment_files(copied.path))


def test_node_files_are_listed_with_the_snapshots_that_need_them(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    store = made_cold(SystemDisk(), 2, str(folder))
    store.journal.close()
    [first, second] = sorted(folder.glob("shard-*/nodes-*.bin"))
    [snapshot] = (folder / "snapshots").iterdir()
    outcome = run("journal", "ls", folder, "--json")
    assert outcome.status == 0
    assert outcome.of_kind("node_file")[0] == {
        "kind": "node_file",
        "shard": 0,
        "file": first.name,
        "bytes": first.stat().st_size,
        "needed": [{"snapshot": snapshot.name, "bytes": first.stat().st_size}],
        "state": "needed",
    }
    (folder / "shard-0" / "nodes-00000000000000aa.bin").write_bytes(b"left")
    second.unlink()
    first.write_bytes(first.read_bytes()[:-8])
    outcome = run("journal", "ls", folder)
    assert outcome.status == 1
    assert "in no snapshot" in outcome.stdout
    assert "MISSING" in outcome.stdout
    assert "SHORT" in outcome.stdout
    assert second.name in outcome.stderr + outcome.stdout
