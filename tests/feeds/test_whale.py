"""Values that are too large for a frame: proved, then sent from where they lie."""

from __future__ import annotations

import pytest

from tests.feeds.made import Watched
from tidelog import limits
from tidelog.feeds.whale import BlobString
from tidelog.ids import Ts
from tidelog.types.change import LargeString

SIZE = 1_000_000


def spied(known: object, monkeypatch: pytest.MonkeyPatch) -> list[LargeString]:
    """The large strings that a sink is sent."""
    found: list[LargeString] = []
    send = known.send  # type: ignore[attr-defined]

    def note(data: bytes | LargeString) -> None:
        if isinstance(data, LargeString):
            found.append(data)
        send(data)

    monkeypatch.setattr(known, "send", note)
    return found


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("begins", ["live", "disk", "initial"])
def test_large_values_of_every_type(monkeypatch: pytest.MonkeyPatch, protocol: int, begins: str) -> None:
    watched = Watched()
    text, data = b"x" * SIZE, bytes(range(256)) * (SIZE // 256)
    commands: list[tuple[str | bytes, ...]] = [
        ("SET", "s", text), ("MSET", "m1", text, "m2", "small", "m3", data), ("HSET", "h", "f", data, "g", "small"),
        ("SADD", "set", text), ("ZADD", "z", "1.5", text), ("XADD", "x1", "1-0", "f", text, "g", "small"),
        ("XADD", "x2", "1-0", "tag", "t", "entry", data), ("TWRITE", "t", "ENTRIES", "a", text, "b", data),
        ("RPUSH", "l", text, "small"), ("LPUSH", "l", data), ("LSET", "l", "2", data),
        ("LINSERT", "l", "BEFORE", text, data), ("LREM", "l", "1", data), ("RPOP", "l"),
    ]  # fmt: skip
    before, after = ([], commands) if begins == "live" else (commands, [])
    for command in before:
        watched(*command)
    watched.settle()
    since = Ts(0) if begins == "disk" else None
    _, known = watched.watch(protocol=protocol, since=since, is_initial=begins == "initial")
    if begins == "live":
        watched.settle()
    for command in after:
        watched(*command)
    strings = spied(known, monkeypatch)
    watched.settle()
    assert known.is_steady
    expected = {b"s": text, b"m1": text, b"m2": b"small", b"m3": data, b"h": ("hash", {b"f": data, b"g": b"small"}),
                b"set": ("set", {text: b"1"}), b"z": ("zset", {text: 1.5}),
                b"l": ("list", [data, text])}  # fmt: skip
    assert {key: known.state[key] for key in expected} == expected
    if begins != "initial":  # which tells of streams only where they are
        assert known.state[b"x1"][1][1][2] == [b"f", text, b"g", b"small"]
        assert known.state[b"x2"][1][1][1:] == (b"t", data)
        assert [known.state[b"t"][1][offset][2] for offset in (1, 2)] == [text, data]
        in_file = [string for string in strings if isinstance(string, BlobString)]
        assert len(in_file) == 3
        assert all(string.memory_bytes == 0 for string in in_file)
    assert all(string.size > limits.FEED_PIECE_BYTES for string in strings)


def test_a_damaged_value_ends_the_feed_before_any_of_it_is_sent() -> None:
    watched = Watched()
    watched("SET", "a", "before")
    watched("SET", "big", b"x" * SIZE)
    watched.settle()
    path = next(each for each in watched.disk.list("/data/shard-0") if each.startswith("blob"))
    watched.disk.flip_bit(f"/data/shard-0/{path}", 8 * (SIZE - 5))
    _, known = watched.watch(since=Ts(0))
    watched.settle()
    assert known.state == {b"a": b"before"}
    assert "checksum of a blob" in str(known.ended[0])


def test_a_value_is_proved_a_little_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FEED_PROVED_BYTES_AT_ONCE", 100_000)
    watched = Watched()
    watched("SET", "big", b"x" * SIZE)
    watched.settle()
    _, known = watched.watch(since=Ts(0))
    slices = 0
    while not known.events:
        watched.feeds.work(0)
        slices += 1
    assert slices >= 10


def test_a_large_string_is_read_in_pieces() -> None:
    string = LargeString(b"0123456789")
    assert [string.read(at, 4) for at in (0, 4, 8)] == [b"0123", b"4567", b"89"]
    assert string.size == string.memory_bytes == 10
