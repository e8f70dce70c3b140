"""Views are right again after whatever went wrong, wherever it did."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.integration import limited_server
from tests.integration.server_process import ServerProcess
from tests.spark.kept_views import KeptViews, compare, hashes_of
from tests.spark.random_views import AGGREGATES, GROUPS, RandomView, Scalar
from tests.spark.view_world import World
from tidelog import limits
from tidelog.errors import ClientError, EnvironmentFault
from tidelog.feeds.span import span_of_prefix
from tidelog.spark.delta.faults import TableUnusable
from tidelog.spark.delta.storage import find_storage
from tidelog.spark.delta.table import HistoryPoint
from tidelog.spark.endpoint import Endpoint
from tidelog.spark.jobs.job_lease import JobRunning
from tidelog.spark.runs.run_lists import RunLog
from tidelog.spark.source.feed.position import ask_oldest, explored_feed_server
from tidelog.spark.views.dataflow.change_reader import ask_now
from tidelog.spark.views.dataflow.changes import clear
from tidelog.spark.views.dataflow.correction import Correction
from tidelog.spark.views.dataflow.flow import ViewFlow
from tidelog.spark.views.dataflow.maintained import MaintainedView
from tidelog.spark.views.dataflow.packing import packed_row
from tidelog.spark.views.dataflow.result_table import ResultTable
from tidelog.spark.views.sql.definition import View, ViewSource

pytestmark = pytest.mark.xdist_group("spark")

ORDERS = ViewSource("prefix", "order:")
FORGETFUL = {"RETAIN_BYTES": 0, "SNAPSHOTS_KEPT": 1, "FRAME_BYTES_DEFAULT": 1 << 20, "FRAMES_PER_SEGMENT_MAX": 2}
"""Limits of a server that keeps nothing that a snapshot has."""
CITY = Scalar("cities.name", lambda row: row.get("cities.name"))


def by_city(name: str = "by_city") -> RandomView:
    sql = "select cities.name as city, count(*) as number, max(source.state) as last_state from source "
    sql += "left join cities on cities.key = source.city group by cities.name"
    outputs = {each: AGGREGATES[each] for each in ("number", "last_state")}
    view = View(name, ORDERS, sql, ("city",), {"cities": ViewSource("prefix", "city:")})
    return RandomView(view, {"city": CITY}, outputs, None, "left join", 0)


def by_state(name: str, *outputs: str) -> RandomView:
    chosen = {each: AGGREGATES[each] for each in outputs}
    items = ", ".join(f"{each.sql} as {label}" for label, each in chosen.items())
    sql = f"select source.state as state, {items} from source group by source.state"
    return RandomView(View(name, ORDERS, sql, ("state",)), {"state": GROUPS["state"]}, chosen, None, "", 0)


def of_all(name: str = "of_all") -> RandomView:
    view = View(name, ORDERS, f"select count(*) as number, {AGGREGATES['total'].sql} as total from source", ())
    return RandomView(view, {}, {each: AGGREGATES[each] for each in ("number", "total")}, None, "", 0)


class Scene:
    """A server, a world in it, and a lake."""

    def __init__(self, spark: SparkSession, process: ServerProcess, folder: Path, seed: int = 1) -> None:
        self.client: Any = process.client()
        self.client.flushall()
        self.world = World(self.client, seed, flushes=False)
        self.kept = KeptViews(spark, process.port, folder)
        self.folder = folder

    def change(self) -> None:
        """More of everything, so that each log has something to add."""
        self.world.write(25)
        number = self.world.chance.randrange(10**9)
        self.client.execute_command("HSET", f"city:{number % 4}", "name", f"New {number}")
        self.client.execute_command("DEL", f"order:{number % 12}")
        self.client.execute_command("HSET", f"order:{number % 12}", "state", f"state {number}", "city", "city:1")

    def keep(self, *views: RandomView) -> None:
        self.kept.once([each.view for each in views])

    def compare(self, *views: RandomView, when: object = "") -> None:
        for each in views:
            compare(self.kept, self.world, each, when)

    def make_large(self) -> None:
        """More than a segment has room for."""
        for _ in range(60):
            self.client.set("large", b"v" * 100_000)

    def erase_up_to(self, ts: int) -> None:
        """Of a server that keeps nothing that a snapshot has."""
        deadline = time.monotonic() + 60
        while self.oldest() <= ts:
            assert time.monotonic() < deadline
            self.client.save()
            time.sleep(0.05)

    def oldest(self) -> int:
        return ask_oldest(explored_feed_server(Endpoint(self.kept.address)), span_of_prefix(b""))

    def move(self) -> None:
        """Have the lake elsewhere, where no process has seen it."""
        self.folder = self.folder.rename(self.folder.with_name(f"{self.folder.name}-moved"))
        self.kept = KeptViews(self.kept.spark, self.kept.address.port, self.folder)

    def states(self, name: str) -> list[str]:
        return [each.name for each in (self.folder / "_state" / name).iterdir()]


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("two") / "data", "--shards", "2", has_flight=True) as running:
        yield running


@pytest.fixture
def scene(spark: SparkSession, process: ServerProcess, tmp_path: Path) -> Iterator[Scene]:
    made = Scene(spark, process, tmp_path / "lake")
    yield made
    made.client.close()


# --- errors before and after everything that a batch does -------------------------------------------------------------


class Planted(EnvironmentFault):
    """Not a real one."""


def plant(owner: Any, name: str, number: int, *, is_after: bool) -> Callable[..., Any]:
    """The method, which fails the first time that it is called for the n-th time."""
    original, calls = getattr(owner, name), 0

    def failing(self: Any, *arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls = call = calls + 1  # views are kept on several threads
        if call == number and not is_after:
            raise Planted(f"before {name}")
        found = original(self, *arguments, **named)
        if call == number and is_after:
            raise Planted(f"after {name}")
        return found

    return failing


def noted_builds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The views that are built from now on."""
    built: list[str] = []
    build = MaintainedView.build

    def noted(self: MaintainedView, *arguments: Any) -> None:
        built.append(self.view.name)
        build(self, *arguments)

    monkeypatch.setattr(MaintainedView, "build", noted)
    return built


