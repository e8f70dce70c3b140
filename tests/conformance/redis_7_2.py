"""Where Redis 7.2, which Tidelog announces, differs from the Redis 7.0 that Debian has and tests compare with."""

from __future__ import annotations

from typing import Final

from tests.conformance.redis_oracle import Item

LATER_COMMANDS: Final = ("CLIENT|SETINFO", "CLIENT|NO-TOUCH", "WAITAOF")
LATER_ARITIES: Final = {"ZRANK": -3, "ZREVRANK": -3}
"""They take WITHSCORE."""
LATER_FLAGS: Final = {"BLPOP", "BRPOP", "BLMOVE", "BRPOPLPUSH", "BZPOPMIN", "BZPOPMAX", "WAIT"}
"""They are no longer `noscript`, and all are `blocking`."""
LATER_CLIENT_FIELDS: Final = ["lib-name", "lib-ver"]


def flags_of(name: str, flags: set[str]) -> set[str]:
    """The flags of a command, as 7.2 has them."""
    return (flags - {"noscript"}) | {"blocking"} if name in LATER_FLAGS else flags


def encoding_of_set(item: Item) -> Item:
    """OBJECT ENCODING of a set, with what 7.2 keeps in a listpack as 7.0 has it."""
    return item._replace(value=b"hashtable") if item.value == b"listpack" else item
