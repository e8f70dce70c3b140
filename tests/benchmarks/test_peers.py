"""Peers get another port when somebody else takes the first."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import peers
from benchmarks.peers import PeerFailed, free_ports, start_peer, stop_peer

LISTENS = """
import socket, sys
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as made:
    while True:
        with made.accept()[0] as link:
            link.sendall(b"ours")
"""


def command(ports: list[int]) -> list[str]:
    return [sys.executable, "-c", LISTENS, str(ports[0])]


def answers(_process: subprocess.Popen[bytes], ports: list[int]) -> bool:
    with socket.create_connection(("127.0.0.1", ports[0]), timeout=0.2) as link:
        return link.recv(4) == b"ours"


def test_a_port_that_was_taken_is_not_tried_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        choices = [[other.getsockname()[1]], free_ports(1)]
        monkeypatch.setattr(peers, "free_ports", lambda _count: choices.pop(0))
        process, ports = start_peer(command, answers)
        try:
            assert ports != [other.getsockname()[1]]
            assert answers(process, ports)
            assert not choices
        finally:
            stop_peer(process)


def test_what_never_starts_is_told(tmp_path: Path) -> None:
    with pytest.raises(PeerFailed, match="ended while it started, 5 times"):
        start_peer(lambda _ports: ["false"], answers)
    with pytest.raises(PeerFailed, match="did not answer within"):
        start_peer(lambda _ports: ["sleep", "60"], answers, start_s_max=0.1, log=tmp_path / "log")
