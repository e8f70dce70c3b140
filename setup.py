"""The build: pyproject.toml describes the package; this compiles its hot modules.

mypyc turns typed modules into C, one shared library for all, beside the modules themselves: Python takes those first.
They stay plain Python, and without a C compiler the package works as it is, several times slower.

    python setup.py build_ext --inplace     in a checkout (`bin/build` does it)
    TIDELOG_COMPILE=no pip install ...      leave them as they are
    TIDELOG_COMPILE=must pip install ...    fail if they cannot be compiled
"""

from __future__ import annotations

import os
import sys
from glob import glob
from pathlib import Path

from setuptools import Extension, setup

_HOT = [
    "hlc.py",
    "commands/*.py",
    "journal/control.py",
    "journal/durability.py",
    "journal/flit.py",
    "journal/frame.py",
    "journal/operation.py",
    "journal/record.py",
    "journal/ring.py",
    "journal/segment.py",
    "journal/shard_writer.py",
    "journal/writer.py",
    "resp/*.py",
    "server/blocking.py",
    "server/engine.py",
    "server/hot*.py",
    "server/session.py",
    "server/turn.py",
    "store/expiry.py",
    "store/keyspace.py",
    "store/slots.py",
    "store/store.py",
    "store/transaction.py",
    "store/watch.py",
    "streams/*.py",
    "types/*.py",
]
"""What runs for each command or record."""


def hot_modules() -> list[str]:
    found = {name for pattern in _HOT for name in glob(f"src/tidelog/{pattern}")}
    return sorted(name for name in found if not name.endswith("__init__.py"))


def extensions() -> list[Extension]:
    wanted = os.environ.get("TIDELOG_COMPILE", "if possible")
    if wanted == "no":
        return []
    try:
        from mypyc.build import mypycify

        options = ["--config-file=", "--python-version=3.11", "--ignore-missing-imports", "--explicit-package-bases"]
        made = mypycify(
            [*options, *hot_modules()], opt_level="2", debug_level="0", multi_file=True, group_name="tidelog"
        )
    except (Exception, SystemExit) as error:
        if wanted == "must":
            raise
        print(f"not compiled, and slower for it: {error}", file=sys.stderr)
        return []
    for extension in made:
        extension.optional = wanted != "must"
    return made


os.chdir(Path(__file__).parent)
os.environ["MYPYPATH"] = "src"
setup(ext_modules=extensions())
