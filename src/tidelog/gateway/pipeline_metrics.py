"""The numbers that jobs of the pipeline publish, for /metrics: the hashes `tidelog:pipeline:<job>` of database 0.

    tidelog_pipeline_up{job="lake"} 1                          it says that it runs, and was heard of just now
    tidelog_pipeline_lag_seconds{job="lake"} 0.4               of this moment: a job that was killed falls behind
    tidelog_pipeline_lag_records{job="lake"} 8123              as the job said
    tidelog_pipeline_rows_total{job="lake"} 1204000
    ...
    tidelog_pipeline_figure{job="compress",name="streams"} 6   all other numbers, whatever they are

The set `tidelog:pipeline:jobs` lists the jobs: looking for them among all keys would take long. Any client that may
write can put anything there, so fields that are not numbers are left out, and the number of jobs shown is bounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final, NamedTuple

from tidelog import limits
from tidelog.gateway.sample import Sample, label
from tidelog.ids import Ts
from tidelog.keys import JOB_INDEX, PIPELINE_PREFIX
from tidelog.store.keyspace import Database
from tidelog.types.hash_value import Hash
from tidelog.types.set_value import Set

_JOB_PREFIX: Final = PIPELINE_PREFIX.encode()
_JOB_INDEX: Final = JOB_INDEX.encode()

_FIGURES: Final = (
    (b"lag_records", "tidelog_pipeline_lag_records", "gauge", "Records of the journal that a job has yet to take."),
    (b"rows", "tidelog_pipeline_rows_total", "counter", "Rows that a job has taken since it began."),
    (b"batches", "tidelog_pipeline_batches_total", "counter", "Batches of a job since it began."),
    (b"batch_seconds", "tidelog_pipeline_batch_seconds", "gauge", "How long the newest batch of a job took."),
    (b"rows_per_second", "tidelog_pipeline_rows_per_second", "gauge", "Rows that a job took in the last seconds."),
)
_SHOWN: Final = {b"updated_ms", b"started_ms", b"token", b"ts", b"lag_seconds", *(field for field, *_ in _FIGURES)}
"""Figures that have a metric of their own, or would make none."""
_DIGITS_MAX: Final = 32
_NAME_BYTES_MAX: Final = 200


class _PipelineJob(NamedTuple):
    label: str
    fields: dict[bytes, bytes]

    def number(self, name: bytes) -> float | None:
        return _number(self.fields.get(name))


def pipeline_samples(
    database: Database, now_ms: int, visible_ts: int, begin_of: Callable[[Ts], Ts]
) -> Iterator[Sample]:
    """All numbers of all jobs; those of one metric follow each other. `begin_of`: as the journal has it."""
    jobs = list(_jobs(database))
    up = "tidelog_pipeline_up", "gauge", "1: a job runs, and was heard of in the last seconds."
    yield from _samples(up, ((job, float(_is_up(job, now_ms))) for job in jobs))
    updated = "tidelog_pipeline_updated_timestamp_seconds", "gauge", "When a job was last heard of (unix time)."
    yield from _samples(updated, ((job, job.number(b"updated_ms")) for job in jobs), 1000)
    started = "tidelog_pipeline_started_timestamp_seconds", "gauge", "When a job began (unix time)."
    yield from _samples(started, ((job, job.number(b"started_ms")) for job in jobs), 1000)
    lag = "tidelog_pipeline_lag_seconds", "gauge", "From what a job has taken to the newest that is visible."
    yield from _samples(lag, ((job, _lag_us(job, visible_ts, begin_of)) for job in jobs), 1_000_000)
    for field, metric, kind, text in _FIGURES:
        yield from _samples((metric, kind, text), ((job, job.number(field)) for job in jobs))
    for job in jobs:
        yield from _others(job)


def _jobs(database: Database) -> Iterator[_PipelineJob]:
    """All jobs. If names that are not UTF-8 come to the same label, only one of them is shown."""
    index = database.peek(_JOB_INDEX)
    seen = set()
    for name in islice(index.members(), limits.PIPELINE_JOBS_SHOWN_MAX) if isinstance(index, Set) else ():
        fields = database.peek(_JOB_PREFIX + name)
        text = label(name.decode(errors="backslashreplace"))
        if isinstance(fields, Hash) and len(name) <= _NAME_BYTES_MAX and text not in seen:
            seen.add(text)
            yield _PipelineJob(text, dict(fields.fields()))


def _is_up(job: _PipelineJob, now_ms: int) -> bool:
    updated_ms = job.number(b"updated_ms")
    is_running = job.fields.get(b"state") == b"running"
    return is_running and updated_ms is not None and now_ms - updated_ms <= limits.PIPELINE_SILENT_S * 1000


def _lag_us(job: _PipelineJob, visible_ts: int, begin_of: Callable[[Ts], Ts]) -> float | None:
    """The lag now; a job that does not report how far it is has none."""
    ts = job.number(b"ts")
    return None if ts is None else max(0.0, visible_ts - begin_of(Ts(int(ts))))


def _samples(
    about: tuple[str, str, str], numbers: Iterable[tuple[_PipelineJob, float | None]], unit: float = 1
) -> Iterator[Sample]:
    for job, number in numbers:
        if number is not None:
            yield Sample(*about, number / unit, f'{{job="{job.label}"}}')


def _others(job: _PipelineJob) -> Iterator[Sample]:
    about = "tidelog_pipeline_figure", "gauge", "What else a job says of itself."
    seen = set()
    for field, value in islice(job.fields.items(), limits.PIPELINE_FIELDS_SHOWN_MAX):
        number, name = _number(value), label(field.decode(errors="backslashreplace"))
        if number is not None and field not in _SHOWN and len(field) <= _NAME_BYTES_MAX and name not in seen:
            seen.add(name)
            yield Sample(*about, number, f'{{job="{job.label}",name="{name}"}}')


def _number(value: bytes | None) -> float | None:
    try:
        number = float(value) if value is not None and len(value) <= _DIGITS_MAX else math.nan
    except ValueError:
        return None
    return number if math.isfinite(number) else None
