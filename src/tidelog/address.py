"""The address of a server, as a URL gives it. The command line, day streams, Spark and the client all use this class.

    redis://[[user]:password@]host[:port][/database]     TCP
    rediss://...                                         TCP with TLS
    unix://[[user]:password@]/path                       a unix socket

Several servers of which one leads and the others follow it; which one leads is found out (`server_search.py`):

    redis://[...@]host[:port],host[:port],...[/database]                        all of them
    redis+sentinel://[...@]host[:port][,...]/service[/database][?settings]      the Sentinels that watch them

and, for callers that can use one, a Redis Cluster by some of its nodes:

    redis+cluster://[...@]host[:port][,...]

With `rediss` in place of `redis`, all of this is over TLS.

This module only parses: `redis_client.py` makes connections from an address. An address can be pickled, password
included, so that tasks on other machines connect without a password file. `repr` and `url` leave the password out, and
so does every error here: a URL that cannot be parsed may still contain one.

With several hosts, the first is `host` and `port`, and the others are `more_hosts`. User and password are those of the
servers. Sentinels have their own, if they have any: `?sentinel_username=...&sentinel_password=...`, or
`?sentinel_password_file=...` with the file that has it, which the caller reads (`server/configuration.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, quote, unquote, unquote_plus, urlsplit

from tidelog.errors import BadAddress

PORT_DEFAULT: Final = 6399
"""Of a server that listens for Redis clients, and of a URL that names no port."""
URL_DEFAULT: Final = f"redis://127.0.0.1:{PORT_DEFAULT}"
"""Of commands and Spark jobs that are not told which server to use."""
_HOST_DEFAULT: Final = "127.0.0.1"
SENTINEL_PORT_DEFAULT: Final = 26379
_SCHEMES: Final = ("redis", "rediss", "unix")
_SENTINEL: Final = "+sentinel"
_CLUSTER: Final = "+cluster"
_OVER_TCP: Final = ("redis", "rediss")
_SENTINEL_SETTINGS: Final = ("sentinel_username", "sentinel_password", "sentinel_password_file")


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """A Tidelog server or a Redis, several of them that follow each other, or a Redis Cluster."""

    host: str = _HOST_DEFAULT
    port: int = PORT_DEFAULT
    path: str | None = None
    """The path of a unix socket, which is used instead of host and port."""
    is_tls: bool = False
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    """Text; a byte that is not UTF-8 is a surrogate, as in file names."""
    database: int = 0
    is_cluster: bool = False
    """Clients ask this node for the other nodes of the cluster."""
    settings: str = field(default="", repr=False)
    """What the URL has after its `?`, such as `ssl_ca_certs=ca.pem`. redis-py reads it, so it may contain secrets."""
    more_hosts: tuple[tuple[str, int], ...] = ()
    """Further servers, Sentinels or nodes of the cluster."""
    service: str | None = None
    """The hosts are Sentinels, and the servers are those of this service."""
    sentinel_username: str | None = None
    sentinel_password: str | None = field(default=None, repr=False)
    """What Sentinels want to hear; text as `password` is."""
    sentinel_password_file: str | None = None
    """The file that has it, until somebody has read it."""

    @property
    def url(self) -> str:
        """Without user, password, database and settings: for messages."""
        if self.path is not None:
            return f"unix://{quote(self.path)}"
        scheme = "rediss" if self.is_tls else "redis"
        if self.service is not None:
            return f"{scheme}{_SENTINEL}://{self._hosts_shown}/{quote(self.service, safe='')}"
        return f"{scheme}{_CLUSTER if self.is_cluster and self.more_hosts else ''}://{self._hosts_shown}"

    @property
    def hosts(self) -> tuple[tuple[str, int], ...]:
        """All of them, with their ports."""
        return ((self.host, self.port), *self.more_hosts)

    @property
    def _hosts_shown(self) -> str:
        return ",".join(shown_place(host, port) for host, port in self.hosts)

    @property
    def names_several(self) -> bool:
        """It names several servers, or those who know them: if one is gone, another may take its place."""
        return bool(self.more_hosts) or self.service is not None

    @property
    def is_searched(self) -> bool:
        """There are several servers: which of them to talk to is found out whenever a connection is made."""
        return not self.is_cluster and self.names_several

    def server_at(self, host: str, port: int) -> ServerAddress:
        """One of the servers."""
        return replace(
            self,
            host=host,
            port=port,
            more_hosts=(),
            service=None,
            sentinel_username=None,
            sentinel_password=None,
            sentinel_password_file=None,
        )

    def sentinel_at(self, host: str, port: int) -> ServerAddress:
        """One of the Sentinels."""
        login = self.sentinel_username, self.sentinel_password
        return replace(self.server_at(host, port), username=login[0], password=login[1], database=0)

    @property
    def url_with_password(self) -> str:
        """With users and passwords: for another program that connects. Never for a message."""
        given = {name: getattr(self, name) for name in _SENTINEL_SETTINGS}
        more = "&".join(f"{name}={_quoted(value)}" for name, value in given.items() if value is not None)
        scheme, _, rest = f"{self.url}?{more}".rstrip("?").partition("://")
        if self.password is None and self.username is None:
            return f"{scheme}://{rest}"
        password = "" if self.password is None else f":{_quoted(self.password)}"
        return f"{scheme}://{_quoted(self.username or '')}{password}@{rest}"

    @classmethod
    def parse(
        cls,
        url: str,
        *,
        database: int | None = None,
        is_cluster: bool = False,
        takes_settings: bool = False,
        takes_cluster: bool = False,
    ) -> ServerAddress:
        """The address that a URL gives; `BadAddress` if it gives none.

        database         as an option gives it; None: the URL's, or 0
        is_cluster       the servers are nodes of a Redis Cluster
        takes_settings   the caller connects with redis-py, which understands settings after a `?`
        takes_cluster    the caller can use a Redis Cluster
        """
        scheme, kind, login, hosts, path, query = _pieces(url)
        if kind == _CLUSTER and not (takes_cluster or is_cluster):
            raise _bad(url, f"a Redis Cluster cannot be used here: {_schemes(takes_cluster=False)}")
        if kind not in ("", _SENTINEL, _CLUSTER) or (kind and scheme not in _OVER_TCP):
            raise _bad(url, f"{_schemes(takes_cluster=takes_cluster)}, not with {scheme + kind!r}")
        if not kind and (len(hosts) == 1 or scheme not in _OVER_TCP):
            if url.partition("://")[0] not in _SCHEMES:
                found = f", not with {scheme!r}" if scheme and "://" in url else ""
                raise _bad(url, f"{_schemes(takes_cluster=takes_cluster)}{found}")
            return cls._parse_one(url, database=database, is_cluster=is_cluster, takes_settings=takes_settings)
        service: str | None = None
        settings: dict[str, Any] = {}
        if kind == _SENTINEL:
            if is_cluster:
                raise _bad(url, "Sentinels do not watch a Redis Cluster: name some of its nodes instead")
            name, _, path = path.removeprefix("/").partition("/")
            service = _unquoted(name)
            if not service:
                raise _bad(url, "it must name the service after the Sentinels")
            settings, query = _sentinel_settings(url, query)
        # The first host is parsed as part of a plain URL, with everything that there is only one of.
        plain = f"{scheme}://{login}{hosts[0]}/{path.removeprefix('/')}{query}"
        try:
            port_default = PORT_DEFAULT if service is None else SENTINEL_PORT_DEFAULT
            (host, port), *more_hosts = (_host_of(f"redis://{each}", port_default) for each in hosts)
            is_cluster = is_cluster or kind == _CLUSTER
            made = cls._parse_one(plain, database=database, is_cluster=is_cluster, takes_settings=takes_settings)
        except BadAddress as error:
            raise _bad(url, error.problem) from None
        return replace(made, host=host, port=port, more_hosts=tuple(more_hosts), service=service, **settings)

    @classmethod
    def _parse_one(cls, url: str, *, database: int | None, is_cluster: bool, takes_settings: bool) -> ServerAddress:
        """The address of a URL with one host, or none."""
        try:
            parts = urlsplit(url)
        except ValueError:
            raise _bad(url, "it is not a URL") from None
        if parts.query and not takes_settings:
            raise _bad(url, "settings after a ? are not understood")
        made = cls(
            path=_unquoted(parts.path) if parts.scheme == "unix" else None,
            host=parts.hostname or _HOST_DEFAULT,
            port=_port_of(url, parts),
            is_tls=parts.scheme == "rediss",
            username=_unquoted(parts.username) if parts.username else None,
            password=None if parts.password is None else _unquoted(parts.password),
            database=_database_of(url, parts, database),
            is_cluster=is_cluster,
            settings=parts.query,
        )
        if is_cluster and (made.path is not None or made.database):
            raise _bad(url, "a Redis Cluster has neither a unix socket nor databases")
        return made


def shown_place(host: str, port: int) -> str:
    """A host and its port, for messages."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class _Pieces(NamedTuple):
    """A URL, cut where there may be several hosts."""

    scheme: str
    kind: str
    """`+sentinel` or the like; empty: none."""
    login: str
    """With the @."""
    hosts: list[str]
    path: str
    query: str
    """With the question mark."""


