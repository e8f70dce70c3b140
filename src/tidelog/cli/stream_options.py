"""What `tidelog stream ...` commands share: which server, and what it says of a stream."""

from __future__ import annotations

from typing import Annotated, Any

import typer

Url = Annotated[
    str,
    typer.Option(
        metavar="URL",
        envvar="TIDELOG_URL",
        help="The server: redis://HOST:PORT[/DATABASE], rediss://... (TLS) or unix:///PATH.",
    ),
]
PasswordFile = Annotated[
    str | None,
    typer.Option(
        "--password-file",
        metavar="FILE",
        help="The server's password is the first line of this file. Without it, the one in the URL counts, or the file "
        "that TIDELOG_REQUIREPASS_FILE names.",
    ),
]
Database = Annotated[int, typer.Option("--database", "-n", metavar="N", help="The database.", min=0, max=15)]


def facts_of(reply: list[Any]) -> dict[str, Any]:
    """TINFO's reply: names and values in turn, also of each group."""
    found = {name.decode(): value for name, value in zip(reply[::2], reply[1::2], strict=True)}
    if "groups" in found:
        found["groups"] = [facts_of(group) for group in found["groups"]]
    return found
