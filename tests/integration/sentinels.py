"""Three real Sentinels that watch one service."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, Final

import redis
from redis.sentinel import Sentinel

from benchmarks.peers import start_peer, stop_peer
from tests.conformance.redis_oracle import REDIS_SERVER, is_this_redis
from tests.integration.waiting import wait_until

SERVICE: Final = "orders"
COUNT: Final = 3
QUORUM: Final = 2
DOWN_MS: Final = 2000
"""After so long without an answer, a Sentinel takes a server for dead. Longer than this machine pauses, mostly."""
FAILOVER_MS: Final = 4000
"""After so long a failover is given up, and after twice as long there may be another."""
PERIODS_MS: Final = {"info-period": 1000, "publish-period": 500, "ping-period": 250}
"""How often they look: some times as often as by themselves, so that a round takes seconds."""
FAR_S: Final = 60.0


class Sentinels:
    """Leaving the block stops them."""

    def __init__(self, folder: Path, leader_port: int) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self.ports: list[int] = []
        try:
            for _ in range(COUNT):
                self._start(leader_port)
        except BaseException:
            self.close()
            raise

    def _start(self, leader_port: int) -> None:
        def command(ports: list[int]) -> list[str]:
            settings = self._folder / f"sentinel-{ports[0]}.conf"
            settings.write_text(
                f"port {ports[0]}\nbind 127.0.0.1\ndir {self._folder}\n"
                f"sentinel monitor {SERVICE} 127.0.0.1 {leader_port} {QUORUM}\n"
                f"sentinel down-after-milliseconds {SERVICE} {DOWN_MS}\n"
                f"sentinel failover-timeout {SERVICE} {FAILOVER_MS}\n"
                f"sentinel parallel-syncs {SERVICE} 2\n"
            )
            return [REDIS_SERVER, str(settings), "--sentinel"]

        log = self._folder / f"sentinel-{len(self._processes)}.log"
        process, ports = start_peer(command, is_this_redis, log=log)
        self._processes.append(process)
        self.ports += ports
        self._call(ports[0], "SENTINEL DEBUG", *(str(each) for pair in PERIODS_MS.items() for each in pair))

    @property
    def url(self) -> str:
        places = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        return f"redis+sentinel://{places}/{SERVICE}"

    def client(self) -> Sentinel:
        """redis-py's."""
        places = [("127.0.0.1", port) for port in self.ports]
        return Sentinel(places, socket_timeout=2, sentinel_kwargs={"socket_timeout": 2})  # type: ignore[no-untyped-call]

    def leader_ports(self) -> set[int]:
        """Whom they take for the leader; one port if they agree."""
        return {int(self._call(port, "SENTINEL GET-MASTER-ADDR-BY-NAME", SERVICE)[1]) for port in self.ports}

    def wait_until_ready(self, follower_count: int) -> None:
        """They agree on the leader, know each other, and could promote so many followers."""
        wait_until(lambda: all(self._is_ready(port, follower_count) for port in self.ports), FAR_S)

    def _is_ready(self, port: int, follower_count: int) -> bool:
        leader = self._fields(self._call(port, "SENTINEL MASTER", SERVICE))
        followers = map(self._fields, self._call(port, "SENTINEL REPLICAS", SERVICE))
        good = [each for each in followers if each["flags"] == "slave" and each["master-link-status"] == "ok"]
        return (
            leader["flags"] == "master"
            and int(leader["num-other-sentinels"]) == COUNT - 1
            and all(int(each["master-port"]) == int(leader["port"]) for each in good)
            and len(good) == follower_count
        )

    @staticmethod
    def _fields(reply: Any) -> dict[str, str]:
        return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))

    @staticmethod
    def _call(port: int, *words: str) -> Any:
        with redis.Redis(port=port, socket_timeout=10, decode_responses=True) as client:
            return client.execute_command(*words)

    @property
    def logs(self) -> str:
        return "".join(f"--- {log.name}\n{log.read_text()[-3000:]}" for log in sorted(self._folder.glob("*.log")))

    def close(self) -> None:
        for process in self._processes:
            stop_peer(process)

    def __enter__(self) -> Sentinels:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
