"""What `ports.ObjectStore` promises, for all of them: a folder, S3, simulated, and each with encryption."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.integration.s3_server import S3Bucket
from tidelog import limits
from tidelog.ports import Chunk, ObjectEntry, ObjectStore
from tidelog.shipping.sealed_store import SealedStore
from tidelog.shipping.sealing_key import SealingKey
from tidelog.system.object_store import open_object_store
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.object_store import SimulatedBucket

OpenAgain = Callable[[], ObjectStore]


@pytest.fixture(params=["plain", "sealed"])
def is_sealed(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "sealed")


@pytest.fixture
def open_again(open_plain: OpenAgain, is_sealed: bool) -> OpenAgain:
    """Opens the same store, empty at first, as another process would."""
    return (lambda: SealedStore(open_plain(), SealingKey(bytes(32)), os.urandom)) if is_sealed else open_plain


@pytest.fixture(params=["folder", "s3", "simulated"])
def open_plain(request: pytest.FixtureRequest, tmp_path: Path) -> OpenAgain:
    if request.param == "folder":
        return lambda: open_object_store(str(tmp_path / "objects"))
    if request.param == "simulated":
        return SimulatedBucket(SimulatedClock(), Random(0)).client
    bucket: S3Bucket = request.getfixturevalue("s3_bucket")
    url = bucket.folder()
    return lambda: open_object_store(url, bucket.options)


@pytest.fixture
def store(open_again: OpenAgain) -> ObjectStore:
    return open_again()


def fill(store: ObjectStore, *names: str) -> None:
    for name in names:
        store.put(name, [name.encode()])


def names_of(entries: list[ObjectEntry]) -> list[str]:
    return [entry.name for entry in entries]


# --- putting and getting ----------------------------------------------------------------------------------------


def test_an_object_comes_back(store: ObjectStore, open_again: OpenAgain) -> None:
    store.put("a/b/object", [b"contents"])

    for each in (store, open_again()):
        assert each.get("a/b/object") == b"contents"
        assert each.size("a/b/object") == 8


def test_chunks_of_every_kind_follow_each_other(store: ObjectStore) -> None:
    chunks: list[Chunk] = [b"one ", bytearray(b"two "), memoryview(b"...three...")[3:8], b""]

    store.put("object", chunks)

    assert store.get("object") == b"one two three"


@pytest.mark.parametrize("chunks", [[], [b""], [b"", b""]])
def test_an_object_may_be_empty(store: ObjectStore, chunks: list[bytes]) -> None:
    store.put("empty", chunks)

    assert store.get("empty") == b""
    assert store.size("empty") == 0
    assert store.read("empty", 0, 10) == b""
    assert store.list("") == [ObjectEntry("empty", 0)]


def test_a_few_megabytes_come_back_whole(store: ObjectStore) -> None:
    data = bytes(range(256)) * (4096 * 9) + b"end"

    store.put("large", [data[:100], memoryview(data)[100:]])

    assert store.size("large") == len(data)
    assert store.get("large") == data
    assert store.read("large", len(data) - 5, 100) == b"\xfe\xffend"
    assert store.read("large", 5_000_000, 300_000) == data[5_000_000:5_300_000]


def test_put_refuses_a_name_that_is_taken(store: ObjectStore, open_again: OpenAgain) -> None:
    store.put("a/object", [b"first"])

    for each in (store, open_again()):
        for data in (b"second", b"first", b""):
            with pytest.raises(FileExistsError, match="a/object"):
                each.put("a/object", [data])

    assert store.get("a/object") == b"first"


@pytest.mark.parametrize("data", [b"", b"x"])
def test_a_put_of_the_same_bytes_is_refused_too(store: ObjectStore, data: bytes) -> None:
    store.put("object", [data])

    with pytest.raises(FileExistsError):
        store.put("object", [data])


def test_a_large_put_refuses_a_name_that_is_taken(store: ObjectStore) -> None:
    """It goes in one piece, too: what goes in parts could not be create-only."""
    store.put("object", [b"first"])

    with pytest.raises(FileExistsError):
        store.put("object", [bytes(12 * limits.MIB)])

    assert store.get("object") == b"first"


def test_of_several_puts_at_once_one_wins(open_again: OpenAgain) -> None:
    stores = [open_again() for _ in range(6)]
    start = threading.Barrier(len(stores))
    winners: list[bytes] = []

    def put(number: int) -> None:
        data = b"%d" % number * 100_000
        start.wait()
        try:
            stores[number].put("manifests/1", [data])
        except FileExistsError:
            return
        winners.append(data)

    threads = [threading.Thread(target=put, args=[number]) for number in range(len(stores))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(winners) == 1
    assert stores[0].get("manifests/1") == winners[0]


# --- reading parts ----------------------------------------------------------------------------------------------


def test_read_is_short_only_at_the_end(store: ObjectStore) -> None:
    store.put("object", [b"0123456789"])

    assert store.read("object", 2, 3) == b"234"
    assert store.read("object", 0, 10) == b"0123456789"
    assert store.read("object", 8, 100) == b"89"
    assert store.read("object", 10, 1) == b""
    assert store.read("object", 1000, 1) == b""
    assert store.read("object", 3, 0) == b""
    assert store.read("object", 0, 0) == b""
    assert store.read("object", 1_000_000, 0) == b""


@pytest.mark.parametrize(("position", "length"), [(-1, 5), (0, -1), (-5, -5)])
def test_a_part_below_0_is_a_mistake(store: ObjectStore, position: int, length: int) -> None:
    store.put("object", [b"0123456789"])
    with pytest.raises(ValueError, match="no part of an object"):
        store.read("object", position, length)


def test_what_is_missing_is_not_found(store: ObjectStore) -> None:
    fill(store, "a/there")

    attempts: list[Callable[[str], object]] = [
        store.get,
        store.size,
        lambda name: store.read(name, 0, 1),
        lambda name: store.read(name, 5, 0),
        lambda name: store.read(name, 1_000_000, 10),
    ]
    for name in ("missing", "a/missing", "a", "a/there/below", "b/c/d"):
        for attempt in attempts:
            with pytest.raises(FileNotFoundError, match=name):
                attempt(name)


# --- names ------------------------------------------------------------------------------------------------------

ODD_NAMES = [
    "a b", "a%20b", "a%2Fb", "é", "日本", "\U0001f600", "a+b", "a#b", "a?b", "a&b=c", "a\\b", "a:b", "~a", "'q'", '"d"',
    "[x]", "{x}", "<x>", "a*", "^", "`", "|", "a@b", "a..b", "-", "$HOME", "e\u0301", "x" * 255,
]  # fmt: skip


def test_odd_names_stay_apart(store: ObjectStore) -> None:
    for name in ODD_NAMES:
        store.put(f"odd/{name}/{name}"[: limits.OBJECT_NAME_BYTES_MAX], [name.encode()])

    names = [f"odd/{name}/{name}"[: limits.OBJECT_NAME_BYTES_MAX] for name in ODD_NAMES]
    assert names_of(store.list("odd/")) == sorted(names)
    assert store.folders("odd/") == sorted(ODD_NAMES)
    for name, short in zip(names, ODD_NAMES, strict=True):
        assert store.get(name) == short.encode()
        assert names_of(store.list(name)) == [name]
        store.delete(name)
    assert store.list("") == []


@pytest.mark.parametrize(
    "name", ["", "/a", "a/", "a//b", ".", "..", "a/../b", ".hidden", "a/.hidden", "a\nb", "a\0b", "\x7f", "x" * 256,
             "/".join(["x" * 100] * 6), "/", "é" * 128]
)  # fmt: skip
def test_names_that_not_all_stores_have_are_refused(store: ObjectStore, name: str) -> None:
    attempts: list[Callable[[], object]] = [
        lambda: store.put(name, [b"x"]),
        lambda: store.get(name),
        lambda: store.size(name),
        lambda: store.read(name, 0, 1),
        lambda: store.delete(name),
        lambda: store.folders(name + "x"),
    ]
    for attempt in attempts:
        with pytest.raises(ValueError, match=r"name|part|control|folder"):
            attempt()
    assert store.list("") == []


# --- listing ----------------------------------------------------------------------------------------------------

TREE = ["a", "b-c", "b/a", "b/c/d", "b/c/e", "b/d", "b0", "ba/x", "c/a/b/c"]
"""In the order of names: - comes before /, and 0 after it."""


def test_list_is_in_order_of_whole_names(store: ObjectStore) -> None:
    fill(store, *reversed(TREE))

    assert store.list("") == [ObjectEntry(name, len(name)) for name in TREE]
    assert sorted(TREE) == TREE


@pytest.mark.parametrize(
    ("prefix", "found"),
    [
        ("b/", ["b/a", "b/c/d", "b/c/e", "b/d"]),
        ("b", ["b-c", "b/a", "b/c/d", "b/c/e", "b/d", "b0", "ba/x"]),
        ("b/c", ["b/c/d", "b/c/e"]),
        ("b/c/", ["b/c/d", "b/c/e"]),
        ("b/c/d", ["b/c/d"]),
        ("a", ["a"]),
        ("a/", []),
        ("c/a/b/", ["c/a/b/c"]),
        ("z", []),
        ("b/c/d/", []),
    ],
)
def test_a_prefix_is_how_names_begin(store: ObjectStore, prefix: str, found: list[str]) -> None:
    fill(store, *TREE)

    assert names_of(store.list(prefix)) == found


def test_list_goes_on_after_any_name(store: ObjectStore) -> None:
    fill(store, *TREE)

    for after in (*TREE, "0", "b", "b/b", "b/c", "b/c/dd", "b/cc", "b.", "zzz"):
        for prefix in ("", "b", "b/", "b/c", "b/c/"):
            expected = [name for name in TREE if name > after and name.startswith(prefix)]
            assert (after, prefix, names_of(store.list(prefix, after))) == (after, prefix, expected)


def test_a_listing_comes_in_pages(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "OBJECTS_LISTED_MAX", 4)
    fill(store, *TREE)

    pages = [names_of(store.list(""))]
    while len(pages[-1]) == 4:
        pages.append(names_of(store.list("", pages[-1][-1])))

    assert pages == [TREE[:4], TREE[4:8], TREE[8:]]


@pytest.mark.parametrize(
    ("prefix", "found"),
    [("", ["b", "ba", "c"]), ("b/", ["c"]), ("c/", ["a"]), ("c/a/", ["b"]), ("b/c/", []), ("z/", []), ("a/", [])],
)
def test_folders_have_something_in_them(store: ObjectStore, prefix: str, found: list[str]) -> None:
    fill(store, *TREE)

    assert store.folders(prefix) == found


def test_an_empty_store_lists_nothing(store: ObjectStore) -> None:
    assert store.list("") == []
    assert store.list("a/") == []
    assert store.folders("") == []


# --- deleting ---------------------------------------------------------------------------------------------------


def test_delete_takes_one_object(store: ObjectStore) -> None:
    fill(store, "a/b/c", "a/b/d", "a/e")

    store.delete("a/b/c")

    assert names_of(store.list("")) == ["a/b/d", "a/e"]
    with pytest.raises(FileNotFoundError):
        store.get("a/b/c")


def test_delete_is_fine_with_what_is_missing(store: ObjectStore) -> None:
    fill(store, "a/b")

    for name in ("missing", "a/missing", "a/b/below", "b/c/d", "a/b", "a/b"):
        store.delete(name)

    assert store.list("") == []


def test_folders_go_with_their_last_object(store: ObjectStore) -> None:
    fill(store, "a/b/c/d", "a/e")
    assert store.folders("a/") == ["b"]

    store.delete("a/b/c/d")
    assert store.folders("a/") == []
    assert store.folders("") == ["a"]

    store.delete("a/e")
    assert store.folders("") == []
