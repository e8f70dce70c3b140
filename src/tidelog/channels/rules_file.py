"""The configuration of channels in its file, which may change while a gateway runs.

The file is read when the gateway starts, when it is asked to (`reload`), and on a signal. What is read is used whole or
not at all: a file with a mistake leaves the rules from before in force, and says what is wrong with it.

The table `channels` may be in a file of its own, or beside other settings, which are left to their own reader.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import tomllib
from collections.abc import Collection
from typing import Any, Final

from tidelog import limits
from tidelog.channels.rules import ChannelRules, read_rules
from tidelog.errors import BadChannelRules

_LOG: Final = logging.getLogger("tidelog.channels")


class ChannelRulesFile:
    """The rules in a file, as they were when it could last be read."""

    def __init__(self, path: str, *, beside: Collection[str] = ()) -> None:
        """`BadChannelRules` if they cannot be used; `beside`: settings in the same file that others read."""
        self.path: Final = path
        self._beside = frozenset(beside)
        self._rules = self._read()

    @property
    def rules(self) -> ChannelRules:
        """The same object until they change."""
        return self._rules

    def reload(self) -> None:
        """Read the file again; `BadChannelRules` if it cannot be used, and the rules from before stay in force."""
        try:
            self._rules = self._read()
        except BadChannelRules as problem:
            raise BadChannelRules(f"{problem}; the rules from before stay in force") from None
        _LOG.info("the configuration of channels was read again from %s", self.path)

    def reload_on_signal(self, number: int = signal.SIGHUP) -> None:
        """Read it again on each such signal, in the loop that runs now; a mistake is logged."""
        asyncio.get_running_loop().add_signal_handler(number, self._reload_or_log)

    def _reload_or_log(self) -> None:
        try:
            self.reload()
        except BadChannelRules as problem:
            _LOG.error("%s", problem)

    def _read(self) -> ChannelRules:
        content = self._content()
        for name in content:
            if name != "channels" and name not in self._beside:
                raise BadChannelRules(f"{self.path}: {name}: there is no such setting: groups are written [[channels]]")
        if "channels" not in content:
            raise BadChannelRules(f"{self.path}: there are no channels: write at least one group as [[channels]]")
        return read_rules(content["channels"], self.path, os.path.dirname(os.path.abspath(self.path)))

    def _content(self) -> dict[str, Any]:
        try:
            with open(self.path, "rb") as file:
                data = file.read(limits.CHANNEL_RULES_BYTES_MAX + 1)
        except OSError as error:
            raise BadChannelRules(f"{self.path}: cannot be read: {error.strerror}") from None
        if len(data) > limits.CHANNEL_RULES_BYTES_MAX:
            raise BadChannelRules(f"{self.path}: has more than {limits.CHANNEL_RULES_BYTES_MAX} bytes")
        try:
            return tomllib.loads(data.decode())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadChannelRules(f"{self.path}: is not TOML: {error}") from None
