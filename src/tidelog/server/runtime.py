"""The one place where everything is wired: store, engine, ports, timers, and how it stops.

start   open the ports, and then the data directory (recovering it), say that it is ready
run     timers: once a second the fsync of `everysec` and a look at the clients, ten times a second memory, what has
        expired, whether a snapshot is due, and which nodes of streams are cold
stop    on SIGTERM, SIGINT or SHUTDOWN: close the ports, give up a snapshot that is under way, answer what was read,
        let followers confirm it, fsync, a clean stop of the journal
fail    a bug while applying or journaling: the process ends at once, as if it were killed. What was answered is in
        the journal, and nothing that is not comes after it

Data is loaded on a thread, with the ports open. Meanwhile an empty store in memory is served, whose gate refuses all
commands but those that Redis answers while it loads: clients and Sentinels see a server that is there and says LOADING.
The clients of that store then go on with the one that was loaded. A stop does not wait for the thread: the process ends
as if it were killed, which the data directory does not mind.

reload  a follower got other data from its leader: clients are cut, the store is closed and its memory given back, the
        directory is changed and loaded again. The ports stay, and so does what CONFIG SET has changed
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
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

import pyarrow

from tidelog import limits
from tidelog.engine.dispatch import explain
from tidelog.errors import ApplyFailed, DataDirectoryError, JournalFailed, JournalFull
from tidelog.journal.durability import FsyncPolicy
from tidelog.journal.frame import Geometry
from tidelog.journal.journal import Settings
from tidelog.journal.layout import META, Meta, read_meta
from tidelog.replication.replication import Replication
from tidelog.server.configuration import ServerConfig
from tidelog.server.connection import Connection
from tidelog.server.lasting_parts import LastingParts
from tidelog.server.line_limit import LineLimit
from tidelog.server.listener import UnixSocket, bind_tcp, make_client_tls, make_tls
from tidelog.server.loop_calls import LoopCalls
from tidelog.server.memory import give_back
from tidelog.server.replicated_server import make_replication
from tidelog.server.restoring import restore_first
from tidelog.server.served_store import ServedStore, free
from tidelog.server.ship_target import make_tiered_disk, set_up_copies
from tidelog.server.signals import stopped_by_signals
from tidelog.store.store import Store
from tidelog.system.clock import SystemClock
from tidelog.system.disk import SystemDisk
from tidelog.system.memory_disk import MemoryDisk
from tidelog.system.network import SystemLink, SystemNetwork
from tidelog.system.ship_store import fetch_all, open_read_store, open_ship_store

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
    """A running server: the process, its ports, and the store that it serves."""

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        self._clock = SystemClock()
        self._disk = make_tiered_disk(config, SystemDisk(), self._clock, open_read_store)
        self._tls = None
        if config.tls_cert is not None and config.tls_key is not None:
            self._tls = make_tls(config.tls_cert, config.tls_key)
        self._client_tls = make_client_tls(config.tls_ca) if config.tls_replication else None
        self._servers: list[asyncio.AbstractServer] = []
        self._unix: UnixSocket | None = None
        self._gateway: Gateway | None = None
        self._flight: FlightServer | None = None
        self._timers: list[asyncio.Task[None]] = []
        self.stopping = asyncio.Event()
        self._line_limit = LineLimit(self._clock)
        self._reloading: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        """Why the data could not be loaded again."""
        # Made by `start`.
        self._lasting: LastingParts
        self.served: ServedStore

    # --- starting -----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the ports, load the data, start the timers."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._on_error)
        with contextlib.suppress(OSError):  # loading tells what is wrong
            if self._disk.exists(f"{self._config.data}/{META}"):
                self._check_directory(read_meta(self._disk, self._config.data))  # before anybody waits for it
        self._lasting = lasting = LastingParts(self._config, self._clock, loop, self)
        lasting.replication = self._make_replication(lasting)
        set_up_copies(lasting, self._disk, open_ship_store)
        lasting.connections.make_link = self._make_link
        self.served = self._make_empty()
        _STRANGERS_LOG.addFilter(self._line_limit)
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        try:
            await self._open_ports(loop)
            self._serve(self.served)
            self._start_timers()
            await self._load(self._open_store)
        except BaseException:
            await self._give_up()
            raise
        # Arrow's own allocator gives pages back and takes them again for every node that is sealed, and the kernel
        # clears each: appends of a kilobyte spent much of their time there.
        pyarrow.set_memory_pool(pyarrow.system_memory_pool())

    async def _give_up(self) -> None:
        """The data cannot be loaded, or a port cannot be opened: close what is open."""
        self._end_timers()
        self._close_ports()
        if self._gateway is not None:
            await self._gateway.stop()
        if self._flight is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._flight.stop, limits.STOP_S_MAX)
        for connection in self.served.connections():
            connection.kill()
        self.served.abandon()

    def _start_timers(self) -> None:
        self._timers = [
            asyncio.create_task(_every(_SECOND_S, lambda: self.served.each_second())),
            asyncio.create_task(_every(_TENTH_S, lambda: self.served.each_tenth())),
        ]
        for timer in self._timers:
            timer.add_done_callback(self._on_timer_end)

    # --- replication --------------------------------------------------------------------------------------------

    def _make_replication(self, lasting: LastingParts) -> Replication:
        network = SystemNetwork(lasting.loop, client_tls=self._client_tls)
        return make_replication(self, lasting, self._disk, random.Random(), network, open_read_store, MemoryDisk)

    def _make_link(self, transport: asyncio.Transport) -> None:
        """TSYNC: a connection is a link from now on."""
        SystemLink(asyncio.get_running_loop(), ("", 0), None).adopt(transport, self._lasting.replication.accept)

    # --- the store ----------------------------------------------------------------------------------------------

    def _make_empty(self) -> ServedStore:
        """What is served while the data is loaded."""
        settings = Settings(Geometry(64 * limits.KIB), 1, FsyncPolicy.NEVER, 0, self._lasting.retention)
        made = Store.open(MemoryDisk(), "/empty", self._clock, settings, lambda: 1, random.Random())
        return ServedStore(self._lasting, made, is_loading=True)

    def _open_store(self) -> Store:
        """On the thread."""
        config = self._config
        on_fetched = self.served.engine.gate.note_fetched
        restore_first(config, self._disk, self._clock, open_read_store, fetch_all, on_fetched)
        store = Store.open(
            self._disk,
            config.data,
            self._clock,
            Settings(
                Geometry(config.frame_bytes or limits.FRAME_BYTES_DEFAULT),
                config.shards or 1,
                config.fsync,
                retention=self._lasting.retention,
            ),
            new_epoch_id=lambda: secrets.randbits(63),
            random=random.Random(),
            leads=self._lasting.replication.opens_as_leader,
            bounds=self._lasting.encoding_bounds,
            database_id=self._lasting.replication.database_id,
        )
        try:
            self._check_directory(store.journal.meta)
        except DataDirectoryError:
            store.journal.close()
            raise
        return store

    def _check_directory(self, meta: Meta) -> None:
        """What is fixed when a data directory is made must be what was asked for."""
        config = self._config
        shards, frame_bytes = meta.shard_count, meta.geometry.frame_bytes
        if config.shards not in (None, shards):
            problem = f"has {shards} shard{'s' if shards > 1 else ''} and not {config.shards}: their number"
        elif config.frame_bytes not in (None, frame_bytes):
            problem = f"has frames of {frame_bytes} bytes and not of {config.frame_bytes}: their size"
        else:
            return
        raise DataDirectoryError(f"{config.data} {problem} is fixed when a data directory is made")

    async def _load(self, open_store: Callable[[], Store]) -> None:
        """Open the data directory, and let those that wait for it go on with what it holds."""
        store = await self._opened(open_store)
        if (cut := store.journal.cut_tail) is not None:
            _LOG.warning(
                "the last stop was not clean: %s never became complete and were set aside in %s", cut, cut.path
            )
        loading, lasting = self.served, self._lasting
        lasting.keep_changes(loading.store.journal, loading.engine.feeding)
        retention, now = store.journal.retention, lasting.retention
        store.journal.retention = replace(retention, bytes_max=now.bytes_max, age_max_us=now.age_max_us)
        try:
            loaded = ServedStore(lasting, store)
        except BaseException:
            store.journal.close()
            raise
        loading.hand_over(loaded)
        self._serve(loaded)
        lasting.replication.opened(store)
        loading.abandon()
        gc.freeze()
        gc.set_threshold(*_GC_THRESHOLDS)

    async def _opened(self, open_store: Callable[[], Store]) -> Store:
        """The store once it is loaded; if the process is to stop before, it ends here."""
        opening = asyncio.get_running_loop().run_in_executor(None, open_store)
        stop = asyncio.create_task(self.stopping.wait())
        try:
            await asyncio.wait((opening, stop), return_when=asyncio.FIRST_COMPLETED)
            if not opening.done():
                self._leave_at_once()
        finally:
            stop.cancel()
        return opening.result()

    def _leave_at_once(self) -> NoReturn:
        """Stop while the data is being loaded: nothing was taken from anybody, and the thread cannot be stopped."""
        self._close_ports()
        logging.shutdown()
        os._exit(0)

    def reload(self, prepare: Callable[[], None], feed_error: str = "") -> None:
        """Close the store, call `prepare` on a thread, and open the store again, which goes on after this returns.

        Clients are cut, and get LOADING when they come again; feeds end, with the error if there is one. If the data
        cannot be loaded then, the process ends as after a start that failed.
        """
        before = self.served
        assert not before.is_loading, "one at a time"
        self._lasting.keep_changes(before.store.journal, before.engine.feeding)
        self._serve(self._make_empty())
        before.begin_end(limits.RELOAD_S_MAX, is_replaced=True, feed_error=feed_error)
        self._reloading = asyncio.create_task(self._reload(before, prepare))
        self._reloading.add_done_callback(self._on_reloaded)

    async def _reload(self, before: ServedStore, prepare: Callable[[], None]) -> None:
        await before.finish_end()
        await before.wait_for_disk()
        going = [before.store]
        del before  # nothing may keep the data that goes
        await self._load(partial(self._replace_store, going, prepare))

    def _replace_store(self, going: list[Store], prepare: Callable[[], None]) -> Store:
        """On the thread. The memory of the one is given back before the other takes its own."""
        try:
            going[0].journal.close()
        except (JournalFull, JournalFailed) as error:  # what was not written was not answered either
            _LOG.error("the store that is replaced was not closed in order: %s", error)
        free(going.pop())
        gc.unfreeze()
        gc.collect()
        give_back()
        prepare()
        return self._open_store()

    def _on_reloaded(self, task: asyncio.Task[None]) -> None:
        self._failure = None if task.cancelled() else task.exception()
        if self._failure is not None:
            self.stopping.set()

    def _serve(self, served: ServedStore) -> None:
        """Let all ports serve a store."""
        self.served = served
        self._lasting.connections.serving = served.engine, served.turns
        if self._gateway is not None:
            self._gateway.show(served.engine, served.facts)
        if self._flight is not None:
            from tidelog.flight.service import Service

            self._flight.serve(None if served.is_loading else Service(served.engine, served.turns))

    # --- ports --------------------------------------------------------------------------------------------------

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

        served, lasting = self.served, self._lasting
        parts = served.engine, served.facts, lasting.memory, self._clock
        return open_gateway(self._config, lasting.allowed, *parts, self._own_connection)

    def _open_flight(self, loop: asyncio.AbstractEventLoop, host: str, port: int) -> FlightServer:
        from tidelog.flight.access import Access  # heavy, and not everyone wants it
        from tidelog.flight.server import open_flight

        config, calls, password = self._config, LoopCalls(loop), self._lasting.password
        # Flight asks for the password before it knows the address: all its clients count as one.
        access = Access(lambda given: calls.ask(lambda: password.check(given, "flight")), password)
        return open_flight(calls, access, host, port, config.tls_cert, config.tls_key)

    def _connection(self) -> asyncio.Protocol:
        return self._make_connection(is_own=False)

    def _own_connection(self) -> asyncio.Protocol:
        return self._make_connection(is_own=True)

    def _make_connection(self, *, is_own: bool) -> asyncio.Protocol:
        served = self.served
        made = Connection(served.engine, served.turns, self._lasting.connections, is_own=is_own)
        return cast("asyncio.Protocol", made)

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

    # --- stopping -----------------------------------------------------------------------------------------------

    def shut_down(self) -> None:
        self.stopping.set()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def facts(self, section: str) -> Mapping[str, object] | None:
        return self.served.facts.section(section)

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
            self.served.engine.fail(error)

    def _on_timer_end(self, timer: asyncio.Task[None]) -> None:
        error = None if timer.cancelled() else timer.exception()
        if isinstance(error, Exception):
            self.fail(ApplyFailed(f"a timer failed: {explain(error)}"))

    async def stop(self) -> None:
        """Stop in order. Neither a disk that is full nor a client that does not read holds it up for long."""
        if self._failure is not None:
            await self._give_up()
            raise self._failure
        if self.served.is_loading:
            self._leave_at_once()
        self._end_timers()
        self._close_ports()
        self._lasting.replication.begin_end()
        self.served.begin_end(limits.STOP_S_MAX)
        if self._gateway is not None:
            await self._gateway.stop()
        has_ended = True
        if self._flight is not None:
            stop = partial(self._flight.stop, limits.STOP_S_MAX / 2)
            has_ended = await asyncio.get_running_loop().run_in_executor(None, stop)
        await self.served.finish_end()
        await self.served.send_rest()
        has_ended = await self.served.ship_rest() and has_ended
        self._lasting.replication.close()
        self._lasting.replication_worker.close()
        self.served.store.journal.close()
        if not has_ended:
            logging.shutdown()
            os._exit(0)  # everything is stored; threads that wait for a client, or a store, would keep the process

    def _end_timers(self) -> None:
        for timer in self._timers:
            timer.cancel()
        _STRANGERS_LOG.removeFilter(self._line_limit)

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
