"""The hybrid clock: where every `ts` comes from.

A `ts` is `max(last + 1, wall clock in µs)`: close to the time of day, unique, and increasing even when the wall
clock steps back. It must also never be given out twice across restarts, whatever the wall clock did in between and
whatever the journal lost in a crash. So an upper bound lies in a file of its own:

    bound    no ts above it has been given out; durable before the first one beyond it is
    restart  the clock begins above the bound that it finds
    stop     a clean stop stores the last ts itself, and says that it was clean

The bound is renewed while there is still room below it (`begin_renewal`, the fsync on any thread, `finish_renewal`),
so that `next` itself waits for the disk only if that was late.

All methods are for one thread, except `TsFile.sync`, which any thread may call.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final, NamedTuple, NoReturn

from tidelog import limits
from tidelog.errors import ClockAhead, Corruption, JournalFailed
from tidelog.ids import U64_MAX, Ts
from tidelog.ports import Clock, Disk, File

# | magic "TLTS" 4 | clean 1 | zero 3 | serial 8 | ts 8 | crc32 4 |
_SLOT: Final = struct.Struct("<4sB3xQQ")
_CRC: Final = struct.Struct("<I")
_SLOT_BYTES: Final = _SLOT.size + _CRC.size
_SLOT_POSITIONS: Final = (0, 512)
_FILE_BYTES: Final = _SLOT_POSITIONS[1] + _SLOT_BYTES
_MAGIC: Final = b"TLTS"


class StoredTs(NamedTuple):
    """What a `TsFile` holds."""

    ts: Ts
    clean: bool
    """Stored by an orderly stop, not while running."""


class TsFile:
    """One ts that survives any crash: two slots in sectors of their own, of which the newer valid one counts.

    `write` only ever touches the slot that is not the durable one, so a torn write leaves the old value.
    """

    def __init__(self, file: File, stored: StoredTs | None, serial: int, durable_slot: int) -> None:
        self._file = file
        self.stored = stored
        """The newest value that is durable."""
        self._serial = serial
        self._durable_slot = durable_slot
        self._written: StoredTs | None = None

    @classmethod
    def open(cls, disk: Disk, folder: str, name: str) -> TsFile:
        """Open the file, or make it; a file whose first write did not finish counts as new."""
        path = f"{folder}/{name}"
        if not disk.exists(path):
            disk.open(path, "create").close()
        file = disk.open(path, "write")
        try:
            if file.size() < _FILE_BYTES:  # so that no later write needs space that may not be there
                file.write(file.size(), [bytes(_FILE_BYTES - file.size())])
            stored, serial, slot = _read_slots(file)
            found = cls(file, stored, serial, slot)
            if stored is not None:
                found._write_again()
            disk.sync_folder(folder)
        except BaseException:
            file.close()
            raise
        return found

    def _write_again(self) -> None:
        """What was found may be there only because the machine lived on when the process before us died, or was given
        up by the kernel after a failed fsync: write it in its own place, and sync it.
        """
        position = _SLOT_POSITIONS[self._durable_slot]
        self._put(position, self._file.read(position, _SLOT_BYTES))
        self._file.sync()

    def write(self, ts: Ts, *, clean: bool = False) -> None:
        """Write a new value; it counts after `sync` and `confirm`."""
        self._serial += 1
        body = _SLOT.pack(_MAGIC, clean, self._serial, ts)
        slot = body + _CRC.pack(zlib.crc32(body))
        self._put(_SLOT_POSITIONS[1 - self._durable_slot], slot)
        self._written = StoredTs(ts, clean)

    def _put(self, position: int, data: bytes) -> None:
        written = self._file.write(position, [data])
        while written < len(data):
            written += self._file.write(position + written, [data[written:]])

    def sync(self) -> None:
        """Make what was written durable; from any thread."""
        self._file.sync()

    def confirm(self) -> None:
        """What was written has been synced since."""
        assert self._written is not None
        self.stored = self._written
        self._written = None
        self._durable_slot = 1 - self._durable_slot

    def store(self, ts: Ts, *, clean: bool = False) -> None:
        """Write, sync and confirm."""
        self.write(ts, clean=clean)
        self.sync()
        self.confirm()

    def close(self) -> None:
        self._file.close()


def read_stored_ts(disk: Disk, folder: str, name: str) -> StoredTs | None:
    """What a `TsFile` holds, without opening it for writing."""
    file = disk.open(f"{folder}/{name}", "read")
    try:
        return _read_slots(file)[0]
    finally:
        file.close()


def mark_unclean(disk: Disk, folder: str, name: str) -> None:
    """Let the stop before no longer count as a clean one; durable when it returns."""
    file = TsFile.open(disk, folder, name)
    try:
        if file.stored is not None and file.stored.clean:
            file.store(file.stored.ts)
    finally:
        file.close()


def _read_slots(file: File) -> tuple[StoredTs | None, int, int]:
    """The stored value, its serial number and its slot."""
    slots = [_decode_slot(file.read(position, _SLOT_BYTES)) for position in _SLOT_POSITIONS]
    valid = [(slot[0], index, slot[1]) for index, slot in enumerate(slots) if slot is not None]
    if valid:
        serial, index, stored = max(valid)
        return stored, serial, index
    # The first write goes to slot 0 alone: only bytes in slot 1 prove that there once was a value.
    if file.read(_SLOT_POSITIONS[1], _SLOT_BYTES).strip(b"\0"):
        raise Corruption("both copies of the stored ts are damaged; restore the file from a backup", path=file.path)
    return None, 0, 1


def _decode_slot(data: bytes) -> tuple[int, StoredTs] | None:
    if len(data) < _SLOT_BYTES:
        return None
    magic, clean, serial, ts = _SLOT.unpack_from(data)
    (crc,) = _CRC.unpack_from(data, _SLOT.size)
    if magic != _MAGIC or crc != zlib.crc32(data[: _SLOT.size]):
        return None
    return serial, StoredTs(Ts(ts), bool(clean))


class HybridClock:
    """Gives out every `ts` of a process. See the module for what it promises."""

    def __init__(self, clock: Clock, bound_file: TsFile) -> None:
        self._clock = clock
        self._file = bound_file
        stored = bound_file.stored
        self.was_clean = stored is not None and stored.clean
        """The process before us stopped in order (false for a new file)."""
        self.last: Ts = stored.ts if stored is not None else Ts(0)
        """The newest ts given out or seen; after an unclean stop the bound that was found."""
        self.bound = self.last
        """No ts above it is given out before a higher one is durable."""
        self._renewing: Ts | None = None
        self._failure: JournalFailed | None = None
        """The bound could not be stored: no ts beyond it is ever given out again."""

    def forget_clean_stop(self) -> None:
        """Make durable that the stop before us no longer counts as a clean one, whatever becomes of us."""
        if self.was_clean:
            self._store(self.bound)

    def follow(self, ts: Ts) -> None:
        """Go on above a ts of the process that is followed. Nothing is given out here, so no bound is stored for it:
        the next renewal does that."""
        self.last = max(self.last, ts)

    def next(self) -> Ts:
        """A ts that is larger than every one before it, here or seen from elsewhere. Hot."""
        wall = self._clock.wall_us()
        ts = wall if wall > self.last else self.last + 1
        if ts > self.bound:
            self._extend(Ts(ts))
        self.last = Ts(ts)
        return self.last

    def catch_up(self) -> None:
        """Let `following` begin at the wall clock: once for all that arrived together."""
        wall = self._clock.wall_us()
        if wall > self.last + 1:
            self.last = Ts(wall - 1)

    def following(self) -> Ts:
        """As `next`, without a look at the wall clock. Hot."""
        ts = self.last + 1
        if ts > self.bound:
            self._extend(Ts(ts))
        self.last = Ts(ts)
        return self.last

    def observe(self, remote: Ts) -> None:
        """Jump past a ts that came from another process, unless it lies too far ahead to be believed."""
        ahead_us = remote - self._clock.wall_us()
        if remote > self.last and ahead_us > limits.CLOCK_REMOTE_AHEAD_MAX_US:
            raise ClockAhead(
                f"remote ts {remote} is {ahead_us / 1e6:.1f} s ahead of the clock here, more than the "
                f"{limits.CLOCK_REMOTE_AHEAD_MAX_US / 1e6:.0f} s that are tolerated: set the clocks of both machines"
            )
        self.restore(remote)

    def restore(self, own: Ts) -> None:
        """Jump past a ts of our own history, however far ahead it lies."""
        if own > U64_MAX - limits.CLOCK_BOUND_AHEAD_LAST_US:
            raise ClockAhead(f"ts {own} leaves no room for another")
        if own > self.last:
            self.last = own

    def _bound_after(self, ts: int) -> Ts:
        return Ts(
            max(
                self._clock.wall_us() + limits.CLOCK_BOUND_AHEAD_WALL_US,
                ts + limits.CLOCK_BOUND_AHEAD_LAST_US,
            )
        )

    def _extend(self, ts: Ts) -> None:
        bound = self._bound_after(ts)
        self._renewing = None  # one that is under way no longer counts: this takes its slot
        self._check()
        self._store(bound)
        self.bound = bound

    def _store(self, bound: Ts) -> None:
        try:
            self._file.store(bound)
        except OSError as error:
            self._fail(error)

    @property
    def has_failed(self) -> bool:
        return self._failure is not None

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure.with_traceback(None)

    def _fail(self, error: OSError) -> NoReturn:
        self._failure = JournalFailed(f"the bound of the clock could not be stored ({error}): restart the server")
        raise self._failure from error

    def begin_renewal(self) -> bool:
        """Write a higher bound if little room is left; true if it now waits for `sync`."""
        now = max(self.last, Ts(self._clock.wall_us()))
        if self._renewing is not None or self.bound - now > limits.CLOCK_BOUND_RENEW_US:
            return False
        self._check()
        bound = self._bound_after(now)
        try:
            self._file.write(bound)
        except OSError as error:
            self._fail(error)
        self._renewing = bound
        return True

    def sync(self) -> None:
        """The fsync of a renewal; from any thread."""
        self._file.sync()

    def finish_renewal(self) -> None:
        """The fsync of the renewal is done."""
        if self._renewing is not None:
            self._file.confirm()
            self.bound = self._renewing
            self._renewing = None

    def close(self, *, clean: bool) -> None:
        """Stop. A clean stop stores the last ts itself, so that the next start may begin right after it."""
        try:
            if clean:
                self._file.store(self.last, clean=True)
        except OSError as error:
            raise JournalFailed(f"the last ts could not be stored: {error}") from error
        finally:
            self._file.close()
