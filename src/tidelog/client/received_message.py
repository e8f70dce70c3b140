"""A message of a channel as its reader gets it."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from tidelog.channels import ChannelPlace

_UNREAD: Final = object()


class MessagePlace(NamedTuple):
    """What acknowledges a message."""

    in_channel: ChannelPlace
    """Of the message, or beyond it over what has expired."""
    life: int
    """Which life of the subscriber that belongs to: in the next one, it is the place of another message."""


class ReceivedMessage:
    """A message that was received."""

    __slots__ = ("_content", "id", "json", "place")

    def __init__(self, message_id: str, content: bytes, place: MessagePlace) -> None:
        self.id: Final = message_id
        """The publisher's own id."""
        self.json: Final = content
        """The content as JSON text in UTF-8, with every digit and space that the publisher sent."""
        self.place: Final = place
        """For the reader's acknowledgements."""
        self._content: Any = _UNREAD

    @property
    def content(self) -> Any:
        """The content, parsed when it is first asked for.

        `ValueError` for text that Python does not parse: a number of more than 4300 digits, or what another program
        wrote that is not JSON. `json` still has the text.
        """
        if self._content is _UNREAD:
            self._content = json.loads(self.json)
        return self._content

    def __repr__(self) -> str:
        return f"ReceivedMessage(id={self.id!r}, json={self.json!r})"
