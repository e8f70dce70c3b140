"""Facts about a running server: the sections of INFO, and the numbers that /metrics shows."""

from __future__ import annotations

import os
import platform
import resource
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from tidelog import __version__
from tidelog.engine.metrics import SnapshotFacts
from tidelog.engine.table import REDIS_VERSION
from tidelog.journal.durability import FsyncPolicy
from tidelog.scripting.functions import functions_of
from tidelog.scripting.scripts import scripts_of
from tidelog.server.memory import total_bytes
from tidelog.server.replication_facts import facts_of, replication_section
from tidelog.server.stream_figures import stream_figures
from tidelog.streams.retention import REASONS

if TYPE_CHECKING:
    from tidelog.engine.engine import Engine
    from tidelog.server.configuration import ServerConfig
    from tidelog.server.connections import Connections
    from tidelog.server.history import HistoryFacts, ServerHistory
    from tidelog.server.memory import Memory
    from tidelog.server.shipping import ServerShipping, ShippingFacts
    from tidelog.store.stream_retention import StreamRetention

InfoSection = Mapping[str, object]


class Facts:
    """Reads what is at work; keeps nothing but what it takes to tell a rate."""

    def __init__(
        self,
        config: ServerConfig,
        engine: Engine,
        connections: Connections,
        memory: Memory,
        run_id: str,
        port: Callable[[], int],
        http_port: Callable[[], int] = lambda: 0,
        flight_port: Callable[[], int] = lambda: 0,
        *,
        started_us: int | None = None,
        retention: StreamRetention,
        shipping: ServerShipping | None = None,
        history: ServerHistory | None = None,
    ) -> None:
        """`started_us`: when the process started, on the monotonic clock; None: now."""
        self._config = config
        self._engine = engine
        self._connections = connections
        self._memory = memory
        self._run_id = run_id
        self._port = port
        self._http_port = http_port
        self._flight_port = flight_port
        self.retention = retention
        self._ships = shipping
        self._kept = history
        now_us = engine.clock.monotonic_us()
        self._made_s = engine.clock.wall_us() // 1_000_000
        """When the engine was made; of one that stands in while data is loaded, that is when loading began."""
        self._started_us = now_us if started_us is None else started_us
        self._rate_from = now_us, engine.sessions.command_count
        """When commands were last counted, and how many there were."""
        self.commands_per_s = 0
        self._behind_since_us = 0
        """Since when something that is written is not durable; 0: everything is."""
        self._sections: dict[str, Callable[[], InfoSection]] = {
            "server": self._server,
            "clients": self._clients,
            "memory": self._memory_facts,
            "persistence": self._persistence,
            "stats": self._stats,
            "replication": self._replication,
            "cpu": self._cpu,
            "modules": dict,
            "commandstats": self._commands,
            "errorstats": self._errors,
            "cluster": lambda: {"cluster_enabled": 0},
            "keyspace": self._keyspace,
            "tidelog": self._tidelog,
            "feeds": self._feeds,
            "streams": self._streams,
            "shipping": self._shipping,
            "history": self._history,
        }

    def section(self, name: str) -> InfoSection | None:
        make = self._sections.get(name)
        return None if make is None else make()

    def tick(self) -> None:
        """Once a second: how many commands there were."""
        now_us, count = self._engine.clock.monotonic_us(), self._engine.sessions.command_count
        from_us, from_count = self._rate_from
        self.commands_per_s = max(0, round((count - from_count) * 1e6 / max(1, now_us - from_us)))
        self._rate_from = now_us, count

    def look(self) -> int:
        """Some times a second: since when something is not durable; returns for how long."""
        return self.not_durable_us

    @property
    def uptime_s(self) -> int:
        return (self._engine.clock.monotonic_us() - self._started_us) // 1_000_000

    @property
    def journal_bytes(self) -> int:
        """What the journal takes on disk, blobs and sidecars among it."""
        try:
            return sum(
                _file_bytes(entry.path)
                for entry in os.scandir(self._config.data)
                if entry.name.startswith("shard-") and entry.is_dir()
            )
        except FileNotFoundError:  # while the directory is made, or replaced by another
            return 0

    # --- sections -----------------------------------------------------------------------------------------------

    def _server(self) -> InfoSection:
        system = os.uname()
        uptime_s = self.uptime_s
        return {
            "redis_version": REDIS_VERSION.decode(),
            "redis_git_sha1": "00000000",
            "redis_git_dirty": 0,
            "redis_mode": "standalone",
            "tidelog_version": __version__,
            "os": f"{system.sysname} {system.release} {system.machine}",
            "arch_bits": 64 if sys.maxsize > 2**32 else 32,
            "multiplexing_api": "epoll",
            "python_version": platform.python_version(),
            "process_id": os.getpid(),
            "run_id": self._run_id,
            "tcp_port": self._port(),
            "server_time_usec": self._engine.clock.wall_us(),
            "uptime_in_seconds": uptime_s,
            "uptime_in_days": uptime_s // 86400,
            "hz": 10,
            "configured_hz": 10,
            "config_file": self._config.config_file or "",
        }

    def _clients(self) -> InfoSection:
        sessions = self._engine.sessions
        return {
            "connected_clients": len(sessions),
            "cluster_connections": 0,
            "maxclients": self._connections.clients_max,
            "blocked_clients": len(self._engine.blocking),
            "tracking_clients": 0,
            "total_blocking_keys": self._engine.blocking.key_count,
            "pubsub_clients": sum(session.is_listening for session in sessions.all()),
        }

    def _memory_facts(self) -> InfoSection:
        memory, scripts = self._memory, scripts_of(self._engine)
        return {
            "used_memory": memory.used_bytes,
            "used_memory_human": human(memory.used_bytes),
            "used_memory_rss": memory.used_bytes,
            "used_memory_rss_human": human(memory.used_bytes),
            "used_memory_peak": memory.peak_bytes,
            "used_memory_peak_human": human(memory.peak_bytes),
            "total_system_memory": total_bytes(),
            "total_system_memory_human": human(total_bytes()),
            "maxmemory": memory.limit_bytes,
            "maxmemory_human": human(memory.limit_bytes),
            "maxmemory_policy": "noeviction",
            "used_memory_vm_eval": scripts.used_bytes,
            "used_memory_lua": scripts.used_bytes,
            "used_memory_lua_human": human(scripts.used_bytes),
            "used_memory_scripts_eval": scripts.cache.size_bytes,
            "used_memory_scripts": scripts.cache.size_bytes,
            "used_memory_scripts_human": human(scripts.cache.size_bytes),
            "number_of_cached_scripts": len(scripts.cache),
            "number_of_functions": functions_of(self._engine).count,
            "number_of_libraries": len(self._engine.store.libraries.codes),
            "mem_fragmentation_ratio": "1.00",
            "mem_allocator": "libc",
        }

    def _persistence(self) -> InfoSection:
        engine, snapshots = self._engine, self.snapshots
        journal = engine.store.journal
        writer, cut = journal.writer, journal.cut_tail
        return {
            "loading": int(engine.gate.is_loading),
            "async_loading": 0,
            **({"loading_start_time": self._made_s} if engine.gate.is_loading else {}),
            **_fetched(engine.gate.fetched),
            "current_save_keys_processed": snapshots.keys_done,
            "current_save_keys_total": snapshots.keys_total,
            "rdb_changes_since_last_save": snapshots.records_since,
            "rdb_bgsave_in_progress": int(snapshots.is_under_way),
            "scrub_bytes": snapshots.scrub.bytes,
            "scrub_passes": snapshots.scrub.passes,
            "scrub_pass_bytes": snapshots.scrub.pass_bytes,
            "scrub_damaged_nodes": snapshots.scrub.damaged,
            "rdb_last_save_time": engine.snapshots.last_s,
            "rdb_last_bgsave_status": "ok" if snapshots.error is None else "err",
            "rdb_last_bgsave_time_sec": _whole_s(snapshots.last_took_s),
            "rdb_current_bgsave_time_sec": _whole_s(snapshots.current_took_s),
            "rdb_saves": snapshots.made,
            "aof_enabled": 1,
            "aof_rewrite_in_progress": 0,
            "aof_rewrite_scheduled": 0,
            "aof_last_write_status": "ok" if writer.refusal is None else "err",
            "aof_last_bgrewrite_status": "ok",
            "cut_tails": journal.cut_tail_count,
            "cut_tail_bytes": 0 if cut is None else cut.size_bytes,
            "cut_tail_records": 0 if cut is None else cut.records,
            "cut_tail_first_ts": 0 if cut is None else cut.first_ts,
            "cut_tail_last_ts": 0 if cut is None else cut.last_ts,
            "cut_tail_path": "" if cut is None else cut.path,
        }

    def _stats(self) -> InfoSection:
        engine, metrics = self._engine, self._engine.metrics
        replication = facts_of(engine)
        return {
            "total_connections_received": metrics.connections,
            "total_commands_processed": engine.sessions.command_count,
            "instantaneous_ops_per_sec": self.commands_per_s,
            "rejected_connections": metrics.connections_refused,
            "sync_full": replication.full_syncs,
            "sync_partial_ok": replication.partial_syncs,
            "sync_partial_err": replication.refused_syncs,
            "expired_keys": engine.store.expired_count,
            "evicted_keys": 0,
            "evicted_clients": 0,
            "pubsub_channels": len(engine.subscriptions.channels()),
            "pubsub_patterns": engine.subscriptions.pattern_count(),
            "pubsubshard_channels": len(engine.subscriptions.shard_channels()),
            "total_error_replies": metrics.errors.total(),
            "client_output_buffer_limit_disconnections": metrics.cut_for_output,
            "client_unauthenticated_disconnections": metrics.cut_unauthenticated,
            "client_idle_disconnections": metrics.cut_for_idling,
            "evicted_scripts": scripts_of(engine).cache.evicted_count,
            "stopped_scripts": scripts_of(engine).stopped_count,
            "slowlog_len": len(engine.slow_log.entries),
        }

    def _replication(self) -> InfoSection:
        return replication_section(self._engine)

    def _cpu(self) -> InfoSection:
        used, threads = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_THREAD)
        return {
            "used_cpu_sys": f"{used.ru_stime:.6f}",
            "used_cpu_user": f"{used.ru_utime:.6f}",
            "used_cpu_sys_children": "0.000000",
            "used_cpu_user_children": "0.000000",
            "used_cpu_sys_main_thread": f"{threads.ru_stime:.6f}",
            "used_cpu_user_main_thread": f"{threads.ru_utime:.6f}",
        }

    def _errors(self) -> InfoSection:
        errors = self._engine.metrics.errors
        return {f"errorstat_{code}": f"count={errors[code]}" for code in sorted(errors)}

    def _commands(self) -> InfoSection:
        return {
            f"cmdstat_{name.lower()}": (
                f"calls={tally.calls},usec={round(1e6 * tally.seconds)},"
                f"usec_per_call={1e6 * tally.seconds / (tally.calls or 1):.2f},"
                f"rejected_calls={tally.rejected},failed_calls={tally.failed}"
            )
            for name, tally in self._engine.metrics.commands.counted()
        }

    def _keyspace(self) -> InfoSection:
        return {
            f"db{database.number}": f"keys={database.size},expires={len(database.expiries)},avg_ttl=0"
            for database in self._engine.store.databases
            if database.size
        }

    def _feeds(self) -> InfoSection:
        return self._engine.feeding.section()

    def _streams(self) -> InfoSection:
        figures = self.retention.figures
        return {
            **stream_figures(self._engine, self._memory)._asdict(),
            "configured_streams": self.retention.ruled_count,
            "stream_bytes": figures.stream_bytes,
            "stream_bytes_max": figures.stream_bytes_max,
            "stream_bytes_stuck": int(figures.is_stuck),
            **{f"evicted_entries_by_{reason}": figures.entries[reason] for reason in REASONS},
            **{f"evicted_bytes_by_{reason}": figures.bytes[reason] for reason in REASONS},
        }

    @property
    def shipping(self) -> ShippingFacts | None:
        """How the copy in an object store stands; None: there is none."""
        return None if self._ships is None else self._ships.facts

    def _shipping(self) -> InfoSection:
        facts = self.shipping
        if facts is None:
            return {"shipping_enabled": 0}
        return {"shipping_enabled": 1, **{f"shipping_{name}": value for name, value in asdict(facts).items()}}

    @property
    def history(self) -> HistoryFacts | None:
        """Where node files lie; None: there are none."""
        return None if self._kept is None else self._kept.facts

    def _history(self) -> InfoSection:
        facts = self.history
        return {} if facts is None else {f"history_{name}": value for name, value in asdict(facts).items()}

    def _tidelog(self) -> InfoSection:
        journal = self._engine.store.journal
        writer = journal.writer
        syncs, snapshots = self._engine.metrics.syncs, self.snapshots
        return {
            "tidelog_version": __version__,
            "shards": journal.meta.shard_count,
            "fsync": writer.policy.value,
            "cycle": writer.written.cycle,
            "synced_cycle": writer.synced_cycle,
            "last_ts": writer.written_ts,
            "durable_ts": writer.durable_ts,
            "not_durable_us": self.not_durable_us,
            "unsynced_bytes": self.unsynced_bytes,
            "journal_bytes": self.journal_bytes,
            "epochs": len(journal.epochs),
            "snapshot_ts": snapshots.newest_ts,
            "snapshot_bytes": snapshots.newest_bytes,
            "snapshot_keys": "" if snapshots.newest_keys is None else snapshots.newest_keys,
            "snapshot_error": snapshots.error or "",
            "journal_bytes_since_snapshot": snapshots.bytes_since,
            "frame_bytes": journal.meta.geometry.frame_bytes,
            "disk_free_bytes": snapshots.space.free_bytes,
            "disk_nearly_full": int(snapshots.space.is_low),
            "segments_erased_for_space": snapshots.space.segments_erased,
            "bytes_erased_for_space": snapshots.space.bytes_erased,
            "writable": int(writer.refusal is None),
            "fsyncs": syncs.count,
            "last_fsync_ms": f"{1000 * syncs.last_s:.3f}",
            "http_port": self._http_port(),  # 0: none
            "flight_port": self._flight_port(),
        }

    @property
    def snapshots(self) -> SnapshotFacts:
        return self._engine.snapshots.facts

    @property
    def not_durable_us(self) -> int:
        """For how long something that is written has not been durable; with `never` nobody asked for it to be."""
        writer = self._engine.store.journal.writer
        if writer.policy is FsyncPolicy.NEVER or writer.durable_ts >= writer.written_ts:
            self._behind_since_us = 0
            return 0
        now_us = self._engine.clock.monotonic_us()
        self._behind_since_us = self._behind_since_us or now_us
        return now_us - self._behind_since_us

    @property
    def unsynced_bytes(self) -> int:
        writer = self._engine.store.journal.writer
        return 0 if writer.policy is FsyncPolicy.NEVER else writer.unsynced_bytes


def _whole_s(seconds: float | None) -> int:
    """As Redis shows a duration; -1: there was none."""
    return -1 if seconds is None else int(seconds)


def human(size: int) -> str:
    """A size as Redis shows it."""
    if size < 1024:
        return f"{size}B"
    number = float(size)
    for unit in ("K", "M", "G", "T"):
        number /= 1024
        if number < 1024:
            return f"{number:.2f}{unit}"
    return f"{number / 1024:.2f}P"


def _file_bytes(folder: str) -> int:
    """Of the files in a folder; one may be erased meanwhile."""
    total = 0
    for entry in os.scandir(folder):
        try:
            total += entry.stat().st_size
        except FileNotFoundError:
            continue
    return total


def _fetched(fetched: tuple[int, int] | None) -> InfoSection:
    """How far a restore is, in the words of Redis."""
    if fetched is None:
        return {}
    done, total = fetched
    percent = min(100.0, 100 * done / max(1, total))
    return {
        "loading_total_bytes": total,
        "loading_loaded_bytes": done,
        "loading_loaded_perc": f"{percent:.2f}",
    }
