"""What a row of the table says of a command is what COMMAND INFO of a real Redis says."""

from __future__ import annotations

from typing import Final

import pytest

from tests.conformance.redis_7_2 import LATER_ARITIES, LATER_COMMANDS, flags_of
from tests.conformance.redis_oracle import Socket, command_rows, decode
from tidelog.engine.table import Command

OURS: Final = ("T", "CHANGEFEED", "FEED", "DELRANGE", "DELPREFIX")
"""How the names of commands begin that Redis has not."""


@pytest.mark.parametrize("row", command_rows(), ids=lambda row: row.name)
def test_row(row: Command, redis_peer: Socket) -> None:
    (info,) = decode(redis_peer.call([b"COMMAND", b"INFO", row.name.encode()]))
    if info is None:
        assert row.name.startswith(OURS) or row.name in LATER_COMMANDS, "Redis has no such command"
        return
    name, arity, flags, first, last, step, *_ = info
    assert name == row.name.lower().encode()
    arity = LATER_ARITIES.get(row.name, arity)
    theirs = {
        "arity": arity,
        "flags": flags_of(row.name, {flag.decode() for flag in flags}),
        "keys": (first, last, step),
    }
    ours = {"arity": row.arity, "flags": set(row.flags), "keys": (row.keys.first, row.keys.last, row.keys.step)}
    assert ours == theirs
    assert row.summary


def test_counted_keys_stand_where_redis_has_them(redis_peer: Socket) -> None:
    for row in command_rows():
        (info,) = decode(redis_peer.call([b"COMMAND", b"INFO", row.name.encode()]))
        specs = [] if info is None else [dict(zip(spec[::2], spec[1::2], strict=True)) for spec in info[8]]
        counted = [spec[b"begin_search"][3][1] for spec in specs if spec[b"find_keys"][1] == b"keynum"]
        assert counted == ([row.keys.count_at] if row.keys.count_at else []), row.name
