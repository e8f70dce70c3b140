"""The fence of a job set: the highest token of the jobs that rewrite its days.

A job gets its token with its lease (`lease.py`); a later holder has a higher one. Before a job changes a day, it
watches the fence and reads it. A job that stalled, lost its lease and woke up again finds a higher token than its own
there, and changes nothing.
"""

from __future__ import annotations

from typing import Any

from tidelog.days.exchange import RedisClient, decide
from tidelog.days.jobset import JobSet
from tidelog.days.message import shown
from tidelog.errors import FencedOff, FormatError


def raise_fence(server: RedisClient, jobset: JobSet, token: int) -> None:
    """From now on, jobs with lower tokens are turned away."""

    def decision(pipeline: Any) -> None:
        if check_fence(pipeline, jobset, token) < token:
            pipeline.multi()
            pipeline.execute_command("SET", jobset.fence, token)

    decide(server, f"raising the fence of {jobset!r}", [jobset.fence], decision)


def check_fence(pipeline: Any, jobset: JobSet, token: int) -> int:
    """The token that the fence has; `FencedOff` if it is higher than ours. The pipeline must watch the fence."""
    text = pipeline.get(jobset.fence) or b"0"
    if not text.isdigit():
        raise FormatError(f"{text[:40]!r} is not a token", path=shown(jobset.fence))
    found = int(text)
    if found > token:
        raise FencedOff(f"{shown(jobset.fence)} is at {found}: the job with token {token} was replaced by a later one")
    return found
