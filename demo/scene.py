"""What the acts of the demo share: the server, who is at work on it, and what can be asked of it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import date
from pathlib import Path
from typing import Any, Final, NamedTuple

import redis

from demo.digest import MessageDigest, Seen
from demo.mover import GROUP, PAGE, PREFIX, patiently
from demo.processes import DemoProcess, Line, ServerProcess, module_command
from demo.stage import Stage
from demo.week import QUEUES, Week
from tidelog.days import EventId, JobSet, Reader
from tidelog.days.exchange import fields
from tidelog.days.message import json_of_message
from tidelog.errors import EnvironmentFault

WAIT_S_MAX: Final = 90.0
_LOOK_S: Final = 0.02


class GroupProgress(NamedTuple):
    """How far a group has come in a stream."""

    last_offset: int
    """Of the stream."""
    delivered: int
    """Up to this offset, new ones."""
    oldest_pending: int
    """The first that is not acknowledged."""
    pending: int


class Chunk(NamedTuple):
    """A page of messages on the way into its stream."""

    stream: str
    number: int
    """From 1 on, for each stream: by it the server knows a page that comes twice."""
    words: list[bytes]
    """Tag and entry, in turn."""

    @property
    def command(self) -> list[Any]:
        return ["TWRITE", self.stream, "PRODUCER", "cluster", self.number, "ENTRIES", *self.words]

    def __len__(self) -> int:
        return len(self.words) // 2


class Scene:
    """Everything that is there while the demo runs."""

    def __init__(self, stage: Stage, folder: Path, week: Week, running: ExitStack) -> None:
        self.stage = stage
        self.folder = folder
        self.week = week
        self._running = running
        """Ends what was started, in the reverse order."""
        self.server = running.enter_context(ServerProcess(folder))
        self.client = _client(self.server.port)
        running.callback(self.client.close)
        self.coming = deque(_chunks(week))
        """Pages that are not appended yet."""
        self.appended: dict[str, int] = dict.fromkeys(map(stream_of, QUEUES), 0)
        """Entries that the server has acknowledged to the producer."""
        self.movers: list[DemoProcess] = []
        self.moving_since_s = 0.0
        for stream in self.appended:
            self.client.execute_command("TGROUP", stream, GROUP, "MAXPENDING", PAGE)
        self.watcher = self.start("feed", "demo.watcher", self.server.url)
        self.watcher.wait_until(lambda: bool(self.watcher.lines), "the first checkpoint", WAIT_S_MAX)

    def start(self, name: str, module: str, *arguments: object) -> DemoProcess:
        return self._running.enter_context(DemoProcess(name, module_command(module, *arguments), self.folder))

    def start_command(self, name: str, command: list[str]) -> DemoProcess:
        return self._running.enter_context(DemoProcess(name, command, self.folder))

    def start_mover(self, name: str) -> DemoProcess:
        self.moving_since_s = self.moving_since_s or time.monotonic()
        made = self.start(name, "demo.mover", self.server.url, *self.appended)
        self.movers.append(made)
        return made

    # --- incoming streams -----------------------------------------------------------------------------------------

    def bring_in(self, count: int) -> None:
        """Append the next pages."""
        for _ in range(min(count, len(self.coming))):
            self.append(self.coming.popleft())

    def append(self, chunk: Chunk) -> None:
        """Append a page; one that comes a second time is written once."""
        patiently(lambda: self.client.execute_command(*chunk.command))
        self.appended[chunk.stream] += len(chunk)

    def progress(self, stream: str) -> GroupProgress:
        facts = fields(patiently(lambda: self.client.execute_command("TINFO", stream)))
        groups = [fields(each) for each in facts[b"groups"]]
        [group] = [each for each in groups if each[b"name"] == GROUP.encode()]
        return GroupProgress(facts[b"last-offset"], group[b"last-offset"], group[b"ack-offset"], group[b"pending"])

    @property
    def moved(self) -> int:
        """Events that were given to consumers and acknowledged."""
        found = map(self.progress, self.appended)
        return sum(each.delivered - each.pending for each in found)

    def wait_until_moved(self, count: int) -> None:
        deadline_s = time.monotonic() + WAIT_S_MAX
        while self.moved < count:
            if all(mover.has_ended for mover in self.movers):
                raise EnvironmentFault(f"no consumer is left: {self.movers[-1].complaint()}")
            if time.monotonic() > deadline_s:
                raise EnvironmentFault(f"only {self.moved} of {count} events were moved within {WAIT_S_MAX:g} s")
            time.sleep(_LOOK_S)

    @property
    def done(self) -> list[Line]:
        """The pages that consumers have told to be done."""
        return [line for mover in self.movers for line in mover.told if "done" in line]

    def messages_done(self) -> dict[str, set[EventId]]:
        """Their messages, by `queue/jobset`: an offset of an incoming stream is a place in the ledger."""
        found: dict[str, set[EventId]] = {name: set() for name in self.week.seen}
        for line in self.done:
            queue = line["done"].removeprefix(PREFIX)
            for jobset, message in self.week.by_queue[queue][line["first"] - 1 : line["last"]]:
                found[f"{queue}/{jobset}"].add(message.id)
        return found

    # --- day streams ----------------------------------------------------------------------------------------------

    def read_ids(self, jobset: JobSet) -> set[EventId]:
        return {message.id for message in Reader(self.client, jobset).until_now()}

    def read_all(self) -> dict[str, Seen]:
        """All job sets from the first day to the last, hot and compressed, as a reader sees them."""
        found: dict[str, Seen] = {}
        for jobset in self.week.jobsets:
            digest = MessageDigest()
            for message in Reader(self.client, jobset).until_now():
                digest.add(str(message.id).encode(), message.event)
            found[f"{jobset.queue}/{jobset.jobset}"] = digest.seen
        return dict(sorted(found.items()))

    def stream_bytes(self, *, compressed: bool, days: list[date]) -> int:
        """What streams of days take in the server's memory."""
        total = 0
        for jobset in self.week.jobsets:
            for day in days:
                stream = jobset.compressed(day) if compressed else jobset.hot(day)
                if self.client.exists(stream.key):
                    total += fields(self.client.execute_command("TINFO", stream.key))[b"memory-bytes"]
        return total

    def feed_until_now(self) -> Line:
        """What the feed has told, up to a checkpoint that lies after everything until now."""
        now_ts = min(ts for _, ts, _ in self.client.execute_command("FEED", "POSITION"))
        watcher = self.watcher
        watcher.wait_until(lambda: watcher.last["ts"] >= now_ts, "a checkpoint of now", WAIT_S_MAX)
        return watcher.last


def _client(port: int) -> Any:
    return redis.Redis(port=port, protocol=2)


def stream_of(queue: str) -> str:
    """Where the messages of a queue come in."""
    return f"{PREFIX}{queue}"


def _chunks(week: Week) -> Iterator[Chunk]:
    """Pages of all queues, in the order in which their first messages happened."""
    made: list[tuple[int, Chunk]] = []
    for queue, messages in week.by_queue.items():
        for number, begin in enumerate(range(0, len(messages), PAGE), start=1):
            page = messages[begin : begin + PAGE]
            words = [word for jobset, each in page for word in (jobset.encode(), json_of_message(each).encode())]
            made.append((page[0][1].timestamp_ms, Chunk(stream_of(queue), number, words)))
    yield from (chunk for _, chunk in sorted(made, key=lambda each: each[0]))
