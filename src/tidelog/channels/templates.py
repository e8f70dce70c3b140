"""Texts with places that are filled in: `room/{channel.id}`. There is no logic in them.

A place is a name in braces, with dots: `{message.id}`. A name that there is not is an error when the template is read,
so that nothing is found out with the first message. All other braces are text, which JSON needs:

    {"text": {message.content_json}}

Names of a channel, in all templates:

    {channel}              its name
    {channel.<capture>}    what a named group of the regular expression matched
    {channel.id}           its name, unless the expression has a group `id`: then that, as in the original

Names of a message, where there is one:

    {message.id}
    {message.content_json}    the content as it was published
    {message.content}         the same; of a JSON string, the text that it stands for
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Final
from urllib.parse import quote

_PLACE: Final = re.compile(r"\{([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)\}", re.ASCII)

MESSAGE_NAMES: Final = frozenset({"message.id", "message.content", "message.content_json"})


class TextTemplate:
    """A text with places; `ValueError` says what is wrong with it."""

    __slots__ = ("_parts", "names", "text")

    def __init__(self, text: str, known: Collection[str]) -> None:
        """`known`: the names that it may use."""
        self.text: Final = text
        self._parts = _PLACE.split(text)  # text, name, text, name, ..., text
        self.names: Final = frozenset(self._parts[1::2])
        for name in sorted(self.names):
            if name not in known:
                raise ValueError(f"uses {{{name}}}, which there is not (there are {_shown(known)})")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TextTemplate) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    @property
    def start(self) -> str:
        """The text before the first place."""
        return self._parts[0]

    def fill(self, values: Mapping[str, str], encoded: Callable[[str], str] = str) -> str | None:
        """The text; None if a value is missing: a group of the expression took no part in the match."""
        parts = list(self._parts)
        for index in range(1, len(parts), 2):
            value = values.get(parts[index])
            if value is None:
                return None
            parts[index] = encoded(value)
        return "".join(parts)


def channel_names(captures: Collection[str]) -> frozenset[str]:
    """What templates may use of a channel."""
    return frozenset({"channel", "channel.id", *(f"channel.{name}" for name in captures)})


def channel_values(channel: str, captures: Mapping[str, str | None]) -> dict[str, str]:
    """`captures`: all named groups; None: it took no part in the match, and `{channel.id}` is not the name instead."""
    values = {"channel": channel, "channel.id": channel, **{f"channel.{name}": text for name, text in captures.items()}}
    return {name: value for name, value in values.items() if value is not None}


def in_url(value: str) -> str:
    """A value as a part of a path or a query. Dots alone would be a step in the path, so they are encoded as well."""
    if value and not value.strip("."):
        return "%2E" * len(value)
    return quote(value, safe="")


def _shown(names: Collection[str]) -> str:
    return ", ".join(f"{{{name}}}" for name in sorted(names))
