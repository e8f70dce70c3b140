"""What a follower refuses, and a leader without followers: the same as a real Redis in the same role.

Redis is a replica of a master that is not there; Tidelog is told its role by the test. Nothing here depends on data
that a master would send.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Final

import pytest

from benchmarks.peers import free_ports, stop_peer
from tests.conformance.redis_oracle import Argument, Socket, command_rows, decode, pack, start_redis
from tests.engine.blocked import BlockedClient, Server, in_loop
from tests.engine.roles import MASTER_DOWN, NO_REPLICAS, READ_ONLY, HandMadeRole
from tests.server.test_connection import turns
from tidelog.server.replication_facts import replication_section

NOT_SENT: Final = frozenset(
    [
        *("SHUTDOWN", "DEBUG", "QUIT", "RESET", "MONITOR", "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "MULTI", "EXEC"),
        *("REPLICAOF", "SLAVEOF", "FAILOVER", "REPLCONF", "SYNC", "PSYNC", "WAIT", "WAITAOF", "SAVE", "BGSAVE"),
        *("CLIENT|KILL", "CLIENT|PAUSE", "CLIENT|REPLY", "CONFIG|SET", "HELLO", "SELECT", "AUTH"),
    ]
)
"""Commands that end the connection or change what is compared."""
REFUSALS: Final = {READ_ONLY, NO_REPLICAS, MASTER_DOWN}
LIBRARY: Final = """#!lua name=mylib
redis.register_function('writes', function(keys) return redis.call('SET', keys[1], 'v') end)
redis.register_function{function_name='reads', callback=function(keys) return redis.call('GET', keys[1]) end,
                        flags={'no-writes'}}
redis.register_function{function_name='anytime', callback=function(keys) return redis.call('GET', keys[1]) end,
                        flags={'no-writes', 'allow-stale'}}
