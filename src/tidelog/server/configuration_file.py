"""CONFIG REWRITE: what CONFIG SET has changed goes into the configuration file, which stays as it is otherwise.

    maxmemory = "1gb"  # half of the machine        the value is replaced, the comment stays
    # timeout = 0                                   the new line comes below it
    (not there)                                     the new line comes last

The file is written anew beside the old one and takes its place at once, when it is on the disk: a crash leaves one or
the other. Before that it is read as a start would read it, and must say what it said, but for what has changed.

Parameters that are no settings (`slowlog-max-len`), and secrets, are kept only until a restart. So is what a flag or
the environment says, which wins over the file. The log tells which those are.
"""

from __future__ import annotations

import json
import logging
import os
import re
import stat
import tempfile
import tomllib
from collections.abc import Mapping
from typing import Any, Final

from tidelog.engine.parameters import BadValue
from tidelog.errors import ClientError
from tidelog.server.configuration import SETTINGS, ServerConfig
from tidelog.server.setting_values import read_switch

_LOG: Final = logging.getLogger("tidelog")

_SETTINGS_OF: Final = {"lua-time-limit": "script-time-limit", "busy-reply-threshold": "script-time-limit"}
"""Parameters that are settings by another name."""
_ROLE: Final = "replicaof"
"""Changes by itself, with the role. The data directory keeps it: it is only put right where the file has it."""
_VALUE: Final = (
    r"""(?P<value>"(?:[^"\\\r\n]|\\.)*"|'[^'\r\n]*'|[^"'#\s\[\{][^#\r\n]*?)"""
    r"""(?P<rest>[ \t]*(?:\#[^\r\n]*)?)(?=\r?$)"""
)


class ConfigurationFile:
    """The file that a server was started with, and what has changed since."""

    def __init__(self, path: str, given_elsewhere: frozenset[str] = frozenset()) -> None:
        self._path = path
        self._given_elsewhere = given_elsewhere
        self._changed: set[str] = set()
        """Parameters that CONFIG SET has changed."""

    def changed(self, name: str) -> None:
        self._changed.add(name)

    def rewrite(self, values: Mapping[str, str]) -> None:
        """Write what has changed; `values`: what all parameters are now."""
        with open(self._path, encoding="utf-8", newline="") as file:
            text = file.read()
        before = self._parsed(text)
        wanted: dict[str, Any] = {}
        lost: list[str] = []
        for name in sorted(self._changed):
            setting = _SETTINGS_OF.get(name, name)
            if setting not in SETTINGS:
                lost.append(name)
                continue
            if setting in self._given_elsewhere:
                lost.append(name)
            wanted[setting] = _toml_value(setting, values[name])
        if _ROLE in before:
            wanted[_ROLE] = _leader(values.get(_ROLE, ""))
        wanted = {name: value for name, value in wanted.items() if not _means_the_same(name, before.get(name), value)}
        for setting, value in wanted.items():
            text = _with(text, setting, value)
        if self._parsed(text) != {name: value for name, value in (before | wanted).items() if value is not None}:
            raise self._unreadable()
        self._replace(text)
        if lost:
            _LOG.warning("CONFIG REWRITE: until a restart only, as %s cannot keep it: %s", self._path, ", ".join(lost))

    def _parsed(self, text: str) -> dict[str, Any]:
        """What the file says. One that nobody could read, or with something else in it, is never written."""
        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError:
            raise self._unreadable() from None

    def _unreadable(self) -> ClientError:
        return ClientError(f"{self._path} cannot be changed line by line as it is: change it by hand")

    def _replace(self, text: str) -> None:
        path = os.path.realpath(self._path)  # it may be a link to a file elsewhere
        folder = os.path.dirname(path)
        number, new = tempfile.mkstemp(prefix=".tidelog-", suffix=".toml", dir=folder)
        try:
            with open(number, "w", encoding="utf-8", newline="") as file:
                os.fchmod(number, stat.S_IMODE(os.stat(path).st_mode))
                file.write(text)
                file.flush()
                os.fsync(number)
            os.replace(new, path)
        except BaseException:
            os.unlink(new)
            raise
        names = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(names)
        finally:
            os.close(names)


def configuration_file(config: ServerConfig) -> ConfigurationFile | None:
    """That of a server; None: it was started without one."""
    return None if config.config_file is None else ConfigurationFile(config.config_file, config.given_elsewhere)


def _toml_value(setting: str, text: str) -> Any:
    """A value as the file has it: such that a start reads what the parameter says now."""
    if SETTINGS[setting].read is read_switch:
        return text == "yes"
    if text.removeprefix("-").isdecimal():
        try:
            SETTINGS[setting].read(int(text))
        except BadValue:
            return text
        return int(text)
    return text


def _leader(text: str) -> str | None:
    """A host and a port as the file has them; None: there are none."""
    host, _, port = text.rpartition(" ")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}" if host else None


def _means_the_same(setting: str, old: Any, new: Any) -> bool:
    """Whether a start would read the same: `"1gb"` is a number of bytes, too."""
    try:
        return None not in (old, new) and SETTINGS[setting].read(old) == SETTINGS[setting].read(new)
    except BadValue:
        return False


def _with(text: str, setting: str, value: Any) -> str:
    """The text with a setting changed; None: with none."""
    shown = json.dumps(value, ensure_ascii=False)  # TOML writes these as JSON does
    key = rf"""(?P<key>^[ \t]*(?:{setting}|"{setting}"|'{setting}')[ \t]*=[ \t]*)"""
    found = re.search(key + _VALUE, text, re.MULTILINE)
    if found is not None and value is None:
        return f"{text[: found.start()]}# {text[found.start() :]}"
    if found is not None:
        return f"{text[: found.start('value')]}{shown}{text[found.end('value') :]}"
    ends = re.search(r"\r?\n", text)
    end = ends[0] if ends is not None else "\n"
    shown_default = re.search(rf"^[ \t]*#[ \t]*{setting}[ \t]*=.*$", text, re.MULTILINE)
    if shown_default is not None:
        at = shown_default.end() - text[: shown_default.end()].endswith("\r")
        return f"{text[:at]}{end}{setting} = {shown}{text[at:]}"
    if text and not text.endswith("\n"):
        text += end
    return f"{text}{setting} = {shown}{end}"
