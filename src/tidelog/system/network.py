"""The network of this machine: `ports.Network` on the transports of asyncio or uvloop.

The loop's transports do the work; this module turns what they tell into what the port promises:

- `abort` resets the connection. A transport's own abort would let the kernel end it in good order after a part of the
  bytes, and go on for many minutes to send what it has taken to a peer that may be dead.
- When the peer closes, the link is over, and what is unsent is dropped. A transport would go on writing, without end if
  the peer has closed one direction only and does not read.
- Names are looked up by the loop, in a thread. Only `listen` looks up its host on the spot: it runs when a server
  starts, and its caller is told at once whether the address can be had.
- The addresses of a name are tried one after the other (uvloop has nothing else), so one that does not answer may take
  all the time that the caller gives.

Streams were rejected: they are coroutines, and keep bytes that nobody has asked for yet.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import struct
from collections.abc import Callable
from typing import Any, Final, cast

from tidelog import limits
from tidelog.ports import LinkEnd, LinkOwner, NetworkAddress, NetworkLink
from tidelog.server.listener import CannotListen, bind_tcp

_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER, on, for no time at all: closing the socket drops what it holds and resets the connection."""
_OPTIONS: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, limits.KEEPALIVE_S),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, limits.KEEPALIVE_S // 3),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
)


class SystemNetwork:
    """`ports.Network` on TCP, with TLS for those who connect, for those who are connected to, or for both."""

    __slots__ = ("_client_tls", "_loop", "_server_tls")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        server_tls: ssl.SSLContext | None = None,
        client_tls: ssl.SSLContext | None = None,
    ) -> None:
        self._loop = loop
        self._server_tls = server_tls
        self._client_tls = client_tls

    def listen(self, address: NetworkAddress, accept: Callable[[NetworkLink], LinkOwner]) -> SystemPort:
        try:
            sockets = bind_tcp(*address)
        except CannotListen as error:
            raise cast("OSError", error.__cause__) from None
        return SystemPort(self._loop, sockets, accept, self._server_tls)

    def connect(self, address: NetworkAddress, owner: LinkOwner) -> SystemLink:
        link = SystemLink(self._loop, address, owner)
        link.begin(self._client_tls)
        return link


