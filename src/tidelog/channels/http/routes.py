"""All calls, as a table: what is sent where, and what comes back. The dispatcher and the OpenAPI page both read it.

    /channel/{channelID}/message/{messageID}
             ~~~~~~~~~~~         ~~~~~~~~~~~ names; the rest must be there as it is

A path is looked up by its number of parts: few templates have the same number, and no two of them fit the same path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

from tidelog import limits
from tidelog.channels.http.durations import DURATION_LENGTH_MAX, DURATION_PATTERN


class CallAccess(Enum):
    """What is asked of a client before a call."""

    CHANNEL = "channel"
    """What the whole edge asks for (a password, if there is one), and then a grant for the channel in the path."""
    LISTING = "listing"
    """The same, or the admin token where channels have tokens of their own."""
    ADMIN = "admin"
    """The admin token."""
    OPEN = "open"
    """Nothing."""


class CallParameter(NamedTuple):
    """A parameter of a call."""

    name: str
    place: str
    """query or header; those of the path are in the template."""
    text: str
    schema: Mapping[str, object]
    is_needed: bool = False


class RouteRow(NamedTuple):
    """A call."""

    call: str
    """Its name: for metrics and logs, and of the method that does it."""
    method: str
    template: str
    access: CallAccess
    text: str
    """One line."""
    answers: Mapping[int, str]
    """What comes back: the status, and the name of a schema; `` if there is no body."""
    parameters: Sequence[CallParameter] = ()
    body: str = ""
    """The name of a schema; `` if there is no body."""
    more: str = ""
    """What else is to be known, in Markdown."""
    errors: Sequence[int] = ()
    """Statuses beside those that the access brings, with the body of an error."""


_CHANNEL: Final = "/channel/{channelID}"
_SUBSCRIBER: Final = "/channel/{channelID}/subscription/polling/{subscriberID}"
_TIMEOUT: Final = CallParameter(
    "timeout",
    "query",
    f"How long to wait for a message, as Go writes durations: 30s, 1m30s, 500ms; at most "
    f"{limits.CHANNEL_POLL_S_MAX / 3600:g}h. Without it the answer comes at once.",
    {"type": "string", "pattern": DURATION_PATTERN, "maxLength": DURATION_LENGTH_MAX, "default": "0s"},
)
_MAX: Final = CallParameter(
    "max",
    "query",
    "The most messages of one answer.",
    {
        "type": "integer",
        "minimum": 1,
        "maximum": limits.CHANNEL_FETCH_MESSAGES_MAX,
        "default": limits.CHANNEL_FETCH_MESSAGES_DEFAULT,
    },
)
_TEXT: Final = {"type": "string", "minLength": 1}
_CURSOR: Final = {"type": "string", "pattern": "^[0-9]{1,5}-[0-9]{1,19}$"}
_HANDLE: Final = {"type": "string", "pattern": "^[0-9A-Za-z_-]{36}([0-9A-Za-z_-]{8})?$"}

ROUTES: Final = (
    RouteRow(
        "subscribe",
        "PUT",
        _SUBSCRIBER,
        CallAccess.CHANNEL,
        "Make a subscriber, and the channel if there is none",
        {200: "Subscriber"},
        more="A subscriber begins after the newest message. One that is there already stays where it is and lives on. "
        "It expires, if it neither subscribes again nor acknowledges anything for as long as messages are kept.",
    ),
    RouteRow(
        "unsubscribe",
        "DELETE",
        _SUBSCRIBER,
        CallAccess.CHANNEL,
        "Remove a subscriber; fine if there is none",
        {200: "Subscriber"},
    ),
    RouteRow(
        "fetch",
        "GET",
        _SUBSCRIBER,
        CallAccess.CHANNEL,
        "Get the next messages, and wait for them if there are none",
        {200: "Messages"},
        (
            _TIMEOUT,
            _MAX,
            CallParameter(
                "Last-Event-ID", "header", "For a stream: acknowledges up to this event.", {"type": "string"}
            ),
        ),
        more="Messages come again until they are acknowledged. With `Accept: text/event-stream`, as a browser's "
        "`EventSource` sends it, the answer is a stream of server-sent events instead: each message is one event, the "
        "id of an event is a handle, and `Last-Event-ID`, with which a browser connects again, acknowledges all up to "
        "that event. A stream ends now and then, so that the browser does so.",
        errors=(404, 429),
    ),
    RouteRow(
        "acknowledge",
        "DELETE",
        _SUBSCRIBER + "/message",
        CallAccess.CHANNEL,
        "Acknowledge messages: they do not come again",
        {204: ""},
        (CallParameter("ackHandle", "query", "As it came with the messages.", _HANDLE, True),),
        more="A handle that was acknowledged before, or that is behind one that was, is a success.",
        errors=(404,),
    ),
    RouteRow(
        "publish",
        "PUT",
        _CHANNEL + "/message/{messageID}",
        CallAccess.CHANNEL,
        "Publish a message: any JSON",
        {200: "Published"},
        body="Content",
        more="A message with an id that the channel knows is the same message, sent again, and a success.",
        errors=(413, 415),
    ),
    RouteRow(
        "publish_several",
        "POST",
        _CHANNEL + "/messages",
        CallAccess.CHANNEL,
        "Publish several messages at one moment, in this order",
        {200: "PublishedList"},
        body="MessageList",
        errors=(413, 415),
    ),
    RouteRow(
        "list_channels",
        "GET",
        "/channel",
        CallAccess.LISTING,
        "List channels, their subscribers and how far each is behind",
        {200: "ChannelPage"},
        (
            CallParameter("cursor", "query", "The `cursor` of the page before; without it, the first page.", _CURSOR),
            CallParameter("channel", "query", "Only this channel.", {"$ref": "#/components/schemas/Name"}),
        ),
        more="A page has what was come upon, in no order: it may be empty although another follows, and a channel may "
        "be on several pages, each with some of its subscribers. The last page has no `cursor`.",
    ),
    RouteRow(
        "liveness",
        "GET",
        "/probe/liveness",
        CallAccess.OPEN,
        "Whether this process answers",
        {200: "Probe"},
    ),
    RouteRow(
        "readiness",
        "GET",
        "/probe/readiness",
        CallAccess.OPEN,
        "Whether the backend answers as well",
        {200: "Probe", 503: "Probe"},
    ),
    RouteRow(
        "revoke_token",
        "PUT",
        "/admin/jwt/revoke",
        CallAccess.ADMIN,
        "Refuse a JWT from now on",
        {200: "RevokedToken"},
        (
            CallParameter("jti", "query", "The id of the token.", _TEXT, True),
            CallParameter(
                "exp",
                "query",
                "When it expires, in seconds of unix time: it need not be remembered for longer.",
                {"type": "integer", "minimum": 0, "maximum": 2**53 - 1},
                True,
            ),
        ),
    ),
    RouteRow(
        "set_log_level",
        "PUT",
        "/admin/log/level",
        CallAccess.ADMIN,
        "Say how much is logged",
        {204: ""},
        (
            CallParameter(
                "category",
                "query",
                "`*` for all, `requests` for the log of requests.",
                {"type": "string", "enum": ["*", "requests"]},
                True,
            ),
            CallParameter(
                "level",
                "query",
                "What is at least this severe is logged.",
                {"type": "string", "enum": ["DEBUG", "INFO", "WARN", "ERROR", "FATAL"]},
                True,
            ),
        ),
    ),
    RouteRow(
        "openapi",
        "GET",
        "/channels/openapi.json",
        CallAccess.OPEN,
        "This description",
        {200: "OpenApi"},
    ),
    RouteRow(
        "page",
        "GET",
        "/channels",
        CallAccess.OPEN,
        "This description as a page",
        {200: "Page"},
    ),
)

OWN_PARTS: Final = frozenset(row.template.split("/")[1] for row in ROUTES)
"""What the paths of all calls begin with."""


class FoundPath(NamedTuple):
    """A path that there is."""

    rows: Mapping[str, RouteRow]
    """By method."""
    names: tuple[str, ...]
    allowed: bytes
    """The methods, for the header `Allow`."""


class _Template:
    __slots__ = ("allowed", "fixed", "named", "rows")

    def __init__(self, parts: list[str]) -> None:
        self.fixed = [(at, part) for at, part in enumerate(parts) if not part.startswith("{")]
        self.named = [at for at, part in enumerate(parts) if part.startswith("{")]
        self.rows: dict[str, RouteRow] = {}
        self.allowed = b""


class RouteTable:
    """Finds the call for a path."""

    def __init__(self, rows: Sequence[RouteRow] = ROUTES) -> None:
        templates: dict[str, _Template] = {}
        self._by_length: dict[int, list[_Template]] = {}
        for row in rows:
            parts = row.template.split("/")
            found = templates.get(row.template)
            if found is None:
                found = templates[row.template] = _Template(parts)
                self._by_length.setdefault(len(parts), []).append(found)
            found.rows[row.method] = row
            if row.method == "GET" and row.access is CallAccess.OPEN:
                found.rows["HEAD"] = row  # load balancers ask so; the server leaves out the body
            found.allowed = ", ".join([*found.rows, "OPTIONS"]).encode()

    def find(self, path: str) -> FoundPath | None:
        """Hot."""
        parts = path.split("/")
        for template in self._by_length.get(len(parts), ()):
            for at, part in template.fixed:
                if parts[at] != part:
                    break
            else:
                return FoundPath(template.rows, tuple([parts[at] for at in template.named]), template.allowed)
        return None
