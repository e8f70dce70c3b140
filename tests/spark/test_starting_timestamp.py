"""`startingTimestamp`: the first row at or after a moment, in all kinds that have one."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from tests.cli.directories import fill
from tests.days.days_of_events import JOBSET, on
from tests.spark.conftest import Peer
from tests.spark.in_process import micro_batches, read, reader, rows_between
from tests.spark.test_feed_micro_batches import position, set_values, values_between
from tidelog import limits
from tidelog.days import Writer
from tidelog.spark.options import BadOption
from tidelog.system.disk import SystemDisk

pytestmark = pytest.mark.xdist_group("spark")

ALL = ReadAllAvailable()
NOON_MS = int(datetime(2025, 11, 15, 12, tzinfo=UTC).timestamp() * 1000)
NOON = "2025-11-15T12:00:00Z"


@pytest.fixture(autouse=True)
def nothing_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SPARK_POLL_S", 0.0)


def add(peer: Peer, *ms: int) -> None:
    for each in ms:
        peer.client.xadd("s", {"tag": "t", "entry": str(each - NOON_MS)}, id=f"{each}-0")


def found(made: Any) -> list[int]:
    start = made.initialOffset()
    return [int(row["entry"]) for row in rows_between(made, start, made.latestOffset(start, ALL))]


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        (NOON, [0, 1000]),
        (str(1000 * NOON_MS), [0, 1000]),
        (str(1000 * NOON_MS + 1), [1000]),
        ("2025-11-15T11:59:58Z", [-1000, 0, 1000]),
        ("2025-11-15T13:00:00+02:00", [-1000, 0, 1000]),
    ],
)
def test_a_stream_begins_at_a_moment(peer: Peer, moment: str, expected: list[int]) -> None:
    add(peer, NOON_MS - 1000, NOON_MS, NOON_MS + 1000)
    rows = read(stream="s", url=peer.url, startingTimestamp=moment).to_pylist()
    assert [int(row["entry"]) for row in rows] == expected
    assert found(micro_batches(stream="s", url=peer.url, startingTimestamp=moment)) == expected


def test_a_moment_behind_the_last_entry_waits_for_the_next(peer: Peer) -> None:
    add(peer, NOON_MS)
    made = micro_batches(stream="s", url=peer.url, startingTimestamp="2025-11-16")
    start = made.initialOffset()
    assert made.latestOffset(start, ALL) == start
    add(peer, NOON_MS + 86_400_000)
    end = made.latestOffset(start, ALL)
    assert [row["entry"] for row in rows_between(made, start, end)] == [b"86400000"]
    restarted = micro_batches(stream="s", url=peer.url, startingTimestamp="2025-11-16")
    assert [row["entry"] for row in rows_between(restarted, restarted.initialOffset(), end)] == [b"86400000"]


def test_a_moment_that_is_still_to_come(tide: Peer) -> None:
    add(tide, NOON_MS)
    ahead = 1_000_000 * int(time.time() + 3600)
    targets: list[dict[str, Any]] = [{"stream": "s"}, {"feed": "*"}]
    for target in targets:
        made = micro_batches(url=tide.url, startingTimestamp=ahead, **target)
        with pytest.raises(BadOption, match=r"startingTimestamp=.* lies ahead of the server's clock"):
            made.initialOffset()
    with pytest.raises(BadOption, match=r"startingTimestamp=.* lies ahead of the server's clock"):
        reader(feed="*", url=tide.url, startingTimestamp=ahead).partitions()


def test_a_feed_begins_at_a_moment(tide: Peer) -> None:
    set_values(tide.client, "1")
    since = position(tide.client)
    set_values(tide.client, "2", "3")
    second = read(feed="key:k", url=tide.url, since=since).to_pylist()[0]["ts"]
    for moment, expected in ((second, ["2", "3"]), (second + 1, ["3"])):
        rows = read(feed="key:k", url=tide.url, startingTimestamp=moment).to_pylist()
        assert [row["value"].decode() for row in rows] == expected
        made = micro_batches(feed="key:k", url=tide.url, startingTimestamp=moment)
        start = made.initialOffset()
        assert values_between(made, start, made.latestOffset(start, ALL)) == expected


def test_days_begin_at_a_moment(peer: Peer) -> None:
    Writer(peer.client, JOBSET).write([*on(1, range(5)), *on(2, range(5))])
    third = on(2, range(5))[2].id
    rows = read(days="queue/jobs", url=peer.url, startingTimestamp=1000 * third.ms).to_pylist()
    assert [row["id"] for row in rows] == [str(message.id) for message in on(2, range(5))[2:]]


def test_a_journal_begins_at_a_moment(tmp_path: Path) -> None:
    folder = str(tmp_path / "data")
    fill(SystemDisk(), folder, sidecars=True)
    ts = sorted(set(read(journal=folder).column("ts").to_pylist()))
    middle = ts[len(ts) // 2]
    if middle < 10**14:
        with pytest.raises(BadOption, match="lies before 1974: give µs and not ms, or an ISO time"):
            reader(journal=folder, startingTimestamp=middle)
    moment = datetime.fromtimestamp(middle / 1e6, UTC).isoformat()
    found = set(read(journal=folder, starting_timestamp=moment).column("ts").to_pylist())
    assert found == {each for each in ts if each >= middle}


@pytest.mark.parametrize(
    ("target", "other", "is_endless"),
    [
        ({"stream": "s"}, {"from_offset": 1}, False),
        ({"stream": "s"}, {"from_time": NOON}, False),
        ({"stream": "s"}, {"start": "latest"}, True),
        ({"feed": "*"}, {"since": 1}, False),
        ({"feed": "*"}, {"start": "latest"}, True),
        ({"days": "a/b"}, {"from_id": "1-0"}, False),
        ({"journal": "data"}, {"since": 1}, False),
    ],
)
def test_two_beginnings_contradict_each_other(target: dict[str, Any], other: dict[str, Any], is_endless: bool) -> None:
    make = micro_batches if is_endless else reader
    with pytest.raises(BadOption, match=f"{next(iter(other))} and startingTimestamp contradict each other"):
        make(**target, **other, startingTimestamp=NOON)
    if target == {"feed": "*"} and not is_endless:
        with pytest.raises(BadOption, match="initial contradicts"):
            make(**target, initial="true", startingTimestamp=NOON)
