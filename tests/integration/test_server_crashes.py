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
from tests.integration.ledger import HITS, Ledger, Violation, apply

KINDS: Final = [("always", 1), ("always", 3), ("everysec", 1), ("everysec", 3)]
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
    ]
    assert [apply(state, command) for command, _ in commands] == [reply for _, reply in commands]
    assert state == {b"u": (frozenset([b"b"]), False), b"z": ({b"m": 2.0}, False), b"s": (b"abc", True)}
