"""Members drawn at random: HRANDFIELD, SRANDMEMBER, ZRANDMEMBER and SPOP.

Chance comes from the store. A collection has no places to draw from, so drawing takes a step for each of its members.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice
from typing import Final

from tidelog import limits
from tidelog.commands.arguments import I64_MAX, integer
from tidelog.errors import CommandError
from tidelog.ports import Random

_OUT_OF_RANGE: Final = "ERR value is out of range"


def drawn_count(argument: bytes) -> int:
    """How many are asked for; negative: with repetition."""
    count = integer(argument)
    if count < -I64_MAX:
        raise CommandError(f"{_OUT_OF_RANGE}, value must between {-I64_MAX} and {I64_MAX}")
    return count


def check_pairs_count(count: int) -> None:
    """A reply of pairs has twice as many items, which must be countable as well."""
    if not -(I64_MAX // 2) <= count <= I64_MAX // 2:
        raise CommandError(_OUT_OF_RANGE)


def draw_one(random: Random, members: Collection[bytes]) -> bytes:
    """One member; there must be one."""
    return next(islice(members, random.randrange(len(members)), None))


def draw(random: Random, members: Collection[bytes], count: int) -> list[bytes]:
    """Different members, all of them if there are no more; a negative count: that many, with repetition."""
    if count >= 0:
        return random.sample(list(members), count) if count < len(members) else list(members)
    if -count > limits.DRAWN_MEMBERS_MAX:
        raise CommandError(_OUT_OF_RANGE)
    places = list(members)
    return [places[random.randrange(len(places))] for _ in range(-count)]
