"""A server under load that is killed at any moment, and started again on the same directory.

One `Killing` is one directory and one seed. Writers (threads with a connection each) send single commands, pipelined
runs and transactions as fast as they are answered, and the ledger takes down each answer (`ledger`). Now and then a
start is killed before it is ready, so that recovery is cut off too. After every start that was left alone, everything
is compared before anyone writes again.

What is sent is drawn from the seed; when the kill strikes is drawn too, but where it finds the server is up to the
machine. So a seed narrows a failure down and does not repeat it to the byte.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

import hiredis

from tests.cli.command_line import invoke
from tests.integration.ledger import (
    ACCOUNTS,
    GONE,
    HITS,
    LATER_MS,
    MIXED,
    SET_WHOLE,
    WHOLE,
    Command,
    Ledger,
    Unit,
    require,
    settle_all,
)
from tests.integration.library_ledger import ServerError, draw
from tests.integration.queue_ledger import QueueLedger
from tests.integration.server_process import COMMAND, ServerProcess, environment

WRITERS: Final = 3
RUN_UNITS_MAX: Final = 30
LOAD_S_MAX: Final = 0.25
"""How long a server is under load before it is killed: at most so long, and mostly much shorter."""
LOAD_ANSWERS_MIN: Final = 11
"""So much is answered first, however slow the machine is."""
LOAD_S_LONGEST: Final = 30.0
START_S_RANGE: Final = (0.3, 0.9)
"""When a start is cut off: mostly while it recovers, or has just become ready."""
GONE_MS_MAX: Final = 30
VERIFY_EVERY: Final = 5
SAVE_CHANCE: Final = 0.02


class Writer:
    """One connection's load, on a thread of its own."""

    def __init__(self, server: ServerProcess, ledger: Ledger, rng: Random, numbers: Counter[str]) -> None:
        self._socket = server.connect()
        self._reader = hiredis.Reader(replyError=ServerError)
        self._ledger = ledger
        self._rng = rng
        self._numbers = numbers
        self._thread = threading.Thread(target=self._run)
        self.problem: BaseException | None = None

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        self._thread.join(60)
        self._socket.close()
        require(not self._thread.is_alive(), "a writer hangs")

    def _run(self) -> None:
        try:
            while True:
                self._exchange()
        except OSError:
            pass  # the server is gone
        except BaseException as problem:
            self.problem = problem

    def _exchange(self) -> None:
        """Send something, and take its answers as far as they come."""
        rng = self._rng
        units = [self._unit() for _ in range(rng.choice((1, 1, 1, rng.randint(2, RUN_UNITS_MAX))))]
        request = b"".join(map(_encode_unit, units))
        saves = rng.random() < SAVE_CHANCE
        if saves:
            request = b"BGSAVE\r\n" + request
        for unit in units:
            self._ledger.send(unit)
        self._socket.sendall(request)
        if saves:
            self._numbers["saves" if not isinstance(self._receive(may_fail=True), ServerError) else "no_saves"] += 1
        for unit in units:
            for _ in range(len(unit) + 1 if len(unit) > 1 else 0):
                self._receive()  # OK and QUEUED
            self._ledger.answer(self._receive(may_fail=True))

    def _receive(self, *, may_fail: bool = False) -> Any:
        while (reply := self._reader.gets()) is False:
            data = self._socket.recv(65536)
            if not data:
                raise ConnectionResetError("the server is gone")
            self._reader.feed(data)
        require(may_fail or not isinstance(reply, ServerError), "the server answered", reply)
        return reply

    def _unit(self) -> Unit:
        rng = self._rng
        kind = rng.random()
        if kind < 0.45:
            return (self._command(),)
        if kind < 0.65:
            return (self._ledger.queue.command(rng),)
        if kind < 0.75:
            return ((b"INCR", HITS),)
        if kind < 0.78:
            return ((b"SET", rng.choice(GONE), b"x", b"PX", b"%d" % rng.randint(1, GONE_MS_MAX)),)
        if kind < 0.85:
            one, other = rng.sample(ACCOUNTS, 2)
            amount = rng.randint(1, 100)
            moves = self._ledger.prefix + b"n:moves"
            return (b"INCRBY", one, b"%d" % -amount), (b"INCR", moves), (b"INCRBY", other, b"%d" % amount)
        if kind < 0.92:
            number = b"%d" % rng.getrandbits(40)
            if rng.random() < 0.5:
                return ((b"EVAL", SET_WHOLE, b"%d" % len(WHOLE), *WHOLE, number),)
            return tuple((b"SET", key, number) for key in WHOLE)
        return tuple(self._command() for _ in range(rng.randint(2, 6)))

    def _command(self) -> Command:
        rng, prefix = self._rng, self._ledger.prefix
        string, number, hash_, set_, zset, list_ = (b"%b%b:%d" % (prefix, kind, rng.randrange(5)) for kind in _KINDS)
        value = rng.randbytes(rng.choice((2, 8, 8, 100, 3000)))
        member = b"m%d" % rng.randrange(12)
        commands: tuple[Command, ...] = (
            (b"SET", string, value),
            (b"SET", string, value),
            (b"SET", string, value, b"PX", LATER_MS),
            (b"APPEND", string, value[:20]),
            (b"INCR", number),
            (b"HSET", hash_, member, value),
            (b"HDEL", hash_, member),
            (b"SADD", set_, member, value[:5]),
            (b"SREM", set_, member),
            (b"ZADD", zset, b"%d" % rng.randrange(100), member),
            (b"DEL", rng.choice((string, number, hash_, set_, zset, list_))),
            (b"PEXPIRE", rng.choice((string, hash_, set_, list_)), LATER_MS),
            (rng.choice((b"LPUSH", b"RPUSH")), list_, member, value[:100]),
            (b"LPOP", list_),
            (b"RPOP", list_, b"2"),
            (b"LMOVE", list_, b"%bl:%d" % (prefix, rng.randrange(5)), b"LEFT", b"RIGHT"),
            (b"LREM", list_, b"0", member),
            (b"LINSERT", list_, b"BEFORE", member, value[:8]),
            (b"LTRIM", list_, b"1", b"-2"),
            (b"EVAL", MIXED, b"4", number, list_, hash_, set_, member),
            draw(rng, prefix),
            draw(rng, prefix),
        )
        return rng.choice(commands)


