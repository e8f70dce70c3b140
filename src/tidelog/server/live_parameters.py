"""The parameters of a running server, under the names that Redis gives them: what CONFIG shows and changes.

Those that common clients and tools ask for are here. Where Tidelog has only one way, the parameter says that way and
refuses any other. The password can be set, and is never shown.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tidelog import limits
from tidelog.engine.feeding import Feeding
from tidelog.engine.parameters import (
    ApplyValue,
    BadValue,
    Parameter,
    ParameterFile,
    Parameters,
    age,
    constant,
    fixed,
    memory,
    number,
    read_memory,
)
from tidelog.engine.password import Password
from tidelog.engine.sessions import Sessions
from tidelog.engine.slow_log import SlowLog
from tidelog.engine.table import REDACTED
from tidelog.journal.durability import FsyncPolicy
from tidelog.journal.journal import Journal
from tidelog.journal.retention import NO_LIMIT
from tidelog.scripting.scripts import ScriptLimits
from tidelog.server.configuration import ServerConfig
from tidelog.server.connections import Connections, OutputLimits
from tidelog.server.listener import BACKLOG, is_loopback_only
from tidelog.server.setting_values import SECRET_BYTES_MAX

if TYPE_CHECKING:
    from tidelog.server.memory import Memory

_LOG: Final = logging.getLogger("tidelog")
_FSYNC: Final = {FsyncPolicy.ALWAYS: "always", FsyncPolicy.EVERYSEC: "everysec", FsyncPolicy.NEVER: "no"}
_INT_MAX: Final = 2**31 - 1
_NO_FORKS: Final = "Tidelog makes snapshots by the size of its journal"


def live_parameters(
    config: ServerConfig,
    connections: Connections,
    password: Password,
    sessions: Sessions,
    slow_log: SlowLog,
    used: Memory,
    journal: Journal,
    feeding: Feeding,
    scripts: ScriptLimits,
    *,
    ports: Callable[[], list[int]],
    http_feeds_allowed: int,
    sample_memory: Callable[[], None],
    begin_erasing: Callable[[], None],
    others: Iterable[Parameter] = (),
    file: ParameterFile | None = None,
) -> Parameters:
    """All parameters. `others`: those that are made elsewhere; `file`: where CONFIG REWRITE puts what has changed."""

    def put_clients_max(value: int) -> None:
        connections.clients_max = value

    def put_idle(value: int) -> None:
        connections.idle_s_max = value

    def put_http_feeds(value: int) -> None:
        feeding.http_feeds_max = value

    def put_repeats(value: int) -> None:
        feeding.repeats.burst = value

    def put_maxmemory(value: int) -> None:
        used.limit_bytes = value
        sample_memory()

    def put_hot_streams(value: int) -> None:
        used.hot_stream_bytes = value

    def put_threshold(value: int) -> None:
        slow_log.threshold_us = value
        sessions.states_changed()  # hot commands are not timed

    def put_slow_length(value: int) -> None:
        slow_log.length_max = min(value, limits.SLOW_LOG_MAX)

    def put_retained_bytes(value: int) -> None:
        journal.retention = replace(journal.retention, bytes_max=value or NO_LIMIT)
        begin_erasing()

    def put_retained_age(seconds: int) -> None:
        journal.retention = replace(journal.retention, age_max_us=seconds * 1_000_000 or NO_LIMIT)
        begin_erasing()

    return Parameters(
        [
            Parameter(
                "requirepass",
                lambda: REDACTED.decode() if password.is_needed else "",
                lambda text: _read_password(password, sessions, config.host, text),
            ),
            memory("maxmemory", lambda: used.limit_bytes, put_maxmemory),
            memory("hot-stream-bytes", lambda: used.hot_stream_bytes, put_hot_streams),
            constant("maxmemory-policy", "noeviction", "no key is evicted for memory: the only policy is noeviction"),
            fixed("maxmemory-samples", 5),
            constant("appendonly", "yes", "every change is journaled: it cannot be turned off"),
            constant(
                "appendfsync", _FSYNC[config.fsync], "the fsync policy is chosen when the server starts (--fsync)"
            ),
            constant("save", "", _NO_FORKS),
            memory("retain-bytes", lambda: _or_none(journal.retention.bytes_max), put_retained_bytes),
            age("retain-age", lambda: _or_none(journal.retention.age_max_us) // 1_000_000, put_retained_age),
            constant(
                "frame-size",
                journal.meta.geometry.frame_bytes,
                "the size of frames is fixed when a data directory is made (--frame-size)",
            ),
            constant("stop-writes-on-bgsave-error", "yes", "it cannot be turned off"),
            constant("notify-keyspace-events", "", "there are no keyspace events: a change feed tells of changes"),
            fixed("databases", limits.DATABASES),
            fixed("bind", config.host),
            Parameter("port", lambda: str(ports()[0] if ports() else 0)),
            fixed("tls-port", 0),
            fixed("unixsocket", config.unix_socket or ""),
            fixed("unixsocketperm", "700" if config.unix_socket else "0"),
            fixed("dir", config.data),
            Parameter("protected-mode", lambda: "no" if password.is_needed else "yes"),
            number("timeout", lambda: connections.idle_s_max, put_idle, 0, _INT_MAX),
            constant("tcp-keepalive", limits.KEEPALIVE_S, "it cannot be changed"),
            number("maxclients", lambda: connections.clients_max, put_clients_max, 1, config.maxclients),
            number("http-feeds", lambda: feeding.http_feeds_max, put_http_feeds, 0, http_feeds_allowed),
            number(
                "feed-checkpoint",
                lambda: feeding.checkpoint_ms,
                feeding.set_checkpoint_ms,
                limits.FEED_CHECKPOINT_MS_MIN,
                limits.FEED_CHECKPOINT_MS_MAX,
            ),
            number("feed-repeats", lambda: feeding.repeats.burst, put_repeats, 0, limits.FEED_REPEATS_MAX),
            constant("hz", 10, "it cannot be changed"),
            fixed("proto-max-bulk-len", limits.BULK_BYTES_MAX),
            fixed("client-query-buffer-limit", limits.COMMAND_BYTES_MAX),
            Parameter(
                "client-output-buffer-limit",
                lambda: _show_output_limits(connections.output_limits),
                lambda text: _read_output_limits(connections.output_limits, text),
            ),
            number("slowlog-log-slower-than", lambda: slow_log.threshold_us, put_threshold, -1),
            number("slowlog-max-len", lambda: slow_log.length_max, put_slow_length),
            fixed("latency-tracking", "no"),
            fixed("cluster-enabled", "no"),
            fixed("io-threads", 1),
            fixed("enable-debug-command", "local"),
            *_of_scripts(scripts),
            *others,
            *_fixed(config),
        ],
        file,
    )


def _of_scripts(bounds: ScriptLimits) -> Iterator[Parameter]:
    def put_time(value: int) -> None:
        bounds.time_ms = value

    def read_size(text: str) -> ApplyValue:
        size = read_memory(text)
        if not limits.SCRIPT_MEMORY_BYTES_MIN <= size <= limits.SCRIPT_MEMORY_BYTES_MAX:
            raise BadValue("argument must be a size from 8mb to 1gb")

        def put_memory() -> None:
            bounds.memory_bytes = size

        return put_memory

    for name in ("script-time-limit", "lua-time-limit", "busy-reply-threshold"):  # the last two as Redis has it
        yield number(name, lambda: bounds.time_ms, put_time, 1, limits.SCRIPT_TIME_MS_MAX)
    yield Parameter("script-memory-limit", lambda: str(bounds.memory_bytes), read_size)


def _fixed(config: ServerConfig) -> Iterator[Parameter]:
    """What tools read, and nobody can change."""
    yield fixed("list-compress-depth", 0)
    yield fixed("stream-node-max-entries", limits.TRIMMED_TOGETHER)
    yield fixed("stream-node-max-bytes", 0)
    yield fixed("tls-cert-file", config.tls_cert or "")
    yield fixed("tls-key-file", config.tls_key or "")
    yield fixed("tcp-backlog", BACKLOG)
    yield fixed("shutdown-timeout", int(limits.STOP_S_MAX))
    yield fixed("auto-aof-rewrite-percentage", 0)
    yield fixed("latency-monitor-threshold", 0)
    yield fixed("maxmemory-clients", 0)
    yield fixed("activedefrag", "no")
    yield fixed("dynamic-hz", "no")
    yield fixed("daemonize", "no")
    yield fixed("logfile", "")


def _read_password(password: Password, sessions: Sessions, host: str, text: str) -> ApplyValue:
    """Another password, or none; clients that are in stay so."""
    secret = text.encode("utf-8", "surrogateescape")
    if secret == REDACTED:
        raise BadValue("CONFIG GET shows this instead of the password: it is none")
    if len(secret) > SECRET_BYTES_MAX:
        raise BadValue(f"a password has at most {SECRET_BYTES_MAX} bytes")
    if not secret and password.is_needed and not is_loopback_only(host):
        raise BadValue(f"the server listens on {host}, where others can reach it: it needs a password")

    def work() -> None:
        if secret or password.is_needed:
            password.change(secret or None)
            _LOG.warning("the password was %s with CONFIG SET, until a restart", "changed" if secret else "removed")
        if not secret:
            sessions.let_in()

    return work


def _or_none(limit: int) -> int:
    """A limit as users write it: 0 is none."""
    return 0 if limit >= NO_LIMIT else limit


def _show_output_limits(bounds: OutputLimits) -> str:
    return f"normal 0 0 0 slave 0 0 0 pubsub {bounds.hard_bytes} {bounds.soft_bytes} {bounds.soft_s}"


def _read_output_limits(bounds: OutputLimits, text: str) -> ApplyValue:
    """`pubsub <hard> <soft> <seconds>`; of the others only that they have no limit of their own."""
    words = text.split()
    if not words or len(words) % 4:
        raise BadValue("Wrong number of arguments in buffer limit configuration.")
    changed: tuple[int, int, int] | None = None
    for at in range(0, len(words), 4):
        kind, hard, soft, seconds = words[at : at + 4]
        try:
            wanted = read_memory(hard), read_memory(soft), int(seconds)
        except ValueError:
            raise BadValue("Error in hard, soft or soft_seconds setting in buffer limit configuration.") from None
        if kind.lower() == "pubsub" and wanted[2] >= 0:
            changed = wanted
        elif kind.lower() not in ("normal", "slave", "replica"):
            raise BadValue("Invalid client class specified in buffer limit configuration.")
        elif wanted != (0, 0, 0):
            raise BadValue(f"{kind} clients have no limit: the server stops reading from one that does not read")

    def work() -> None:
        if changed is not None:
            bounds.hard_bytes, bounds.soft_bytes, bounds.soft_s = changed
            bounds.hard_bytes = bounds.hard_bytes or limits.PUBSUB_BUFFER_BYTES_MAX

    return work