"""
SCRIPTS: Final[list[tuple[Argument, ...]]] = [
    ("EVAL", "return 1", 0),
    ("EVAL", "return redis.call('SET', KEYS[1], 'v')", 1, "k"),
    ("EVAL", "return redis.pcall('SET', KEYS[1], 'v')", 1, "k"),
    ("EVAL", "return redis.call('GET', KEYS[1])", 1, "k"),
    ("EVAL", "return redis.call('TIME')[3]", 0),
    ("EVAL", "return redis.call('PUBLISH', 'news', 'hi')", 0),
    ("EVAL_RO", "return redis.call('GET', KEYS[1])", 1, "k"),
    ("EVAL_RO", "return redis.call('SET', KEYS[1], 'v')", 1, "k"),
    ("EVAL", "#!lua\nreturn 1", 0),
    ("EVAL_RO", "#!lua\nreturn 1", 0),
    ("EVAL", "#!lua flags=no-writes\nreturn redis.call('GET', KEYS[1])", 1, "k"),
    ("EVAL", "#!lua flags=no-writes\nreturn redis.call('SET', KEYS[1], 'v')", 1, "k"),
    ("EVAL", "#!lua flags=allow-stale\nreturn 1", 0),
    ("EVAL", "#!lua flags=no-writes,allow-stale\nreturn 1", 0),
    ("EVAL", "#!lua flags=no-writes,allow-stale\nreturn redis.call('GET', KEYS[1])", 1, "k"),
    ("EVAL", "#!lua flags=no-writes,allow-stale\nreturn redis.call('ECHO', KEYS[1])", 1, "k"),
    ("EVALSHA", "0" * 40, 0),
    ("FCALL", "writes", 1, "k"),
    ("FCALL_RO", "writes", 1, "k"),
    ("FCALL", "reads", 1, "k"),
    ("FCALL_RO", "reads", 1, "k"),
    ("FCALL", "anytime", 1, "k"),
    ("FCALL", "nobody", 0),
    ("FUNCTION", "LOAD", "REPLACE", LIBRARY),
    ("FUNCTION", "DELETE", "nobody"),
    ("FUNCTION", "FLUSH"),
]
TRANSACTIONS: Final[list[list[tuple[Argument, ...]]]] = [
    [("MULTI",), ("SET", "k", "v"), ("GET", "k"), ("EXEC",)],
    [("MULTI",), ("GET", "k"), ("PUBLISH", "news", "hi"), ("EXEC",)],
    [("MULTI",), ("PUBLISH", "news", "hi"), ("TIME",), ("DISCARD",)],
    [("MULTI",), ("EVAL", "return redis.call('SET', KEYS[1], 'v')", 1, "k"), ("EXEC",)],
    [("MULTI",), ("EVAL", "#!lua\nreturn 1", 0), ("EXEC",)],
    [("MULTI",), ("EVAL", "#!lua flags=no-writes\nreturn 1", 0), ("EXEC",)],
    [("MULTI",), ("FCALL", "reads", 1, "k"), ("EXEC",)],
    [("MULTI",), ("FUNCTION", "FLUSH"), ("EXEC",)],
    [("MULTI",), ("BLPOP", "list", 0), ("EXEC",)],
    [("MULTI",), ("FLUSHALL",), ("SELECT", 0), ("EXEC",)],
    [("WATCH", "k"), ("MULTI",), ("PUBLISH", "news", "hi"), ("EXEC",)],
    [("SUBSCRIBE", "news"), ("SET", "k", "v"), ("GET", "k"), ("PING",), ("UNSUBSCRIBE", "news")],
    [("CLIENT", "REPLY", "ON"), ("SET", "k", "v"), ("GET", "k")],
]
LONG_AGO: Final[list[list[tuple[Argument, ...]]]] = [
    [("MULTI",), ("SET", "k", "v")],
    [("MULTI",), ("GET", "k")],
    [("MULTI",), ("PUBLISH", "news", "hi")],
    [("MULTI",), ("EVAL", "return redis.call('SET', KEYS[1], 'v')", 1, "k")],
    [("MULTI",), ("NOSUCH",), ("SET", "k", "v")],
    [("WATCH", "k"), ("MULTI",), ("SET", "k", "w")],
]
"""What was queued before the role changed: EXEC comes after it."""


REPLIES: Final[list[tuple[Argument, ...]]] = [
    ("REPLCONF",),
    ("REPLCONF", "listening-port", 1),
    ("REPLCONF", "listening-port", "x"),
    ("REPLCONF", "CAPA", "eof", "capa", "psync2"),
    ("REPLCONF", "ip-address", "10.0.0.1"),
    ("REPLCONF", "foo", 1),
    ("REPLCONF", "foo"),
    ("WAIT", 0, 0),
    ("WAIT", -1, 0),
    ("WAIT", "x", 0),
    ("WAIT", 1, "x"),
    ("WAIT", 1, -1),
    ("REPLICAOF", "localhost", "x"),
    ("REPLICAOF", "localhost", -1),
    ("REPLICAOF", "localhost", 65536),
    ("FAILOVER",),
    ("FAILOVER", "ABORT"),
    ("FAILOVER", "TO", "a", 1),
    ("FAILOVER", "TO", "a", "b"),
    ("FAILOVER", "FORCE"),
    ("FAILOVER", "TIMEOUT", 0),
    ("FAILOVER", "TIMEOUT", "x"),
    ("FAILOVER", "x"),
    ("FAILOVER", "TO", "a", 1, "TO", "a", 1),
]
LAST: Final[list[tuple[Argument, ...]]] = [("SLAVEOF", "no", "One"), ("REPLICAOF", "NO", "ONE")]
"""Both lead again."""


class Roles:
    """A Redis and a Tidelog in the same role."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._sockets: list[Socket] = []
        self._server = Server()
        self._role = HandMadeRole(self._server.engine)
        self._admin, self._setter = self.connect()

    def connect(self) -> tuple[Socket, BlockedClient]:
        self._sockets.append(Socket(self._port))
        return self._sockets[-1], self._server.connect()

    async def begin(self) -> None:
        """Both lead, and have the same data."""
        for command in (("REPLICAOF", "NO", "ONE"), ("CONFIG", "SET", "min-replicas-to-write", 0)):
            self._tell_redis(*command)
        self._tell_redis("CONFIG", "SET", "replica-serve-stale-data", "yes")
        for each in (("FLUSHALL",), ("SET", "k", "old"), ("FUNCTION", "LOAD", "REPLACE", LIBRARY)):
            assert await self.each(self._admin, self._setter, *each) is None

    def _tell_redis(self, *words: Argument) -> None:
        assert self._admin.call(pack(words)).startswith(b"+OK"), words

    async def each(self, redis: Socket, tidelog: BlockedClient, *words: Argument) -> str | None:
        """Run a command on both; how the replies differ, if they do."""
        theirs, ours = await self.replies(redis, tidelog, *words)
        return None if theirs == ours else f"{words}: {ours!r} and not {theirs!r}"

    async def replies(self, redis: Socket, tidelog: BlockedClient, *words: Argument) -> tuple[bytes, bytes]:
        tidelog.send(*[word if isinstance(word, bytes | int) else str(word) for word in words])
        await turns(6)
        return redis.call(pack(words)), tidelog.transport.take()

    def follow(self) -> None:
        (port,) = free_ports(1)
        self._tell_redis("REPLICAOF", "127.0.0.1", port)
        self._role.is_link_up = False
        self._role.follow(("127.0.0.1", port))

    def grow_stale(self) -> None:
        self.follow()
        self._tell_redis("CONFIG", "SET", "replica-serve-stale-data", "no")
        self._role.refuse(READ_ONLY, MASTER_DOWN)

    def miss_followers(self) -> None:
        self._tell_redis("CONFIG", "SET", "min-replicas-to-write", 1)
        self._role.refuse(NO_REPLICAS)

    def info_of_redis(self) -> str:
        found: bytes = decode(self._admin.call([b"INFO", b"replication"]))
        return found.decode()

    def info_of_tidelog(self) -> dict[str, object]:
        return replication_section(self._server.engine)

    def close(self) -> None:
        for each in self._sockets:
            each.close()


