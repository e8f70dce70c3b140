"""Blocks are fetched once and read again from the disk, also by many threads; nothing is left of the file."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tidelog.system.scratch import ScratchFile


def test_each_block_is_fetched_once(tmp_path: Path) -> None:
    blocks = {(f"object-{n % 5}", n): random.Random(n).randbytes(1 + 300 * n) for n in range(60)}
    fetched: list[tuple[str, int]] = []
    scratch = ScratchFile(str(tmp_path))
    assert list(tmp_path.iterdir()) == []

    def call(block: tuple[str, int]) -> bytes:
        def fetch() -> bytes:
            fetched.append(block)
            return blocks[block]

        return scratch.once(block, fetch)()

    with ThreadPoolExecutor(8) as threads:
        for _ in range(3):
            assert dict(zip(blocks, threads.map(call, blocks), strict=True)) == blocks
    assert sorted(fetched) == sorted(blocks)
    scratch.close()
    assert list(tmp_path.iterdir()) == []


def test_a_fetch_that_fails_is_tried_again(tmp_path: Path) -> None:
    scratch = ScratchFile(str(tmp_path))

    def fail() -> bytes:
        raise OSError("not now")

    with pytest.raises(OSError, match="not now"):
        scratch.once(("a", 0), fail)()
    assert scratch.once(("a", 0), lambda: b"there")() == b"there"
    assert scratch.once(("a", 0), fail)() == b"there"
    scratch.close()
