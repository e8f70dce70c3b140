"""Pending ids in order, against a plain sorted list."""

from __future__ import annotations

from random import Random

from tidelog.streams.pending_ids import PendingIds


def test_against_a_sorted_list() -> None:
    random = Random(7)
    plain: dict[int, int] = {}
    ids = PendingIds([])
    largest = 0
    for turn in range(5000):
        kind = random.randrange(10)
        if kind < 3:
            run = list(range(largest + 1, largest + 1 + random.randrange(1, 6)))
            largest = run[-1]
            ids.add_all(run, [10 * number for number in run])
            plain.update({number: 10 * number for number in run})
        elif kind < 5:
            number = random.randrange(1, largest + 10)
            largest = max(largest, number)
            ids.add(number, turn)
            plain[number] = turn
        else:
            for _ in range(2):
                number = random.choice(sorted(plain)) if plain else 5
                ids.remove(number)
                plain.pop(number, None)
        first = random.randrange(largest + 5)
        assert list(ids.from_id(first)) == sorted(number for number in plain if number >= first)
        assert ids.offsets == plain
        if plain:
            assert ids.largest == max(plain)


def test_what_is_acknowledged_does_not_pile_up() -> None:
    ids = PendingIds([])
    for number in range(100_000):
        ids.add(number, number)
        ids.remove(number - 10)
    assert len(ids._ordered) < 200
    assert list(ids.from_id(0)) == list(range(99_990, 100_000))


def test_runs_that_come_again() -> None:
    ids = PendingIds([(5, 50), (7, 70)])
    ids.remove(5)
    ids.add_all([5, 6], [51, 61])
    assert list(ids.from_id(0)) == [5, 6, 7]
    assert ids.offsets == {5: 51, 6: 61, 7: 70}
