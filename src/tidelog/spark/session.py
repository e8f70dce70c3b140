"""A Spark session with the settings that Tidelog needs.

    spark = tidelog.spark.session()                               on this machine, on all its cores
    spark = tidelog.spark.session(master="spark://host:7077")     on a cluster, which gets our sources

On this machine nothing listens to the network, Spark prints nothing unasked, and any suitable Java is found. Every
setting can be overridden: `conf` is applied last. Write `_` for `.` where a name has to be a Python word
(`spark_sql_shuffle_partitions=8`), or pass a dict (`**{"spark.sql.shuffle.partitions": 8}`).

Spark reads some settings from the environment of the process, once, when its Java starts. So the first session decides
them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from tidelog import limits
from tidelog.spark.cache import cache_folder, write_once
from tidelog.spark.java import find_java_home
from tidelog.spark.package import send_package

_LOG_FILE: Final = "TIDELOG_SPARK_LOG"

_LOGGING: Final = """\
# Written by tidelog.spark: errors go to a file and not to the terminal.
rootLogger.level = error
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = ${env:TIDELOG_SPARK_LOG:-/dev/null}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{yyyy-MM-dd HH:mm:ss.SSS} %p %c: %m%n%ex
# It logs its port at another level.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
"""

_THIS_MACHINE: Final = f"local[*,{limits.PIPELINE_TASK_ATTEMPTS}]"
"""All cores; a task whose process died is tried again, as it would be on a cluster."""

_ALWAYS: Final = {
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
}
_LOCAL: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # All partitions are on one machine, and each costs it some milliseconds.
    "spark.sql.shuffle.partitions": "4",
}


def session(app: str = "tidelog", master: str | None = None, *, send: bool | None = None, **conf: Any) -> SparkSession:
    """The session of this process; an existing one keeps its settings and gets the given `conf` in addition.

    `master` None: the one of the environment (`MASTER`, or spark-submit's arguments), otherwise this machine's cores.
    `send` None: executors get our sources unless they run on this machine.
    """
    given = {name if "." in name else name.replace("_", "."): _text(value) for name, value in conf.items()}
    active = SparkSession.getActiveSession()
    if active is not None:
        for name, value in given.items():
            active.conf.set(name, value)
        return active
    named = master or _given_master()
    is_local = named is None or named.startswith("local")
    set_up_environment(is_local=is_local)
    builder: Any = SparkSession.builder
    builder = builder.appName(app)
    if master is not None or named is None:
        builder = builder.master(master or _THIS_MACHINE)
    for name, value in {**_ALWAYS, **(_LOCAL if is_local else {}), **given}.items():
        builder = builder.config(name, value)
    spark: SparkSession = builder.getOrCreate()
    if send if send is not None else not is_local:
        send_package(spark, cache_folder(os.environ))
    return spark


def set_up_environment(*, is_local: bool) -> None:
    """Set the variables that Spark reads from the environment, unless they are set already."""
    cache = cache_folder(os.environ)
    os.environ["JAVA_HOME"] = find_java_home(os.environ, cache)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if is_local:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if "SPARK_CONF_DIR" not in os.environ:
        os.environ["SPARK_CONF_DIR"] = str(_write_logging(cache))
    os.environ.setdefault(_LOG_FILE, str(cache / "spark.log"))


def _given_master() -> str | None:
    """The master that the environment names, for example because spark-submit started this process."""
    if "MASTER" in os.environ:
        return os.environ["MASTER"]
    words = os.environ.get("PYSPARK_SUBMIT_ARGS", "").split()
    return words[words.index("--master") + 1] if "--master" in words[:-1] else None


def _write_logging(cache: Path) -> Path:
    return write_once(cache / "conf" / "log4j2.properties", _LOGGING.encode()).parent


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
