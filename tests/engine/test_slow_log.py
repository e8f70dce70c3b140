"""What is kept of slow commands."""

from __future__ import annotations

import pytest

from tidelog.commands.families import command_table
from tidelog.engine.dispatch import find_command
from tidelog.engine.slow_log import SlowLog


def kept(*arguments: bytes) -> list[bytes]:
    slow_log = SlowLog()
    row = find_command(command_table(), arguments)
    slow_log.add(row, arguments, 1, 2, peer="1.2.3.4:5", client_name=b"me")
    return slow_log.entries[0].arguments


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ((b"AUTH", b"secret"), [b"AUTH", b"(redacted)"]),
        ((b"auth", b"me", b"secret"), [b"auth", b"(redacted)", b"(redacted)"]),
        ((b"HELLO", b"3", b"AUTH", b"me", b"secret"), [b"HELLO", b"3", b"(redacted)", b"(redacted)", b"(redacted)"]),
        ((b"CONFIG", b"SET", b"a", b"secret"), [b"CONFIG", b"SET", b"(redacted)", b"(redacted)"]),
        ((b"SET", b"a", b"x" * 130), [b"SET", b"a", b"x" * 128 + b"... (2 more bytes)"]),
    ],
)
def test_what_is_shown(arguments: tuple[bytes, ...], shown: list[bytes]) -> None:
    assert kept(*arguments) == shown


def test_many_arguments() -> None:
    shown = kept(b"DEL", *[b"%d" % number for number in range(40)])
    assert (len(shown), shown[-1]) == (32, b"... (10 more arguments)")


def test_length() -> None:
    slow_log = SlowLog()
    row = find_command(command_table(), [b"PING"])
    slow_log.length_max = 3
    for number in range(5):
        slow_log.add(row, [b"PING"], number, 1, peer="1.2.3.4:5", client_name=b"me")
    assert [entry.id for entry in slow_log.entries] == [4, 3, 2]
    slow_log.length_max = 2
    assert [entry.id for entry in slow_log.entries] == [4, 3]
    slow_log.length_max = 0
    slow_log.add(row, [b"PING"], 1, 1, peer="1.2.3.4:5", client_name=b"me")
    assert not slow_log.entries
