"""Lakes: each change once, and what holds is what the server has, wherever a job was ended."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.feeds.rebuilt import apply_list
from tests.integration.server_process import ServerProcess
from tests.spark.lake_check import InProcess, Lake, address_of, check, fed_entries, stored
from tidelog import limits
from tidelog.errors import ClientError, EnvironmentFault
from tidelog.spark.delta.faults import TableFault, TableTaken, TableUnusable
from tidelog.spark.delta.storage import find_storage
from tidelog.spark.delta.table import HistoryPoint
from tidelog.spark.jobs.job_lease import JobRunning, Stop
from tidelog.spark.lake.batches import BatchTotals
from tidelog.spark.lake.job import LakeJob, LakeOptions
from tidelog.spark.lake.layout import BAD, CHANGES, CURRENT, ENTRIES, SEQ_INITIAL
from tidelog.spark.lake.tables import LakeTable

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(300)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """With three shards, and a journal that has everything."""
    with ServerProcess(tmp_path / "data", "--shards", "3", has_flight=True) as running:
        yield running


def write(client: Any, draw: random.Random, count: int) -> None:
    """Some of everything that changes keys."""
    for _ in range(count):
        number = draw.randrange(20)
        value = b"%d\xff" % draw.randrange(1000)
        match draw.randrange(12):
            case 0 | 1 | 2:
                client.set(b"s:%d" % number, value)
            case 3 | 4:
                client.hset(b"h:%d" % number, b"f%d" % draw.randrange(4), value)
            case 5:
                client.hdel(b"h:%d" % number, b"f%d" % draw.randrange(4))
            case 6:
                client.sadd(b"m:%d" % number, value)
            case 7:
                client.zadd(b"z:%d" % number, {value: draw.random()})
            case 8:
                client.delete(b"%b:%d" % (draw.choice([b"s", b"h", b"m", b"z", b"x"]), number))
            case 9:
                client.xadd(b"x:%d" % number, {b"f": value})
            case 10:
                client.execute_command("TWRITE", b"x:%d" % number, "ENTRIES", b"t", value, b"t", value)
            case _:
                pipeline = client.pipeline()
                for other in range(3):
                    pipeline.set(b"s:%d" % (number + other), value)
                pipeline.execute()


# --- through Spark ----------------------------------------------------------------------------------------------------


def run_job(spark: SparkSession, server: ServerProcess, folder: Path, **options: Any) -> LakeJob:
    job = LakeJob(address_of(server.port), find_storage(str(folder)), LakeOptions(**options))
    job.run(lambda: spark, Stop())
    return job


def test_a_lake_takes_what_there_is_and_goes_on(spark: SparkSession, server: ServerProcess, tmp_path: Path) -> None:
    lake, draw = Lake(tmp_path / "lake"), random.Random(1)
    with server.client() as client:
        write(client, draw, 300)
        client.flushdb()
        write(client, draw, 300)
        job = run_job(spark, server, lake.folder)
        check(server.port, client, lake.folder)
        figures = job.figures()
        assert figures["changes"] == len(lake.changes())
        assert figures["current_ts"] == figures["ts"]
        write(client, draw, 100)
        run_job(spark, server, lake.folder)
        check(server.port, client, lake.folder)
        assert client.hget("tidelog:pipeline:lake", "state") == b"done"
    days = {row["day"] for row in lake.rows(CHANGES)}
    assert days == {row["timestamp"].date() for row in lake.rows(CHANGES)}


def test_a_lake_that_stays_is_stopped_in_order(spark: SparkSession, server: ServerProcess, tmp_path: Path) -> None:
    folder, draw, stop = tmp_path / "lake", random.Random(2), Stop()
    seen = 0

    def on_batch(taken: BatchTotals) -> None:
        nonlocal seen
        seen = taken.events
        if seen > 200:
            stop.because("enough")

    with server.client() as client:
        write(client, draw, 100)
        options = LakeOptions(is_once=False, trigger_s=0.1, start="earliest")
        job = LakeJob(address_of(server.port), find_storage(str(folder)), options, lambda taken: on_batch(taken))
        writer = Writing(client, draw)
        with writer:
            job.run(lambda: spark, stop)
        assert seen > 200
        assert client.hget("tidelog:pipeline:lake", "state") == b"stopped"
        assert not list(client.scan_iter("tidelog:pipeline:lease:lake:*"))
        run_job(spark, server, folder, start="earliest")
        check(server.port, client, folder)


class Writing:
    """Writes while its block runs."""

    def __init__(self, client: Any, draw: random.Random) -> None:
        import threading

        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._write, args=(client, draw), daemon=True)

    def _write(self, client: Any, draw: random.Random) -> None:
        while not self._ends.wait(0.05):
            write(client, draw, 20)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join(30)


@pytest.mark.long
def test_a_lake_has_one_keeper(spark: SparkSession, server: ServerProcess, tmp_path: Path) -> None:
    options = LakeOptions()
    first = LakeJob(address_of(server.port), find_storage(str(tmp_path / "lake")), options)
    second = LakeJob(address_of(server.port), find_storage(str(tmp_path / "lake")), options)

    def on_spark() -> SparkSession:
        with pytest.raises(JobRunning, match="did not start: another job has the lease"):
            second.run(lambda: spark, Stop())
        return spark

    first.run(on_spark, Stop())


@pytest.mark.long
def test_history_that_is_lost_ends_it(spark: SparkSession, server: ServerProcess, tmp_path: Path) -> None:
    with server.client() as client:
        client.set("a", "1")
        run_job(spark, server, tmp_path / "lake")
    with ServerProcess(tmp_path / "other", "--shards", "3") as other, other.client() as client:
        client.set("b", "1")
        with pytest.raises(ClientError, match=r"has changes that the server has lost.*--start initial"):
            run_job(spark, other, tmp_path / "lake")


# --- where it begins --------------------------------------------------------------------------------------------------


def test_a_lake_may_begin_with_the_values_of_now(server: ServerProcess, tmp_path: Path) -> None:
    draw = random.Random(3)
    options = LakeOptions(start="initial")
    with server.client() as client:
        write(client, draw, 500)
        client.execute_command("TWRITE", "x:ruled", "ENTRIES", "t", "a")
        client.execute_command("TCONFIG", "x:ruled", "MAXBYTES", "1000000")
        had = streams(client)
        begun = InProcess(server.port, tmp_path / "lake", options).take()
        lake = Lake(tmp_path / "lake")
        assert lake.rows(CHANGES) == []
        assert lake.current() == stored(client)
        assert {row["seq"] for row in lake.rows(CURRENT)} == {SEQ_INITIAL}
        assert lake.entries() == had
        write(client, draw, 200)
        InProcess(server.port, tmp_path / "lake", options).run()
        check(server.port, client, tmp_path / "lake", since=begun)


def test_a_stream_that_is_renamed_or_copied_brings_its_entries(server: ServerProcess, tmp_path: Path) -> None:
    with server.client() as client:
        for number in range(30):
            client.xadd("x:{a}old", {"n": number})
        client.rename("x:{a}old", "x:{a}new")
        client.copy("x:{a}new", "x:{a}copy")
        client.xadd("x:{a}copy", {"n": 30})
        client.xdel("x:{a}copy", client.xrange("x:{a}copy", count=1)[0][0])
        InProcess(server.port, tmp_path / "lake").run()
        lake = Lake(tmp_path / "lake")
        assert lake.current() == stored(client)
        assert sorted(each for each in lake.entries() if each[0] != b"x:{a}old") == streams(client)


def streams(client: Any) -> list[tuple[bytes, int]]:
    """The entries that are there."""
    found = []
    for key in client.scan_iter("x:*"):
        found += [(key, entry[0]) for entry in client.execute_command("TREAD", key, 1, 10_000) if entry]
    return sorted(found)


def test_entries_come_once_though_streams_grow_while_values_are_read(
    server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values are read after the ts from which changes follow."""
    with server.client() as client:
        for number in range(10):
            client.xadd(f"x:{number % 4}", {"n": number})
        run = InProcess(server.port, tmp_path / "lake", LakeOptions(start="initial"))
        original = run.batches._read

        def write_first(*arguments: Any) -> Any:
            for number in range(8):
                client.xadd(f"x:{number}", {"n": number})
            client.set("a", "1")
            return original(*arguments)

        monkeypatch.setattr(run.batches, "_read", write_first)
        begun = run.take()
        lake = Lake(tmp_path / "lake")
        assert len(lake.entries()) == 18
        client.xadd("x:0", {"n": 1})
        InProcess(server.port, tmp_path / "lake", LakeOptions(start="initial")).run()
        assert lake.entries() == streams(client)
        check(server.port, client, tmp_path / "lake", since=begun)


