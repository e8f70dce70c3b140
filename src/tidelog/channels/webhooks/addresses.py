"""Which addresses webhooks may call: those of the public internet, and networks that are allowed by configuration.

A URL is written by an operator, but what its name resolves to, and where a redirect leads, others decide. So the check
is of addresses, at the moment of the connection:

    1. the name is resolved, and every address is checked: one that is not allowed refuses all
    2. the connection goes to an address that was checked, with no second look at the name
    3. the socket is made only for an address that is allowed: this also covers URLs with an address instead of a name

The name in `Host` and in TLS stays that of the URL. An IPv6 address that stands for an IPv4 one counts as that one,
too.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult

from tidelog.channels.webhooks.webhook_rule import IpNetwork

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

AddressLookup = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a name, for a port."""

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class AddressRefused(OSError):
    """An address that webhooks may not call. The message does not show it: it may be an inner one."""


def is_allowed(text: str, networks: Sequence[IpNetwork]) -> bool:
    """Whether an address may be called; `networks`: those that are allowed although they are private."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return all(_is_public(each) or any(each in network for network in networks) for each in _meant(address))


def _meant(address: Address) -> list[Address]:
    """An address, and the IPv4 address that it stands for, if it does."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    if address.sixtofour is not None:
        return [address, address.sixtofour]
    if address.teredo is not None:
        return [address, *address.teredo]
    if address in _NAT64:
        return [address, ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)]
    return [address]


def _is_public(address: Address) -> bool:
    if address in _NAT64:
        return True  # what it stands for is looked at as well
    return address.is_global and not (
        address.is_multicast or address.is_reserved or address.is_unspecified or address.is_link_local
    )


async def looked_up(host: str, port: int) -> Sequence[str]:
    """By the resolver of this machine."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for _, _, _, _, address in found]


class CheckedResolver(AbstractResolver):
    """Resolves a name to addresses that are all allowed, or not at all."""

    def __init__(self, networks: Sequence[IpNetwork], lookup: AddressLookup) -> None:
        self._networks = networks
        self._lookup = lookup

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        addresses = list(dict.fromkeys(await self._lookup(host, port)))
        if not addresses:
            raise OSError("the name has no address")
        for address in addresses:
            if not is_allowed(address, self._networks):
                raise AddressRefused("the name has an address that webhooks may not call")
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for address in addresses
            if family in (socket.AF_UNSPEC, socket.AF_INET6 if ":" in address else socket.AF_INET)
        ]

    async def close(self) -> None:
        return


def checked_socket(networks: Sequence[IpNetwork]) -> Callable[[Any], socket.socket]:
    """Makes sockets for connections, to allowed addresses only."""

    def make(found: Any) -> socket.socket:
        family, kind, protocol, _, address = found
        if not is_allowed(str(address[0]), networks):
            raise AddressRefused("that is an address that webhooks may not call")
        return socket.socket(family, kind, protocol)

    return make
