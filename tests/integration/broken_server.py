"""A server with bugs in it, to see what becomes of them: run as `tidelog` is.

ECHO fails            a handler of the kind CONNECTION
STRLEN fails          a handler that reads
APPEND fails          a handler that writes, before it has decided anything
RANDOMKEY             returns what no reply can be
SET boom ...          fails while it is applied, on the general path
HSET boom f v         fails on the hot path, when it has changed something already
"""

from __future__ import annotations

import dataclasses
import runpy
from pathlib import Path
from typing import Any, NoReturn

if __name__ == "__main__":  # before the others: what is compiled cannot be patched
    runpy.run_path(str(Path(__file__).parents[1] / "from_sources" / "sitecustomize.py"))

from tidelog.cli import main
from tidelog.commands import connection, keys, strings
from tidelog.engine.table import Command
from tidelog.server import hot
from tidelog.store.keyspace import Database

SECRET = "a value that must not be logged"


def fail(_where: Any, arguments: Any) -> NoReturn:
    raise ValueError(f"{SECRET}: {arguments!r}")


def replace(rows: list[Command], name: str, handler: Any) -> None:
    index = next(index for index, row in enumerate(rows) if row.name == name)
    rows[index] = dataclasses.replace(rows[index], handler=handler)


def break_everything() -> None:
    replace(connection.COMMANDS, "ECHO", fail)
    replace(strings.COMMANDS, "STRLEN", fail)
    replace(strings.COMMANDS, "APPEND", fail)
    replace(keys.COMMANDS, "RANDOMKEY", lambda _transaction, _arguments: object())
    put = Database.put

    def put_or_fail(self: Database, key: bytes, value: Any, expire_ms: int | None = None) -> None:
        if key == b"boom":
            fail(None, value)
        put(self, key, value, expire_ms)

    Database.put = put_or_fail  # type: ignore[method-assign]
    broken: Any = hot
    encode_field = broken.encode_field

    def encode_field_or_fail(key: bytes, field: bytes, value: bytes) -> bytes:
        if key == b"boom":
            fail(None, field)
        encoded: bytes = encode_field(key, field, value)
        return encoded

    broken.encode_field = encode_field_or_fail


if __name__ == "__main__":
    break_everything()
    main()
