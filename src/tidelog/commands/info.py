"""INFO: facts about the server, as text, in sections."""

from __future__ import annotations

from typing import Final

from tidelog.engine.session import Session
from tidelog.engine.table import SERVER, Arguments, Command, connection
from tidelog.resp.encoder import Reply, Verbatim

SECTIONS: Final = {
    "server": "Server",
    "clients": "Clients",
    "memory": "Memory",
    "persistence": "Persistence",
    "stats": "Stats",
    "replication": "Replication",
    "cpu": "CPU",
    "modules": "Modules",
    "commandstats": "Commandstats",
    "errorstats": "Errorstats",
    "cluster": "Cluster",
    "keyspace": "Keyspace",
    "tidelog": "Tidelog",
    "feeds": "Feeds",
    "streams": "Streams",
    "shipping": "Shipping",
    "history": "History",
}
"""Name -> head, in the order of the reply."""
_ON_REQUEST: Final = frozenset(["commandstats"])
"""Not part of `INFO` without arguments."""


def info(session: Session, arguments: Arguments) -> Reply:
    wanted: set[str] = set()
    for argument in arguments[1:] or [b"default"]:
        name = argument.decode("utf-8", "surrogateescape").lower()
        if name == "default":
            wanted |= SECTIONS.keys() - _ON_REQUEST
        elif name in ("all", "everything"):
            wanted |= SECTIONS.keys()
        else:
            wanted.add(name)
    texts = []
    for name, head in SECTIONS.items():
        facts = session.engine.process.facts(name) if name in wanted else None
        if facts is not None:
            lines = [f"# {head}\r\n", *(f"{key}:{value}\r\n" for key, value in facts.items())]
            texts.append("".join(lines))
    return Verbatim("\r\n".join(texts).encode("utf-8", "surrogateescape"))


COMMANDS: list[Command] = [
    connection(SERVER, "INFO", -1, info, "loading stale @dangerous", summary="return facts about the server")
]
