"""The one place where everything is wired: store, engine, ports, timers, and how it stops.

start   open the data directory (recovering it), open the ports, say that it is ready
run     timers: once a second the fsync of `everysec` and a look at the clients, ten times a second memory, what has
        expired, whether a snapshot is due, and which nodes of streams are cold
stop    on SIGTERM, SIGINT or SHUTDOWN: close the ports, give up a snapshot that is under way, answer what was read,
        fsync, a clean stop of the journal
fail    a bug while applying or journaling: the process ends at once, as if it were killed. What was answered is in
        the journal, and nothing that is not comes after it
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import random
import secrets
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

import pyarrow

from tidelog import limits
from tidelog.commands.families import command_table
from tidelog.engine.dispatch import explain
from tidelog.engine.engine import Engine
from tidelog.engine.feeding import Feeding
from tidelog.engine.gate import Gate
from tidelog.engine.metrics import Metrics
from tidelog.engine.password import Password
from tidelog.engine.sessions import Sessions
from tidelog.engine.slow_log import SlowLog
from tidelog.engine.subscriptions import Subscriptions
from tidelog.errors import ApplyFailed, DataDirectoryError, JournalFailed, JournalFull
from tidelog.feeds.feeds import Feeds
from tidelog.journal.frame import Geometry
from tidelog.journal.journal import Settings
from tidelog.journal.retention import RetentionLimits
from tidelog.scripting.scripts import ScriptLimits, Scripts
from tidelog.server.allowed_connections import AllowedConnections, allowed_connections
from tidelog.server.configuration import ServerConfig
from tidelog.server.connection import Connection
from tidelog.server.connections import Connections
from tidelog.server.cooling import Cooling
from tidelog.server.facts import Facts
from tidelog.server.hot import hot_commands
from tidelog.server.leftovers import what_is_left
from tidelog.server.line_limit import LineLimit
from tidelog.server.listener import UnixSocket, bind_tcp, make_tls
from tidelog.server.live_parameters import live_parameters
from tidelog.server.loop_calls import LoopCalls
from tidelog.server.memory import Memory
from tidelog.server.signals import stopped_by_signals
from tidelog.server.snapshots import ServerSnapshots
from tidelog.server.turns import Turns
from tidelog.server.work_thread import WorkThread
from tidelog.store.dead_letters import PendingExpiry
from tidelog.store.expiry import remove_due
from tidelog.store.store import Store
from tidelog.system.clock import SystemClock
from tidelog.system.disk import SystemDisk

if TYPE_CHECKING:
    from tidelog.flight.server import FlightServer
    from tidelog.gateway.app import Gateway

__all__ = ["Runtime", "ServerConfig", "serve"]

_LOG: Final = logging.getLogger("tidelog")
_STRANGERS_LOG: Final = logging.getLogger("tidelog.strangers")
_SECOND_S: Final = 1.0
_TENTH_S: Final = 0.1
_SWITCH_INTERVAL_S: Final = 0.0005
_GC_THRESHOLDS: Final = (100_000, 50, 1_000_000)
"""Young objects are collected now and then, old ones practically never: the keyspace is made of them."""
_FAILED: Final = 70
"""The exit status of a process that must not go on (EX_SOFTWARE)."""


class Runtime:
    """A running server. `__init__` opens the data directory; `start` makes the parts that need a loop."""

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        self._clock = SystemClock()
        self._tls = None
        if config.tls_cert is not None and config.tls_key is not None:
            self._tls = make_tls(config.tls_cert, config.tls_key)
        self.store = Store.open(
            SystemDisk(),
            config.data,
            self._clock,
            Settings(
                Geometry(config.frame_bytes or limits.FRAME_BYTES_DEFAULT),
                config.shards or 1,
                config.fsync,
                retention=RetentionLimits(config.retain_bytes, config.retain_age_us),
            ),
            new_epoch_id=lambda: secrets.randbits(63),
            random=random.Random(),
        )
        self._check_directory()
        if (cut := self.store.journal.cut_tail) is not None:
            _LOG.warning(
                "the last stop was not clean: %s never became complete and were set aside in %s", cut, cut.path
            )
        self._servers: list[asyncio.AbstractServer] = []
        self._unix: UnixSocket | None = None
        self._gateway: Gateway | None = None
        self._flight: FlightServer | None = None
        self._timers: list[asyncio.Task[None]] = []
        self.stopping = asyncio.Event()
        self._line_limit = LineLimit(self._clock)
        # Made by `start`.
        self.turns: Turns
        self.engine: Engine
        self.connections: Connections
        self._memory: Memory
        self._snapshots: ServerSnapshots
        self._cooling: Cooling
        self._pending_expiry: PendingExpiry
        self._worker: WorkThread
        self._facts: Facts
        self._allowed: AllowedConnections

    def _check_directory(self) -> None:
        """What is fixed when a data directory is made must be what was asked for."""
        config, meta = self._config, self.store.journal.meta
        shards, frame_bytes = meta.shard_count, meta.geometry.frame_bytes
        if config.shards not in (None, shards):
            problem = f"has {shards} shard{'s' if shards > 1 else ''} and not {config.shards}: their number"
        elif config.frame_bytes not in (None, frame_bytes):
            problem = f"has frames of {frame_bytes} bytes and not of {config.frame_bytes}: their size"
        else:
            return
        self.store.journal.close()
        raise DataDirectoryError(f"{config.data} {problem} is fixed when a data directory is made")

    # --- starting -----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the ports and start the timers."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._on_error)
        self._make_parts(loop)
        _STRANGERS_LOG.addFilter(self._line_limit)
        try:
            await self._open_ports(loop)
        except BaseException:
            self._close_ports()
            self._snapshots.close()
            self._cooling.close()
            self._worker.close()
            self.store.journal.close()
            raise
        self._timers = [
            asyncio.create_task(_every(_SECOND_S, self._each_second)),
            asyncio.create_task(_every(_TENTH_S, self._each_tenth)),
        ]
        for timer in self._timers:
            timer.add_done_callback(self._on_timer_end)
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        # Arrow's own allocator gives pages back and takes them again for every node that is sealed, and the kernel
        # clears each: appends of a kilobyte spent much of their time there.
        pyarrow.set_memory_pool(pyarrow.system_memory_pool())
        gc.freeze()
        gc.set_threshold(*_GC_THRESHOLDS)

    def _make_parts(self, loop: asyncio.AbstractEventLoop) -> None:
        """Make each part of the server, in the order in which they need each other."""
        config, clock, store = self._config, self._clock, self.store
        metrics, sessions, slow_log = Metrics(), Sessions(), SlowLog()
        password = Password(config.password, clock)
        script_limits = ScriptLimits(config.script_time_ms, config.script_memory_bytes)
        self._memory = Memory(config.maxmemory)
        self._allowed = allowed_connections(config)
        self.connections = Connections(
            sessions,
            clock,
            metrics,
            password,
            clients_max=self._allowed.clients,
            idle_s_max=config.timeout,
        )
        feeding = Feeding(
            loop,
            Feeds(store, clock),
            clock,
            lambda: self.turns.count,
            checkpoint_ms=config.feed_checkpoint_ms,
            repeats_max=config.feed_repeats,
            http_feeds_max=self._allowed.feeds,
        )
        self.turns = Turns(loop, store.journal, clock.monotonic_us, metrics.syncs.add, feeding.on_visible)
        self._snapshots = ServerSnapshots(loop, store, self.turns, clock, config.snapshot_after)
        self._cooling = Cooling(loop, store.databases, clock)
        self._pending_expiry = PendingExpiry(store)
        self._worker = WorkThread(loop)
        self.engine = Engine(
            store=store,
            table=command_table(),
            clock=clock,
            loop=loop,
            stopwatch_s=time.perf_counter,
            process=self,
            password=password,
            sessions=sessions,
            subscriptions=Subscriptions(),
            slow_log=slow_log,
            parameters=live_parameters(
                config,
                self.connections,
                password,
                sessions,
                slow_log,
                self._memory,
                store.journal,
                feeding,
                script_limits,
                ports=lambda: self.ports,
                sample_memory=self._sample_memory,
                begin_erasing=self._snapshots.erasing.begin,
            ),
            metrics=metrics,
            gate=Gate(store, sessions, clock, loop),
            snapshots=self._snapshots,
            feeding=feeding,
            hot_commands=hot_commands,
            worker=self._worker,
        )
        self.engine.scripting = Scripts(self.engine, script_limits)
        self._facts = Facts(
            config,
            self.engine,
            self.connections,
            self._memory,
            secrets.token_hex(20),
            lambda: self.port or 0,
            lambda: self.http_port or 0,
            lambda: self.flight_port or 0,
        )

    async def _open_ports(self, loop: asyncio.AbstractEventLoop) -> None:
        config = self._config
        if config.port is not None:
            for bound in bind_tcp(config.host, config.port):
                self._servers.append(await loop.create_server(self._connection, sock=bound, ssl=self._tls))
        if config.unix_socket is not None:
            self._unix = UnixSocket(config.unix_socket)
            self._servers.append(await loop.create_unix_server(self._connection, sock=self._unix.socket))
        if config.http_port is not None:
            self._gateway = self._make_gateway()
            await self._gateway.start()
        if config.flight_port is not None:
            self._flight = self._open_flight(loop, config.host, config.flight_port)

    def _make_gateway(self) -> Gateway:
        from tidelog.gateway.app import open_gateway  # heavy, and not everyone wants it

        parts = self.engine, self._facts, self._memory, self._clock
        return open_gateway(self._config, self._allowed, *parts, self._own_connection)

    def _open_flight(self, loop: asyncio.AbstractEventLoop, host: str, port: int) -> FlightServer:
        from tidelog.flight.access import Access  # heavy, and not everyone wants it
        from tidelog.flight.server import open_flight
        from tidelog.flight.service import Service

        config, engine, calls = self._config, self.engine, LoopCalls(loop)
        # Flight asks for the password before it knows the address: all its clients count as one.
        access = Access(lambda given: calls.ask(lambda: engine.password.check(given, "flight")), engine.password)
        return open_flight(calls, Service(engine, self.turns), access, host, port, config.tls_cert, config.tls_key)

    def _connection(self) -> asyncio.Protocol:
        return cast("asyncio.Protocol", Connection(self.engine, self.turns, self.connections))

    def _own_connection(self) -> asyncio.Protocol:
        return cast("asyncio.Protocol", Connection(self.engine, self.turns, self.connections, is_own=True))

    @property
    def ports(self) -> list[int]:
        """The TCP ports that are open, also where 0 was asked for."""
        names = [socket.getsockname() for server in self._servers for socket in getattr(server, "sockets", ())]
        return [name[1] for name in names if isinstance(name, tuple)]

    @property
    def port(self) -> int | None:
        return next(iter(self.ports), None)

    @property
    def http_port(self) -> int | None:
        return None if self._gateway is None else self._gateway.port

    @property
    def flight_port(self) -> int | None:
        return None if self._flight is None else int(self._flight.port)

    # --- running ------------------------------------------------------------------------------------------------

    def _each_second(self) -> None:
        self.turns.commit.tick()
        self.connections.sweep()
        self._facts.tick()

    def _each_tenth(self) -> None:
        self.store.note_time()
        self._sample_memory()
        self._facts.look()
        self.connections.wait_for_disk(self.turns.has_backlog)
        writer = self.store.journal.writer
        try:
            if writer.refusal is None:
                remove_due(self.store)
                self._pending_expiry.run()
                self.engine.blocking.tick()
            # Also what there was no space for: it is tried again, whether or not anyone asks for something.
            if not writer.has_failed:
                writer.write()
                writer.vouch()
                self.engine.feeding.on_visible()
        except JournalFull:
            pass  # it says so itself, and `refusal` tells everyone
        except JournalFailed as error:
            _LOG.error("%s", error)
        self._snapshots.tick()
        self._cooling.tick()

    def _sample_memory(self) -> None:
        self.engine.gate.set_out_of_memory(self._memory.sample(self._clock.monotonic_us()))

    # --- stopping -----------------------------------------------------------------------------------------------

    def shut_down(self) -> None:
        self.stopping.set()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def facts(self, section: str) -> Mapping[str, object] | None:
        return self._facts.section(section)

    def fail(self, error: ApplyFailed) -> NoReturn:
        _LOG.critical("%s", error)
        _LOG.critical("state and journal may differ: the server stops here, and a restart recovers from the journal")
        logging.shutdown()
        os._exit(_FAILED)

    def _on_error(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An error that nobody caught. One of the network is a client's; any other is a bug that may have done harm."""
        error = context.get("exception")
        if error is None or isinstance(error, OSError):
            _LOG.info("%s: %s", context.get("message"), error)
        else:
            self.engine.fail(error)

    def _on_timer_end(self, timer: asyncio.Task[None]) -> None:
        error = None if timer.cancelled() else timer.exception()
        if isinstance(error, Exception):
            self.fail(ApplyFailed(f"a timer failed: {explain(error)}"))

    async def stop(self) -> None:
        """Stop in order. Neither a disk that is full nor a client that does not read holds it up for long."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + limits.STOP_S_MAX
        for timer in self._timers:
            timer.cancel()
        _STRANGERS_LOG.removeFilter(self._line_limit)
        self._close_ports()
        self._snapshots.close()
        self._cooling.close()
        self.engine.blocking.close()
        self.engine.feeding.close()
        self.engine.gate.resume()
        for connection in self.connections.all():
            if not connection.is_own:
                connection.stop_reading()
        if self._gateway is not None:
            await self._gateway.stop()
        has_ended = True
        if self._flight is not None:
            has_ended = await loop.run_in_executor(None, self._flight.stop, limits.STOP_S_MAX / 2)
        while any(each.is_busy or each.is_inside_event for each in self.connections.all()) and loop.time() < deadline:
            await asyncio.sleep(0.001)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.turns.drain(), max(0.1, deadline - loop.time()))
        unwritten = self.store.journal.writer.batch_bytes
        left = what_is_left(self.connections.all(), unwritten_bytes=unwritten, waits_for_fsync=self.turns.is_waiting)
        if left:
            _LOG.error("the server waited %g s and stops with this left: %s", limits.STOP_S_MAX, left)
        for connection in self.connections.all():
            connection.close()
        while len(self.connections) and loop.time() < deadline:
            await asyncio.sleep(0.001)
        for connection in self.connections.all():
            connection.kill()
        self._worker.close()
        self.store.journal.close()
        if not has_ended:
            logging.shutdown()
            os._exit(0)  # everything is stored; gRPC's threads would keep the process for as long as their client likes

    def _close_ports(self) -> None:
        for server in self._servers:
            server.close()
        if self._unix is not None:
            self._unix.remove()


async def _every(seconds: float, work: Callable[[], None]) -> None:
    while True:
        await asyncio.sleep(seconds)
        work()


async def serve(config: ServerConfig, on_ready: Callable[[Runtime], None]) -> None:
    """Run until SIGTERM, SIGINT or SHUTDOWN."""
    runtime = Runtime(config)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with stopped_by_signals(runtime.stopping.set):
        await runtime.start()
        on_ready(runtime)
        with contextlib.suppress(asyncio.CancelledError):
            await runtime.stopping.wait()
        await runtime.stop()
