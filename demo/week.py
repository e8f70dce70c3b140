"""A week of a batch cluster, made from a seed: job sets of three queues, and what happens to their jobs.

    submitted - queued - leased - pending - running - succeeded
                  ^                            |----- failed (out of memory, an error, its deadline)
                  +-------- preempted ---------+      a job whose image cannot be pulled fails while pending

Job sets differ in when their jobs come (at night, in office hours, all day), how long they run and how often they fail;
weekends are quiet. Jobs run past midnight, and some are still running when the week ends: what would come later is left
out. Every day of the week lies before today.

The week is also the ledger: whatever the server, a feed or Spark say later is compared with what was made here.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final, NamedTuple

from demo.digest import MessageDigest, Seen
from tidelog.days import EventId, JobSet, Message

DAYS: Final = 7
HOUR_S: Final = 3600
_WEEKEND_SHARE: Final = 0.4
_PREEMPTED_ONE_OF: Final = 40
_RUN_S_MAX: Final = 10 * HOUR_S


class Profile(NamedTuple):
    """What the jobs of a job set are like."""

    queue: str
    jobset: str
    share: int
    """Of all jobs."""
    peak_hour: float | None
    """When most of them come; None: at any time."""
    run_s: float
    """Half of them run for less."""
    spread: float
    """Of the logarithm of run times."""
    fails: float
    """How many of them, of 1."""
    cpu: int
    memory: str
    image: str


PROFILES: Final = (
    Profile("reports", "nightly", 24, 2.0, 140, 0.8, 0.03, 2, "4Gi", "reports/nightly:2024.18"),
    Profile("reports", "on-demand", 10, 14.0, 25, 0.7, 0.02, 1, "2Gi", "reports/on-demand:2024.18"),
    Profile("research", "training", 6, 18.0, 5400, 0.6, 0.11, 8, "64Gi", "research/train:cu12"),
    Profile("research", "sweeps", 20, 22.0, 900, 0.9, 0.08, 4, "16Gi", "research/sweep:cu12"),
    Profile("media", "thumbnails", 28, None, 8, 0.5, 0.01, 1, "512Mi", "media/thumbs:7.3"),
    Profile("media", "transcodes", 12, 20.0, 420, 0.7, 0.05, 4, "8Gi", "media/ffmpeg:6.1"),
)
QUEUES: Final = tuple(dict.fromkeys(profile.queue for profile in PROFILES))

_FAILURES: Final = (
    {"reason": "OOMKilled", "exit_code": 137, "message": "the container used more memory than its limit"},
    {"reason": "Error", "exit_code": 1, "message": "the program ended with status 1"},
    {"reason": "DeadlineExceeded", "exit_code": 143, "message": "the job ran longer than its deadline"},
)
_NO_IMAGE: Final = {"reason": "ImagePullBackOff", "exit_code": None, "message": "the image could not be pulled"}


class Cell(NamedTuple):
    """Where figures belong: a job set on a day."""

    day: date
    queue: str
    jobset: str


class Figures:
    """What happened there."""

    def __init__(self) -> None:
        self.events = 0
        self.failed = 0
        self.runs_ms: list[int] = []
        """Of the jobs that ended there and had run."""


class Week:
    """All messages, in the order in which they happened, and what is true of them."""

    def __init__(self, first_day: date) -> None:
        self.first_day = first_day
        self.days = [first_day + timedelta(days=number) for number in range(DAYS)]
        self.by_queue: dict[str, list[tuple[str, Message]]] = {queue: [] for queue in QUEUES}
        """Job set and message."""
        self.cells: dict[Cell, Figures] = defaultdict(Figures)
        self.jobs = 0
        self._digests: dict[tuple[str, str], MessageDigest] = defaultdict(MessageDigest)
        self._last: dict[tuple[str, str], EventId] = {}

    @property
    def jobsets(self) -> list[JobSet]:
        return [JobSet(queue, jobset) for queue, jobset in self._digests]

    @property
    def seen(self) -> dict[str, Seen]:
        """What whoever reads a job set from its beginning to its end has to see, by `queue/jobset`."""
        return {f"{queue}/{jobset}": digest.seen for (queue, jobset), digest in sorted(self._digests.items())}

    @property
    def events(self) -> int:
        return sum(map(len, self.by_queue.values()))

    @property
    def event_bytes(self) -> int:
        return sum(len(message.event) for messages in self.by_queue.values() for _, message in messages)

    def add(self, profile: Profile, ms: int, event: dict[str, Any], ran_ms: int | None) -> None:
        """The next event, of all job sets together."""
        name = profile.queue, profile.jobset
        last = self._last.get(name)
        made = EventId(ms, last.seq + 1 if last is not None and last.ms == ms else 0)
        self._last[name] = made
        message = Message(made, ms, json.dumps(event, separators=(",", ":")).encode())
        self.by_queue[profile.queue].append((profile.jobset, message))
        self._digests[name].add(str(made).encode(), message.event)
        figures = self.cells[Cell(message.day, *name)]
        figures.events += 1
        figures.failed += event["event"] == "failed"
        if ran_ms is not None:
            figures.runs_ms.append(ran_ms)


class _Step(NamedTuple):
    """An event of a job."""

    ms: int
    number: int
    """In the order in which they were drawn, so that no two are equal."""
    profile: Profile
    event: dict[str, Any]
    ran_ms: int | None


def make_week(first_day: date, events: int, seed: int) -> Week:
    """A week with at least so many events, and at most those of one job more."""
    draw = random.Random(seed)
    week = Week(first_day)
    begin_ms = int(datetime(first_day.year, first_day.month, first_day.day, tzinfo=UTC).timestamp() * 1000)
    end_ms = begin_ms + DAYS * 24 * HOUR_S * 1000
    steps: list[_Step] = []
    while len(steps) < events:
        week.jobs += 1
        profile = draw.choices(PROFILES, [each.share for each in PROFILES])[0]
        submitted_ms = begin_ms + int(_submitted_s(draw, week.days, profile) * 1000)
        job = _Job(draw, profile, week.jobs, submitted_ms)
        for ms, event, ran_ms in job.steps():
            if ms < end_ms:
                steps.append(_Step(ms, len(steps), profile, event, ran_ms))
    for step in sorted(steps, key=lambda each: (each.ms, each.number)):
        week.add(step.profile, step.ms, step.event, step.ran_ms)
    return week


def _submitted_s(draw: random.Random, days: list[date], profile: Profile) -> float:
    """When a job comes, in seconds of the week."""
    number = draw.choices(range(DAYS), [_WEEKEND_SHARE if day.weekday() >= 5 else 1.0 for day in days])[0]
    hour = draw.uniform(0, 24) if profile.peak_hour is None else draw.gauss(profile.peak_hour, 2.5) % 24
    return (number * 24 + hour) * HOUR_S


class _Job:
    """One job: what is random about it is drawn as it goes on."""

    def __init__(self, draw: random.Random, profile: Profile, number: int, submitted_ms: int) -> None:
        self._draw = draw
        self._profile = profile
        self._ms = submitted_ms
        self.id = f"01hx{number:08x}{draw.getrandbits(56):014x}"
        self._cluster = f"cluster-{draw.randrange(4):02d}"

    def steps(self) -> Iterator[tuple[int, dict[str, Any], int | None]]:
        """Time, event and, at the end, how long it ran."""
        draw, profile = self._draw, self._profile
        resources = {"cpu": str(profile.cpu), "memory": profile.memory}
        yield self._step(
            "submitted",
            priority=draw.choice((100, 500, 1000)),
            owner=f"{profile.queue}-{draw.randrange(6)}",
            image=f"registry.internal/{profile.image}",
            resources=resources,
        )
        fails = draw.random() < profile.fails
        has_image = not fails or draw.random() > 0.15
        while True:
            yield self._step("queued", after_s=draw.uniform(0.01, 0.4))
            yield self._step("leased", after_s=draw.expovariate(1 / 20), cluster=self._cluster)
            node = f"node-{draw.randrange(120):03d}.{self._cluster}.internal"
            where = {"cluster": self._cluster, "node": node, "pod": f"job-{self.id}-0"}
            yield self._step("pending", after_s=draw.uniform(0.2, 2.0), **where)
            if not has_image:
                yield self._step("failed", after_s=300, **where, **_NO_IMAGE)
                return
            yield self._step("running", after_s=draw.uniform(0.5, 12.0), **where)
            began_ms = self._ms
            run_s = min(profile.run_s * draw.lognormvariate(0, profile.spread), _RUN_S_MAX)
            if draw.randrange(_PREEMPTED_ONE_OF):
                break
            yield self._step("preempted", after_s=run_s * draw.random(), **where, reason="a job of higher priority")
        used = {
            "cpu_seconds": round(run_s * profile.cpu * draw.uniform(0.3, 0.95), 1),
            "max_memory_mib": draw.randrange(200, 60_000),
        }
        why = draw.choice(_FAILURES) if fails else {"exit_code": 0}
        ms, event, _ = self._step("failed" if fails else "succeeded", after_s=run_s, **where, used=used, **why)
        yield ms, event, ms - began_ms

    def _step(self, name: str, *, after_s: float = 0.0, **more: Any) -> tuple[int, dict[str, Any], None]:
        self._ms += max(1, int(after_s * 1000)) if after_s else 0
        event = {
            "event": name,
            "job_id": self.id,
            "queue": self._profile.queue,
            "job_set": self._profile.jobset,
            "created": datetime.fromtimestamp(self._ms / 1000, UTC).isoformat(timespec="milliseconds"),
            **more,
        }
        return self._ms, event, None
