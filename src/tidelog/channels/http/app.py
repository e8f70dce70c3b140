"""Channels over HTTP, as one ASGI application: it finds the call for a request, asks who may, answers, and counts.

    request --> path and method --> CORS --> gate --> grant for the channel --> the call --> answer
                404, 405                     401       401, 403                  4xx, 503

The gate is whatever the application stands behind: the password of a server, or nothing. It is not asked for probes and
the description, which tell nothing, nor for admin calls, which have a token of their own.

One function does all this. Middlewares of a framework would each wrap `send` and copy the headers of every request, and
a waiting client sends one for each message.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import count
from time import perf_counter
from typing import Final

from starlette.types import Receive, Scope, Send

from tidelog import limits
from tidelog.channels.channels import Channels
from tidelog.channels.http.admin import AdminCalls
from tidelog.channels.http.answer import INTERNAL, Answer, HeaderPair, answer_to, error_answer
from tidelog.channels.http.body_room import BodyRoom, TooManyBytes
from tidelog.channels.http.call import CallGate, ClientGone, HttpCall
from tidelog.channels.http.calls import ChannelCalls
from tidelog.channels.http.event_stream import asks_for_stream, put_off
from tidelog.channels.http.figures import ChannelFigures
from tidelog.channels.http.openapi import OPENAPI_JSON, made_page
from tidelog.channels.http.polls import PollPlaces
from tidelog.channels.http.request_log import log_request
from tidelog.channels.http.routes import ROUTES, CallAccess, FoundPath, RouteTable
from tidelog.channels.names import checked_name
from tidelog.channels.policy import ChannelPolicy, OpenPolicy
from tidelog.errors import EnvironmentFault, ServerUnreachable, TidelogError

_LOG: Final = logging.getLogger("tidelog")
_REQUEST_ID: Final = re.compile(rb"[0-9A-Za-z._:/+=@~-]{1,%d}" % limits.CHANNEL_REQUEST_ID_LENGTH_MAX)
_WAITING: Final = frozenset(["fetch"])
"""Calls whose duration says nothing about the server."""
_GONE: Final = 499
"""What the log says of a client that went away before it was answered."""
_NO_PATH: Final = error_answer(404, "there is no such path: /channels lists them", "tidelog.channels.no-such-path")
_PAGE: Final = Answer(200, made_page(), b"text/html; charset=utf-8")
_OPENAPI: Final = Answer(200, OPENAPI_JSON)
_ALLOWED_HEADERS: Final = b"authorization, content-type, last-event-id, x-request-id"
_SHOWN_HEADERS: Final = b"x-request-id, retry-after"


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """How the application runs."""

    polls_max: int = limits.CHANNEL_POLLS_DEFAULT
    """Polls and streams that may wait at the same time."""
    origins: frozenset[str] = frozenset()
    """Pages of these origins may call (CORS), such as `https://shop.example`; `*`: of all."""
    admin_gate: CallGate | None = None
    """Lets those pass who have the admin token; None: nobody may use admin calls."""
    gate: CallGate | None = None
    """None: everybody may pass."""


class ChannelsApp:
    """The application."""

    def __init__(self, channels: Channels, policy: ChannelPolicy, settings: HttpSettings | None = None) -> None:
        """`channels` is the caller's, who closes it."""
        self._settings = settings = settings or HttpSettings()
        self._channels = channels
        self._policy = policy
        self._places = PollPlaces(settings.polls_max)
        self._room = BodyRoom()
        self.figures = ChannelFigures(channels, self._places, self._room)
        self._admin = AdminCalls(policy, settings.admin_gate)
        self._is_listing_open = isinstance(policy, OpenPolicy)
        self._routes = RouteTable()
        self._calls = self._bound_calls()
        self._id_start = secrets.token_hex(4)
        self._id_numbers = count(1)
        self._fault_logged_s = float("-inf")

    def _bound_calls(self) -> dict[str, Callable[[HttpCall], Awaitable[Answer | None]]]:
        """The function for each row of the table."""
        calls = ChannelCalls(self._channels, self._places, self.figures)
        owners = (calls, self._admin, self)
        return {row.call: next(getattr(each, row.call) for each in owners if hasattr(each, row.call)) for row in ROUTES}

    def stop_waiting(self) -> None:
        """Let polls and streams that wait end in order, without waiting for the backend; none waits from now on."""
        self._channels.stop_waiting()

    async def openapi(self, _call: HttpCall) -> Answer:
        return _OPENAPI

    async def page(self, _call: HttpCall) -> Answer:
        return _PAGE

    # --- a request --------------------------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hot."""
        if scope["type"] != "http":
            return
        begun_s = perf_counter()
        call = HttpCall(scope, receive, send, self._room)
        call.request_id = self._request_id(call)
        found = self._routes.find(call.path)
        row = None if found is None else found.rows.get(call.method)
        name = "none" if row is None else row.call
        body_bytes = 0
        try:
            answer = await self._answer(call, found)
            if answer is not None:
                body_bytes = len(answer.body)
                await _send_answer(call, answer)
        except ClientGone:
            pass  # it is counted below, as one without an answer
        except asyncio.CancelledError:
            if not self._channels.wakes.is_stopped:
                raise  # otherwise its client does not read, and is cut off with the stop
        finally:
            call.release()
        seconds = perf_counter() - begun_s
        self.figures.answered(name, call.status or _GONE, None if name in _WAITING else seconds)
        log_request(call, name, body_bytes, seconds)

    async def _answer(self, call: HttpCall, found: FoundPath | None) -> Answer | None:
        """None: it was answered already, or there is nobody to answer."""
        try:
            origin = call.headers.get(b"origin")
            if origin is not None:
                call.more_headers = self._cors(origin)
            if found is None:
                return _NO_PATH
            row = found.rows.get(call.method)
            if row is None:
                return _other_method(call, found)
            call.names = found.names
            if row.access is CallAccess.CHANNEL:
                if self._settings.gate is not None and (refusal := await self._settings.gate(call)) is not None:
                    return refusal
                channel = checked_name("channel", call.names[0])
                call.expire_ms = (await self._policy.grant(channel, call.bearer)).expire_ms
            elif row.access is not CallAccess.OPEN and (refusal := await self._refusal(call, row.access)) is not None:
                return refusal
            return await self._calls[row.call](call)
        except EnvironmentFault as error:
            self._log_fault(error)
            return _refusal_of(call, error)
        except TidelogError as error:
            return _refusal_of(call, error)
        except ClientGone:
            raise
        except asyncio.CancelledError:
            if not self._channels.wakes.is_stopped:
                raise
            # The server has waited as long as it can: for the backend, or for a client that does not read its stream.
            return None if call.status else _refusal_of(call, ServerUnreachable("no answer before the stop"))
        except Exception:
            _LOG.exception("channels: %s %s failed: this is a bug", call.method, call.path)
            return INTERNAL

    async def _refusal(self, call: HttpCall, access: CallAccess) -> Answer | None:
        """Of a call that is not about one channel."""
        if access is CallAccess.LISTING and self._is_listing_open:
            return None if self._settings.gate is None else await self._settings.gate(call)
        return await self._admin.refusal(call)

    def _request_id(self, call: HttpCall) -> str:
        given = call.headers.get(b"x-request-id")
        if given is not None and _REQUEST_ID.fullmatch(given):
            return given.decode("latin-1")
        return f"{self._id_start}-{next(self._id_numbers):x}"

    def _cors(self, origin: bytes) -> tuple[HeaderPair, ...]:
        """The headers that let a page of this origin see the answer; none if it may not."""
        origins = self._settings.origins
        if "*" not in origins and origin.decode("latin-1") not in origins:
            return ()
        return (
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", _SHOWN_HEADERS),
            (b"vary", b"origin"),
        )

    def _log_fault(self, error: EnvironmentFault) -> None:
        """Say it, but not for each of thousands of requests."""
        now_s = perf_counter()
        if now_s - self._fault_logged_s >= limits.CHANNEL_FAULT_LOGGED_S:
            self._fault_logged_s = now_s
            _LOG.warning("channels: %s", error)


