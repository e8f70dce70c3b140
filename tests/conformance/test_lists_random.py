"""Random commands on lists: the same replies and the same state as Redis, also after a restart, in transactions, and in
pipelines, which take the server's hot path."""

from __future__ import annotations

import pytest

from tests.conformance.list_steps import KEYS, ListSteps, Words
from tests.conformance.redis_oracle import EXACT, SCAN, InProcess, Order, Pair, Socket
from tests.conformance.socket_pair import Both, Connection

EXPIRY_MS_APART_MAX = 100_000
"""A game takes a while, in which only the clock of Redis moves."""


def order_of(name: str) -> Order:
    return SCAN if name == "SCAN" else EXACT


def play(redis_peer: Socket, seed: int, count: int) -> None:
    """One game, command by command; its seed is in the name of the test."""
    steps = ListSteps(seed)
    pair = Pair(redis_peer, InProcess(1 + seed % 3), 2 + seed % 2)
    done = 0
    while done < count:
        part = steps.random.randrange(20, 200)
        for _ in range(part):
            words = steps.command()
            pair(*words, order=order_of(words[0]))
        pair.same_state(EXPIRY_MS_APART_MAX)
        pair.restart()
        pair.same_state(EXPIRY_MS_APART_MAX)
        done += part


@pytest.mark.parametrize("seed", range(6))
def test_games(redis_peer: Socket, seed: int) -> None:
    play(redis_peer, seed, 500)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 1030))
def test_many_games(redis_peer: Socket, seed: int) -> None:
    play(redis_peer, seed, 2000)


# --- on a server --------------------------------------------------------------------------------------------------


def drawn(steps: ListSteps) -> list[Words]:
    """Commands that are sent at once: some alike, a transaction, or whatever."""
    random = steps.random
    kind = random.random()
    if kind < 0.35:
        draw = random.choice((steps.push, steps.pop, steps.read))
        return [draw() for _ in range(random.randint(1, 9))]
    if kind < 0.65:
        inner = [steps.waiting() if random.random() < 0.3 else steps.command() for _ in range(random.randint(1, 8))]
        inner = [words for words in inner if words[0] != "SCAN"]  # which has its own order
        return [["MULTI"], *inner, random.choice((["EXEC"], ["EXEC"], ["EXEC"], ["DISCARD"]))]
    return [steps.command() for _ in range(random.randint(1, 20))]


def play_on_server(both: Both, seed: int, count: int) -> None:
    steps = ListSteps(seed)
    link = both.connect(2 + seed % 2)
    done = 0
    while done < count:
        commands = drawn(steps)
        link.pipeline(commands, order_of)
        done += len(commands)
        if steps.random.random() < 0.05:
            compare(link)
    compare(link)


def compare(link: Connection) -> None:
    """All lists, whole, and the types of all keys."""
    keys = sorted(set(KEYS))
    link.pipeline([words for key in keys for words in (["TYPE", key], ["LRANGE", key, "0", "-1"])])


@pytest.mark.parametrize("seed", range(6))
def test_games_in_pipelines(both: Both, seed: int) -> None:
    play_on_server(both, seed, 1000)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2000, 2025))
def test_many_games_in_pipelines(both: Both, seed: int) -> None:
    play_on_server(both, seed, 4000)
