"""The reference says of a command that it is Tidelog's own exactly if a real Redis does not know it."""

from __future__ import annotations

from tests.conformance.redis_7_2 import LATER_COMMANDS
from tests.conformance.redis_oracle import Socket, command_rows, decode
from tidelog.commands.reference import is_own


def test_own_commands(redis_peer: Socket) -> None:
    for row in command_rows():
        (info,) = decode(redis_peer.call([b"COMMAND", b"INFO", row.name.encode()]))
        assert is_own(row) == (info is None and row.name not in LATER_COMMANDS), row.name
