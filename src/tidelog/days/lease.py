"""One job at a time: a lease that ends by itself, and a token that tells later holders from earlier ones.

    tidelog:pipeline:lease:<name>    the holder of the lease, until it expires
    tidelog:pipeline:fence:<name>    the token of the last holder

A lease is taken with SET NX PX, then gets its token, then is checked to be still ours. If it is, a later holder gets a
later token, so tokens increase in the order in which the lease was held. The lease alone does not prove that nobody
else works: a job may stall past its end and not know it. The token proves it, at the fence of the data (`fence.py`).

A token is the time of the server in µs, or one more than the last if that is higher. So tokens increase even if
somebody flushes the database and the last one is lost. A job whose lease was flushed takes it again and goes on, unless
another had it meanwhile.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

from tidelog import limits
from tidelog.days.exchange import RedisClient, bytes_server, decide
from tidelog.days.message import shown
from tidelog.errors import FormatError, LeaseLost
from tidelog.keys import LEASE_COUNT_PREFIX, LEASE_PREFIX


def count_key(name: str) -> bytes:
    """The key with the newest token of a lease."""
    return f"{LEASE_COUNT_PREFIX}{name}".encode()


def token_of(key: bytes, text: bytes | None) -> int:
    """The token that a key has; 0 if there is none."""
    if text is not None and not text.isdigit():
        raise FormatError(f"{text[:40]!r} is not a token", path=shown(key))
    return int(text or 0)


def _next_token(server: RedisClient, name: str) -> int:
    key = count_key(name)

    def decision(pipeline: Any) -> int:
        seconds, microseconds = map(int, server.time())
        token: int = max(token_of(key, pipeline.get(key)) + 1, 1_000_000 * seconds + microseconds)
        pipeline.multi()
        pipeline.execute_command("SET", key, token)
        return token

    return decide(server, f"counting the lease {name!r}", [key], decision)


class Lease:
    """A lease that is held; made by `take`."""

    def __init__(self, server: RedisClient, name: str, owner: bytes, ttl_ms: int) -> None:
        self._server = server
        self._name = name
        self._key = f"{LEASE_PREFIX}{name}".encode()
        self._owner = owner
        self._ttl_ms = ttl_ms
        self.token = 0
        """Higher than that of every earlier holder."""

    @classmethod
    def take(cls, server: RedisClient, name: str, *, ttl_ms: int = limits.LEASE_MS_DEFAULT) -> Lease | None:
        """The lease, if nobody has it."""
        made = cls(bytes_server(server), name, secrets.token_hex(16).encode(), ttl_ms)
        if not server.set(made._key, made._owner, nx=True, px=ttl_ms):
            return None
        made.token = _next_token(server, name)
        return made if server.get(made._key) == made._owner else None

    def renew(self) -> None:
        """Hold it for another term; `LeaseLost` if it has ended."""
        self._if_ours(lambda pipeline: pipeline.execute_command("PEXPIRE", self._key, self._ttl_ms))

    def regain(self, *, is_fenced: bool) -> bool:
        """Take it once more after it has ended, with the same token; False: somebody else has it.

        If the token is compared at a fence, nobody else may have had it meanwhile, either.
        """
        if not self._server.set(self._key, self._owner, nx=True, px=self._ttl_ms):
            return False
        if is_fenced and not self._is_newest():
            self.release()
            return False
        return True

    def _is_newest(self) -> bool:
        """Whether ours is the newest token, after it was put back if it was lost."""
        key = count_key(self._name)

        def decision(pipeline: Any) -> bool:
            found = token_of(key, pipeline.get(key))
            if found < self.token:
                pipeline.multi()
                pipeline.execute_command("SET", key, self.token)
            return found <= self.token

        return decide(self._server, f"counting the lease {self._name!r}", [key], decision)

    def release(self) -> None:
        """Let others have it at once; `LeaseLost` if they already do."""
        self._if_ours(lambda pipeline: pipeline.execute_command("DEL", self._key))

    def _if_ours(self, change: Callable[[Any], Any]) -> None:
        def decision(pipeline: Any) -> None:
            if pipeline.get(self._key) != self._owner:
                raise LeaseLost(f"the lease {self._name!r} with token {self.token} has ended")
            pipeline.multi()
            change(pipeline)

        decide(self._server, f"holding the lease {self._name!r}", [self._key], decision)
