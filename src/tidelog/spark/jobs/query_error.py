"""Why a query of Spark's ended, as one of our errors.

An error that a task raises reaches the driver as the text of a traceback, inside another text. Our errors are found in
it by name. Erased and lost history get their own classes, because a job may know what to do about them.
"""

from __future__ import annotations

import re
from typing import Final

from tidelog.errors import EnvironmentFault, FeedDiverged, ServerUnreachable, TidelogError, TooOld
from tidelog.spark.runs.run_files import RunLost

_OURS: Final = re.compile(r"tidelog\.[\w.]+\.(\w+): (.+)")
_RAISED: Final = re.compile(r"^[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)(?:: .+)?$", re.MULTILINE)
"""The last line of a traceback."""
_TRACEBACK: Final = "Traceback (most recent call last):"
_MISSING: Final = "ModuleNotFoundError"
_ERASED: Final = ("TooOld", "HistoryErased")
_LOST: Final = ("FeedDiverged", "HistoryLost")
_UNREACHABLE: Final = "ServerUnreachable"


def explained(problem: BaseException, ours: BaseException | None) -> TidelogError:
    """`problem`: Spark's error. `ours`: the error that our function for a batch raised, if it did."""
    if isinstance(ours, TidelogError):
        return ours
    found = list(_OURS.finditer(f"{problem}\n{ours}"))
    if not found:
        return EnvironmentFault(f"Spark ended the query: {_reason(str(ours or problem).strip())}")
    name, text = found[-1][1], found[-1][2].strip()
    if name in _ERASED:
        return TooOld(text, oldest=0)
    if name in _LOST:
        return FeedDiverged(text, since=0)
    if name == RunLost.__name__:
        return RunLost(text)
    return ServerUnreachable(text) if name == _UNREACHABLE else EnvironmentFault(text)


def _reason(text: str) -> str:
    """The error that a task raised, if there is a traceback, otherwise the first line."""
    raised = _RAISED.findall(text)
    if not raised:
        # Some errors, such as those of Arrow, are not called so; they end the traceback all the same.
        last = [line for line in text.splitlines() if line.strip() and not line.startswith(" ")][-1:]
        return last[0] if last and _TRACEBACK in text else text.partition("\n")[0]
    reason: str = raised[-1]
    if reason.startswith(_MISSING):
        reason += ". Executors need the packages of tidelog[spark]: PYSPARK_PYTHON names the Python that has them"
    return reason
