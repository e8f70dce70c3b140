"""What streams take in memory and on disk: totals that nobody has to count."""

from __future__ import annotations

from tests.engine.made import NoLoop, make_engine
from tests.store.changes import open_store, run
from tests.store.cold import KEYS, NODE_ENTRIES, fill
from tests.streams.cold_nodes import cool
from tidelog.engine.engine import Engine
from tidelog.server.memory import Memory
from tidelog.server.stream_figures import StreamFigures, stream_figures
from tidelog.store.store import Store
from tidelog.streams.stream import Stream
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk

MEMORY = Memory(0, 1234)


def made() -> tuple[Store, Engine]:
    store = open_store(SimulatedDisk(), 2)
    return store, make_engine(store, SimulatedClock(), NoLoop())


def streams_of(store: Store) -> list[Stream]:
    return [found for key in KEYS if isinstance(found := store.database(0).find(key), Stream)]


def look(store: Store) -> None:
    """A pass under which nothing becomes cold."""
    assert store.cooling is not None
    for _ in store.cooling.look(is_pressed=False):
        pass


def test_they_are_the_sum_of_what_the_streams_say() -> None:
    store, engine = made()
    fill(store, nodes=3)
    for number in range(NODE_ENTRIES):
        run(store, [b"XADD", b"orders", b"*", b"n", b"%d" % number])
    streams = streams_of(store)
    streams[0].seal()
    look(store)
    found = stream_figures(engine, MEMORY)
    assert found.stream_memory_bytes == sum(stream.size_bytes for stream in streams)
    assert found.stream_disk_bytes == sum(stream.disk_bytes for stream in streams) > 0
    assert (found.stream_hot_nodes, found.stream_cold_nodes) == (1, 9)
    assert found.hot_stream_bytes == streams[0].sealed[-1].opened_bytes
    assert found.hot_stream_bytes_max == 1234
    assert found.node_files == 2
    assert found.node_file_bytes > found.stream_disk_bytes
    assert found.node_file_garbage_ratio == 0
    assert found.cooled_nodes == 9
    assert found.cooled_bytes == sum(node.opened_bytes for stream in streams for node in stream.sealed if node.is_cold)


def test_they_follow_what_is_deleted() -> None:
    store, engine = made()
    fill(store, nodes=2, keys=(b"orders", b"clicks"))
    before = stream_figures(engine, MEMORY)
    run(store, [b"DEL", b"clicks"])
    run(store, [b"TEVICT", b"orders", b"%d" % NODE_ENTRIES])
    look(store)
    after = stream_figures(engine, MEMORY)
    (orders,) = streams_of(store)
    assert after.stream_disk_bytes == orders.disk_bytes < before.stream_disk_bytes / 2
    assert after.stream_cold_nodes == 1
    assert after.node_file_bytes == before.node_file_bytes
    assert 0.6 < after.node_file_garbage_ratio < 0.9
    assert after.stream_memory_bytes == orders.size_bytes < before.stream_memory_bytes


def test_nodes_that_are_written_once_more_are_not_cooled_twice() -> None:
    store, engine = made()
    fill(store, nodes=3, keys=(b"orders", b"clicks"))
    assert store.cooling is not None
    store.cooling.files.close()  # full files
    run(store, [b"TEVICT", b"orders", b"%d" % (2 * NODE_ENTRIES)])
    run(store, [b"TEVICT", b"clicks", b"%d" % (2 * NODE_ENTRIES)])
    cool(store)
    found = stream_figures(engine, MEMORY)
    assert found.cooled_nodes == 6
    assert found.rewritten_nodes == 2
    assert found.rewritten_bytes == found.stream_disk_bytes


def test_a_store_that_keeps_all_in_memory_has_none() -> None:
    store, engine = made()
    store.cooling = None
    assert stream_figures(engine, MEMORY) == StreamFigures()
