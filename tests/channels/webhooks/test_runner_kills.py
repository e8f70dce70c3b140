"""Gateways that are killed half-way: a ledger of what was published and what came shows that nothing is lost.

nothing lost      every message that was published comes
in order          a message comes for the first time after all before it came
at least once     it may come again, but only if a gateway was killed while it was on its way
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from aiohttp import web

from tests.channels.servers import ChannelServers, in_loop
from tests.channels.webhooks.gateways import gateway
from tests.channels.webhooks.receivers import ReceivedCall, Receiver, receiver, webhook_text
from tests.integration.server_process import ServerProcess
from tests.test_tidy import CHECKOUT
from tidelog.channels import Channels, message_of
from tidelog.channels.rules_file import ChannelRulesFile

pytestmark = pytest.mark.usefixtures("quick_limits")

CHANNELS = ["chat-a", "chat-b"]


@contextmanager
def runner_process(url: str, rules: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tests.channels.webhooks.runner_process", url, str(rules)]
    process = subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


async def is_running(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    assert await asyncio.to_thread(process.stdout.readline) == b"running\n"


def first_times(ids: list[str]) -> list[str]:
    return list(dict.fromkeys(ids))


async def ledger(url: str, rules: Path, there: Receiver, *, messages: int, kills: int, at_once: int, seed: int) -> None:
    """Publish while gateways are killed and started, and compare."""
    chance = random.Random(seed)

    async def answer(call: ReceivedCall) -> web.StreamResponse:
        await asyncio.sleep(chance.uniform(0, 0.02))
        return web.Response(status=500 if chance.random() < 0.1 else 200)

    there.answer = answer
    published: dict[str, list[str]] = {name: [] for name in CHANNELS}

    async def publish() -> None:
        async with Channels.at(url) as channels:
            for name in CHANNELS:  # as `prepare` does; but only those that die are to send
                await channels.subscribe(name, "webhook-hook")
            for number in range(messages):
                for name in CHANNELS:
                    published[name].append(f"{name}-{number}")
                    await channels.publish(name, message_of(published[name][-1], number))
                await asyncio.sleep(0.01)

    publishing = asyncio.create_task(publish())
    for _ in range(kills):
        with ExitStack() as stack:
            processes = [stack.enter_context(runner_process(url, rules)) for _ in range(at_once)]
            for process in processes:
                await is_running(process)
            begun = len(there.calls)
            await there.got(begun + chance.randint(1, 15))
            processes[0].kill()
            await asyncio.sleep(0.2 if at_once > 1 else 0)
    await publishing
    with runner_process(url, rules) as process:
        await is_running(process)
        async with asyncio.timeout(40):
            while any(set(published[name]) - {call.id for call in there.calls} for name in CHANNELS):
                await asyncio.sleep(0.05)
        process.terminate()
        assert await asyncio.to_thread(process.wait, 10) == 0
    for name in CHANNELS:
        came = [call for call in there.calls if call.headers["Tidelog-Channel"] == name]
        assert first_times([call.id for call in came]) == published[name]
        fences = [int(call.headers["Tidelog-Fence"]) for call in came]
        assert fences == sorted(fences)
        # Nothing comes again once a later message has come: what is on its way is one message.
        positions = [published[name].index(call.id) for call in came]
        assert all(later >= earlier for earlier, later in pairwise(positions))


@pytest.mark.parametrize("kind", ["tidelog", "redis"])
@in_loop
async def test_a_runner_that_is_killed_loses_nothing(
    kind: str, channel_servers: ChannelServers, tmp_path: Path
) -> None:
    server = channel_servers.get(kind)
    server.client.flushall()
    async with receiver() as there:
        path = tmp_path / "rules.toml"
        path.write_text(webhook_text(there.port))
        await ledger(server.url, path, there, messages=25, kills=1, at_once=1, seed=1)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["tidelog", "redis"])
@pytest.mark.parametrize("seed", [1, 2, 3])
@in_loop
async def test_two_runners_of_which_one_is_killed_again_and_again(
    kind: str, seed: int, channel_servers: ChannelServers, tmp_path: Path
) -> None:
    server = channel_servers.get(kind)
    server.client.flushall()
    async with receiver() as there:
        path = tmp_path / "rules.toml"
        path.write_text(webhook_text(there.port))
        await ledger(server.url, path, there, messages=150, kills=5, at_once=2, seed=seed)


@pytest.mark.long
@in_loop
async def test_attempts_in_the_middle_of_which_a_runner_is_killed_count(
    channel_servers: ChannelServers, tmp_path: Path
) -> None:
    """A receiver that hangs, and a gateway that never lives to see that: the message is a dead letter all the same."""
    server = channel_servers.get("redis")
    server.client.flushall()
    async with receiver() as there, Channels.at(server.url) as channels:
        is_hanging = True

        async def answer(_call: ReceivedCall) -> web.StreamResponse:
            if is_hanging and len(there.calls) > 1:
                await asyncio.sleep(60)
            return web.Response(status=500)

        there.answer = answer
        path = tmp_path / "rules.toml"
        path.write_text(webhook_text(there.port, "dead-letter = 'dead'", retry="attempts = 4"))
        await channels.subscribe("chat-a", "webhook-hook")
        await channels.publish("chat-a", message_of("poison", 1))
        for calls in (2, 3, 4):
            with runner_process(server.url, path) as process:
                await is_running(process)
                await there.got(calls)
        is_hanging = False
        with runner_process(server.url, path) as process:
            await is_running(process)
            async with asyncio.timeout(20):
                while server.cursor("chat-a", "webhook-hook") == 0:
                    await asyncio.sleep(0.05)
        assert [call.headers["Tidelog-Attempt"] for call in there.calls] == ["1", "2", "3", "4", "5"]
        [letter] = (await channels.fetch("dead", "dead-letters")).messages
        assert letter.value["messageID"] == "poison"


@pytest.mark.long
@in_loop
async def test_a_backend_that_is_killed_and_started_again(tmp_path: Path) -> None:
    """The gateway waits for it, and goes on where it was: with fsync at every write, what is acknowledged stays so."""
    (tmp_path / "server").mkdir()
    async with receiver() as there:
        path = tmp_path / "rules.toml"
        path.write_text(webhook_text(there.port))
        rules = ChannelRulesFile(str(path)).rules
        ids = [f"m{number}" for number in range(20)]
        with ServerProcess(tmp_path / "server" / "data", "--fsync", "always") as server:
            async with gateway(f"redis://127.0.0.1:{server.port}", lambda: rules) as here:
                await here.publish("chat-a", *ids[:10])
                await there.got(5)
                await asyncio.to_thread(server.kill)
                await asyncio.sleep(0.3)
                with await asyncio.to_thread(
                    partial(ServerProcess, server.data, "--fsync", "always", instead_of=server)
                ):
                    await here.publish("chat-a", *ids[10:])
                    async with asyncio.timeout(20):
                        while "m19" not in there.ids:
                            await asyncio.sleep(0.02)
        assert first_times(there.ids) == ids
        positions = [ids.index(each) for each in there.ids]
        assert positions == sorted(positions)
