"""Changing the password of a running server, on Tidelog and on a real Redis."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.socket_pair import Both

SECRET = "open sesame"


@pytest.fixture
def unlocked(both: Both) -> Iterator[Both]:
    """Both have no password, nor after the test."""
    yield both
    both.admin.each("CONFIG", "SET", "requirepass", "")


@pytest.fixture
def locked(unlocked: Both) -> Both:
    """Both have a password; the admin was in before."""
    unlocked.admin("CONFIG", "SET", "requirepass", SECRET)
    return unlocked


def test_clients_that_are_in_stay_in(unlocked: Both, protocol: int) -> None:
    both = unlocked
    before = both.connect(protocol)
    before("PING")  # or the server might take the connection only once there is a password
    both.admin("CONFIG", "SET", "requirepass", SECRET)
    before("SET", "k", "v")
    after = both.connect()
    after("GET", "k")
    after("SELECT", 1)
    after("AUTH", "wrong")
    after("AUTH", "default", SECRET)
    after("GET", "k")
    both.admin("CONFIG", "SET", "requirepass", "another")
    after("GET", "k")
    after("AUTH", SECRET)
    after("GET", "k")
    after("RESET")
    after("GET", "k")
    after("AUTH", "another")
    after("GET", "k")
    both.admin("CONFIG", "SET", "requirepass", "")
    both.connect(protocol)("GET", "k")


def test_strangers_are_let_in_when_there_is_no_password_any_more(locked: Both) -> None:
    stranger = locked.connect()
    stranger("PING")
    locked.admin("CONFIG", "SET", "requirepass", "")
    stranger("PING")
    stranger("AUTH", SECRET)
    stranger("AUTH", "default", SECRET)
    stranger("SELECT", 1)


@pytest.mark.parametrize(
    "words",
    [
        ["CONFIG", "SET", "requirepass"],
        ["CONFIG", "SET", "requirepass", "a", "requirepass", "b"],
        ["CONFIG", "SET", "maxmemory", "x", "requirepass", "never set"],
        ["CONFIG", "SET", "requirepass", "never set", "maxmemory", "x"],
    ],
)
def test_a_request_that_is_refused_changes_nothing(locked: Both, words: list[str]) -> None:
    locked.admin(*words)
    link = locked.connect()
    link("AUTH", "never set")
    link("AUTH", SECRET)


def test_a_transaction_changes_it(unlocked: Both) -> None:
    both = unlocked
    both.admin("MULTI")
    both.admin("CONFIG", "SET", "requirepass", SECRET)
    both.admin("GET", "k")
    both.admin("EXEC")
    both.connect()("GET", "k")
    both.admin("CONFIG", "SET", "requirepass", "")
    both.connect()("GET", "k")


def test_only_redis_shows_it(locked: Both) -> None:
    theirs, ours = locked.admin.each("CONFIG", "GET", "requirepass")
    assert theirs == [b"requirepass", SECRET.encode()]
    assert ours == [b"requirepass", b"(redacted)"]
    locked.admin("CONFIG", "SET", "requirepass", "")
    assert locked.admin("CONFIG", "GET", "requirepass") == [b"requirepass", b""]
