"""Messages for tests: ids and times on days of May 2024."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import date
from typing import Any, Final

from tidelog.days.jobset import JobSet
from tidelog.days.message import EventId, Message
from tidelog.days.reader import Reader

JOBSET: Final = JobSet("queue", "jobs")
DAY_1: Final = date(2024, 5, 1)
DAY_2: Final = date(2024, 5, 2)
DAY_3: Final = date(2024, 5, 3)
MAY_MS: Final = 1_714_521_600_000
"""The beginning of the first of May."""
DAY_MS: Final = 86_400_000


def at(day: int, number: int, event: bytes = b"") -> Message:
    """The message of a number on a day of May; later numbers have later times."""
    ms = MAY_MS + (day - 1) * DAY_MS + number
    return Message(EventId(ms, 0), ms, event or b'{"n": %d}' % number)


def on(day: int, numbers: Iterable[int]) -> list[Message]:
    return [at(day, number) for number in numbers]


def everything(server: Any, jobset: JobSet = JOBSET) -> list[Message]:
    return list(Reader(server, jobset).until_now())


def index_of(server: Any, jobset: JobSet = JOBSET) -> set[bytes]:
    return set(server.smembers(jobset.index))


@contextmanager
def sent(server: Any) -> Iterator[list[bytes]]:
    """What the client sends meanwhile, one item for each time that it then waits for a reply."""
    pool = server.connection_pool
    connection = pool.get_connection()
    kind = type(connection)
    pool.release(connection)
    original = kind.send_packed_command
    items: list[bytes] = []

    def recording(self: Any, command: Any, check_health: bool = True) -> Any:
        items.append(command if isinstance(command, bytes) else b"".join(command))
        return original(self, command, check_health)

    kind.send_packed_command = recording
    try:
        yield items
    finally:
        kind.send_packed_command = original
