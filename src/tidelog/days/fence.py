"""The fence: turns away a job that a later one has replaced.

    tidelog:pipeline:fence:days     the token of the newest job: one for all job sets (`lease.py` counts it up)
    {<queue>_<jobset>}_fence        the token of the job that rewrites a day of this job set, while it does

A job gets its token with its lease; a later holder has a higher one. A job that stalled, lost its lease and woke up
again finds a higher token than its own, and changes nothing. On a Redis Cluster a transaction can watch keys of one
slot only, so it needs both keys. Before each change of a job

    1. it watches the fence of the job set
    2. it reads both; a higher token in either turns it away
    3. it makes the change, if the fence is still as it was

A later job raises the count with its lease and only then touches the fence of a job set, before it reads anything
else of it. So if the earlier job read the old count in step 2, the fence is touched after step 1, and step 3 fails; if
not, step 2 turns it away. The fence of a job set therefore has to exist no longer than it is worked on: it is removed
afterwards, and ends by itself if its job is killed. What stays is one key for all job sets.
"""

from __future__ import annotations

from typing import Any, Final

from tidelog import limits
from tidelog.days.exchange import RedisClient, decide, text_at
from tidelog.days.jobset import JobSet
from tidelog.days.lease import count_key, token_of
from tidelog.days.message import shown
from tidelog.errors import FencedOff

DAYS_LEASE: Final = "days"
"""The one lease of all jobs that rewrite days: their tokens are compared, so they must be in one order."""


def raise_fence(server: RedisClient, jobset: JobSet, token: int) -> None:
    """From now on, whatever jobs with lower tokens have begun fails."""

    def decision(pipeline: Any) -> None:
        if check_fence(server, pipeline, jobset, token) < token:
            pipeline.multi()
            pipeline.execute_command("SET", jobset.fence, token, "PX", limits.DAYS_FENCE_MS)

    decide(server, f"raising the fence of {jobset!r}", [jobset.fence], decision)


def lower_fence(server: RedisClient, jobset: JobSet, token: int) -> None:
    """Remove the fence, if it is still ours."""

    def decision(pipeline: Any) -> None:
        if token_of(jobset.fence, text_at(pipeline, jobset.fence)) == token:
            pipeline.multi()
            pipeline.execute_command("DEL", jobset.fence)

    decide(server, f"lowering the fence of {jobset!r}", [jobset.fence], decision)


def check_fence(server: RedisClient, pipeline: Any, jobset: JobSet, token: int) -> int:
    """The token that the fence has; `FencedOff` if there is a higher one than ours. The pipeline must watch the fence.

    A fence of another type than text is none: the one that counts is that of all job sets.
    """
    found = token_of(jobset.fence, text_at(pipeline, jobset.fence))
    newest = count_key(DAYS_LEASE)
    for key, other in ((jobset.fence, found), (newest, token_of(newest, server.get(newest)))):
        if other > token:
            raise FencedOff(f"{shown(key)} is at {other}: the job with token {token} was replaced by a later one")
    return found
