"""A queue that all writers of a killed server share: what was pushed is there, and what was popped does not come back.

    jobs            pushed on the left, popped or taken on the right; each job is pushed once
    jobs:taken:N    jobs that writer N has taken and not finished
    jobs:owners     whose they are; TAKE and FINISH are scripts that change a list and this hash together

After a kill:

    each job is in one place, at most once
    a job whose push was answered is there, unless it was finished or popped, or somebody was just about to
    a job is gone for good once its pop or its FINISH was answered
    what one writer has pushed is in that order
    jobs in jobs:taken:* are those in jobs:owners: a script is there as a whole or not at all
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

JOBS: Final = b"jobs"
OWNERS: Final = b"jobs:owners"
PREFIX: Final = b"jobs"
TAKEN_MAX: Final = 5
"""A writer that has taken so many finishes some before it takes another."""

TAKE: Final = b"""
local job = redis.call('RPOP', KEYS[1])
if not job then return false end
redis.call('LPUSH', KEYS[2], job)
redis.call('HSET', KEYS[3], job, ARGV[1])
return job
"""
FINISH: Final = b"""
redis.call('HDEL', KEYS[2], ARGV[1])
return redis.call('LREM', KEYS[1], 0, ARGV[1])
"""

Command = tuple[bytes, ...]


@dataclass
class QueueLedger:
    """What one writer has done with the queue."""

    number: int
    pushed_count: int = 0
    sent: set[bytes] = field(default_factory=set)
    """Jobs that it was going to push."""
    pushed: set[bytes] = field(default_factory=set)
    """Jobs whose push was answered."""
    taken: list[bytes] = field(default_factory=list)
    """Jobs that it has, and that nothing was done with yet."""
    finishing: set[bytes] = field(default_factory=set)
    """Jobs that it was going to finish."""
    gone: set[bytes] = field(default_factory=set)
    """Jobs that were finished or popped, for sure."""
    pops_sent: int = 0
    """Pops without an answer."""

    @property
    def taken_key(self) -> bytes:
        return b"%b:taken:%d" % (PREFIX, self.number)

    def command(self, rng: Random) -> Command:
        """Something to do."""
        kind = rng.random()
        if kind < 0.5:
            self.pushed_count += 1
            return b"LPUSH", JOBS, b"%d:%d" % (self.number, self.pushed_count)
        if kind < 0.6:
            return b"RPOP", JOBS
        if self.taken and (kind < 0.8 or len(self.taken) >= TAKEN_MAX):
            job = self.taken.pop(rng.randrange(len(self.taken)))
            return b"EVAL", FINISH, b"2", self.taken_key, OWNERS, job
        return b"EVAL", TAKE, b"3", JOBS, self.taken_key, OWNERS, b"%d" % self.number

    def send(self, command: Command) -> None:
        """A command is about to be sent."""
        match command:
            case b"LPUSH", _, job:
                self.sent.add(job)
            case b"RPOP", _:
                self.pops_sent += 1
            case b"EVAL", script, *words if script == FINISH:
                self.finishing.add(words[-1])

    def answer(self, command: Command, reply: Any) -> str:
        """It was answered; returns what is wrong with that, if anything."""
        match command:
            case b"LPUSH", _, job:
                self.pushed.add(job)
                return "" if isinstance(reply, int) and reply > 0 else "nothing was pushed"
            case b"RPOP", _:
                self.pops_sent -= 1
                if reply is not None:
                    self.gone.add(reply)
            case b"EVAL", script, *words if script == FINISH:
                self.gone.add(words[-1])
                return "" if reply == 1 else "a job that was taken is gone"
            case _ if reply is not None:
                self.taken.append(reply)
        return ""


def check_queue(found: dict[bytes, Any], ledgers: Sequence[QueueLedger]) -> list[str]:
    """What is wrong after a kill; `found`: the values of all keys of the queue."""
    queue: list[bytes] = found.get(JOBS, [])
    taken: dict[int, list[bytes]] = {each.number: found.get(each.taken_key, []) for each in ledgers}
    everywhere = [*queue, *(job for jobs in taken.values() for job in jobs)]
    there = set(everywhere)
    gone = set[bytes]().union(*(each.gone for each in ledgers))
    finishing = set[bytes]().union(*(each.finishing for each in ledgers))
    missing = set[bytes]().union(*(each.pushed for each in ledgers)) - there - gone - finishing
    pops = sum(each.pops_sent for each in ledgers)
    owners = {job: b"%d" % number for number, jobs in taken.items() for job in jobs}
    lost = {each.number: set(each.taken) - set(taken[each.number]) for each in ledgers}
    problems = {
        "a job is there twice": len(there) != len(everywhere) and sorted(everywhere),
        "nobody has pushed": there.difference(*(each.sent for each in ledgers)),
        "what was popped or finished is back": there & gone,
        "what was pushed is lost": len(missing) > pops and sorted(missing),
        "what was taken is lost": any(lost.values()) and lost,
        "half a script is there": found.get(OWNERS, {}) != owners and (found.get(OWNERS), owners),
        "jobs have changed places": any(_is_mixed_up(queue, each.number) for each in ledgers) and queue,
    }
    return [f"{problem}: {what}" for problem, what in problems.items() if what]


def settle_queue(found: dict[bytes, Any], ledgers: Sequence[QueueLedger]) -> None:
    """Go on from what is there."""
    jobs = {job for key, value in found.items() if key != OWNERS for job in value}
    for each in ledgers:
        each.sent = {job for job in jobs if job.startswith(b"%d:" % each.number)}
        each.pushed = set(each.sent)
        each.taken = list(found.get(each.taken_key, []))
        each.finishing = set()
        each.pops_sent = 0


def _is_mixed_up(queue: Sequence[bytes], number: int) -> bool:
    own = [int(job.partition(b":")[2]) for job in queue if job.startswith(b"%d:" % number)]
    return own != sorted(own, reverse=True)
