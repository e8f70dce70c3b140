"""Names and keys."""

from __future__ import annotations

import pytest

from tests.channels.test_channels import BAD_NAMES
from tidelog.channels.names import ChannelKeys, ListedKey, checked_name, listed_key
from tidelog.errors import BadChannelInput, InvalidChannel


def test_keys_are_as_the_document_has_them() -> None:
    keys = ChannelKeys("chX")
    assert (keys.clock, keys.cursor("sA"), keys.wake) == (b"c.{chX}.clock", b"c.{chX}.r.sA", b"c.{chX}.wake")
    assert (keys.message(1), keys.message(-5)) == (b"c.{chX}.m.1", b"c.{chX}.m.-5")
    assert keys.message_id("msg123") == b"c.{chX}.mid.msg123"


@pytest.mark.parametrize("name", ["a", "0", "A-b_C", "a" * 63, "9_-"])
def test_names(name: str) -> None:
    assert ChannelKeys(name).channel == name
    assert checked_name("subscriber", name) == name


@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_that_cannot_be(name: str) -> None:
    with pytest.raises(InvalidChannel, match="is not the name of a channel: a letter or a digit, then"):
        ChannelKeys(name)
    with pytest.raises(BadChannelInput, match="is not the name of a message: "):
        checked_name("message", name)


def test_a_long_name_is_not_repeated_whole() -> None:
    with pytest.raises(InvalidChannel) as caught:
        ChannelKeys("x" * 10_000)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("key", "told"),
    [
        (b"c.{chX}.clock", ListedKey("chX", None)),
        (b"c.{chX}.r.sA", ListedKey("chX", "sA")),
        (b"c.{chX}.r.", None),
        (b"c.{chX}.r.a.b", None),
        (b"c.{chX}.clock\n", None),
        (b"c.{chX}.m.1", None),
        (b"c.{}.clock", None),
        (b"xc.{chX}.clock", None),
        (b"c.{\xff}.clock", None),
    ],
)
def test_what_a_key_tells(key: bytes, told: ListedKey | None) -> None:
    assert listed_key(key) == told
