"""The fixtures of the tests of scripts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.redis_oracle import redis_peer, redis_port
from tests.scripting.lua_beside_redis import beside
from tests.scripting.running import ScriptMachine, script_machine

__all__ = ["beside", "machine", "redis_peer", "redis_port"]


@pytest.fixture
def machine() -> Iterator[ScriptMachine]:
    with script_machine() as made:
        yield made
