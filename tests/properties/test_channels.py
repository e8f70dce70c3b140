"""Channels against a naive model: whatever publishers and subscribers do, in any order, while time passes.

The model has no ring, no TTLs of keys and no scripts: places are whole numbers that only grow, and what has expired is
what has a time behind it. Its places begin near the largest clock, so that runs go over the wrap. Both must answer the
same, to the last handle.

Time is simulated on Tidelog's engine; on the real servers of the other test it stands still.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.channels.servers import ChannelServer, SimulatedBackend, channel_servers, server
from tests.scripting.running import script_machine
from tidelog.channels import AckHandleMalformed, Channels, SubscriptionNotFound, message_of
from tidelog.channels.clock import LARGEST, after
from tidelog.channels.handle import made_handle

__all__ = ["channel_servers", "server"]

KEY: Final = b"0123456789abcdef"
EXPIRES_MS: Final = (1000, 5000)


@dataclass
class Model:
    """One channel."""

    now_ms: int = 0
    newest: int = 0
    """Place of the newest message."""
    expires_ms: int = 0
    """When the channel does."""
    messages: dict[int, tuple[str, int, int]] = field(default_factory=dict)
    """By place: id, value, and when it expires."""
    subscribers: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Place, and when it expires."""

    def _forget(self) -> None:
        self.messages = {at: told for at, told in self.messages.items() if told[2] > self.now_ms}
        self.subscribers = {name: told for name, told in self.subscribers.items() if told[1] > self.now_ms}
        if self.expires_ms <= self.now_ms:
            assert not self.messages
            assert not self.subscribers
            self.newest = 0

    def _keep(self, expire_ms: int) -> None:
        self.expires_ms = max(self.expires_ms, self.now_ms + expire_ms)

    def subscribe(self, name: str, expire_ms: int) -> bool:
        self._forget()
        place, expires_ms = self.subscribers.get(name, (self.newest, 0))
        is_new = name not in self.subscribers
        self.subscribers[name] = place, max(expires_ms, self.now_ms + expire_ms)
        self._keep(expire_ms)
        return is_new

    def unsubscribe(self, name: str) -> bool:
        self._forget()
        return self.subscribers.pop(name, None) is not None

    def publish(self, message_id: str, value: int, expire_ms: int) -> tuple[int, bool]:
        self._forget()
        for place, (known, _, _) in self.messages.items():
            if known == message_id:
                return place, False
        self.newest += 1
        self.messages[self.newest] = message_id, value, self.now_ms + expire_ms
        self._keep(expire_ms)
        return self.newest, True

    def fetch(self, name: str, messages_max: int) -> tuple[list[int], int | None, bool] | None:
        self._forget()
        if name not in self.subscribers:
            return None
        place, _ = self.subscribers[name]
        got: list[int] = []
        at = place
        while at < self.newest and len(got) < messages_max:
            at += 1
            if at in self.messages:
                got.append(self.messages[at][1])
        return got, at if at > place else None, at < self.newest

    def acknowledge(self, name: str, place: int, expire_ms: int) -> bool | str:
        self._forget()
        if name not in self.subscribers:
            return "not found"
        if place > self.newest:
            return "malformed"
        before, expires_ms = self.subscribers[name]
        self.subscribers[name] = max(before, place), max(expires_ms, self.now_ms + expire_ms)
        self._keep(expire_ms)
        return place > before


NAMES: Final = st.sampled_from("ab")
EXPIRY: Final = st.sampled_from(EXPIRES_MS)
IDS: Final = st.integers(0, 5)
STEP: Final = st.one_of(
    st.tuples(st.just("subscribe"), NAMES, EXPIRY),
    st.tuples(st.just("publish"), st.lists(IDS, min_size=1, max_size=4), EXPIRY),
    st.tuples(st.just("fetch"), NAMES, st.integers(1, 5)),
    st.tuples(st.just("take"), NAMES, st.integers(1, 5), EXPIRY),
    st.tuples(st.just("acknowledge"), NAMES, st.integers(0, 9), EXPIRY),
    st.tuples(st.just("unsubscribe"), NAMES),
    st.tuples(st.just("pass"), st.sampled_from([1, 499, 500, 1000, 3000, 5000])),
)
STEPS: Final = st.lists(STEP, min_size=5, max_size=40)


