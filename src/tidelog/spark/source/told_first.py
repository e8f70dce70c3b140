"""Puts the error of a source above its traceback.

Spark shows an error of Python code as the text of its traceback, whose last line is the error: below dozens of lines
about the inside of this package, and often outside of the window. So an error of ours that leaves a method that Spark
calls is changed twice. Its traceback begins here, and the rest of it becomes a note, which is shown below the error.
And it gets a cause that says the same in one line, which is shown above everything else, unless Spark leaves causes out
(`spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled`, its default for all but streaming queries).

    [PYTHON_DATA_SOURCE_ERROR] Failed to ...: tidelog.Problem: since=... lies ahead of the server's clock
    ...
    tidelog.spark.options.BadOption: since=... lies ahead of the server's clock
    It was raised here: ...

The error itself stays as it is, for those that catch it or look for it in the text (`jobs/query_error.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from traceback import format_tb
from typing import Any, Final

from tidelog.errors import TidelogError

_CALLED_BY_SPARK: Final = (
    "schema",
    "reader",
    "streamReader",
    "writer",
    "streamWriter",
    "pushFilters",
    "partitions",
    "read",
    "initialOffset",
    "latestOffset",
    "reportLatestOffset",
    "prepareForTriggerAvailableNow",
    "write",
)


class Problem(Exception):
    """What went wrong, in one line."""


Problem.__module__ = "tidelog"  # as it is shown


class ToldFirst:
    """For what Spark calls: the errors of its methods, also those of subclasses, are told first."""

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        for name in _CALLED_BY_SPARK:
            if name in cls.__dict__:
                setattr(cls, name, _telling(cls.__dict__[name]))


def _telling(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def telling(*arguments: Any, **more: Any) -> Any:
        try:
            result = method(*arguments, **more)
        except TidelogError as error:
            raise _shortened(error) from _problem(error)
        return _followed(result) if isinstance(result, Iterator) else result

    return telling


def _followed(results: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from results
    except TidelogError as error:
        raise _shortened(error) from _problem(error)


def _shortened(error: TidelogError) -> TidelogError:
    """The error without its traceback, which is a note now."""
    if not isinstance(error.__cause__, Problem):
        error.add_note("It was raised here:\n" + "".join(format_tb(error.__traceback__)))
    return error.with_traceback(None)


def _problem(error: TidelogError) -> Problem:
    return error.__cause__ if isinstance(error.__cause__, Problem) else Problem(str(error))
