"""What commands that run for long say on stderr about a server that does not answer: once when it begins, and once when
it is over, however often they try in between."""

from __future__ import annotations

from tidelog.cli.exits import complain


class Outage:
    """Told of every attempt, it says what is new."""

    def __init__(self) -> None:
        self._is_told = False
        self._has_begun = True

    def on_lost(self, reason: str, then: str, *, has_begun: bool = True) -> None:
        """There is no connection, and there will be another attempt.

        then        what the command will do when it is connected again
        has_begun   there was a connection before
        """
        text = f"connection lost ({reason}): {then}" if has_begun else f"waiting for a server ({reason})"
        self.tell(text, has_begun=has_begun)

    def tell(self, text: str, *, has_begun: bool) -> None:
        """The same, in other words."""
        if not self._is_told:
            complain(text)
        self._is_told, self._has_begun = True, has_begun

    def end(self) -> None:
        """It answers, as far as it does not do so anyway."""
        if self._is_told:
            self._is_told = False
            complain("connected again" if self._has_begun else "connected")