POINTS = [
    ("build", ViewFlow, "write_results", 1),
    ("build", Correction, "run", 1),
    ("build", ResultTable, "write", 1),
    ("build", RunLog, "commit", 1),
    ("build", RunLog, "commit", 2),
    ("apply", ViewFlow, "touched_rows", 1),
    ("apply", ViewFlow, "write_results", 1),
    ("apply", ViewFlow, "write_results", 2),
    ("apply", ViewFlow, "write_results", 3),
    ("apply", RunLog, "commit", 1),
    ("apply", RunLog, "commit", 2),
    ("look over", Correction, "run", 1),
    ("look over", ResultTable, "write", 1),
    ("look over", ResultTable, "write", 3),
]
OFTEN = [("apply", "write_results", 1, True)]
"""What is always tried."""


def points() -> Iterator[Any]:
    for stage, owner, name, number in POINTS:
        for is_after in (False, True):
            marks = [] if (stage, name, number, is_after) in OFTEN else [pytest.mark.long]
            label = f"{stage}: {'after' if is_after else 'before'} {owner.__name__}.{name} {number}"
            yield pytest.param(stage, owner, name, number, is_after, marks=marks, id=label)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("stage", "owner", "name", "number", "is_after"), list(points()))
def test_views_are_right_after_a_failure(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, stage: str, owner: Any, name: str, number: int, is_after: bool
) -> None:
    views = [by_city(), of_all()]
    scene.change()
    if stage != "build":
        scene.keep(*views)
        scene.change()
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, plant(owner, name, number, is_after=is_after))
        with pytest.raises(Planted):
            scene.keep(*views)
    scene.change()  # so that the batch ends elsewhere
    scene.keep(*views)
    scene.compare(*views)


@pytest.mark.timeout(300)
def test_a_view_that_is_further_than_a_batch_is_left_alone(scene: Scene) -> None:
    """Batches begin where the last of the views is."""
    first, other = of_all(), by_city()
    scene.change()
    scene.keep(first)
    scene.change()
    scene.kept.once([first.view, other.view], batch_records=5)
    scene.compare(first, other)


