"""A manifest says what it was told, and nothing else is taken for one."""

from __future__ import annotations

import contextlib

import pytest

from tests.shipping.copies import Shipped, objects, restored
from tests.store.changes import state
from tidelog import limits
from tidelog.errors import Corruption
from tidelog.ports import ObjectStore
from tidelog.shipping.manifest import (
    NO_BASE,
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
