"""The file of `tidelog pipeline run`: which jobs run, with which options, and when.

    url = "redis://10.0.0.5:6399"       an option of every job that has it and says nothing else

    [lake]                              a job, by the name of its command
    to = "lake"                         its options, as on the command line: --to lake
    prefix = ["order:", "cart:"]        one that may be repeated

    [compress]
    every = "1h"                        or at = "03:00"; a job that can follow its server does so without either
    older_than_days = 2

There is no second list of options: an entry becomes words of a command line, which the command itself parses and checks
(`words_of`). A job is one row of `JOBS`.
"""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import time as time_of_day
from functools import cache
from typing import Any, Final, NamedTuple

import typer

from tidelog import limits
from tidelog.cli.pipeline import compress, expire, lake, view
from tidelog.engine.parameters import BadValue, read_age
from tidelog.errors import ClientError, TidelogError


class JobRow(NamedTuple):
    """A job that a file can name."""

    name: str
    """The word after `tidelog pipeline`."""
    function: Callable[..., None]
    """The command."""
    turn: str | None = None
    """Jobs with the same word here never run at the same time."""


JOBS: Final = (
    JobRow("lake", lake.lake),
    JobRow("view", view.view),
    JobRow("compress", compress.compress, turn="days"),
    JobRow("expire", expire.expire, turn="days"),
)

_EVERY: Final = "every"
_AT: Final = "at"
_OF_PROCESS: Final = frozenset({"master", "conf"})
"""Parameters of the commands that all jobs share: there is one Spark session."""
_OF_RUN: Final = frozenset({"once", "progress", "as_json", "form", "only_list", "today"})
"""Parameters that are decided here: how long a job runs, and what is printed."""
_TIME: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")


@dataclass(frozen=True, slots=True)
class FileJob:
    """A job as the file has it."""

    row: JobRow
    words: tuple[str, ...]
    """Its options, as words of a command line."""
    every_s: int | None
    at_s: tuple[int, ...]
    can_follow: bool
    """The command has --continuous."""

    @property
    def is_endless(self) -> bool:
        return self.every_s is None and not self.at_s

    def run(self, *, is_once: bool) -> int:
        """Run the command on this thread, by whatever host it has; its exit status."""
        words = list(self.words)
        if self.can_follow:
            words.append("--once" if is_once or not self.is_endless else "--continuous")
        command = _command(self.row)
        with command.make_context(self.row.name, words) as context:
            status: int = command.invoke(context)
            return status


@dataclass(frozen=True, slots=True)
class JobsFile:
    """A file that was read, and whose entries are known."""

    path: str
    jobs: tuple[FileJob, ...]
    master: str | None
    conf: tuple[str, ...]

    def refusal(self, job: FileJob, reason: str) -> ClientError:
        return ClientError(f"{self.path}: [{job.row.name}]: {reason}")