class Run:
    """The same steps on channels and on the model."""

    def __init__(self, channels: Channels, start: int) -> None:
        self._channels = channels
        self._start = start
        self.model = Model()
        self.given_out: list[int] = [0, 1]
        """Places of handles; some may lie beyond the newest after the channel expired."""
        self._count = 0

    def clock(self, place: int) -> int:
        return after(self._start, place)

    async def step(self, step: tuple[Any, ...]) -> None:
        await getattr(self, f"_{step[0]}")(*step[1:])

    async def _subscribe(self, name: str, expire_ms: int) -> None:
        found = await self._channels.subscribe("ch", name, expire_ms=expire_ms)
        assert found.is_new == self.model.subscribe(name, expire_ms)

    async def _unsubscribe(self, name: str) -> None:
        assert await self._channels.unsubscribe("ch", name) == self.model.unsubscribe(name)

    async def _publish(self, ids: list[int], expire_ms: int) -> None:
        self._count += 1
        messages = [message_of(f"m{number}", 100 * self._count + at) for at, number in enumerate(ids)]
        found = await self._channels.publish_several("ch", messages, expire_ms=expire_ms)
        expected = [self.model.publish(message.id, message.value, expire_ms) for message in messages]
        assert [(each.clock, each.is_new) for each in found] == [(self.clock(at), is_new) for at, is_new in expected]

    async def _fetch(self, name: str, messages_max: int) -> None:
        expected = self.model.fetch(name, messages_max)
        if expected is None:
            with pytest.raises(SubscriptionNotFound):
                await self._channels.fetch("ch", name, messages_max=messages_max)
            return
        values, place, has_more = expected
        found = await self._channels.fetch("ch", name, messages_max=messages_max)
        assert ([message.value for message in found.messages], found.has_more) == (values, has_more)
        assert found.handle == (None if place is None else made_handle(KEY, "ch", name, self.clock(place)))
        if place is not None:
            self.given_out.append(place)

    async def _take(self, name: str, messages_max: int, expire_ms: int) -> None:
        """As a client does: fetch, then acknowledge."""
        await self._fetch(name, messages_max)
        await self._acknowledge(name, 0, expire_ms)

    async def _acknowledge(self, name: str, which: int, expire_ms: int) -> None:
        place = self.given_out[-1 - which % len(self.given_out)]
        expected = self.model.acknowledge(name, place, expire_ms)
        handle = made_handle(KEY, "ch", name, self.clock(place))
        if isinstance(expected, bool):
            assert await self._channels.acknowledge("ch", name, handle, expire_ms=expire_ms) is expected
        else:
            error = SubscriptionNotFound if expected == "not found" else AckHandleMalformed
            with pytest.raises(error):
                await self._channels.acknowledge("ch", name, handle, expire_ms=expire_ms)


class SimulatedRun(Run):
    """Time passes. A channel that has expired begins anew at 0, in the model at 0 of its own."""

    def __init__(self, channels: Channels, machine: SimulatedBackend, start: int) -> None:
        super().__init__(channels, start)
        self._machine = machine
        machine.machine("SET", "c.{ch}.clock", start, "PX", 2000)
        self.model.expires_ms = 2000

    async def _pass(self, ms: int) -> None:
        self._machine.advance(ms)
        self.model.now_ms += ms
        if self.model.expires_ms <= self.model.now_ms:
            self._start = 0

    def check_keys(self) -> None:
        """Nothing is left that has expired, and the rest goes when it should."""
        self.model._forget()
        now_ms = self.model.now_ms
        expected = {
            f"c.{{ch}}.m.{self.clock(place)}": expires_ms - now_ms
            for place, (_, _, expires_ms) in self.model.messages.items()
        }
        expected |= {
            f"c.{{ch}}.mid.{message_id}": expires_ms - now_ms
            for message_id, _, expires_ms in self.model.messages.values()
        }
        expected |= {
            f"c.{{ch}}.r.{name}": expires_ms - now_ms for name, (_, expires_ms) in self.model.subscribers.items()
        }
        if self.model.expires_ms > now_ms:
            expected["c.{ch}.clock"] = self.model.expires_ms - now_ms
        found = {key.decode(): self._machine.machine("PTTL", key) for key in self._machine.machine("KEYS", "c.*")}
        assert found == expected
        for name, (place, _) in self.model.subscribers.items():
            assert int(self._machine.machine("GET", f"c.{{ch}}.r.{name}")) == self.clock(place)


@settings(max_examples=150)
@given(STEPS, st.sampled_from([0, -3, LARGEST - 3, LARGEST - 1, LARGEST]))
@example([("subscribe", "a", 5000), ("publish", [0, 1, 2, 3], 1000), ("pass", 1000), ("fetch", "a", 2)], LARGEST - 1)
@example(
    [("subscribe", "a", 5000), ("publish", [0, 1], 5000), ("take", "a", 2, 1000), ("acknowledge", "a", 1, 1000)], 0
)
@example([("subscribe", "a", 1000), ("publish", [0], 1000), ("pass", 500), ("take", "a", 1, 1000), ("pass", 500)], 0)
@example([("subscribe", "a", 1000), ("publish", [0, 0], 5000), ("pass", 1000), ("fetch", "a", 2)], 0)
def test_channels_are_as_the_model_while_time_passes(steps: list[tuple[Any, ...]], start: int) -> None:
    async def play(machine: SimulatedBackend) -> None:
        async with Channels(machine, handle_keys=[KEY]) as channels:
            run = SimulatedRun(channels, machine, start)
            for step in steps:
                await run.step(step)
            run.check_keys()

    with script_machine() as made:
        asyncio.run(play(SimulatedBackend(made)))


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, start=st.sampled_from([0, LARGEST - 3, LARGEST]))
def test_channels_are_as_the_model_on_every_backend(
    steps: list[tuple[Any, ...]], start: int, server: ChannelServer
) -> None:
    async def play() -> None:
        async with server.channels(handle_keys=[KEY]) as channels:
            run = Run(channels, start)
            run.model.expires_ms = 10**9
            for step in steps:
                if step[0] != "pass":
                    hour = tuple(3_600_000 if each in EXPIRES_MS else each for each in step)
                    await run.step(hour)

    server.client.flushall()
    server.client.set("c.{ch}.clock", start, px=10**9)
    asyncio.run(play())
