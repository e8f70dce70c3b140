"""Leases: one holder, renewals, and tokens that increase."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tidelog.days.lease import Lease
from tidelog.errors import FormatError, LeaseLost

KEY = "tidelog:pipeline:lease:compress"


def wait_until_free(server: Any) -> None:
    deadline = time.monotonic() + 20
    while server.exists(KEY):
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_one_at_a_time(any_server: Any) -> None:
    first = Lease.take(any_server, "compress")
    assert first is not None
    assert Lease.take(any_server, "compress") is None
    assert 0 < any_server.pttl(KEY) <= 30_000
    other = Lease.take(any_server, "expire")
    assert other is not None
    first.release()
    second = Lease.take(any_server, "compress")
    assert second is not None
    assert second.token > first.token
    assert any_server.get("tidelog:pipeline:fence:compress") == b"%d" % second.token


def test_it_is_taken_over_when_it_has_ended(any_server: Any) -> None:
    first = Lease.take(any_server, "compress", ttl_ms=500)
    assert first is not None
    wait_until_free(any_server)
    second = Lease.take(any_server, "compress")
    assert second is not None
    assert second.token > first.token
    for attempt in (first.renew, first.release):
        with pytest.raises(LeaseLost, match=f"token {first.token} has ended"):
            attempt()
    second.renew()


def test_a_renewal_begins_a_new_term(server: Any) -> None:
    lease = Lease.take(server, "compress", ttl_ms=60_000)
    assert lease is not None
    server.pexpire(KEY, 5_000)
    lease.renew()
    assert server.pttl(KEY) > 50_000


def test_one_that_ends_before_it_is_counted_is_not_taken(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    original = server.time

    def slow() -> Any:
        server.delete(KEY)  # it expired ...
        assert server.set(KEY, "another")  # ... and somebody took it
        return original()

    monkeypatch.setattr(server, "time", slow)
    assert Lease.take(server, "compress") is None
    assert server.get(KEY) == b"another"


def test_tokens_increase_also_after_a_flush(any_server: Any) -> None:
    first = Lease.take(any_server, "compress")
    assert first is not None
    any_server.flushall()
    second = Lease.take(any_server, "compress")
    assert second is not None
    assert second.token > first.token
    any_server.set("tidelog:pipeline:fence:compress", 2 * second.token)  # a clock that was ahead
    second.release()
    third = Lease.take(any_server, "compress")
    assert third is not None
    assert third.token == 2 * second.token + 1


@pytest.mark.parametrize("is_fenced", [True, False])
def test_a_lease_that_was_flushed_is_taken_again(any_server: Any, is_fenced: bool) -> None:
    lease = Lease.take(any_server, "compress")
    assert lease is not None
    any_server.flushall()
    with pytest.raises(LeaseLost):
        lease.renew()
    assert lease.regain(is_fenced=is_fenced)
    lease.renew()
    if is_fenced:
        assert any_server.get("tidelog:pipeline:fence:compress") == b"%d" % lease.token
    any_server.flushall()
    other = Lease.take(any_server, "compress")
    assert other is not None
    assert not lease.regain(is_fenced=is_fenced)
    other.release()
    assert lease.regain(is_fenced=is_fenced) is not is_fenced, "somebody had it in between"
    assert any_server.exists(KEY) == (not is_fenced)


def test_a_token_that_is_none_is_named(server: Any) -> None:
    server.set("tidelog:pipeline:fence:compress", "x")
    with pytest.raises(FormatError, match="fence:compress: b'x' is not a token"):
        Lease.take(server, "compress")
