"""The class archive: Spark's classes as Java has them once they are loaded, in a file that Java maps into memory.

A Java that starts Spark loads some 15,000 classes: 40 % of what it computes until the first job. Java can write
them to a file and take them from there the next time. Every user has one such file for each Java and Spark, in the
cache folder.

    session()   no archive yet             starts as always; a process of its own then makes one (`class_archive_maker`)
                there is one               Java is told of it
                it is damaged, or Java     it is removed, and made anew
                did not take it

- **An archive never makes a start fail.** Java ignores a file that is of other classes, and says nothing. But a file
  that is cut short ends Java with SIGBUS. So its name has its size and checksum, and it is read before it is used,
  which takes less than 0.1 s of the seconds that it saves. Whether Java took it is seen from what its process has
  mapped.
- **Making it never delays a command.** Java needs seconds to write it. So another process makes it, with the lowest
  priority: when the session's process ends, or after a minute if it goes on. (At the end of a session it would hold up
  every first command, and a service that is stopped has no time for it.)
- **Everything that an archive depends on is in its name**: the build of Java, the jars of Spark in the order in which
  Java finds them, the class path. Java checks them too; the name keeps several apart.
- A class path with files outside of jars has no archive. So Spark's configuration folder must be empty (`session`).
- Only on this machine: the class path of a cluster's driver has folders of that cluster's configuration.
"""

from __future__ import annotations

import atexit
import hashlib
import mmap
import os
import re
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from crc32c import crc32c

from tidelog import limits
from tidelog.spark.java import JavaBuild, read_build

SWITCH: Final = "TIDELOG_SPARK_ARCHIVE"
"""The variable that turns archives off: `no`."""
MAKER: Final = "tidelog.spark.class_archive_maker"
IDLE: Final = "--idle"

_FORMAT: Final = "1"
"""Part of the name: archives that are made differently get another one."""
_FOLDER: Final = "classes"
_SUFFIX: Final = ".archive"
_ODD: Final = re.compile(r"""[:;,%"'\\\s]""")
"""Characters that mean something in an option of Java."""
_OTHER_ARCHIVE: Final = re.compile(r"-Xshare|SharedArchiveFile|ArchiveClassesAtExit|AutoCreateSharedArchive|-XX:AOT")
_JAVA_VARIABLES: Final = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS", "SPARK_DIST_CLASSPATH")
_CLASS_PATH_SETTINGS: Final = ("spark.driver.extraClassPath", "spark.jars", "spark.jars.packages")
_OF_ONE_RUN: Final = ("MASTER", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "SPARK_REMOTE")


class _Options(NamedTuple):
    """What a version of Java is told."""

    version_min: int
    use: tuple[str, ...]
    make: tuple[str, ...]


_OPTIONS: Final = (
    _Options(
        25,
        ("-XX:AOTCache={path}", "-Xlog:aot*=off", "-Xlog:cds*=off"),
        ("-XX:AOTCacheOutput={path}", "-Xlog:aot*=off", "-Xlog:cds*=off"),
    ),
    _Options(
        17,
        ("-XX:SharedArchiveFile={path}", "-Xlog:cds*=off", "-Xlog:class+path*=off"),
        ("-XX:ArchiveClassesAtExit={path}", "-Xlog:cds*=off", "-Xlog:class+path*=off"),
    ),
)
"""Newest first. Java's remarks about archives go to stdout, and are turned off."""


class ClassArchive(NamedTuple):
    """The archive of one Java and one Spark, made or not."""

    folder: Path
    key: str
    """What its name begins with: a digest of all that it depends on."""
    build: JavaBuild

    @property
    def tried_path(self) -> Path:
        """The file that a maker locks. Its time is that of the last attempt."""
        return self.folder / f"{self.key}.tried"

    def find(self) -> Path | None:
        """The file, as its maker left it; None if there is none. A damaged one is removed."""
        for path in self.folder.glob(f"{self.key}-*{_SUFFIX}"):
            if path == self._path_of(path):
                return path
            remove(path)
        return None

    def put(self, made: Path) -> None:
        """Give a whole file its name."""
        path = self._path_of(made)
        if path is not None:
            made.rename(path)

    def options_to_use(self, path: Path) -> list[str]:
        return [option.format(path=path) for option in self._options.use]

    def options_to_make(self, path: Path) -> list[str]:
        return [option.format(path=path) for option in self._options.make]

    @property
    def _options(self) -> _Options:
        return next(row for row in _OPTIONS if self.build.version >= row.version_min)

    def _path_of(self, path: Path) -> Path | None:
        """What a file with this content is called."""
        try:
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                return self.folder / f"{self.key}-{len(content):x}-{crc32c(content):08x}{_SUFFIX}"
        except (OSError, ValueError):  # it is gone, or empty
            return None

    def was_tried(self) -> bool:
        """Somebody makes it, or has tried not long ago."""
        try:
            return time.time() - self.tried_path.stat().st_mtime < limits.SPARK_ARCHIVE_RETRY_S
        except OSError:
            return False


