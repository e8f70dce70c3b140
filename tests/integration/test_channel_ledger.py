"""Channels over HTTP are at least once and in order, whatever happens to their processes: a ledger checks it.

Each test has a short form, and a long one that is drawn from several seeds (`--long`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from tests.channels.cluster_of_six import ClusterOfSix
from tests.channels.http.gateways import GatewayProcess, RedisProcess
from tests.channels.sentinels import WatchedRedis
from tests.integration.channel_ledger import CHANNEL, ChannelLedger, Violation
from tests.integration.losing_proxy import LosingProxy
from tests.integration.server_process import ServerProcess


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    made = RedisProcess(tmp_path_factory.mktemp("backend"))
    yield made
    made.close()


# --- the ledger itself ------------------------------------------------------------------------------------------------


def entered(*came: str, settled: int = 0, published: int = 3) -> None:
    """Check what one subscriber got, fetch by fetch, as in `p0:0,1`; the first `settled` fetches were acknowledged."""
    ledger = ChannelLedger([], 1, publishers=2, pollers=1, streams=0)
    [subscriber] = ledger.subscribers
    for number, fetch in enumerate(came):
        named = [part.partition(":") for part in fetch.split()]
        numbers = [(name, int(each)) for name, _, rest in named for each in rest.split(",")]
        end = subscriber.take([(f"{name}-{each}", [name, each]) for name, each in numbers])
        if number < settled:
            subscriber.settled = end
    for publisher in ledger.publishers:
        publisher.published = published
    ledger.check()


def test_what_the_ledger_takes() -> None:
    entered("p0:0 p1:0 p0:1,2 p1:1,2")
    entered("p0:0,1", "p0:0,1", "p0:0,1,2 p1:0", "p1:1,2", settled=0)
    entered("p0:0,1", "p0:2 p1:0,1,2", settled=1)
    entered("p0:0,1,2,3 p1:0,1,2")  # more than it was told


@pytest.mark.parametrize(
    ("came", "settled", "says"),
    [
        (["p0:0,1,2 p1:0,1"], 0, "s0 got 2 of p1 which was told that 3 are there"),
        (["p0:0,2 p1:0,1,2"], 0, r"s0 got of p0 in this order: \[0, 2\]"),
        (["p0:0,2,1 p1:0,1,2"], 0, r"s0 got of p0 in this order: \[0, 2, 1\]"),
        (["p0:0,1", "p0:0,1,2"], 1, r"s0 got again \('p0', 0\)"),
        (["p0:0,1,2", "p0:0,2"], 0, r"s0 got \('p0', 2\) after place 0"),
    ],
)
def test_what_the_ledger_notices(came: list[str], settled: int, says: str) -> None:
    with pytest.raises(Violation, match=says):
        entered(*came, settled=settled)


def test_the_ledger_compares_subscribers() -> None:
    ledger = ChannelLedger([], 1, publishers=0, pollers=2, streams=0)
    for subscriber, order in zip(ledger.subscribers, ("ab", "ba"), strict=True):
        subscriber.take([(f"{name}-0", [name, 0]) for name in order])
    with pytest.raises(Violation, match="s1 saw another order"):
        ledger.check()


def test_content_that_was_replaced_is_noticed() -> None:
    [subscriber] = ChannelLedger([], 1, pollers=1, streams=0).subscribers
    for wrong in ("again", ["p0", 2], ["p1", 1]):
        with pytest.raises(Violation, match="s0 got"):
            subscriber.take([("p0-1", wrong)])


# --- a gateway is killed ----------------------------------------------------------------------------------------------


def kill_gateways(folder: Path, backend: RedisProcess, seed: int, kills: int) -> None:
    """Two gateways on one backend, one of which is killed at any moment and started again."""
    backend.client.flushall()
    rng = Random(seed)
    gateways = [GatewayProcess(folder, backend.url) for _ in range(2)]
    ports = [gateway.http_port for gateway in gateways]
    ledger = ChannelLedger(ports, seed)

    def faults() -> None:
        for _ in range(kills):
            ledger.wait_for_more(20)
            time.sleep(0.2 * rng.random())
            which = rng.randrange(2)
            gateways[which].kill()
            gateways[which].close()
            gateways[which] = GatewayProcess(folder, backend.url, port=str(ports[which]))
        ledger.wait_for_more(20)

    try:
        ledger.run(faults)
    finally:
        for gateway in gateways:
            gateway.close()
    assert ledger.numbers["unanswered", "GET"] > 0


def test_gateways_that_are_killed(tmp_path: Path, backend: RedisProcess) -> None:
    kill_gateways(tmp_path, backend, seed=1, kills=2)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(2, 6))
def test_gateways_that_are_killed_often(tmp_path: Path, backend: RedisProcess, seed: int) -> None:
    kill_gateways(tmp_path, backend, seed, kills=20)


# --- the server is killed ---------------------------------------------------------------------------------------------


def kill_servers(folder: Path, seed: int, kills: int) -> None:
    """A server whose channels are its own, killed at any moment and started again on the same ports."""
    rng = Random(seed)
    options = ["--fsync", "always"]
    server = ServerProcess(folder / "data", *options, has_http=True)
    ledger = ChannelLedger([server.http_port], seed)

    def faults() -> None:
        nonlocal server
        for _ in range(kills):
            ledger.wait_for_more(20)
            time.sleep(0.2 * rng.random())
            server.kill()
            server.close()
            server = ServerProcess(folder / "data", *options, instead_of=server)
        ledger.wait_for_more(20)

    try:
        ledger.run(faults)
    finally:
        server.close()
    assert ledger.numbers["unanswered", "GET"] > 0


def test_a_server_that_is_killed(tmp_path: Path) -> None:
    kill_servers(tmp_path, seed=1, kills=2)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(2, 6))
def test_a_server_that_is_killed_often(tmp_path: Path, seed: int) -> None:
    kill_servers(tmp_path, seed, kills=20)


# --- replies are lost -------------------------------------------------------------------------------------------------


def lose_replies(folder: Path, backend: RedisProcess, seed: int, messages: int) -> None:
    """Replies of two gateways are lost on the way to the clients, of every kind of request."""
    backend.client.flushall()
    with (
        GatewayProcess(folder, backend.url) as one,
        GatewayProcess(folder, backend.url) as two,
        LosingProxy(one.http_port, seed) as first,
        LosingProxy(two.http_port, seed + 1) as second,
    ):
        ledger = ChannelLedger([first.port, second.port], seed, reply_s_max=1.0)
        ledger.run(lambda: ledger.wait_for_more(messages))
        lost = first.lost + second.lost
    assert set(lost) == {"GET", "PUT", "POST", "DELETE"}
    assert sum(subscriber.repeated for subscriber in ledger.subscribers) > 0


def test_replies_that_are_lost(tmp_path: Path, backend: RedisProcess) -> None:
    lose_replies(tmp_path, backend, seed=1, messages=100)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(2, 6))
def test_many_replies_that_are_lost(tmp_path: Path, backend: RedisProcess, seed: int) -> None:
    lose_replies(tmp_path, backend, seed, messages=2000)


# --- a master fails over ----------------------------------------------------------------------------------------------


def fail_over(folder: Path, seed: int, url: str, fail: Callable[[Callable[[], None]], None], failovers: int) -> None:
    """A gateway on a backend whose master is killed, with what it took last; only what was confirmed counts.

    Some subscribers get messages that are lost then, and acknowledge them only when others have their places.
    """
    rng = Random(seed)
    with GatewayProcess(folder, url, "--confirm-replicas", "1") as gateway:
        ledger = ChannelLedger([gateway.http_port], seed, pollers=4, may_forget=True, pause_s=0.05)

        def part() -> None:
            ledger.is_holding = True
            time.sleep(0.3)

        def faults() -> None:
            for _ in range(failovers):
                ledger.wait_for_more(20)
                time.sleep(0.2 * rng.random())
                fail(part)
                ledger.wait_for_published(rng.randint(1, 10))
                ledger.is_holding = False
            ledger.wait_for_more(20)

        ledger.run(faults)
        assert "Traceback" not in gateway.stderr
    assert sum(subscriber.repeated for subscriber in ledger.subscribers) > 0


def fail_over_cluster(folder: Path, seed: int, failovers: int) -> None:
    cluster = ClusterOfSix(folder)
    try:
        fail_over(
            *(folder, seed, cluster.url),
            lambda parted: cluster.fail_over(cluster.master_of(f"c.{{{CHANNEL}}}.clock"), parted),
            failovers,
        )
    finally:
        cluster.close()


@pytest.mark.long  # tests/channels fails over a cluster, and one under a Sentinel is killed below, in every run
def test_a_master_of_a_cluster_that_is_killed(tmp_path: Path) -> None:
    fail_over_cluster(tmp_path, seed=1, failovers=1)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(2, 6))
def test_masters_of_a_cluster_that_are_killed_often(tmp_path: Path, seed: int) -> None:
    fail_over_cluster(tmp_path, seed, failovers=5)


def fail_over_watched(folder: Path, seed: int, failovers: int) -> None:
    watched = WatchedRedis(folder)
    try:
        fail_over(folder, seed, watched.url, watched.fail_over, failovers)
    finally:
        watched.close()


def test_a_master_under_a_sentinel_that_is_killed(tmp_path: Path) -> None:
    fail_over_watched(tmp_path, seed=1, failovers=1)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(2, 6))
def test_masters_under_a_sentinel_that_are_killed_often(tmp_path: Path, seed: int) -> None:
    fail_over_watched(tmp_path, seed, failovers=5)
