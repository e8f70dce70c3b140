"""A disk in memory that crashes, fails and fills up as a test asks: `ports.Disk` for simulation.

The model is an adversary that keeps to the contract and to nothing more:

- What a file sync or a folder sync made durable is there after every crash. Nothing else has to be: `inode.py` says
  what may become of contents, `namespace.py` of names.
- `crash()` is a power cut: what is found afterwards is drawn by the seeded generator. `kill()` is the death of the
  process alone: all that was written stays, and is as un-synced as it was. After either, the files and locks of the
  dead process are of no use, and the disk serves the next process.
- `crash_after(n)` stops the process inside the n-th following operation that changes something. From then on every
  operation raises `SimulatedCrash`, until the test says with `crash()` or `kill()` what it was.
- The same seed and the same calls give the same disk, byte for byte.

It is built for hundreds of thousands of runs: see `faults.py` and `inode.py` for what keeps it fast.
"""

from __future__ import annotations

import errno as errnos
from random import Random
from typing import Final, Literal, get_args

from tidelog.ports import OpenMode
from tidelog.testing.faults import DeadHandle, Fault, FaultPlan, Operation, SimulatedCrash, os_error
from tidelog.testing.file import SimulatedFile, SimulatedLock, SimulatedProcess
from tidelog.testing.inode import Inode
from tidelog.testing.namespace import DirectoryNode, Folder, Namespace

__all__: Final = ["CRASH_STYLES", "CrashStyle", "DeadHandle", "Operation", "SimulatedCrash", "SimulatedDisk"]

CrashStyle = Literal["lose_all", "keep_all", "prefix", "scatter", "mixed"]
"""What a crash leaves of what was not synced.

lose_all: nothing. keep_all: everything. prefix: all operations up to one, in order over all files and folders, that
one perhaps torn. scatter: any sectors and any names. mixed: one of these for each file by itself.
"""
CRASH_STYLES: Final[tuple[CrashStyle, ...]] = get_args(CrashStyle)
_SECTOR_CHANCES: Final = (0.1, 0.5, 0.9)
"""How likely a version of a sector is kept when sectors are scattered; one is drawn for each file."""
_NAME_CHANCES: Final[dict[CrashStyle, tuple[float, ...]]] = {
    "lose_all": (0.0,),
    "keep_all": (1.0,),
    # Names that outlive their contents, and contents their names, are worth more than even mixtures.
    "scatter": (0.0, 0.5, 1.0),
    "mixed": (0.0, 0.5, 1.0),
}
"""How likely a change of names is kept; one is drawn for each crash."""

_FREE_BYTES_UNLIMITED: Final = 2**40


