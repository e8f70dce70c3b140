"""What the real Redis beside which lists are tested does otherwise than 7.2, or cannot show."""

from __future__ import annotations

from tests.commands.running import Commands
from tidelog import limits


def test_the_smallest_rank() -> None:
    run = Commands()
    run("RPUSH", "k", "a")
    problem = "value is out of range, value must between -9223372036854775807 and 9223372036854775807"
    assert problem in run.refused("LPOS", "k", "a", "RANK", -(2**63))


def test_a_pop_of_many_bytes_is_not_journaled_with_them() -> None:
    run = Commands()
    large = b"x" * limits.STAGED_BYTES_MIN
    run("RPUSH", "k", "a", large, "b", large, large)
    before = run.store.journal.writer.batch_bytes
    assert run("RPOP", "k") == large
    assert run("LMPOP", 1, "k", "LEFT", "COUNT", 2) == [b"k", [b"a", large]]
    assert run("LPOP", "k", 2) == [b"b", large]
    assert run("EXISTS", "k") == 0
    assert run.store.journal.writer.batch_bytes - before < 1000


def test_a_large_element_moves_within_its_list() -> None:
    large = b"x" * limits.STAGED_BYTES_MIN
    for elements in ([large], [large, b"a", large], [large, b"a", b"b", large]):
        for ends, expected in (
            ("LEFT RIGHT", [*elements[1:], elements[0]]),
            ("RIGHT LEFT", [elements[-1], *elements[:-1]]),
            ("LEFT LEFT", elements),
            ("RIGHT RIGHT", elements),
        ):
            run = Commands()
            run("RPUSH", "k", *elements)
            assert run("LMOVE", "k", "k", *ends.split()) == large
            assert run("LRANGE", "k", 0, -1) == expected
            run.restart()
            assert run("LRANGE", "k", 0, -1) == expected
