"""The values of settings, as flags, the environment and TOML files have them: read, or refused with `BadValue`."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Any, Final

from tidelog import limits
from tidelog.engine.parameters import BadValue, read_age, read_memory
from tidelog.journal.durability import FsyncPolicy
from tidelog.journal.retention import NO_LIMIT
from tidelog.ports import NetworkAddress

PORT_MAX: Final = 65535
SECRET_BYTES_MAX: Final = 512


def read_text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise BadValue("must be a text")
    return value


def number_reader(low: int, high: int, what: str) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,12}", value):
            value = int(value)
        if type(value) is not int or not low <= value <= high:
            raise BadValue(f"must be {what}, {low} to {high}")
        return value

    return read


def read_port(value: Any) -> int | None:
    """0 is off, as in Redis; `auto` is any that is free."""
    if value == "auto":
        return 0
    try:
        return number_reader(0, PORT_MAX, "a port")(value) or None
    except BadValue as problem:
        raise BadValue(f"{problem}, or auto") from None


def read_fsync(value: Any) -> FsyncPolicy:
    try:
        return FsyncPolicy(value)
    except ValueError:
        raise BadValue(f"must be one of {', '.join(policy.value for policy in FsyncPolicy)}") from None


def size_reader(nothing: str) -> Callable[[Any], int]:
    """`nothing`: what 0 means."""

    def read(value: Any) -> int:
        try:
            return read_memory(str(value))
        except BadValue:
            raise BadValue(f"must be a number of bytes, such as 512mb or 2gb; 0: {nothing}") from None

    return read


def read_ship_bandwidth(value: Any) -> int:
    bytes_per_s = size_reader("no limit")(value)
    if 0 < bytes_per_s < limits.SHIP_BANDWIDTH_MIN:
        raise BadValue(
            f"must be at least {limits.SHIP_BANDWIDTH_MIN // limits.KIB}kb a second, or 0: no limit. With less, "
            f"manifests come so late that others take this server for dead"
        )
    return bytes_per_s


def read_retained_bytes(value: Any) -> int:
    return size_reader("no limit")(value) or NO_LIMIT


def read_retained_age_us(value: Any) -> int:
    try:
        return read_age(str(value)) * 1_000_000 or NO_LIMIT
    except BadValue:
        raise BadValue("must be a number of seconds, or an age such as 90m, 24h or 7d; 0: no limit") from None


def read_wait_us(value: Any) -> int:
    try:
        return read_age(str(value)) * 1_000_000
    except BadValue:
        raise BadValue("must be a number of seconds, or an age such as 60s or 5m") from None


def read_local_us(value: Any) -> int:
    try:
        return read_age(str(value)) * 1_000_000
    except BadValue:
        raise BadValue("must be a number of seconds, or an age such as 24h or 7d; 0: as short as can be") from None


def read_cache_bytes(value: Any) -> int:
    least = limits.HISTORY_CACHE_BYTES_MIN
    with contextlib.suppress(BadValue):
        if (size := read_memory(str(value))) >= least:
            return size
    raise BadValue(f"must be a size of at least {least // limits.MIB}mb, such as 1gb")


def read_frame_bytes(value: Any) -> int:
    with contextlib.suppress(BadValue):
        if (size := read_memory(str(value))) in limits.FRAME_BYTES_CHOICES:
            return size
    choices = [f"{size // limits.MIB}mb" for size in limits.FRAME_BYTES_CHOICES]
    raise BadValue(f"must be one of {', '.join(choices)}")


def read_switch(value: Any) -> bool:
    words = {"yes": True, "true": True, "on": True, "1": True, "no": False, "false": False, "off": False, "0": False}
    if isinstance(value, str) and value.lower() in words:
        return words[value.lower()]
    if not isinstance(value, bool):
        raise BadValue("must be yes or no")
    return value


def read_names(value: Any) -> tuple[str, ...]:
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise BadValue("must be names with commas between them")
    return tuple(name.strip().lower() for name in names if name.strip())


def read_origins(value: Any) -> tuple[str, ...]:
    """What browsers send as `Origin`: a scheme, a host and perhaps a port."""
    origins = read_names(value)
    for origin in origins:
        if origin != "*" and re.fullmatch(r"https?://[^/\s?#]+", origin) is None:
            raise BadValue("must be origins such as https://shop.example with commas between them, or *")
    return origins


def read_channel_expiry(value: Any) -> int:
    try:
        expire_ms = 1000 * read_age(str(value))
    except BadValue:
        expire_ms = 0
    if not limits.CHANNEL_EXPIRE_MS_MIN <= expire_ms <= limits.CHANNEL_EXPIRE_MS_MAX:
        raise BadValue("must be a number of seconds, or an age such as 30m, 24h or 7d; at most 366d")
    return expire_ms


def read_address(value: Any) -> NetworkAddress:
    """`host:port`, or `host port` as Redis writes it. An IPv6 address with a colon behind it is in brackets."""
    found = re.fullmatch(r"(?:\[([^]\s]+)\]|([^\s:]+)):([0-9]{1,5})|([^\s]+) +([0-9]{1,5})", read_text(value))
    if found is None or not 0 < (port := int(found[3] or found[5])) <= PORT_MAX:
        raise BadValue("must be a host and a port, such as 10.0.0.1:6399")
    return found[1] or found[2] or found[4], port


def read_word(value: Any) -> str:
    """A text without spaces, which may be empty."""
    if not isinstance(value, str) or re.search(r"[\s\x00-\x1f]", value):
        raise BadValue("must be a text without spaces")
    return value


def read_script_memory(value: Any) -> int:
    size = read_memory(read_text(value))
    if not limits.SCRIPT_MEMORY_BYTES_MIN <= size <= limits.SCRIPT_MEMORY_BYTES_MAX:
        raise BadValue("must be a size from 8mb to 1gb")
    return size


def read_password(path: str) -> bytes:
    """The first line of a file."""
    try:
        with open(path, "rb") as file:
            password = file.readline(SECRET_BYTES_MAX + 1).rstrip(b"\r\n")
    except OSError as error:
        raise BadValue(f"names {path}, which cannot be read: {error.strerror}") from None
    if not 0 < len(password) <= SECRET_BYTES_MAX:
        raise BadValue(f"names {path}, whose first line must be a password of 1 to {SECRET_BYTES_MAX} bytes")
    return password