@pytest.mark.parametrize("start", ["earliest", "initial"])
def test_lists_can_be_rebuilt_from_changes(
    server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: str
) -> None:
    """Those that were there when the lake began, too, although they changed while values were read."""
    options = LakeOptions(start=start)
    with server.client() as client:
        client.rpush("l:1", *range(700), b"\xff")
        client.rpush("l:2", "a", "b", "c")
        run = InProcess(server.port, tmp_path / "lake", options)
        original = run.batches._read

        def write_first(*arguments: Any) -> Any:
            client.lpop("l:1", 3)
            client.lset("l:2", 0, "A")
            client.rpush("l:3", "new")
            return original(*arguments)

        monkeypatch.setattr(run.batches, "_read", write_first)
        run.take()
        client.ltrim("l:1", 0, 600)
        client.linsert("l:1", "AFTER", "7", "x")
        client.lmove("l:2", "l:3")
        client.rpop("l:2", 2)
        run = InProcess(server.port, tmp_path / "lake", options)
        run.run()
        lake = Lake(tmp_path / "lake")
        rebuilt: dict[bytes, Any] = {}
        for row in sorted(lake.rows(CHANGES), key=lambda row: (row["ts"], row["seq"])):
            value = json.loads(row["value"], object_hook=lambda found: base64.b64decode(found["base64"]))
            apply_list(rebuilt, row["key"], row["field"], _as_bytes(value), is_strict=start == "earliest")
        there: Any = client
        assert {key: value[1] for key, value in rebuilt.items()} == {
            key: there.lrange(key, 0, -1) for key in there.scan_iter()
        }
        assert lake.current() == {}


