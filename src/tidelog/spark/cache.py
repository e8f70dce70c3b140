"""Files in the user's cache folder: they can be made again at any time, and several processes may make them at once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def cache_folder(environment: Mapping[str, str]) -> Path:
    base = environment.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "tidelog" / "spark"


def write_once(path: Path, data: bytes, *, mode: int = 0o644) -> Path:
    """Make a file, unless it is there with this content. It is renamed: another process may be about to read it."""
    if not path.exists() or path.read_bytes() != data:
        path.parent.mkdir(parents=True, exist_ok=True)
        made = path.with_name(f"{path.name}.{os.getpid()}")
        made.write_bytes(data)
        made.chmod(mode)
        made.replace(path)
    return path
