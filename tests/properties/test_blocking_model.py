"""Clients that wait for lists and sorted sets beside a naive model: one list of clients in the order of their arrival.

The model does what Redis 7.2 does: whenever keys have changed, it goes through them in the order of their changes, and
through all clients in the order of their arrival. A client that waits for the key, which holds the type it waits for,
runs its command anew. Nothing in the model is fast, and everything is in one place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import pytest

from tests.engine.blocked import BlockedClient, Server, in_loop
from tests.server.test_connection import turns

KEYS: Final = ["a", "b", "c", "d"]
CLIENTS: Final = 8
WAITS: Final = object()
"""Instead of a reply."""

Words = list[str]
Value = list[str] | dict[str, int] | str
"""A list, the scores of a sorted set, or another type."""


class Refused(Exception):
    """An error reply begins with this word."""


@dataclass
class Waiter:
    client: int
    words: Words
    deadline_ms: int | None


@dataclass
class Model:
    keys: dict[str, Value] = field(default_factory=dict)
    waiters: list[Waiter] = field(default_factory=list)
    replies: dict[int, list[Any]] = field(default_factory=dict)
    """Client -> what it was told since somebody looked."""
    now_ms: int = 0
    is_out_of_memory: bool = False
    changed: dict[str, bool] = field(default_factory=dict)
    """In order; whether the key was made anew. Making a key is what counts for the order."""
    put_off: dict[str, None] = field(default_factory=dict)

    # --- commands -----------------------------------------------------------------------------------------------

    def send(self, client: int, words: Words) -> None:
        """A client sends a command."""
        if self.is_out_of_memory and words[0] in NEEDS_MEMORY:
            self._reply(client, "OOM")
            return
        reply = self._run(words)
        if reply is WAITS:
            timeout_ms = int(1000 * float(timeout_of(words)))
            self.waiters.append(Waiter(client, words, self.now_ms + timeout_ms if timeout_ms else None))
            return
        self._reply(client, reply)
        self._serve()

    def transact(self, client: int, commands: list[Words]) -> None:
        """MULTI, these, EXEC."""
        replies = [self._run(words) for words in commands]
        self._reply(client, [None if reply is WAITS else reply for reply in replies])
        self._serve()

    def _reply(self, client: int, reply: Any) -> None:
        self.replies.setdefault(client, []).append(reply)

    def _run(self, words: Words) -> Any:
        try:
            return getattr(self, f"_{words[0].lower()}")(*words[1:])
        except Refused as error:
            return str(error)

    def _typed(self, key: str, kind: type[Any]) -> Any:
        value = self.keys.get(key)
        if value is not None and type(value) is not kind:
            raise Refused("WRONGTYPE")
        return value

    def _put(self, key: str, value: Value) -> None:
        if key not in self.keys and not self.changed.get(key):
            self.changed.pop(key, None)
            self.changed[key] = True
        self.changed.setdefault(key, False)
        self.keys[key] = value

    def _set(self, key: str, value: str) -> str:
        self._put(key, value)
        return "OK"

    def _del(self, key: str) -> int:
        if key not in self.keys:
            return 0
        del self.keys[key]
        self.changed.setdefault(key, False)
        return 1

    def _rename(self, old: str, new: str) -> str:
        if old not in self.keys:
            raise Refused("ERR")
        value = self.keys[old]
        self._del(old)
        self._del(new)
        self._put(new, value)
        return "OK"

    def _rpush(self, key: str, *elements: str) -> int:
        values = self._typed(key, list) or []
        self._put(key, values + list(elements))
        return len(values) + len(elements)

    def _zadd(self, key: str, *pairs: str) -> int:
        scores = self._typed(key, dict) or {}
        added = {member: int(score) for score, member in zip(pairs[::2], pairs[1::2], strict=True)}
        self._put(key, scores | added)
        return len(added)

    def _take(self, key: str, end: str, count: int = 1) -> list[str]:
        values = self._typed(key, list) or []
        if end == "RIGHT":
            taken, left = values[::-1][:count], values[: max(len(values) - count, 0)]
        else:
            taken, left = values[:count], values[count:]
        return self._took(key, taken, left)

    def _take_scored(self, key: str, end: str, count: int = 1) -> list[tuple[str, int]]:
        pairs = sorted((self._typed(key, dict) or {}).items(), key=lambda pair: (pair[1], pair[0]))
        pairs = pairs[::-1] if end == "MAX" else pairs
        return self._took(key, pairs[:count], dict(pairs[count:]))

    def _took(self, key: str, taken: list[Any], left: Any) -> list[Any]:
        if taken:
            self._put(key, left)
            if not left:
                del self.keys[key]
        return taken

    def _lpop(self, key: str) -> Any:
        taken = self._take(key, "LEFT")
        return taken[0] if taken else None

    def _blpop(self, *words: str, end: str = "LEFT") -> Any:
        for key in words[:-1]:
            if taken := self._take(key, end):
                return [key, taken[0]]
        return WAITS

    def _brpop(self, *words: str) -> Any:
        return self._blpop(*words, end="RIGHT")

    def _blmpop(self, _timeout: str, count: str, *words: str) -> Any:
        keys, end, wanted = words[: int(count)], words[int(count)], int(words[-1])
        for key in keys:
            if taken := self._take(key, end, wanted):
                return [key, taken]
        return WAITS

    def _blmove(self, source: str, target: str, from_end: str, to_end: str, _timeout: str) -> Any:
        if self._typed(source, list) is None:
            return WAITS
        self._typed(target, list)
        element = self._take(source, from_end)[0]
        values: Any = self.keys.get(target, [])
        self._put(target, [element, *values] if to_end == "LEFT" else [*values, element])
        return element

    def _brpoplpush(self, source: str, target: str, timeout: str) -> Any:
        return self._blmove(source, target, "RIGHT", "LEFT", timeout)

    def _bzpopmin(self, *words: str, end: str = "MIN") -> Any:
        for key in words[:-1]:
            if taken := self._take_scored(key, end):
                return [key, taken[0][0], str(taken[0][1])]
        return WAITS

    def _bzpopmax(self, *words: str) -> Any:
        return self._bzpopmin(*words, end="MAX")

    def _bzmpop(self, _timeout: str, count: str, *words: str) -> Any:
        keys, end, wanted = words[: int(count)], words[int(count)], int(words[-1])
        for key in keys:
            if taken := self._take_scored(key, end, wanted):
                return [key, [[member, str(score)] for member, score in taken]]
        return WAITS

    # --- waiting ------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        while self.changed:
            batch, self.changed = list(self.changed), {}
            for at, key in enumerate(batch):
                self.changed = {name: is_new for name, is_new in self.changed.items() if name not in batch[at:]}
                for waiter in list(self.waiters):
                    self._try(waiter, key)

    def _try(self, waiter: Waiter, key: str) -> None:
        kind = dict if waiter.words[0].startswith("BZ") else list
        if key not in waited_keys(waiter.words) or type(self.keys.get(key)) is not kind:
            return
        if self.is_out_of_memory and waiter.words[0] in NEEDS_MEMORY:
            self.put_off[key] = None
            return
        reply = self._run(waiter.words)
        assert reply is not WAITS
        self.waiters.remove(waiter)
        self._reply(waiter.client, reply)

    def tick(self) -> None:
        self.changed |= dict.fromkeys(self.put_off, False)
        self.put_off = {}
        self._serve()

    def end(self, client: int, reply: Any) -> bool:
        """A client waits no longer; whether it did."""
        found = [waiter for waiter in self.waiters if waiter.client == client]
        for waiter in found:
            self.waiters.remove(waiter)
            self._reply(client, reply)
        return bool(found)

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        for waiter in list(self.waiters):
            if waiter.deadline_ms is not None and waiter.deadline_ms <= self.now_ms:
                self.end(waiter.client, None)


NEEDS_MEMORY: Final = ("RPUSH", "ZADD", "SET", "BLMOVE", "BRPOPLPUSH")


def timeout_of(words: Words) -> str:
    return words[1] if "MPOP" in words[0] else words[-1]


def waited_keys(words: Words) -> Words:
    if "MPOP" in words[0]:
        return words[3 : 3 + int(words[2])]
    return words[1:2] if words[0] in ("BLMOVE", "BRPOPLPUSH") else words[1:-1]


def plain(reply: Any) -> Any:
    """A reply of the server as the model has it."""
    if isinstance(reply, Exception):
        return str(reply).partition(" ")[0]
    if isinstance(reply, list):
        return [plain(item) for item in reply]
    return reply.decode() if isinstance(reply, bytes) else reply


class Play:
    """Random steps on both."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.server = Server(shards=self.rng.choice((1, 3)))
        self.model = Model()
        self.clients: list[BlockedClient] = [self.server.connect() for _ in range(CLIENTS + 1)]
        """The last one never waits."""
        self.elements = 0

    def element(self) -> str:
        self.elements += 1
        return f"e{self.elements}"

    def keys(self) -> Words:
        return self.rng.choices(KEYS, k=self.rng.choice((1, 1, 2, 3)))

    def waiting(self) -> Words:
        rng = self.rng
        timeout = rng.choice(("0", "0", "0", "0.05", "0.2"))
        keys, end, where = self.keys(), rng.choice(("LEFT", "RIGHT")), rng.choice(("MIN", "MAX"))
        count = [str(len(keys)), *keys]
        return rng.choice(
            [
                [rng.choice(("BLPOP", "BRPOP")), *keys, timeout],
                ["BLMPOP", timeout, *count, end, "COUNT", str(rng.randint(1, 3))],
                ["BLMOVE", *rng.choices(KEYS, k=2), end, rng.choice(("LEFT", "RIGHT")), timeout],
                ["BRPOPLPUSH", *rng.choices(KEYS, k=2), timeout],
                [f"BZPOP{where}", *keys, timeout],
                ["BZMPOP", timeout, *count, where, "COUNT", str(rng.randint(1, 3))],
            ]
        )

    def changing(self) -> Words:
        rng, kind = self.rng, self.rng.randrange(12)
        key = rng.choice(KEYS)
        if kind < 5:
            return ["RPUSH", key, *(self.element() for _ in range(rng.choice((1, 2, 4))))]
        if kind < 8:
            return ["ZADD", key, *(word for at in range(rng.choice((1, 3))) for word in (str(at % 2), self.element()))]
        if kind == 8:
            return ["DEL", key]
        if kind == 9:
            return ["SET", key, "text"]
        if kind == 10:
            return ["LPOP", key]
        return ["RENAME", *rng.sample(KEYS, 2)]

    async def step(self) -> None:
        rng, model, server = self.rng, self.model, self.server
        kind, writer = rng.random(), len(self.clients) - 1
        waiting = {waiter.client for waiter in model.waiters}
        free = [at for at in range(CLIENTS) if at not in waiting]
        if kind < 0.45 and free:
            self.send(rng.choice(free), self.waiting())
        elif kind < 0.65:
            self.send(rng.choice([writer, *free]), self.changing())
        elif kind < 0.9 and not model.is_out_of_memory:
            inside = [self.changing() if rng.random() < 0.8 else self.waiting() for _ in range(rng.randint(1, 5))]
            for words in (["MULTI"], *inside, ["EXEC"]):
                self.clients[writer].send(*words)
            for told in ("OK", *["QUEUED"] * len(inside)):
                model.replies.setdefault(writer, []).append(told)
            model.transact(writer, inside)
        elif kind < 0.93:
            ms = rng.choice((10, 60))
            await server.wait(ms)
            model.pass_time(ms)
        elif kind < 0.95:
            await self.end_one(rng.randrange(CLIENTS))
        elif kind < 0.97:
            model.is_out_of_memory = not model.is_out_of_memory
            server.engine.gate.set_out_of_memory(model.is_out_of_memory)
            self.tick()  # now, because a hot pop from a key does not look at those who were put off, and another does
        else:
            self.tick()
        await turns(5)
        self.compare()

    def tick(self) -> None:
        self.server.engine.blocking.tick()
        self.model.tick()

    def send(self, at: int, words: Words) -> None:
        self.clients[at].send(*words)
        self.model.send(at, words)

    async def end_one(self, at: int) -> None:
        client, model = self.clients[at], self.model
        if self.rng.random() < 0.5:
            did = self.server.engine.blocking.unblock(client.session, with_error=True)
            assert did == model.end(at, "UNBLOCKED")
            return
        client.disconnect()
        model.end(at, None)
        model.replies.pop(at, None)
        self.clients[at] = self.server.connect()

    def compare(self) -> None:
        expected = {at: replies for at, replies in self.model.replies.items() if replies}
        found = {at: plain(client.replies()) for at, client in enumerate(self.clients)}
        assert {at: replies for at, replies in found.items() if replies} == expected
        self.model.replies.clear()
        blocked = {at for at, client in enumerate(self.clients) if client.is_blocked}
        assert blocked == {waiter.client for waiter in self.model.waiters}

    def compare_keys(self) -> None:
        for store in (self.server.store, self.server.restart()):
            database = store.database(0)
            assert {key.decode() for key in database.all_keys()} == set(self.model.keys)
            for key, value in self.model.keys.items():
                found: Any = database.peek(key.encode())
                if isinstance(value, list):
                    assert plain(list(found)) == value
                elif isinstance(value, dict):
                    assert {member.decode(): score for score, member in found} == value


async def play(seed: int, steps: int) -> None:
    game = Play(seed)
    for at in range(steps):
        try:
            await game.step()
        except Exception as error:
            error.add_note(f"seed {seed}, step {at}")
            raise
    game.compare_keys()


@pytest.mark.parametrize("seed", range(25))
@in_loop
async def test_clients_are_served_as_the_model_serves_them(seed: int) -> None:
    await play(seed, 300)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 1100))
@in_loop
async def test_clients_are_served_as_the_model_serves_them_for_long(seed: int) -> None:
    await play(seed, 2000)
