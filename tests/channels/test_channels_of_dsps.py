"""A channel that DSPS kept in a Redis goes on: its keys and bodies are read as they are, and the same ones are written.

DSPS writes a clock as a decimal number, a body as JSON without spaces and with `<`, `>` and `&` escaped, and lets keys
live 15 seconds longer than the expiry that is configured.
"""

from __future__ import annotations

import json
from typing import Final

import pytest

from tests.channels.servers import ChannelServer, in_loop
from tidelog.channels import AckHandleMalformed, message_of

EXPIRE_MS: Final = 30 * 60_000
TTL_S: Final = 30 * 60 + 15
BODIES: Final = {
    1: '{"id":"first","content":{"text":"a \\u003c b \\u0026 c"}}',
    2: '{"id":"second","content":[1.50,null]}',
    3: '{"id":"third","content":"x"}',
}
HANDLE: Final = '{"clk":3,"xs":"q83vEg"}'


def leave_as_dsps(server: ChannelServer) -> None:
    """Three messages, the first of which the subscriber has acknowledged."""
    kept = {"c.{room}.clock": "3", "c.{room}.r.me": "1"}
    for clock, body in BODIES.items():
        kept |= {f"c.{{room}}.m.{clock}": body, f"c.{{room}}.mid.{json.loads(body)['id']}": str(clock)}
    for key, value in kept.items():
        server.client.set(key, value, ex=TTL_S)


@in_loop
async def test_subscribers_of_dsps_go_on_where_they_were(server: ChannelServer) -> None:
    leave_as_dsps(server)
    async with server.channels() as channels:
        assert not (await channels.subscribe("room", "me", expire_ms=EXPIRE_MS)).is_new
        fetched = await channels.fetch("room", "me")
        assert [(each.id, each.value) for each in fetched.messages] == [("second", [1.5, None]), ("third", "x")]
        assert fetched.messages[0].content == b"[1.50,null]"
        assert fetched.handle is not None
        assert await channels.acknowledge("room", "me", fetched.handle, expire_ms=EXPIRE_MS)
        assert not (await channels.publish("room", message_of("first", "again"), expire_ms=EXPIRE_MS)).is_new
        assert (await channels.publish("room", message_of("fourth", {"a": 1}), expire_ms=EXPIRE_MS)).is_new
    wanted = {
        "c.{room}.clock": b"4",
        "c.{room}.r.me": b"3",
        "c.{room}.m.4": b'{"id":"fourth","content":{"a":1}}',
        "c.{room}.mid.fourth": b"4",
    }
    assert {key: server.client.get(key) for key in wanted} == wanted
    assert all(EXPIRE_MS - 60_000 < server.client.pttl(key) <= 1000 * TTL_S for key in wanted)


@in_loop
async def test_handles_of_dsps_are_refused_and_move_nothing(server: ChannelServer) -> None:
    leave_as_dsps(server)
    async with server.channels() as channels:
        with pytest.raises(AckHandleMalformed):
            await channels.acknowledge("room", "me", HANDLE, expire_ms=EXPIRE_MS)
    assert server.cursor("room", "me") == 1
