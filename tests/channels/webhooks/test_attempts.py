"""How often a message was tried, as it is kept."""

from __future__ import annotations

import pytest

from tests.channels.servers import SimulatedBackend, in_loop
from tidelog.channels.webhooks.attempts import AttemptNote


@in_loop
async def test_a_note_is_kept_as_long_as_messages_are(machine: SimulatedBackend) -> None:
    note, other = AttemptNote(machine, "news", "hook"), AttemptNote(machine, "news", "other")
    assert await note.read() == ("", 0)
    await note.write("m1", 3, 5000)
    assert await note.read() == ("m1", 3)
    assert await other.read() == ("", 0)
    machine.advance(4999)
    assert await AttemptNote(machine, "news", "hook").read() == ("m1", 3)
    machine.advance(1)
    assert await note.read() == ("", 0)
    await note.write("m2", 1, 5000)
    await note.clear()
    assert await note.read() == ("", 0)


@pytest.mark.parametrize("text", ["", "x", "3", "3 ", "-1 m1", "3 m1 m2", "9999999999 m1"])
@in_loop
async def test_a_note_of_somebody_else_counts_nothing(text: str, machine: SimulatedBackend) -> None:
    machine.machine("SET", "c.{news}.tries.hook", text)
    assert await AttemptNote(machine, "news", "hook").read() == ("", 0)
