"""What clients of several servers were told, to be compared with what the servers and feeds have in the end.

Every write has a key of its own, so what became of it can be told afterwards:

    refused      it must not be there
    unanswered   it may be there or not
    answered     it is there, or it is found set aside
    confirmed    all followers had it, or the one that was promoted: it is there
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from benchmarks.sentinels import SERVICE, Sentinels
from tests.integration.waiting import wait_until
from tidelog.client import Checkpoint, Client, FeedDiverged, ServerUnreachable, Value

PREFIX: Final = b"w:"
BATCH: Final = 5
PAUSE_S: Final = 0.02
CONFIRM_MS: Final = 300
SOCKET_S: Final = 2.0
FOLLOWERS: Final = 2


class Fate(IntEnum):
    """What a client knows of a write. See the module."""

    REFUSED = 0
    UNANSWERED = 1
    ANSWERED = 2
    CONFIRMED = 3


def judge(fates: Mapping[bytes, Fate], found: set[bytes], set_aside: Callable[[], set[bytes]]) -> set[bytes]:
    """Hold the servers to what they have said; returns the writes that were answered and are lost."""
    lost = {key for key, fate in fates.items() if fate >= Fate.ANSWERED and key not in found}
    confirmed = {key for key in lost if fates[key] is Fate.CONFIRMED}
    assert not confirmed, f"lost although they were confirmed: {sorted(confirmed)}"
    refused = {key for key in found if fates[key] is Fate.REFUSED}
    assert not refused, f"there although they were refused: {sorted(refused)}"
    missing = lost - set_aside() if lost else set()
    assert not missing, f"lost, and not set aside: {sorted(missing)}"
    return lost


class Writer:
    """Writes to whoever leads, as redis-py's Sentinel client finds it, on a thread of its own."""

    def __init__(self, sentinels: Sentinels, name: str, *, confirms: bool = True) -> None:
        """`confirms`: it has its followers confirm each batch; otherwise it writes as fast as it is answered."""
        self._client = sentinels.client().master_for(  # type: ignore[no-untyped-call]
            SERVICE, socket_timeout=SOCKET_S, retry=Retry(NoBackoff(), 0), redis_class=redis.Redis
        )
        self._name = name
        self._confirms = confirms
        self._number = 0
        self._lock = threading.Lock()
        """Held during a batch: who has it can change what is to be done, or look at what was."""
        self._is_over = False
        self.enough = FOLLOWERS
        """How many confirmations tell that the one who will lead has it."""
        self.fates: dict[bytes, Fate] = {}
        self.errors: dict[str, int] = {}
        """How often a batch had no answers, by the reason."""
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._thread.join(60)
        self.close()
        assert not self._thread.is_alive(), "a writer hangs"

    def close(self) -> None:
        self._client.close()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing is under way."""
        with self._lock:
            yield

    def _run(self) -> None:
        while not self._is_over:
            with self._lock:
                self._write_batch(self._client, self.enough)
            time.sleep(PAUSE_S)

    def write_to(self, client: redis.Redis, enough: int) -> int:
        """Write a batch to one server; returns how many followers have confirmed it."""
        with self._lock:
            return self._write_batch(client, enough)

    def _write_batch(self, client: redis.Redis, enough: int) -> int:
        keys = [b"%b%b:%d" % (PREFIX, self._name.encode(), self._number + each) for each in range(BATCH)]
        self._number += BATCH
        self.fates.update(dict.fromkeys(keys, Fate.UNANSWERED))
        try:
            with client.pipeline(transaction=False) as batch:
                for key in keys:
                    batch.set(key, key)
                if self._confirms:
                    batch.wait(FOLLOWERS, CONFIRM_MS)
                replies = batch.execute(raise_on_error=False)
        except (redis.RedisError, OSError) as error:
            name = f"{type(error).__name__}: {error}"
            self.errors[name] = self.errors.get(name, 0) + 1
            return 0
        confirmed = replies.pop() if self._confirms else 0
        count = confirmed if isinstance(confirmed, int) else 0
        for key, reply in zip(keys, replies, strict=True):
            if isinstance(reply, Exception):
                self.fates[key] = Fate.REFUSED
            else:
                self.fates[key] = Fate.CONFIRMED if count >= enough else Fate.ANSWERED
        return count

    def has_confirmed(self, more_than: int) -> bool:
        with self._lock:
            return self.confirmed_count > more_than

    @property
    def confirmed_count(self) -> int:
        return sum(fate is Fate.CONFIRMED for fate in self.fates.values())


class FeedReader:
    """Follows every write over all failovers, on a thread of its own, and holds the feed to its promises."""

    def __init__(self, url: str, *, from_followers: bool) -> None:
        self._url = url
        self._from_followers = from_followers
        self.events: dict[bytes, int] = {}
        """The ts of each key, in the order of the feed."""
        self._last_ts = 0
        self._last_places: dict[bytes, tuple[int, int]] = {}
        """Of the last event of each writer: its ts, and the number of the write."""
        self.checkpoint_ts = 0
        self.divergences = 0
        self.losses: list[str] = []
        """Why connections were lost."""
        self.problem: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop
        self._reading: asyncio.Task[None]
        self._has_begun = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> FeedReader:
        self._thread.start()
        assert self._has_begun.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._reading.cancel)
        self._thread.join(60)
        assert not self._thread.is_alive(), "a feed hangs"

    def _run(self) -> None:
        try:
            asyncio.run(self._begin())
        except asyncio.CancelledError:
            pass
        except BaseException as problem:
            self.problem = problem

    async def _begin(self) -> None:
        reading = asyncio.current_task()
        assert reading is not None
        self._loop, self._reading = asyncio.get_running_loop(), reading
        self._has_begun.set()
        since = 0
        async with Client(self._url) as client:
            while True:
                feed = client.feed(
                    prefix=PREFIX,
                    since=since,
                    checkpoint_ms=200,
                    from_followers=self._from_followers,
                    on_lost=lambda lost: self.losses.append(lost.reason),
                )
                try:
                    async for event in feed:
                        self.take(event)
                except ServerUnreachable:
                    # Only the first connection of a feed is not tried again, and nothing was delivered yet.
                    await asyncio.sleep(PAUSE_S)
                except FeedDiverged as error:
                    # Some of what was delivered is no longer history. A reader that is told so goes back.
                    since = error.since
                    self._go_back(since)

    def _go_back(self, since: int) -> None:
        self.divergences += 1
        self.events = {key: ts for key, ts in self.events.items() if ts <= since}
        self._last_places = {}
        self._last_ts = self.checkpoint_ts = since

    def take(self, event: Any) -> None:
        if isinstance(event, Value):
            # A run of pipelined SETs is one transaction: its keys come in the order in which they were written.
            _, name, number = event.key.split(b":")
            place = event.ts, int(number)
            assert event.ts >= self._last_ts, f"{event} came after ts {self._last_ts}"
            assert place > self._last_places.get(name, (0, 0)), f"{event} came after {self._last_places[name]}"
            assert event.ts > self.checkpoint_ts, f"{event} came after a checkpoint of {self.checkpoint_ts}"
            assert event.value == event.key, f"{event} was never written"
            assert event.key not in self.events, f"{event} came twice"
            self.events[event.key] = event.ts
            self._last_ts, self._last_places[name] = place[0], place
        elif isinstance(event, Checkpoint):
            self.checkpoint_ts = max(self.checkpoint_ts, event.ts)

    def check(self, expected: set[bytes], ts: int) -> None:
        """Everything up to a ts was delivered, in order."""

        def has_come() -> bool:
            if self.problem is not None:
                raise self.problem
            return self.checkpoint_ts >= ts

        try:
            wait_until(has_come, 60)
        except AssertionError as error:
            error.add_note(f"at {self.checkpoint_ts} instead of {ts}; lost: {self.losses[-5:]}")
            raise
        found = set(self.events)
        assert found == expected, f"not in the feed: {sorted(expected - found)}; lost: {sorted(found - expected)}"