_KINDS: Final = (b"s", b"n", b"h", b"u", b"z", b"l")


def _encode(command: Command) -> bytes:
    return b"*%d\r\n" % len(command) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in command)


def _encode_unit(unit: Unit) -> bytes:
    parts = b"".join(map(_encode, unit))
    return parts if len(unit) == 1 else b"MULTI\r\n" + parts + b"EXEC\r\n"


class Killing:
    """A data directory whose servers are killed."""

    def __init__(self, data: Path, seed: int, *arguments: str, command: Sequence[str] = COMMAND) -> None:
        self._data = data
        self._rng = Random(seed)
        self._arguments = arguments
        self._command = command
        self._ledgers = [Ledger(b"w%d:" % number, queue=QueueLedger(number)) for number in range(WRITERS)]
        self.numbers = Counter[str]()
        """What happened, by name."""

    def run(self, kills: int) -> None:
        """Kill so often; raises `Violation` as soon as something is wrong."""
        for number in range(kills):
            if number and self._rng.random() < 0.2:
                self._kill_a_start()
                continue
            with self._started() as server:
                self._load_and_kill(server)
            if number % VERIFY_EVERY == VERIFY_EVERY - 1:
                self._verify()
        with self._started() as server:
            require(server.terminate() == 0, "it did not stop in order:", server.stderr)
        self._verify()
        self.numbers["answered"] = sum(ledger.answered_count for ledger in self._ledgers)
        self.numbers["calls"] = sum(ledger.calls_count for ledger in self._ledgers)

    def _started(self) -> ServerProcess:
        """A server that is ready and has everything."""
        began_s = time.monotonic()
        server = ServerProcess(self._data, *self._arguments, command=self._command)
        try:
            self.numbers["slowest_start_ms"] = max(
                self.numbers["slowest_start_ms"], int(1000 * (time.monotonic() - began_s))
            )
            with server.client() as client:
                settle_all(client, self._ledgers)
        except BaseException:
            server.kill()
            server.close()
            raise
        return server

    def _load_and_kill(self, server: ServerProcess) -> None:
        rng = self._rng
        writers = [Writer(server, ledger, Random(rng.getrandbits(60)), self.numbers) for ledger in self._ledgers]
        for writer in writers:
            writer.start()
        self._wait_for_answers()
        time.sleep(LOAD_S_MAX * rng.random() ** 2)
        server.kill()
        for writer in writers:
            writer.join()
        self.numbers["kills"] += 1
        self.numbers["unanswered"] += sum(len(ledger.sent) for ledger in self._ledgers)
        for writer in writers:
            if writer.problem is not None:
                raise writer.problem
        # What was to expire soon has expired when the next server is asked for it.
        time.sleep(GONE_MS_MAX / 1000)

    def _wait_for_answers(self) -> None:
        enough = LOAD_ANSWERS_MIN + sum(ledger.answered_count for ledger in self._ledgers)
        deadline_s = time.monotonic() + LOAD_S_LONGEST
        while sum(ledger.answered_count for ledger in self._ledgers) < enough and time.monotonic() < deadline_s:
            time.sleep(0.001)

    def _kill_a_start(self) -> None:
        places = ["--data", str(self._data), "--port", "auto", "--http-port", "0", "--flight-port", "0"]
        process = subprocess.Popen(
            [*self._command, *places, *self._arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment(),
        )
        time.sleep(self._rng.uniform(*START_S_RANGE))
        process.kill()
        process.wait(30)
        self.numbers["kills"] += 1
        self.numbers["kills_while_starting"] += 1

    def _verify(self) -> None:
        outcome = invoke("journal", "verify", self._data, "--json")
        require(outcome.status == 0, "the journal is not sound:", outcome.of_kind("problem"), outcome.stderr)
        self.numbers["verified"] += 1
