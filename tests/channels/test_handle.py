"""Receipt handles: only those that were given out are accepted."""

from __future__ import annotations

import asyncio
import base64
import random
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.channels.servers import in_loop
from tidelog import limits
from tidelog.channels.clock import LARGEST
from tidelog.channels.handle import Handles, made_handle, place_of
from tidelog.errors import AckHandleMalformed, LimitExceeded, ServerUnreachable

KEY: Final = bytes(range(32))
OTHER: Final = bytes(range(1, 33))
TRAILS: Final = st.sampled_from(["", "5f0c6e1b9a37", "000000000000"])
CLOCKS: Final = st.sampled_from([0, 1, -1, LARGEST, -LARGEST]) | st.integers(-LARGEST, LARGEST)


@given(CLOCKS, TRAILS)
def test_a_handle_gives_back_its_clock_and_its_trail(clock: int, trail: str) -> None:
    handle = made_handle(KEY, "news", "me", clock, trail)
    assert len(handle) == (44 if trail else 36)
    assert place_of([KEY], "news", "me", handle) == (clock, trail)
    assert place_of([OTHER, KEY], "news", "me", handle) == (clock, trail)


@given(CLOCKS, TRAILS)
def test_no_bit_may_change(clock: int, trail: str) -> None:
    handle = made_handle(KEY, "news", "me", clock, trail).encode()
    for position in range(8 * len(handle)):
        changed = bytearray(handle)
        changed[position // 8] ^= 1 << position % 8
        assert place_of([KEY], "news", "me", changed.decode("latin-1")) is None
    data = base64.urlsafe_b64decode(handle)
    for position in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[position // 8] ^= 1 << position % 8
        assert place_of([KEY], "news", "me", base64.urlsafe_b64encode(flipped).decode()) is None


@pytest.mark.parametrize(
    ("key", "channel", "subscriber"),
    [
        (OTHER, "news", "me"),
        (KEY, "new", "me"),
        (KEY, "news", "m"),
        (KEY, "new", "sme"),
        (KEY, "newsm", "e"),
        (KEY, "me", "news"),
    ],
)
def test_another_key_channel_or_subscriber_is_refused(key: bytes, channel: str, subscriber: str) -> None:
    assert place_of([key], channel, subscriber, made_handle(KEY, "news", "me", 7)) is None
    assert place_of([], channel, subscriber, made_handle(KEY, "news", "me", 7)) is None


@pytest.mark.parametrize(
    "change", ["{}=", "{}==", "{} ", " {}", "{}\n", "{}A", "\x00{}", "{}\u00e4", "", "AQ", "\ud800"]
)
def test_there_is_one_way_to_write_a_handle(change: str) -> None:
    assert place_of([KEY], "news", "me", change.format(made_handle(KEY, "news", "me", 7))) is None


def test_a_trail_cannot_be_left_out_or_added() -> None:
    """Not even by whoever has seen handles of both kinds for the same clock."""
    plain, with_trail = (base64.urlsafe_b64decode(made_handle(KEY, "news", "me", 7, trail)) for trail in ("", "aa" * 6))
    for data in (
        with_trail[:9] + with_trail[15:],
        b"\x01" + with_trail[1:9] + with_trail[15:],
        plain[:9] + with_trail[9:15] + plain[9:],
        b"\x02" + plain[1:9] + with_trail[9:15] + plain[9:],
        b"\x01" + with_trail[1:],
        b"\x02" + plain[1:],
    ):
        assert place_of([KEY], "news", "me", base64.urlsafe_b64encode(data).decode()) is None


@given(st.text(max_size=80) | st.text(alphabet="AQ-_9z", min_size=36, max_size=36))
def test_no_other_text_is_a_handle(text: str) -> None:
    assert place_of([KEY], "news", "me", text) is None


def test_random_handles_are_refused() -> None:
    drawn = random.Random(9)
    for _ in range(20_000):
        version, size = drawn.choice([(b"\x01", 26), (b"\x02", 32)])
        text = base64.urlsafe_b64encode(version + drawn.randbytes(size)).decode()
        assert place_of([KEY], "news", "me", text) is None


def test_no_two_subscribers_share_a_handle() -> None:
    pairs = [(channel, subscriber) for channel in ("a", "ab", "b") for subscriber in ("a", "ab", "b", "bb")]
    assert len({made_handle(KEY, *pair, 7) for pair in pairs}) == len(pairs)


def test_short_keys_are_refused() -> None:
    with pytest.raises(LimitExceeded, match="at least 16 bytes"):
        Handles([b"x" * 15], shared_key=_nobody, now_s=lambda: 0.0)


async def _nobody(_offered: bytes | None) -> bytes:
    raise AssertionError("a configured key is enough")


def test_configured_keys_may_be_replaced_one_by_one() -> None:
    async def play() -> None:
        old = Handles([KEY], shared_key=_nobody, now_s=lambda: 0.0)
        new = Handles([OTHER, KEY], shared_key=_nobody, now_s=lambda: 0.0)
        assert await new.read("news", "me", await old.make("news", "me", 7, "")) == (7, "")
        with pytest.raises(AckHandleMalformed, match="was not given out to the subscriber me of the channel news"):
            await old.read("news", "me", await new.make("news", "me", 7, ""))

    asyncio.run(play())


class Backend:
    """Where the shared key is, as far as handles know."""

    def __init__(self) -> None:
        self.key: bytes | None = KEY
        self.looks = 0
        self.is_away = False
        self.now_s = 0.0

    async def shared_key(self, offered: bytes | None) -> bytes:
        self.looks += 1
        if self.is_away:
            raise ServerUnreachable("away")
        self.key = self.key or offered or OTHER
        return self.key

    def has(self, key: bytes | None) -> bool:
        return self.key == key

    def handles(self) -> Handles:
        return Handles([], shared_key=self.shared_key, now_s=lambda: self.now_s)


@in_loop
async def test_the_key_of_the_backend_is_looked_at_again_when_a_handle_proves_wrong() -> None:
    backend = Backend()
    handles = backend.handles()
    ours = await handles.make("news", "me", 7, "")
    assert await handles.read("news", "me", ours) == (7, "")
    assert backend.looks == 1
    backend.key = OTHER  # the backend was emptied, and another gateway has made a key
    theirs = made_handle(OTHER, "news", "me", 8)
    with pytest.raises(AckHandleMalformed):
        await handles.read("news", "me", theirs)
    assert backend.looks == 1, "guessing costs the backend little"
    backend.now_s = limits.CHANNEL_KEY_LOOK_S
    assert await handles.read("news", "me", theirs) == (8, "")
    assert await handles.make("news", "me", 8, "") == theirs
    assert await handles.read("news", "me", ours) == (7, ""), "what it gave out itself stays good"
    for wrong in ("nonsense", made_handle(bytes(32), "news", "me", 8)):
        with pytest.raises(AckHandleMalformed):
            await handles.read("news", "me", wrong)
    assert backend.looks == 2


@in_loop
async def test_a_key_that_the_backend_lost_is_put_back() -> None:
    """A gateway that starts then would make another, and refuse what this one gives out."""
    backend = Backend()
    handles = backend.handles()
    ours = await handles.make("news", "me", 7, "")
    backend.key = None
    backend.now_s = limits.CHANNEL_KEY_KEPT_S - 1
    await handles.make("news", "me", 7, "")
    assert (backend.has(None), backend.looks) == (True, 1)
    backend.now_s += 1
    assert await handles.make("news", "me", 7, "") == ours
    assert (backend.has(KEY), backend.looks) == (True, 2)
    assert await backend.handles().read("news", "me", ours) == (7, "")


@in_loop
async def test_a_key_that_another_gateway_made_is_taken_over() -> None:
    backend = Backend()
    handles = backend.handles()
    await handles.make("news", "me", 7, "")
    backend.key = OTHER
    backend.now_s = limits.CHANNEL_KEY_KEPT_S
    assert await handles.make("news", "me", 7, "") == made_handle(OTHER, "news", "me", 7)


@in_loop
async def test_a_backend_that_is_away_takes_no_key_away() -> None:
    backend = Backend()
    handles = backend.handles()
    ours = await handles.make("news", "me", 7, "")
    backend.is_away, backend.now_s = True, limits.CHANNEL_KEY_KEPT_S
    assert await handles.make("news", "me", 7, "") == ours
    with pytest.raises(ServerUnreachable):
        await backend.handles().make("news", "me", 7, "")
