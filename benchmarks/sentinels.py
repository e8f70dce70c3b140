"""Three real Sentinels that watch one service, of Redis or of Tidelog."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import redis
from redis.sentinel import Sentinel

from benchmarks.peers import PeerFailed, start_peer, stop_peer

REDIS_SERVER: Final = shutil.which("redis-server") or "redis-server"
SERVICE: Final = "orders"
COUNT: Final = 3
QUORUM: Final = 2
USUAL_PERIODS_MS: Final = {"info-period": 10_000, "publish-period": 2000, "ping-period": 1000}
"""How often Sentinels look by themselves."""
READY_S_MAX: Final = 60.0
LOOK_S: Final = 0.02


class Sentinels:
    """Leaving the block stops them."""

    def __init__(
        self, folder: Path, leader_port: int, *, down_ms: int, failover_ms: int, periods_ms: Mapping[str, int]
    ) -> None:
        """`down_ms`: after so long without an answer, a Sentinel takes a server for dead.

        `failover_ms`: after so long a failover is given up, and after twice as long there may be another.
        """
        self._folder = folder
        self._down_ms, self._failover_ms = down_ms, failover_ms
        self._processes: list[subprocess.Popen[bytes]] = []
        self.ports: list[int] = []
        try:
            for _ in range(COUNT):
                self._start(leader_port)
            self.set_periods(periods_ms)
        except BaseException:
            self.close()
            raise

    def _start(self, leader_port: int) -> None:
        def command(ports: list[int]) -> list[str]:
            settings = self._folder / f"sentinel-{ports[0]}.conf"
            settings.write_text(
                f"port {ports[0]}\nbind 127.0.0.1\ndir {self._folder}\n"
                f"sentinel monitor {SERVICE} 127.0.0.1 {leader_port} {QUORUM}\n"
                f"sentinel down-after-milliseconds {SERVICE} {self._down_ms}\n"
                f"sentinel failover-timeout {SERVICE} {self._failover_ms}\n"
                f"sentinel parallel-syncs {SERVICE} 2\n"
            )
            return [REDIS_SERVER, str(settings), "--sentinel"]

        log = self._folder / f"sentinel-{len(self._processes)}.log"
        process, ports = start_peer(command, self._is_this_one, log=log)
        self._processes.append(process)
        self.ports += ports

    def _is_this_one(self, process: subprocess.Popen[bytes], ports: list[int]) -> bool:
        """Whether it is this process, and not another one on its port, that answers."""
        try:
            return bool(self._call(ports[0], "INFO", "server")["process_id"] == process.pid)
        except redis.ConnectionError:
            return False

    def set_periods(self, periods_ms: Mapping[str, int]) -> None:
        """How often they look. They find each other, and followers, as fast as that."""
        for port in self.ports:
            self._call(port, "SENTINEL DEBUG", *(str(each) for pair in periods_ms.items() for each in pair))

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
        deadline = time.monotonic() + READY_S_MAX
        while time.monotonic() < deadline:
            try:
                if all(self._is_ready(port, follower_count) for port in self.ports):
                    return
            except redis.ConnectionError:
                pass  # it may be there later
            time.sleep(LOOK_S)
        raise PeerFailed(f"the Sentinels were not ready in {READY_S_MAX:g} s: {self.logs}")

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
