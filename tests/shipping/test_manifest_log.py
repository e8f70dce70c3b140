"""The newest manifest is found however many there are, also if the listing is late."""

from __future__ import annotations

import pytest

from tests.shipping.copies import objects
from tidelog import limits
from tidelog.ids import Ts
from tidelog.ports import ObjectEntry, ObjectStore
from tidelog.shipping.manifest import Manifest
from tidelog.shipping.manifest_log import ManifestLog, database_ids

__all__ = ["objects"]
DATABASE = "0" * 32


def manifest(number: int) -> Manifest:
    return Manifest(number, 0, DATABASE, 1, Ts(0), Ts(0), (), (), "")


@pytest.mark.parametrize("count", [1, 2, 5, 40])
@pytest.mark.parametrize("page", [1, 7, 1000])
def test_the_newest_is_found(objects: ObjectStore, monkeypatch: pytest.MonkeyPatch, count: int, page: int) -> None:
    monkeypatch.setattr(limits, "OBJECTS_LISTED_MAX", page)
    log = ManifestLog(objects, DATABASE)
    assert log.newest() is None
    for number in range(count):
        log.put(manifest(number))

    newest = log.newest()
    assert newest is not None
    assert newest.number == count - 1
    assert database_ids(objects) == [DATABASE]


def test_the_first_may_be_gone(objects: ObjectStore) -> None:
    log = ManifestLog(objects, DATABASE)
    for number in range(20):
        log.put(manifest(number))
    for number in range(15):
        objects.delete(f"{DATABASE}/manifest-{number:016x}")

    newest = log.newest()
    assert newest is not None
    assert newest.number == 19
    assert log.get(3) is None


def test_a_listing_that_is_late_does_not_hide_it(objects: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    log = ManifestLog(objects, DATABASE)
    for number in range(9):
        log.put(manifest(number))
    monkeypatch.setattr(type(objects), "list", lambda *_: [ObjectEntry(f"{DATABASE}/manifest-{2:016x}", 1)][:1])
    monkeypatch.setattr(ManifestLog, "_last_listed", lambda _: 2)

    newest = log.newest()
    assert newest is not None
    assert newest.number == 8


def test_two_that_put_the_same_are_told(objects: ObjectStore) -> None:
    log = ManifestLog(objects, DATABASE)
    log.put(manifest(0))
    with pytest.raises(FileExistsError):
        log.put(manifest(0))
