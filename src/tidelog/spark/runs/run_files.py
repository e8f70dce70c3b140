"""Runs: files of sorted rows that never change, and where they lie.

    run       Arrow IPC, not compressed: it is mapped into memory, and any number of processes open it at no cost
      batch   at most `limits.RUN_BATCH_ROWS` rows or `RUN_BATCH_BYTES`; sorted within and over all batches

A run in a folder is mapped where it lies. One in an object store is fetched once for each machine, into the cache
folder of the user, which all workers of the machine share; files that were not used for longest go when the cache is
full. A run that is missing or has another size than its list says is `RunLost`: whoever keeps runs can make them again
from the source.

A name is written by one task. If the task is tried again, or two attempts run side by side, the second file replaces
the first; both hold the same rows, because a task is a function of its input.
"""

from __future__ import annotations

import os
import secrets
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.fs as pa_fs

from tidelog import limits
from tidelog.errors import EnvironmentFault
from tidelog.spark.cache import cache_folder
from tidelog.spark.delta.faults import faults_at
from tidelog.spark.delta.storage import Storage

SUFFIX: Final = ".run"

Batches = Sequence[pa.RecordBatch]
"""The rows of a run, in order."""


class RunLost(EnvironmentFault):
    """A run that a list names is not there, or is damaged."""


class RunName(NamedTuple):
    """A run, as a list names it."""

    name: str
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class RunFiles:
    """The folder of some runs. It travels to executors."""

    storage: Storage
    folder: str

    def write(self, name: str, parts: Iterable[pa.Table]) -> RunName | None:
        """Write rows, given in order and some at a time; None: there are none, and no run."""
        parts = (part for part in parts if len(part))
        first = next(parts, None)
        if first is None:
            return None
        parts = chain([first], parts)
        if not self.storage.is_local:
            sink = pa.BufferOutputStream()
            rows = _write(sink, first.schema, parts)
            data = sink.getvalue()
            with faults_at(self._uri):
                self.storage.write(self.folder, name + SUFFIX, data)
            return RunName(name, rows, data.size)
        folder = Path(self._uri)
        with faults_at(self._uri):
            folder.mkdir(parents=True, exist_ok=True)
            made = folder / f"{name}.{secrets.token_hex(4)}.part"
            try:
                with pa.OSFile(str(made), "wb") as file:
                    rows = _write(file, first.schema, parts)
                size_bytes = made.stat().st_size
                made.replace(folder / (name + SUFFIX))
            finally:
                made.unlink(missing_ok=True)
        return RunName(name, rows, size_bytes)

    def open(self, run: RunName) -> Batches:
        """The rows of a run."""
        path = Path(self._uri) / (run.name + SUFFIX) if self.storage.is_local else self._fetched(run)
        return _OPENED.open(path, run)

    def remove(self, names: Sequence[str]) -> None:
        """Remove runs that nothing names any more. One that is gone already is none to remove."""
        with faults_at(self._uri):
            files = self.storage.files(self.folder)
            for name in names:
                try:
                    files.delete_file(name + SUFFIX)
                except FileNotFoundError:
                    continue

    def names(self) -> list[str]:
        """All runs that lie there, also those that no list names."""
        with faults_at(self._uri):
            found = self.storage.files(self.folder).get_file_info(pa_fs.FileSelector("", allow_not_found=True))
        return [each.base_name.removesuffix(SUFFIX) for each in found if each.base_name.endswith(SUFFIX)]

    @property
    def _uri(self) -> str:
        return self.storage.uri(self.folder)

    def _fetched(self, run: RunName) -> Path:
        """A run of an object store, in this machine's cache."""
        path = cache_folder(os.environ) / "runs" / (run.name + SUFFIX)
        try:
            if path.stat().st_size == run.size_bytes:
                os.utime(path)
                return path
        except FileNotFoundError:
            pass
        try:
            with self.storage.files(self.folder).open_input_stream(run.name + SUFFIX) as file:
                data = file.read()
        except FileNotFoundError:
            raise RunLost(f"{self._uri}/{run.name} is missing") from None
        path.parent.mkdir(parents=True, exist_ok=True)
        _make_room(path.parent, len(data))
        made = path.with_name(f"{path.name}.{os.getpid()}.part")
        made.write_bytes(data)
        made.replace(path)
        return path


def _write(sink: Any, schema: pa.Schema, parts: Iterable[pa.Table]) -> int:
    """Returns how many rows were written."""
    count = 0
    with pa.ipc.new_file(sink, schema) as writer:
        for part in parts:
            per_row = max(1, part.nbytes // len(part))
            most = max(1, min(limits.RUN_BATCH_ROWS, limits.RUN_BATCH_BYTES // per_row))
            for start in range(0, len(part), most):
                # In one chunk, so that a batch is as large as it may be.
                writer.write_table(part.slice(start, most).combine_chunks(), max_chunksize=most)
            count += len(part)
    return count


def _make_room(folder: Path, size_bytes: int) -> None:
    """Remove what was not used for longest. What a process has mapped stays readable for that process."""
    found = []
    for each in folder.iterdir():
        try:
            about = each.stat()
        except FileNotFoundError:
            continue
        found.append((about.st_mtime, about.st_size, each))
    left = sum(size for _, size, _ in found) + size_bytes
    for _, size, each in sorted(found):
        if left <= limits.RUN_CACHE_BYTES:
            return
        each.unlink(missing_ok=True)
        left -= size


class _Opened:
    """Runs that this process has mapped."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Path, tuple[int, Batches]] = OrderedDict()

    def open(self, path: Path, run: RunName) -> Batches:
        kept = self._kept.get(path)
        if kept is not None and kept[0] == run.size_bytes:
            self._kept.move_to_end(path)
            return kept[1]
        try:
            if path.stat().st_size != run.size_bytes:
                raise RunLost(f"{path} has another size than the list of runs says")
            reader = pa.ipc.open_file(pa.memory_map(str(path)))
            batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
        except FileNotFoundError:
            raise RunLost(f"{path} is missing") from None
        except (pa.ArrowInvalid, OSError) as error:
            raise RunLost(f"{path} cannot be read: {error}") from None
        self._kept[path] = run.size_bytes, batches
        if len(self._kept) > limits.RUNS_OPEN_MAX:
            self._kept.popitem(last=False)
        return batches


_OPENED: Final = _Opened()
