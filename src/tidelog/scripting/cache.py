"""The scripts that EVALSHA finds, by the SHA1 of their text.

A script that EVAL has brought stays until many others have come after it; one that SCRIPT LOAD has brought stays until
SCRIPT FLUSH, and so there is a limit on their size. Neither outlasts the server: clients send a script again when they
are told NOSCRIPT.
"""

from __future__ import annotations

from collections import OrderedDict

from tidelog import limits
from tidelog.errors import LimitExceeded
from tidelog.scripting.script import Script

_OVERHEAD_BYTES = 200
"""What a script takes beside its text, roughly."""


class ScriptCache:
    """Name -> script."""

    def __init__(self) -> None:
        self._kept: dict[bytes, Script] = {}
        self._passing: OrderedDict[bytes, Script] = OrderedDict()
        """Those of EVAL, the one used longest ago first."""
        self._kept_bytes = 0
        self._passing_bytes = 0
        self.evicted_count = 0

    def __len__(self) -> int:
        return len(self._kept) + len(self._passing)

    @property
    def size_bytes(self) -> int:
        return self._kept_bytes + self._passing_bytes + _OVERHEAD_BYTES * len(self)

    def find(self, sha: bytes) -> Script | None:
        script = self._kept.get(sha)
        if script is None:
            script = self._passing.get(sha)
            if script is not None:
                self._passing.move_to_end(sha)
        return script

    def add(self, script: Script) -> list[Script]:
        """A new script of EVAL; returns those that had to go for it."""
        self._passing[script.sha] = script
        self._passing_bytes += script.size_bytes
        gone = []
        while len(self._passing) > limits.SCRIPTS_PASSING_MAX or self._passing_bytes > limits.SCRIPTS_PASSING_BYTES_MAX:
            _, oldest = self._passing.popitem(last=False)
            self._passing_bytes -= oldest.size_bytes
            self.evicted_count += 1
            gone.append(oldest)
        return gone

    def keep(self, script: Script) -> None:
        """A script of SCRIPT LOAD, new or not; `LimitExceeded`: there are too many."""
        if script.sha in self._kept:
            return
        if self._kept_bytes + script.size_bytes + _OVERHEAD_BYTES > limits.SCRIPTS_KEPT_BYTES_MAX:
            raise LimitExceeded(
                f"the scripts of SCRIPT LOAD take more than {limits.SCRIPTS_KEPT_BYTES_MAX} bytes: use SCRIPT FLUSH"
            )
        if self._passing.pop(script.sha, None) is not None:
            self._passing_bytes -= script.size_bytes
        script.is_kept = True
        self._kept[script.sha] = script
        self._kept_bytes += script.size_bytes + _OVERHEAD_BYTES

    def clear(self) -> None:
        self._kept.clear()
        self._passing.clear()
        self._kept_bytes = self._passing_bytes = 0
