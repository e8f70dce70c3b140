"""Copies of whole files, and second names for files that nobody changes any more."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from tidelog import limits
from tidelog.journal.layout import write_all
from tidelog.ports import Disk


def copy_file(disk: Disk, source: str, target: str, length: int | None, on_copied: Callable[[int], None]) -> None:
    """Copy the first bytes of a file, or all of it, to a new one. Its contents are durable when it returns."""
    old = disk.open(source, "read")
    try:
        new = disk.open(target, "create")
        try:
            at = 0
            while length is None or at < length:
                most = limits.COPY_BYTES_AT_ONCE
                data = old.read(at, most if length is None else min(most, length - at))
                if not data:
                    break
                write_all(new, at, [data])
                at += len(data)
                on_copied(len(data))
            new.sync()
        finally:
            new.close()
    finally:
        old.close()


def link_or_copy(disk: Disk, source: str, target: str, length: int | None, on_copied: Callable[[int], None]) -> None:
    """The same for a file that nobody changes: it gets a second name, where the file system can do that."""
    with contextlib.suppress(OSError):  # another file system, or one that cannot: then a copy has to do
        disk.link(source, target)
        on_copied(length or 0)
        return
    copy_file(disk, source, target, length, on_copied)
