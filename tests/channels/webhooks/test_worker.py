"""How long a worker waits before it tries again."""

from __future__ import annotations

from random import Random

import pytest

from tidelog.channels.webhooks.webhook_rule import RetryRule
from tidelog.channels.webhooks.worker import pause_ms

RETRY = RetryRule(None, 1000, 2.0, 60_000, 0)


@pytest.mark.parametrize(
    ("failures", "retry_after_ms", "pause"),
    [(1, None, 1000), (2, None, 2000), (4, None, 8000), (7, None, 60_000), (10**6, None, 60_000),
     (1, 5000, 5000), (4, 5000, 8000), (1, 10**9, 60_000)],
)  # fmt: skip
def test_pauses_grow_up_to_a_bound(failures: int, retry_after_ms: int | None, pause: float) -> None:
    assert pause_ms(RETRY, failures, retry_after_ms, Random(1)) == pause


def test_chance_is_added() -> None:
    chance = Random(1)
    pauses = [pause_ms(RetryRule(None, 1000, 2.0, 60_000, 500), 1, None, chance) for _ in range(200)]
    assert min(pauses) >= 1000
    assert max(pauses) <= 1500
    assert max(pauses) - min(pauses) > 400
