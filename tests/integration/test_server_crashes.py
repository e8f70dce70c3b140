"""A server is killed with SIGKILL, again and again, and keeps every promise that it made (`killing`, `ledger`).

`--kills N` says how often (10 unless told), shared out to the policies and numbers of shards. The seed is in the name
of the test, or given with `--seed`; a failure says what was broken and how far it had come.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.integration import careless_server
from tests.integration.killing import LOAD_ANSWERS_MIN, Killing
from tests.integration.ledger import HITS, MIXED, Ledger, Violation, apply
from tests.integration.library_ledger import ServerError, library_code
from tests.integration.queue_ledger import FINISH, JOBS, OWNERS, TAKE, QueueLedger, check_queue, settle_queue
from tidelog.scripting.functions import dump

KINDS: Final = [("always", 1), ("always", 3), ("everysec", 1), ("everysec", 3)]
CALLS_FROM_ANSWERS: Final = 3000
"""So many answers have calls of functions among them."""
CARELESS_KILLS: Final = 12
"""A bug that survives so many was not caught."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        given = metafunc.config.getoption("--seed")
        seeds = range(1, 1 + len(KINDS)) if given is None else [given] * len(KINDS)
        cases = [(policy, shards, seed) for (policy, shards), seed in zip(KINDS, seeds, strict=True)]
        ids = [f"{policy}-{shards}-{seed}" for policy, shards, seed in cases]
        metafunc.parametrize(("policy", "shards", "seed"), cases, ids=ids)