@pytest.mark.timeout(300)
def test_how_far_a_view_is_is_noted_with_what_changed_and_now_and_then(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.change()
    server = explored_feed_server(Endpoint(scene.kept.address))

    def opened() -> MaintainedView:
        made = MaintainedView(scene.kept.spark, scene.kept.storage, server, by_city().view)
        made.load()
        return made

    view = opened()
    view.build(ask_now(server), 3)
    point = view.point
    assert point is not None
    session = scene.kept.spark

    def apply(later: int, **blobs: Any) -> None:
        view.apply(blobs, HistoryPoint(point.ts + later, point.epoch), is_cleared=False, session=session)
        assert view.point == HistoryPoint(point.ts + later, point.epoch)

    apply(1)
    assert opened().point == point, "what did not change is not noted at once"
    monkeypatch.setattr(limits, "LAKE_IDLE_COMMIT_S", 0.0)
    apply(2)
    assert opened().point == HistoryPoint(point.ts + 2, point.epoch), "but now and then"
    monkeypatch.undo()
    # A change of the lookup alone is noted for the whole view.
    columns = len(view.sources["cities"].columns)
    rows = [packed_row(bucket, [clear(columns)]) for bucket in range(view.buckets)]
    made: Any = session
    apply(3, cities=made.createDataFrame(pa.Table.from_batches(rows)))
    assert opened().point == HistoryPoint(point.ts + 3, point.epoch)
    assert {row.get("city") for row in hashes_of(scene.client, "by_city").values()} <= {None}
    view.close()


# --- state that is lost -----------------------------------------------------------------------------------------------


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("table", "is_cut"),
    [
        ("rows-source", False),
        *(
            pytest.param(*case, marks=pytest.mark.long)
            for case in [("groups", False), ("groups", True), ("rows-cities", True), ("sorted", False)]
        ),
    ],
)
def test_a_view_whose_state_is_lost_is_built_anew(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, table: str, is_cut: bool
) -> None:
    views = [by_city(), of_all()]
    scene.change()
    scene.keep(*views)
    runs = list((scene.folder / "_state/by_city").rglob(f"*{table}*.run"))
    assert runs
    for run in runs:
        data = run.read_bytes()
        run.unlink()
        if is_cut:
            run.write_bytes(data[:-8])
    scene.move()  # workers have mapped files and go on with what is in memory
    built = noted_builds(monkeypatch)
    scene.change()
    scene.keep(*views)
    scene.compare(*views)
    assert built == ["by_city"], "and the other goes on"
    scene.change()
    scene.keep(*views)
    scene.compare(*views)
    assert built == ["by_city"]


# --- definitions that change ------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.timeout(300)
def test_another_definition_takes_the_place_of_the_first(scene: Scene) -> None:
    first, other = by_state("v", "number", "total"), of_all()
    scene.change()
    scene.keep(first, other)
    scene.compare(first, other)
    [state] = scene.states("v")
    second = by_city("v")
    scene.change()
    scene.keep(second, other)
    scene.compare(second, other)
    assert len(scene.states("v")) == 1
    assert scene.states("v") != [state]
    assert scene.client.hget("tidelog:pipeline:view:v", "version") == b"2"
    assert scene.client.hget("tidelog:pipeline:view:of_all", "version") == b"1"
    # One of them is left out for a while, and taken up again where it stopped.
    scene.change()
    scene.keep(other)
    scene.compare(other)
    scene.change()
    scene.keep(second, other)
    scene.compare(second, other)
    assert scene.client.hget("tidelog:pipeline:view:v", "version") == b"2"


# --- histories that are lost ------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.timeout(300)
def test_views_of_a_history_that_was_lost_are_built_anew(spark: SparkSession, tmp_path: Path) -> None:
    data, views = tmp_path / "data", [by_state("by_state", "number", "total"), by_city()]
    with ServerProcess(data, "--fsync", "never") as server:
        scene = Scene(spark, server, tmp_path / "lake")
        scene.change()
        [journal] = data.glob("shard-*/journal-*")
        kept_bytes = journal.stat().st_size
        scene.change()
        scene.keep(*views)
        server.kill()
        with journal.open("r+b") as file:  # as a power cut does that takes the page cache with it
            assert file.seek(0, 2) > kept_bytes
            file.truncate(kept_bytes)
        with ServerProcess(data, instead_of=server) as again:
            scene.world.client = scene.client = again.client()
            scene.keep(*views)
            scene.compare(*views)
            scene.change()
            scene.keep(*views)
            scene.compare(*views)


