"""Which names objects may have: those that S3, the other clouds and a file system all take, and none changes; and which
parts they have."""

from __future__ import annotations

from typing import Final

from tidelog import limits

_CONTROL: Final = frozenset(map(chr, (*range(0x20), 0x7F)))


def check_object_name(name: str) -> None:
    """`ValueError` if no object may be called so."""
    _check_parts(name, name.split("/"))


def check_object_prefix(prefix: str) -> None:
    """`ValueError` if no object's name may begin so."""
    *folders, last = prefix.split("/")
    _check_parts(prefix, [*folders, last] if last else folders)


def check_object_folder(prefix: str) -> None:
    """`ValueError` if this is not "" or the name of a folder with a `/` behind it."""
    if prefix and not prefix.endswith("/"):
        raise ValueError(f"{prefix!r} is no folder: a / is missing at its end")
    check_object_prefix(prefix)


def check_object_part(position: int, length: int) -> None:
    """`ValueError` if no object has such a part."""
    if position < 0 or length < 0:
        raise ValueError(f"{length} bytes from {position} on are no part of an object")


def _check_parts(name: str, parts: list[str]) -> None:
    if len(name.encode()) > limits.OBJECT_NAME_BYTES_MAX:
        raise ValueError(f"the name of an object has more than {limits.OBJECT_NAME_BYTES_MAX} bytes: {name!r}")
    for part in parts:
        if not part or part.startswith("."):
            raise ValueError(f"a part of {name!r} is empty or begins with a dot")
        if len(part.encode()) > limits.OBJECT_NAME_PART_BYTES_MAX:
            raise ValueError(f"a part of {name!r} has more than {limits.OBJECT_NAME_PART_BYTES_MAX} bytes")
        if not _CONTROL.isdisjoint(part):
            raise ValueError(f"{name!r} has control characters")
