"""The arithmetic of clocks in Lua is that of Python, on Tidelog's Lua and on Redis's, whatever doubles do."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.channels.servers import ChannelServers, SimulatedBackend
from tests.channels.test_clock import EDGES
from tidelog.channels.clock import LARGEST, after, is_clock, steps_between
from tidelog.channels.clock_lua import CLOCK_LUA

BATCH = """
local reply = {}
for index = 1, #ARGV, 2 do
  local one, other = tonumber(ARGV[index]), tonumber(ARGV[index + 1])
  local steps = steps_between(one, other)
  reply[#reply + 1] = text_of(after(one))
  reply[#reply + 1] = steps and text_of(steps) or 'behind'
end
return reply
"""


def pairs() -> list[tuple[int, int]]:
    drawn = random.Random(17)
    clocks = [clock for clock in EDGES if is_clock(clock)]
    clocks += [drawn.randint(-LARGEST, LARGEST) for _ in range(20)]
    near = [(clock, after(clock, drawn.choice((-1, 1)) * drawn.randrange(LARGEST + 1))) for clock in clocks * 5]
    return [(one, other) for one in clocks for other in clocks] + near


@pytest.mark.parametrize("kind", ["tidelog", "redis"])
def test_lua_counts_as_python_does(kind: str, channel_servers: ChannelServers) -> None:
    client: Any = channel_servers.get(kind).client
    checked = pairs()
    reply = client.eval(CLOCK_LUA + BATCH, 0, *(str(clock) for pair in checked for clock in pair))
    expected = []
    for one, other in checked:
        steps = steps_between(one, other)
        expected += [str(after(one)), "behind" if steps is None else str(steps)]
    assert [text.decode() for text in reply] == expected


@pytest.mark.parametrize(
    "value", ["", "x", "nan", "inf", "-inf", "0.5", "1e300", str(LARGEST + 1), str(-LARGEST - 1), "9" * 400]
)
def test_what_is_no_clock_is_refused(value: str, machine: SimulatedBackend) -> None:
    machine.machine("SET", "k", value)
    reply = machine.machine.eval(CLOCK_LUA + "return read_clock(KEYS[1])", ["k"])
    assert "the key k does not hold a clock" in reply


def test_no_key_is_no_clock(machine: SimulatedBackend) -> None:
    assert machine.machine.eval(CLOCK_LUA + "return read_clock(KEYS[1]) or 'none'", ["k"]) == b"none"
