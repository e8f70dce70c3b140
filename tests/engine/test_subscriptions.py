"""Subscriptions to patterns: each is read once, not for every message."""

from __future__ import annotations

import time

from tests.engine.blocked import Server, in_loop


@in_loop
async def test_a_long_pattern_does_not_hold_up_messages() -> None:
    server = Server()
    reader, writer = server.connect(), server.connect()
    patterns = ["[a-z]*" * 3400, "?*" * 10_000, "n[e-g]*" * 3000, "new[^s]"]
    await reader("PSUBSCRIBE", patterns[0])
    for pattern in patterns[1:]:
        await reader("PSUBSCRIBE", pattern)
    start = time.monotonic()
    for _ in range(100):
        assert await writer("PUBLISH", "newt", "text") == 1
    assert time.monotonic() - start < 10  # 0.4 s for each of them, if they were read every time
    assert len(reader.replies()) == 100
    await reader("PUNSUBSCRIBE", patterns[3])
    assert await writer("PUBLISH", "newt", "text") == 0
    reader.disconnect()
    assert not server.engine.subscriptions._matchers
