"""What a client asks Flight for, as JSON in a ticket or a descriptor's command.

    {"stream": "orders", "from": {"offset": 1}, "to": {"offset": 1000}, "count": 500, "database": 0}

`from` and `to` name an `offset`, an `id` ("1700000000000-0") or a `time` (ms); both are included, and both may be
missing. A key that is no UTF-8 comes as `stream_base64`. With `"packed": true` nodes come as they lie in the server
(`tidelog.flight.nodes`). With `"bytes": 1000000` a range ends where its entries take about so much, and get_flight_info
tells where that is.
"""

from __future__ import annotations

import base64
import json
import re
from typing import Any, Final, NamedTuple

from tidelog import limits
from tidelog.errors import ClientError
from tidelog.streams.node import SEQ_MAX, pack_id

_KNOWN: Final = frozenset(["stream", "stream_base64", "database", "from", "to", "count", "packed", "bytes"])
_ID: Final = re.compile(r"([0-9]{1,20})(?:-([0-9]{1,20}))?")


class RangeEnd(NamedTuple):
    """One end of a range: an offset, or an id as one number."""

    offset: int | None = None
    number: int | None = None


class ReadRequest(NamedTuple):
    """A range of a stream."""

    key: bytes
    database: int = 0
    first: RangeEnd = RangeEnd()
    last: RangeEnd = RangeEnd()
    most: int | None = None
    """How many entries; None: any number."""
    is_packed: bool = False
    """Nodes are handed out unopened."""
    size_bytes_max: int | None = None
    """About how much its entries may take in memory; None: any amount."""

    def ticket(self) -> bytes:
        """The same as bytes that `parse_read` takes."""
        found: dict[str, Any] = {"stream_base64": base64.b64encode(self.key).decode(), "database": self.database}
        for name, end in (("from", self.first), ("to", self.last)):
            if end.offset is not None:
                found[name] = {"offset": end.offset}
            elif end.number is not None:
                found[name] = {"id": f"{end.number >> 64}-{end.number & SEQ_MAX}"}
        if self.most is not None:
            found["count"] = self.most
        if self.is_packed:
            found["packed"] = True
        if self.size_bytes_max is not None:
            found["bytes"] = self.size_bytes_max
        return json.dumps(found).encode()


def parse_read(data: bytes) -> ReadRequest:
    """`ClientError` if it is not a request."""
    fields = _object(data)
    strange = sorted(fields.keys() - _KNOWN)
    if strange:
        raise ClientError(f"a request has no field {strange[0]!r}: there are {', '.join(sorted(_KNOWN))}")
    count = fields.get("count")
    if count is not None:
        count = _number(count, "count", 0, 2**63 - 1)
    is_packed = fields.get("packed", False)
    if not isinstance(is_packed, bool):
        raise ClientError("packed must be true or false")
    size = fields.get("bytes")
    if size is not None:
        size = _number(size, "bytes", 1, 2**63 - 1)
    return ReadRequest(
        parse_key(fields),
        parse_database(fields),
        _range_end(fields.get("from"), "from", 0),
        _range_end(fields.get("to"), "to", SEQ_MAX),
        count,
        is_packed,
        size,
    )


def parse_criteria(data: bytes) -> int:
    """Of which database the streams are to be listed; `ClientError` if it is not a request."""
    return parse_database(_object(data)) if data else 0


def _object(data: bytes) -> dict[str, Any]:
    if len(data) > limits.FLIGHT_REQUEST_BYTES_MAX:
        raise ClientError(f"a request has at most {limits.FLIGHT_REQUEST_BYTES_MAX} bytes")
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise ClientError('a request must be a JSON object such as {"stream": "orders"}') from None
    if not isinstance(found, dict):
        raise ClientError('a request must be a JSON object such as {"stream": "orders"}')
    return found


def parse_key(fields: dict[str, Any]) -> bytes:
    name, encoded = fields.get("stream"), fields.get("stream_base64")
    if isinstance(name, str) and encoded is None:
        try:
            return name.encode()
        except UnicodeEncodeError:  # half of a surrogate pair
            raise ClientError("a name that is not UTF-8 must be sent as `stream_base64`") from None
    if isinstance(encoded, str) and name is None:
        try:
            return base64.b64decode(encoded, validate=True)
        except ValueError:  # of `binascii`, or because there is a letter that is no ASCII
            raise ClientError("stream_base64 is not base64") from None
    raise ClientError("a request must name one stream, as `stream` or as `stream_base64`")


def parse_database(fields: dict[str, Any]) -> int:
    return _number(fields.get("database", 0), "database", 0, limits.DATABASES - 1)


def _number(value: Any, name: str, low: int, high: int) -> int:
    if type(value) is not int or not low <= value <= high:
        raise ClientError(f"{name} must be a number from {low} to {high}")
    return value


def _range_end(value: Any, name: str, seq: int) -> RangeEnd:
    """`seq`: what an id has that is given by its time alone."""
    if value is None:
        return RangeEnd()
    if not isinstance(value, dict) or len(value) != 1:
        raise ClientError(f"{name} must have one of offset, id and time")
    ((kind, what),) = value.items()
    if kind == "offset":
        return RangeEnd(offset=_number(what, f"{name}.offset", 0, 2**63 - 1))
    if kind == "time":
        return RangeEnd(number=pack_id(_number(what, f"{name}.time", 0, SEQ_MAX), seq))
    if kind == "id" and isinstance(what, str):
        found = _ID.fullmatch(what)
        if found is not None:
            ms, rest = int(found[1]), seq if found[2] is None else int(found[2])
            if max(ms, rest) <= SEQ_MAX:
                return RangeEnd(number=pack_id(ms, rest))
        raise ClientError(f"{name}.id must be an id such as 1700000000000-0")
    raise ClientError(f"{name} must have one of offset, id and time")
