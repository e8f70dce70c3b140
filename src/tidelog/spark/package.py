"""Our sources as one zip file, for executors that do not have the package installed.

Spark unpacks an archive into a folder on the path of its Python processes. The zip holds the inside of `tidelog`, and
the folder gets that name. (`addPyFile` reaches functions of users, but no data source.)

The same sources always give the same bytes, under a name that is derived from them: Spark sends a file once in a
session, and a second session finds the file already made. Compiled modules are left out, as they fit only one Python
and one kind of machine. The packages that our sources import (pyarrow, numpy, redis, crc32c) must be installed on the
executors; docs/spark.md says how.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

import tidelog
from tidelog.spark.cache import write_once

_MOMENT: Final = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip file can hold."""


def send_package(spark: SparkSession, cache: Path) -> None:
    """Send our sources to the executors."""
    spark.sparkContext.addArchive(f"{write_package(cache)}#{tidelog.__name__}")


def write_package(cache: Path) -> Path:
    """The zip file; it is made if it does not exist."""
    data = _zip(sorted(_sources()))
    return write_once(cache / f"tidelog-{tidelog.__version__}-{hashlib.sha256(data).hexdigest()[:16]}.zip", data)


def _sources() -> Iterator[tuple[str, bytes]]:
    root = Path(tidelog.__file__).parent
    for path in root.rglob("*.py"):
        yield path.relative_to(root).as_posix(), path.read_bytes()


def _zip(files: list[tuple[str, bytes]]) -> bytes:
    made = BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files:
            archive.writestr(zipfile.ZipInfo(name, _MOMENT), data, zipfile.ZIP_DEFLATED)
    return made.getvalue()