def _as_bytes(value: Any) -> Any:
    if isinstance(value, list):
        return [_as_bytes(part) for part in value]
    return value.encode() if isinstance(value, str) else value


@pytest.mark.long
def test_a_lake_may_begin_now(spark: SparkSession, server: ServerProcess, tmp_path: Path) -> None:
    with server.client() as client:
        client.set("before", "1")
        run_job(spark, server, tmp_path / "lake", start="latest")
        client.set("after", "1")
        run_job(spark, server, tmp_path / "lake", start="latest")
    assert list(Lake(tmp_path / "lake").current()) == [(b"after", None)]


def test_prefixes_choose_and_jobs_are_left_out(server: ServerProcess, tmp_path: Path) -> None:
    with server.client() as client:
        for key in ("order:1", "tidelog:pipeline:lake", "cart:1", "other", "orde"):
            client.set(key, "1")
        for name, prefixes, expected in (
            ("some", ("order:", "cart:"), {b"order:1", b"cart:1"}),
            ("all", (), {b"order:1", b"cart:1", b"other", b"orde"}),
        ):
            InProcess(server.port, tmp_path / name, LakeOptions(prefixes=prefixes)).run()
            assert {key for key, _ in Lake(tmp_path / name).current()} == expected
            assert {row["key"] for row in Lake(tmp_path / name).rows(CHANGES)} == expected


def test_entries_are_rows(server: ServerProcess, tmp_path: Path) -> None:
    with server.client() as client:
        client.xadd("x", {"f": "v", "g": "w"}, id="1700000000000-7")
        link: Any = client
        link.execute_command("TWRITE", b"\xff", "ENTRIES", "tag", "entry", "tag", "more")
        InProcess(server.port, tmp_path).run()
    rows = sorted(Lake(tmp_path).rows(ENTRIES), key=lambda row: (row["stream"], row["offset"]))
    assert [(row["stream"], row["offset"], row["tag"], row["entry"]) for row in rows] == [
        (b"x", 1, b"", None),
        (b"\xff", 1, b"tag", b"entry"),
        (b"\xff", 2, b"tag", b"more"),
    ]
    assert rows[0]["fields"] == [(b"f", b"v"), (b"g", b"w")]
    assert rows[0]["id"] == "1700000000000-7"
    assert rows[0]["timestamp"].isoformat() == "2023-11-14T22:13:20+00:00"
    assert [row["value"] for row in Lake(tmp_path).rows(CHANGES)] == [None, None]