def _pieces(url: str) -> _Pieces:
    scheme, _, rest = url.partition("://")
    scheme, plus, kind = scheme.partition("+")
    if not (scheme + kind).isalnum():
        scheme, plus, kind = "", "", ""  # it is no scheme, and may be a part of a password
    rest, mark, query = rest.partition("?")
    place, slash, path = rest.partition("/")
    login, at, places = place.rpartition("@")
    return _Pieces(scheme, plus + kind, login + at, places.split(","), slash + path, mark + query)


def _schemes(*, takes_cluster: bool) -> str:
    more = ", redis+sentinel:// or redis+cluster://" if takes_cluster else " or redis+sentinel://"
    return f"it must begin with redis://, rediss://, unix://{more}"


def _sentinel_settings(url: str, query: str) -> tuple[dict[str, str], str]:
    """How to log in to Sentinels, and the settings that are left."""
    found: dict[str, str] = {}
    left = []
    for each in query.removeprefix("?").split("&"):
        name, _, value = each.partition("=")
        if name in _SENTINEL_SETTINGS:
            found[name] = unquote_plus(value, errors="surrogateescape")
        elif each:
            left.append(each)
    if "sentinel_password" in found and "sentinel_password_file" in found:
        raise _bad(url, "sentinel_password and sentinel_password_file contradict each other: give one of them")
    return found, f"?{'&'.join(left)}" if left else ""


