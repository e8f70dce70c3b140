"""Options that several commands have, each with its help text. An option of one command stands with that command."""

from __future__ import annotations

from typing import Annotated

import typer

# --- the server -------------------------------------------------------------------------------------------------------

Url = Annotated[
    str,
    typer.Option(
        metavar="URL",
        envvar="TIDELOG_URL",
        help="The server: redis://HOST:PORT[/DATABASE], rediss://... (TLS) or unix:///PATH. Several, of which one "
        "leads: redis://HOST:PORT,HOST:PORT,..., or by Sentinels: redis+sentinel://HOST:PORT,.../SERVICE[/DATABASE].",
    ),
]
PasswordFile = Annotated[
    str | None,
    typer.Option(
        "--password-file",
        metavar="FILE",
        help="Read the server's password from the first line of this file. Without this option, the password in the "
        "URL is used, or the file that TIDELOG_REQUIREPASS_FILE names.",
    ),
]
DatabaseNumber = Annotated[
    int, typer.Option("--database", "-n", metavar="N", help="The number of the database.", min=0, max=15)
]
FromFollowers = Annotated[
    bool,
    typer.Option(
        "--from-followers",
        help="Of several servers, read changes from one that follows the leader, if one is connected to it.",
    ),
]
IsCluster = Annotated[
    bool,
    typer.Option(
        "--cluster",
        help="The server is a node of a Redis Cluster. (The URL may say so, too: redis+cluster://HOST:PORT.)",
    ),
]

# --- the output -------------------------------------------------------------------------------------------------------

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON lines: one object a line, each with its `kind`.")]
ShowsBar = Annotated[
    bool, typer.Option("--progress/--no-progress", help="Show a progress bar if stderr is a terminal.")
]
ShowsLine = Annotated[
    bool, typer.Option("--progress/--no-progress", help="Show a line with the progress if stderr is a terminal.")
]

# --- day streams ------------------------------------------------------------------------------------------------------

Queue = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue.", show_default=False)]
JobSetName = Annotated[str, typer.Argument(metavar="JOBSET", help="The job set.", show_default=False)]

# --- channels ---------------------------------------------------------------------------------------------------------

ChannelUrl = Annotated[
    str,
    typer.Option(
        "--url",
        metavar="URL",
        envvar="TIDELOG_URL",
        help="The server that keeps the channels: redis://HOST:PORT[/DATABASE], rediss://... (TLS) or unix:///PATH. "
        "Several, of which one leads: redis://HOST:PORT,HOST:PORT,..., or by Sentinels: "
        "redis+sentinel://HOST:PORT,.../SERVICE[/DATABASE]. A Redis Cluster: redis+cluster://HOST:PORT,...",
    ),
]
ChannelName = Annotated[str, typer.Argument(metavar="CHANNEL", help="The channel.", show_default=False)]
SubscriberName = Annotated[str, typer.Argument(metavar="SUBSCRIBER", help="The subscriber.", show_default=False)]
ChannelExpire = Annotated[
    str,
    typer.Option(
        "--expire",
        metavar="AGE",
        help="How long the channel keeps messages, and subscribers that acknowledge nothing, such as 30m or 24h. Use "
        "the same for all commands and servers of a channel.",
    ),
]

# --- jobs on Spark ----------------------------------------------------------------------------------------------------

Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="MASTER",
        help="Where Spark runs: spark://HOST:PORT, yarn, k8s://..., local[4]. Without this option, MASTER or "
        "spark-submit decides; otherwise all cores of this machine are used.",
        show_default=False,
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="A Spark setting; repeatable.", show_default=False),
]
LeaseSeconds = Annotated[
    float,
    typer.Option(
        "--lease-seconds",
        metavar="S",
        min=1.0,
        help="After a job was killed, no other job of its kind starts for up to this long.",
    ),
]
Once = Annotated[
    bool,
    typer.Option(
        "--once/--continuous", help="Process what there is now and end, or keep running and follow the changes."
    ),
]
BatchRecords = Annotated[
    int,
    typer.Option("--batch-records", metavar="N", min=1, help="About how many records a batch takes from each shard."),
]
TriggerSeconds = Annotated[
    float, typer.Option("--trigger-seconds", metavar="S", min=0, help="How often to look for new records.")
]

# --- jobs over day streams --------------------------------------------------------------------------------------------

OlderThanDays = Annotated[
    int,
    typer.Option(
        "--older-than-days",
        metavar="N",
        min=0,
        help="Take days whose UTC date is more than N days before today. With 2 on the 10th, the last day taken is the "
        "7th.",
        show_default=False,
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only list what the job would work on.")]
Today = Annotated[
    str | None,
    typer.Option("--today", metavar="YYYY-MM-DD", help="Count from this day instead of today.", show_default=False),
]

# --- the lake and its views -------------------------------------------------------------------------------------------

To = Annotated[
    str,
    typer.Option(
        "--to",
        metavar="PATH",
        help="The folder of the lake, or its URL in an object store: s3://BUCKET/PATH.",
        show_default=False,
    ),
]
StorageOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--storage",
        metavar="NAME=VALUE",
        help="An fsspec option for the object store, such as key, secret, endpoint_url or region; repeatable. "
        "Environment variables such as AWS_SECRET_ACCESS_KEY work, too, and do not show up in a list of processes.",
        show_default=False,
    ),
]
ViewName = Annotated[str, typer.Argument(metavar="NAME", help="The view.", show_default=False)]