def read_jobs(path: str) -> JobsFile:
    """Read a file; `ClientError` names the entry that is not good, and what to write."""
    try:
        with open(path, "rb") as file:
            content = tomllib.load(file)
    except OSError as error:
        raise ClientError(f"{path}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ClientError(f"{path}: not TOML: {error}") from None
    return _FileReader(path, content).read()


@cache
def _command(row: JobRow) -> Any:
    """The command without what `guarded` does with its errors: they come to us."""
    app = typer.Typer(add_completion=False)
    app.command(row.name)(inspect.unwrap(row.function))
    return typer.main.get_command(app)


class _FileReader:
    """Takes the content of a file apart."""

    def __init__(self, path: str, content: Mapping[str, Any]) -> None:
        self._path = path
        self._content = content

    def read(self) -> JobsFile:
        rows = {row.name: row for row in JOBS}
        tables = {name: value for name, value in self._content.items() if isinstance(value, dict)}
        for name in tables:
            if name not in rows:
                raise self._refusal(f"[{name}]", f"is not a job: write one of {', '.join(f'[{row}]' for row in rows)}")
        if not tables:
            raise ClientError(f"{self._path}: names no job: write [lake], [view], [compress] ..., and below it options")
        shared = {name: value for name, value in self._content.items() if name not in tables}
        conf = shared.pop("conf", [])
        master = shared.pop("master", None)
        if not isinstance(conf, list) or not all(isinstance(each, str) for each in conf):
            raise self._refusal("conf", 'is a list of Spark settings: write conf = ["spark.driver.memory=2g"]')
        if not (master is None or isinstance(master, str)):
            raise self._refusal("master", 'is a text: write master = "spark://HOST:PORT"')
        for name in shared:
            if not any(name in _options_of(rows[table]) for table in tables):
                hint = "" if name in ("every", "at") else ", and there is no such table"
                raise self._refusal(name, f"is no option of {' or '.join(tables)}{hint}")
        jobs = [self._job(rows[name], shared, entries) for name, entries in tables.items()]
        return JobsFile(self._path, tuple(jobs), master, tuple(conf))

    def _job(self, row: JobRow, shared: Mapping[str, Any], own: Mapping[str, Any]) -> FileJob:
        options = _options_of(row)
        entries = {name: value for name, value in own.items() if name not in (_EVERY, _AT)}
        for name in entries:
            if name not in options:
                raise self._refusal(f"[{row.name}] {name}", self._why_not(row, name))
        entries = {**{name: value for name, value in shared.items() if name in options}, **entries}
        words = [word for name, value in entries.items() for word in self._words(row, name, options[name], value)]
        every_s, at_s = self._every_s(row, own.get(_EVERY)), self._at_s(row, own.get(_AT))
        can_follow = any(each.name == "once" for each in _command(row).params)
        if every_s is not None and at_s:
            raise self._refusal(f"[{row.name}]", "has both every and at: write one of them")
        if every_s is None and not at_s and not can_follow:
            raise self._refusal(f"[{row.name}]", 'does not say when it runs: write every = "1h" or at = "03:00"')
        self._check(row, words)
        return FileJob(row, tuple(words), every_s, at_s, can_follow)

    def _why_not(self, row: JobRow, name: str) -> str:
        parameters = {entry: each.name for each in _command(row).params for entry in _entries_of(each)}
        if parameters.get(name) in _OF_PROCESS:
            return "is for all jobs, which share one Spark session: write it above the tables"
        if name in parameters:
            return f"is not for a file: `tidelog pipeline run` decides it, or `tidelog pipeline {row.name}` alone"
        return f"is not an option: it has {', '.join([_EVERY, _AT, *sorted(_options_of(row))])}"

    def _words(self, row: JobRow, name: str, parameter: Any, value: Any) -> list[str]:
        """An entry, as words of a command line."""
        place = f"[{row.name}] {name}"
        option: str = parameter.opts[0]
        if parameter.is_flag:
            if not isinstance(value, bool):
                raise self._refusal(place, "is true or false")
            if value:
                return [option]
            return list(parameter.secondary_opts[:1])
        values = value if isinstance(value, list) else [value]
        if isinstance(value, list) and not parameter.multiple:
            raise self._refusal(place, "takes one value, not a list")
        for each in values:
            if isinstance(each, bool) or not isinstance(each, str | int | float):
                raise self._refusal(place, "takes a text or a number")
        return [f"{option}={each}" for each in values]

    def _check(self, row: JobRow, words: Sequence[str]) -> None:
        """What the command itself says to these words."""
        try:
            with _command(row).make_context(row.name, list(words)):
                pass
        except typer.BadParameter as error:
            parameter: Any = error.param
            names = [] if parameter is None else _entries_of(parameter)
            if not names:
                raise self._refusal(f"[{row.name}]", error.format_message()) from None
            if not error.message:  # it is missing
                told = f"is missing: {parameter.help or ''}".rstrip(": ")
                raise self._refusal(f"[{row.name}] {names[0]}", told) from None
            raise self._refusal(f"[{row.name}] {names[0]}:", error.message.removeprefix("Value error, ")) from None

    def _every_s(self, row: JobRow, value: Any) -> int | None:
        if value is None:
            return None
        try:
            seconds = read_age(str(value))
        except BadValue:
            seconds = 0
        if isinstance(value, bool) or not 1 <= seconds <= limits.PIPELINE_EVERY_S_MAX:
            raise self._refusal(f"[{row.name}] every", 'is a time from 1s to 366d, such as "30m", "1h" or "7d"')
        return seconds

    def _at_s(self, row: JobRow, value: Any) -> tuple[int, ...]:
        values = value if isinstance(value, list) else [] if value is None else [value]
        seconds = []
        for each in values:
            text = each.strftime("%H:%M") if isinstance(each, time_of_day) else each
            found = _TIME.fullmatch(text) if isinstance(text, str) else None
            if found is None:
                raise self._refusal(
                    f"[{row.name}] at", 'is a time of the day in UTC, or a list of them: at = ["03:00", "15:30"]'
                )
            seconds.append(3600 * int(found[1]) + 60 * int(found[2]))
        if value is not None and not 1 <= len(seconds) <= limits.PIPELINE_TIMES_MAX:
            raise self._refusal(f"[{row.name}] at", f"has {len(seconds)} times: give 1 to {limits.PIPELINE_TIMES_MAX}")
        return tuple(sorted(set(seconds)))

    def _refusal(self, place: str, reason: str) -> TidelogError:
        return ClientError(f"{self._path}: {place} {reason}")


def _entries_of(parameter: Any) -> list[str]:
    """How a file spells an option: `--older-than-days` is `older_than_days`."""
    return [name.removeprefix("--").replace("-", "_") for name in parameter.opts if name.startswith("--")]


def _options_of(row: JobRow) -> dict[str, Any]:
    """The options that an entry of a job may set, by what the file calls them."""
    return {
        entry: each
        for each in _command(row).params
        if each.name not in _OF_PROCESS | _OF_RUN
        for entry in _entries_of(each)
        if entry != "help"
    }
