"""Members of JSON objects as columns.

If the string value of a key, or an entry of a stream, is a JSON object, each of its members becomes a column. The type
of a column is decided when its member is first seen, and stays.

    true, false          boolean
    numbers              double; bigint if all are integers and one of them is beyond what a double holds exactly
    texts                string
    objects and arrays   string: as JSON text

A row always keeps its original value. A value that is not a JSON object has no columns; a member that does not have its
column's type is null there. Such rows are also rows of the table `bad`, with the reason.

A member with the name of a column of the table gets a `_` at its end (`changes` and `current` count as one table here).
Characters that Delta refuses in names become `_`. A name that differs from another only in case gets a `_` at its end
too, because Delta ignores case.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from tidelog import limits
from tidelog.spark.lake.layout import ENTRIES, file_schema, taken_names

ColumnTypes = dict[str, str]
"""Names and types, as Delta calls them."""

ARROW_TYPES: Final = {"boolean": pa.bool_(), "bigint": pa.int64(), "double": pa.float64(), "string": pa.string()}
DELTA_TYPES: Final = {its: name for name, its in ARROW_TYPES.items()}

_REFUSED: Final = re.compile(r"[\s,;{}()=.\"'`\x00-\x1f]")
_EXACT: Final = 2**53
_LONG: Final = 2**63
_NAME_MAX: Final = 200
_WORDS: Final = {
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "a text",
    dict: "an object",
    list: "an array",
}


class JsonColumns:
    """The columns of one table, as one task knows them."""

    def __init__(self, table: str, known: ColumnTypes) -> None:
        self._table = table
        self._taken = taken_names(table)
        self._types = dict(known)
        self._lower = {name.lower(): name for name in known}
        self._names: dict[str, str | None] = {}
        """The column of each member seen so far; None: there is no room for more columns."""
        self._shown: ColumnTypes = {}
        """Columns that rows of this task have had. All later rows have them too."""
        self.found: ColumnTypes = {}
        """Columns that are new."""

    def expand(self, rows: pa.RecordBatch, column: str) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
        """The rows with their columns, and rows for the table `bad`."""
        values = rows.column(column)
        chosen = pc.is_valid(values)
        if "type" in rows.schema.names:
            chosen = pc.and_(chosen, pc.fill_null(pc.equal(rows.column("type"), "string"), False))
        places = pc.indices_nonzero(chosen)
        reasons: dict[int, str] = {}
        documents: list[dict[str, Any]] = []
        for index, text in enumerate(values.filter(chosen).to_pylist()):
            document, problem = _parsed(text)
            documents.append(document)
            if problem:
                reasons[index] = problem
        arrays = self._arrays(documents, reasons)
        made = self._with_columns(rows, places, arrays)
        return made, self._set_aside(rows, column, places, reasons)

    # --- which columns --------------------------------------------------------------------------------------------

    def _arrays(self, documents: Sequence[dict[str, Any]], reasons: dict[int, str]) -> dict[str, Any]:
        arrays: dict[str, Any] = {}
        for member in dict.fromkeys(chain.from_iterable(documents)):
            values = [document.get(member) for document in documents]
            kinds = set(map(type, values)) - {type(None)}
            if not kinds:
                continue
            name = self._name(member)
            if name is None or name in arrays:
                why = "there is no room for its column" if name is None else f"another has the column {name!r}"
                _note(reasons, member, values, lambda _, why=why: why)  # type: ignore[misc]
                continue
            if name not in self._types:
                self._add(name, _type_of(values, kinds))
            arrays[name] = self._array(member, values, kinds, self._types[name], reasons)
        return arrays

    def _name(self, member: str) -> str | None:
        if member not in self._names:
            self._names[member] = self._new_name(member)
        return self._names[member]

    def _new_name(self, member: str) -> str | None:
        name = _REFUSED.sub("_", member.encode(errors="replace").decode())[:_NAME_MAX] or "_"
        if name.rstrip("_").lower() in self._taken:
            name += "_"
        while self._lower.get(name.lower(), name) != name:
            name += "_"
        if name not in self._types and len(self._types) >= limits.LAKE_JSON_COLUMNS_MAX:
            return None
        return name

    def _add(self, name: str, its: str) -> None:
        self._types[name] = self.found[name] = its
        self._lower[name.lower()] = name

    # --- what is in them ------------------------------------------------------------------------------------------

    def _array(self, member: str, values: list[Any], kinds: set[type], its: str, reasons: dict[int, str]) -> Any:
        if its == "string" and kinds & {dict, list}:
            values = _texts(values)
        if kinds <= _FITTING[its]:
            try:
                return pa.array(values, ARROW_TYPES[its])
            except (pa.ArrowException, OverflowError, UnicodeEncodeError):
                pass  # some of them do not fit; find out which
        _note(reasons, member, values, lambda value: None if _fits(value, its) else _problem(value, its))
        return pa.array([value if _fits(value, its) else None for value in values], ARROW_TYPES[its])

    def _with_columns(self, rows: pa.RecordBatch, places: Any, arrays: dict[str, Any]) -> pa.RecordBatch:
        for name in arrays:
            self._shown.setdefault(name, self._types[name])
        if not self._shown:
            return rows
        spots = None  # every row has a value
        if len(places) < rows.num_rows:
            spots = pc.index_in(pa.array(range(rows.num_rows), pa.uint64()), value_set=places)
        columns = list(rows.columns)
        for name, its in self._shown.items():
            found = arrays.get(name)
            if found is None:
                columns.append(pa.nulls(rows.num_rows, ARROW_TYPES[its]))
            else:
                columns.append(found if spots is None else found.take(spots))
        added = [pa.field(name, ARROW_TYPES[its]) for name, its in self._shown.items()]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema([*rows.schema, *added]))

    def _set_aside(
        self, rows: pa.RecordBatch, column: str, places: Any, reasons: dict[int, str]
    ) -> pa.RecordBatch | None:
        if not reasons:
            return None
        order = sorted(reasons)
        picked = rows.take(places.take(pa.array(order)))
        count = len(order)
        columns = {
            "table": pa.repeat(pa.scalar(self._table), count),
            "key": picked.column("stream" if self._table == ENTRIES else "key"),
            "value": picked.column(column),
            "reason": pa.array([reasons[index] for index in order], pa.string()),
            **{name: picked.column(name) for name in ("shard", "ts", "seq")},
        }
        for name in ("field", "offset"):
            if name in rows.schema.names:
                columns[name] = picked.column(name)
        schema = file_schema("bad")
        arrays = [columns.get(each.name, pa.nulls(count, each.type)) for each in schema]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


# --- one value --------------------------------------------------------------------------------------------------------


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_decode: Final[Callable[[str], Any]] = json.JSONDecoder(parse_constant=_refuse).decode


def _parsed(text: bytes) -> tuple[dict[str, Any], str | None]:
    """The object; or an empty one, and the reason. Runs once for each value: the price of JSON columns."""
    try:
        found = _decode(text.decode())
    except UnicodeDecodeError:
        return {}, "it is not UTF-8"
    except ValueError as error:
        return {}, f"it is not JSON: {error}"
    except RecursionError:
        return {}, "it is nested too deeply"
    if type(found) is dict:
        return found, None
    return {}, f"it is {_WORDS.get(type(found), 'null')}, not an object"


_FITTING: Final[dict[str, set[type]]] = {
    "boolean": {bool},
    "double": {int, float},
    "bigint": {int},
    "string": {str, dict, list},
}


def _type_of(values: Iterable[Any], kinds: set[type]) -> str:
    """The type of a new column; if its values have several types, that of the first."""
    if kinds <= {int, float}:
        whole = [value for value in values if value is not None]
        is_long = kinds == {int} and not all(-_EXACT <= value <= _EXACT for value in whole)
        return "bigint" if is_long and all(-_LONG <= value < _LONG for value in whole) else "double"
    if kinds == {bool}:
        return "boolean"
    if kinds <= {str, dict, list}:
        return "string"
    first = next(value for value in values if value is not None)
    return _type_of([first], {type(first)})


def _fits(value: Any, its: str) -> bool:
    if value is None or type(value) not in _FITTING[its]:
        return value is None
    if type(value) is int:
        return -_LONG <= value < _LONG if its == "bigint" else -_EXACT <= value <= _EXACT
    if type(value) is str:
        return _is_text(value)
    return True


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


def _problem(value: Any, its: str) -> str:
    if value is _TOO_DEEP:
        return "it is nested too deeply"
    if type(value) in _FITTING[its]:
        return f"it does not fit exactly into a column of type {its}"
    return f"it is {_WORDS[type(value)]}, but its column has type {its}"


_TOO_DEEP: Final = object()
"""Stands for JSON that can be read but not written again, because it is nested too deeply."""


def _texts(values: Iterable[Any]) -> list[Any]:
    return [_text(value) if type(value) in (dict, list) else value for value in values]


def _text(value: Any) -> Any:
    try:
        return json.dumps(value, separators=(",", ":"))
    except RecursionError:
        return _TOO_DEEP


def _note(reasons: dict[int, str], member: str, values: Iterable[Any], problem: Callable[[Any], str | None]) -> None:
    shown = member.encode(errors="backslashreplace").decode()
    for index, value in enumerate(values):
        if value is not None and (why := problem(value)):
            reasons[index] = f"{reasons[index]}; " if index in reasons else ""
            reasons[index] += f"member {shown!r}: {why}"


# --- all tasks of a batch ---------------------------------------------------------------------------------------------


def agreed(known: ColumnTypes, found: Iterable[Mapping[str, str]]) -> tuple[ColumnTypes, bool]:
    """The known columns and those that tasks have found, and whether all tasks agree.

    If they do not, the first one is right, and the tasks are repeated with its columns.
    """
    columns, is_agreed = dict(known), True
    lower = {name.lower(): name for name in known}
    for each in found:
        for name, its in each.items():
            if name in columns:
                is_agreed = is_agreed and columns[name] == its
            elif name.lower() in lower or len(columns) >= limits.LAKE_JSON_COLUMNS_MAX:
                is_agreed = False
            else:
                columns[name] = its
                lower[name.lower()] = name
    return columns, is_agreed
