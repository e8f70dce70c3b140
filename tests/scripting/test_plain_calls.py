"""The plain forms of commands in scripts do only what the general path would: the same replies, state and records."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from tests.scripting.running import ScriptMachine
from tests.server.test_hot import Side
from tidelog import limits
from tidelog.commands.families import command_table
from tidelog.engine.dispatch import run_command
from tidelog.errors import ApplyFailed
from tidelog.resp.encoder import ErrorReply, Reply
from tidelog.scripting.callee import Callee
from tidelog.scripting.plain_calls import PLAIN_CALLS
from tidelog.store.transaction import NOT_PLAIN, Transaction

TABLE = command_table()
ROWS = {name: row for name in PLAIN_CALLS if (row := TABLE.find(name.encode())) is not None}
NUMBERS = [
    b"0",
    b"5",
    b"-3",
    b"007",
    b"12",
    b"1234567890123456789",
    b"9223372036854775807",
    b"4611686018427387904",
    b"x",
]


def plain(transaction: Transaction, words: list[bytes]) -> Reply:
    name = words[0].decode()
    return PLAIN_CALLS[name](transaction, words) if ROWS[name].takes(len(words)) else NOT_PLAIN


def general(transaction: Transaction, words: list[bytes]) -> Reply:
    """SET shares records on both paths: as in EXEC."""
    if words[0] == b"SET" and len(words) == 3 and transaction.set_plain(words[1], words[2]):
        return "OK"
    return run_command(ROWS[words[0].decode()], transaction, words)


def random_call(rng: random.Random) -> list[bytes]:
    key = rng.choice([b"k%d", b"h%d", b"s%d", b"l%d", b"{t}%d"]) % rng.randrange(3)
    own = b"%d" % rng.randrange(3)
    number = rng.choice(NUMBERS)
    text = rng.choice([number, rng.randbytes(rng.choice([0, 1, 127, 128, 300])), b"v" * rng.choice([3, 2000])])
    field = b"f%d" % rng.randrange(3)
    words = rng.choice(
        [
            [b"GET", key],
            [b"SET", key, text],
            [b"SET", key, number],
            [b"SET", key, b"10"],
            [b"DEL", key],
            [b"SET", key, text, b"PX", b"100"],
            [b"SET", key, text, b"NX"],
            [b"INCR", key],
            [b"DECR", key],
            [b"INCRBY", key, number],
            [b"DECRBY", key, number],
            [b"EXPIRE", key, number],
            [b"EXPIRE", key, b"50"],
            [b"PEXPIRE", key, rng.choice([number, b"100"])],
            [b"PEXPIRE", key, b"100", b"GT"],
            [b"DEL", key],
            [b"DEL", key, b"k0"],
            [b"HGET", key, field],
            [b"HSET", key, field, text],
            [b"HSET", key, field, text, b"f1", number],
            [b"HSET", key, field, text, b"f8", number, b"f9", text],
            [b"HSET", key, field, text, b"f1"],
            [b"HINCRBY", key, field, number],
            [b"HINCRBY", key, b"n", number],
            [b"SADD", key, field],
            [b"SADD", key, field, b"m"],
            [b"LPUSH", key, text],
            [b"RPUSH", key, text],
            [b"RPUSH", key, text, b"more"],
        ]
    )
    if rng.random() < 0.7:  # mostly each command has keys of its type
        words[1] = {b"H": b"h", b"S": b"s", b"L": b"l", b"R": b"l"}.get(words[0][:1], b"k") + own
        words[1] = b"k" + own if words[0] == b"SET" else words[1]
    return words


def same(reply: Reply) -> Reply:
    return repr(reply) if isinstance(reply, ErrorReply) else reply


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("seed", [pytest.param(seed, marks=() if seed < 3 else pytest.mark.long) for seed in range(10)])
def test_plain_and_general_agree(seed: int, shards: int) -> None:
    rng = random.Random(seed)
    ours, theirs = Side(shards), Side(shards)
    taken: Counter[str] = Counter()
    for _ in range(400):
        one, other = ours.store.begin(), theirs.store.begin()
        for words in [random_call(rng) for _ in range(rng.randrange(1, 8))]:
            reply = plain(one, words)
            if reply is NOT_PLAIN:
                reply = general(one, words)
            else:
                taken[words[0].decode()] += 1
            assert same(reply) == same(general(other, words)), words
            assert one.size_bytes == other.size_bytes, words
        one.end_run()
        other.end_run()
        assert one.records == other.records
        for side, transaction in ((ours, one), (theirs, other)):
            side.store.commit(transaction)
        ours.clock.advance(rng.choice([0, 50_000, 200_000]))
        theirs.clock.set_wall(ours.clock.wall_us())
        assert ours.state() == theirs.state()
        assert list(ours.store.uses.by_slot) == list(theirs.store.uses.by_slot)
    assert min(taken[name] for name in PLAIN_CALLS) > 5, taken
    expected = ours.state()
    ours.store.journal.close()
    ours.store = ours.opened()
    assert ours.state() == expected, "and the journal has it all"


WRITES = [
    ([b"INCR", b"new"], [b"INCR", b"number"]),
    ([b"HSET", b"new", b"f", b"v"], [b"HSET", b"hash", b"f", b"w"]),
    ([b"HSET", b"new", b"f", b"v", b"g", b"v"], [b"HSET", b"hash", b"f", b"w", b"g", b"w"]),
    ([b"HINCRBY", b"new", b"n", b"1"], [b"HINCRBY", b"hash", b"n", b"1"]),
    ([b"SADD", b"new", b"m"], [b"SADD", b"set", b"m"]),
    ([b"LPUSH", b"new", b"x"], [b"LPUSH", b"list", b"x"]),
    ([b"RPUSH", b"new", b"x"], [b"RPUSH", b"list", b"x"]),
    ([b"SET", b"new", b"x"], [b"SET", b"number", b"x"]),
    ([b"EXPIRE", b"number", b"5"], [b"DEL", b"number"]),
]


def made_before(side: Side) -> None:
    for words in (
        [b"SET", b"number", b"1"],
        [b"HSET", b"hash", b"a", b"b"],
        [b"SADD", b"set", b"a"],
        [b"LPUSH", b"list", b"a"],
    ):
        side.general([words], 2)


class Watcher:
    def __init__(self) -> None:
        self.watched: set[tuple[int, bytes]] = set()
        self.is_dirty = False


@pytest.mark.parametrize("words", [words for pair in WRITES for words in pair])
def test_watchers_and_clients_that_wait_are_told(words: list[bytes]) -> None:
    told: list[Any] = []
    for run in (plain, general):
        side, watcher = Side(1), Watcher()
        made_before(side)
        side.store.watch(watcher, 0, words[1])
        side.store.database(0).waiting.add(words[1])
        transaction = side.store.begin()
        assert run(transaction, words) is not NOT_PLAIN
        told.append((watcher.is_dirty, dict(side.store.signals)))
    assert told[0] == told[1]
    assert told[0][0]


def test_a_key_that_has_expired_is_for_the_general_path() -> None:
    side = Side(1)
    side.general([[b"SET", b"k", b"1", b"PX", b"10"]], 2)
    side.clock.advance(20_000)
    for words in ([b"GET", b"k"], [b"INCR", b"k"], [b"DEL", b"k"], [b"EXPIRE", b"k", b"5"], [b"SET", b"k", b"x"]):
        assert plain(side.store.begin(), words) is NOT_PLAIN
    transaction = side.store.begin()
    general(transaction, [b"GET", b"k"])
    transaction.remove_expired()
    assert plain(transaction, [b"GET", b"k"]) is None


def test_what_was_found_expired_goes_first() -> None:
    side = Side(1)
    side.general([[b"SET", b"k", b"1", b"PX", b"10"]], 2)
    side.clock.advance(20_000)
    transaction = side.store.begin()
    assert transaction.find(b"k") is None
    for words in ([b"INCR", b"a"], [b"HSET", b"a", b"f", b"v"], [b"SADD", b"a", b"m"], [b"LPUSH", b"a", b"x"]):
        assert plain(transaction, words) is NOT_PLAIN


def test_a_transaction_that_is_nearly_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    side = Side(1)
    monkeypatch.setattr(limits, "TRANSACTION_BYTES_MAX", 12_000)
    transaction = side.store.begin()
    count = 0
    while plain(transaction, [b"RPUSH", b"list", b"x" * 500]) is not NOT_PLAIN:
        count += 1
    assert 15 < count < 24
    assert transaction.size_bytes < 12_000


# --- in scripts -------------------------------------------------------------------------------------------------

EVERY = """
redis.call('SET', 'n', 5) redis.call('GET', 'n')
redis.call('INCR', 'n') redis.call('DECR', 'n') redis.call('INCRBY', 'n', 3) redis.call('DECRBY', 'n', 2)
redis.call('EXPIRE', 'n', 9) redis.call('PEXPIRE', 'n', 9000) redis.call('DEL', 'n')
redis.call('HSET', 'h', 'f', 1) redis.call('HGET', 'h', 'f') redis.call('HINCRBY', 'h', 'f', 1)
redis.call('SADD', 's', 'm') redis.call('LPUSH', 'l', 'x') redis.call('RPUSH', 'l', 'y')
"""


def test_every_call_is_counted(machine: ScriptMachine) -> None:
    machine.eval(EVERY)
    tallies = machine.engine.metrics.commands
    assert {name: tallies.of(name).calls for name in PLAIN_CALLS} == dict.fromkeys(PLAIN_CALLS, 1)
    machine.eval("redis.pcall('INCR', 'h') redis.pcall('GET', 'h')")
    assert (tallies.of("INCR").calls, tallies.of("INCR").failed, tallies.of("GET").failed) == (2, 1, 1)
    machine("CONFIG", "RESETSTAT")
    machine.eval("redis.call('GET', 'n')")
    assert tallies.of("GET").calls == 1


def test_replies_become_the_same_values(machine: ScriptMachine) -> None:
    script = """
        return {
            type(redis.call('SET', 'a', '1')), redis.call('SET', 'a', '1').ok, type(redis.call('GET', 'none')),
            type(redis.call('GET', 'a')), type(redis.call('INCR', 'a')), redis.call('HGET', 'none', 'f') == false,
        }
    """
    assert machine.eval(script) == [b"table", b"OK", b"boolean", b"string", b"number", 1]
    assert (
        machine.eval("local r = redis.call('SET', 'a', 1) r.ok = 'changed' return redis.call('SET', 'a', 1)") == b"OK"
    )
    assert machine.eval("redis.setresp(3) return redis.call('GET', 'none') == nil") == 1
    assert machine.eval("return redis.call('PING')") == b"PONG"


def test_read_only_scripts_write_nothing(machine: ScriptMachine) -> None:
    for line in EVERY.replace(") ", ")\n").splitlines():
        if line and "'GET'" not in line and "'HGET'" not in line:
            assert "not allowed from read-only" in machine("EVAL_RO", line, 0), line


def test_a_bug_in_a_plain_form_ends_the_process(machine: ScriptMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have changed something that is not in the journal."""
    machine.eval("return 1")

    def broken(_transaction: Transaction, _words: list[bytes]) -> Reply:
        raise RuntimeError("a bug")

    callee = Callee(ROWS["INCR"], machine.engine.metrics.commands.of("INCR"))
    callee.plain = broken
    monkeypatch.setitem(machine.scripts._host._callees, b"INCR", callee)
    failures: list[ApplyFailed] = []

    def fail(error: ApplyFailed) -> None:
        failures.append(error)
        raise error

    monkeypatch.setattr(machine.engine.process, "fail", fail)
    with pytest.raises(ApplyFailed):
        machine.eval("redis.call('INCR', 'k')")
    assert "INCR could not be applied" in str(failures[0])