@pytest.fixture(scope="module")
def own_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a Redis whose role only these tests change."""
    process, port = start_redis(tmp_path_factory.mktemp("redis"))
    yield port
    stop_peer(process)


CHANGES: Final = {"follower": Roles.follow, "stale": Roles.grow_stale, "alone": Roles.miss_followers}
Change = Callable[[Roles], None]


def in_roles(test: Callable[[Roles, Change], Awaitable[None]]) -> Callable[..., None]:
    """Run a test for each change of role."""

    async def run(own_redis: int, name: str) -> None:
        roles = Roles(own_redis)
        try:
            await roles.begin()
            await test(roles, CHANGES[name])
        finally:
            roles.close()

    def each(own_redis: int, name: str) -> None:
        in_loop(run)(own_redis, name)

    return pytest.mark.parametrize("name", CHANGES)(each)


@in_roles
async def test_the_same_commands_are_refused(roles: Roles, change: Change) -> None:
    change(roles)
    redis, tidelog = roles.connect()
    wrong: list[str] = []
    refused = 0
    for row in command_rows():
        if row.name in NOT_SENT or decode(redis.call([b"COMMAND", b"INFO", row.name.encode()]))[0] is None:
            continue
        words = row.name.split("|")
        theirs, ours = await roles.replies(redis, tidelog, *words, *["1"] * (abs(row.arity) - len(words)))
        if any(_is_refusal(reply) for reply in (theirs, ours)):
            refused += 1
            wrong += [f"{row.name}: {ours!r} and not {theirs!r}"] if theirs != ours else []
    assert not wrong
    assert refused > 80


def _is_refusal(reply: bytes) -> bool:
    return reply.startswith(b"-") and reply[1:-2].decode() in REFUSALS


@in_roles
async def test_scripts_and_functions(roles: Roles, change: Change) -> None:
    change(roles)
    redis, tidelog = roles.connect()
    found = [await roles.each(redis, tidelog, *command) for command in SCRIPTS]
    assert [each for each in found if each] == []


@in_roles
async def test_commands_about_replication(roles: Roles, change: Change) -> None:
    redis, tidelog = roles.connect()
    found = [await roles.each(redis, tidelog, *command) for command in REPLIES]
    change(roles)
    found += [await roles.each(redis, tidelog, *command) for command in REPLIES + LAST]
    assert [each for each in found if each] == []


@in_roles
async def test_info_has_the_fields_of_redis_in_their_order(roles: Roles, change: Change) -> None:
    change(roles)
    theirs = [line.partition(":")[0] for line in roles.info_of_redis().splitlines() if ":" in line]
    ours = list(roles.info_of_tidelog())
    assert [name for name in ours if name in theirs] == [name for name in theirs if name != "min_slaves_good_slaves"]


@in_roles
async def test_transactions_and_listeners(roles: Roles, change: Change) -> None:
    change(roles)
    found: list[str | None] = []
    for commands in TRANSACTIONS:
        redis, tidelog = roles.connect()
        found += [await roles.each(redis, tidelog, *command) for command in commands]
    assert [each for each in found if each] == []


@in_roles
async def test_what_was_queued_before(roles: Roles, change: Change) -> None:
    begun = [(roles.connect(), commands) for commands in LONG_AGO]
    found = [await roles.each(*link, *command) for link, commands in begun for command in commands]
    change(roles)
    found += [await roles.each(*link, "EXEC") for link, _ in begun]
    assert [each for each in found if each] == []
