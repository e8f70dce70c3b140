"""Whether a server may go on with what is shipped, and how.

its epochs lack the newest one that was shipped    another server has gone on with this history: refused
it was restored, and the server before lives       refused: that has shipped what this one lacks
it is an older state of the server that shipped    refused: a copy of the files of a server that goes on
its files hold the bytes that were shipped last    the same lineage grows
otherwise                                          a new lineage; what the old ones have beyond the first epoch
                                                   that they do not know was lost, and is history no more
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.errors import ShippingError
from tidelog.ids import Lsn, Ts
from tidelog.journal.layout import Meta, shard_folder
from tidelog.journal.segment import journal_name, list_segments, owner_of, sidecar_name
from tidelog.ports import Disk
from tidelog.shipping.dropping import holds_extent
from tidelog.shipping.fetch import RestoredFrom
from tidelog.shipping.lineage import Lineage, ShippedExtent
from tidelog.shipping.manifest import Manifest
from tidelog.shipping.point import ShipPoint


def refuse_other_history(newest: Manifest, point: ShipPoint, meta: Meta, restored: RestoredFrom | None) -> None:
    """`ShippingError` if what is shipped is not the beginning of what this server has.

    `restored`: what its data directory was restored from. If that is still the newest, the server goes on with the
    database, also if it lacks epochs: what the server before it had not shipped is lost.
    """
    if not newest.epochs or (restored is not None and newest.number == restored.manifest):
        return
    last = newest.epochs[-1]
    shipped = f"database {meta.database_id}: manifest {newest.number}"
    if all(epoch.id != last.id for epoch in point.epochs):
        raise ShippingError(
            f"another server has gone on with {shipped} names epoch {last.id:x} (since ts {last.first_ts}), which "
            f"this server does not have. Let this one follow that server, or ship it somewhere else"
        )
    if restored is not None and restored.epoch == last.id:
        raise ShippingError(
            f"the server before has gone on with {shipped} is not the one that this directory was restored from, "
            f"{restored.manifest}, and nobody had taken over. Let this server follow that one; if that is lost, "
            f"restore an empty directory once more"
        )
    shipped_ts = max((lineage.history_ts for lineage in newest.lineages), default=Ts(0))
    if last.id == point.epochs[-1].id and shipped_ts > point.durable.ts:
        raise ShippingError(
            f"another server has gone on with {shipped} has changes up to ts {shipped_ts}, and this server only up to "
            f"{point.durable.ts}, in the same epoch: its directory is a copy of an older state. Ship it somewhere else"
        )


def cut_ts(newest: Manifest, point: ShipPoint) -> Ts | None:
    """The last moment before the first epoch that the manifest does not know; None: it knows all.

    A directory that was restored may lack the newest ones of the manifest: the newest that both know counts.
    """
    shipped = {epoch.id for epoch in newest.epochs}
    known = [index for index, epoch in enumerate(point.epochs) if epoch.id in shipped]
    after = point.epochs[known[-1] + 1 :] if known else point.epochs
    return after[0].last_ts if after else None


def journal_begins_ts(point: ShipPoint) -> Ts:
    """The moment that lsn 0 follows. In a directory that was restored that is what it was restored to: its snapshot has
    all before, and its lsns have nothing to do with those of others."""
    return max((epoch.last_ts for epoch in point.epochs if not any(epoch.lsns)), default=Ts(0))


def goes_on(disk: Disk, folder: str, meta: Meta, lineage: Lineage, point: ShipPoint) -> bool:
    """Whether the files of a data directory begin with those of a lineage.

    The last bytes of every shard are compared. They end with a mark, which has the ts of the last transaction in it:
    two histories that differ before never have the same.
    """
    if (lineage.geometry, lineage.shard_count) != (meta.geometry, meta.shard_count):
        return False
    if not lineage.ends:  # its first round was not finished: what there is of it is compared (`foreign_extents`)
        if lineage.begins_ts is not None and lineage.begins_ts < journal_begins_ts(point):
            return False
        return bool(lineage.first_segments) and _has_segments(disk, folder, lineage.first_segments)
    if lineage.cycle > point.durable.cycle:
        return False
    for shard, (end, ours) in enumerate(zip(lineage.ends, point.durable.ends, strict=True)):
        if end is None:
            continue
        if ours is None or ours < end:
            return False
        path = f"{shard_folder('', shard)[1:]}/{journal_name(end.segment)}"
        last = [extent for extent in lineage.file(path).extents if extent.position < end.at <= extent.end]
        if not last or not holds_extent(disk, f"{folder}/{path}", last[0]):
            return False
    return True


def _has_segments(disk: Disk, folder: str, firsts: Sequence[Lsn]) -> bool:
    """Whether the journal of each shard has a segment that begins there, or is to have one: it has none yet."""
    for shard, first in enumerate(firsts):
        segments = list_segments(disk, shard_folder(folder, shard))
        if first not in segments and (first or segments):
            return False
    return True


def foreign_extents(disk: Disk, folder: str, lineage: Lineage) -> list[tuple[str, ShippedExtent]]:
    """Extents beyond the end of a lineage that the files of a data directory do not hold, with their paths.

    A server that died may have shipped bytes that no manifest came to count, and that were lost with it.
    """
    found: list[tuple[str, ShippedExtent]] = []
    for path, file in lineage.files.items():
        head, _, name = path.rpartition("/")
        segment = owner_of(name) if head.startswith("shard-") else None
        if segment is None or name == sidecar_name(segment):
            continue
        end = lineage.ends[int(head.removeprefix("shard-"))] if lineage.ends else None
        if end is not None and segment < end.segment:
            continue
        is_counted = end is not None and segment == end.segment and name == journal_name(segment)
        at = end.at if end is not None and is_counted else 0
        found += [
            (path, extent)
            for extent in file.extents
            if extent.end > at and not holds_extent(disk, f"{folder}/{path}", extent)
        ]
    return found
