"""A Spark session with the settings that Tidelog needs.

    spark = tidelog.spark.session()                               on this machine, on all its cores
    spark = tidelog.spark.session(master="spark://host:7077")     on a cluster, which gets our sources

On this machine nothing listens to the network, Spark prints nothing unasked, and any suitable Java is found. Every
setting can be overridden: `conf` is applied last. Write `_` for `.` where a name has to be a Python word
(`spark_sql_shuffle_partitions=8`), or pass a dict (`**{"spark.sql.shuffle.partitions": 8}`).

Spark reads some settings from the environment of the process, once, when its Java starts. So the first session decides
them.

On this machine, Java takes Spark's classes from an archive if there is one (`class_archive`), which nearly halves the
time of a start. That needs a class path without folders that have files in them. Spark puts its configuration folder
first on the class path; so ours is empty, and Java is told by an option where the configuration of the log is.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from pyspark import SparkContext
from pyspark.find_spark_home import _find_spark_home
from pyspark.sql import SparkSession

from tidelog import limits
from tidelog.spark.cache import cache_folder, write_once
from tidelog.spark.class_archive import ClassArchive, find_archive, leaves_classes_alone, look_after
from tidelog.spark.java import find_java_home
from tidelog.spark.package import send_package

DEFAULT_JAVA_OPTIONS: Final = "spark.driver.defaultJavaOptions"
"""The setting for options of ours: those that a user gives go to `spark.driver.extraJavaOptions`, and come later."""
_EXTRA_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_LOG_FILE: Final = "TIDELOG_SPARK_LOG"
_CONFIGURATION: Final = "SPARK_CONF_DIR"

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
    starts = SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ
    settings = {**_ALWAYS, **(_LOCAL if is_local else {}), **given}
    archive = archive_here() if starts and is_local else None
    if archive is not None and not leaves_classes_alone(settings, _java_options(settings)):
        archive = None
    used = None if archive is None else archive.find()
    if is_local:
        ours = [
            *_logging_options(),
            *(archive.options_to_use(used) if archive is not None and used is not None else ()),
        ]
        settings[DEFAULT_JAVA_OPTIONS] = f"{joined_options(ours)} {settings.get(DEFAULT_JAVA_OPTIONS, '')}".strip()
    builder: Any = SparkSession.builder
    builder = builder.appName(app)
    if master is not None or named is None:
        builder = builder.master(master or _THIS_MACHINE)
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark: SparkSession = builder.getOrCreate()
    if archive is not None:
        look_after(archive, used, spark._jvm)
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
    if _is_ours(os.environ.get(_CONFIGURATION), cache):
        os.environ[_CONFIGURATION] = str(_empty_folder(cache) if is_local else _write_logging(cache).parent)
    os.environ.setdefault(_LOG_FILE, str(cache / "spark.log"))


def _given_master() -> str | None:
    """The master that the environment names, for example because spark-submit started this process."""
    if "MASTER" in os.environ:
        return os.environ["MASTER"]
    words = os.environ.get("PYSPARK_SUBMIT_ARGS", "").split()
    return words[words.index("--master") + 1] if "--master" in words[:-1] else None


def archive_here() -> ClassArchive | None:
    """The class archive for a Spark on this machine; None if there is to be none."""
    set_up_environment(is_local=True)
    cache, configuration = cache_folder(os.environ), os.environ[_CONFIGURATION]
    if not _is_ours(configuration, cache):
        return None  # it may hold files
    spark_home = Path(os.environ.get("SPARK_HOME") or _find_spark_home())
    return find_archive(os.environ["JAVA_HOME"], spark_home, Path(configuration), cache, os.environ)


def joined_options(options: Iterable[str]) -> str:
    """Options of Java as one setting of Spark's."""
    return " ".join(map(_quoted, options))


def _quoted(option: str) -> str:
    text = option.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def _java_options(settings: Mapping[str, str]) -> list[str]:
    return [settings.get(name, "") for name in (DEFAULT_JAVA_OPTIONS, _EXTRA_JAVA_OPTIONS)]


def _is_ours(configuration: str | None, cache: Path) -> bool:
    """Nobody has set the folder, or a process of ours has."""
    return configuration is None or Path(configuration).parent == cache


def _empty_folder(cache: Path) -> Path:
    made = cache / "no-conf"
    made.mkdir(parents=True, exist_ok=True)
    return made


def _write_logging(cache: Path) -> Path:
    return write_once(cache / "conf" / "log4j2.properties", _LOGGING.encode())


def _logging_options() -> list[str]:
    """What tells Java where the configuration of the log is, unless somebody's configuration folder says it."""
    cache = cache_folder(os.environ)
    if not _is_ours(os.environ.get(_CONFIGURATION), cache):
        return []
    return [f"-Dlog4j2.configurationFile={_write_logging(cache).as_uri()}"]


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