def _refusal_of(call: HttpCall, error: TidelogError) -> Answer:
    answer = answer_to(error)
    return put_off(answer) if call.method == "GET" and asks_for_stream(call) else answer


def _other_method(call: HttpCall, found: FoundPath) -> Answer:
    """OPTIONS, with which browsers ask beforehand, or a method that the path does not have."""
    if call.method != "OPTIONS":
        text = f"this path takes {found.allowed.decode()}"
        return error_answer(405, text, "tidelog.channels.no-such-method", ((b"allow", found.allowed),))
    headers: tuple[HeaderPair, ...] = ((b"allow", found.allowed),)
    if call.more_headers:
        headers += (
            (b"access-control-allow-methods", found.allowed),
            (b"access-control-allow-headers", _ALLOWED_HEADERS),
            (b"access-control-max-age", b"600"),
        )
    return Answer(204, headers=headers)


async def _send_answer(call: HttpCall, answer: Answer) -> None:
    """Hot."""
    is_large = len(answer.body) > limits.CHANNEL_BODY_LARGE_BYTES
    if is_large:
        try:
            call.hold(len(answer.body))
        except TooManyBytes as error:
            answer, is_large = answer_to(error), False
    call.status = answer.status
    headers: list[HeaderPair] = [
        (b"cache-control", b"no-store"),
        (b"x-request-id", call.request_id.encode("latin-1")),
        *answer.headers,
        *call.more_headers,
    ]
    if answer.status != 204:
        headers += [(b"content-type", answer.content_type), (b"content-length", b"%d" % len(answer.body))]
    await call.send({"type": "http.response.start", "status": answer.status, "headers": headers})
    if is_large:
        await call.send_large(answer.body, is_whole=True)
    else:
        await call.send({"type": "http.response.body", "body": answer.body})