# --- killed -----------------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """Nothing after this happens."""


def kill_at(monkeypatch: pytest.MonkeyPatch, number: int) -> Callable[[], int]:
    """End everything at the so manieth commit: before it for even numbers, after it for odd ones."""
    count = 0
    original = LakeTable.commit

    def commit(self: LakeTable, *arguments: Any, **options: Any) -> None:
        nonlocal count
        count += 1
        if count == number // 2 + 1 and number % 2 == 0:
            raise Killed
        original(self, *arguments, **options)
        if count == number // 2 + 1:
            raise Killed

    monkeypatch.setattr(LakeTable, "commit", commit)
    return lambda: count


@pytest.mark.parametrize("start", ["initial", pytest.param("earliest", marks=pytest.mark.long)])
def test_killed_at_every_commit(
    server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: str
) -> None:
    """Whichever commit was the last, the next run makes it whole; the batch that it takes is a larger one then."""
    draw = random.Random(4)
    options = LakeOptions(start=start, is_json=True)
    number, was_killed = 0, True
    with server.client() as client:
        while was_killed:
            folder = tmp_path / f"lake{number}"
            write(client, draw, 40)
            runs: list[InProcess] = []
            with monkeypatch.context() as patch:
                kill_at(patch, number)
                try:
                    for _ in range(3):
                        runs.append(InProcess(server.port, folder, options))
                        runs[-1].take()
                        runs[-1].fold()
                        write(client, draw, 20)
                    was_killed = False
                except Killed:
                    pass
            write(client, draw, 20)
            runs.append(InProcess(server.port, folder, options))
            runs[-1].run()
            begun = max(run.initial_ts for run in runs)
            check(server.port, client, folder, since=begun)
            lake = Lake(folder)
            entries = [(row["stream"], row["id"]) for row in lake.rows(ENTRIES)]
            assert len(set(entries)) == len(entries)
            if start == "earliest":
                assert sorted(entries) == fed_entries(f"redis://127.0.0.1:{server.port}")
            names = ("table", "shard", "ts", "seq", "offset", "key", "field")
            bad = [tuple(row[name] for name in names) for row in lake.rows(BAD)]
            assert len(set(bad)) == len(bad) > 0
            number += 1
    assert number > 8


def test_of_two_jobs_one_is_told(server: ServerProcess, tmp_path: Path) -> None:
    """The lease is on the server; two servers, or none that is asked, and the table itself notices."""
    with server.client() as client:
        client.set("a", "1")
        first, second = (InProcess(server.port, tmp_path) for _ in range(2))
        first.take()
        with pytest.raises(TableTaken, match="another job wrote to this table"):
            second.take()
        client.set("a", "2")
        first.run()
        check(server.port, client, tmp_path)


def job_at(folder: Path, port: int = 1, **options: Any) -> LakeJob:
    return LakeJob(address_of(port), find_storage(str(folder)), LakeOptions(**options))


def test_what_any_table_has_must_still_be_history(tmp_path: Path) -> None:
    """Killed between two commits, with the server in its next epoch by then."""
    job = job_at(tmp_path, is_json=True)
    tables = job._open()
    tables[CHANGES].commit([], HistoryPoint(10, 3))
    assert json.loads(job._start(tables)) == {"ts": 10, "epoch": 3, "seen": 10}
    tables[ENTRIES].commit([], HistoryPoint(20, 4))
    tables[BAD].commit([], HistoryPoint(15, 4))
    assert json.loads(job._start(tables)) == {"ts": 10, "epoch": 4, "seen": 20}


@pytest.mark.parametrize("start", ["auto", "earliest", "latest"])
def test_a_start_with_values_that_was_killed_is_finished_as_one(tmp_path: Path, start: str) -> None:
    """Whatever is asked for then: what it left would be there twice, or out of date."""
    job = job_at(tmp_path, start=start)
    tables = job._open()
    tables[CURRENT].commit([], HistoryPoint(10, 3))
    assert job._start(tables) == "initial"


