"""The description of the calls, made of the table of routes: as OpenAPI 3.1, and as a page that needs nothing else.

What a call answers beside its own statuses follows from its access: a call on a channel may be refused by the policy,
any call may fail because of the backend. So a new row is described without being told twice.
"""

from __future__ import annotations

import html
import json
from typing import Any, Final

from tidelog import __version__, limits
from tidelog.channels.http.answer import ERROR_CODES
from tidelog.channels.http.routes import ROUTES, CallAccess, RouteRow

_NAME: Final = {"type": "string", "pattern": "^[0-9A-Za-z][0-9A-Za-z_-]{0,62}$"}
_REF: Final = "#/components/schemas/"
_ERRORS_OF: Final = {
    CallAccess.CHANNEL: (400, 401, 403, 429, 503),
    CallAccess.LISTING: (400, 401, 403, 429, 503),
    CallAccess.ADMIN: (400, 401, 403, 429, 503),
    CallAccess.OPEN: (),
}
_REASONS: Final = {
    400: "A name, a number, a handle or a body that cannot be",
    401: "A password or a token is missing",
    403: "No rule is for this channel, or the token is not",
    404: "There is no such subscriber (any more): subscribe again",
    413: "The body is too large",
    415: "The body is compressed: send it as it is",
    429: "Too many polls wait, too many large bodies are under way, or too many passwords or tokens were wrong: come "
    "back later",
    503: "The backend does not answer: send the same request again",
}


def _object(needed: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {**needed, **more}, "required": list(needed)}


_SCHEMAS: Final[dict[str, Any]] = {
    "Name": _NAME,
    "Content": {"description": f"Any JSON, at most {limits.CHANNEL_MESSAGE_BYTES_MAX} bytes of it."},
    "Error": _object(
        {
            "error": {"type": "string", "description": "For people."},
            "code": {"type": "string", "enum": list(ERROR_CODES), "description": "For programs."},
        }
    ),
    "Subscriber": _object({"channelID": {"$ref": _REF + "Name"}, "subscriberID": {"$ref": _REF + "Name"}}),
    "Message": _object({"messageID": {"$ref": _REF + "Name"}, "content": {"$ref": _REF + "Content"}}),
    "Messages": _object(
        {
            "channelID": {"$ref": _REF + "Name"},
            "messages": {"type": "array", "items": {"$ref": _REF + "Message"}},
            "moreMessages": {"type": "boolean"},
        },
        ackHandle={"type": "string", "description": "Acknowledges these messages; absent if there is nothing to."},
    ),
    "Published": _object({"channelID": {"$ref": _REF + "Name"}, "messageID": {"$ref": _REF + "Name"}}),
    "MessageList": {
        "type": "array",
        "minItems": 1,
        "maxItems": limits.CHANNEL_PUBLISH_MESSAGES_MAX,
        "items": {**_object({"messageID": {"$ref": _REF + "Name"}, "content": {"$ref": _REF + "Content"}}),
                  "additionalProperties": False},
    },
    "PublishedList": _object(
        {
            "channelID": {"$ref": _REF + "Name"},
            "messages": {
                "type": "array",
                "items": _object({"messageID": {"$ref": _REF + "Name"}, "isNew": {"type": "boolean"}}),
            },
        }
    ),
    "ChannelPage": _object(
        {
            "channels": {
                "type": "array",
                "items": _object(
                    {
                        "channelID": {"$ref": _REF + "Name"},
                        "clock": {"type": ["integer", "null"], "description": "Of its newest message."},
                        "expiresInMs": {"type": "integer"},
                        "subscribers": {
                            "type": "array",
                            "items": _object(
                                {
                                    "subscriberID": {"$ref": _REF + "Name"},
                                    "lag": {"type": ["integer", "null"], "description": "Messages that it is behind."},
                                    "expiresInMs": {"type": "integer"},
                                }
                            ),
                        },
                    }
                ),
            }
        },
        cursor={"type": "string"},
    ),
    "Probe": _object({"storage": {"type": "string"}}),
    "RevokedToken": _object({"jti": {"type": "string"}, "exp": {"type": "integer"}}),
    "OpenApi": {"type": "object"},
}  # fmt: skip


