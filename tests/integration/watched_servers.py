"""A leader and two followers that three real Sentinels watch, each behind a proxy that can be cut."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from benchmarks.sentinels import Sentinels
from tests.integration.cut_proxy import CutProxy
from tests.integration.server_process import ServerProcess
from tests.integration.waiting import wait_until

COUNT: Final = 3
DOWN_MS: Final = 2000
"""Longer than this machine pauses, mostly."""
FAILOVER_MS: Final = 4000
PERIODS_MS: Final = {"info-period": 1000, "publish-period": 500, "ping-period": 250}
"""Sentinels look some times as often as by themselves, so that a round takes seconds."""
FAR_S: Final = 60.0


class WatchedServer:
    """One of them. Others know it by the port of its proxy, whichever process serves there."""

    def __init__(self, data: Path, proxy: CutProxy, leader_port: int | None, *options: str) -> None:
        self.data = data
        self.proxy = proxy
        self._options = [*options, "--replica-announce-ip", "127.0.0.1", "--replica-announce-port", str(proxy.port)]
        if leader_port is not None:
            self._options += ["--replicaof", f"127.0.0.1:{leader_port}"]
        self.process = ServerProcess(data, *self._options)
        proxy.target = self.process.port

    @property
    def port(self) -> int:
        return self.proxy.port

    def kill(self) -> None:
        self.process.kill()

    def start_again(self) -> None:
        self.process.close()
        self.process = ServerProcess(self.data, *self._options, instead_of=self.process)

    def stop(self) -> None:
        self.process.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.process.send_signal(signal.SIGCONT)

    def follows(self, leader: WatchedServer) -> bool:
        with self.process.client() as client:
            role, *rest = client.role()
            return bool(role == b"slave" and rest[1] == leader.port and rest[2] == b"connected")

    def keys(self) -> set[bytes]:
        with self.process.client() as client:
            return set(client.scan_iter(count=10_000))

    def close(self) -> None:
        if self.process.process.poll() is None:
            self.go_on()
        self.process.close()


class WatchedServers:
    """Leaving the block stops all of them."""

    def __init__(self, folder: Path, *options: str) -> None:
        """`options`: those of all servers."""
        self._running = ExitStack()
        self.servers: list[WatchedServer] = []
        with ExitStack() as running:
            for number in range(COUNT):
                proxy = running.enter_context(CutProxy())
                leader_port = self.servers[0].port if self.servers else None
                self.servers.append(WatchedServer(folder / f"server-{number}", proxy, leader_port, *options))
                running.callback(self.servers[-1].close)
            watching = Sentinels(
                folder, self.servers[0].port, down_ms=DOWN_MS, failover_ms=FAILOVER_MS, periods_ms=PERIODS_MS
            )
            self.sentinels = running.enter_context(watching)
            self._running = running.pop_all()

    @property
    def leader(self) -> WatchedServer:
        """The one that all Sentinels name, once they agree."""
        ports: set[int] = set()

        def agree() -> bool:
            nonlocal ports
            ports = self.sentinels.leader_ports()
            return len(ports) == 1

        wait_until(agree, FAR_S)
        return next(each for each in self.servers if each.port in ports)

    @property
    def followers(self) -> list[WatchedServer]:
        leader = self.leader
        return [each for each in self.servers if each is not leader]

    def wait_for_failover(self, former: WatchedServer) -> None:
        """Another leads, and all Sentinels know."""
        wait_until(lambda: former.port not in (ports := self.sentinels.leader_ports()) and len(ports) == 1, FAR_S)

    def wait_until_joined(self) -> None:
        """All others follow the leader, and any of them could be promoted."""
        wait_until(self.have_joined, FAR_S)
        self.sentinels.wait_until_ready(COUNT - 1)

    def have_joined(self) -> bool:
        leader = self.leader
        return all(each.follows(leader) for each in self.servers if each is not leader)

    def __enter__(self) -> WatchedServers:
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()