@pytest.mark.timeout(3600)
def test_a_killed_server_keeps_its_promises(
    policy: str, shards: int, seed: int, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    kills = -(-pytestconfig.getoption("--kills") // len(KINDS))
    killing = Killing(tmp_path / "data", seed, "--fsync", policy, "--shards", str(shards))
    try:
        killing.run(kills)
    except Violation as problem:
        pytest.fail(f"seed {seed}, after {killing.numbers['kills']} kills: {problem}")
    finally:
        print(f"seed {seed}: {dict(killing.numbers)}")
    assert killing.numbers["kills"] == kills
    under_load = kills - killing.numbers["kills_while_starting"]
    assert killing.numbers["answered"] >= LOAD_ANSWERS_MIN * under_load, "the load was no load"
    assert killing.numbers["calls"] or killing.numbers["answered"] < CALLS_FROM_ANSWERS, "no function was ever called"


@pytest.mark.parametrize("bug", careless_server.BUGS)
def test_a_careless_server_is_caught(bug: str, tmp_path: Path) -> None:
    command = [sys.executable, str(careless_server.__file__), bug, "serve"]
    killing = Killing(tmp_path / "data", 7, "--shards", "3", command=command)
    with pytest.raises(Violation):
        killing.run(CARELESS_KILLS)


# --- the ledger itself ------------------------------------------------------------------------------------------


def answered(*units: Any) -> Ledger:
    ledger = Ledger(b"w:")
    for unit, reply in units:
        ledger.send(unit)
        ledger.answer(reply)
    return ledger


def test_every_unit_that_was_sent_may_be_the_last() -> None:
    for last in range(4):
        ledger = answered((((b"SET", b"w:s", b"0"),), b"OK"))
        for number in range(1, 4):
            ledger.send(((b"SET", b"w:s", b"%d" % number), (b"SADD", b"w:u", b"%d" % number)))
        members = frozenset(b"%d" % number for number in range(1, last + 1))
        found = {b"w:s": (b"%d" % last, False), **({b"w:u": (members, False)} if last else {})}
        ledger.settle(found)
        assert ledger.state == found
        assert not ledger.sent


@pytest.mark.parametrize(
    "found",
    [
        pytest.param({}, id="nothing"),
        pytest.param({b"w:s": (b"old", False)}, id="an answered write is lost"),
        pytest.param({b"w:s": (b"1", True)}, id="it expires and should not"),
        pytest.param({b"w:s": (b"1", False), b"w:n": (b"1", False), b"w:x": (b"", False)}, id="nobody wrote it"),
        pytest.param({b"w:s": (b"1", False), b"w:t": (b"2", False)}, id="half a transaction"),
    ],
)
def test_a_ledger_notices(found: Any) -> None:
    ledger = answered((((b"SET", b"w:s", b"old"),), b"OK"), (((b"SET", b"w:s", b"1"),), b"OK"))
    ledger.send(((b"INCR", b"w:n"), (b"SET", b"w:t", b"2")))
    with pytest.raises(Violation):
        ledger.settle(found)


@pytest.mark.parametrize(
    "codes",
    [
        pytest.param({}, id="it is lost"),
        pytest.param({b"w:library:0": 1}, id="an older one is back"),
        pytest.param({b"w:library:0": 2, b"w:library:1": 3}, id="a deleted one is back"),
    ],
)
def test_a_ledger_notices_of_libraries(codes: dict[bytes, int]) -> None:
    ledger = answered(
        (((b"FUNCTION", b"LOAD", library_code(b"w_0", 1)),), b"w_0"),
        (((b"FUNCTION", b"LOAD", b"REPLACE", library_code(b"w_0", 2)),), b"w_0"),
        (((b"FUNCTION", b"LOAD", library_code(b"w_1", 3)), (b"FUNCTION", b"DELETE", b"w_1")), [b"w_1", b"OK"]),
    )
    found = {key: (library_code(b"w_" + key[-1:], number), False) for key, number in codes.items()}
    with pytest.raises(Violation):
        ledger.settle(found)


def test_a_wrong_answer_is_noticed() -> None:
    ledger = answered((((b"INCR", b"w:n"),), 1), (((b"INCR", HITS),), 77))
    ledger.send(((b"INCR", b"w:n"),))
    with pytest.raises(Violation, match="instead of"):
        ledger.answer(3)


def test_the_model_of_each_command() -> None:
    state: Any = {}
    commands = [
        ((b"HSET", b"h", b"f", b"1"), 1),
        ((b"HSET", b"h", b"f", b"2"), 0),
        ((b"HDEL", b"h", b"g"), 0),
        ((b"HDEL", b"h", b"f"), 1),
        ((b"SADD", b"u", b"a", b"b", b"a"), 2),
        ((b"SREM", b"u", b"a", b"x"), 1),
        ((b"ZADD", b"z", b"1", b"m"), 1),
        ((b"ZADD", b"z", b"2", b"m"), 0),
        ((b"APPEND", b"s", b"ab"), 2),
        ((b"PEXPIRE", b"s", b"1"), 1),
        ((b"APPEND", b"s", b"c"), 3),
        ((b"DEL", b"none"), 0),
        ((b"RPUSH", b"l", b"a", b"b"), 2),
        ((b"LPUSH", b"l", b"c", b"d"), 4),
        ((b"LINSERT", b"l", b"BEFORE", b"a", b"e"), 5),
        ((b"LINSERT", b"l", b"BEFORE", b"x", b"e"), -1),
        ((b"LINSERT", b"none", b"BEFORE", b"x", b"e"), 0),
        ((b"LPOP", b"l"), b"d"),
        ((b"RPOP", b"l", b"2"), [b"b", b"a"]),
        ((b"RPOP", b"none", b"2"), None),
        ((b"LMOVE", b"l", b"l", b"LEFT", b"RIGHT"), b"c"),
        ((b"LMOVE", b"l", b"k", b"LEFT", b"RIGHT"), b"e"),
        ((b"LREM", b"k", b"0", b"e"), 1),
        ((b"LTRIM", b"none", b"1", b"-2"), b"OK"),
        ((b"EVAL", MIXED, b"4", b"n", b"l", b"h", b"v", b"m"), [1]),
        ((b"FCALL", b"w_0", b"2", b"n", b"l"), ServerError("ERR Function not found")),
        ((b"FUNCTION", b"LOAD", library_code(b"w_0", 5)), b"w_0"),
        ((b"FUNCTION", b"LOAD", library_code(b"w_0", 6)), ServerError("ERR Library 'w_0' already exists")),
        ((b"FCALL", b"w_0", b"2", b"n", b"l"), [2, b"5"]),
        ((b"FUNCTION", b"RESTORE", dump([library_code(b"w_1", 7)]), b"REPLACE"), b"OK"),
        ((b"FUNCTION", b"LOAD", b"REPLACE", library_code(b"w_1", 8)), b"w_1"),
        ((b"FUNCTION", b"DELETE", b"w_0"), b"OK"),
        ((b"FUNCTION", b"DELETE", b"w_0"), ServerError("ERR Library not found")),
    ]
    assert [apply(state, command) for command, _ in commands] == [reply for _, reply in commands]
    assert state == {
        b"u": (frozenset([b"b"]), False),
        b"z": ({b"m": 2.0}, False),
        b"s": (b"abc", True),
        b"l": ([b"c", b"m", b"1", b"5"], False),
        b"n": (b"2", False),
        b"h": ({b"m": b"1"}, False),
        b"v": (frozenset([b"1"]), False),
        b"w:library:1": (library_code(b"w_1", 8), False),
    }


def queue_of_two() -> list[QueueLedger]:
    """Of four jobs one was popped, one is taken, one is finished and one waits; a push is under way."""
    one, other = QueueLedger(0), QueueLedger(1)
    for job in (b"0:1", b"0:2", b"1:1", b"1:2"):
        ledger = one if job.startswith(b"0") else other
        ledger.send((b"LPUSH", JOBS, job))
        assert not ledger.answer((b"LPUSH", JOBS, job), 1)
    one.send((b"RPOP", JOBS))
    one.answer((b"RPOP", JOBS), b"0:1")
    other.answer((b"EVAL", TAKE), b"0:2")
    one.answer((b"EVAL", TAKE), b"1:1")
    finish = (b"EVAL", FINISH, b"2", one.taken_key, OWNERS, one.taken.pop())
    one.send(finish)
    assert not one.answer(finish, 1)
    one.send((b"LPUSH", JOBS, b"0:3"))
    return [one, other]


SOUND: Final[dict[bytes, Any]] = {JOBS: [b"1:2"], b"jobs:taken:1": [b"0:2"], OWNERS: {b"0:2": b"1"}}


@pytest.mark.parametrize("jobs", [[b"1:2"], [b"0:3", b"1:2"]])
def test_a_queue_that_lost_nothing(jobs: list[bytes]) -> None:
    ledgers = queue_of_two()
    found = {**SOUND, JOBS: jobs}
    assert check_queue(found, ledgers) == []
    settle_queue(found, ledgers)
    assert check_queue(found, ledgers) == []
    assert check_queue(SOUND | {JOBS: []}, ledgers), "it counts from what was there"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({JOBS: []}, "what was pushed is lost"),
        ({JOBS: [b"1:2", b"0:1"]}, "what was popped or finished is back"),
        ({JOBS: [b"1:2", b"1:1"]}, "what was popped or finished is back"),
        ({JOBS: [b"1:2", b"0:2"]}, "a job is there twice"),
        ({JOBS: [b"1:2", b"7:7"]}, "nobody has pushed"),
        ({JOBS: [b"0:2", b"0:3", b"1:2"], b"jobs:taken:1": [], OWNERS: {}}, "jobs have changed places"),
        ({JOBS: [b"1:2", b"0:2"], b"jobs:taken:1": [], OWNERS: {}}, "what was taken is lost"),
        ({OWNERS: {}}, "half a script is there"),
        ({OWNERS: {b"0:2": b"0"}}, "half a script is there"),
    ],
)
def test_what_is_noticed_of_a_queue(change: dict[bytes, Any], problem: str) -> None:
    problems = check_queue({**SOUND, **change}, queue_of_two())
    assert any(each.startswith(problem) for each in problems), problems


def test_a_pop_without_an_answer_may_have_happened() -> None:
    ledgers = queue_of_two()
    ledgers[1].send((b"RPOP", JOBS))
    assert check_queue({**SOUND, JOBS: []}, ledgers) == []