class SystemPort:
    """`ports.OpenPort` on sockets that listen."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sockets: list[socket.socket],
        accept: Callable[[NetworkLink], LinkOwner],
        tls: ssl.SSLContext | None,
    ) -> None:
        host, port = sockets[0].getsockname()[:2]
        self.address: Final[NetworkAddress] = (host, port)
        self.accept: Final = accept
        self.is_closed = False
        self._loop = loop
        self._sockets = sockets
        self._tls = tls
        self._accepting: set[asyncio.Task[object]] = set()
        """Connections that become links: with TLS, they shake hands first. After `close` they go on, only to be reset.
        Cancelled half-way, they would leave a socket behind, or a link whose end nobody tells."""
        self._watch()

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            for each in self._sockets:
                self._loop.remove_reader(each)
                each.close()

    def _watch(self) -> None:
        if not self.is_closed:
            for each in self._sockets:
                self._loop.add_reader(each, self._take, each)

    def _take(self, listening: socket.socket) -> None:
        """Somebody waits to be let in."""
        try:
            taken, _ = listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return  # whoever it was has gone away
        except OSError:
            # The process has no descriptors left, or the system no memory. It says so again at once, and for ever.
            for each in self._sockets:
                self._loop.remove_reader(each)
            self._loop.call_later(limits.LINK_ACCEPT_PAUSE_S, self._watch)
            return
        taken.setblocking(False)
        link = SystemLink(self._loop, ("", 0), None, self)
        task: asyncio.Task[object] = self._loop.create_task(
            self._loop.connect_accepted_socket(lambda: link, taken, **_tls_options(self._tls))
        )
        self._accepting.add(task)
        task.add_done_callback(self._taken)

    def _taken(self, task: asyncio.Task[object]) -> None:
        self._accepting.discard(task)
        error = None if task.cancelled() else task.exception()
        # Of the system or of TLS: a stranger, or somebody who has gone away. There is no link that anybody knows of.
        if error is not None and not isinstance(error, OSError):
            raise error


class SystemLink(asyncio.Protocol):
    """`ports.NetworkLink` on a transport, and the protocol that the transport tells."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        peer: NetworkAddress,
        owner: LinkOwner | None,
        port: SystemPort | None = None,
    ) -> None:
        self.peer = peer
        self.is_open = False
        self.has_room = True
        self._loop = loop
        self._owner = owner
        """None: it was not accepted yet, or was told the end."""
        self._port = port
        """Where it is accepted; None: we connect."""
        self._connecting: asyncio.Task[object] | None = None
        self._transport: asyncio.Transport | None = None
        self._closing: asyncio.TimerHandle | None = None
        """When it is aborted, though it was only closed."""
        self._is_aborted = False
        self._is_receiving = True
        self._is_closed_by_peer = False

    def __repr__(self) -> str:
        host, port = self.peer
        return f"<SystemLink {host}:{port}{' open' if self.is_open else ''}>"

    # --- ports.NetworkLink --------------------------------------------------------------------------------------

    @property
    def unsent_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def send(self, data: bytes) -> None:
        if not self.is_open:
            raise ValueError(f"the link with {self.peer[0]}:{self.peer[1]} is not open")
        assert self._transport is not None
        # A transport that has failed would write to the log with every call.
        if data and not self._transport.is_closing():
            self._transport.write(data)

    def stop_receiving(self) -> None:
        self._is_receiving = False
        self._pause_or_resume()

    def resume_receiving(self) -> None:
        self._is_receiving = True
        self._pause_or_resume()

    def close(self) -> None:
        if self._transport is None:
            self.abort()
        elif self.is_open:
            self.is_open = False
            self._transport.close()
            # A peer that does not read would have the transport keep its socket and what is unsent for ever.
            self._closing = self._loop.call_later(limits.LINK_CLOSING_S, self.abort)

    def abort(self) -> None:
        if not self._is_aborted:
            self.is_open = False
            self._is_aborted = True
            if self._transport is not None:
                _reset(self._transport)
            elif self._connecting is not None:
                self._connecting.cancel()

    def adopt(self, transport: asyncio.Transport, accept: Callable[[NetworkLink], LinkOwner]) -> None:
        """Go on with a connection that was something else until now."""
        self._transport = transport
        transport.set_protocol(self)
        self._set_up(transport)
        host, port = (transport.get_extra_info("peername") or ("", 0))[:2] or ("", 0)
        self.peer = (host, port) if isinstance(port, int) else ("", 0)
        self._owner = accept(self)
        transport.resume_reading()
        self._owner.connected()

    # --- connecting ---------------------------------------------------------------------------------------------

    def begin(self, tls: ssl.SSLContext | None) -> None:
        """Connect to the peer."""
        host, port = self.peer
        self._connecting = self._loop.create_task(
            self._loop.create_connection(lambda: self, host, port, **_tls_options(tls))
        )
        self._connecting.add_done_callback(self._tried)

    def _tried(self, task: asyncio.Task[object]) -> None:
        self._connecting = None
        error = None if task.cancelled() else task.exception()
        if self._is_aborted:
            # If that was when it was just connected, uvloop closes the transport and tells nobody.
            self._tell_end("by_us", "Aborted")
        elif task.cancelled() or error is not None:
            self._tell_end("failed", "The loop stops" if error is None else _reason(error))

    # --- asyncio.Protocol ---------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)  # uvloop's is none by its class
        self._transport = transport
        if self._is_aborted or (self._port is not None and self._port.is_closed):
            _reset(transport)
            return
        self._set_up(transport)
        if self._port is not None:
            # There is no name if the peer has gone away already.
            host, port = (transport.get_extra_info("peername") or self.peer)[:2]
            self.peer = (host, port)
            self._owner = self._port.accept(self)
        if self.is_open and self._owner is not None:
            self._owner.connected()
        if not self._is_receiving:
            # Again: uvloop begins to read when this returns, even if it was told to pause. But it reads nothing yet.
            self._loop.call_soon(self._pause_or_resume)

    def _set_up(self, transport: asyncio.Transport) -> None:
        own = transport.get_extra_info("socket")
        if own.family != socket.AF_UNIX:
            for level, option, value in _OPTIONS:
                own.setsockopt(level, option, value)
        transport.set_write_buffer_limits(limits.LINK_UNSENT_BYTES_MAX, limits.LINK_ROOM_BYTES)
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        if self.is_open and self._owner is not None:
            self._owner.received(data)
            if len(data) >= limits.LINK_LET_OTHERS_BYTES:
                self._let_others()

    def _let_others(self) -> None:
        """There is much to read, and uvloop would read from here dozens of times before it looks at other sockets."""
        if self.is_open and self._transport is not None:
            self._transport.pause_reading()
            self._loop.call_soon(self._pause_or_resume)

    def eof_received(self) -> None:
        self._is_closed_by_peer = True
        if self.is_open and self._transport is not None:
            self._transport.abort()

    def pause_writing(self) -> None:
        self.has_room = False

    def resume_writing(self) -> None:
        self.has_room = True
        if self.is_open and self._owner is not None:
            self._owner.room()

    def connection_lost(self, error: Exception | None) -> None:
        is_ours = not self.is_open
        self._transport = None
        if self._closing is not None:
            self._closing.cancel()
        if self._is_aborted:
            self._tell_end("by_us", "Aborted")
        elif is_ours and error is None:
            self._tell_end("by_us", "Closed")
        elif error is None or self._is_closed_by_peer:
            self._tell_end("by_peer", "Closed by the peer")
        else:
            self._tell_end("lost", _reason(error))

    def _pause_or_resume(self) -> None:
        if self.is_open and self._transport is not None:
            if self._is_receiving:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _tell_end(self, end: LinkEnd, reason: str) -> None:
        owner, self._owner = self._owner, None
        self.is_open = False
        if owner is not None:
            owner.ended(end, reason)


def _tls_options(tls: ssl.SSLContext | None) -> dict[str, Any]:
    if tls is None:
        return {}
    return {
        "ssl": tls,
        "ssl_handshake_timeout": limits.LINK_HANDSHAKE_S,
        "ssl_shutdown_timeout": limits.LINK_CLOSING_S,
    }


def _reset(transport: asyncio.Transport) -> None:
    # One that closes and has sent everything may have closed its descriptor, which may be another's by now.
    if not transport.is_closing() or transport.get_write_buffer_size():
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    transport.abort()


def _reason(error: BaseException) -> str:
    """A few plain words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"The certificate cannot be trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {(error.reason or str(error)).lower().replace('_', ' ')}"
    if isinstance(error, socket.gaierror):
        return error.strerror or str(error)
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    if isinstance(error, UnicodeError):
        return "Not the name of a host"
    return str(error) or type(error).__name__
