"""Removes days that are old enough, hot and compressed ones alike.

A day goes in one transaction: both its streams, half-written or not, its place in the index, and a note of the highest
id that went with it. The note tells readers whether they had read everything, and keeps a message that is retried after
its day was removed from bringing the day back. Late messages go when they have lain as long as a day.

A key of a day that holds another type than a stream goes with its day: it would keep the rest of the job set for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any

from tidelog.days.exchange import RedisClient, bytes_server, decide, look, text_at
from tidelog.days.fence import check_fence
from tidelog.days.index import Index, last_ids, read_index
from tidelog.days.jobset import JobSet
from tidelog.days.message import DAY_MS
from tidelog.days.saving import forget_left_hot
from tidelog.errors import ClientError


def expire_days(
    server: RedisClient, jobset: JobSet, *, keep_days: int, today: date, token: int | None = None
) -> Sequence[date]:
    """Remove the days that are more than `keep_days` before today; returns them.

    With a token it is part of a job, and a later job may turn it away (`FencedOff`).
    """
    if keep_days < 0:
        raise ClientError(f"keep_days is {keep_days}: it cannot be negative")
    first_kept = today - timedelta(days=min(keep_days, today.toordinal() - 1))
    index = read_index(bytes_server(server), jobset)
    days = sorted({stream.day for stream in index.streams if stream.day < first_kept})
    removed = [day for day in days if _remove_day(server, jobset, day, token)]
    first_kept_ms = (first_kept - date(1970, 1, 1)).days * DAY_MS
    if first_kept_ms > 0:
        look(server, ("XTRIM", jobset.late, "MINID", first_kept_ms))  # which leaves a key of another type as it is
    return removed


def _remove_day(server: RedisClient, jobset: JobSet, day: date, token: int | None) -> bool:
    streams = [jobset.compressed(day), jobset.hot(day)]
    keys = [stream.key for stream in streams]

    def decision(pipeline: Any) -> bool:
        if token is not None:
            check_fence(server, pipeline, jobset, token)
        index = Index(jobset, pipeline.smembers(jobset.index), text_at(pipeline, jobset.expired))
        counting = index.of(day)
        if not counting:
            return False
        ids = [*last_ids(server, counting), index.expired]
        highest = max((each for each in ids if each is not None), default=None)
        pipeline.multi()
        pipeline.execute_command("SREM", jobset.index, *keys)
        # A fence that an earlier version left there is below our token, and not needed.
        pipeline.execute_command("UNLINK", *keys, *([] if token is None else [jobset.fence]))
        forget_left_hot(server, pipeline, jobset, day)
        if highest is not None and highest != index.expired:
            pipeline.execute_command("SET", jobset.expired, str(highest))
        return True

    watched = [jobset.fence, jobset.index, jobset.expired, *keys]
    return decide(server, f"removing {day} of {jobset!r}", watched, decision)
