"""Flight and the role of the server: a follower is read from, unless its data is too old, and never written to."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.engine.made import NoLoop, make_engine
from tests.engine.roles import MASTER_DOWN, READ_ONLY, HandMadeRole
from tidelog.errors import CommandError
from tidelog.flight.request import ReadRequest
from tidelog.flight.service import Service
from tidelog.journal.journal import Settings
from tidelog.store.store import Store
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk


def test_the_role_of_the_server_holds_for_flight() -> None:
    clock = SimulatedClock()
    store = Store.open(SimulatedDisk(1), "/data", clock, Settings(), lambda: 1, Random(1))
    engine = make_engine(store, clock, NoLoop())
    role, turns = HandMadeRole(engine), Any
    service, request = Service(engine, turns), ReadRequest(b"s")  # type: ignore[arg-type]
    assert service.append(b"s", 0, [b"t"], [b"e"]) == 1
    role.follow(("leader", 1))
    with pytest.raises(CommandError, match=READ_ONLY):
        service.append(b"s", 0, [b"t"], [b"e"])
    assert service.facts(request).length == 1
    assert len(service.streams(0, 10)) == 1
    role.refuse(READ_ONLY, MASTER_DOWN)
    for read in (
        lambda: service.read_slice(request, None, None),
        lambda: service.facts(request),
        lambda: service.streams(0, 10),
    ):
        with pytest.raises(CommandError, match="MASTERDOWN"):
            read()
    role.lead()
    assert service.append(b"s", 0, [b"t"], [b"e"]) == 2
