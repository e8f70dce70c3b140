"""Makes Tidelog's modules come from their sources, compiled or not.

With this folder on PYTHONPATH every Python process runs it at its start, so `bin/test --quick` needs no compiler. A
program that patches Tidelog runs it first, because what is compiled cannot be patched.
"""

from __future__ import annotations

import sys
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader


def _sources_only(folder: str) -> FileFinder:
    if "tidelog" not in folder.split("/"):
        raise ImportError(folder)
    return FileFinder(folder, (SourceFileLoader, SOURCE_SUFFIXES))


assert not any(name.startswith("tidelog.") for name in sys.modules), "too late: Tidelog is imported"
sys.path_hooks.insert(0, _sources_only)
sys.path_importer_cache.clear()
