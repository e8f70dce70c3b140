"""The document's worked tables, line by line: what each step leaves in which key, and for how long.

A TTL of "3 + expire" means: until so long after step 3. On simulated time it is that to the millisecond. On real
servers each step lies between two moments of our clock, and so does each look at a TTL: they must fit together.

One thing differs from the document, which lets the clock expire before the cursors: to subscribe and to acknowledge
raise the clock's TTL, too (2 + expire after the second subscribe, 4 + expire after the acknowledgement).
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from tests.channels.servers import ChannelServer, SimulatedBackend, in_loop
from tidelog.channels import Channels, message_of

EXPIRE_MS: Final = 60_000
BODY: Final = {"id": "msg123", "content": {"text": "hello!"}}
CLOCK: Final = "c.{chX}.clock"
SA: Final = "c.{chX}.r.sA"
SB: Final = "c.{chX}.r.sB"
M1: Final = "c.{chX}.m.1"
MID: Final = "c.{chX}.mid.msg123"


class Line(NamedTuple):
    value: Any
    step: int
    """The TTL is this step + expire."""


TABLES: Final[dict[int, dict[str, Line]]] = {
    1: {CLOCK: Line(0, 1), SA: Line(0, 1), SB: Line(0, 1)},
    2: {CLOCK: Line(0, 2), SA: Line(0, 1), SB: Line(0, 2)},
    3: {CLOCK: Line(1, 3), SA: Line(0, 1), SB: Line(0, 2), M1: Line(BODY, 3), MID: Line(1, 3)},
    4: {CLOCK: Line(1, 4), SA: Line(1, 4), SB: Line(0, 2), M1: Line(BODY, 3), MID: Line(1, 3)},
}


async def play(channels: Channels, look: Callable[[int], Awaitable[None]]) -> None:
    """The document's scenario; `look` is called before it and after each step."""
    await look(0)
    await channels.subscribe("chX", "sA", expire_ms=EXPIRE_MS)
    await channels.subscribe("chX", "sB", expire_ms=EXPIRE_MS)
    await look(1)
    await channels.subscribe("chX", "sB", expire_ms=EXPIRE_MS)
    await look(2)
    await channels.publish("chX", message_of("msg123", {"text": "hello!"}), expire_ms=EXPIRE_MS)
    await look(3)
    fetched = await channels.fetch("chX", "sA")
    assert [message._asdict() for message in fetched.messages] == [{"id": "msg123", "content": b'{"text":"hello!"}'}]
    assert fetched.handle is not None
    await channels.acknowledge("chX", "sA", fetched.handle, expire_ms=EXPIRE_MS)
    await look(4)
    assert (await channels.fetch("chX", "sA")).messages == []
    assert [message.id for message in (await channels.fetch("chX", "sB")).messages] == ["msg123"]


@in_loop
async def test_values_and_ttls_on_simulated_time(machine: SimulatedBackend) -> None:
    step_ms = 1000

    async def look(step: int) -> None:
        keys = {key.decode() for key in machine.machine("KEYS", "c.*")}
        assert keys == set(TABLES.get(step, {}))
        for key, line in TABLES.get(step, {}).items():
            assert json.loads(machine.machine("GET", key)) == line.value
            assert machine.machine("PTTL", key) == EXPIRE_MS - (step - line.step) * step_ms
        machine.advance(step_ms)

    async with Channels(machine) as channels:
        await play(channels, look)


@in_loop
async def test_values_and_ttls_on_real_servers(server: ChannelServer) -> None:
    begun: dict[int, float] = {}
    ended: dict[int, float] = {}

    async def look(step: int) -> None:
        ended[step] = time.monotonic()
        for key, line in TABLES.get(step, {}).items():
            assert json.loads(server.client.get(key)) == line.value
            before = time.monotonic()
            left_s = server.client.pttl(key) / 1000
            after = time.monotonic()
            earliest, latest = begun[line.step] + EXPIRE_MS / 1000, ended[line.step] + EXPIRE_MS / 1000
            assert before + left_s <= latest + 0.002, (step, key)
            assert after + left_s >= earliest - 0.002, (step, key)
        found = set(server.client.scan_iter(match="c.*"))
        assert found == {key.encode() for key in TABLES.get(step, {})}
        time.sleep(0.05)
        begun[step + 1] = time.monotonic()

    async with server.channels() as channels:
        await play(channels, look)
