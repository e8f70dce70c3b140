"""Wrong passwords: answered later and later, by address, and not compared at all when there are too many."""

from __future__ import annotations

import pytest

from tests.engine.blocked import BlockedClient, Server, in_loop
from tests.server.test_connection import turns
from tidelog import limits
from tidelog.engine.password import Password, Verdict
from tidelog.testing.clock import SimulatedClock

SECRET = b"open sesame"


class Guessed:
    def __init__(self) -> None:
        self.clock = SimulatedClock()
        self.password = Password(SECRET, self.clock)

    def wrong(self, count: int = 1, host: str = "10.0.0.1") -> list[float]:
        """Delays of so many wrong passwords."""
        return [self.password.check(b"wrong", host).delay_s for _ in range(count)]


def test_delays_grow_up_to_a_bound_and_are_forgotten() -> None:
    guessed = Guessed()
    assert guessed.wrong(10) == [0, 0, 0, 0.1, 0.2, 0.4, 0.8, 1.6, 3, 3]
    assert guessed.password.check(SECRET, "10.0.0.1") == Verdict(True)
    assert guessed.wrong() == [3]
    guessed.clock.advance(1_000_000 * limits.WRONG_PASSWORDS_FORGOTTEN_S - 1)
    assert guessed.wrong() == [3]
    guessed.clock.advance(1_000_000 * limits.WRONG_PASSWORDS_FORGOTTEN_S)
    assert guessed.wrong(4) == [0, 0, 0, 0.1]


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("10.0.0.1", "10.0.0.2", False),
        ("10.0.0.1", "::ffff:10.0.0.1", True),
        ("[2001:db8::1]", "2001:db8::2:3", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::1", True),
        ("/run/socket", "flight", False),
        ("127.0.0.1", "127.1.2.3", True),
        ("::ffff:127.0.0.1", "::1", True),
    ],
)
def test_what_counts_as_one_address(one: str, other: str, is_same: bool) -> None:
    guessed = Guessed()
    guessed.wrong(limits.WRONG_PASSWORDS_FREE, one)
    assert guessed.wrong(1, other) == [0.1 if is_same else 0]


def test_a_flood_is_not_compared() -> None:
    guessed = Guessed()
    guessed.wrong(limits.WRONG_PASSWORDS_FLOOD)
    guessed.clock.advance(2_500_000)
    assert guessed.password.check(SECRET, "10.0.0.1") == Verdict(False, 0, 8)
    assert guessed.password.check(SECRET, "10.0.0.2").is_right
    guessed.clock.advance(7_499_999)
    assert guessed.password.check(SECRET, "10.0.0.1").retry_after_s == 1
    guessed.clock.advance(1)
    assert guessed.password.check(SECRET, "10.0.0.1").is_right
    assert guessed.wrong(limits.WRONG_PASSWORDS_FLOOD) == [3] * limits.WRONG_PASSWORDS_FLOOD
    assert guessed.password.check(SECRET, "10.0.0.1").retry_after_s == 10


def test_addresses_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WRONG_PASSWORDS_ADDRESSES_MAX", 3)
    guessed = Guessed()
    for host in range(1, 4):
        guessed.wrong(3, f"10.0.0.{host}")
    assert guessed.wrong(1, "10.0.0.1") == [0.1]
    guessed.wrong(1, "10.0.0.9")
    assert guessed.wrong(1, "10.0.0.1") == [0.2]
    assert guessed.wrong(1, "10.0.0.2") == [0]
    assert len(guessed.password._guesses) == 3


def test_without_a_password_nothing_is_right() -> None:
    password = Password(None, SimulatedClock())
    assert not password.is_needed
    assert password.check(b"", "10.0.0.1") == Verdict(False)


# --- clients ------------------------------------------------------------------------------------------------------


async def fail(client: BlockedClient, count: int) -> None:
    for _ in range(count):
        assert "WRONGPASS" in str(await client("AUTH", "wrong"))


@in_loop
async def test_the_reply_waits_and_everybody_else_goes_on() -> None:
    server = Server(password=SECRET)
    guesser, other = server.connect(), server.connect()
    await fail(guesser, 3)
    guesser.send("AUTH", "wrong")
    guesser.send("HELLO", 3, "AUTH", "default", "wrong")
    guesser.send("PING")
    await server.wait(99)
    assert guesser.replies() == []
    assert await other("AUTH", SECRET) == b"OK"
    assert await other("PING") == b"PONG"
    await server.wait(1)
    assert [str(reply)[:9] for reply in guesser.replies()] == ["WRONGPASS"]
    await server.wait(199)
    assert guesser.replies() == []
    await server.wait(1)
    assert [str(reply)[:9] for reply in guesser.replies()] == ["WRONGPASS", "NOAUTH Au"]
    guesser.send("AUTH", "nobody", SECRET)
    await server.wait(500)
    assert [str(reply)[:9] for reply in guesser.replies()] == ["WRONGPASS"]
    assert await guesser("AUTH", SECRET) == b"OK"


@in_loop
async def test_a_guesser_that_goes_away_or_is_too_eager() -> None:
    server = Server(password=SECRET)
    guesser, other = server.connect(), server.connect()
    await fail(guesser, 3)
    guesser.send("AUTH", "wrong")
    await turns(6)
    guesser.disconnect()
    await server.wait(1000)
    for _ in range(limits.WRONG_PASSWORDS_FLOOD):
        server.engine.password.check(b"wrong", other.session.host)
    reply = str(await other("AUTH", SECRET))
    assert reply.startswith("ERR too many wrong passwords from your address: try again in ")
    await server.wait(10_000)
    assert await other("AUTH", SECRET) == b"OK"
    assert await other("MULTI") == b"OK"
    await other("AUTH", "wrong")
    (reply,) = await other("EXEC")
    assert str(reply).startswith("WRONGPASS")