class SimulatedDisk:
    """`ports.Disk` in memory. The root folder is there from the start."""

    def __init__(self, seed: int = 0) -> None:
        self.rng: Final = Random(seed)
        """Draws every fate; a test may draw from it too."""
        self.bytes_read_by_path: Final[dict[str, int]] = {}
        """Bytes that `File.read` gave out, by the path that the file was opened with."""
        self._names = Namespace()
        self._plan = FaultPlan(self.rng, lambda: self.used_bytes)
        self._process = SimulatedProcess(1)

    # --- ports.Disk ---------------------------------------------------------------------------------------------

    def open(self, path: str, mode: OpenMode) -> SimulatedFile:
        if mode == "create":
            inode = Inode()
            self._create("create", path, inode)
        else:
            self._plan.look("open", path)
            inode = self._names.get_file(path)
        return SimulatedFile(
            path, inode, self._process, self._plan, self.bytes_read_by_path, is_writable=mode != "read"
        )

    def exists(self, path: str) -> bool:
        self._plan.check_alive()
        try:
            return self._names.find(path) is not None
        except NotADirectoryError:
            return False

    def make_folder(self, path: str) -> None:
        self._plan.check_alive()
        if not isinstance(self._names.find(path), Folder):
            self._create("make_folder", path, Folder())

    def rename(self, old: str, new: str) -> None:
        self._plan.check_alive()
        change = self._names.plan_rename(self._plan.operations + 1, old, new)
        if change is not None:
            self._plan.perform("rename", old, lambda: self._names.apply(change))

    def link(self, old: str, new: str) -> None:
        self._plan.check_alive()
        inode = self._names.get(old)
        if isinstance(inode, Folder):
            raise os_error(errnos.EPERM, old)
        self._create("link", new, inode)

    def remove(self, path: str) -> None:
        self._plan.check_alive()
        change = self._names.plan_remove(self._plan.operations + 1, path)
        self._plan.perform("remove", path, lambda: self._names.apply(change))

    def sync_folder(self, path: str) -> None:
        self._plan.check_alive()
        names, folder = self._names, self._names.get_folder(path)
        self._plan.perform(
            "sync_folder",
            path,
            lambda: names.sync(folder),
            lambda: names.sync(folder, is_reached=lambda: self.rng.random() < 0.5),
        )

    def lock(self, path: str) -> SimulatedLock:
        self._plan.look("lock", path)
        inode = self._names.find(path)
        if inode is None:
            inode = Inode()
            self._create("create", path, inode)
        elif isinstance(inode, Folder):
            raise os_error(errnos.EISDIR, path)
        return SimulatedLock(path, inode, self._process)

    def free_bytes(self, path: str) -> int:
        self._plan.check_alive()
        self._names.get(path)
        if self._plan.capacity_bytes is None:
            return _FREE_BYTES_UNLIMITED
        return max(0, self._plan.capacity_bytes - self.used_bytes)

    # --- planning what goes wrong -------------------------------------------------------------------------------

    def crash_after(self, n: int) -> None:
        """Stop the process inside the n-th following operation that changes something; 1 is the next."""
        if n < 1:
            raise ValueError(f"a crash strikes at the 1st following operation or later, not at {n}")
        self._plan.crash_at = self._plan.operations + n
        self._plan.pay_attention()

    def fail(
        self, operation: Operation, errno: int, *, after: int = 1, path_contains: str = "", times: int | None = 1
    ) -> None:
        """Let the `after`-th following matching operation fail (1 is the next), or `times` in a row (None: for ever).

        The operation does nothing. A sync that fails also dooms what it was for (see `inode.py`). A folder sync does
        not: the names stay pending. A rename matches by its old path.
        """
        self._plan.faults.append(Fault(operation, errno, after, path_contains, times))
        self._plan.pay_attention()

    def clear_faults(self) -> None:
        """Forget every planned `fail`; a crash does not."""
        self._plan.faults.clear()
        self._plan.pay_attention()

    @property
    def capacity_bytes(self) -> int | None:
        """The most bytes that all files together may grow to by writing; None: no limit.

        A write that does not fit does what fits, and the next one fails with ENOSPC.
        """
        return self._plan.capacity_bytes

    @capacity_bytes.setter
    def capacity_bytes(self, value: int | None) -> None:
        self._plan.capacity_bytes = value
        self._plan.pay_attention()

    @property
    def short_writes(self) -> float:
        """The chance that a write does only a first part of its bytes, at least one."""
        return self._plan.short_writes

    @short_writes.setter
    def short_writes(self, probability: float) -> None:
        self._plan.short_writes = probability
        self._plan.pay_attention()

    # --- death --------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """The process dies and the machine lives on: nothing is lost, nothing becomes durable."""
        self._process.die()
        self._process = SimulatedProcess(self._process.number + 1)
        self._plan.resume()

    def crash(self, style: CrashStyle | None = None) -> CrashStyle:
        """The power is cut and the machine starts again. Returns what kind of crash it was, drawn if not given."""
        self.kill()
        rng = self.rng
        drawn = rng.choice(CRASH_STYLES) if style is None else style
        limit = self._any_pending_number() if drawn == "prefix" else 0
        if drawn == "prefix":
            self._names.crash(lambda number: number < limit)
        else:
            chance = rng.choice(_NAME_CHANCES[drawn])
            self._names.crash(lambda _: rng.random() < chance)
        for inode in self._names.files():
            if inode.changes:
                self._crash_inode(inode, drawn, limit)
        return drawn

    def _crash_inode(self, inode: Inode, style: CrashStyle, limit: int) -> None:
        rng = self.rng
        if style == "mixed":
            style = rng.choice(CRASH_STYLES[:-1])
            limit = rng.choice(inode.changes)[0]
        if style == "lose_all":
            inode.lose_all()
        elif style == "keep_all":
            inode.settle()
        elif style == "prefix":
            inode.keep_before(limit, rng)
        else:
            inode.scatter(rng, rng.choice(_SECTOR_CHANCES))

    def _any_pending_number(self) -> int:
        """The number of an operation that a crash may be the end of."""
        oldest = min(
            (inode.changes[0][0] for inode in self._names.files() if inode.changes),
            default=self._plan.operations + 1,
        )
        if self._names.pending:
            oldest = min(oldest, self._names.pending[0].number)
        return self.rng.randint(oldest, self._plan.operations + 1)

    # --- what a test sees and does without a process ------------------------------------------------------------

    @property
    def operations(self) -> int:
        """Operations so far that change something, also those that failed or were stopped; reads are not among them.

        So a test can run once without a crash, and then crash at each.
        """
        return self._plan.operations

    @property
    def process(self) -> int:
        """Number of the process that uses the disk; the next one follows a crash or kill."""
        return self._process.number

    @property
    def open_paths(self) -> list[str]:
        """The paths of the files that the process has open; a test may look for leaks."""
        return sorted(file.path for file in self._process.files)

    @property
    def bytes_read(self) -> int:
        return sum(self.bytes_read_by_path.values())

    @property
    def used_bytes(self) -> int:
        """The sizes of all files that have a name."""
        return sum(len(inode.data) for inode in self._names.files())

    def read_file(self, path: str) -> bytes:
        """The contents that a process would read; not counted, and never fails by plan."""
        return bytes(self._names.get_file(path).data)

    def write_file(self, path: str, data: bytes) -> None:
        """Make a file with these contents, or replace them; durable at once, with the folders above it."""
        if self._names.find(path) is None:
            self._names.apply(self._names.plan_create(self._plan.operations, path, Inode()))
        self._names.get_file(path).replace(data)
        self._names.settle_path(path)

    def flip_bit(self, path: str, bit_index: int) -> None:
        """Let one bit rot, durably: bit `bit_index % 8` (0 is the lowest) of byte `bit_index // 8`."""
        self._names.get_file(path).flip_bit(bit_index)

    def clone(self, seed: int | None = None) -> SimulatedDisk:
        """The same machine at this moment, to try another fate on; nothing that happens to one shows in the other.

        Without a seed it would meet the same fate. Files and locks stay with the original: for the clone, their
        process is dead. A crash that stopped the process, faults and limits are copied.
        """
        twin = SimulatedDisk(0 if seed is None else seed)
        if seed is None:
            twin.rng.setstate(self.rng.getstate())
        twin.bytes_read_by_path.update(self.bytes_read_by_path)
        twin._names = self._names.clone()
        twin._plan = self._plan.copy(twin.rng, lambda: twin.used_bytes)
        twin._process = SimulatedProcess(self._process.number + 1)
        return twin

    def _create(self, operation: Operation, path: str, node: DirectoryNode) -> None:
        self._plan.check_alive()
        change = self._names.plan_create(self._plan.operations + 1, path, node)
        self._plan.perform(operation, path, lambda: self._names.apply(change))

    def list(self, folder: str) -> list[str]:
        self._plan.check_alive()
        return sorted(self._names.get_folder(folder).entries)
