"""`tidelog journal ls`: the files of a journal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from tidelog.cli.exits import DAMAGED, FINE, complain, guarded
from tidelog.cli.journal.folder import DataFolder, find_place, real_disk, tell_damage, tell_tail
from tidelog.cli.options import AsJson
from tidelog.cli.output.stdout import Column, Output
from tidelog.cli.output.values import time_of, time_or_number

if TYPE_CHECKING:
    from tidelog.errors import Corruption
    from tidelog.journal.inspection import FrameInfo, JournalFolder, SegmentInfo, ShardInspection
    from tidelog.ports import Disk

EPILOG: Final = """\
Examples:

  tidelog journal ls data

  tidelog journal ls data --frames --json | jq 'select(.checksum == "BAD")'

  tidelog journal ls data/snapshots/snapshot-0006439a7c8f2b10

JSON: kind "segment" (shard, file, first_lsn, frames, bytes, blob_bytes, first_ts, last_frame_ts, state), with --frames
"frame" (shard, segment, frame, position, lsn, ts, flags, prev_record_offset, records, last_ts, used_bytes, checksum),
"node_file" (shard, file, bytes, needed, state), "snapshot", "set_aside", "tail", "damage", and at the end "total".
Every ts has a time beside it.

Exit status: 0, 1 if damage was found, 2 if DIR cannot be read."""

_SEGMENTS: Final = (
    Column("shard", right=True),
    Column("file", style="cyan"),
    Column("first lsn", right=True),
    Column("frames", right=True),
    Column("bytes", right=True),
    Column("blob bytes", right=True),
    Column("first ts"),
    Column("last frame's ts"),
    Column("state"),
)
_FRAMES: Final = (
    Column("shard", 5, right=True),
    Column("segment", 28, style="cyan"),
    Column("frame", 5, right=True),
    Column("position", 11, right=True),
    Column("lsn", 12, right=True),
    Column("ts", 27),
    Column("last ts", 27),
    Column("records", 8, right=True),
    Column("bytes used", 10, right=True),
    Column("checksum", 8),
    Column("flags"),
)
_NODE_FILES: Final = (
    Column("shard", right=True),
    Column("node file", style="cyan"),
    Column("bytes", right=True),
    Column("bytes needed", right=True),
    Column("state"),
    Column("by snapshots"),
)
_SNAPSHOTS: Final = (
    Column("snapshot", style="cyan"),
    Column("state"),
    Column("point ts"),
    Column("lsns that follow"),
    Column("bytes", right=True),
)


@guarded
def ls(
    folder: DataFolder,
    frames: Annotated[
        bool, typer.Option("--frames", help="Also list the frames; each is read, and its checksum is checked.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """List the segments of a journal, its files of nodes, and its snapshots.

    It reads only file sizes and the heads of frames, so it is quick for a journal of any size; with --frames it reads
    everything. It takes no lock: a server may be writing at the same time.

    No record of a segment has a ts below the first ts of the segment, and no record of its last frame has a ts below
    that of the frame. A segment is sealed when another follows it. The checksum of a frame is ok, BAD, or open: the
    last frame of a shard gets its checksum when it is full, and until then its marks vouch for it.
    """
    from tidelog.journal.inspection import ShardInspection

    disk, output = real_disk(), Output(as_json=as_json)
    place = find_place(disk, folder)
    shards = [ShardInspection(disk, place, shard) for shard in place.shards]
    segments = [segment for shard in shards for segment in shard.segments()]
    damage: list[Corruption] = []
    _print_place(output, place)
    _print_segments(output, segments)
    if frames:
        _print_frames(output, shards)
    if place.kind == "data":
        damage += _print_nodes(output, disk, place)
    if place.kind == "data" and not place.is_shard:
        damage += _print_snapshots(output, disk, place)
        _print_set_aside(output, disk, place)
    for shard in shards:
        damage += _without_repeats(shard.damage)
        if shard.tail is not None:
            tell_tail(output, shard.shard, shard.tail)
        shard.close()
    tell_damage(output, damage)
    if as_json:
        _print_total(output, segments, len(damage))
    if damage:
        complain(f"damage in {len(damage)} place(s); `tidelog journal verify {folder}` checks everything")
    return DAMAGED if damage else FINE


def _print_place(output: Output, place: JournalFolder) -> None:
    if output.as_json:
        return
    geometry, point = place.meta.geometry, place.meta.point
    what = "a data directory" if point is None else f"a snapshot of {time_or_number(point.ts)} (ts {point.ts})"
    count = place.meta.shard_count
    output.line(
        f"{place.folder}: {what}, {count} shard{'s' if count != 1 else ''}, frames of {geometry.frame_bytes} bytes, "
        f"{geometry.frames_per_segment} to a segment"
    )
    output.line()


def _print_segments(output: Output, segments: list[SegmentInfo]) -> None:
    if output.as_json:
        for segment in segments:
            members = {
                "shard": segment.shard,
                "file": segment.file,
                "first_lsn": segment.first_lsn,
                "frames": segment.frames,
                "bytes": segment.size_bytes,
                "blob_bytes": segment.blob_bytes,
                "first_ts": segment.first_ts,
                "first_time": time_of(segment.first_ts),
                "last_frame_ts": segment.last_frame_ts,
                "last_frame_time": time_of(segment.last_frame_ts),
                "state": _state(segment),
            }
            output.object("segment", members)
        return
    rows = [
        (
            segment.shard,
            segment.file,
            segment.first_lsn,
            segment.frames,
            segment.size_bytes,
            segment.blob_bytes,
            time_or_number(segment.first_ts),
            time_or_number(segment.last_frame_ts),
            _state(segment),
        )
        for segment in segments
    ]
    frames, size, blobs = _totals(segments)
    output.table(
        _SEGMENTS, [*rows, ("total", f"{len(segments)} files", "", frames, size, blobs, "", "", "")], total=True
    )


def _state(segment: SegmentInfo) -> str:
    return "sealed" if segment.is_sealed else "open"


def _totals(segments: list[SegmentInfo]) -> tuple[int, int, int]:
    return (
        sum(segment.frames for segment in segments),
        sum(segment.size_bytes for segment in segments),
        sum(segment.blob_bytes for segment in segments),
    )


def _print_total(output: Output, segments: list[SegmentInfo], damage: int) -> None:
    frames, size, blobs = _totals(segments)
    members = {"segments": len(segments), "frames": frames, "bytes": size, "blob_bytes": blobs, "damage": damage}
    output.object("total", members)


def _print_frames(output: Output, shards: list[ShardInspection]) -> None:
    if not output.as_json:
        output.line()
        output.header(_FRAMES)
    for shard in shards:
        for frame in shard.frames():
            if output.as_json:
                output.object("frame", _frame_members(frame))
            else:
                output.row(_FRAMES, _frame_row(frame))


def _frame_members(frame: FrameInfo) -> dict[str, object]:
    return {
        "shard": frame.shard,
        "segment": frame.segment,
        "frame": frame.frame,
        "position": frame.position,
        "lsn": frame.lsn,
        "ts": frame.ts,
        "time": time_of(frame.ts),
        "flags": _frame_flags(frame),
        "prev_record_offset": frame.prev_record_offset,
        "records": frame.records,
        "last_ts": frame.last_ts,
        "last_time": time_of(frame.last_ts),
        "used_bytes": frame.used_bytes,
        "checksum": frame.checksum,
    }


def _frame_row(frame: FrameInfo) -> list[str | int | None]:
    from tidelog.journal.segment import journal_name

    flags = _frame_flags(frame)
    if frame.prev_record_offset is not None:
        flags = [f"{flag} from {frame.prev_record_offset}" if flag == "continues" else flag for flag in flags]
    return [
        frame.shard,
        journal_name(frame.segment),
        frame.frame,
        frame.position,
        frame.lsn,
        time_or_number(frame.ts),
        time_or_number(frame.last_ts),
        frame.records,
        frame.used_bytes,
        frame.checksum,
        " ".join(flags),
    ]


def _frame_flags(frame: FrameInfo) -> list[str]:
    from tidelog.journal.frame import CHECKSUM, CONTINUES

    names = {CONTINUES: "continues", CHECKSUM: "checksum"}
    return [name for bit, name in names.items() if frame.flags & bit]


def _print_nodes(output: Output, disk: Disk, place: JournalFolder) -> list[Corruption]:
    """Node files, and which snapshots need them."""
    from tidelog.errors import Corruption
    from tidelog.journal.inspection import list_snapshots
    from tidelog.journal.node_inspection import list_node_files

    files = list(list_node_files(disk, place, list(list_snapshots(disk, place.folder))))
    if output.as_json:
        for file in files:
            needed = [{"snapshot": name, "bytes": size} for name, size in sorted(file.needed.items())]
            members = {"shard": file.shard, "file": file.file, "bytes": file.size_bytes, "needed": needed}
            output.object("node_file", {**members, "state": file.state})
    elif files:
        output.line()
        rows = [
            (file.shard, file.file, file.size_bytes, file.needed_bytes, file.state, " ".join(sorted(file.needed)))
            for file in files
        ]
        output.table(_NODE_FILES, rows)
    return [
        Corruption(
            f"the snapshots {' '.join(sorted(file.needed))} need {file.needed_bytes} bytes of this file of nodes, and "
            f"{'it is missing' if file.size_bytes is None else f'it has {file.size_bytes}'}",
            path=f"{place.folder}/shard-{file.shard}/{file.file}",
        )
        for file in files
        if file.state in ("MISSING", "SHORT")
    ]


def _print_snapshots(output: Output, disk: Disk, place: JournalFolder) -> list[Corruption]:
    from tidelog.journal.inspection import list_snapshots

    snapshots = list(list_snapshots(disk, place.folder))
    if output.as_json:
        for snapshot in snapshots:
            point = snapshot.point
            members = {
                "name": snapshot.name,
                "state": snapshot.state,
                "point_ts": point.ts if point else None,
                "point_time": time_of(point.ts) if point else None,
                "point_lsns": list(point.lsns) if point else None,
                "bytes": snapshot.size_bytes,
            }
            output.object("snapshot", members)
    elif snapshots:
        output.line()
        rows = [
            (
                snapshot.name,
                snapshot.state,
                time_or_number(snapshot.point.ts if snapshot.point else None),
                " ".join(map(str, snapshot.point.lsns)) if snapshot.point else None,
                snapshot.size_bytes,
            )
            for snapshot in snapshots
        ]
        output.table(_SNAPSHOTS, rows)
    return [snapshot.damage for snapshot in snapshots if snapshot.damage is not None]


def _print_set_aside(output: Output, disk: Disk, place: JournalFolder) -> None:
    from tidelog.journal.tail import cut_tail_path, list_cut_tails

    for name in disk.list(place.folder):
        if name.startswith("set-aside-"):
            if output.as_json:
                output.object("set_aside", {"name": name})
            else:
                output.line(f"{name}: what a repair cut out; it can be removed when nobody misses it")
    for number in list_cut_tails(disk, place.folder):
        name = cut_tail_path(place.folder, number)[len(place.folder) + 1 :]
        if output.as_json:
            output.object("set_aside", {"name": name})
        else:
            output.line(f"{name}: what a start cut off after a crash; it can be removed when nobody misses it")


def _without_repeats(damage: list[Corruption]) -> list[Corruption]:
    """Heads are looked at for the segments and again for the frames."""
    return list({str(error): error for error in damage}.values())
