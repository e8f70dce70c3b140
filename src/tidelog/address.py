"""The address of a server, as a URL gives it. The command line, day streams, Spark and the client all use this class.

    redis://[[user]:password@]host[:port][/database]     TCP
    rediss://...                                         TCP with TLS
    unix://[[user]:password@]/path                       a unix socket

and, for callers that can use them, several servers that are one (with `rediss+` in front: over TLS):

    redis+sentinel://[...@]host[:port][,...]/service[/database]     the master that Sentinels name for a service
    redis+cluster://[...@]host[:port][,...]                         a Redis Cluster, by some of its nodes

This module only parses: `redis_client.py` makes connections from an address. An address can be pickled, password
included, so that tasks on other machines connect without a password file. `repr` and `url` leave the password out, and
so does every error here: a URL that cannot be parsed may still contain one.

With several hosts, the first is `host` and `port`, and the others are `more_hosts`. User and password are those of the
servers; Sentinels are asked without.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import SplitResult, quote, unquote, urlsplit

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
_SEVERAL: Final = tuple(scheme + kind for scheme in ("redis", "rediss") for kind in (_SENTINEL, _CLUSTER))


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """A Tidelog server, a Redis, or one node of a Redis Cluster."""

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
    """Further nodes of the cluster, or Sentinels, that are asked if the first does not answer."""
    service: str | None = None
    """The hosts are Sentinels, and the server is the master of this service."""

    @property
    def url(self) -> str:
        """Without user, password, database and settings: for messages."""
        if self.path is not None:
            return f"unix://{quote(self.path)}"
        scheme = "rediss" if self.is_tls else "redis"
        if self.service is not None:
            return f"{scheme}{_SENTINEL}://{self._hosts_shown}/{quote(self.service, safe='')}"
        return f"{scheme}{_CLUSTER if self.more_hosts else ''}://{self._hosts_shown}"

    @property
    def hosts(self) -> tuple[tuple[str, int], ...]:
        """All of them, with their ports."""
        return ((self.host, self.port), *self.more_hosts)

    @property
    def _hosts_shown(self) -> str:
        return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts)

    @property
    def url_with_password(self) -> str:
        """With user and password: for another program that connects. Never for a message."""
        if self.password is None and self.username is None:
            return self.url
        scheme, _, rest = self.url.partition("://")
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
        takes_several: bool = False,
    ) -> ServerAddress:
        """The address that a URL gives; `BadAddress` if it gives none.

        database         as an option gives it; None: the URL's, or 0
        is_cluster       the server is a node of a Redis Cluster
        takes_settings   the caller connects with redis-py, which understands settings after a `?`
        takes_several    the caller can use Sentinels and a Redis Cluster
        """
        if takes_several and url.partition("://")[0] in _SEVERAL:
            return cls._parse_several(url, database=database, takes_settings=takes_settings)
        try:
            parts = urlsplit(url)
        except ValueError:
            raise _bad(url, "it is not a URL") from None
        if parts.scheme not in _SCHEMES:
            found = f", not with {parts.scheme!r}" if url.startswith(f"{parts.scheme}://") else ""
            more = ", redis+sentinel://, redis+cluster://" if takes_several else ""
            raise _bad(url, f"it must begin with redis://, rediss:// or unix://{more}{found}")
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

    @classmethod
    def _parse_several(cls, url: str, *, database: int | None, takes_settings: bool) -> ServerAddress:
        """The first host is parsed as part of a plain URL, the others as plain URLs of their own."""
        scheme, _, rest = url.partition("://")
        scheme, _, kind = scheme.partition("+")
        place, slash, path = rest.partition("?")[0].rpartition("@")[2].partition("/")
        first, *others = place.split(",")
        service = None
        port_default = PORT_DEFAULT
        if f"+{kind}" == _SENTINEL:
            service, slash, path = path.partition("/")
            if not service:
                raise _bad(url, "it must name the service after the Sentinels")
            port_default = SENTINEL_PORT_DEFAULT
        login, at, _ = rest.partition("?")[0].rpartition("@")
        query = "?" + rest.partition("?")[2] if "?" in rest else ""
        try:
            hosts = [_host_of(f"redis://{each}", port_default) for each in (first, *others)]
            plain = f"{scheme}://{login}{at}{first}{slash}{path}{query}"
            made = cls.parse(plain, database=database, is_cluster=service is None, takes_settings=takes_settings)
        except BadAddress as error:
            raise _bad(url, error.problem) from None
        (host, port), *more_hosts = hosts
        named = None if service is None else _unquoted(service)
        return replace(made, host=host, port=port, more_hosts=tuple(more_hosts), service=named)


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
