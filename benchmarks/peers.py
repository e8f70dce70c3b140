"""Peers that cannot choose a port: a free one is picked for each, and another if somebody else takes it first.

Tidelog needs none of this: `--port auto`, and the line that it prints when it is ready tells its ports.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

ATTEMPTS_MAX = 5
LOOK_S = 0.01
STOP_S_MAX = 10.0


class PeerFailed(Exception):
    """A peer did not start."""


def start_peer(
    command: Callable[[list[int]], list[str]],
    answers: Callable[[subprocess.Popen[bytes], list[int]], bool],
    *,
    port_count: int = 1,
    start_s_max: float = 20.0,
    log: Path | None = None,
) -> tuple[subprocess.Popen[bytes], list[int]]:
    """A running peer and its ports.

    `command` makes its command line from free ports. `answers` says whether this process, and not another one on the
    same port, is ready; an OSError means not yet.
    """
    for _ in range(ATTEMPTS_MAX):
        ports = free_ports(port_count)
        with open(log or "/dev/null", "ab") as output:
            process = subprocess.Popen(command(ports), stdout=output, stderr=output)
        deadline = time.monotonic() + start_s_max
        try:
            while process.poll() is None and time.monotonic() < deadline:
                try:
                    if answers(process, ports):
                        return process, ports
                except OSError:
                    pass
                time.sleep(LOOK_S)
        except BaseException:
            stop_peer(process)
            raise
        has_ended = process.poll() is not None
        stop_peer(process)
        if not has_ended:
            raise PeerFailed(f"{command(ports)[0]} did not answer within {start_s_max:g} s")
    raise PeerFailed(f"{command([0] * port_count)[0]} ended while it started, {ATTEMPTS_MAX} times")


def free_ports(count: int) -> list[int]:
    """Ports that nobody has at the moment, all different."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def stop_peer(process: subprocess.Popen[bytes], stop_s_max: float = STOP_S_MAX) -> None:
    """End a peer, whatever it takes."""
    process.terminate()
    try:
        process.wait(stop_s_max)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
