"""One job at a time: a lease that ends by itself, and a token that tells later holders from earlier ones.

    tidelog:pipeline:lease:<name>    the holder of the lease, until it expires
    tidelog:pipeline:fence:<name>    how often the lease was taken: the token of the last holder

A lease is taken with SET NX PX, then counted with INCR, then checked to be still ours. If it is, a later holder counts
later, so tokens increase in the order in which the lease was held. The lease alone does not prove that nobody else
works: a job may stall past its end and not know it. The token proves it, at the fence of the data (`fence.py`).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

from tidelog import limits
from tidelog.days.exchange import RedisClient, bytes_server, decide
from tidelog.errors import LeaseLost
from tidelog.keys import LEASE_COUNT_PREFIX, LEASE_PREFIX


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
        made.token = int(server.incr(f"{LEASE_COUNT_PREFIX}{name}"))
        return made if server.get(made._key) == made._owner else None

    def renew(self) -> None:
        """Hold it for another term; `LeaseLost` if it has ended."""
        self._if_ours(lambda pipeline: pipeline.execute_command("PEXPIRE", self._key, self._ttl_ms))

    def regain(self) -> bool:
        """Take it once more after it has ended, if nobody has; False: somebody has.

        The token is what it was: this is for those whose work meets no fence.
        """
        return bool(self._server.set(self._key, self._owner, nx=True, px=self._ttl_ms))

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
