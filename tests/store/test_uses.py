"""When keys were last used: never told too long, and told per slot."""

from __future__ import annotations

from tidelog.store.keyspace import Database
from tidelog.store.slots import slot_of
from tidelog.store.uses import KeyUses

SECOND_US = 1_000_000


def idle_s(uses: KeyUses, key: bytes, now_us: int) -> int:
    return uses.idle_s(slot_of(key), now_us)


def test_a_use_is_told_until_the_next() -> None:
    uses = KeyUses(5 * SECOND_US)
    database = Database(0, None, uses)
    database.put(b"a", b"1")
    assert idle_s(uses, b"a", 8 * SECOND_US) == 3
    uses.set_now(10 * SECOND_US)
    assert database.find(b"a") == b"1"
    assert idle_s(uses, b"a", 10 * SECOND_US) == 0
    assert idle_s(uses, b"b", 12 * SECOND_US + SECOND_US // 2) == 7
    assert idle_s(uses, b"a", 12 * SECOND_US + SECOND_US // 2) == 2


def test_a_look_is_no_use() -> None:
    uses = KeyUses()
    database = Database(0, None, uses)
    database.put(b"", b"1", 10)
    uses.set_now(4 * SECOND_US)
    assert database.peek(b"") == b"1"
    assert database.change(b"") == b"1"
    database.set_expiry(b"", None)
    assert idle_s(uses, b"", 4 * SECOND_US) == 4
    uses.stop_noting()
    database.find(b"")
    uses.note_again()
    assert idle_s(uses, b"", 4 * SECOND_US) == 4
    database.find(b"")
    assert idle_s(uses, b"", 4 * SECOND_US) == 0