def remove(path: Path) -> None:
    """Remove an archive. A Java that has it goes on with it."""
    with suppress(OSError):
        path.unlink()


def find_archive(
    java_home: str, spark_home: Path, configuration: Path, cache: Path, environment: Mapping[str, str]
) -> ClassArchive | None:
    """The archive for what is to be started; None if there is to be none.

    `configuration`: the folder that is first on Spark's class path.
    """
    if environment.get(SWITCH, "").lower() in ("no", "0", "off", "false"):
        return None
    if any(_OTHER_ARCHIVE.search(environment.get(name, "")) for name in _JAVA_VARIABLES[:3]):
        return None
    build = read_build(java_home)
    if build is None or build.version < _OPTIONS[-1].version_min:
        return None
    try:
        jars = [
            f"{jar.name} {jar.stat().st_size} {jar.stat().st_mtime_ns}" for jar in os.scandir(spark_home / "jars")
        ]  # in the order of the folder, as Java has them
    except OSError:
        return None
    set_up = [f"{name}={environment.get(name, '')}" for name in _JAVA_VARIABLES]
    said = "\n".join([_FORMAT, build.identity, str(spark_home), str(configuration), *set_up, *jars])
    folder = cache / _FOLDER
    return (
        None
        if _ODD.search(str(folder))
        else ClassArchive(folder, hashlib.sha256(said.encode()).hexdigest()[:24], build)
    )


def leaves_classes_alone(settings: Mapping[str, str], java_options: Sequence[str]) -> bool:
    """Whether Spark settings leave the class path, and Java's use of archives, as they are."""
    return not any(settings.get(name) for name in _CLASS_PATH_SETTINGS) and not any(
        _OTHER_ARCHIVE.search(text) for text in java_options
    )


# --- after the start --------------------------------------------------------------------------------------------------


def look_after(archive: ClassArchive, used: Path | None, java: Any) -> None:
    """After a start: an archive that Java did not take is removed, and one that is missing will be made.

    `used`: the file that Java was told of. `java`: the way into the Java that was started.
    """
    if used is not None and _is_mapped(used, int(java.java.lang.ProcessHandle.current().pid())):
        with suppress(OSError):
            os.utime(used)  # the one that was not used for longest goes first
        return
    if used is not None:
        remove(used)
    if not archive.was_tried():
        _make_later(archive)


def _is_mapped(path: Path, pid: int) -> bool:
    """Whether a process has a file in its memory; believed where a process does not show what it has."""
    try:
        return str(path) in Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return True


def _make_later(archive: ClassArchive) -> None:
    once = threading.Lock()

    def make() -> None:
        if once.acquire(blocking=False) and not archive.was_tried():
            start_maker()

    timer = threading.Timer(limits.SPARK_ARCHIVE_AFTER_S, make)
    timer.daemon = True
    timer.start()
    atexit.register(make)


def start_maker() -> int:
    """Start the process that makes the archive, and leave it alone. Returns its pid."""
    environment = {name: value for name, value in os.environ.items() if name not in _OF_ONE_RUN}
    nowhere = [(os.POSIX_SPAWN_OPEN, each, os.devnull, os.O_RDWR, 0) for each in range(3)]
    words = [sys.executable, "-P", "-m", MAKER, IDLE]
    return os.posix_spawn(sys.executable, words, environment, file_actions=nowhere, setsid=True)


# --- a bound on their number -----------------------------------------------------------------------------------------


def remove_old(folder: Path) -> None:
    """Keep the archives that were used last. What a maker left that was killed goes too."""
    now = time.time()
    found: list[tuple[float, Path]] = []
    for path in folder.iterdir():
        with suppress(OSError):
            used = path.stat().st_mtime
            if path.suffix == _SUFFIX:
                found.append((used, path))
            elif now - used > limits.SPARK_ARCHIVE_RETRY_S:
                path.unlink()
    for _, path in sorted(found, reverse=True)[limits.SPARK_ARCHIVES_MAX :]:
        with suppress(OSError):
            path.unlink()
