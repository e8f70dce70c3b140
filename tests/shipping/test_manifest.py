"""A manifest says what it was told, and nothing else is taken for one."""

from __future__ import annotations

import contextlib

import pytest

from tests.shipping.copies import Shipped, objects, restored
from tests.store.changes import state
from tidelog import limits
from tidelog.errors import Corruption
from tidelog.ids import Lsn, Ts
from tidelog.journal.control import Epoch
from tidelog.journal.frame import Geometry
from tidelog.journal.layout import SnapshotPoint
from tidelog.ports import ObjectStore
from tidelog.shipping.lineage import Lineage
from tidelog.shipping.manifest import (
    NO_BASE,
    Manifest,
    decode_base,
    decode_manifest,
    encode_base,
    encode_manifest,
    manifest_name,
    manifest_number,
    pack,
    unpack,
)

__all__ = ["objects"]


def test_names_have_their_numbers() -> None:
    assert manifest_number(manifest_name(77)) == 77
    assert manifest_number("base.3-1") is None


def test_every_bit_that_flips_is_found() -> None:
    data = pack({"format": 1, "names": ["a", "b"]})
    assert unpack(data, "x")["names"] == ["a", "b"]
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with contextlib.suppress(Corruption):
            assert unpack(bytes(flipped), "x")["names"] == ["a", "b"]  # a bit of the head of zlib means nothing


def test_a_newer_format_is_refused() -> None:
    with pytest.raises(Corruption, match="newer version"):
        unpack(pack({"format": 99}), "x")


def test_all_of_it_comes_back(objects: ObjectStore) -> None:
    shipped = Shipped(objects)
    shipped.begin()
    shipped.change(20)
    shipped.save()
    found = shipped.newest

    assert decode_manifest(encode_manifest(found), "x", NO_BASE) == found


def test_manifests_with_a_base_say_what_changed(objects: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MANIFEST_CHANGES_MIN", 3)
    shipped = Shipped(objects)
    shipped.begin()
    for _ in range(15):
        shipped.change(12)
        shipped.ship()

    newest = shipped.newest
    assert newest.base
    assert restored(objects, newest) == state(shipped.store)


def test_a_base_has_the_snapshots_too(objects: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MANIFEST_CHANGES_MIN", 0)
    shipped = Shipped(objects)
    shipped.begin()
    for _ in range(3):
        shipped.change(12)
        shipped.save()

    newest = shipped.newest
    assert len(newest.lineages[-1].snapshots) == 3
    told = unpack(encode_manifest(newest), "x")["lineages"][-1]["snapshots"]
    assert {type(each) for each in told} == {int, dict}
    base = decode_base(encode_base(newest.lineages), "x")
    assert base.snapshots == {each.name: each.snapshots for each in newest.lineages}
    assert base.files == {each.name: each.files for each in newest.lineages}


def test_a_server_that_takes_over_goes_on_with_the_base(objects: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of a million files would be a manifest of a million files otherwise."""
    monkeypatch.setattr(limits, "MANIFEST_CHANGES_MIN", 0)
    shipped = Shipped(objects)
    shipped.begin()
    for _ in range(4):
        shipped.change(12)
        shipped.ship()
    monkeypatch.setattr(limits, "MANIFEST_CHANGES_MIN", 1000)

    shipped.begin()

    newest = shipped.newest
    assert newest.base
    assert all(len(newest.changed[each.name]) < len(each.files) for each in newest.lineages)
    assert restored(objects, newest) == state(shipped.store)


def earlier(manifest: Manifest) -> bytes:
    """As versions wrote it that took any journal with lsn 0 for a whole one."""
    members = unpack(encode_manifest(manifest), "x")
    for lineage in members["lineages"]:
        del lineage["is_beginning_proved"]
    return pack(members)


def test_what_an_earlier_version_shipped_of_a_restored_directory_begins_with_its_snapshot() -> None:
    zero, one = (Lsn(0),), SnapshotPoint(Ts(90), (Lsn(5),))
    epochs = Epoch(1, zero, Ts(0), Ts(3)), Epoch(2, zero, Ts(70), Ts(71)), Epoch(3, (Lsn(9),), Ts(95), Ts(96))
    lineages = [
        Lineage(f"{epoch:016x}.{lease}", Geometry(), 1, begins_ts=Ts(0), snapshots={Ts(90): one})
        for epoch, lease in ((1, 0), (2, 4), (3, 6))
    ]
    lineages[2].snapshots = {}
    found = Manifest(7, 6, "db", 1, Ts(99), Ts(99), epochs, tuple(lineages), "")

    assert decode_manifest(encode_manifest(found), "x", NO_BASE).lineages == found.lineages
    read = decode_manifest(earlier(found), "x", NO_BASE)
    assert [lineage.begins_ts for lineage in read.lineages] == [0, 90, None]