# --- arrays that scripts return ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("{}", b"*0\r\n"),
        ("{1, 0, 255, 256, -1}", b"*5\r\n:1\r\n:0\r\n:255\r\n:256\r\n:-1\r\n"),
        ("{1, 'two', '', 3}", b"*4\r\n:1\r\n$3\r\ntwo\r\n$0\r\n\r\n:3\r\n"),
        ("{1.5, -1.5, 1e15, 2^53}", b"*4\r\n:1\r\n:-1\r\n:1000000000000000\r\n:9007199254740992\r\n"),
        ("{1, nil, 3}", b"*1\r\n:1\r\n"),
        ("{1, false, 3}", b"*3\r\n:1\r\n$-1\r\n:3\r\n"),
        ("{1, {2}}", b"*2\r\n:1\r\n*1\r\n:2\r\n"),
        ("{1, ok = 'fine'}", b"+fine\r\n"),
        ("{1, err = 'E no'}", b"-E no\r\n"),
        ("{1, ok = false, err = 7}", b"*1\r\n:1\r\n"),
        ("{1, double = 2.5}", b"$3\r\n2.5\r\n"),
        ("{1, map = {}}", b"*0\r\n"),
        ("setmetatable({1}, {__index = {ok = 'never'}})", b"*1\r\n:1\r\n"),
        ("setmetatable({}, {__index = function() error('never') end})", b"*0\r\n"),
        ("{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}", b"*11\r\n" + b"".join(b":%d\r\n" % n for n in range(1, 12))),
        ("{string.rep('x', 500)}", b"*1\r\n$500\r\n" + b"x" * 500 + b"\r\n"),
        ("-0", b":0\r\n"),
        ("7", b":7\r\n"),
        ("-7.9", b":-7\r\n"),
        ("1/0", b":-9223372036854775808\r\n"),
        ("2^53 - 1", b":9007199254740991\r\n"),
        ("-2^60", b":-1152921504606846976\r\n"),
    ],
)
def test_values_that_are_returned(machine: ScriptMachine, value: str, expected: bytes) -> None:
    assert machine.wire("EVAL", f"return {value}", 0) == expected


@pytest.mark.parametrize("keys", range(6))
@pytest.mark.parametrize("values", range(3))
def test_keys_and_values(machine: ScriptMachine, keys: int, values: int) -> None:
    script = "return {#KEYS, #ARGV, table.concat(KEYS, ','), table.concat(ARGV, ',')}"
    names, words = [b"k%d" % at for at in range(keys)], [b"v%d" % at for at in range(values)]
    assert machine.eval(script, names, words) == [keys, values, b",".join(names), b",".join(words)]
    assert machine.eval("return rawget(_G, 'x') == nil", names, words) == 1
