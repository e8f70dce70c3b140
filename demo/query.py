"""A question to Spark over hot and compressed days together, and the same answer from the ledger.

How many events, failures and ended jobs, and how long 95 % of the jobs ran at most: for each job set on each day, for
each day, for each job set, and in all. A job's start and end are different events, often on different days, of which
one may be compressed and the other not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date
from typing import Any, Final, NamedTuple

from demo.week import Figures, Week

SQL: Final = """\
WITH told AS (
  SELECT queue, jobset, day, ms, is_compressed, from_json(event, 'event STRING, job_id STRING') AS what FROM days
), timed AS (
  SELECT *, max(IF(what.event = 'running', ms, NULL)) OVER (PARTITION BY what.job_id) AS began_ms FROM told
), ended AS (
  SELECT *, IF(what.event IN ('succeeded', 'failed'), ms - began_ms, NULL) AS ran_ms FROM timed
)
SELECT day, queue, jobset, every(is_compressed) AS compressed, count(*) AS events,
       count_if(what.event = 'failed') AS failed, count(ran_ms) AS runs, percentile(ran_ms, 0.95) AS p95_ms
FROM ended GROUP BY GROUPING SETS ((day, queue, jobset), (day), (queue, jobset), ())
ORDER BY day, queue, jobset
"""
COLUMNS: Final = "queue string, jobset string, day date, ms bigint, event string, is_compressed boolean"
"""Those that it needs: no others are read."""

_HOT_STREAM: Final = r"'^\\{([^_]+)_([^_]+)\\}_([-0-9]+)$'"
LAKE_DAYS: Final = f"""
WITH named AS (SELECT CAST(stream AS STRING) AS name, id, fields FROM entries)
SELECT regexp_extract(name, {_HOT_STREAM}, 1) AS queue, regexp_extract(name, {_HOT_STREAM}, 2) AS jobset,
       CAST(regexp_extract(name, {_HOT_STREAM}, 3) AS DATE) AS day, CAST(split(id, '-')[0] AS BIGINT) AS ms,
       CAST(fields[CAST('event' AS BINARY)] AS STRING) AS event, false AS is_compressed
FROM named WHERE name RLIKE {_HOT_STREAM}
"""
"""The same columns from a lake: what was ever appended to hot day streams."""
LAKE_JOBS: Final = """
WITH jobs AS (
  SELECT key, max(IF(field = CAST('queue' AS BINARY), CAST(value AS STRING), NULL)) AS queue,
         max(IF(field = CAST('state' AS BINARY), CAST(value AS STRING), NULL)) AS state
  FROM current WHERE CAST(key AS STRING) LIKE 'job:%' GROUP BY key
)
SELECT queue, state, count(*) FROM jobs GROUP BY queue, state
"""
"""How many jobs are in which state, from the hashes that a lake says there are."""
LAKE_CHANGES: Final = """
SELECT count(*), count(DISTINCT shard, ts, seq)
FROM changes WHERE CAST(key AS STRING) LIKE 'job:%' AND field = CAST('state' AS BINARY)
"""

_P95_MS_EXACT: Final = 0.001

Place = tuple[date | None, str | None, str | None]
"""Day, queue and job set; None: over all of them."""


class Answer(NamedTuple):
    """What is known of a place."""

    events: int
    failed: int
    runs: int
    p95_ms: float | None
    """Of run times; None: no job has ended there."""

    def agrees(self, other: Answer) -> bool:
        """Whether both say the same. Percentiles lie between two run times, and doubles are not exact."""
        if self.p95_ms is None or other.p95_ms is None:
            return self == other
        return self[:3] == other[:3] and abs(self.p95_ms - other.p95_ms) < _P95_MS_EXACT


def answers_of(rows: Iterable[Sequence[Any]]) -> tuple[dict[Place, Answer], set[date]]:
    """Rows of the query, as JSON has them: answers, and the days of which all was read from compressed streams."""
    answers: dict[Place, Answer] = {}
    compressed: set[date] = set()
    for named, queue, jobset, is_compressed, events, failed, runs, p95_ms in rows:
        day = None if named is None else date.fromisoformat(named)
        answers[day, queue, jobset] = Answer(events, failed, runs, p95_ms)
        if day is not None and queue is None and is_compressed:
            compressed.add(day)
    return answers, compressed


def ask_ledger(week: Week) -> dict[Place, Answer]:
    """The same from what was made."""
    gathered: dict[Place, list[Figures]] = {}
    for (day, queue, jobset), figures in week.cells.items():
        for place in ((day, queue, jobset), (day, None, None), (None, queue, jobset), (None, None, None)):
            gathered.setdefault(place, []).append(figures)
    return {place: _summed(found) for place, found in gathered.items()}


def _summed(found: Iterable[Figures]) -> Answer:
    every = list(found)
    runs_ms = sorted(run for figures in every for run in figures.runs_ms)
    p95_ms = _percentile(runs_ms, 95) if runs_ms else None
    return Answer(sum(each.events for each in every), sum(each.failed for each in every), len(runs_ms), p95_ms)


def _percentile(ordered: list[int], percent: int) -> float:
    """Between two of them, as Spark's `percentile` has it."""
    whole, part = divmod((len(ordered) - 1) * percent, 100)
    upper = ordered[min(whole + 1, len(ordered) - 1)]
    return ordered[whole] + (upper - ordered[whole]) * part / 100
