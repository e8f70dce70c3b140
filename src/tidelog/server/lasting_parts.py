"""What a server keeps for as long as its process lives, whatever store it serves.

A server may have to replace its store while it runs, by what its leader has (`Runtime.reload`). Its ports stay, and so
does all that belongs to the process and not to the data: which clients are connected, what was counted, the password,
and the limits that CONFIG SET has changed.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from tidelog.commands.families import command_table
from tidelog.engine.feeding import Feeding
from tidelog.engine.metrics import Metrics
from tidelog.engine.password import Password
from tidelog.engine.sessions import Sessions
from tidelog.engine.slow_log import SlowLog
from tidelog.engine.subscriptions import Subscriptions
from tidelog.engine.surroundings import ServerProcess
from tidelog.journal.journal import Journal
from tidelog.journal.retention import RetentionLimits
from tidelog.ports import Clock
from tidelog.replication.replication import Replication
from tidelog.scripting.scripts import ScriptLimits
from tidelog.server.allowed_connections import allowed_connections
from tidelog.server.configuration import ServerConfig
from tidelog.server.configuration_file import configuration_file
from tidelog.server.connections import Connections
from tidelog.server.encoding_parameters import encoding_bounds
from tidelog.server.history import ServerHistory
from tidelog.server.leader_password import LeaderPassword
from tidelog.server.memory import Memory
from tidelog.server.shipping import ServerShipping
from tidelog.server.turns import Turns
from tidelog.server.work_thread import WorkThread
from tidelog.store.store import Store
from tidelog.store.stream_retention import RetentionFigures


class HostProcess(ServerProcess, Protocol):
    """The process that serves, and its ports."""

    @property
    def ports(self) -> list[int]:
        """The TCP ports for Redis clients."""

    @property
    def port(self) -> int | None: ...

    @property
    def http_port(self) -> int | None: ...

    @property
    def flight_port(self) -> int | None: ...


class LastingParts:
    """One per process."""

    def __init__(
        self, config: ServerConfig, clock: Clock, loop: asyncio.AbstractEventLoop, process: HostProcess
    ) -> None:
        self.config = config
        self.clock = clock
        self.loop = loop
        self.process = process
        self.table = command_table()
        self.metrics = Metrics()
        self.sessions = Sessions()
        self.subscriptions = Subscriptions()
        self.slow_log = SlowLog()
        self.password = Password(config.password, clock)
        self.script_limits = ScriptLimits(config.script_time_ms, config.script_memory_bytes)
        self.memory = Memory(config.maxmemory, config.hot_stream_bytes)
        self.stream_figures = RetentionFigures(config.stream_bytes_max)
        self.encoding_bounds = encoding_bounds(config)
        self.allowed = allowed_connections(config)
        self.connections = Connections(
            self.sessions,
            clock,
            self.metrics,
            self.password,
            clients_max=self.allowed.clients,
            idle_s_max=config.timeout,
        )
        self.http_feeds_max = self.allowed.feeds
        """Feeds over HTTP; CONFIG SET may make it less than is allowed."""
        self.replication_options = config.replication
        self.leader_password = LeaderPassword(config.leader_password, self.password)
        self.configuration_file = configuration_file(config)
        self.replication_worker = WorkThread(loop, "replication")
        self.replication: Replication
        """Made by the process, which is the server that it is part of."""
        self.make_shipping: Callable[[Journal, Turns], ServerShipping | None] = lambda _journal, _turns: None
        """Ships a store that is served, if the configuration says so; set by the process."""
        self.make_history: Callable[[Store, ServerShipping | None], ServerHistory | None] = lambda _store, _shipping: (
            None
        )
        """Sees to where the node files of a store lie; set by the process."""
        self.run_id = secrets.token_hex(20)
        self.started_us = clock.monotonic_us()

    @property
    def retention(self) -> RetentionLimits:
        return RetentionLimits(self.config.retain_bytes, self.config.retain_age_us)

    def keep_changes(self, journal: Journal, feeding: Feeding) -> None:
        """Keep what CONFIG SET has changed in the parts of a store, for those of the next."""
        self.http_feeds_max = feeding.http_feeds_max
        self.config = replace(
            self.config,
            retain_bytes=journal.retention.bytes_max,
            retain_age_us=journal.retention.age_max_us,
            feed_checkpoint_ms=feeding.checkpoint_ms,
            feed_repeats=feeding.repeats.burst,
        )
