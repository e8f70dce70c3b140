"""Calls a leader: its ordinary port, a password if there is one, TSYNC, and from then on a replication link.

connected   ─► AUTH, TSYNC
+OK, +OK    ─► the owner is told that it is connected, and gets all bytes that follow
an error    ─► the owner is told why, and the link ends
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidelog.ports import LinkEnd, LinkOwner, Network, NetworkAddress, NetworkLink
from tidelog.resp.encoder import encode

_LINE_BYTES_MAX: Final = 4096


class LeaderCaller:
    """`connect` for `Replication`."""

    def __init__(self, network: Network, password: Callable[[], bytes | None]) -> None:
        self._network = network
        self._password = password
        """Of leaders, at the moment of the call."""

    def connect(self, address: NetworkAddress, owner: LinkOwner) -> NetworkLink:
        password = self._password()
        commands: list[list[bytes]] = [] if password is None else [[b"AUTH", password]]
        call = _LinkCall(owner, [*commands, [b"TSYNC"]], password or b"")
        call.link = self._network.connect(address, call)
        return call.link


class _LinkCall:
    """`ports.LinkOwner` until the leader has agreed; then it only passes on."""

    def __init__(self, owner: LinkOwner, commands: list[list[bytes]], secret: bytes) -> None:
        self._owner = owner
        self._secret = secret
        """What no error may repeat."""
        self._commands = commands
        self._owed = len(commands)
        """Replies that have not come."""
        self._line = b""
        self._problem = ""
        self.link: NetworkLink

    def connected(self) -> None:
        self.link.send(b"".join([encode(words, 2) for words in self._commands]))
        self._commands = []  # they have the password

    def received(self, data: bytes) -> None:
        if not self._owed:
            self._owner.received(data)
            return
        self._line += data
        while self._owed and b"\r\n" in self._line and not self._problem:
            line, _, self._line = self._line.partition(b"\r\n")
            self._take(line)
        if self._problem:
            return
        if self._owed:
            if len(self._line) > _LINE_BYTES_MAX:
                self._refuse("it does not speak the protocol of Redis")
            return
        rest, self._line = self._line, b""
        if rest and self.link.is_open:
            self._owner.received(rest)

    def _take(self, line: bytes) -> None:
        if not line.startswith(b"+"):
            shown = line.replace(self._secret, b"***") if self._secret else line
            self._refuse(f"the leader answers: {shown.lstrip(b'-').decode(errors='replace')}")
            return
        self._owed -= 1
        if not self._owed:
            self._owner.connected()

    def _refuse(self, problem: str) -> None:
        self._problem = problem
        self.link.abort()

    def room(self) -> None:
        if not self._owed:
            self._owner.room()

    def ended(self, end: LinkEnd, reason: str) -> None:
        if self._owed:
            end, reason = "failed", self._problem or reason
        self._owner.ended(end, reason)
