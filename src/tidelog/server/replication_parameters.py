"""The parameters of replication, which CONFIG shows and changes, under both names that Redis has given them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from tidelog.engine.parameters import ApplyValue, BadValue, Parameter, alias, constant, number, switch
from tidelog.engine.table import REDACTED
from tidelog.ports import NetworkAddress
from tidelog.replication.options import ReplicationOptions
from tidelog.server.leader_password import LeaderPassword
from tidelog.server.setting_values import PORT_MAX, SECRET_BYTES_MAX, read_word

_INT_MAX: Final = 2**31 - 1


def replication_parameters(
    options: ReplicationOptions,
    password: LeaderPassword,
    *,
    leader: Callable[[], NetworkAddress | None],
    options_changed: Callable[[], None],
) -> Iterator[Parameter]:
    """All of them. `options_changed` is called when something in `options` has."""

    def put_followers_min(value: int) -> None:
        options.followers_min = value
        options_changed()

    def put_lag(value: int) -> None:
        options.follower_lag_max_s = value
        options_changed()

    def put_stale(is_served: bool) -> None:
        options.serves_stale_data = is_served
        options_changed()

    def put_priority(value: int) -> None:
        options.priority = value
        options_changed()

    def put_announced(is_announced: bool) -> None:
        options.is_announced = is_announced
        options_changed()

    def put_port(value: int) -> None:
        options.announce_port = value
        options_changed()

    def read_host(text: str) -> ApplyValue:
        try:
            host = read_word(text)
        except BadValue as problem:
            raise BadValue(f"argument {problem}") from None

        def put() -> None:
            options.announce_host = host
            options_changed()

        return put

    found = [
        number("min-replicas-to-write", lambda: options.followers_min, put_followers_min, 0, _INT_MAX),
        number("min-replicas-max-lag", lambda: options.follower_lag_max_s, put_lag, 0, _INT_MAX),
        number("replica-priority", lambda: options.priority, put_priority, 0, _INT_MAX),
        number("replica-announce-port", lambda: options.announce_port, put_port, 0, PORT_MAX),
        Parameter("replica-announce-ip", lambda: options.announce_host, read_host),
        switch("replica-serve-stale-data", lambda: options.serves_stale_data, put_stale),
        constant("replica-read-only", "yes", "a follower has what its leader has: nobody can write to it"),
        Parameter("replicaof", lambda: " ".join(map(str, leader() or ()))),
    ]
    yield from found
    for parameter in found:
        yield alias(parameter.name.replace("replica", "slave"), parameter)
    yield switch("replica-announced", lambda: options.is_announced, put_announced)
    yield Parameter(
        "masterauth",
        lambda: REDACTED.decode() if password.is_own else "",
        lambda text: _read_password(password, text),
    )
    yield constant("masteruser", "", "there is one user: masterauth is the password of the leader")


def _read_password(password: LeaderPassword, text: str) -> ApplyValue:
    secret = text.encode("utf-8", "surrogateescape")
    if secret == REDACTED:
        raise BadValue("CONFIG GET shows this instead of the password: it is none")
    if len(secret) > SECRET_BYTES_MAX:
        raise BadValue(f"a password has at most {SECRET_BYTES_MAX} bytes")
    return lambda: password.change(secret or None)
