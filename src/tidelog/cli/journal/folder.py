"""What the journal commands share: which directory is meant, which operations are known, how damage is told."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidelog.cli.output.stdout import Output
from tidelog.errors import Corruption

if TYPE_CHECKING:
    from tidelog.journal.inspection import JournalFolder, Tail
    from tidelog.journal.operation import OperationTable
    from tidelog.ports import Disk
    from tidelog.shipping.tiered_disk import TieredDisk

DataFolder = Annotated[
    str,
    typer.Argument(
        metavar="DIR",
        help="A data directory, a snapshot in it (DIR/snapshots/snapshot-...), or one shard of either (DIR/shard-0).",
        show_default=False,
    ),
]
WholeFolder = Annotated[
    str,
    typer.Argument(metavar="DIR", help="A data directory.", show_default=False),
]


def real_disk(folder: str | None = None) -> TieredDisk:
    """That of this machine. Node files that lie only in an object store look as if they were there. `folder`: a data
    directory in which files get second names."""
    from tidelog.system.whole_disk import whole_disk

    return whole_disk(folder)


def find_place(disk: Disk, folder: str) -> JournalFolder:
    """What DIR is. Also from inside of it: `.` is looked at by its real name."""
    from tidelog.journal.inspection import locate

    named = os.path.normpath(folder)
    return locate(disk, os.path.abspath(named) if os.path.basename(named) in ("", ".", "..") else named)


def known_operations() -> OperationTable:
    """The operations of everything that writes to a journal."""
    from tidelog.store.type_table import operation_table

    return operation_table()


def opcode_name(table: OperationTable, opcode: int) -> str:
    """The name of an opcode, or its number if this version does not know it."""
    from tidelog.journal import control

    kind = table.get(opcode)
    return kind.name if kind is not None else control.NAMES.get(opcode, f"0x{opcode:02x}")


def damage_members(error: Corruption) -> dict[str, Any]:
    """Damage as the members of a JSON object."""
    return {"path": error.path, "frame": error.frame, "position": error.position, "problem": error.problem}


def tell_damage(output: Output, damage: list[Corruption]) -> None:
    """Say where damage was found, after everything that could be shown."""
    for error in damage:
        if output.as_json:
            output.object("damage", damage_members(error))
        else:
            output.line(f"damage: {error}", "red")


def tell_tail(output: Output, shard: int, tail: Tail) -> None:
    """Say that the end of a shard is not under a mark."""
    if output.as_json:
        members = {"shard": shard, "path": tail.path, "position": tail.position, "bytes": tail.size_bytes}
        output.object("tail", members)
    else:
        output.line(
            f"tail: {tail.path}, position {tail.position}: {tail.size_bytes} bytes are not under a mark: they are "
            "being written right now, or the next start sets them aside",
            "yellow",
        )
