"""Our sources as one zip file, for executors that do not have the package installed.

Spark unpacks an archive into a folder that is on the path of its Python processes; what is in the file is the inside of
`tidelog`, and the folder gets that name. (`addPyFile` reaches functions of users, but no data source.)

The same sources always give the same bytes, under a name that says which: Spark sends a file once a session, and a
second session finds it made. Compiled modules stay behind, as they are for one Python and one kind of machine only.
What the sources import (pyarrow, numpy, redis, crc32c) must be on the executors; see docs/spark.md for how.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

import tidelog

_MOMENT: Final = (1980, 1, 1, 0, 0, 0)
"""The earliest that a zip file can say."""


def send_package(spark: SparkSession, cache: Path) -> None:
    """Let executors have our sources."""
    spark.sparkContext.addArchive(f"{write_package(cache)}#{tidelog.__name__}")


def write_package(cache: Path) -> Path:
    """The zip file, made unless it is there."""
    data = _zip(sorted(_sources()))
    path = cache / f"tidelog-{tidelog.__version__}-{hashlib.sha256(data).hexdigest()[:16]}.zip"
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        made = path.with_name(f"{path.name}.{os.getpid()}")
        made.write_bytes(data)
        made.replace(path)
    return path


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