def describe() -> dict[str, Any]:
    """The description, as a value."""
    paths: dict[str, dict[str, Any]] = {}
    for row in ROUTES:
        paths.setdefault(row.template, {})[row.method.lower()] = _operation(row)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tidelog channels",
            "version": __version__,
            "description": "Durable publish/subscribe: each subscriber of a channel gets every message, in order, at "
            "least once.",
        },
        "paths": paths,
        "components": {
            "schemas": _SCHEMAS,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The password of the server, a JWT, or the admin token.",
                }
            },
        },
    }


def _operation(row: RouteRow) -> dict[str, Any]:
    names = [part[1:-1] for part in row.template.split("/") if part.startswith("{")]
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"$ref": _REF + "Name"}} for name in names
    ]
    parameters += [
        {"name": each.name, "in": each.place, "required": each.is_needed, "description": each.text,
         "schema": each.schema}
        for each in row.parameters
    ]  # fmt: skip
    made: dict[str, Any] = {
        "operationId": row.call,
        "summary": row.text,
        "parameters": parameters,
        "responses": _responses(row),
    }
    if row.more:
        made["description"] = row.more
    if row.body:
        made["requestBody"] = {"required": True, "content": _json_content(row.body)}
    if row.access is not CallAccess.OPEN:
        made["security"] = [{"token": []}] if row.access is CallAccess.ADMIN else [{}, {"token": []}]
    return made


def _responses(row: RouteRow) -> dict[str, Any]:
    made: dict[int, Any] = {}
    for status, schema in row.answers.items():
        made[status] = {"description": "As asked" if status < 300 else _REASONS[status]}
        if schema == "Page":
            made[status]["content"] = {"text/html": {"schema": {"type": "string"}}}
        elif schema:
            made[status]["content"] = _json_content(schema)
    if row.call == "fetch":
        made[200]["content"]["text/event-stream"] = {"schema": {"type": "string"}}
    for status in (*_ERRORS_OF[row.access], *row.errors):
        made.setdefault(status, {"description": _REASONS[status], "content": _json_content("Error")})
    return {str(status): made[status] for status in sorted(made)}


def _json_content(schema: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _REF + schema}}}


# --- the page -----------------------------------------------------------------------------------------------------

_STYLE: Final = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1a2b34 }
h2 { font: 600 1rem ui-monospace, monospace; margin: 2.5rem 0 .25rem; overflow-wrap: anywhere }
h2 b { display: inline-block; min-width: 5.5rem }
table { border-collapse: collapse; margin: .5rem 0 } td { padding: .15rem 1rem .15rem 0; vertical-align: top }
code { font: .9em ui-monospace, monospace } a { color: inherit }
@media (prefers-color-scheme: dark) { body { background: #10191e; color: #dbe6ea } }
"""


def made_page() -> bytes:
    """The description as HTML. It loads nothing from anywhere."""
    sections = "".join(map(_section, ROUTES))
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Tidelog channels</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style>'
        f"<h1>Tidelog channels</h1><p>Durable publish/subscribe over HTTP: each subscriber of a channel gets every "
        f"message, in order, at least once. For programs, the same as "
        f'<a href="/channels/openapi.json">OpenAPI</a>.</p>{sections}</html>'
    ).encode()


def _section(row: RouteRow) -> str:
    rows = [(f"<code>{html.escape(each.name)}</code>", html.escape(each.text)) for each in row.parameters]
    rows += [(str(status), html.escape(schema or "no body")) for status, schema in row.answers.items()]
    rows += [
        (str(status), html.escape(_REASONS[status]))
        for status in sorted({*_ERRORS_OF[row.access], *row.errors} - row.answers.keys())
    ]
    table = "".join(f"<tr><td>{left}<td>{right}" for left, right in rows)
    more = f"<p>{html.escape(row.more).replace('`', '')}" if row.more else ""
    return (
        f'<h2 id="{row.call}"><b>{row.method}</b> {html.escape(row.template)}</h2>{html.escape(row.text)}.{more}'
        f"<table>{table}</table>"
    )


OPENAPI_JSON: Final = json.dumps(describe(), separators=(",", ":")).encode()
