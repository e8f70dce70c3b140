"""Connections of redis-py that find their server, among several or by Sentinels, whenever they are made.

    pool = searching_pool(address, search, ...)          for threads
    pool = searching_async_pool(address, search, ...)    for asyncio

redis-py makes a socket in `_connect`, whatever it makes it for: the first call of a connection, one that is repeated
after the connection was lost, a subscription. So that is where the server is looked for (`server_search.py`). redis-py
has classes of its own for Sentinels, which are not used: they look at the Sentinels' list of masters, in which one that
failed stands until its failover is over; and a call that is repeated goes back to the address that it had, where a
master that failed may be again, empty or with what it had long ago.

A server that answers READONLY, MASTERDOWN, LOADING or UNBLOCKED has refused the call. Its connection is closed as if it
had been lost, so that the call is repeated, if it is to be, where the leader is.

A client for threads waits for a server, for about half a minute: a failover takes a while. The very first time it
waits only if somebody answers, because a wrong address should be an error at once. A client for asyncio looks once for
each connection, and so does one for threads that is told to: their users have patience of their own
(`client/patience.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from weakref import ref

import redis
from redis.asyncio import Connection as AsyncConnection
from redis.asyncio import ConnectionPool as AsyncConnectionPool
from redis.asyncio import SSLConnection as AsyncSSLConnection
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import EqualJitterBackoff, NoBackoff
from redis.exceptions import BusyLoadingError, MasterDownError
from redis.retry import Retry

from tidelog import limits
from tidelog.address import ServerAddress
from tidelog.errors import BadAddress, ServerRefused
from tidelog.server_search import (
    Answer,
    FoundServer,
    NoAnswer,
    Question,
    RefusedCommand,
    ServerNotFound,
    ServerSearch,
    Steps,
    is_elsewhere,
)

_CODES: Final = {redis.ReadOnlyError: "READONLY", MasterDownError: "MASTERDOWN", BusyLoadingError: "LOADING"}
"""Of errors whose text redis-py leaves without it."""


class NoServerFound(redis.ConnectionError):
    """None of several servers can be used now; the message is for users. They are not asked again right away."""

    def __init__(self, reason: ServerNotFound) -> None:
        super().__init__(str(reason))
        self.reason = reason
        """The same as an error of ours."""


class _NotYetFound(NoServerFound):
    """They are the right ones, as far as we know, so that one may lead soon."""


class CallRetry(Retry):
    """Repeats a call whose connection was lost.

    Not if no server was found, because that has taken long enough, and not if one does not let us in.
    """

    def call_with_retry(self, do: Callable[[], Any], fail: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        def done() -> Any:
            try:
                return do()
            except (NoServerFound, redis.AuthenticationError) as error:
                raise _Unrepeated(error) from None

        try:
            return super().call_with_retry(done, fail, *args, **kwargs)
        except _Unrepeated as stopped:
            raise stopped.error from None


class _Unrepeated(Exception):
    def __init__(self, error: redis.ConnectionError) -> None:
        super().__init__()
        self.error = error


# --- errors -----------------------------------------------------------------------------------------------------------


def coded(error: Exception) -> str:
    """The text of an error reply, with its code in front if that tells where to go on."""
    code = _CODES.get(type(error))
    return f"{code} {error}" if code is not None else str(error)


def _failure(search: ServerSearch, error: ServerNotFound | ServerRefused) -> redis.ConnectionError:
    """What redis-py and its callers understand."""
    if isinstance(error, ServerRefused):
        return redis.AuthenticationError(str(error))
    may_come = error.has_answered or search.found is not None
    reason = type(error)(f"no server answers at {search.address.url}: {error}", has_answered=may_come)
    return (_NotYetFound if may_come else NoServerFound)(reason)


def _lost(connection: Any, error: redis.ResponseError) -> redis.ConnectionError | None:
    """The error of a connection that has to be made anew, perhaps to another server; None: it is good."""
    text = coded(error)
    if not is_elsewhere(text):
        return None
    return redis.ConnectionError(f"{connection.host}:{connection.port} cannot answer now: {text}")


# --- asking -----------------------------------------------------------------------------------------------------------


def login_of(address: ServerAddress) -> dict[str, Any]:
    """Text is encoded so that a password of any bytes arrives as it is."""
    return {"username": address.username, "password": address.password, "encoding_errors": "surrogateescape"}


def settings_of(address: ServerAddress) -> dict[str, Any]:
    """The settings of a URL, as redis-py reads them."""
    if not address.settings:
        return {}
    read: dict[str, Any] = dict(parse_url(f"redis://h?{address.settings}"))
    return {name: value for name, value in read.items() if name not in ("host", "connection_class")}


def _question_options(address: ServerAddress) -> dict[str, Any]:
    options = {name: value for name, value in settings_of(address).items() if name.startswith("ssl_")}
    options |= {"host": address.host, "port": address.port, "protocol": 2}
    options |= dict.fromkeys(("socket_timeout", "socket_connect_timeout"), limits.CLIENT_ASK_S_MAX)
    return {**options, **login_of(address)}


def _no_answer(error: Exception) -> NoAnswer:
    return NoAnswer(str(error) or type(error).__name__, is_refused=isinstance(error, redis.AuthenticationError))


class _Finder:
    """Finds the server for the connections of a pool."""

    def __init__(self, search: ServerSearch) -> None:
        if search.address.sentinel_password_file is not None:
            problem = "its sentinel_password_file was not read"
            raise BadAddress(f"{search.address.url} cannot be used: {problem}", problem=problem)
        self.search = search
        self.pool: Callable[[], Any] = lambda: None
        """The pool, as long as somebody has it."""

    def __repr__(self) -> str:
        return f"<the search for {self.search.address.url}>"

    def has_moved(self, before: FoundServer | None) -> bool:
        """Whether connections that nobody uses just now lead to a server that is not the leader any more."""
        found = self.search.found
        return before is not None and found is not None and before.is_leader and found.is_leader and before != found


class _ThreadFinder(_Finder):
    def __init__(self, search: ServerSearch, *, waits: bool) -> None:
        super().__init__(search)
        pauses = EqualJitterBackoff(cap=limits.CLIENT_SEARCH_PAUSE_S_MAX, base=limits.CLIENT_RECONNECT_S_MIN)
        searches_max = limits.CLIENT_SEARCHES_MAX if waits else 0
        self._patience = Retry(pauses, searches_max, supported_errors=(_NotYetFound,))

    def find(self) -> FoundServer:
        before = self.search.found
        found: FoundServer = self._patience.call_with_retry(self._find, lambda _error: None)
        pool = self.pool()
        if pool is not None and self.has_moved(before):
            pool.disconnect(inuse_connections=False)
        return found

    def _find(self) -> FoundServer:
        steps: Steps = self.search.steps()
        try:
            question = next(steps)
            while True:
                question = steps.send(self._ask(question))
        except StopIteration as end:
            found: FoundServer = end.value
            return found
        except (ServerNotFound, ServerRefused) as error:
            raise _failure(self.search, error) from None

    @staticmethod
    def _ask(question: Question) -> Answer:
        kind: Any = redis.SSLConnection if question.address.is_tls else redis.Connection
        connection = kind(**_question_options(question.address), retry=Retry(NoBackoff(), 0))
        replies: list[Any] = []
        try:
            connection.connect()
            for command in question.commands:
                connection.send_command(*command)
            for _ in question.commands:
                try:
                    replies.append(connection.read_response())
                except (redis.ResponseError, BusyLoadingError) as error:
                    replies.append(RefusedCommand(coded(error)))
            return replies
        except (redis.RedisError, OSError) as error:
            return _no_answer(error)
        finally:
            connection.disconnect()


class _TaskFinder(_Finder):
    async def find(self) -> FoundServer:
        before = self.search.found
        found = await self._find()
        pool = self.pool()
        if pool is not None and self.has_moved(before):
            await pool.disconnect(inuse_connections=False)
        return found

    async def _find(self) -> FoundServer:
        steps: Steps = self.search.steps()
        try:
            question = next(steps)
            while True:
                question = steps.send(await self._ask(question))
        except StopIteration as end:
            found: FoundServer = end.value
            return found
        except (ServerNotFound, ServerRefused) as error:
            raise _failure(self.search, error) from None

    @staticmethod
    async def _ask(question: Question) -> Answer:
        kind: Any = AsyncSSLConnection if question.address.is_tls else AsyncConnection
        connection = kind(**_question_options(question.address), retry=AsyncRetry(NoBackoff(), 0))
        replies: list[Any] = []
        try:
            await connection.connect()
            for command in question.commands:
                await connection.send_command(*command)
            for _ in question.commands:
                try:
                    replies.append(await connection.read_response())
                except (redis.ResponseError, BusyLoadingError) as error:
                    replies.append(RefusedCommand(coded(error)))
            return replies
        except (redis.RedisError, OSError) as error:
            return _no_answer(error)
        finally:
            await connection.disconnect(nowait=True)


# --- connections and pools --------------------------------------------------------------------------------------------


class _ThreadSearching:
    """Of a connection for threads."""

    def __init__(self, *, finder: _ThreadFinder, **options: Any) -> None:
        self._finder = finder
        self.found: FoundServer | None = None
        super().__init__(**options)

    def _connect(self) -> Any:
        self.found = self._finder.find()
        self.host, self.port = self.found.host, self.found.port
        return super()._connect()  # type: ignore[misc]  # of the other parent

    def read_response(self, *args: Any, **options: Any) -> Any:
        try:
            return super().read_response(*args, **options)  # type: ignore[misc]
        except redis.ResponseError as error:
            lost = _lost(self, error)
            if lost is None:
                raise
            self.disconnect()  # type: ignore[attr-defined]
            raise lost from None


class _TaskSearching:
    """Of a connection for asyncio."""

    def __init__(self, *, finder: _TaskFinder, **options: Any) -> None:
        self._finder = finder
        self.found: FoundServer | None = None
        super().__init__(**options)

    async def _connect(self) -> None:
        self.found = await self._finder.find()
        self.host, self.port = self.found.host, self.found.port
        await super()._connect()  # type: ignore[misc]

    async def read_response(self, *args: Any, **options: Any) -> Any:
        try:
            return await super().read_response(*args, **options)  # type: ignore[misc]
        except redis.ResponseError as error:
            lost = _lost(self, error)
            if lost is None:
                raise
            await self.disconnect(nowait=True)  # type: ignore[attr-defined]
            raise lost from None


class _ThreadConnection(_ThreadSearching, redis.Connection):
    pass


class _ThreadSslConnection(_ThreadSearching, redis.SSLConnection):
    pass


class _TaskConnection(_TaskSearching, AsyncConnection):
    pass


class _TaskSslConnection(_TaskSearching, AsyncSSLConnection):
    pass


def searching_pool(search: ServerSearch, *, waits: bool = True, **options: Any) -> Any:
    """A pool for threads; `options` of redis-py's connections, beside login and settings. `waits`: for a server."""
    finder = _ThreadFinder(search, waits=waits)
    kind = _ThreadSslConnection if search.address.is_tls else _ThreadConnection
    pool = redis.ConnectionPool(kind, finder=finder, **_pool_options(search.address, options))
    finder.pool = ref(pool)
    return pool


def searching_async_pool(search: ServerSearch, **options: Any) -> Any:
    """The same for asyncio."""
    finder = _TaskFinder(search)
    kind: Any = _TaskSslConnection if search.address.is_tls else _TaskConnection
    pool = AsyncConnectionPool(kind, finder=finder, **_pool_options(search.address, options))
    finder.pool = ref(pool)
    return pool


def _pool_options(address: ServerAddress, options: dict[str, Any]) -> dict[str, Any]:
    place = {"host": address.host, "port": address.port, "db": address.database}
    return {**settings_of(address), **login_of(address), **place, **options}
