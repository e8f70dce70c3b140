"""Who may ask over HTTP."""

from __future__ import annotations

import pytest
from starlette.datastructures import Headers

from tidelog.gateway.hosts import HostGuard, host_name, is_loopback


async def app(*_: object) -> None: ...


def problem(
    headers: list[tuple[str, str]], client: tuple[str, int] | None = ("127.0.0.1", 5), **options: bool
) -> str | None:
    guard = HostGuard(app, ["Tides.example"], is_protected=lambda: options.get("is_protected", False))
    raw = [(name.lower().encode(), value.encode()) for name, value in headers]
    return guard.problem(Headers(raw=raw), client)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8399", "[::1]:8399", "127.1.2.3", "tides.EXAMPLE:1"])
def test_known_hosts(host: str) -> None:
    assert problem([("Host", host)]) is None


@pytest.mark.parametrize(
    "host", ["", "evil.example", "tides.example.evil", "0.0.0.0", "[", "localhost.evil", "10.0.0.1"]
)
def test_unknown_hosts(host: str) -> None:
    assert "unknown Host" in (problem([("Host", host)]) or "")


def test_no_host_or_two() -> None:
    assert problem([]) is not None
    assert problem([("Host", "localhost"), ("Host", "localhost")]) is not None


def test_origins() -> None:
    assert problem([("Host", "localhost"), ("Origin", "http://localhost:3000")]) is None
    for origin in ("null", "https://evil.example", "file://", ""):
        assert problem([("Host", "localhost"), ("Origin", origin)]) == "unknown Origin"


def test_protected_mode() -> None:
    hosts = [("Host", "localhost")]
    assert problem(hosts, ("10.0.0.1", 5), is_protected=True) is not None
    assert problem(hosts, ("10.0.0.1", 5)) is None
    assert problem(hosts, ("::1", 5), is_protected=True) is None


def test_names() -> None:
    assert host_name("[::1]:80") == "::1"
    assert host_name("user@evil:80") == "evil"
    assert is_loopback("::ffff:127.0.0.1")
    assert not is_loopback("localhost")
