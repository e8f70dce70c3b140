"""What a crash makes of one file's contents, against a naive model that keeps a copy of every version.

The model is the theory of `inode.py` read word by word: whole images instead of an undo log, a list of versions for
each sector instead of floors. Whatever a crash leaves must be among what the model allows.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from random import Random

import pytest

from tidelog.testing.inode import SECTOR_BYTES, Inode

Fate = Callable[[Inode, Random], None]

FATES: dict[str, Fate] = {
    "lose_all": lambda inode, rng: inode.lose_all(),
    "keep_all": lambda inode, rng: inode.settle(),
    "keep_before": lambda inode, rng: inode.keep_before(rng.choice(inode.changes)[0], rng) if inode.changes else None,
    "scatter": lambda inode, rng: inode.scatter(rng, rng.choice((0.1, 0.5, 0.9))),
}


class Model:
    """The same file, kept as one image after every change."""

    def __init__(self) -> None:
        self.settle(b"")

    def settle(self, image: bytes) -> None:
        self.images = [image]
        """The contents when they were last all durable, and after each change since."""
        self.touched: list[set[int]] = [set()]
        """The sectors that the change before each image touched."""
        self.doomed_count = 0
        """Images up to this index are doomed, but for the first."""
        self.floors: dict[int, int] = {}
        """Sector: index of the oldest image that it may be as in."""
        self.size_floor = 0

    def change(self, image: bytes, start: int, end: int) -> None:
        self.images.append(image)
        self.touched.append(set(range(start // SECTOR_BYTES, (end - 1) // SECTOR_BYTES + 1)))

    def write(self, position: int, data: bytes) -> None:
        now = self.images[-1].ljust(position, b"\0")
        self.change(now[:position] + data + now[position + len(data) :], position, position + len(data))

    def truncate(self, size: int) -> None:
        now = self.images[-1]
        if size != len(now):
            self.change(now[:size].ljust(size, b"\0"), min(size, len(now)), max(size, len(now)))

    def sync(self) -> None:
        if not self.doomed_count:
            self.settle(self.images[-1])
            return
        for index in range(self.doomed_count + 1, len(self.images)):
            for sector in self.touched[index]:
                self.floors[sector] = index
        self.size_floor = len(self.images) - 1

    def fail_sync(self) -> None:
        self.doomed_count = len(self.images) - 1

    def check(self, found: bytes) -> None:
        """Hold a crash's outcome to what is allowed."""
        sizes = [len(image) for image in self.images[self.size_floor :]]
        on_the_way = any(smaller < len(found) < larger for smaller, larger in pairwise(sizes))
        assert len(found) in sizes or on_the_way, f"the size is {len(found)}, and never was on {sizes}"
        for sector in range((len(found) + SECTOR_BYTES - 1) // SECTOR_BYTES):
            allowed = {self.sector(index, sector, len(found)) for index in self.versions(sector)}
            assert self.cut(found, sector, len(found)) in allowed, f"sector {sector} is none of its versions"

    def versions(self, sector: int) -> list[int]:
        floor = self.floors.get(sector, 0)
        return [floor] + [i for i in range(floor + 1, len(self.images)) if sector in self.touched[i]]

    def sector(self, index: int, sector: int, size: int) -> bytes:
        return self.cut(self.images[index], sector, size)

    @staticmethod
    def cut(image: bytes, sector: int, size: int) -> bytes:
        """A sector of an image as it reads in a file of this size."""
        start = sector * SECTOR_BYTES
        length = min(SECTOR_BYTES, size - start)
        return image[start : start + length].ljust(length, b"\0")


def live(seed: int, *, with_failures: bool) -> tuple[Inode, Model, Random]:
    """A short random life of a file, ending before a crash."""
    rng = Random(seed)
    inode, model = Inode(), Model()
    for number in range(1, rng.randint(2, 25)):
        size = len(inode.data)
        roll = rng.random()
        if roll < 0.75:
            position = size if rng.random() < 0.6 else rng.randint(0, size + 700)
            data = rng.randbytes(rng.choice((1, 100, 511, 512, 513, 3000)))
            inode.write(number, position, data)
            model.write(position, data)
        elif roll < 0.87:
            cut = rng.randint(0, size + 300)
            inode.truncate(number, cut)
            model.truncate(cut)
        elif roll < 0.94 or not with_failures:
            inode.sync()
            model.sync()
        else:
            inode.fail_sync()
            model.fail_sync()
        assert inode.data == model.images[-1]
    return inode, model, rng


@pytest.mark.parametrize("fate", FATES)
@pytest.mark.parametrize("with_failures", [False, True])
def test_a_crash_leaves_only_what_the_model_allows(fate: str, with_failures: bool) -> None:
    for seed in range(500):
        inode, model, rng = live(seed, with_failures=with_failures)

        FATES[fate](inode, rng)

        try:
            model.check(bytes(inode.data))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        assert (inode.changes, inode.floors, inode.doomed_count, inode.size_floor) == ([], {}, 0, 0)


def test_half_a_sync_saves_some_sectors_whole() -> None:
    kept_counts = set()
    for seed in range(200):
        inode = Inode()
        inode.write(1, 0, b"a" * SECTOR_BYTES * 4)
        inode.sync()
        inode.write(2, 0, b"b" * SECTOR_BYTES * 4)
        inode.sync_partly(Random(seed))
        inode.lose_all()

        sectors = [bytes(inode.data[i * SECTOR_BYTES : (i + 1) * SECTOR_BYTES]) for i in range(4)]
        assert set(sectors) <= {b"a" * SECTOR_BYTES, b"b" * SECTOR_BYTES}
        kept_counts.add(sectors.count(b"b" * SECTOR_BYTES))
    assert kept_counts == {0, 1, 2, 3, 4}


def test_half_a_sync_may_save_the_size_or_not() -> None:
    sizes = set()
    for seed in range(100):
        inode = Inode()
        inode.write(1, 0, b"a" * 100)
        inode.sync_partly(Random(seed))
        inode.lose_all()
        sizes.add(len(inode.data))
    assert sizes == {0, 100}


def test_a_doomed_sector_is_saved_by_writing_it_again() -> None:
    inode = Inode()
    inode.write(1, 0, b"doomed".ljust(SECTOR_BYTES, b"."))
    inode.write(2, SECTOR_BYTES, b"doomed too")
    inode.fail_sync()
    inode.write(3, 6, b" and saved")
    inode.sync()

    inode.lose_all()

    assert inode.data.startswith(b"doomed and saved....")
    assert inode.data[SECTOR_BYTES:] == bytes(10), "the size is durable, the sector is not"


def test_a_torn_write_ends_at_a_sector() -> None:
    lengths = set()
    for seed in range(300):
        inode = Inode(b"o" * 300)
        inode.write(7, 100, b"n" * 2000)
        inode.keep_before(7, Random(seed))

        kept = inode.data.count(b"n")
        assert inode.data == (b"o" * 100 + b"n" * kept).ljust(300, b"o")
        lengths.add(100 + kept)
    assert lengths == {100, 512, 1024, 1536, 2048}


def test_a_torn_overwrite_leaves_the_old_bytes_after_it() -> None:
    lengths = set()
    for seed in range(100):
        inode = Inode(b"o" * 3000)
        inode.write(7, 100, b"n" * 1500)
        inode.keep_before(7, Random(seed))

        kept = inode.data.count(b"n")
        assert inode.data == b"o" * 100 + b"n" * kept + b"o" * (2900 - kept)
        lengths.add(100 + kept)
    assert lengths == {100, 512, 1024, 1536}


def test_a_prefix_ends_where_it_ends_although_a_sync_failed_before() -> None:
    inode = Inode(b"." * SECTOR_BYTES * 3)
    inode.write(1, 0, b"1" * SECTOR_BYTES)
    inode.fail_sync()
    inode.sync()  # nothing to do, but the log stays
    inode.write(2, SECTOR_BYTES, b"2" * SECTOR_BYTES)
    inode.write(3, SECTOR_BYTES * 2, b"3" * SECTOR_BYTES)

    inode.keep_before(3, Random(0))

    assert inode.data[::SECTOR_BYTES] == b"12."


def test_scattered_sizes_lie_between_and_beyond_sectors() -> None:
    sizes = set()
    for seed in range(2000):
        inode = Inode(b"o" * 100)
        inode.write(1, 100, b"n" * 2000)
        inode.scatter(Random(seed), 0.5)
        sizes.add(len(inode.data))
    assert min(sizes) == 100
    assert max(sizes) == 2100
    assert {512, 1024, 1536, 2048} <= sizes
    assert any(size % SECTOR_BYTES for size in sizes - {100, 2100})


def test_a_rotten_bit_stays_rotten() -> None:
    for fate in (Inode.lose_all, Inode.settle):
        inode = Inode(b"\0" * 10)
        inode.write(1, 4, b"\0\0")
        inode.write(2, 3, b"\0\0\0")

        inode.flip_bit(4 * 8 + 1)
        fate(inode)

        assert inode.data == b"\0\0\0\0\2\0\0\0\0\0"


def test_a_clone_shares_nothing_that_changes() -> None:
    inode = Inode(b"base")
    inode.write(1, 4, b"+1")
    twin = inode.clone()

    inode.write(2, 0, b"BASE")
    assert twin.data == b"base+1"

    third = twin.clone()
    twin.lose_all()
    assert [twin.data, third.data, inode.data] == [bytearray(b"base"), bytearray(b"base+1"), bytearray(b"BASE+1")]

    third.truncate(3, 1)
    inode.flip_bit(0)
    assert [twin.data, third.data, inode.data] == [bytearray(b"base"), bytearray(b"b"), bytearray(b"CASE+1")]

    inode.lose_all()
    assert inode.data == b"case", "the bit rotted in every version"


def test_a_clone_is_as_doomed() -> None:
    inode = Inode(b"old")
    inode.write(1, 0, b"new")
    inode.fail_sync()

    twin = inode.clone()
    twin.sync()
    twin.lose_all()

    assert twin.data == b"old"
