"""An engine for tests: every part of it made by hand, on a store of a simulated machine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import NoReturn

from tidelog.commands.families import command_table
from tidelog.engine.engine import Engine
from tidelog.engine.feeding import Feeding
from tidelog.engine.gate import Gate
from tidelog.engine.metrics import Metrics, SnapshotFacts
from tidelog.engine.parameters import Parameters
from tidelog.engine.password import Password
from tidelog.engine.sessions import Sessions
from tidelog.engine.slow_log import SlowLog
from tidelog.engine.subscriptions import Subscriptions
from tidelog.errors import ApplyFailed
from tidelog.feeds.feeds import Feeds
from tidelog.ports import Clock, Loop, Timer, Worker
from tidelog.server.connections import Connections
from tidelog.server.hot import hot_commands
from tidelog.store.store import Store


class NoProcess:
    """A process that is never stopped: a failure is the test's."""

    def shut_down(self) -> None: ...

    def fail(self, error: ApplyFailed) -> NoReturn:
        raise error

    def sleep(self, seconds: float) -> None: ...

    def facts(self, section: str) -> None: ...


class NoSnapshots:
    """For a server whose snapshots nobody asks for."""

    last_s = 0
    facts = SnapshotFacts()

    def begin(self) -> None: ...

    def save(self) -> None: ...

    def save_last(self) -> None: ...


class NoLoop:
    """Calls that nobody makes. Tests that put something off bring a loop."""

    def call_soon(self, _call: Callable[[], None], /) -> Timer:
        raise AssertionError("there is no loop in this test")

    def call_later(self, _seconds: float, _call: Callable[[], None], /) -> Timer:
        raise AssertionError("there is no loop in this test")


def make_engine(
    store: Store,
    clock: Clock,
    loop: Loop,
    password: bytes | None = None,
    worker: Worker | None = None,
    fetch_workers: Sequence[Worker] = (),
) -> Engine:
    sessions = Sessions()
    engine = Engine(
        store=store,
        table=command_table(),
        clock=clock,
        loop=loop,
        stopwatch_s=perf_counter,
        process=NoProcess(),
        password=Password(password, clock),
        sessions=sessions,
        subscriptions=Subscriptions(),
        slow_log=SlowLog(),
        parameters=Parameters(),
        metrics=Metrics(),
        gate=Gate(store, sessions, clock, running_loop_or(loop)),
        snapshots=NoSnapshots(),
        feeding=Feeding(loop, Feeds(store, clock), clock, lambda: 0),
        hot_commands=hot_commands,
        worker=worker,
        fetch_workers=fetch_workers,
    )
    engine.slow_s = float("inf")  # the stopwatch is real, and the machine may be busy
    return engine


def running_loop_or(loop: Loop) -> Loop:
    """Pauses go by the real loop where there is one: only blocked clients are tried with a loop of the test's own."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return loop


def make_connections(engine: Engine) -> Connections:
    return Connections(engine.sessions, engine.clock, engine.metrics, engine.password)
