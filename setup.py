"""The build: pyproject.toml describes the package; this compiles its hot modules.

mypyc turns typed modules into C, one shared library for all, beside the modules themselves: Python takes those first.
They stay plain Python, and without a C compiler the package works as it is, slower. With one, a build that cannot
compile them fails: a slow package must be somebody's choice.

    python setup.py build_ext --inplace     in a checkout (`bin/build` does it)
    TIDELOG_COMPILE=no pip install ...      leave them as they are
    TIDELOG_COMPILE=must pip install ...    fail also without a compiler
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from concurrent.futures import Future, ThreadPoolExecutor
from glob import glob
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

_HOT = [
    "hlc.py",
    "commands/*.py",
    "engine/*.py",
    "feeds/*.py",
    "journal/appender.py",
    "journal/control.py",
    "journal/durability.py",
    "journal/flit.py",
    "journal/frame.py",
    "journal/merge.py",
    "journal/new_record.py",
    "journal/open_files.py",
    "journal/operation.py",
    "journal/passes.py",
    "journal/reader.py",
    "journal/record.py",
    "journal/ring.py",
    "journal/segment.py",
    "journal/shard_writer.py",
    "journal/staging.py",
    "journal/unwritten.py",
    "journal/writer.py",
    "replication/*.py",
    "resp/*.py",
    "scripting/*.py",
    "server/activity.py",
    "server/backlog.py",
    "server/connection.py",
    "server/group_commit.py",
    "server/hot*.py",
    "server/long_reply.py",
    "server/rounds.py",
    "server/socket_session.py",
    "server/turns.py",
    "store/buckets.py",
    "store/dead_letters.py",
    "store/deadlines.py",
    "store/expiry.py",
    "store/glob.py",
    "store/keyspace.py",
    "store/large.py",
    "store/shard_records.py",
    "store/slots.py",
    "store/store.py",
    "store/transaction.py",
    "store/type_table.py",
    "store/uses.py",
    "store/watch.py",
    "streams/*.py",
    "types/*.py",
]
"""What runs for each command or record."""

_NOT_HOT = ("__init__.py", "commands/reference.py")
"""Of those: front pages, and a module that is run with `python -m`, which a compiled one cannot be."""


_HINT = (
    "Tidelog's hot modules cannot be compiled (see above; Debian and Ubuntu need gcc and python3-dev). "
    "TIDELOG_COMPILE=no installs Tidelog without compiling it, and slower."
)


def hot_modules() -> list[str]:
    found = {name for pattern in _HOT for name in glob(f"src/tidelog/{pattern}")}
    return sorted(name for name in found if not name.endswith(_NOT_HOT))


def has_compiler() -> bool:
    """Whether the C compiler is there that extensions are built with."""
    named = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    return shutil.which(named.split()[0]) is not None


def extensions() -> list[Extension]:
    """What is compiled; none without a compiler, or if that is wanted."""
    wanted = os.environ.get("TIDELOG_COMPILE", "if possible")
    if wanted == "no":
        return []
    if wanted != "must" and not has_compiler():
        print("there is no C compiler: nothing is compiled, and Tidelog is slower for it", file=sys.stderr)
        return []
    try:
        from mypyc.build import mypycify

        options = ["--config-file=", "--python-version=3.11", "--ignore-missing-imports", "--explicit-package-bases"]
        made = mypycify(
            [*options, *hot_modules()], opt_level="2", debug_level="0", multi_file=True, group_name="tidelog"
        )
    except (Exception, SystemExit):
        print(_HINT, file=sys.stderr)
        raise
    return made


class BuildSideBySide(build_ext):  # type: ignore[misc]  # setuptools ships no types
    """Compiles the files of an extension side by side, and only those that changed: setuptools does neither."""

    def run(self) -> None:
        try:
            super().run()
        except BaseException:
            print(_HINT, file=sys.stderr)
            raise

    def build_extensions(self) -> None:
        compiler: Any = self.compiler
        compile_one, link = compiler._compile, compiler.link_shared_object
        headers_ns = max((os.stat(name).st_mtime_ns for name in glob("build/*.h")), default=0)
        under_way: list[Future[None]] = []

        def compile_soon(made: str, source: str, *arguments: Any) -> None:
            newest_ns = max(os.stat(source).st_mtime_ns, headers_ns)
            if not os.path.exists(made) or os.stat(made).st_mtime_ns <= newest_ns:
                under_way.append(threads.submit(compile_one, made, source, *arguments))

        def link_then(*arguments: Any, **options: Any) -> None:
            for each in under_way:
                each.result()
            link(*arguments, **options)

        with ThreadPoolExecutor(os.cpu_count()) as threads:
            compiler._compile, compiler.link_shared_object = compile_soon, link_then
            super().build_extensions()


if __name__ == "__main__":
    os.chdir(Path(__file__).parent)
    os.environ["MYPYPATH"] = "src"
    setup(ext_modules=extensions(), cmdclass={"build_ext": BuildSideBySide})
