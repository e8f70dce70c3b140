"""Messages from lines of JSON, wherever reads are cut."""

from __future__ import annotations

import io
from itertools import count

import pytest

from tidelog.cli.channel.json_documents import MessageMaker
from tidelog.errors import BadChannelInput, LimitExceeded


class Trickle(io.BytesIO):
    """Gives out a few bytes at a time."""

    def read1(self, size: int | None = -1, /) -> bytes:
        return super().read1(min(3, size or 0))


def maker(id_from: str | None = None) -> MessageMaker:
    numbers = count(1)
    return MessageMaker(id_from, lambda: f"made-{next(numbers)}")


@pytest.mark.parametrize("source", [io.BytesIO, Trickle])
def test_lines_become_messages_wherever_they_are_cut(source: type[io.BytesIO]) -> None:
    text = '{"n": 1.50}\r\n\n  \n"zwei ä"\n[3]'.encode()
    made = [message for batch in maker().messages(source(text)) for message in batch]
    assert made == [("made-1", b'{"n": 1.50}'), ("made-2", '"zwei ä"'.encode()), ("made-3", b"[3]")]


def test_an_id_is_a_text_or_a_number_of_the_content() -> None:
    made = maker("id")
    assert made.message(b'{"id": "a"}').id == "a"
    assert made.message(b'{"id": 17}').id == "17"
    assert made.message(b'{"id": "a"}', "given").id == "given"
    for text in (b"[]", b"{}", b'{"id": true}', b'{"id": {}}'):
        with pytest.raises(BadChannelInput, match="it has no text or number 'id' for the id"):
            made.message(text)
    for text in (b'{"id": 1.5}', b'{"id": -1}', b'{"id": ""}'):
        with pytest.raises(BadChannelInput, match="is not the name of a message"):
            made.message(text)


def test_messages_before_a_bad_line_are_given_out_first() -> None:
    batches = maker().messages(io.BytesIO(b"1\n2\nno\n4\n"))
    assert [message.content for message in next(batches)] == [b"1", b"2"]
    with pytest.raises(BadChannelInput, match="line 3: not JSON: Expecting value at column 1"):
        next(batches)


def test_a_line_without_an_end_is_not_kept_for_ever() -> None:
    batches = maker().messages(io.BytesIO(b"1\n" + b'"' + b"x" * (4 << 20)))
    assert [message.content for message in next(batches)] == [b"1"]
    with pytest.raises(LimitExceeded, match="line 2 has more than 1048576 bytes"):
        next(batches)
