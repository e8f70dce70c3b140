"""`verify` and a start must agree: damage a directory in random ways, and hold one against the other.

A directory that `verify` calls sound starts, and one with a `refusal` does not. Only damage in what a start does not
need (history before the newest snapshot, older snapshots) is a problem to `verify` while a server starts. Neither may
end with anything but an error of ours.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any, Final

from crc32c import crc32c

from tests.simulation.specimen import FOLDER, Specimen, all_paths, open_disk
from tidelog.errors import Corruption, TidelogError
from tidelog.ids import ShardId
from tidelog.journal import layout
from tidelog.journal.operation import FLUSHDB, START, VAL
from tidelog.journal.record import FINISH, TS
from tidelog.journal.verify import VerifyReport, verify
from tidelog.store.store import Store
from tidelog.store.type_table import operation_table
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk

UNKNOWN_OPCODE: Final = 0x3E
UNKNOWN_CONTROL: Final = 0xFB

Damage = Callable[[SimulatedDisk, Specimen, Random], None]


def start(disk: SimulatedDisk, specimen: Specimen) -> TidelogError | None:
    """Start as a server does; what it says if it does not."""
    try:
        store = Store.open(disk, FOLDER, SimulatedClock(), specimen.settings, lambda: 5, Random(0))
    except TidelogError as error:
        return error
    store.journal.writer.abandon()
    return None


def audit(disk: SimulatedDisk) -> VerifyReport | TidelogError:
    try:
        return verify(disk, FOLDER, operation_table())
    except TidelogError as error:
        return error


def compare(disk: SimulatedDisk, specimen: Specimen) -> str:
    """What both made of a directory; an assertion if they do not agree."""
    before = {path: disk.read_file(path) for path in all_paths(disk, FOLDER)}
    report = audit(disk)
    assert {path: disk.read_file(path) for path in all_paths(disk, FOLDER)} == before, "verify has changed something"
    fault = start(disk, specimen)
    if isinstance(report, TidelogError):
        assert fault is not None, f"verify cannot read it ({report}), but it starts"
        return "refused"
    told = [str(problem) for problem in report.problems]
    assert (report.refusal is None) == (fault is None), f"verify: {report.refusal}; problems {told}; start: {fault}"
    assert fault is None or not report.is_sound
    if fault is not None:
        return "refused"
    if report.tail_bytes:
        assert disk.list(f"{FOLDER}/{layout.CUT_TAILS}"), "a tail was cut and is gone"
    return "sound" if report.is_sound else "starts all the same"


# --- damage of bytes --------------------------------------------------------------------------------------------------


def _pick(specimen: Specimen, rng: Random, part: str = "/") -> str:
    paths = [path for path in all_paths(specimen.disk, FOLDER) if part in path and not path.endswith("/lock")]
    return rng.choice(paths)


def flip(disk: SimulatedDisk, specimen: Specimen, rng: Random) -> None:
    path = _pick(specimen, rng)
    disk.flip_bit(path, rng.randrange(8 * max(1, len(disk.read_file(path)))))


def cut(disk: SimulatedDisk, specimen: Specimen, rng: Random) -> None:
    path = _pick(specimen, rng)
    data = disk.read_file(path)
    frame_bytes = specimen.settings.geometry.frame_bytes
    size = rng.choice((0, rng.randrange(len(data)), rng.randrange(len(data)) // frame_bytes * frame_bytes))
    disk.write_file(path, data[:size])


def zero(disk: SimulatedDisk, specimen: Specimen, rng: Random) -> None:
    path = _pick(specimen, rng, "/shard-")
    data = disk.read_file(path)
    at = rng.randrange(len(data))
    size = min(rng.choice((1, 30, 512, 3000)), len(data) - at)
    disk.write_file(path, data[:at] + bytes(size) + data[at + size :])


def remove(disk: SimulatedDisk, specimen: Specimen, rng: Random) -> None:
    disk.remove(_pick(specimen, rng))


def swap(disk: SimulatedDisk, specimen: Specimen, rng: Random) -> None:
    one, other = _pick(specimen, rng, "/shard-"), _pick(specimen, rng, "/shard-")
    first, second = disk.read_file(one), disk.read_file(other)
    disk.write_file(one, second)
    disk.write_file(other, first)


def lengthen(disk: SimulatedDisk, specimen: Specimen, rng: Random) -> None:
    path = _pick(specimen, rng, "/journal-")
    disk.write_file(path, disk.read_file(path) + rng.randbytes(rng.choice((1, 40, 2000))))


def lengthen_any(disk: SimulatedDisk, rng: Random) -> None:
    paths = [path for path in all_paths(disk, FOLDER) if "/journal-" in path]
    path = rng.choice(paths)
    disk.write_file(path, disk.read_file(path) + rng.randbytes(20))


# --- what is wrong although every checksum is right -------------------------------------------------------------------


def edited_metas(members: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Wrong members for a `meta.json`, by what is wrong."""
    return {
        "larger frames": {"frame_bytes": 2 * members["frame_bytes"]},
        "smaller frames": {"frame_bytes": members["frame_bytes"] - 512 or 1024},
        "longer segments": {"frames_per_segment": members["frames_per_segment"] + 1},
        "other slots": {"slots": [[0, 100 * (shard + 1)] for shard in range(members["shards"])]},
        "a slot too many": {"slots": [[first, last + 1] for first, last in members["slots"]]},
        "a newer format": {"format": members["format"] + 1},
        "another shard": {"shards": members["shards"] + 1},
    }


