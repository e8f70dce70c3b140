"""A consumer of the demo: takes pages of incoming messages as a member of a group, writes them into day streams, and
acknowledges them. Several of them share the work.

`python -m demo.mover URL STREAM...` prints, a line of JSON each:

    {"took": STREAM, "first": offset, "last": offset}                                     a page was delivered
    {"done": STREAM, "first", "last", "written", "duplicate", "late"}                     and is acknowledged
    {"held": STREAM, "first", "last", "written", "duplicate", "late"}                     or it is not

A line on its stdin asks it to hold the next page: to write it, not acknowledge it, and do nothing more.

Messages of a job set must be written in order. A group gives out no second page of a stream while one is
unacknowledged (MAXPENDING is a page, and producers append whole pages), so whoever takes the next one is in order,
whichever process it is. A page that its consumer left (it was killed, or the reply was lost) comes again after RETRY;
what of it was written before is known by its ids, and not written twice.
"""

from __future__ import annotations

import json
import select
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final, TypeVar

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tidelog.days import JobSet, Message, Writer, Written
from tidelog.days.message import message_of_json

GROUP: Final = "days"
PAGE: Final = 250
RETRY_MS: Final = 1500
PREFIX: Final = "incoming:"
_BLOCK_MS: Final = 20
_AWAY_S_MAX: Final = 60.0
_AGAIN_S: Final = 0.05

Result = TypeVar("Result")


class Mover:
    """A consumer of some streams."""

    def __init__(self, url: str, streams: list[str]) -> None:
        # It is we who try again, so that it can be seen what is.
        self._server: Any = redis.Redis.from_url(url, protocol=2, retry=Retry(NoBackoff(), 0))
        self._streams = streams
        self._writers: dict[tuple[str, str], Writer] = {}

    def run(self) -> None:
        """For ever."""
        while True:
            for stream in self._streams:
                page = patiently(lambda name=stream: self._take(name))  # type: ignore[misc]
                if page:
                    self._move(stream, page)

    def _take(self, stream: str) -> list[tuple[int, bytes, bytes]]:
        options = "GROUP", GROUP, "RETRY", RETRY_MS, 0, "BLOCK", _BLOCK_MS
        page: list[tuple[int, bytes, bytes]] = self._server.execute_command("TREAD", stream, 0, PAGE, *options)
        return page

    def _move(self, stream: str, page: list[tuple[int, bytes, bytes]]) -> None:
        first, last = page[0][0], page[-1][0]
        _tell(took=stream, first=first, last=last)
        by_jobset: dict[str, list[Message]] = defaultdict(list)
        for _, tag, entry in page:
            by_jobset[tag.decode()].append(message_of_json(entry.decode()))
        total = Written()
        for jobset, messages in by_jobset.items():
            writer = self._writer(stream.removeprefix(PREFIX), jobset)
            total = total.plus(patiently(lambda w=writer, m=messages: w.write(m)))  # type: ignore[misc]
        if _is_asked_to_hold():
            _tell(held=stream, first=first, last=last, **total._asdict())
            sys.stdin.read()
        patiently(lambda: self._server.execute_command("TACK", stream, GROUP, f"{first}-{last}"))
        _tell(done=stream, first=first, last=last, **total._asdict())

    def _writer(self, queue: str, jobset: str) -> Writer:
        name = queue, jobset
        if name not in self._writers:
            self._writers[name] = Writer(self._server, JobSet(*name))
        return self._writers[name]


def patiently(action: Callable[[], Result]) -> Result:
    """Do something that may be done twice; while there is no server, again."""
    deadline_s = time.monotonic() + _AWAY_S_MAX
    while True:
        try:
            return action()
        except (redis.ConnectionError, redis.TimeoutError):
            if time.monotonic() > deadline_s:
                raise
            time.sleep(_AGAIN_S)


def _is_asked_to_hold() -> bool:
    return bool(select.select([sys.stdin], [], [], 0)[0])


def _tell(**members: Any) -> None:
    print(json.dumps(members), flush=True)


if __name__ == "__main__":
    Mover(sys.argv[1], sys.argv[2:]).run()