@pytest.mark.timeout(300)
@pytest.mark.long
def test_views_of_a_history_that_was_erased_are_built_anew(spark: SparkSession, tmp_path: Path) -> None:
    command = [*limited_server.COMMAND, json.dumps(FORGETFUL), "serve"]
    views = [by_state("by_state", "number", "total"), by_city()]
    with ServerProcess(tmp_path / "data", command=command) as server:
        scene = Scene(spark, server, tmp_path / "lake")
        scene.change()
        scene.keep(*views)
        kept_ts = int(scene.client.hget("tidelog:pipeline:view:by_state", "ts"))
        scene.change()
        scene.make_large()
        scene.erase_up_to(kept_ts)
        scene.keep(*views)
        scene.compare(*views)
        scene.change()
        scene.keep(*views)
        scene.compare(*views)


@pytest.mark.timeout(300)
@pytest.mark.long
def test_only_a_view_that_is_too_old_is_built_anew(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A view of what never changes is as far as the others, unless nobody kept it for a while."""
    command = [*limited_server.COMMAND, json.dumps(FORGETFUL), "serve"]
    idle = View("idle", ViewSource("prefix", "nothing:"), "select count(*) as n from source", ())
    busy, left_out = of_all(), by_city()
    built = noted_builds(monkeypatch)
    with ServerProcess(tmp_path / "data", command=command) as server:
        scene = Scene(spark, server, tmp_path / "lake")
        scene.change()
        scene.kept.once([busy.view, left_out.view, idle])
        assert sorted(built) == ["by_city", "idle", "of_all"]
        kept_ts = int(scene.client.hget("tidelog:pipeline:view:by_city", "ts"))
        scene.make_large()
        scene.change()
        scene.kept.once([busy.view, idle])
        scene.erase_up_to(kept_ts)
        assert scene.oldest() <= int(scene.client.hget("tidelog:pipeline:view:idle", "ts"))
        scene.change()
        built.clear()
        scene.kept.once([busy.view, left_out.view, idle])
        assert built == ["by_city"]
        scene.compare(busy, left_out)


@pytest.mark.timeout(300)
@pytest.mark.long
def test_another_database_has_views_of_its_own(scene: Scene, tmp_path: Path) -> None:
    view = of_all().view
    scene.kept.once([view])
    scene.kept.address = replace(scene.kept.address, database=1)
    with pytest.raises(TableUnusable, match="was made from database 0"):
        scene.kept.once([view])
    scene.kept.storage = find_storage(str(tmp_path / "other"))
    scene.kept.once([view])
    [state] = (tmp_path / "other" / "_state" / "of_all").iterdir()
    assert state.name.startswith("1-")


@pytest.mark.timeout(300)
def test_a_view_of_another_definition_is_not_checked(scene: Scene) -> None:
    scene.keep(by_state("v", "number", "total"))
    with pytest.raises(ClientError, match="was built by another definition"):
        scene.kept.check(by_city("v").view)


# --- two at once ------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(300)
def test_a_second_job_is_turned_away_and_hashes_come_back_after_flushdb(scene: Scene) -> None:
    views = [of_all()]
    with scene.kept.continuous([each.view for each in views]) as job:
        scene.change()
        scene.kept.catch_up(job, scene.client)
        with pytest.raises(JobRunning, match="another job has the lease 'view:of_all'"):
            scene.keep(by_city(), *views)  # another file, with the same view in it
        scene.compare(*views)
    scene.client.flushdb()
    scene.keep(*views)
    scene.compare(*views)
    assert hashes_of(scene.client, "of_all") == {"view:of_all:": {"number": "0"}}


# --- nothing to begin with --------------------------------------------------------------------------------------------


@pytest.mark.timeout(300)
@pytest.mark.long
def test_views_of_what_is_not_there_yet_are_empty(scene: Scene) -> None:
    sql = "select tag, count(*) as n from source group by tag"
    of_stream = View("of_stream", ViewSource("stream", "ticks"), sql, ("tag",))
    of_days = View("of_days", ViewSource("days", "shop/web"), "select count(*) as n from source", ())
    scene.kept.once([of_stream, of_days])
    assert hashes_of(scene.client, "of_stream") == {}
    assert hashes_of(scene.client, "of_days") == {"view:of_days:": {"n": "0"}}
    scene.client.execute_command("TWRITE", "ticks", "ENTRIES", "a", "x", "a", "y")
    scene.kept.once([of_stream, of_days])
    assert hashes_of(scene.client, "of_stream") == {"view:of_stream:a": {"tag": "a", "n": "2"}}
