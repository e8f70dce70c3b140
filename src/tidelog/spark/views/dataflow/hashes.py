"""The hashes of a view on the server.

    view:<name>:<key>      a hash for each row, with a field for each column that is not null

Tasks write them, each those of its bucket. Writing the same rows again changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa

from tidelog import limits
from tidelog.spark.endpoint import Endpoint, call_all
from tidelog.spark.views.dataflow.group_names import as_text
from tidelog.spark.views.naming import hash_prefix

Fields = Mapping[bytes, bytes]


@dataclass(frozen=True)
class Hashes:
    """The hashes of a view. They travel to executors."""

    server: Endpoint
    view: str
    columns: tuple[str, ...]
    """The columns of the view, in order."""

    @property
    def prefix(self) -> bytes:
        return hash_prefix(self.view).encode()

    def write(self, changed: Mapping[bytes, Fields], gone: Iterable[bytes]) -> None:
        """Write hashes, by group, and remove others."""
        commands = [*self.commands(changed), *(["DEL", self.prefix + group] for group in gone)]
        if not commands:
            return
        with self.server.connect() as client:
            for piece in _pieces(commands):
                call_all(client, piece)

    def commands(self, changed: Mapping[bytes, Fields]) -> Iterator[list[Any]]:
        """The commands that make hashes have these fields, and no other column."""
        for group, fields in changed.items():
            key = self.prefix + group
            missing = [name.encode() for name in self.columns if name.encode() not in fields]
            if missing and fields:
                yield ["HDEL", key, *missing]
            if fields:
                yield ["HSET", key, *(word for pair in fields.items() for word in pair)]
            else:  # there is no hash without fields
                yield ["DEL", key]

    def correct(self, client: Any, wanted: Mapping[bytes, Fields]) -> int:
        """Make the hashes of some groups what they should be; without fields: remove them. Returns how many were
        wrong."""
        wrong = 0
        for groups in _pieces(list(wanted)):
            found = read_hashes(client, [self.prefix + group for group in groups])
            commands: list[list[Any]] = []
            for group, fields in zip(groups, found, strict=True):
                if fields == wanted[group]:
                    continue
                wrong += 1
                commands.append(["DEL", self.prefix + group])
                commands += self.commands({group: wanted[group]}) if wanted[group] else []
            call_all(client, commands)
        return wrong

    def groups(self, client: Any) -> Iterator[list[bytes]]:
        """The groups of all hashes that there are, some at a time; one may come twice."""
        cursor: Any = b"0"
        while True:
            cursor, keys = client.execute_command(
                "SCAN", cursor, "MATCH", self.prefix + b"*", "COUNT", limits.VIEW_SCAN_KEYS
            )
            yield [key[len(self.prefix) :] for key in keys]
            if cursor == b"0":
                return

    def fields(self, keys: Sequence[bytes], rows: pa.Table) -> dict[bytes, dict[bytes, bytes]]:
        """The fields of the hashes of some rows of the view, by group."""
        names = [name.encode() for name in self.columns]
        columns = [texts_of(column) for column in rows.columns]
        return {
            group: {name: text.encode() for name, text in zip(names, values, strict=True) if text is not None}
            for group, values in zip(keys, zip(*columns, strict=True), strict=True)
        }


def read_hashes(client: Any, keys: Sequence[bytes]) -> list[dict[bytes, bytes] | None]:
    """The fields of each key; none if there is no such key, None for a key that is no hash."""
    kinds = call_all(client, [["TYPE", key] for key in keys])
    hashes = [key for key, kind in zip(keys, kinds, strict=True) if kind == b"hash"]
    replies = call_all(client, [["HGETALL", key] for key in hashes])
    found = {key: dict(zip(flat[::2], flat[1::2], strict=True)) for key, flat in zip(hashes, replies, strict=True)}
    return [found.get(key, {} if kind in (b"none", b"hash") else None) for key, kind in zip(keys, kinds, strict=True)]


def texts_of(values: Any) -> list[str | None]:
    """Values as text for a hash: floats as Python writes them, all else as Spark does."""
    if pa.types.is_floating(values.type):
        return [None if value is None else repr(value) for value in values.to_pylist()]
    found: list[str | None] = as_text(values).to_pylist()
    return found


def _pieces(things: Sequence[Any]) -> Iterator[list[Any]]:
    rest = iter(things)
    while piece := list(islice(rest, limits.VIEW_CALLS)):
        yield piece
