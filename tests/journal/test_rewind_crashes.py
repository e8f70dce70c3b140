"""Going back, cut short: a crash at any operation of a rewind leads to the same end, and nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final

import pytest

from tests.journal.machine import FOLDER
from tests.journal.past import (
    Past,
    check_aside,
    check_rewound,
    random_past,
    written,
)
from tests.journal.test_repair import files
from tidelog.errors import DataDirectoryError, NoWayBack
from tidelog.ids import Ts
from tidelog.journal.layout import REWINDING
from tidelog.journal.repair import repair
from tidelog.journal.rewind import Rewound, rewind
from tidelog.testing.disk import SimulatedCrash, SimulatedDisk

LONG: Final = pytest.mark.long


# --- crashes ----------------------------------------------------------------------------------------------------------


def crashes(
    disk: SimulatedDisk, since: Ts, epoch: int, *, every: int = 1
) -> Iterator[tuple[int, SimulatedDisk, Rewound]]:
    """The disk after a crash at each operation of a rewind, and what the rewind would have answered."""
    whole = disk.clone()
    answer = rewind(whole, FOLDER, since, epoch)
    last = whole.operations - disk.operations
    for crash_at in sorted({*range(1, last + 1, every), *range(last - 3, last + 1)}):
        for is_power_cut in (False, True):
            torn = disk.clone(crash_at)
            torn.crash_after(crash_at)
            with pytest.raises(SimulatedCrash):
                rewind(torn, FOLDER, since, epoch)
            torn.crash() if is_power_cut else torn.kill()
            yield crash_at, torn, answer


def crashing(shards: int, *, is_torn: bool) -> tuple[Past, Ts]:
    """Blobs, several segments, two snapshots, one of which goes, epochs, and perhaps a torn tail."""
    past = written(shards=shards, count=12, snapshots=(3,), frames_per_segment=1)
    past.restart(is_clean=True)
    for number in range(3):
        past.append((number % shards, b"together", b"%d" % number))
    past.write()
    since = past.transactions()[7].ts
    past.restart(is_clean=False)
    past.snapshot()
    past.commit(*[(shard, b"last", bytes(500)) for shard in range(shards)])
    if is_torn:
        steps, cycles = len(past.steps), len(past.cycles)
        past.append((0, b"torn", bytes(300)))
        past.write(syncs=False)
        past.machine.disk.crash("lose_all")
        del past.steps[steps:], past.cycles[cycles:]
    else:
        past.machine.journal.close()
    return past, since


@pytest.mark.parametrize(
    ("shards", "is_torn", "every"),
    [
        (1, False, 1),
        (2, True, 4),
        (3, False, 5),
        *[pytest.param(shards, is_torn, 1, marks=LONG) for shards in (1, 2, 3) for is_torn in (False, True)],
    ],
)
def test_a_crash_anywhere_leads_to_the_same_end(shards: int, is_torn: bool, every: int) -> None:
    past, since = crashing(shards, is_torn=is_torn)
    expected = past.expect(since, 1)
    assert 0 < expected.steps < len(past.steps)
    was_before = was_after = 0
    for crash_at, disk, answer in crashes(past.machine.disk, since, 1, every=every):
        # A start comes first: it finds everything as before, or finishes.
        started = past.on(disk.clone(crash_at))
        journal = started.open(leads=False)
        is_cut = started.state == past.state(expected.steps)
        if is_cut:
            was_after += 1
            assert [epoch.id for epoch in journal.epochs] == past.epochs(expected.steps)
            assert started.disk.exists(answer.path)
            if journal.rewound is not None:
                assert journal.rewound == answer
        else:
            was_before += 1
            assert started.state == past.state(len(past.steps))
            assert [epoch.id for epoch in journal.epochs] == past.epochs()
            assert not started.disk.exists(answer.path)
            assert journal.rewound is None
        assert not [name for name in started.disk.list(FOLDER) if name.endswith((".partial", "unfinished"))]
        # Or it is asked for again.
        assert rewind(disk, FOLDER, since, 1) == answer
        assert rewind(disk, FOLDER, since, 1) == answer
        disk.crash("lose_all")
        check_aside(past, disk, since, expected, answer)
        past.check(disk, expected)
    assert was_before > 5
    assert was_after > 5


@pytest.mark.parametrize("step", [1, 2, 5])
def test_one_that_is_cut_short_again_and_again_ends_well(step: int) -> None:
    past, since = crashing(2, is_torn=True)
    disk, expected = past.machine.disk, past.expect(since, 1)
    for attempt in range(100):
        disk.crash_after(step + attempt)
        try:
            rewound = rewind(disk, FOLDER, since, 1)
            break
        except SimulatedCrash:
            disk.crash()
    else:
        pytest.fail("it never ends")
    disk.kill()
    check_aside(past, disk, since, expected, rewound)
    past.check_goes_on(past.check(disk, expected), expected)


def test_a_repair_finishes_it_first() -> None:
    past, since = crashing(2, is_torn=False)
    expected, finished = past.expect(since, 1), 0
    for _, disk, _ in crashes(past.machine.disk, since, 1, every=4):
        if not disk.exists(f"{FOLDER}/{REWINDING}"):
            continue
        with pytest.raises(DataDirectoryError, match="half-way back"):
            repair(disk, FOLDER, dry_run=True)
        assert not repair(disk, FOLDER).was_needed
        past.check(disk, expected)
        finished += 1
    assert finished > 2


# --- by chance --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=() if seed < 12 else LONG) for seed in range(200)])
def test_any_history_goes_back_to_any_moment(seed: int) -> None:
    past, rng = random_past(seed), Random(seed)
    past.machine.journal.close() if rng.random() < 0.5 else past.machine.disk.kill()
    for _ in range(4):
        at = rng.randrange(len(past.steps))
        since = Ts(max(0, past.last_ts(at) + rng.choice([-1, 0, 0, 1])))
        epoch = rng.choice([0, *past.epochs(), *3 * past.epochs(at)[-1:]])
        disk = past.machine.disk.clone(seed)
        if not past.expect(since, epoch).is_possible:
            before = files(disk)
            with pytest.raises(NoWayBack):
                rewind(disk, FOLDER, since, epoch)
            assert files(disk) == before
            continue
        crash_at = rng.randint(1, 120)
        disk.crash_after(crash_at)
        try:
            rewound = rewind(disk, FOLDER, since, epoch)
        except SimulatedCrash:
            disk.crash() if rng.random() < 0.5 else disk.kill()
            rewound = rewind(disk, FOLDER, since, epoch)
        disk.kill()
        check_rewound(past, disk, since, epoch, rewound)
