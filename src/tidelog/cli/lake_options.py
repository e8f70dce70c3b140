"""What commands about the lake and its views share: where it lies, and how long a job runs."""

from __future__ import annotations

from typing import Annotated

import typer

To = Annotated[
    str,
    typer.Option(
        "--to",
        metavar="PATH",
        help="The folder of the lake, or a URL of an object store: s3://BUCKET/PATH.",
        show_default=False,
    ),
]
StorageOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--storage",
        metavar="NAME=VALUE",
        help="For an object store: key, secret, endpoint_url, region ... as fsspec has them; may be given again. "
        "AWS_SECRET_ACCESS_KEY and others of the environment work, too, and no list of processes shows them.",
        show_default=False,
    ),
]
Once = Annotated[
    bool,
    typer.Option("--once/--continuous", help="Take what there is and end, or stay and follow what changes."),
]
ShowsProgress = Annotated[
    bool, typer.Option("--progress/--no-progress", help="A line that says how far it is, if stderr is a terminal.")
]
