"""Views that are kept while a world changes, and whether they are what they should be."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.spark.random_views import RandomView, text_of
from tests.spark.view_world import World
from tidelog.address import ServerAddress
from tidelog.spark.delta.storage import find_storage
from tidelog.spark.endpoint import Endpoint
from tidelog.spark.jobs.job_lease import Stop
from tidelog.spark.source.feed.position import explored_feed_server
from tidelog.spark.views.dataflow.checking import check_view
from tidelog.spark.views.dataflow.job import ViewJob, ViewOptions
from tidelog.spark.views.sql.definition import View

SECONDS_MAX = 120


class NotCaughtUp(Exception):
    """The views are behind, and stay there."""


class KeptViews:
    """A lake, and jobs that keep views in it."""

    def __init__(self, spark: SparkSession, port: int, folder: Path) -> None:
        self.spark = spark
        self.address = ServerAddress(port=port)
        self.storage = find_storage(str(folder))
        self.folder = folder
        self._thread: threading.Thread | None = None

    def job(self, views: Sequence[View], *, is_once: bool = True, batch_records: int = 100_000) -> ViewJob:
        options = ViewOptions(is_once, batch_records, 0.02, 60_000)
        return ViewJob(self.address, self.storage, views, options)

    def once(self, views: Sequence[View], *, batch_records: int = 100_000) -> ViewJob:
        made = self.job(views, batch_records=batch_records)
        made.run(lambda: self.spark, Stop())
        return made

    @contextmanager
    def continuous(self, views: Sequence[View]) -> Iterator[ViewJob]:
        """A job that goes on until the block ends; what ends it before is raised there."""
        stop, errors = Stop(), list[BaseException]()
        made = self.job(views, is_once=False)

        def run() -> None:
            try:
                made.run(lambda: self.spark, stop)
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        self._thread = thread
        try:
            yield made
        except NotCaughtUp:
            if not errors:
                raise
        finally:
            stop.because("the test is done")
            thread.join(SECONDS_MAX)
        assert not thread.is_alive()
        if errors:
            raise errors[0]
        assert stop.reason == "the test is done"

    def catch_up(self, job: ViewJob, client: Any) -> None:
        """Wait until all views have what the server has now; `NotCaughtUp` if the job has ended."""
        visible = min(int(row[1]) for row in client.execute_command("FEED", "POSITION"))
        deadline = time.monotonic() + SECONDS_MAX
        while not (found := job.parts()) or any(
            min(int(each["ts"] or 0), int(each["table_ts"] or 0)) < visible for each in found.values()
        ):
            if time.monotonic() > deadline or self._thread is None or not self._thread.is_alive():
                raise NotCaughtUp(f"the views are at {found}, and the server at {visible}")
            time.sleep(0.02)

    def check(self, view: View) -> None:
        """By the engine's own recomputation."""
        server = explored_feed_server(Endpoint(self.address))
        found = check_view(self.spark, self.storage, server, view)
        assert found.is_right, found

    def table(self, name: str) -> list[dict[str, str | None]]:
        """The rows that the lake has, as text."""
        rows = DeltaTable(str(self.folder / "views" / name)).to_pyarrow_table().to_pylist()
        return [{column: text_of(value) for column, value in row.items()} for row in rows]


def hashes_of(client: Any, name: str) -> dict[str, dict[str, str]]:
    """The hashes of a view."""
    return {
        key.decode(): {field.decode(): value.decode() for field, value in client.hgetall(key).items()}
        for key in client.scan_iter(match=f"view:{name}:*", count=1000)
    }


def compare(kept: KeptViews, world: World, made: RandomView, when: object) -> None:
    """Hold hashes and table against the naive computation."""
    rows = world.rows(str(made.view.source))
    expected = made.computed(rows, world.rows("prefix:city:"))
    shown = {key: {name: text for name, text in row.items() if text is not None} for key, row in expected.items()}
    about = (when, made.view.sql, made.view.key, str(made.view.source))
    assert hashes_of(world.client, made.view.name) == {key: row for key, row in shown.items() if row}, about
    assert _sorted(kept.table(made.view.name)) == _sorted(expected.values()), about


def _sorted(rows: Any) -> list[Any]:
    return sorted((sorted(row.items()) for row in rows), key=repr)
