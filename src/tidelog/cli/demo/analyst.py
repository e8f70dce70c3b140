"""The demo's Spark session, in a process of its own: it starts while something else is done, and is stopped by its id.

`python -m tidelog.cli.demo.analyst URL` prints a line of JSON when it is ready, and one for each line that it reads:

    {"start_s": seconds}
    {"rows": [[day, queue, jobset, compressed, events, failed, runs, p95_ms] ...], "took_s": seconds}
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import tidelog.spark
from tidelog.cli.demo.query import COLUMNS, SQL


def main() -> None:
    begun_s = time.monotonic()
    spark: Any = tidelog.spark.session("tidelog demo")
    try:
        _tell(start_s=round(time.monotonic() - begun_s, 2))
        for _ in sys.stdin:
            begun_s = time.monotonic()
            days = spark.read.format("tidelog").option("url", sys.argv[1]).schema(COLUMNS).load("days:*/*")
            days.createOrReplaceTempView("days")
            found = spark.sql(SQL).collect()
            rows = [[None if row.day is None else row.day.isoformat(), *row[1:]] for row in found]
            _tell(rows=rows, took_s=round(time.monotonic() - begun_s, 2))
    finally:
        spark.stop()


def _tell(**members: Any) -> None:
    print(json.dumps(members), flush=True)


if __name__ == "__main__":
    main()
