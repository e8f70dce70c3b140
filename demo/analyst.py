"""The demo's Spark session, in a process of its own: it starts while something else is done, and is stopped by its id.

`python -m demo.analyst URL` prints a line of JSON when it is ready, and one for each line that it reads:

    {"start_s": seconds}

    {}                 asks the server:
    {"rows": [[day, queue, jobset, compressed, events, failed, runs, p95_ms] ...], "took_s": seconds}

    {"lake": PATH}     asks the tables of a lake, and no server:
    {"rows": as above, "jobs": [[queue, state, count] ...], "changes": [count, distinct], "views": {name: {key: row}},
     "took_s": seconds}
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import tidelog.spark
from demo.query import COLUMNS, LAKE_CHANGES, LAKE_DAYS, LAKE_JOBS, SQL
from demo.views import EVENTS, JOBS


def main() -> None:
    begun_s = time.monotonic()
    spark: Any = tidelog.spark.session("tidelog demo")
    try:
        _tell(start_s=round(time.monotonic() - begun_s, 2))
        for line in sys.stdin:
            begun_s = time.monotonic()
            asked = json.loads(line)
            answer = _ask_lake(spark, Path(asked["lake"])) if "lake" in asked else _ask_server(spark)
            _tell(**answer, took_s=round(time.monotonic() - begun_s, 2))
    finally:
        spark.stop()


def _ask_server(spark: Any) -> dict[str, Any]:
    days = spark.read.format("tidelog").option("url", sys.argv[1]).schema(COLUMNS).load("days:*/*")
    days.createOrReplaceTempView("days")
    return {"rows": _rows(spark)}


def _ask_lake(spark: Any, lake: Path) -> dict[str, Any]:
    for name in ("entries", "current", "changes"):
        _table(spark, lake / name).createOrReplaceTempView(name)
    spark.sql(LAKE_DAYS).createOrReplaceTempView("days")
    views: dict[str, Any] = {}
    for name, keys in ((EVENTS, ("day", "event")), (JOBS, ("queue", "state"))):
        rows = [row.asDict() for row in _table(spark, lake / "views" / name).collect()]
        texts = [{column: str(value) for column, value in row.items() if value is not None} for row in rows]
        views[name] = {":".join(row[key] for key in keys): row for row in texts}
    return {
        "rows": _rows(spark),
        "jobs": [list(row) for row in spark.sql(LAKE_JOBS).collect()],
        "changes": list(spark.sql(LAKE_CHANGES).collect()[0]),
        "views": views,
    }


def _table(spark: Any, path: Path) -> Any:
    """A Delta table, as it is now: its log says which files that are."""
    from deltalake import DeltaTable

    return spark.read.parquet(*DeltaTable(str(path)).file_uris())


def _rows(spark: Any) -> list[list[Any]]:
    found = spark.sql(SQL).collect()
    return [[None if row.day is None else row.day.isoformat(), *row[1:]] for row in found]


def _tell(**members: Any) -> None:
    print(json.dumps(members), flush=True)


if __name__ == "__main__":
    main()
