"""Opening ports: TCP with or without TLS, and unix sockets. `CannotListen` says why one cannot be opened.

Sockets are bound here and then handed to the loop, so that their options are set before anyone connects: connections
inherit keep-alive from the socket that they came to.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import socket
import ssl
import stat
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Any, Final

from tidelog import limits
from tidelog.errors import EnvironmentFault

BACKLOG: Final = 511
_SOCKET_MODE: Final = 0o700
_DESCRIPTORS_BESIDE_CLIENTS: Final = 64
"""For the journal, the ports and whatever else the process has open."""
_CHOICES_MAX: Final = 20
"""How many ports the system may choose before one of them is free at every address of a host."""

_Place = tuple[int, int, int, Any]
"""Family, kind, protocol and address, as `getaddrinfo` gives them."""


class CannotListen(EnvironmentFault):
    """A port, a socket file or a certificate cannot be used."""


def bind_tcp(host: str, port: int) -> list[socket.socket]:
    """Sockets for every address that a host has; port 0 takes one that is free at all of them."""
    places = _places(host, port)
    for attempt in range(1, _CHOICES_MAX + 1):
        try:
            return _bind_all(places)
        except OSError as error:
            if port or error.errno != errno.EADDRINUSE or attempt == _CHOICES_MAX:
                raise CannotListen(f"cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}") from error
    raise AssertionError("the last attempt returns or raises")


def is_loopback_only(host: str) -> bool:
    """Whether ports at a host can be reached from this machine only. Where nobody can tell, they cannot."""
    try:
        return all(address_of(address)[1] for *_, address in _places(host, 0))
    except CannotListen:
        return False


def _places(host: str, port: int) -> list[_Place]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise CannotListen(f"cannot listen on {host}: {error.strerror or error}") from error
    return [(family, kind, protocol, address) for family, kind, protocol, _, address in dict.fromkeys(found)]


def _bind_all(places: Sequence[_Place]) -> list[socket.socket]:
    """One socket a place; a port that the system chose for the first is that of the others too."""
    bound: list[socket.socket] = []
    try:
        for family, kind, protocol, (host, port, *more) in places:
            chosen = port or (bound[0].getsockname()[1] if bound else 0)
            bound.append(_bind_one(family, kind, protocol, (host, chosen, *more)))
    except OSError:
        for each in bound:
            each.close()
        raise
    return bound


def _bind_one(family: int, kind: int, protocol: int, address: tuple[object, ...]) -> socket.socket:
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, limits.KEEPALIVE_S)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, limits.KEEPALIVE_S // 3)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(address)
        made.listen(BACKLOG)
    except BaseException:
        made.close()
        raise
    made.setblocking(False)
    return made


class UnixSocket:
    """A socket in the file system that only its owner may use."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._remove_stale()
            # Made without rights for others from the beginning: between bind and chmod anybody could come.
            before = os.umask(0o777 & ~_SOCKET_MODE)
            try:
                self.socket.bind(path)
            finally:
                os.umask(before)
            os.chmod(path, _SOCKET_MODE)
            self.socket.listen(BACKLOG)
        except OSError as error:
            self.socket.close()
            raise CannotListen(f"cannot listen on {path}: {error.strerror or error}") from error
        except CannotListen:
            self.socket.close()
            raise
        self.socket.setblocking(False)
        self._file = _identity(path)

    def _remove_stale(self) -> None:
        """Remove what a server that died has left; one that lives is left alone."""
        try:
            mode = os.lstat(self.path).st_mode
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(mode):
            raise CannotListen(f"cannot listen on {self.path}: there is a file of that name")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(self.path)
            except ConnectionRefusedError:
                os.unlink(self.path)
            else:
                raise CannotListen(f"cannot listen on {self.path}: another server does")

    def remove(self) -> None:
        """Take it out of the file system, unless another has taken its place."""
        with contextlib.suppress(OSError):
            if _identity(self.path) == self._file:
                os.unlink(self.path)


def _identity(path: str) -> tuple[int, int, int]:
    """Which file it is. The number alone may have been given to the next one."""
    status = os.stat(path)
    return status.st_dev, status.st_ino, status.st_ctime_ns


def make_tls(certificate: str, key: str) -> ssl.SSLContext:
    """TLS 1.2 and later with a certificate and its key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise CannotListen(f"cannot use the certificate {certificate} with the key {key}: {error}") from error
    return context


def make_client_tls(authorities: str | None) -> ssl.SSLContext:
    """For connections to other servers, whose names and certificates are checked."""
    try:
        return ssl.create_default_context(cafile=authorities)
    except (OSError, ssl.SSLError) as error:
        raise CannotListen(f"cannot use the authorities in {authorities}: {error}") from error


def allow_descriptors(clients_max: int, http_max: int = 0) -> tuple[int, int]:
    """Let the process have enough of them; returns how many clients, and connections over HTTP, it can have."""
    wanted = clients_max + http_max + _DESCRIPTORS_BESIDE_CLIENTS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft < wanted:
            left = max(0, soft - _DESCRIPTORS_BESIDE_CLIENTS)
            http = left * http_max // (clients_max + http_max)
            return max(1, left - http), http
    return clients_max, http_max


def address_of(name: object) -> tuple[str, bool]:
    """A socket's name as Redis shows it, and whether it is on this machine."""
    if not isinstance(name, tuple):
        return f"{name}:0", True
    host, port = name[:2]
    address = ip_address(host.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    is_local = address.is_loopback or (mapped is not None and mapped.is_loopback)
    return (f"[{host}]:{port}" if address.version == 6 else f"{host}:{port}"), is_local
