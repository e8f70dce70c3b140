"""Keys of any type on Tidelog and on a real Redis: expiry, names, copies, scans, what OBJECT says."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from tests.conformance.redis_7_2 import encoding_of_set
from tests.conformance.redis_oracle import EXACT, SCAN, UNORDERED, InProcess, Pair, Socket, decode

MAKERS = {
    "string": ["SET", "k", "v"],
    "hash": ["HSET", "k", "f", "v", "g", "w"],
    "set": ["SADD", "k", "a", "b", "3"],
    "zset": ["ZADD", "k", "1", "a", "2.5", "b", "-inf", "c"],
}
COMMANDS = ["DEL k", "DEL k k l", "UNLINK k l", "EXISTS k k l", "TOUCH k k l", "TYPE k", "EXPIRE k 100",
            "PEXPIRE k 100000", "EXPIREAT k 4000000000", "PEXPIREAT k 4000000000000", "EXPIRE k -1", "TTL k", "PTTL l",
            "EXPIRETIME k", "PEXPIRETIME k", "PERSIST k", "RENAME k l", "RENAME l k", "RENAME k k", "RENAMENX k l",
            "RENAMENX l k", "RENAMENX k k", "COPY k l", "COPY k l REPLACE", "COPY l k REPLACE", "COPY k k", "MOVE k 1",
            "OBJECT ENCODING k", "OBJECT REFCOUNT k", "OBJECT IDLETIME k", "OBJECT FREQ k", "RANDOMKEY", "KEYS *",
            "SCAN 0"]  # fmt: skip


def is_near(item: Any) -> Any:
    """A time, but for what passed between the two."""
    return (item.mark, round(int(item.value) / 10_000)) if item.mark == ":" else item


def words(command: str) -> list[str]:
    return command.split(" ")


def kind_of_reply(item: Any) -> Any:
    return item.mark


def run(pair: Pair, command: str, kind: str = "none") -> None:
    orders: dict[str, Any] = {"KEYS": UNORDERED, "SCAN": SCAN, "PEXPIRETIME": is_near, "PTTL": is_near}
    order = orders.get(words(command)[0])
    if (command, kind) == ("OBJECT ENCODING k", "set"):
        order = encoding_of_set
    elif command == "OBJECT IDLETIME k":
        order = kind_of_reply  # a second may pass between the two
    pair(*words(command), **({"order": order} if order else {}))


@pytest.mark.parametrize("kind", [*MAKERS, "none"])
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_on_every_type(pair: Pair, command: str, kind: str) -> None:
    if kind != "none":
        pair(*MAKERS[kind])
    run(pair, command, kind)
    pair.same_state()
    pair.restart()
    pair.same_state()


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_on_what_has_expired(pair2: Pair, command: str, kind: str) -> None:
    pair2("PSETEX", "l", 20, "v")
    pair2(*MAKERS[kind])
    pair2("PEXPIRE", "k", 20)
    pair2.wait(40)
    run(pair2, command)
    pair2.same_state()
    pair2.restart()
    pair2.same_state()


@pytest.mark.parametrize("command", [*COMMANDS, "OBJECT", "OBJECT HELP", "SCAN 0 COUNT 5", "OBJECT NONE k"])
def test_wrong_number_of_arguments(pair: Pair, command: str) -> None:
    given = words(command)
    for count in range(1, len(given)):
        pair(*given[:count])
    if given[0] not in ("DEL", "UNLINK", "EXISTS", "TOUCH"):
        pair(*given, "x")
        pair(given[0].lower(), *given[1:], "x", "y")


# --- expiry -----------------------------------------------------------------------------------------------------

TIMES = ["100", "0", "-1", "x", "", "1.5", "+1", "9223372036854775807", "9223372036854775", "9223372036854776",
         "9223370000000000", "-9223372036854775", "-9223372036854776", "-9223372036854775808",
         "9223372036854775808"]  # fmt: skip


@pytest.mark.parametrize("command", ["EXPIRE", "PEXPIRE", "EXPIREAT", "PEXPIREAT"])
def test_times(pair: Pair, command: str) -> None:
    for time in TIMES:
        for key in ("k", "no"):
            pair("SET", "k", "v")
            pair(command, key, time)
            pair("EXISTS", "k")
            if "AT" in command:
                pair("PEXPIRETIME", "k")
                pair("EXPIRETIME", "k")
        pair.same_state()
        pair.restart()
        pair.same_state()


@pytest.mark.parametrize("current", [None, 1000, 5000])
def test_conditions(pair: Pair, current: int | None) -> None:
    options = ["NX", "xx", "GT", "lt", "junk", "\xff", ""]
    chosen: list[tuple[str, ...]] = [(), *((one,) for one in options), *product(options, repeat=2), ("XX", "GT", "XX")]
    for given in chosen:
        for time in (2000, 999, -1, "x"):
            pair.flush()
            pair("SET", "k", "v")
            if current is not None:
                pair("EXPIRE", "k", current)
            pair("EXPIRE", "k", time, *given)
            pair.same_state()
    pair("SET", "k", "v", "PXAT", 4_000_000_000_000)
    for option, time in product(("GT", "LT"), (3_999_999_999_999, 4_000_000_000_000, 4_000_000_000_001)):
        pair("PEXPIREAT", "k", time, option)
        pair("PEXPIRETIME", "k")


def test_rounding(pair2: Pair) -> None:
    for ms in (4_000_000_000_499, 4_000_000_000_500, 4_000_000_000_999):
        pair2("SET", "k", "v", "PXAT", ms)
        pair2("EXPIRETIME", "k")
        pair2("PEXPIRETIME", "k")
    now_ms = pair2.tidelog.clock.wall_us() // 1000
    for ms, seconds in ((1, 0), (499, 0), (500, 1), (1499, 1), (1500, 2), (10_000, 10)):
        pair2.tidelog.call([b"SET", b"k", b"v", b"PXAT", b"%d" % (now_ms + ms)])
        assert decode(pair2.tidelog.call([b"TTL", b"k"])) == seconds
        assert decode(pair2.tidelog.call([b"PTTL", b"k"])) == ms


def test_a_key_expires_at_its_moment(pair2: Pair) -> None:
    call, clock = pair2.tidelog.call, pair2.tidelog.clock
    call([b"SET", b"k", b"v", b"PX", b"100"])
    clock.advance(99_000)
    assert decode(call([b"PTTL", b"k"])) == 1
    clock.advance(1000)
    assert decode(call([b"PTTL", b"k"])) == -2


def test_persist(pair: Pair) -> None:
    pair("SET", "k", "v", "EX", 100)
    pair("PERSIST", "k")
    pair("PERSIST", "k")
    pair.same_state()
    pair.restart()
    pair.same_state()


# --- names and copies -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shard_count", [1, 3])
@pytest.mark.parametrize(("kind", "other"), list(product(MAKERS, [*MAKERS, "none"])))
def test_over_another_key(redis_peer: Socket, kind: str, other: str, shard_count: int) -> None:
    pair = Pair(redis_peer, InProcess(shard_count), 3)
    for command in (
        "RENAME k l",
        "RENAMENX k l",
        "COPY k l",
        "COPY k l REPLACE",
        "COPY k l DB 1",
        "copy k l replace db 0",
    ):
        for expires, other_expires in product((False, True), repeat=2):
            pair.flush()
            if other != "none":
                pair(*(word if word != "k" else "l" for word in MAKERS[other]))
                if other_expires:
                    pair("EXPIRE", "l", 100)
            pair(*MAKERS[kind])
            if expires:
                pair("EXPIRE", "k", 1000)
            pair(*words(command))
            pair.same_state()
            pair.restart()
            pair.same_state()


def test_large_values_are_copied_and_renamed(pair2: Pair) -> None:
    pair2("HSET", "h", *(word for n in range(1500) for word in (f"f{n}", n)))
    pair2("SADD", "s", *range(1500))
    pair2("ZADD", "z", *(word for n in range(1500) for word in (n / 4, f"m{n}")))
    pair2("SET", "b", "x" * 700_000)
    for key in "hszb":
        pair2("EXPIRE", key, 1000)
        pair2("COPY", key, key + "copy")
        pair2("RENAME", key, key + "renamed")
    pair2("HSET", "hcopy", "f1", "changed")
    pair2("SREM", "scopy", 1)
    pair2.same_state()
    pair2.restart()
    pair2.same_state()


def test_copy_between_databases(pair2: Pair) -> None:
    for options in (["DB", 1], ["DB", 15], ["DB", 16], ["DB", -1], ["DB", "x"], ["DB", 2**31], ["DB", 2**63], ["DB"],
                    ["DB", 1, "REPLACE"], ["REPLACE", "REPLACE"], ["junk"], ["DB", 0], ["DB", 1, "DB", 2],
                    []):  # fmt: skip
        pair2.flush()
        for keys in (("k", "l"), ("k", "k"), ("no", "l"), ("no", "no")):
            pair2("SET", "k", "v", "EX", 100)
            pair2("COPY", *keys, *options)
            pair2.same_state()


def test_move(pair2: Pair) -> None:
    for number in (1, 0, 16, -1, "x", 2**31, 2**63, "", 15):
        for key in ("k", "no"):
            pair2("SET", "k", "v")
            pair2("MOVE", key, number)
            pair2.same_state()
    for maker in MAKERS.values():
        pair2.flush()
        pair2(*maker)
        pair2("EXPIRE", "k", 100)
        pair2("MOVE", "k", 2)
        pair2("MOVE", "k", 2)
        pair2(*maker)
        pair2("MOVE", "k", 2)
        pair2.same_state()
        pair2.restart()
        pair2.same_state()
        database = pair2.tidelog.store.database(2)
        assert list(database.all_keys()) == [b"k"]
        assert b"k" in database.expiries


# --- what OBJECT says -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    ["1", "-1", "01", "", "12345678901234567890", "9223372036854775807", "9223372036854775808", "1.5", "x" * 44,
    "x" * 45, "9999", "10000", "0", "+1", " 1"],
)  # fmt: skip
def test_object_of_strings(pair: Pair, value: str) -> None:
    pair("SET", "k", value)
    pair("OBJECT", "ENCODING", "k")
    pair("OBJECT", "REFCOUNT", "k")
    pair("OBJECT", "IDLETIME", "k", order=lambda item: item.mark)  # Redis forgets when it used a small integer
    pair("OBJECT", "FREQ", "k")


@pytest.mark.parametrize(
    "make",
    [["SADD", "k", *range(512)], ["SADD", "k", *range(513)], ["SADD", "k", "x"], ["SADD", "k", 2**63],
     ["SADD", "k", -(2**63)], ["HSET", "k", *range(1024)], ["HSET", "k", *range(1026)], ["HSET", "k", "f", "x" * 64],
     ["HSET", "k", "f", "x" * 65], ["HSET", "k", "f" * 65, "x"], ["ZADD", "k", *range(256)], ["ZADD", "k", *range(258)],
     ["ZADD", "k", "1", "x" * 64], ["ZADD", "k", "1", "x" * 65]],
    ids=lambda make: f"{make[0]}-{len(make)}-{len(str(make[-1]))}",
)  # fmt: skip
def test_encoding_of_collections(pair: Pair, make: list[Any]) -> None:
    pair(*make)
    pair("OBJECT", "encoding", "k", order=encoding_of_set if make[0] == "SADD" else EXACT)
    pair("object", "refcount", "k")


def test_object_refusals(pair: Pair) -> None:
    pair("OBJECT", "NONE")
    pair("OBJECT", "NONE", "k")
    pair("OBJECT", "x" * 200, "k")


# --- finding keys -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shard_count", [1, 3])
def test_keys_and_scan(redis_peer: Socket, shard_count: int) -> None:
    pair = Pair(redis_peer, InProcess(shard_count), 3)
    names = ["foo", "foobar", "bar", "h[llo", "hello", "hallo", "hxllo", "", "{a}b", "a\\b", "*", "a*", "\x00", "FOO"]
    for name in names:
        pair("SET", name, 1)
    pair("SADD", "a set", 1)
    pair("HSET", "a hash", "f", 1)
    pair("ZADD", "a zset", 1, "m")
    pair("SET", "expired", 1, "PX", 10)
    pair.wait(30)
    for pattern in ("*", "foo*", "h?llo", "h[ae]llo", "h[^a]llo", "h[a-e]llo", "h\\[llo", "", "[", "\\*", "a\\*",
                    "{a}*", "?", "no", "**", "*o", "\x00", "a\\\\b", "foo"):  # fmt: skip
        pair("KEYS", pattern, order=UNORDERED)
        pair("SCAN", 0, "MATCH", pattern, "COUNT", 1000, order=SCAN)
    for kind in ("string", "STRING", "set", "zset", "hash", "list", "stream", "junk", ""):
        pair("SCAN", 0, "TYPE", kind, "COUNT", 1000, order=SCAN)
        pair("scan", 0, "match", "*a*", "type", kind, "count", 1000, order=SCAN)


@pytest.mark.parametrize(
    "given",
    ["x", "-1", "", " 0", "0 ", "1.5", "18446744073709551615", "18446744073709551616", "0 COUNT", "0 COUNT 0",
     "0 COUNT -1", "0 COUNT x", "0 MATCH", "0 TYPE", "0 junk", "0 junk x", "0 COUNT 10 COUNT 20", "0 MATCH a MATCH *",
     "0 TYPE string TYPE hash", "0 COUNT 9223372036854775807", "0 COUNT 9223372036854775808", "0 NOVALUES", "007"],
)  # fmt: skip
def test_scan_options(pair: Pair, given: str) -> None:
    pair("SCAN", *given.split(" "), order=SCAN)
    pair("SCAN", given, order=SCAN)


@pytest.mark.parametrize("count", [1, 7, 100, 10_000])
@pytest.mark.parametrize("tagged", [False, True])
def test_a_scan_misses_nothing_that_stays(pair2: Pair, count: int, tagged: bool) -> None:
    """While keys come and go; with a tag all are in one slot, whose buckets split meanwhile."""
    call = pair2.tidelog.call
    prefix = b"{tag}" if tagged else b""
    stays = {prefix + b"stays%d" % number for number in range(900)}
    goes = {prefix + b"goes%d" % number for number in range(900)}
    call([b"MSET", *(word for key in stays | goes for word in (key, b"1"))])
    cursor, found, step = b"0", list[bytes](), 0
    while True:
        cursor, taken = decode(call([b"SCAN", cursor, b"COUNT", b"%d" % count]))
        found += taken
        step += 1
        if cursor == b"0":
            break
        call([b"MSET", *(word for n in range(3) for word in (prefix + b"new%d-%d" % (step, n), b"1"))])
        call([b"DEL", goes.pop() if goes else b"none"])
    assert stays <= set(found)
    assert set(found) >= goes


def test_random_key(pair2: Pair) -> None:
    pair2("RANDOMKEY")
    pair2("SET", "only", 1)
    pair2("SET", "expired", 1, "PX", 10)
    pair2.wait(30)
    pair2("RANDOMKEY")
    call = pair2.tidelog.call
    keys = {b"{tag}%d" % number for number in range(1200)}
    call([b"MSET", *(word for key in keys for word in (key, b"1"))])
    drawn = {decode(call([b"RANDOMKEY"])) for _ in range(300)}
    assert drawn <= keys | {b"only"}
    assert len(drawn) > 50
    for key in drawn:
        call([b"PEXPIRE", key, b"10"])
    pair2.tidelog.wait(20)
    assert decode(call([b"RANDOMKEY"])) not in drawn


def test_only_changes_are_journaled(pair2: Pair) -> None:
    pair2("SET", "k", "v")
    for command in ("DEL no", "EXPIRE no 100", "EXPIRE k 100 XX", "EXPIRE k x", "PERSIST k", "RENAME k k",
                    "RENAMENX k k",
                    "RENAME no k", "COPY no k", "COPY k k", "MOVE no 1", "MOVE k 0", "EXISTS k", "TTL k",
                    "OBJECT FREQ k"):  # fmt: skip
        assert pair2.records(*words(command)) == 0, command
    assert pair2.records("EXPIRE", "k", 100) == 1
    assert pair2.records("RENAME", "k", "l") == 2
    assert pair2.records("COPY", "l", "k") == 1
    assert pair2.records("COPY", "l", "k", "REPLACE") == 2
    assert pair2.records("EXPIRE", "k", -1) == 1
    assert pair2.records("DEL", "l", "l") == 1


def test_what_has_expired_is_journaled_as_deleted(pair2: Pair) -> None:
    pair2("PSETEX", "k", 10, "v")
    pair2.wait(30)
    assert pair2.records("GET", "k") == 1
    assert pair2.records("GET", "k") == 0
    pair2.restart()
    assert list(pair2.tidelog.store.database(0).all_keys()) == []
