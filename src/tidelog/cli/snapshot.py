"""`tidelog snapshot`: a backup of a data directory, whether or not a server is running on it."""

from __future__ import annotations

import random
import secrets
import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tidelog.address import URL_DEFAULT
from tidelog.cli.exits import FINE, guarded, until_pipe_closes
from tidelog.cli.journal.folder import real_disk
from tidelog.cli.options import AsJson, PasswordFile, ShowsBar
from tidelog.cli.output.progress_bar import ReportProgress, progress_bar
from tidelog.cli.output.stdout import Column, Output
from tidelog.cli.output.values import time_of, time_or_number
from tidelog.cli.server_link import ServerLink, connect
from tidelog.errors import DataDirectoryError, DirectoryInUse, ServerRefused, SnapshotFailed

if TYPE_CHECKING:
    from tidelog.ports import Disk
    from tidelog.store.backup import Backup

EPILOG: Final = """\
Examples:

  tidelog snapshot --data data --to backup-monday

  tidelog snapshot --data data --to backup-monday --url redis://10.0.0.5:6399 --password-file secret.txt

  tidelog restore backup-monday --data restored

JSON: kind "backup" (path, ts, time, shards, keys, bytes).

Exit status: 0 if the backup is complete, 1 if the snapshot is damaged, 2 if the backup could not be made."""

_COLUMNS: Final = (
    Column("backup", style="bold"),
    Column("time"),
    Column("ts", right=True),
    Column("shards", right=True),
    Column("keys", right=True),
    Column("bytes", right=True),
)
_POLL_S: Final = 0.05
_WAIT_S_MAX: Final = 24 * 3600


@guarded
def snapshot(
    data: Annotated[str, typer.Option(metavar="DIR", help="The data directory.", show_default=False)],
    to: Annotated[str, typer.Option(metavar="BACKUP", help="The folder to create; it must not exist.")],
    url: Annotated[
        str,
        typer.Option(
            metavar="URL",
            envvar="TIDELOG_URL",
            help="The server that has DIR open, if there is one: redis://HOST:PORT, rediss://... (TLS) or "
            "unix:///PATH.",
        ),
    ] = URL_DEFAULT,
    password_file: PasswordFile = None,
    progress: ShowsBar = True,
    as_json: AsJson = False,
) -> int:
    """Make a backup of a data directory.

    If a server has the directory open, this command asks the server for a snapshot, which blocks no client, and copies
    it. Otherwise it makes the snapshot itself. BACKUP appears only once the copy is complete, synced and checked.
    """
    from tidelog.store.backup import check_free, copy_newest_snapshot

    disk, output = real_disk(), Output(as_json=as_json)
    data, to = data.rstrip("/") or "/", to.rstrip("/") or "/"
    check_free(disk, to)
    with progress_bar(is_wanted=progress) as moved:
        _make_snapshot(disk, data, url, password_file, moved)
        copied = None if moved is None else lambda done, total: moved("copying", done, total)
        backup = copy_newest_snapshot(disk, data, to, copied)
    with until_pipe_closes():  # it is done, whoever listens
        _print(output, backup)
    return FINE


def _make_snapshot(disk: Disk, data: str, url: str, password_file: str | None, moved: ReportProgress | None) -> None:
    from tidelog.journal.journal import Settings
    from tidelog.journal.layout import read_meta
    from tidelog.store.store import Store
    from tidelog.system.clock import SystemClock

    if read_meta(disk, data).point is not None:
        raise DataDirectoryError(f"{data} is a snapshot, not a data directory")
    try:
        store = Store.open(
            disk, data, SystemClock(), Settings(), new_epoch_id=lambda: secrets.randbits(63), random=random.Random()
        )
    except DirectoryInUse:
        with connect(url, password_file) as link:
            _ask_server(disk, data, link, moved)
        return
    try:
        store.save()
    finally:
        store.journal.close()


def _ask_server(disk: Disk, data: str, link: ServerLink, moved: ReportProgress | None) -> None:
    """Let the server make a snapshot, and wait until it is there."""
    from tidelog.ids import Ts
    from tidelog.journal.layout import LOCK, read_file
    from tidelog.journal.snapshot import snapshot_path

    holder, process = read_file(disk, f"{data}/{LOCK}").split(b"\n")[0].decode(), link.info("server")["process_id"]
    if holder != process:
        raise DataDirectoryError(
            f"{data} is open in process {holder}, but the server at {link.url} is process {process}: --url must name "
            f"the server of this directory"
        )
    deadline = time.monotonic() + _WAIT_S_MAX
    while not _begin(link):  # one that began before us does not show this moment
        _wait(link, deadline, moved)
    _wait(link, deadline, moved)
    if link.info("persistence")["rdb_last_bgsave_status"] != "ok":
        raise SnapshotFailed(f"the server made no snapshot: {link.info('tidelog')['snapshot_error']}")
    made = snapshot_path(data, Ts(int(link.info("tidelog")["snapshot_ts"])))
    if not disk.exists(made):
        raise DataDirectoryError(f"the server at {link.url} made a snapshot, but not in {data}: {made} is not there")


def _begin(link: ServerLink) -> bool:
    try:
        link.call(b"BGSAVE")
    except ServerRefused as refusal:
        if "already in progress" not in str(refusal):
            raise
        return False
    return True


def _wait(link: ServerLink, deadline_s: float, moved: ReportProgress | None) -> None:
    while (facts := link.info("persistence"))["rdb_bgsave_in_progress"] != "0":
        if moved is not None:
            done, total = int(facts["current_save_keys_processed"]), int(facts["current_save_keys_total"])
            moved("saving", min(done, total), total)
        if time.monotonic() > deadline_s:
            raise SnapshotFailed(f"the server at {link.url} did not finish its snapshot in time")
        time.sleep(_POLL_S)


def _print(output: Output, backup: Backup) -> None:
    if output.as_json:
        members = {
            "path": backup.path,
            "ts": backup.ts,
            "time": time_of(backup.ts),
            "shards": backup.shard_count,
            "keys": backup.keys,
            "bytes": backup.size_bytes,
        }
        output.object("backup", members)
        return
    row = (backup.path, time_or_number(backup.ts), str(backup.ts), backup.shard_count, backup.keys, backup.size_bytes)
    output.table(_COLUMNS, [row])