def test_tables_are_looked_at_after_batches(
    server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is done meanwhile is done all the time."""
    looked: list[str] = []
    original = LakeTable.refresh
    run = InProcess(server.port, tmp_path)
    job = job_at(tmp_path, server.port)
    job._batches = run.batches

    def refresh(self: LakeTable) -> None:
        looked.append(self.name)
        original(self)

    monkeypatch.setattr(LakeTable, "refresh", refresh)
    with server.client() as client:
        for number in range(2):
            client.set("a", str(number))
            run.take()
            looked.clear()
            for _ in range(5):
                job._work_between(run.tables, run.current, run.executors)
            assert looked.count(CHANGES) == 1
            run.current.last_s, run.current._rewritten_bytes = 0.0, 0
            job._work_between(run.tables, run.current, run.executors)
            assert not run.current.is_behind
        check(server.port, client, tmp_path)


def test_passes_wait_for_the_first_batch(
    server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that was killed may leave a pass to do, but Spark has to come up first. It does not wait for ever."""
    with server.client() as client:
        client.set("a", "1")
        InProcess(server.port, tmp_path).take()
        run = InProcess(server.port, tmp_path)
        job = job_at(tmp_path, server.port)
        job._batches = run.batches
        run.current.refresh()
        job._work_between(run.tables, run.current, run.executors)
        assert run.current.is_behind
        monkeypatch.setattr("tidelog.limits.LAKE_FIRST_BATCH_S", 0.0)
        job._work_between(run.tables, run.current, run.executors)
        assert not run.current.is_behind


def test_files_that_are_elsewhere_are_not_committed(
    server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of executors that do not share the folder."""
    with server.client() as client:
        client.set("a", "1")
        run = InProcess(server.port, tmp_path)
        original = run.batches._read

        def lose(*arguments: Any) -> Any:
            found = original(*arguments)
            for file in found[0]:
                (tmp_path / file.table / file.path).unlink()
            return found

        monkeypatch.setattr(run.batches, "_read", lose)
        with pytest.raises(TableFault, match=r"part-.* cannot be found here: executors on other machines must share"):
            run.take()
        InProcess(server.port, tmp_path).run()
        check(server.port, client, tmp_path)


# --- what is there ----------------------------------------------------------------------------------------------------


def test_what_is_no_lake_is_left_alone(server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "changes").mkdir()
    (tmp_path / "changes" / "thesis.txt").write_text("all my work")
    with pytest.raises(TableUnusable, match=r"holds files and is not a Delta table \(thesis\.txt\)"):
        InProcess(server.port, tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises((TableUnusable, EnvironmentFault), match="file"):
        InProcess(server.port, tmp_path / "file")


def test_a_lake_is_kept_with_the_settings_it_was_made_with(server: ServerProcess, tmp_path: Path) -> None:
    InProcess(server.port, tmp_path, LakeOptions(prefixes=("a", "b")))
    InProcess(server.port, tmp_path, LakeOptions(prefixes=("b", "a")))
    with pytest.raises(TableUnusable, match="made with other settings"):
        InProcess(server.port, tmp_path, LakeOptions(prefixes=("a",)))


def test_another_table_is_not_taken_for_ours(server: ServerProcess, tmp_path: Path) -> None:
    import pyarrow as pa
    from deltalake import write_deltalake

    write_deltalake(str(tmp_path / "changes"), pa.table({"a": [1]}))
    with pytest.raises(TableUnusable, match="did not make"):
        InProcess(server.port, tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start": "sometime"}, "give one of auto"),
        ({"prefixes": ("tidelog:pipeline:lease",)}, "does not hold the reports of jobs"),
        ({"prefixes": tuple(f"p{n}" for n in range(limits.FEED_SPANS_MAX + 1))}, "prefixes, more than"),
    ],
)
def test_bad_options_are_refused(options: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ClientError, match=message):
        LakeJob(address_of(1), find_storage(str(tmp_path)), LakeOptions(**options))
