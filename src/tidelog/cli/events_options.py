"""What `tidelog events ...` commands share: which job set, on which server, and what becomes of its errors."""

from __future__ import annotations

import signal
from contextlib import AbstractContextManager
from typing import Annotated, Any

import typer

from tidelog.cli.server_link import connected, find_address

Queue = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue.", show_default=False)]
JobSetName = Annotated[str, typer.Argument(metavar="JOBSET", help="The job set.", show_default=False)]
IsCluster = Annotated[bool, typer.Option("--cluster", help="The server is a node of a Redis Cluster.")]


class Terminated(KeyboardInterrupt):
    """SIGTERM. It goes the way of Ctrl-C, and ends the command in order."""


def terminate_in_order() -> None:
    """From now on, SIGTERM is `Terminated`."""

    def on_terminate(_number: int, _frame: object) -> None:
        raise Terminated

    signal.signal(signal.SIGTERM, on_terminate)


def days_server(
    url: str, password_file: str | None, database: int, *, is_cluster: bool = False
) -> AbstractContextManager[Any]:
    """A client of the server that the options name, be it Tidelog or any Redis. Errors in the block become ours."""
    return connected(find_address(url, password_file, database, is_cluster=is_cluster))
