"""Which channels there are, who subscribes to them, and how far each is behind.

Nothing keeps a list: the keys are looked through with SCAN, some at a time, on a cluster master by master. A page has
what its steps through the keys came upon, in no order. So the subscribers of a channel may be on several pages, with
the channel on each of them, and a page may be empty although there are more. Whoever wants all merges by name; a key
that is there all the while comes at least once, and may come twice.

The cursor of a page says which master and where in it. After a failover, which gives a master's slots to a server that
keeps its keys in another order, pages that follow may miss some, or repeat them.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from tidelog import limits
from tidelog.channels.backend import Backend, ScanPlace, Word
from tidelog.channels.clock import is_clock, steps_between
from tidelog.channels.names import LISTED_PATTERN, ChannelKeys, listed_key
from tidelog.errors import BadChannelInput

_CURSOR: Final = re.compile(r"([0-9]{1,5})-([0-9]{1,20})", re.ASCII)
_CURSOR_MAX: Final = 2**64 - 1


class ListedSubscriber(NamedTuple):
    """A subscriber, at the moment of its channel."""

    subscriber: str
    lag: int | None
    """Messages that it has not acknowledged, expired ones included; None: it is no longer found, and must be made
    again."""
    expires_in_ms: int


class ListedChannel(NamedTuple):
    """A channel, and those of its subscribers that are on the page."""

    channel: str
    clock: int | None
    """None: it has expired, or was removed."""
    expires_in_ms: int
    subscribers: list[ListedSubscriber]


class ListedPage(NamedTuple):
    """A part of the list."""

    channels: list[ListedChannel]
    cursor: str | None
    """For the next page; None: this was the last."""


async def list_page(backend: Backend, cursor: str | None, channel: str | None) -> ListedPage:
    """The page at a cursor, None for the first; of all channels, or of one."""
    place: ScanPlace | None = _place_of(cursor)
    beside = None if channel is None else ChannelKeys(channel).clock
    pattern = LISTED_PATTERN % (b"*" if channel is None else channel.encode())
    found: dict[str, set[str]] = {}
    keys_left, steps_left = limits.CHANNEL_LISTED_DEFAULT, limits.CHANNEL_SCANS_MAX
    while place is not None and keys_left > 0 and steps_left > 0:
        keys, place = await backend.scan(place, pattern, limits.CHANNEL_SCAN_KEYS, beside)
        steps_left -= 1
        for key in filter(None, map(listed_key, keys)):
            keys_left -= 1
            found.setdefault(key.channel, set()).update(() if key.subscriber is None else (key.subscriber,))
    return ListedPage(await _described(backend, found), None if place is None else f"{place.node}-{place.cursor}")


def _place_of(cursor: str | None) -> ScanPlace:
    if cursor is None:
        return ScanPlace(0, 0)
    found = _CURSOR.fullmatch(cursor)
    if found is None or int(found[2]) > _CURSOR_MAX:
        raise BadChannelInput("that is not the cursor of a page of channels: take it from the page before")
    return ScanPlace(int(found[1]), int(found[2]))


async def _described(backend: Backend, found: dict[str, set[str]]) -> list[ListedChannel]:
    """Clock and cursors of a channel are of one moment; how long they live may be of another."""
    names = [(channel, sorted(subscribers)) for channel, subscribers in sorted(found.items())]
    commands: list[tuple[Word, ...]] = []
    for channel, subscribers in names:
        keys = ChannelKeys(channel)
        its = [keys.clock, *map(keys.cursor, subscribers)]
        commands += [("MGET", *its), *(("PTTL", key) for key in its)]
    replies = iter(await backend.ask(commands) if commands else [])
    listed = []
    for channel, subscribers in names:
        clock, *cursors = map(_clock_of, next(replies))
        expiries = [next(replies) for _ in range(1 + len(subscribers))]
        rows = [
            ListedSubscriber(
                subscriber, None if clock is None or at is None else steps_between(at, clock), max(0, expires_in_ms)
            )
            for subscriber, at, expires_in_ms in zip(subscribers, cursors, expiries[1:], strict=True)
            if expires_in_ms != _GONE
        ]
        if clock is not None or rows:
            listed.append(ListedChannel(channel, clock, max(0, expiries[0]), rows))
    return listed


_GONE: Final = -2
"""PTTL of a key that there is no more."""


def _clock_of(text: bytes | None) -> int | None:
    """The clock that a key has; None if there is none, or something else."""
    try:
        clock = int(text or b"")
    except ValueError:
        return None
    return clock if is_clock(clock) else None
