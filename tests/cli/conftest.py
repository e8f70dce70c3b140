"""Data directories on the real disk, made once for all tests of the command line; who damages one takes a copy."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.directories import Written, fill
from tests.cli.view_hashes import kept
from tests.days.servers import servers
from tidelog.system.disk import SystemDisk

__all__ = ["kept", "servers"]


class Made(NamedTuple):
    """A data directory and what is in it."""

    path: Path
    written: list[Written]

    @property
    def snapshot(self) -> Path:
        [path] = (self.path / "snapshots").iterdir()
        return path


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    path = tmp_path_factory.mktemp("made") / "data"
    return Made(path, fill(SystemDisk(), str(path), snapshot=True, sidecars=True, is_newer=False))


@pytest.fixture
def copied(made: Made, tmp_path: Path) -> Made:
    shutil.copytree(made.path, tmp_path / "data")
    return Made(tmp_path / "data", made.written)
