"""Options of copies in object stores, which several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

ShipTo = Annotated[
    str | None,
    typer.Option(
        "--ship-to",
        metavar="URL",
        help="Keep a copy of everything there, a second behind: s3://, gs://, az:// with a bucket and a path, or a "
        "folder. Credentials come from the environment, as for other tools.",
    ),
]
ShipKeep = Annotated[
    str | None,
    typer.Option(
        "--ship-keep",
        metavar="AGE",
        help="How far back the copy can be restored: an age such as 24h or 30d; 0: for ever. [default: 30d]",
    ),
]
ShipBandwidth = Annotated[
    str | None,
    typer.Option(
        "--ship-bandwidth", metavar="SIZE", help="Upload at most this much a second; 0: no limit. [default: 0]"
    ),
]
ShipKeyFile = Annotated[
    str | None,
    typer.Option(
        "--ship-key-file",
        metavar="FILE",
        help="Encrypt the copy with the key in this file (32 bytes, or 64 hex digits), before it leaves this machine.",
    ),
]
LocalHistory = Annotated[
    str | None,
    typer.Option(
        "--local-history",
        metavar="AGE",
        help="With --ship-to: entries on disk that are older than this, such as 7d, lie only in the copy, and are read "
        "from there. [default: all are on disk]",
    ),
]
HistoryCache = Annotated[
    str | None,
    typer.Option(
        "--history-cache",
        metavar="SIZE",
        help="Of the disk, for what is read of entries that lie only in the copy. [default: 1gb]",
    ),
]
HistoryBandwidth = Annotated[
    str | None,
    typer.Option(
        "--history-bandwidth",
        metavar="SIZE",
        help="Fetch at most this much a second of what is to come back from the copy; 0: no limit. [default: 32mb]",
    ),
]
RestoreLazy = Annotated[
    bool | None,
    typer.Option(
        "--restore-lazy/--no-restore-lazy",
        help="With --restore-from: begin to serve while old entries are still in the copy, and fetch them meanwhile. "
        "[default: no]",
    ),
]
CopyKeyFile = Annotated[
    str | None,
    typer.Option("--ship-key-file", metavar="FILE", help="The key of an encrypted copy."),
]
RestoreFrom = Annotated[
    str | None,
    typer.Option(
        "--restore-from",
        metavar="URL",
        help="If the data directory is empty, restore it from this copy first, and go on as the same database.",
    ),
]
RestoreWait = Annotated[
    str | None,
    typer.Option(
        "--restore-wait",
        metavar="AGE",
        help="Before that, wait until no server has shipped to the copy for this long. [default: 60s]",
    ),
]
FollowFrom = Annotated[
    str | None,
    typer.Option(
        "--follow-from",
        metavar="URL",
        help="Follow this copy, read-only, with no server to connect to: load it, and go on as more is shipped. Until "
        "REPLICAOF says otherwise.",
    ),
]
DatabaseId = Annotated[
    str | None,
    typer.Option("--database", metavar="ID", help="Which database of the copy, if there are several."),
]
KeyOfCopy = Annotated[
    str | None,
    typer.Option(
        "--ship-key-file",
        metavar="FILE",
        help="The key that the copy is encrypted with is in this file (32 bytes, or 64 hex digits).",
    ),
]
