"""A Redis Cluster of three masters with a replica each, on loopback."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import redis

from benchmarks.peers import stop_peer
from tests.days.servers import start_node

SLOTS: Final = ((0, 5460), (5461, 10922), (10923, 16383))
READY_S_MAX: Final = 60.0
OPTIONS: Final = ("--cluster-node-timeout", "3000", "--repl-diskless-sync-delay", "0", "--appendonly", "no")


class Node(NamedTuple):
    process: subprocess.Popen[bytes]
    port: int
    bus_port: int

    def call(self, *words: Any) -> Any:
        with redis.Redis(port=self.port, socket_timeout=10) as client:
            return client.execute_command(*words)


class ClusterOfSix:
    """Its nodes are ready, and the replicas are linked."""

    def __init__(self, folder: Path) -> None:
        self.nodes: list[Node] = []
        try:
            for first, last in (*SLOTS, *((1, 0),) * len(SLOTS)):
                self.nodes.append(Node(*start_node(folder, first, last, *OPTIONS)))
            self._join()
        except BaseException:
            self.close()
            raise

    def _join(self) -> None:
        masters, replicas = self.nodes[: len(SLOTS)], self.nodes[len(SLOTS) :]
        for number, node in enumerate(self.nodes):
            node.call("CLUSTER SET-CONFIG-EPOCH", number + 1)
        for node in self.nodes[1:]:
            self.nodes[0].call("CLUSTER MEET", "127.0.0.1", node.port, node.bus_port)
        self._wait(lambda: all(len(node.call("CLUSTER NODES")) == len(self.nodes) for node in self.nodes))
        names = [node.call("CLUSTER MYID") for node in masters]
        self._wait(lambda: all(info["connected"] for info in self.nodes[0].call("CLUSTER NODES").values()))
        for replica, name in zip(replicas, names, strict=True):
            replica.call("CLUSTER REPLICATE", name)
        self._wait(lambda: all(node.call("CLUSTER INFO")["cluster_state"] == "ok" for node in self.nodes))
        self._wait(lambda: all(self.is_linked(node) for node in replicas))
        # All must know who replicates whom, or a client that asks one of them takes a replica for a master.
        self._wait(lambda: all(self._replicas_known(node) == len(replicas) for node in self.nodes))

    @staticmethod
    def is_linked(node: Node) -> bool:
        state: dict[str, Any] = node.call("INFO", "replication")
        return bool(state["role"] == "slave" and state["master_link_status"] == "up")

    @staticmethod
    def _replicas_known(node: Node) -> int:
        return sum("slave" in info["flags"] for info in node.call("CLUSTER NODES").values())

    @staticmethod
    def _wait(is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + READY_S_MAX
        while not is_so():
            assert time.monotonic() < deadline, "the cluster did not form"
            time.sleep(0.05)

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes[: len(SLOTS)])

    def role(self, node: Node) -> str:
        role: str = node.call("INFO", "replication")["role"]
        return role

    def master_of(self, key: str) -> Node:
        """The node that has a key now."""
        slot = self._any().call("CLUSTER KEYSLOT", key)
        for first, last, master, *_ in self._any().call("CLUSTER SLOTS"):
            if first <= slot <= last:
                return next(node for node in self.nodes if node.port == master[1])
        raise AssertionError("nobody has that slot")

    def fail_over(self, master: Node, parted: Callable[[], None] | None = None) -> None:
        """Kill a master, wait until its replica has taken over, and start it again as the replica of that one.

        `parted`: what is written while this runs is lost.
        """
        replica = next(
            node for node in self._alive() if node.call("INFO", "replication").get("master_port") == master.port
        )
        if parted is not None:
            replica.process.send_signal(signal.SIGSTOP)  # or it would be back at once
            master.call("CLIENT KILL", "TYPE", "replica")
            parted()
        master.process.kill()
        master.process.wait()
        replica.process.send_signal(signal.SIGCONT)
        self._wait(lambda: self.role(replica) == "master")
        process = subprocess.Popen(master.process.args, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        again = Node(process, master.port, master.bus_port)
        self.nodes[self.nodes.index(master)] = again
        self._wait(lambda: self._is_linked_now(again))

    def _is_linked_now(self, node: Node) -> bool:
        try:
            return self.is_linked(node)
        except redis.ConnectionError:
            return False

    def _alive(self) -> list[Node]:
        return [node for node in self.nodes if node.process.poll() is None]

    def _any(self) -> Node:
        return self._alive()[0]

    def close(self) -> None:
        for node in self.nodes:
            node.process.send_signal(signal.SIGCONT)
            stop_peer(node.process)
