"""The plan of what goes wrong on a simulated disk, and when.

Operations that change something are numbered from 1. A crash strikes at one number, whatever operation has it:
before it took effect, after it, or half-way. A fault strikes at the n-th following operation of its kind, reads
included, and changes nothing. A limit of space and a chance of short writes apply to every write.

An operation that nothing is planned for costs one comparison: its number is below `attention_at`.
"""

from __future__ import annotations

import errno as errnos
from collections.abc import Callable
from random import Random
from typing import Final, Literal, NoReturn

Operation = Literal[
    "open",  # of a file that exists
    "create",
    "link",
    "read",
    "write",
    "truncate",
    "sync",
    "make_folder",
    "rename",
    "remove",
    "sync_folder",
    "lock",
]

CrashMoment = Literal["before", "halfway", "after"]
CRASH_MOMENTS: Final[tuple[CrashMoment, ...]] = ("before", "halfway", "after")

_NEVER: Final = 2**63


class SimulatedCrash(BaseException):
    """The process stops here. Not an `Exception`: no handler of the code under test may survive its own death."""


class DeadHandle(OSError):
    """A file was used that a process had open which is dead: a mistake of the test, or a handle that leaked."""

    def __init__(self, path: str) -> None:
        super().__init__(errnos.ESTALE, "opened by a process that is dead", path)


def os_error(number: int, path: str) -> OSError:
    """The subclass of `OSError` that the operating system's own call would raise."""
    return OSError(number, f"simulated {errnos.errorcode.get(number, 'error')}", path)


class Fault:
    """One planned error."""

    __slots__ = ("_countdown", "_errno", "_operation", "_path_contains", "_times")

    def __init__(self, operation: Operation, errno: int, after: int, path_contains: str, times: int | None) -> None:
        if after < 1 or (times is not None and times < 1):
            raise ValueError(f"a fault strikes at the 1st matching operation or later: after={after}, times={times}")
        self._operation = operation
        self._errno = errno
        self._path_contains = path_contains
        self._countdown = after
        """Matching operations until it strikes; 1 is the next."""
        self._times = times
        """How many matching operations in a row it then strikes; None: all."""

    def strike(self, operation: Operation, path: str) -> None:
        """Raise if it is this operation's turn; called once for every operation."""
        if operation != self._operation or self._path_contains not in path:
            return
        if self._countdown > 1:
            self._countdown -= 1
        elif self._times is None:
            raise os_error(self._errno, path)
        elif self._times > 0:
            self._times -= 1
            raise os_error(self._errno, path)

    def copy(self) -> Fault:
        twin = Fault(self._operation, self._errno, self._countdown, self._path_contains, None)
        twin._times = self._times
        return twin


class FaultPlan:
    """Counts the operations of one disk and decides what becomes of each."""

    __slots__ = (
        "attention_at",
        "capacity_bytes",
        "crash_at",
        "faults",
        "is_halted",
        "operations",
        "rng",
        "short_writes",
        "used_bytes",
    )

    def __init__(self, rng: Random, used_bytes: Callable[[], int]) -> None:
        self.rng = rng
        self.used_bytes = used_bytes
        self.operations = 0
        """Operations so far that change something, also those that failed: the number of the last one."""
        self.attention_at = _NEVER
        """Number of the first operation that needs more than its plain effect; 0: every one does."""
        self.crash_at = _NEVER
        self.is_halted = False
        """The process was stopped inside an operation, and the test has not yet said what happened to it."""
        self.faults: list[Fault] = []
        self.capacity_bytes: int | None = None
        """The most bytes that all files together may grow to by writing."""
        self.short_writes = 0.0
        """The chance that a write does only a part."""

    def pay_attention(self) -> None:
        """Must follow every change of the plan."""
        if self.is_halted or self.faults or self.capacity_bytes is not None or self.short_writes:
            self.attention_at = 0
        else:
            self.attention_at = self.crash_at

    def resume(self) -> None:
        """A new process begins; the crash that was planned for the old one is called off."""
        self.is_halted = False
        self.crash_at = _NEVER
        self.pay_attention()

    def copy(self, rng: Random, used_bytes: Callable[[], int]) -> FaultPlan:
        twin = FaultPlan(rng, used_bytes)
        twin.operations = self.operations
        twin.crash_at = self.crash_at
        twin.is_halted = self.is_halted
        twin.faults = [fault.copy() for fault in self.faults]
        twin.capacity_bytes = self.capacity_bytes
        twin.short_writes = self.short_writes
        twin.pay_attention()
        return twin

    # --- operations ---------------------------------------------------------------------------------------------

    def check_alive(self) -> None:
        if self.is_halted:
            raise SimulatedCrash("the process was stopped already; crash() or kill() says how and lets a new one begin")

    def look(self, operation: Operation, path: str) -> None:
        """Let an operation pass that changes nothing: it can fail, but no crash is planned at it."""
        if self.attention_at == 0:
            self.check_alive()
            for fault in self.faults:
                fault.strike(operation, path)

    def perform(
        self, operation: Operation, path: str, effect: Callable[[], None], half: Callable[[], None] | None = None
    ) -> None:
        """Do an operation that changes something. Without `half` it cannot be stopped half-way."""
        number = self.operations = self.operations + 1
        if number < self.attention_at:
            effect()
            return
        moment = self.moment_of_crash(operation, path)
        if moment is None or moment == "after":
            effect()
        elif moment == "halfway" and half is not None:
            half()
        if moment is not None:
            self.halt(operation, path, moment)

    def moment_of_crash(self, operation: Operation, path: str) -> CrashMoment | None:
        """For the operation just counted; None: no crash. Raises if the process is stopped or a fault strikes."""
        if self.is_halted:
            self.operations -= 1
            self.check_alive()
        for fault in self.faults:
            fault.strike(operation, path)
        return self.rng.choice(CRASH_MOMENTS) if self.operations >= self.crash_at else None

    def halt(self, operation: Operation, path: str, moment: CrashMoment) -> NoReturn:
        self.is_halted = True
        self.pay_attention()
        raise SimulatedCrash(f"stopped {moment} operation {self.operations}: {operation} {path}")

    def length_of_write(self, path: str, size: int, position: int, length: int, moment: CrashMoment | None) -> int:
        """How many bytes of a write are done to a file of this size, by all that is planned."""
        if self.capacity_bytes is not None:
            free = max(0, self.capacity_bytes - self.used_bytes())
            length = min(length, size + free - position)
            if length <= 0:
                raise os_error(errnos.ENOSPC, path)
        if length > 1 and self.rng.random() < self.short_writes:
            length = self.rng.randrange(1, length)
        if moment == "before":
            return 0
        return self.rng.randint(0, length) if moment == "halfway" else length
