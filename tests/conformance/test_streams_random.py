"""Random commands on streams: the same replies and the same state as Redis, also after a restart."""

from __future__ import annotations

import pytest

from tests.conformance.redis_oracle import InProcess, Pair, Socket
from tests.conformance.stream_steps import Steps, compare, run


def play(redis_peer: Socket, seed: int, count: int) -> None:
    """One game; its seed is in the message of what fails in it."""
    steps = Steps(seed)
    pair = Pair(redis_peer, InProcess(1 + seed % 3), 2 + seed % 2)
    done = 0
    while done < count:
        part = steps.random.randrange(20, 200)
        run(pair, steps, part)
        compare(pair)
        pair.restart()
        compare(pair)
        done += part


@pytest.mark.parametrize("seed", range(8))
def test_games(redis_peer: Socket, seed: int) -> None:
    play(redis_peer, seed, 500)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 1060))
def test_many_games(redis_peer: Socket, seed: int) -> None:
    play(redis_peer, seed, 2000)
