"""Streams as a row of the table of types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tidelog.streams.changes import STREAM, changes_of_config, changes_of_group, changes_of_pend
from tidelog.streams.dump import copy_operations, group_operations, kept_operations, stream_operations
from tidelog.streams.effects import effects
from tidelog.streams.operations import GroupSet, Pend, StreamConfig
from tidelog.streams.stream import Stream
from tidelog.types.change import Change, array, number
from tidelog.types.encoding_bounds import EncodingBounds
from tidelog.types.value_type import ValueType


def _pieces(key: bytes, stream: Stream) -> Iterator[Any]:
    return iter(kept_operations(key, stream.copy()))


def _copy(stream: Stream) -> Stream:
    return stream.copy()


def _initial(key: bytes, stream: Stream) -> Iterator[Change]:
    """The offsets that the stream has, not its entries: a client that wants those reads the stream. And its rule."""
    changes = [Change(key, STREAM, None, array([number(stream.first), number(stream.next - 1)]))]
    if stream.rule is not None:
        changes += changes_of_config(StreamConfig(key, *stream.rule))
    return iter(changes)


def _initial_groups(key: bytes, stream: Stream) -> Iterator[Change]:
    """Each group, and what its consumers have pending."""
    groups = [(name, group.copy()) for name, group in stream.groups.items()]

    def changes() -> Iterator[Change]:
        for name, group in groups:
            for operation in group_operations(key, name, group):
                if isinstance(operation, GroupSet):
                    yield from changes_of_group(operation)
                elif isinstance(operation, Pend):
                    yield from changes_of_pend(operation)

    return changes()


def _encoding(_stream: Stream, _bounds: EncodingBounds) -> bytes:
    return b"stream"


def _size_bytes(stream: Stream, _samples: int) -> int:
    return stream.size_bytes


STREAM_TYPE: Final = ValueType(
    name=STREAM,
    value_class=Stream,
    effects=effects(),
    operations=stream_operations,
    pieces=_pieces,
    copy=_copy,
    initial=_initial,
    initial_groups=_initial_groups,
    encoding=_encoding,
    size_bytes=_size_bytes,
    copies=copy_operations,
    kept=kept_operations,
)
