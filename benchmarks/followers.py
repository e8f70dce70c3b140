"""Leaders and followers of either server: linked, waited for, and asked how far they are.

Redis by itself waits five seconds for more replicas before a full sync (`repl-diskless-sync-delay`); here it does not.
All else that concerns replication is as each server has it by default.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Final, NamedTuple

from benchmarks.loads import AT_ONCE, Link
from benchmarks.servers import Server, encode, running

FOLLOW_S_MAX: Final = 600.0
LOOK_S: Final = 0.01
MARKER: Final = b"marker"


class Pair(NamedTuple):
    """Two servers of a kind, of which the second can follow the first."""

    leader: Server
    follower: Server

    @property
    def name(self) -> str:
        return self.leader.name

    def follow(self, port: int = 0) -> None:
        """The follower is told to follow, over another port than the leader's own if one is given."""
        begin_following(self.follower, self.leader, port)

    def wait_until_linked(self) -> None:
        if not wait_for(lambda: is_linked(self.follower), FOLLOW_S_MAX):
            raise SystemExit(f"{self.name}: the follower did not come in {FOLLOW_S_MAX:g} s")

    def catch_up(self) -> float:
        """Wait until the follower has all that has been written so far; returns how long that took."""
        began_s = time.perf_counter()
        with Link(self.leader) as link:
            link.call(b"SET", MARKER, b"caught up")
            if not link.call(b"WAIT", b"1", b"%d" % (1000 * FOLLOW_S_MAX)):
                raise SystemExit(f"{self.name}: the follower did not catch up in {FOLLOW_S_MAX:g} s")
        return time.perf_counter() - began_s


@contextmanager
def running_pair(name: str, parent: str | None = None) -> Iterator[Pair]:
    """Two servers in a folder that is removed in the end; nobody follows yet."""
    with ExitStack() as stack:
        folder = temporary_folder(stack, parent)
        yield Pair(stack.enter_context(running(name, f"{folder}/leader")), running_follower(stack, name, folder))


def running_follower(stack: ExitStack, name: str, folder: str) -> Server:
    """A server that will follow. It is killed in the end: a Redis that writes its first AOF does not stop if asked."""
    follower = stack.enter_context(running(name, f"{folder}/follower"))
    stack.callback(follower.kill)
    return follower


def temporary_folder(stack: ExitStack, parent: str | None = None) -> str:
    """A folder that is removed when the stack is left."""
    folder = tempfile.mkdtemp(prefix="tidelog-bench-", dir=parent)
    stack.callback(shutil.rmtree, folder)
    return folder


def begin_following(follower: Server, leader: Server, port: int = 0) -> None:
    if leader.name == "redis":
        leader.ask(b"CONFIG", b"SET", b"repl-diskless-sync-delay", b"0")
    reply = follower.ask(b"REPLICAOF", b"127.0.0.1", b"%d" % (port or leader.port))
    if reply != b"+OK":
        raise SystemExit(f"{follower.name} answered REPLICAOF with {reply!r}")


def wait_for(is_so: Callable[[], bool], seconds: float) -> bool:
    """Whether it comes to that before so long. A Tidelog that gets other data ends its connections: not yet."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with suppress(OSError):
            if is_so():
                return True
        time.sleep(LOOK_S)
    return False


def read_info(server: Server, section: bytes) -> dict[str, str]:
    with Link(server) as link:
        lines = link.call(b"INFO", section).decode().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def is_linked(follower: Server) -> bool:
    """It has had all that was there when it came, and gets what follows."""
    return read_info(follower, b"replication")["master_link_status"] == "up"


def full_sync_count(leader: Server) -> int:
    """That it has begun to give so far."""
    return int(read_info(leader, b"stats")["sync_full"])


def command_count(server: Server) -> int:
    return int(read_info(server, b"stats")["total_commands_processed"])


def key_of(number: int) -> bytes:
    """As redis-benchmark spells `key:__rand_int__`."""
    return b"key:%012d" % number


def fill(server: Server, keys: int, value_bytes: int) -> None:
    """Write values that nothing compresses: a megabyte of them is one in a snapshot, too."""
    draw = random.Random(value_bytes)
    with Link(server) as link:
        for start in range(0, keys, AT_ONCE):
            numbers = range(start, min(start + AT_ONCE, keys))
            link.send_many([encode(b"SET", key_of(number), draw.randbytes(value_bytes)) for number in numbers])
