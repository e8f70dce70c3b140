"""Random scripts that mix types: the same replies and the same state as Redis, in both protocols, by EVAL and EVALSHA,
alone, in pipelines and in transactions."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from tests.conformance.redis_oracle import EXACT, Item, Order
from tests.conformance.script_steps import KEYS, ScriptSteps
from tests.conformance.socket_pair import Both, Connection

READS = (
    ["GET"],
    ["HGETALL"],
    ["SMEMBERS"],
    ["ZRANGE", "0", "-1", "WITHSCORES"],
    ["LRANGE", "0", "-1"],
    ["XRANGE", "-", "+"],
)
UNORDERED_READS = frozenset({"HGETALL", "SMEMBERS"})


def LOOSE(item: Item) -> Any:
    """All of it; the order of maps and sets is left open, however deep they are."""
    if not isinstance(item.value, tuple):
        return item
    inner = [LOOSE(each) for each in item.value]
    if item.mark == "%":
        return item.mark, sorted(zip(inner[::2], inner[1::2], strict=True), key=repr)
    return item.mark, sorted(inner, key=repr) if item.mark == "~" else inner


def MEMBERS(item: Item) -> Any:
    """The items of a reply, in any order."""
    return sorted(item.value, key=repr) if isinstance(item.value, tuple) else item


def order_of(name: str) -> Order:
    return MEMBERS if name in UNORDERED_READS else LOOSE if name in ("EXEC", "EVAL", "EVALSHA", "EVAL_RO") else EXACT


def called(steps: ScriptSteps) -> list[list[str]]:
    """A script, called in one of the ways that there are."""
    random, script = steps.random, steps.script()
    kind = random.random()
    if kind < 0.6:
        return [script.eval()]
    sha = hashlib.sha1(script.body.encode()).hexdigest()
    by_sha = ["EVALSHA", sha if random.random() < 0.9 else sha.upper(), *script.eval()[2:]]
    if kind < 0.75:
        return [by_sha, ["SCRIPT", "LOAD", script.body], by_sha, ["SCRIPT", "EXISTS", sha, "0" * 40]]
    if kind < 0.85:
        return [script.eval("EVAL_RO")]
    if kind < 0.90:
        return [["EVAL", script.body, random.choice(("-1", "99", "x", "0")), *script.keys]]
    if kind < 0.92:
        return [["EVAL", script.body.replace("return", random.choice(("retrun", "return =", "return (")), 1), "0"]]
    first = [steps.command()[0]] if random.random() < 0.05 else ["PING"]
    return [["MULTI"], first, script.eval(), script.eval(), ["EXEC"]]


def play(both: Both, seed: int, count: int) -> None:
    """One game of so many scripts; its seed is in the name of the test."""
    protocol = 2 + seed % 2
    steps, link = ScriptSteps(seed, protocol), both.connect(protocol)
    compare(link)
    for number in range(count):
        link.pipeline(called(steps), order_of)
        if number % 20 == 19:
            compare(link)
    compare(link)


def compare(link: Connection) -> None:
    """Everything, read as each type: all but one of the reads is refused, by both. Scripts are known no longer: Tidelog
    forgets old ones by itself, which Redis 7.0 never does."""
    link("SCRIPT", "FLUSH")
    reads = [[read[0], key, *read[1:]] for key in KEYS for read in READS]
    link.pipeline([*reads, *(["TYPE", key] for key in KEYS)], order_of)


@pytest.mark.parametrize("seed", range(4))
def test_games(both: Both, seed: int) -> None:
    play(both, seed, 150)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 1030))
def test_many_games(both: Both, seed: int) -> None:
    play(both, seed, 1000)
