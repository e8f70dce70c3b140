"""Clients that wait, on a Tidelog and a real Redis side by side."""

from __future__ import annotations

from typing import Any

from tests.conformance.socket_pair import Both, Connection


def wait_for_blocked(both: Both, count: int) -> None:
    """Until so many clients wait, on both."""

    def is_so() -> bool:
        replies = both.admin.each("INFO", "clients")
        return all(f"blocked_clients:{count}\r\n" in str(reply, "utf-8") for reply in replies)

    both.eventually(is_so)


def block(both: Both, *command: Any, protocol: int = 2, before: int = 0) -> Connection:
    made = both.connect(protocol)
    made.send(*command)
    wait_for_blocked(both, before + 1)
    return made