def _host_of(url: str, port_default: int) -> tuple[str, int]:
    """The host and port of a URL that has nothing else."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise _bad(url, "it is not a URL") from None
    if not parts.hostname:
        raise _bad(url, "one of its hosts is empty")
    return parts.hostname, _port_of(url, parts, port_default)


def _port_of(url: str, parts: SplitResult, default: int = PORT_DEFAULT) -> int:
    try:
        return parts.port or default
    except ValueError:
        raise _bad(url, "its port is not a number from 1 to 65535") from None


def _database_of(url: str, parts: SplitResult, given: int | None) -> int:
    path = "" if parts.scheme == "unix" else parts.path.strip("/")
    if not path:
        return given or 0
    if not (path.isascii() and path.isdecimal()):
        raise _bad(url, "what follows the port must be the number of a database")
    if given not in (None, int(path)):
        raise _bad(url, f"it names database {path}, but the option says {given}")
    return int(path)


def _quoted(text: str) -> str:
    return quote(text, safe="", errors="surrogateescape")


def _unquoted(text: str) -> str:
    return unquote(text, errors="surrogateescape")


def _bad(url: str, problem: str) -> BadAddress:
    return BadAddress(f"{_without_password(url)!r} is not the URL of a server: {problem}", problem=problem)


def _without_password(url: str) -> str:
    """A URL that may be wrong in any way: a password may stand anywhere before its last @ or after a ?."""
    before, at, after = url.rpartition("@")
    scheme, separator, _ = before.partition("://")
    if "?" in before:
        return f"{scheme}{separator}..."
    shown = f"{scheme}{separator}...@{after}" if separator else f"...@{after}" if at else url
    return shown.partition("?")[0]
