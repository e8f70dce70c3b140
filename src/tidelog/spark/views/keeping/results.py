"""The rows of a view, and its hashes on the server.

    view:<name>:<key>      a hash for each row, with a field for each column that is not null
    views/<name>           the same rows in the lake (`result_table`)

Only changed rows are written. The earlier rows are remembered, so a row that comes out the same is not written again,
and a client that watches a hash is notified of real changes only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import pyarrow as pa

from tidelog import limits
from tidelog.spark.endpoint import Endpoint, call_all
from tidelog.spark.views.keeping.groups import as_text, group_texts
from tidelog.spark.views.naming import hash_prefix
from tidelog.spark.views.sql.plan import ViewPlan

Row = tuple[Any, ...]


class Difference(NamedTuple):
    """How the rows of a view changed."""

    changed: dict[str, Row]
    """By group: rows that are new or changed."""
    gone: dict[str, Row]
    """Rows that are gone, as they were."""

    def __bool__(self) -> bool:
        return bool(self.changed or self.gone)


class Results:
    """The rows of a view, by group."""

    def __init__(self, plan: ViewPlan) -> None:
        self._plan = plan
        self.rows: dict[str, Row] = {}

    def update(self, groups: Iterable[str] | None, table: pa.Table) -> Difference:
        """Set the rows of these groups; `groups` None: of all groups."""
        found = rows_by_group(self._plan, table)
        before = self.rows if groups is None else {name: self.rows[name] for name in groups if name in self.rows}
        changed = {name: row for name, row in found.items() if not _is_same(before.get(name), row)}
        gone = {name: row for name, row in before.items() if name not in found}
        if groups is None:
            self.rows = found
        else:
            self.rows |= changed
            for name in gone:
                del self.rows[name]
        return Difference(changed, gone)


def rows_by_group(plan: ViewPlan, table: pa.Table) -> dict[str, Row]:
    """The rows of a table with the outputs of a view."""
    groups = group_texts([table[name] for name in plan.key], len(table)).to_pylist()
    columns = [column.to_pylist() for column in table.columns]
    return dict(zip(groups, zip(*columns, strict=True), strict=True))


def _is_same(one: Row | None, other: Row) -> bool:
    return one == other or (
        one is not None and all(a == b or (a != a and b != b) for a, b in zip(one, other, strict=True))
    )


# --- hashes -----------------------------------------------------------------------------------------------------------


class Hashes:
    """The hashes of a view."""

    def __init__(self, server: Endpoint, plan: ViewPlan, name: str) -> None:
        self._server = server
        self._columns = [output for output, _ in plan.outputs]
        self._prefix = hash_prefix(name).encode()

    def write(self, difference: Difference, table: pa.Schema) -> None:
        """Write what changed."""
        texts = self.texts(difference.changed, table)
        with self._server.connect() as client:
            pieces: Iterator[list[Any]] = _words(
                [*self._commands(texts), *(["DEL", self._prefix + name.encode()] for name in difference.gone)]
            )
            for piece in pieces:
                call_all(client, piece)

    def _commands(self, texts: Mapping[str, dict[bytes, bytes]]) -> Iterator[list[Any]]:
        for group, fields in texts.items():
            key = self._prefix + group.encode()
            missing = [name.encode() for name in self._columns if name.encode() not in fields]
            if missing and fields:
                yield ["HDEL", key, *missing]
            if fields:
                yield ["HSET", key, *(word for pair in fields.items() for word in pair)]
            else:  # there is no hash without fields
                yield ["DEL", key]

    def reconcile(self, rows: Mapping[str, Row], schema: pa.Schema) -> int:
        """Correct all hashes of the view. Returns how many were wrong."""
        wrong = 0
        wanted = self.texts(rows, schema)
        seen = set()
        with self._server.connect() as client:
            for found in self.read(client):
                commands: list[list[Any]] = []
                for group, fields in found.items():
                    seen.add(group)
                    if fields == wanted.get(group):
                        continue
                    wrong += 1
                    commands.append(["DEL", self._prefix + group.encode(errors="surrogateescape")])
                    commands += self._commands({group: wanted[group]} if group in wanted else {})
                call_all(client, commands)
            missing = {group: fields for group, fields in wanted.items() if group not in seen and fields}
            for piece in _words(list(self._commands(missing))):
                call_all(client, piece)
        return wrong + len(missing)

    def read(self, client: Any) -> Iterator[dict[str, dict[bytes, bytes]]]:
        """The hashes of the view, by group, some at a time."""
        cursor: Any = b"0"
        while True:
            cursor, keys = client.execute_command(
                "SCAN", cursor, "MATCH", self._prefix + b"*", "COUNT", limits.VIEW_SCAN_KEYS
            )
            found = {}
            for key, flat in zip(keys, _hashes(client, keys), strict=True):
                group = key[len(self._prefix) :].decode(errors="surrogateescape")
                found[group] = dict(zip(flat[::2], flat[1::2], strict=True))
            yield found
            if cursor == b"0":
                return

    def texts(self, rows: Mapping[str, Row], schema: pa.Schema) -> dict[str, dict[bytes, bytes]]:
        """The fields of the hashes of some rows."""
        names = [name.encode() for name in schema.names]
        columns = [
            texts_of(pa.array([row[at] for row in rows.values()], field.type)) for at, field in enumerate(schema)
        ]
        return {
            group: {name: text.encode() for name, text in zip(names, values, strict=True) if text is not None}
            for group, values in zip(rows, zip(*columns, strict=True), strict=True)
        }


def _hashes(client: Any, keys: list[bytes]) -> list[list[bytes]]:
    """The reply of HGETALL for each key; empty for a key that is not a hash."""
    kinds = call_all(client, [["TYPE", key] for key in keys])
    hashes = [key for key, kind in zip(keys, kinds, strict=True) if kind == b"hash"]
    found = dict(zip(hashes, call_all(client, [["HGETALL", key] for key in hashes]), strict=True))
    return [found.get(key, []) for key in keys]


def texts_of(values: Any) -> list[str | None]:
    """Values as text for a hash: floats as Python writes them, all else as Spark does."""
    if pa.types.is_floating(values.type):
        return [None if value is None else repr(value) for value in values.to_pylist()]
    found: list[str | None] = as_text(values).to_pylist()
    return found


def _words(commands: Sequence[list[Any]]) -> Iterator[list[Any]]:
    rest = iter(commands)
    while piece := list(islice(rest, limits.VIEW_CALLS)):
        yield piece
