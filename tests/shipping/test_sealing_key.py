"""Keys of encrypted objects: what a file may hold, and that nothing of it shows."""

from __future__ import annotations

import pytest

from tidelog.shipping.sealing_key import SealingKey, parse_key

RAW = bytes(range(100, 132))


@pytest.mark.parametrize(
    "content", [RAW, RAW.hex().encode(), RAW.hex().upper().encode() + b"\n", b" %b\r\n" % RAW.hex().encode()]
)
def test_a_file_holds_bytes_or_digits(content: bytes) -> None:
    assert parse_key(content).id == SealingKey(RAW).id
    assert parse_key(content).derive(b"salt", b"purpose") == SealingKey(RAW).derive(b"salt", b"purpose")


@pytest.mark.parametrize(
    "content", [b"", RAW[:-1], RAW + b"\n", RAW.hex().encode()[:-1], b"g" + RAW.hex().encode()[1:], RAW * 2, b"secret"]
)
def test_anything_else_is_refused_and_not_shown(content: bytes) -> None:
    words = f"a key is 32 bytes or 64 hexadecimal digits, and these are {len(content)} bytes of something else"
    with pytest.raises(ValueError, match=words) as refused:
        parse_key(content)
    assert str(refused.value) == words


def test_thirty_two_bytes_are_a_key_even_if_they_look_like_digits() -> None:
    assert parse_key(b"0" * 32).id == SealingKey(b"0" * 32).id


def test_only_the_id_is_shown() -> None:
    key = SealingKey(RAW)
    assert repr(key) == f"<SealingKey {key.id.hex()}>"
    assert len(key.id) == 8
    assert key.id not in RAW


def test_keys_for_different_things_differ() -> None:
    key = SealingKey(RAW)
    derived = {
        key.derive(b"a", b"x"),
        key.derive(b"b", b"x"),
        key.derive(b"a", b"y"),
        SealingKey(bytes(32)).derive(b"a", b"x"),
    }
    assert len(derived) == 4
    assert key.id != SealingKey(bytes(32)).id


def test_a_key_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="32 bytes, not 16"):
        SealingKey(bytes(16))