def edit_meta(disk: SimulatedDisk, path: str, what: str) -> None:
    """Let a JSON file say something else, with a right checksum."""
    members: dict[str, Any] = json.loads(disk.read_file(path))
    members.pop("crc32c")
    members |= edited_metas(members)[what]
    crc = crc32c(json.dumps(members, sort_keys=True).encode())
    disk.write_file(path, json.dumps({**members, "crc32c": f"{crc:08x}"}).encode())


def edit_some_meta(disk: SimulatedDisk, specimen: Specimen, rng: Random) -> None:
    path = _pick(specimen, rng, "meta.json")
    edit_meta(disk, path, rng.choice(list(edited_metas(json.loads(disk.read_file(path))))))


BAD_RECORDS: Final[dict[str, tuple[int, int, bytes, int]]] = {
    "an unknown opcode": (UNKNOWN_OPCODE, TS | FINISH, b"whatever", 0),
    "no end": (VAL, TS, b"\3\3\3kv", 0),
    "no beginning": (VAL, FINISH, b"\3\3\3kv", 0),
    "a malformed value": (VAL, TS | FINISH, b"\xff\xfe\x01 value", 0),
    "a flush with a payload": (FLUSHDB, TS | FINISH, b"x", 0),
    "a malformed start": (START, TS | FINISH, b"short", 0),
    "an unknown database": (VAL, TS | FINISH, b"\3\3\3kv", 99),
    "an unknown control record": (VAL, TS | FINISH, b"\3\3\3kv", 0),
}
"""Opcode, flags, payload and database of records that only a newer version, or a bug, can have written."""


def write_bad(disk: SimulatedDisk, specimen: Specimen, what: str, *, shard: int = 0, is_vouched_for: bool) -> None:
    """Write such a record under a valid mark, and crash."""
    journal, _ = open_disk(specimen, disk)
    writer = journal.writer
    inner = writer._shards[shard]
    ts = journal.hlc.next()
    opcode, flags, payload, database = BAD_RECORDS[what]
    inner.add(ts, opcode, flags, payload, None, database)
    if what == "an unknown control record":
        inner._append(bytes((UNKNOWN_CONTROL, 0, 3, 7)))
    writer._last_ts = ts
    writer.write()
    if is_vouched_for:
        writer.sync()
        writer.vouch()
    writer.abandon()
    journal.hlc.close(clean=False)
    disk.crash("keep_all")


def write_some_bad(disk: SimulatedDisk, specimen: Specimen, rng: Random) -> None:
    shard, what = rng.randrange(specimen.settings.shard_count), rng.choice(list(BAD_RECORDS))
    write_bad(disk, specimen, what, shard=shard, is_vouched_for=rng.random() < 0.5)


def lose_the_beginning(disk: SimulatedDisk, specimen: Specimen, rng: Random) -> None:
    """The first segment of a shard, or all snapshots."""
    if rng.random() < 0.5 and disk.list(f"{FOLDER}/snapshots"):
        for name in disk.list(f"{FOLDER}/snapshots"):
            disk.rename(f"{FOLDER}/snapshots/{name}", f"{FOLDER}/moved-{name}")
        return
    shard = rng.randrange(specimen.settings.shard_count)
    names = [name for name in disk.list(f"{FOLDER}/shard-{shard}") if name.startswith("journal-")]
    disk.remove(f"{FOLDER}/shard-{shard}/{names[0]}")


DAMAGES: Final[tuple[Damage, ...]] = (
    flip,
    flip,
    cut,
    cut,
    zero,
    remove,
    swap,
    lengthen,
    edit_some_meta,
    write_some_bad,
    write_some_bad,
    lose_the_beginning,
)


def check_refusals(specimen: Specimen) -> None:
    """What is wrong although every checksum is right is refused, vouched for or not, and named with its place."""
    for what in BAD_RECORDS:
        for is_vouched_for in (False, True):
            disk = specimen.disk.clone(0)
            last = ShardId(specimen.settings.shard_count - 1)
            write_bad(disk, specimen, what, shard=last, is_vouched_for=is_vouched_for)
            _check_refused(disk, specimen, what, path=f"{FOLDER}/shard-{last}/journal-", is_placed=True)
    for what in edited_metas(json.loads(specimen.disk.read_file(f"{FOLDER}/meta.json"))):
        disk = specimen.disk.clone(0)
        edit_meta(disk, f"{FOLDER}/meta.json", what)
        _check_refused(disk, specimen, what, path=f"{FOLDER}/meta.json", is_placed=False)


def _check_refused(disk: SimulatedDisk, specimen: Specimen, what: str, *, path: str, is_placed: bool) -> None:
    report, fault = audit(disk), start(disk, specimen)
    refusal = report if isinstance(report, TidelogError) else report.refusal
    assert fault is not None, f"{what}: it starts"
    assert refusal is not None, f"{what}: verify does not refuse it"
    assert str(refusal) == str(fault), f"{what}: verify says {refusal}, a start {fault}"
    assert path in str(fault), f"{what}: {fault}"
    if is_placed:
        assert isinstance(fault, Corruption), f"{what}: {fault}"
        assert fault.position, f"{what}: it is at {fault.position} of frame {fault.frame}"
        size = len(disk.read_file(fault.path))
        assert size - 400 < fault.position < size, f"{what}: it is at {fault.position} of {size}"


def damage_and_compare(specimen: Specimen, seed: int) -> str:
    """One random damage, sometimes two."""
    rng = Random(seed)
    disk = specimen.disk.clone(seed)
    disk.kill()
    chosen = rng.choice(DAMAGES)
    chosen(disk, specimen, rng)
    names = [chosen.__name__]
    if rng.random() < 0.15:
        lengthen_any(disk, rng)
        names.append("lengthen")
    try:
        return compare(disk, specimen)
    except Exception as error:
        raise AssertionError(f"seed {seed}, {' and '.join(names)}: {type(error).__name__}: {error}") from error
