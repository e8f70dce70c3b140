"""Makes the class archive of this user's Java and Spark, as a process of its own.

    python -m tidelog.spark.class_archive_maker --idle    as a session starts it: only when nobody wants the processors
    python -m tidelog.spark.class_archive_maker           by hand, for example while an image is built

It runs a small session that touches what our jobs use, and has its Java write the classes when it ends. The file is
made aside and renamed when it is whole. A lock keeps a second maker away. Whatever goes wrong, there is just no
archive, and another attempt a day later.

Exit status: 0 if there is an archive now, 1 if not.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from tidelog import limits
from tidelog.spark.class_archive import IDLE, SWITCH, ClassArchive, remove_old
from tidelog.spark.session import DEFAULT_JAVA_OPTIONS, archive_here, joined_options, session

_ANSWER_S_MAX: Final = 60.0


def main() -> int:
    """Make it, unless it is there or somebody else makes it."""
    archive = archive_here()
    if archive is None:
        return 1
    archive.folder.mkdir(parents=True, exist_ok=True)
    with _locked(archive.tried_path) as is_ours:
        if is_ours and archive.find() is None:
            os.utime(archive.tried_path)
            if IDLE in sys.argv[1:]:
                _yield_to_others()
            _make(archive)
            remove_old(archive.folder)
    return 1 if archive.find() is None else 0


def _make(archive: ClassArchive) -> None:
    aside = archive.folder / f"{archive.key}.{os.getpid()}"
    try:
        with tempfile.TemporaryDirectory(prefix="tidelog-classes-", ignore_cleanup_errors=True) as folder:
            os.chdir(folder)
            is_done = _train(archive.options_to_make(aside))
            os.chdir("/")
        if is_done and _is_good(archive, aside):
            archive.put(aside)
    finally:
        aside.unlink(missing_ok=True)


def _train(making: list[str]) -> bool:
    """Run a session that writes its classes; whether its Java ended well."""
    os.environ[SWITCH] = "no"
    settings: Any = {DEFAULT_JAVA_OPTIONS: joined_options(making)}
    spark = session("tidelog class archive", "local[2]", **settings)
    gateway: Any = spark.sparkContext._gateway
    java: subprocess.Popen[bytes] = gateway.proc
    alarm = threading.Timer(limits.SPARK_ARCHIVE_MAKING_S_MAX, java.kill)
    alarm.daemon = True
    alarm.start()
    try:
        _touch(spark)
        spark.stop()
        gateway.shutdown()
        assert java.stdin is not None
        java.stdin.close()  # it ends when its stdin does
        return java.wait() == 0
    finally:
        alarm.cancel()
        java.kill()


def _is_good(archive: ClassArchive, aside: Path) -> bool:
    """Its size is bearable, and Java takes the options that use it and says nothing."""
    with suppress(OSError, subprocess.TimeoutExpired):
        if aside.stat().st_size <= limits.SPARK_ARCHIVE_BYTES_MAX:
            words = [archive.build.java, *archive.options_to_use(aside), "-version"]
            done = subprocess.run(words, capture_output=True, timeout=_ANSWER_S_MAX, check=False)
            return done.returncode == 0 and not done.stdout
    return False


def _yield_to_others() -> None:
    """Run only when nobody else wants the processors."""
    with suppress(OSError):
        os.nice(19)
    if hasattr(os, "SCHED_IDLE"):
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


@contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Whether the lock is ours: it ends with this process, however that ends."""
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


# --- what jobs use ----------------------------------------------------------------------------------------------------


def _touch(spark: Any) -> None:
    """Tasks in Python, Arrow both ways, SQL, a Python data source as a batch and as a stream."""
    import pyarrow as pa
    from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

    class Reader(DataSourceReader, DataSourceStreamReader):
        """Some numbers."""

        def partitions(self, *_: Any) -> list[InputPartition]:
            return [InputPartition(0), InputPartition(1)]

        def read(self, _partition: InputPartition) -> Iterator[Any]:
            yield pa.RecordBatch.from_pydict({"n": [1, 2, 3]})

        def initialOffset(self) -> dict[str, int]:
            return {"n": 0}

        def latestOffset(self, *_: Any) -> dict[str, int]:
            return {"n": 1}

    class Numbers(DataSource):
        """A data source in Python."""

        @classmethod
        def name(cls) -> str:
            return "numbers"

        def schema(self) -> str:
            return "n long"

        def reader(self, schema: Any) -> Any:  # noqa: ARG002
            return Reader()

        def streamReader(self, schema: Any) -> Any:  # noqa: ARG002
            return Reader()

    def same(batches: Any) -> Any:
        yield from batches

    def take(frame: Any, _batch: int) -> None:
        frame.mapInArrow(same, "n long").collect()

    spark.sparkContext.parallelize(range(4), 2).foreachPartition(list)
    spark.dataSource.register(Numbers)
    frame = spark.read.format("numbers").load()
    frame.mapInArrow(same, "n long").groupBy("n").count().toArrow()
    spark.createDataFrame(pa.table({"g": ["a", "b"], "v": ["1", "2.5"]})).createOrReplaceTempView("source")
    spark.sql(
        "select g, count(*) as n, sum(cast(v as double)) as total, max(v) as most from source "
        "where v is not null group by g having count(*) > 0"
    ).toArrow()
    query = spark.readStream.format("numbers").load().writeStream.foreachBatch(take)
    query.option("checkpointLocation", Path("checkpoint").absolute().as_uri()).trigger(
        availableNow=True
    ).start().awaitTermination(_ANSWER_S_MAX)


if __name__ == "__main__":
    sys.exit(main())
