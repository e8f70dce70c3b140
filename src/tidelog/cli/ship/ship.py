"""`tidelog ship`: a copy in an object store of a directory that no server has open. Also the group of `ship status`."""

from __future__ import annotations

import os
import random
import secrets
import time
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tidelog import limits
from tidelog.cli.copy_place import open_copy
from tidelog.cli.exits import FINE, guarded, terminate_in_order, until_pipe_closes
from tidelog.cli.journal.folder import real_disk
from tidelog.cli.options import AsJson, ShowsBar
from tidelog.cli.output.progress_bar import ReportProgress, progress_bar
from tidelog.cli.output.stdout import Column, Output
from tidelog.cli.output.values import time_of, time_or_number
from tidelog.cli.ship_options import ShipBandwidth, ShipKeep, ShipKeyFile
from tidelog.errors import DataDirectoryError, DirectoryInUse

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.ports import Disk
    from tidelog.shipping.once import OnceShipping, ShippedOnce
    from tidelog.store.store import Store

EPILOG: Final = """\
Examples:

  tidelog ship --data data --to s3://bucket/tidelog

  tidelog ship --data data --to s3://bucket/tidelog --ship-bandwidth 20mb --ship-key-file key

  tidelog ship status --url redis://10.0.0.5:6399

  tidelog backups ls s3://bucket/tidelog

JSON: kind "shipped" (to, database, lineage, manifest, ts, time, begins_ts, begins_time, snapshot_ts, snapshot_time,
objects, bytes: of these, what was uploaded just now).

Exit status: 0 if the copy has everything, 2 if it could not be made."""

_COLUMNS: Final = (
    Column("shipped to", style="bold"),
    Column("database"),
    Column("from"),
    Column("up to"),
    Column("snapshot"),
    Column("objects", right=True),
    Column("bytes", right=True),
)


def ship(
    context: typer.Context,
    data: Annotated[
        str | None, typer.Option("--data", metavar="DIR", help="The data directory of a server that is stopped.")
    ] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="URL", help="Where the copy is kept: s3://, gs://, az:// or a folder."),
    ] = None,
    ship_keep: ShipKeep = None,
    ship_bandwidth: ShipBandwidth = None,
    ship_key_file: ShipKeyFile = None,
    progress: ShowsBar = True,
    as_json: AsJson = False,
) -> None:
    """Copy the data directory of a stopped server to an object store, or (`status`) say how a copy stands.

    The directory is opened as a start of the server does, also after a crash: what a crash has torn is cut off, and a
    new epoch begins. If it has no snapshot, one is made. Killed and run again, it uploads what is missing. A server
    that is started later with `--ship-to` goes on with the copy. For a server that runs, use `tidelog serve --ship-to`.
    """
    if context.invoked_subcommand is not None:
        if data is not None or to is not None:
            raise typer.BadParameter(f"--data and --to do not belong to `tidelog ship {context.invoked_subcommand}`")
        return
    for value, name in ((data, "--data"), (to, "--to")):
        if not value:
            raise typer.BadParameter("it is needed", param_hint=name)
    assert data is not None
    assert to is not None
    keep_us, bytes_per_s = _values(ship_keep, ship_bandwidth)
    _ship(data, to, keep_us, bytes_per_s, ship_key_file, progress=progress, as_json=as_json)


def _values(ship_keep: str | None, ship_bandwidth: str | None) -> tuple[int, int]:
    from tidelog.engine.parameters import BadValue
    from tidelog.server.setting_values import read_retained_age_us, size_reader

    def read(value: str | None, reader: Callable[[Any], int], name: str, default: int) -> int:
        try:
            return default if value is None else reader(value)
        except BadValue as problem:
            raise typer.BadParameter(str(problem), param_hint=name) from None

    return (
        read(ship_keep, read_retained_age_us, "--ship-keep", limits.SHIP_KEEP_US),
        read(ship_bandwidth, size_reader("no limit"), "--ship-bandwidth", 0),
    )


@guarded
def _ship(
    data: str, to: str, keep_us: int, bytes_per_s: int, key_file: str | None, *, progress: bool, as_json: bool
) -> int:
    from tidelog.shipping.manifest_log import database_ids
    from tidelog.shipping.once import OnceShipping
    from tidelog.shipping.shipper import Shipper
    from tidelog.system.clock import SystemClock

    terminate_in_order()
    disk, clock, output = real_disk(), SystemClock(), Output(as_json=as_json)
    data = os.path.normpath(data)
    _check(disk, data)
    with progress_bar(is_wanted=progress) as moved:
        told = _Told(moved)
        objects = open_copy(to, key_file, bytes_per_s=bytes_per_s, is_new=True, on_bytes=told.more)
        database_ids(objects)  # whether it can be reached, before anything is done
        store = _open(disk, data, to)
        try:
            meta = store.journal.meta
            told.job = OnceShipping(store, Shipper(disk, data, meta, objects, clock, keep_us), clock, time.sleep)
            told.put = lambda: objects.bytes_put
            made = told.job.run()
        finally:
            store.journal.close()
    with until_pipe_closes():
        _print(output, to, meta.database_id, made)
    return FINE


class _Told:
    """Tells a progress bar how much of a job is done."""

    def __init__(self, moved: ReportProgress | None) -> None:
        self._moved = moved
        self.job: OnceShipping | None = None
        self.put: Callable[[], int] = int

    def more(self) -> None:
        if self._moved is not None and self.job is not None:
            total = self.job.bytes_total
            self._moved("shipping", min(self.put(), total), total)


def _check(disk: Disk, data: str) -> None:
    """Only a whole directory of a leader is shipped."""
    from tidelog.journal.layout import read_meta
    from tidelog.replication.message import LinkRole
    from tidelog.replication.role_file import read_role

    if read_meta(disk, data).point is not None:
        raise DataDirectoryError(f"{data} is a snapshot, not a data directory")
    role = read_role(disk, data)
    if role is not None and (role.role is not LinkRole.LEADER or role.is_deposed):
        raise DataDirectoryError(
            f"{data} belongs to a server that follows another one, or has to: ship the directory of the one that leads"
        )


def _open(disk: Disk, data: str, to: str) -> Store:
    from tidelog.journal.journal import Settings
    from tidelog.store.store import Store
    from tidelog.system.clock import SystemClock

    try:
        return Store.open(
            disk, data, SystemClock(), Settings(), new_epoch_id=lambda: secrets.randbits(63), random=random.Random()
        )
    except DirectoryInUse as error:
        raise DirectoryInUse(
            f"{error}. While a server runs, it keeps the copy itself: `tidelog serve --data {data} --ship-to {to}`"
        ) from None


def _print(output: Output, to: str, database_id: str, made: ShippedOnce) -> None:
    if output.as_json:
        members = {
            "to": to,
            "database": database_id,
            "lineage": made.lineage,
            "manifest": made.manifest,
            "ts": made.ts,
            "time": time_of(made.ts or None),
            "begins_ts": made.begins_ts,
            "begins_time": time_of(made.begins_ts or None),
            "snapshot_ts": made.snapshot_ts,
            "snapshot_time": time_of(made.snapshot_ts),
            "objects": made.objects,
            "bytes": made.size,
        }
        output.object("shipped", members)
        return
    begins = time_or_number(made.begins_ts) if made.begins_ts else "the beginning"
    row = (to, database_id, begins, time_or_number(made.ts or None), time_or_number(made.snapshot_ts))
    output.table(_COLUMNS, [(*row, made.objects, made.size)])
