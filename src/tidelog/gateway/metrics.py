"""/metrics: the numbers of a server."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.engine.engine import Engine
from tidelog.engine.metrics import Durations
from tidelog.engine.tallies import Tallies
from tidelog.gateway.history_metrics import history_samples
from tidelog.gateway.pipeline_metrics import pipeline_samples
from tidelog.gateway.replication_metrics import replication_samples
from tidelog.gateway.sample import Sample, label
from tidelog.gateway.shipping_metrics import shipping_samples
from tidelog.gateway.stream_metrics import stream_samples
from tidelog.server.facts import Facts
from tidelog.server.memory import Memory
from tidelog.server.stream_figures import stream_figures
from tidelog.store.stream_retention import StreamRetention
from tidelog.streams.retention import REASONS


def collect(engine: Engine, facts: Facts, memory: Memory) -> Iterator[Sample]:
    """Every number that is shown. While data is loaded, there are none about it: zeros would not be true."""
    is_loading = engine.gate.is_loading
    yield Sample("tidelog_loading", "gauge", "1: the data is being loaded.", is_loading)
    yield from _traffic(engine, facts)
    yield from _machine(memory)
    if is_loading:
        return
    yield from _keyspace(engine)
    yield from stream_samples(stream_figures(engine, memory))
    yield from _retention(facts.retention)
    yield from _disk(facts)
    yield from _journal(engine, facts)
    yield from _feeds(engine)
    yield from _snapshots(engine, facts)
    yield from replication_samples(engine)
    yield from shipping_samples(facts.shipping)
    yield from history_samples(facts.history)
    store, journal = engine.store, engine.store.journal
    now_ms = engine.clock.wall_us() // 1000
    yield from pipeline_samples(store.databases[0], now_ms, journal.writer.visible.ts, journal.begin_of)


def _traffic(engine: Engine, facts: Facts) -> Iterator[Sample]:
    metrics, clients, subscriptions = engine.metrics, engine.sessions, engine.subscriptions
    yield Sample("tidelog_uptime_seconds", "gauge", "Since the server started.", facts.uptime_s)
    yield Sample("tidelog_commands_total", "counter", "Commands that clients sent.", clients.command_count)
    yield Sample("tidelog_connections", "gauge", "Connections that are open.", len(clients))
    yield Sample("tidelog_connections_total", "counter", "Connections that were made.", metrics.connections)
    yield Sample(
        "tidelog_connections_refused_total", "counter", "Connections turned away.", metrics.connections_refused
    )
    cut = "tidelog_connections_cut_total", "counter", "Connections that were cut."
    yield Sample(*cut, metrics.cut_for_output, '{reason="output"}')
    yield Sample(*cut, metrics.cut_unauthenticated, '{reason="unauthenticated"}')
    yield Sample(*cut, metrics.cut_for_idling, '{reason="idle"}')
    for code, count in sorted(metrics.errors.items()):
        yield Sample("tidelog_errors_total", "counter", "Error replies.", count, f'{{code="{label(code)}"}}')
    yield from _commands(metrics.commands)
    yield Sample("tidelog_pubsub_channels", "gauge", "Channels with listeners.", len(subscriptions.channels()))
    yield Sample("tidelog_pubsub_patterns", "gauge", "Patterns with listeners.", subscriptions.pattern_count())
    yield Sample("tidelog_pubsub_messages_total", "counter", "Messages published.", subscriptions.message_count)
    yield Sample(
        "tidelog_pubsub_deliveries_total", "counter", "Messages sent to someone.", subscriptions.delivery_count
    )


def _commands(tallies: Tallies) -> Iterator[Sample]:
    """What INFO commandstats has; numbers of one name must follow each other."""
    counted = [(f'{{command="{name.lower()}"}}', tally) for name, tally in tallies.counted()]
    for command, tally in counted:
        yield Sample("tidelog_command_calls_total", "counter", "Commands that ran.", tally.calls, command)
    for command, tally in counted:
        yield Sample("tidelog_command_seconds_total", "counter", "What they took.", tally.seconds, command)
    for command, tally in counted:
        yield Sample("tidelog_command_failed_total", "counter", "Answered with an error.", tally.failed, command)
    for command, tally in counted:
        yield Sample("tidelog_command_rejected_total", "counter", "Refused before they ran.", tally.rejected, command)


def _keyspace(engine: Engine) -> Iterator[Sample]:
    databases = engine.store.databases
    for database in databases:
        yield Sample("tidelog_keys", "gauge", "Keys.", database.size, f'{{db="{database.number}"}}')
    for database in databases:
        count = len(database.expiries)
        yield Sample("tidelog_keys_expiring", "gauge", "Keys that expire.", count, f'{{db="{database.number}"}}')
    yield Sample("tidelog_expired_keys_total", "counter", "Keys that have expired.", engine.store.expired_count)


def _retention(retention: StreamRetention) -> Iterator[Sample]:
    figures = retention.figures
    yield Sample("tidelog_streams_configured", "gauge", "Streams that TCONFIG has set.", retention.ruled_count)
    yield Sample("tidelog_stream_bytes_max", "gauge", "stream-bytes-max; 0: none.", figures.stream_bytes_max)
    yield Sample("tidelog_stream_bytes", "gauge", "Of all streams; counted if there is a limit.", figures.stream_bytes)
    yield Sample("tidelog_stream_bytes_stuck", "gauge", "1: too much, and none may go.", figures.is_stuck)
    for reason in REASONS:
        entries, name = figures.entries[reason], "tidelog_stream_evicted_entries_total"
        yield Sample(name, "counter", "Entries that went by themselves.", entries, f'{{reason="{reason}"}}')
    for reason in REASONS:
        size, name = figures.bytes[reason], "tidelog_stream_evicted_bytes_total"
        yield Sample(name, "counter", "Their size.", size, f'{{reason="{reason}"}}')


def _machine(memory: Memory) -> Iterator[Sample]:
    yield Sample("tidelog_memory_bytes", "gauge", "Memory of the process.", memory.used_bytes)
    yield Sample("tidelog_memory_limit_bytes", "gauge", "maxmemory; 0: none.", memory.limit_bytes)


def _disk(facts: Facts) -> Iterator[Sample]:
    yield Sample("tidelog_journal_bytes", "gauge", "The journal on disk.", facts.journal_bytes)
    space = facts.snapshots.space
    yield Sample("tidelog_disk_free_bytes", "gauge", "Room on the disk of the journal.", space.free_bytes)
    yield Sample("tidelog_disk_nearly_full", "gauge", "1: old segments are erased to make room.", space.is_low)
    yield Sample(
        "tidelog_erased_for_space_segments_total", "counter", "Segments erased to make room.", space.segments_erased
    )
    yield Sample("tidelog_erased_for_space_bytes_total", "counter", "Their size.", space.bytes_erased)


def _journal(engine: Engine, facts: Facts) -> Iterator[Sample]:
    journal = engine.store.journal
    writer, cut = journal.writer, journal.cut_tail
    yield Sample("tidelog_writable", "gauge", "1: writes are taken.", writer.refusal is None)
    yield Sample("tidelog_journal_cycle", "counter", "The newest cycle that is written.", writer.written.cycle)
    yield Sample("tidelog_journal_synced_cycle", "counter", "The newest that is durable.", writer.synced_cycle)
    yield Sample("tidelog_journal_written_ts", "counter", "Newest transaction written (us).", writer.written_ts)
    yield Sample("tidelog_journal_durable_ts", "counter", "Newest transaction durable (us).", writer.durable_ts)
    yield Sample("tidelog_journal_lag_seconds", "gauge", "Written and not yet durable.", facts.not_durable_us / 1e6)
    yield Sample("tidelog_journal_backlog_bytes", "gauge", "Written and not yet durable.", facts.unsynced_bytes)
    yield Sample("tidelog_cut_tails_total", "counter", "Starts that cut a torn tail.", journal.cut_tail_count)
    size, records = (0, 0) if cut is None else (cut.size_bytes, cut.records)
    yield Sample("tidelog_cut_tail_bytes", "gauge", "What this start cut and set aside.", size)
    yield Sample("tidelog_cut_tail_records", "gauge", "Records in it, as far as they can be told apart.", records)
    yield from _histogram("tidelog_fsync_seconds", "How long fsyncs took.", engine.metrics.syncs)


def _feeds(engine: Engine) -> Iterator[Sample]:
    figures = engine.feeding.figures()
    for state, count in figures.states.items():
        yield Sample("tidelog_feeds", "gauge", "Feeds that are open.", count, f'{{state="{label(state)}"}}')
    yield Sample("tidelog_feeds_total", "counter", "Feeds that were opened.", figures.opened_count)
    yield Sample("tidelog_feeds_delayed_total", "counter", "Feeds begun too often.", figures.delayed_count)
    yield Sample("tidelog_feed_events_total", "counter", "Events made for feeds.", figures.event_count)
    yield Sample("tidelog_feed_bytes_total", "counter", "Sent to feeds.", figures.sent_bytes)
    yield Sample("tidelog_feed_buffer_bytes", "gauge", "What waits for readers.", figures.buffer_bytes)
    yield Sample("tidelog_feed_lag_seconds", "gauge", "The feed furthest behind.", figures.lag_ms / 1000)
    for name, ms in figures.named_lag_ms.items():
        labels = f'{{name="{label(name)}"}}'
        yield Sample("tidelog_feed_named_lag_seconds", "gauge", "Feeds with a name.", ms / 1000, labels)


def _snapshots(engine: Engine, facts: Facts) -> Iterator[Sample]:
    now = facts.snapshots
    yield Sample("tidelog_snapshot_under_way", "gauge", "1: one is being made.", now.is_under_way)
    yield Sample("tidelog_snapshots_total", "counter", "Snapshots that were made.", now.made)
    yield Sample("tidelog_snapshot_failures", "gauge", "That failed since the last one was made.", now.failures)
    yield Sample(
        "tidelog_snapshot_last_seconds", "gauge", "When one was last made (unix time).", engine.snapshots.last_s
    )
    yield Sample("tidelog_snapshot_duration_seconds", "gauge", "How long that took.", now.last_took_s or 0)
    yield Sample("tidelog_snapshot_bytes", "gauge", "The newest snapshot on disk.", now.newest_bytes)
    yield Sample("tidelog_snapshot_keys", "gauge", "Keys in it.", now.newest_keys or 0)
    yield Sample("tidelog_scrub_bytes_total", "counter", "Read of node files by the scrub.", now.scrub.bytes)
    yield Sample("tidelog_scrub_passes_total", "counter", "Passes over all node files.", now.scrub.passes)
    yield Sample("tidelog_scrub_pass_bytes", "gauge", "Read in the pass under way.", now.scrub.pass_bytes)
    yield Sample("tidelog_scrub_damaged_nodes", "gauge", "Damaged places that it found.", now.scrub.damaged)
    yield Sample("tidelog_journal_since_snapshot_bytes", "gauge", "Journal written since it.", now.bytes_since)


def _histogram(name: str, text: str, durations: Durations) -> Iterator[Sample]:
    count = 0
    for bound, more in zip([*durations.bounds_s, None], durations.counts, strict=True):
        count += more
        label = "+Inf" if bound is None else f"{bound:g}"
        yield Sample(name, "histogram", text, count, f'{{le="{label}"}}', "_bucket")
    yield Sample(name, "histogram", text, durations.total_s, suffix="_sum")
    yield Sample(name, "histogram", text, count, suffix="_count")
