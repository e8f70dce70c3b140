"""The file that declares views.

    [views.orders_by_state]
    source = "prefix:order:"       # or "stream:KEY", or "days:QUEUE/JOBSET"
    sql = "select state, count(*) as n from source group by state"
    key = ["state"]                # the columns that name a row; [] if there is always exactly one
    lookups.names = "prefix:name:" # tables that the SQL may join, if any

The whole file is checked before any view is used, except the SQL, which `query` takes apart. A view must not read what
it writes, not even through other views: it would never come to rest. Two definitions with the same `digest` give the
same result, so a view is rebuilt when its definition changes, but not when only its formatting does.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal, cast

from sqlglot.errors import SqlglotError

from tidelog import limits
from tidelog.errors import BadView
from tidelog.spark.views.naming import VIEW_NAME, hash_prefix
from tidelog.spark.views.sql import grammar

SourceKind = Literal["prefix", "stream", "days"]

_KINDS: Final[tuple[SourceKind, ...]] = ("prefix", "stream", "days")
_REQUIRED: Final = ("source", "sql", "key")
_ENTRIES: Final = (*_REQUIRED, "lookups")
_LOOKUP_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_TAKEN: Final = ("source", "groups", "window")
"""Names with a meaning in the SQL of a view or of its plan."""
_PATTERN: Final = re.compile(r"[*?\[\\]")
"""What the kinds `stream` and `days` of the data source take for a pattern. Views are built through these kinds."""


@dataclass(frozen=True, slots=True)
class ViewSource:
    """Where the rows of a view come from."""

    kind: SourceKind
    """`prefix`: a row for each key with that prefix; `stream`: for each entry; `days`: for each event."""
    target: str
    """The prefix, the key of the stream, or QUEUE/JOBSET."""

    def __str__(self) -> str:
        return f"{self.kind}:{self.target}"


@dataclass(frozen=True)
class View:
    """One view, as it is declared."""

    name: str
    source: ViewSource
    """The table `source` of the SQL."""
    sql: str
    key: tuple[str, ...]
    """Output columns that name a row; none if the view is always one row."""
    lookups: Mapping[str, ViewSource] = field(default_factory=dict)
    """Tables that the SQL may join, by name; all are prefixes."""
    path: str = ""
    """The file, for messages."""

    @cached_property
    def digest(self) -> str:
        """A digest of everything that decides the result. White space and comments in the SQL do not."""
        lookups = {name: str(source) for name, source in self.lookups.items()}
        decisive = [str(self.source), grammar.words(self.sql), self.key, lookups]
        return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()

    def refusal(self, reason: str) -> BadView:
        """The error that says why this view is refused."""
        return BadView(_located(self.path, self.name, reason))


def read_views(path: str) -> list[View]:
    """The views of a file, in its order. `BadView` names the file, the view and what to change."""
    try:
        with open(path, "rb") as file:
            content = tomllib.load(file)
    except OSError as error:
        raise BadView(f"{path}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadView(f"{path}: not TOML: {error}") from None
    for name in content:
        if name != "views":
            raise BadView(f"{path}: {name} is not a known entry: declare a view as [views.NAME]")
    declared = content.get("views", {})
    if not isinstance(declared, dict) or not declared:
        raise BadView(f"{path}: declares no view: write [views.NAME], and below it {', '.join(_REQUIRED)}")
    if len(declared) > limits.VIEWS_MAX:
        raise BadView(f"{path}: has {len(declared)} views, more than {limits.VIEWS_MAX}: split it into several files")
    views = [_ViewParser(path, name).view(entries) for name, entries in declared.items()]
    _refuse_circles(views)
    return views


def _located(path: str, name: str, reason: str) -> str:
    return ": ".join([*([path] if path else []), f"view {name}", reason])


class _ViewParser:
    """Reads one view from the file."""

    def __init__(self, path: str, name: str) -> None:
        self._path = path
        self._name = name

    def view(self, entries: Any) -> View:
        if not VIEW_NAME.fullmatch(self._name):
            raise self._refusal("a name is 1 to 64 of the characters A-Z a-z 0-9 _ and -")
        if not isinstance(entries, dict):
            raise self._refusal(f"is {_shown(entries)}, but must be a table: write [views.{self._name}]")
        for entry in entries:
            if entry not in _ENTRIES:
                raise self._refusal(f"{entry} is not a known entry (use {', '.join(_ENTRIES)})")
        for entry in _REQUIRED:
            if entry not in entries:
                raise self._refusal(f"{entry} is missing{_MISSING[entry]}")
        source = self._source("source", entries["source"], _KINDS)
        return View(
            self._name,
            source,
            self._sql(entries["sql"]),
            self._key(entries["key"]),
            self._lookups(entries.get("lookups", {})),
            self._path,
        )

    def _source(self, entry: str, given: Any, kinds: Sequence[SourceKind]) -> ViewSource:
        allowed = " or ".join(f'"{_EXAMPLES[kind]}"' for kind in kinds)
        if not isinstance(given, str):
            raise self._refusal(f"{entry} is {_shown(given)}, but must be text: write {allowed}")
        kind, colon, target = given.partition(":")
        if not colon or kind not in kinds:
            raise self._refusal(f"{entry} is {given!r}: write {allowed}")
        if kind == "days":
            queue, _, jobset = target.partition("/")
            if not queue or not jobset:
                raise self._refusal(f"{entry} is {given!r}: name a job set as days:QUEUE/JOBSET")
        elif not target and kind == "stream":
            raise self._refusal(f"{entry} is {given!r}: the key of the stream is missing")
        if kind != "prefix" and _PATTERN.search(target):
            raise self._refusal(f"{entry} is {given!r}: patterns are not supported: name one {_ONE[kind]}")
        if kind == "prefix" and target.endswith("*"):
            raise self._refusal(f"{entry} is {given!r}: a prefix has no *: write prefix:{target.rstrip('*')}")
        if len(target) > limits.VIEW_TARGET_CHARS_MAX:
            raise self._refusal(f"{entry} has {len(target)} characters, more than {limits.VIEW_TARGET_CHARS_MAX}")
        source = ViewSource(cast(SourceKind, kind), target)
        if _reads(source, self._name):
            raise self._refusal(
                f"{entry} {given!r} includes the view's own hashes {hash_prefix(self._name)}*, so the view would read "
                "what it writes: use a longer prefix"
            )
        return source

    def _sql(self, given: Any) -> str:
        if not isinstance(given, str):
            raise self._refusal(f"sql is {_shown(given)}, but must be text: one SELECT")
        if len(given) > limits.VIEW_SQL_CHARS_MAX:
            raise self._refusal(f"sql has {len(given)} characters, more than {limits.VIEW_SQL_CHARS_MAX}")
        try:
            words = grammar.words(given)
        except SqlglotError as error:
            raise self._refusal(f"sql cannot be read: {grammar.told(error)}") from None
        if not words:
            raise self._refusal("sql is empty: write one SELECT")
        return given

    def _key(self, given: Any) -> tuple[str, ...]:
        names = [given] if isinstance(given, str) else given
        if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
            raise self._refusal(f'key is {_shown(given)}: write the columns that name a row, such as ["state"]')
        if len(set(names)) < len(names):
            raise self._refusal(f"key names a column twice: {', '.join(names)}")
        return tuple(names)

    def _lookups(self, given: Any) -> dict[str, ViewSource]:
        if not isinstance(given, dict):
            raise self._refusal(f"lookups is {_shown(given)}: write [views.{self._name}.lookups], then NAME = ...")
        if len(given) > limits.VIEW_LOOKUPS_MAX:
            raise self._refusal(f"there are {len(given)} lookups, more than {limits.VIEW_LOOKUPS_MAX}")
        seen = set[str]()
        for name in given:
            if not _LOOKUP_NAME.fullmatch(name):
                raise self._refusal(f"lookup {name!r}: a name is a letter and up to 63 letters, digits and _")
            if name.lower() in _TAKEN:
                raise self._refusal(f"lookup {name!r}: the name {name.lower()} is reserved: choose another")
            if name.lower() in seen:
                raise self._refusal(f"lookup {name!r}: another lookup differs only in case, and SQL ignores case")
            seen.add(name.lower())
        return {name: self._source(f"lookup {name}", source, ("prefix",)) for name, source in given.items()}

    def _refusal(self, reason: str) -> BadView:
        return BadView(_located(self._path, self._name, reason))


_MISSING: Final = {
    "source": ': write for example source = "prefix:order:"',
    "sql": ': write for example sql = "select state, count(*) as n from source group by state"',
    "key": ': write the columns that name a row, such as key = ["state"], or key = [] if there is always one row',
}
_ONE: Final = {"stream": "stream", "days": "job set"}
_EXAMPLES: Final[dict[SourceKind, str]] = {"prefix": "prefix:P", "stream": "stream:KEY", "days": "days:QUEUE/JOBSET"}


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    text = json.dumps(value, default=str)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _reads(source: ViewSource, view: str) -> bool:
    """Whether some or all hashes of a view are rows of a source."""
    own = hash_prefix(view)
    return source.kind == "prefix" and (own.startswith(source.target) or source.target.startswith(own))


def _refuse_circles(views: Sequence[View]) -> None:
    """Refuse views that read each other's hashes in a circle."""
    reads = {view.name: list(_read_by(view, views)) for view in views}
    by_name = {view.name: view for view in views}
    done = set[str]()

    def follow(name: str, way: list[str]) -> None:
        if name in way:
            circle = [*way[way.index(name) :], name]
            raise by_name[name].refusal(
                f"reads what it writes: {' reads '.join(circle)}; let one of them read something else"
            )
        if name not in done:
            for read in reads[name]:
                follow(read, [*way, name])
            done.add(name)

    for name in reads:
        follow(name, [])


def in_order(views: Sequence[View]) -> list[tuple[View, int]]:
    """Views so that each comes after those that it reads, with how many of them lie behind one another."""
    by_name = {view.name: view for view in views}
    depths: dict[str, int] = {}

    def depth(view: View) -> int:
        if view.name not in depths:
            depths[view.name] = max((1 + depth(by_name[name]) for name in _read_by(view, views)), default=0)
        return depths[view.name]

    return sorted(((view, depth(view)) for view in views), key=lambda each: each[1])


def _read_by(view: View, views: Sequence[View]) -> Iterator[str]:
    for other in views:
        if other.name != view.name and any(_reads(each, other.name) for each in [view.source, *view.lookups.values()]):
            yield other.name
