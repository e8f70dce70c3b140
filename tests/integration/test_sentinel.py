"""Real Sentinels over a leader and two followers, under load: confirmed writes survive, and no loss is silent.

`--failovers N` says how many rounds of harm there are. A round takes about six seconds. The last tests hold that the
ledger notices what it is for.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.failover_ledger import Fate, FeedReader, judge
from tests.integration.failovers import Failovers
from tidelog.client import Checkpoint, Value

SEED_DEFAULT = 5


@pytest.mark.timeout(4 * 60 * 60)
def test_no_confirmed_write_is_lost(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    rounds, seed = pytestconfig.getoption("--failovers"), pytestconfig.getoption("--seed") or SEED_DEFAULT
    with Failovers(tmp_path, seed) as failovers:
        failovers.run(rounds)
    print(*failovers.options, dict(failovers.numbers))
    assert failovers.numbers["rounds"] == rounds
    assert failovers.numbers["confirmed"] > 0


@pytest.mark.parametrize(
    ("fate", "is_found", "is_set_aside", "is_fine"),
    [
        (Fate.CONFIRMED, True, False, True),
        (Fate.CONFIRMED, False, True, False),
        (Fate.ANSWERED, False, True, True),
        (Fate.ANSWERED, False, False, False),
        (Fate.UNANSWERED, True, False, True),
        (Fate.UNANSWERED, False, False, True),
        (Fate.REFUSED, False, False, True),
        (Fate.REFUSED, True, False, False),
    ],
)
def test_the_ledger_notices_what_is_lost(fate: Fate, *, is_found: bool, is_set_aside: bool, is_fine: bool) -> None:
    key = b"w:sure:1"
    found, aside = ({key} if each else set() for each in (is_found, is_set_aside))
    if is_fine:
        judge({key: fate}, found, lambda: aside)
    else:
        with pytest.raises(AssertionError):
            judge({key: fate}, found, lambda: aside)


@pytest.mark.parametrize(("ts", "number"), [(4, 2), (5, 1), (4, 1), (3, 9)])
def test_the_ledger_notices_a_feed_that_goes_back(ts: int, number: int) -> None:
    def written(ts: int, number: int) -> Value:
        key = b"w:sure:%d" % number
        return Value(ts, key, "string", None, key)

    reader = FeedReader("redis://127.0.0.1", from_followers=False)
    reader.take(written(2, 0))
    reader.take(written(3, 1))
    reader.take(Checkpoint(4, b"", b"", epoch=1, seen=3))
    with pytest.raises(AssertionError):
        reader.take(written(ts, number))
