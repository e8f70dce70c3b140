"""Webhooks from end to end, on real backends: order, failures, dead letters, several gateways, channels of others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from aiohttp import web

from tests.channels.servers import ChannelServer, ChannelServers, in_loop
from tests.channels.test_rules import JWT, rules_of
from tests.channels.token_makers import NOW_S, token
from tests.channels.webhooks.gateways import gateway
from tests.channels.webhooks.receivers import ReceivedCall, Receiver, receiver, webhook_rules, webhook_text
from tidelog import limits
from tidelog.channels import message_of
from tidelog.channels.revocations import Revocations
from tidelog.channels.rules import ChannelRules
from tidelog.channels.rules_policy import RulesPolicy
from tidelog.errors import ChannelTokenMissing, InvalidChannel

pytestmark = pytest.mark.usefixtures("quick_limits")

IDS = [f"m{number}" for number in range(10)]


@pytest.fixture(params=["tidelog", "redis"])
def backend_server(request: pytest.FixtureRequest, channel_servers: ChannelServers) -> ChannelServer:
    found = channel_servers.get(request.param)
    found.client.flushall()
    return found


@pytest.fixture
def redis_server(channel_servers: ChannelServers) -> ChannelServer:
    """For what does not depend on the backend."""
    found = channel_servers.get("redis")
    found.client.flushall()
    return found


async def until(condition: Callable[[], bool], timeout_s: float = 15) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.02)


def fails_first(there: Receiver, failures: int, *ids: str, status: int = 500) -> None:
    """Let so many calls fail for each of these messages; none: for every message."""
    left = dict.fromkeys(ids, failures)

    async def answer(call: ReceivedCall) -> web.StreamResponse:
        rest = left.get(call.id, 0 if ids else failures)
        left[call.id] = rest - 1
        return web.Response(status=status if rest > 0 else 200)

    there.answer = answer


def cursor_is_at(server: ChannelServer, channel: str, clock: int) -> Callable[[], bool]:
    return lambda: server.cursor(channel, "webhook-hook") == clock


@in_loop
async def test_messages_are_sent_in_order_and_acknowledged(server: ChannelServer, tmp_path: Path) -> None:
    async with receiver() as there:
        rules = webhook_rules(tmp_path, there.port)
        async with gateway(server.url, lambda: rules) as here:
            await here.publish("chat-1", *IDS)
            await here.publish("chat-2", "other")
            await there.got(11)
            assert [call.id for call in there.calls if call.path == "/rooms/1"] == IDS
            await until(cursor_is_at(server, "chat-1", 10))
            counts = here.runner.counts("hook")
            assert (counts.sent, counts.failed, counts.waiting) == (11, 0, 0)
            with pytest.raises(InvalidChannel):
                await here.runner.prepare("elsewhere")
            await here.publish("dead", "m1")  # a group without webhooks
    assert len(there.calls) == 11


@in_loop
async def test_a_grant_makes_the_subscribers_of_webhooks(redis_server: ChannelServer, tmp_path: Path) -> None:
    async with receiver() as there:
        text = webhook_text(there.port).replace("[[channels.webhooks]]", f"{JWT}[[channels.webhooks]]", 1)
        rules = rules_of(text, tmp_path)
        async with gateway(redis_server.url, lambda: rules, starts=False) as here:
            now_s, known = lambda: float(NOW_S), Revocations(here.runner.backend, now_s=lambda: float(NOW_S))
            policy = RulesPolicy(lambda: rules, known, now_s=now_s, before_use=here.runner.prepare)
            with pytest.raises(ChannelTokenMissing):
                await policy.grant("chat-1", None)
            assert redis_server.client.keys("c.*") == []
            await policy.grant("chat-1", token("HS256", b"s" * 32, {"exp": NOW_S + 1}))
            await here.channels.publish("chat-1", message_of("m0", 1))
            await there.got(1)


@in_loop
async def test_a_failed_message_is_tried_again_and_nothing_overtakes_it(
    backend_server: ChannelServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with receiver() as there:
        fails_first(there, 3, "m1", "m2")
        rules = webhook_rules(tmp_path, there.port)
        async with gateway(backend_server.url, lambda: rules) as here:
            with caplog.at_level(logging.WARNING, "tidelog.channels"):
                await here.publish("chat-1", "m0", "m1", "m2", "m3", value="hidden")
                await there.got(10)
            await until(cursor_is_at(backend_server, "chat-1", 4))
            counts = here.runner.counts("hook")
            assert (counts.sent, counts.failed, counts.retried, counts.waiting) == (4, 6, 6, 0)
        assert there.ids == ["m0", *["m1"] * 4, *["m2"] * 4, "m3"]
        assert [call.headers["Tidelog-Attempt"] for call in there.calls if call.id == "m1"] == ["1", "2", "3", "4"]
    assert "could not send the message m1 of chat-1 (attempt 3): status 500" in caplog.text
    assert "hidden" not in caplog.text


@in_loop
async def test_a_failed_call_is_never_acknowledged(redis_server: ChannelServer, tmp_path: Path) -> None:
    async with receiver() as there:
        fails_first(there, 10**6)
        rules = webhook_rules(tmp_path, there.port)
        async with gateway(redis_server.url, lambda: rules) as here:
            await here.publish("chat-1", "m0", "m1")
            await there.got(8)
            assert set(there.ids) == {"m0"}
            assert redis_server.cursor("chat-1", "webhook-hook") == 0
            await until(lambda: here.runner.counts("hook").waiting == 1)
        assert redis_server.cursor("chat-1", "webhook-hook") == 0
        assert redis_server.client.exists("c.{chat-1}.lease.hook") == 0
        there.calls.clear()
        fails_first(there, 0)
        async with gateway(redis_server.url, lambda: rules):  # after a restart nobody tells it of the channel
            await there.got(2)
            await until(cursor_is_at(redis_server, "chat-1", 2))
        assert there.ids == ["m0", "m1"]


@in_loop
async def test_dead_letters(backend_server: ChannelServer, tmp_path: Path) -> None:
    async with receiver() as there:
        fails_first(there, 10**6, "m1", status=503)
        rules = webhook_rules(tmp_path, there.port, "dead-letter = 'dead'", retry="attempts = 3")
        async with gateway(backend_server.url, lambda: rules) as here:
            await here.publish("chat-1", "m0", "m1", "m2", value={"a": 1})
            await there.got(5)
            assert there.ids == ["m0", "m1", "m1", "m1", "m2"]
            await until(cursor_is_at(backend_server, "chat-1", 3))
            [letter] = (await here.channels.fetch("dead", "dead-letters")).messages
            assert letter.value == {
                "webhook": "hook", "channelID": "chat-1", "messageID": "m1", "attempts": 3, "reason": "status 503",
                "content": {"a": 1},
            }  # fmt: skip
            counts = here.runner.counts("hook")
            assert (counts.sent, counts.failed, counts.retried, counts.dead_lettered) == (2, 3, 2, 1)


@in_loop
async def test_attempts_are_counted_over_restarts(backend_server: ChannelServer, tmp_path: Path) -> None:
    """Otherwise a message would never be a dead letter where gateways are restarted often."""
    async with receiver() as there:
        fails_first(there, 10**6, "m1")
        rules = webhook_rules(tmp_path, there.port, "dead-letter = 'dead'", retry="attempts = 7")
        async with gateway(backend_server.url, lambda: rules) as here:
            await here.publish("chat-1", "m0", "m1", "m2")
            await there.got(3)
        while len(there.calls) < 9:
            begun = len(there.calls)
            async with gateway(backend_server.url, lambda: rules) as here:
                await there.got(begun + 1)
        async with gateway(backend_server.url, lambda: rules) as here:
            await until(cursor_is_at(backend_server, "chat-1", 3))
            [letter] = (await here.channels.fetch("dead", "dead-letters")).messages
            assert letter.value["attempts"] >= 7
            assert here.runner.counts("hook").waiting == 0
        attempts = [int(call.headers["Tidelog-Attempt"]) for call in there.calls if call.id == "m1"]
        assert attempts[:6] == list(range(1, 7))
        assert len(attempts) <= 8, "one more at most, if a gateway ended between the last call and its letter"
        assert not backend_server.client.exists("c.{chat-1}.tries.hook")


@in_loop
async def test_a_message_that_succeeds_at_last_leaves_no_count(redis_server: ChannelServer, tmp_path: Path) -> None:
    async with receiver() as there:
        fails_first(there, 2)
        rules = webhook_rules(tmp_path, there.port, "dead-letter = 'dead'", retry="attempts = 5")
        async with gateway(redis_server.url, lambda: rules) as here:
            await here.publish("chat-1", "m0", "m1")
            await until(cursor_is_at(redis_server, "chat-1", 2))
        assert [int(call.headers["Tidelog-Attempt"]) for call in there.calls] == [1, 2, 3, 1, 2, 3]
        assert not redis_server.client.exists("c.{chat-1}.tries.hook")


@in_loop
async def test_a_dead_letter_of_the_largest_message(redis_server: ChannelServer, tmp_path: Path) -> None:
    async with receiver() as there:
        fails_first(there, 10**6, status=400)
        rules = webhook_rules(tmp_path, there.port, "dead-letter = 'dead'", retry="attempts = 1")
        async with gateway(redis_server.url, lambda: rules) as here:
            await here.publish("chat-1", "m0", value="x" * (limits.CHANNEL_MESSAGE_BYTES_MAX - 2))
            await until(cursor_is_at(redis_server, "chat-1", 1))
            [letter] = (await here.channels.fetch("dead", "dead-letters")).messages
            assert len(letter.value["content"]) == limits.CHANNEL_MESSAGE_BYTES_MAX - 2


@in_loop
async def test_a_slow_receiver_holds_up_only_its_own_channel(redis_server: ChannelServer, tmp_path: Path) -> None:
    async def answer(call: ReceivedCall) -> web.StreamResponse:
        await asyncio.sleep(5 if call.id == "s0" and call.headers["Tidelog-Attempt"] == "1" else 0)
        return web.Response()

    async with receiver() as there:
        there.answer = answer
        rules = webhook_rules(tmp_path, there.port, "timeout = '1100ms'")
        async with gateway(redis_server.url, lambda: rules) as here:
            await here.publish("chat-slow", "s0", "s1")
            await here.publish("chat-1", *IDS)
            await until(cursor_is_at(redis_server, "chat-1", 10), 1.0)
            await until(cursor_is_at(redis_server, "chat-slow", 2))  # longer than a lease: it was renewed
        assert [call.id for call in there.calls if call.path == "/rooms/slow"] == ["s0", "s0", "s1"]
        assert here.runner.counts("hook").lost_leases == 0


# --- several gateways -------------------------------------------------------------------------------------------------


@in_loop
async def test_two_gateways_send_each_message_once_and_in_order(backend_server: ChannelServer, tmp_path: Path) -> None:
    names = ["chat-a", "chat-b", "chat-c"]
    async with receiver() as there:
        rules = webhook_rules(tmp_path, there.port)
        url = backend_server.url
        async with gateway(url, lambda: rules) as here, gateway(url, lambda: rules) as too:
            for number in range(20):
                for name in names:
                    await (here, too)[number % 2].publish(name, f"m{number}")
            await there.got(60)
            await asyncio.sleep(0.3)
        for name in names:
            ids = [call.id for call in there.calls if call.headers["Tidelog-Channel"] == name]
            assert ids == [f"m{number}" for number in range(20)]


@in_loop
async def test_a_gateway_that_lost_its_lease_stops(redis_server: ChannelServer, tmp_path: Path) -> None:
    """Somebody else has the lease all of a sudden: the call is broken off, and goes on when the lease is free."""
    is_slow = True

    async def answer(_call: ReceivedCall) -> web.StreamResponse:
        await asyncio.sleep(10 if is_slow else 0)
        return web.Response()

    async with receiver() as there:
        there.answer = answer
        rules = webhook_rules(tmp_path, there.port)
        async with gateway(redis_server.url, lambda: rules) as here:
            await here.publish("chat-1", "m0", "m1")
            await there.got(1)
            redis_server.client.set("c.{chat-1}.lease.hook", "another", px=1000)
            await until(lambda: here.runner.counts("hook").lost_leases == 1)
            is_slow = False
            await asyncio.sleep(0.3)
            assert there.ids == ["m0"]
            await there.got(3)
            await until(cursor_is_at(redis_server, "chat-1", 2))
        assert there.ids == ["m0", "m0", "m1"]
        fences = [int(call.headers["Tidelog-Fence"]) for call in there.calls]
        assert fences[0] < fences[1] == fences[2]


@in_loop
async def test_channels_of_other_programs_are_found(backend_server: ChannelServer, tmp_path: Path) -> None:
    async with receiver() as there, backend_server.channels() as others:
        await others.publish("chat-1", message_of("before", 1))
        await others.publish("elsewhere", message_of("before", 1))
        rules = webhook_rules(tmp_path, there.port)
        async with gateway(backend_server.url, lambda: rules):
            await until(lambda: backend_server.client.exists("c.{chat-1}.r.webhook-hook"))
            await others.publish("chat-1", message_of("after", 2))
            await there.got(1)
            await asyncio.sleep(0.8)  # until its worker has ended
            await others.publish("chat-1", message_of("later", 2))
            await there.got(2)
        assert there.ids == ["after", "later"]
        assert not backend_server.client.exists("c.{elsewhere}.r.webhook-hook")


@in_loop
async def test_a_subscriber_that_was_removed_is_made_again(redis_server: ChannelServer, tmp_path: Path) -> None:
    async with receiver() as there:
        rules = webhook_rules(tmp_path, there.port)
        async with gateway(redis_server.url, lambda: rules, starts=False) as here:
            await here.publish("chat-1", "m0")
            await there.got(1)
            await until(lambda: not here.runner._workers)
            redis_server.client.flushall()
            await here.publish("chat-1", "m1")  # nobody knows yet: its worker finds out
            await until(lambda: not here.runner._subscribed_s)
            await here.publish("chat-1", "m2")
            await there.got(2)
        assert there.ids == ["m0", "m2"]


@in_loop
async def test_an_idle_channel_expires(redis_server: ChannelServer, tmp_path: Path) -> None:
    async with receiver() as there:
        short = webhook_rules(tmp_path, there.port)
        for rule in short:
            object.__setattr__(rule, "expire_ms", 1000)
        async with gateway(redis_server.url, lambda: short) as here:
            await here.runner.prepare("chat-1")
            await here.channels.publish("chat-1", message_of("m0", 1), expire_ms=1000)
            await there.got(1)
            await until(lambda: not redis_server.client.exists("c.{chat-1}.clock"), 6)
            await here.runner.prepare("chat-1")  # it is made again when it is used
            await here.channels.publish("chat-1", message_of("m1", 1), expire_ms=1000)
            await there.got(2)


@in_loop
async def test_a_subscriber_lives_while_its_receiver_fails(redis_server: ChannelServer, tmp_path: Path) -> None:
    async with receiver() as there:
        fails_first(there, 10**6)
        short = webhook_rules(tmp_path, there.port)
        for rule in short:
            object.__setattr__(rule, "expire_ms", 1200)
        async with gateway(redis_server.url, lambda: short) as here:
            await here.runner.prepare("chat-1")
            await here.channels.publish("chat-1", message_of("m0", 1), expire_ms=1200)
            await there.got(1)
            await asyncio.sleep(1.7)
            assert redis_server.client.exists("c.{chat-1}.r.webhook-hook")
            await here.channels.publish("chat-1", message_of("m1", 1), expire_ms=1200)
            fails_first(there, 0)
            await until(cursor_is_at(redis_server, "chat-1", 2))
        assert there.ids[-2:] == ["m0", "m1"]


# --- configuration that changes ---------------------------------------------------------------------------------------


@in_loop
async def test_a_new_configuration_counts_for_the_next_attempt(redis_server: ChannelServer, tmp_path: Path) -> None:
    async with receiver() as wrong, receiver() as right:
        fails_first(wrong, 10**6)
        rules = [webhook_rules(tmp_path, wrong.port)]
        async with gateway(redis_server.url, lambda: rules[0]) as here:
            await here.publish("chat-1", "m0", "m1")
            await wrong.got(2)
            rules[0] = webhook_rules(tmp_path, right.port)
            await right.got(2)
            assert right.ids == ["m0", "m1"]
            rules[0] = ChannelRules.for_all()
            await here.publish("chat-1", "m2")
            await asyncio.sleep(0.5)
        assert len(right.calls) == 2


@in_loop
async def test_a_stop_lets_a_call_end(redis_server: ChannelServer, tmp_path: Path) -> None:
    async def answer(_call: ReceivedCall) -> web.StreamResponse:
        await asyncio.sleep(0.4)
        return web.Response()

    async with receiver() as there:
        there.answer = answer
        rules = webhook_rules(tmp_path, there.port)
        async with gateway(redis_server.url, lambda: rules) as here:
            await here.publish("chat-1", "m0", "m1")
            await there.got(1)
        assert there.ids == ["m0"]
        assert redis_server.cursor("chat-1", "webhook-hook") == 1


@in_loop
async def test_workers_are_bounded(
    redis_server: ChannelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WEBHOOK_WORKERS_MAX", 2)
    monkeypatch.setattr(limits, "WEBHOOK_LINGER_S", 0.2)
    async with receiver() as there:
        rules = webhook_rules(tmp_path, there.port)
        async with gateway(redis_server.url, lambda: rules) as here:
            for number in range(6):
                await here.publish(f"chat-{number}", f"m{number}")
                assert len(here.runner._workers) <= 2
            await there.got(6)
        assert sorted(there.ids) == [f"m{number}" for number in range(6)]
