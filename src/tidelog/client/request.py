"""What a feed asks for, and how it is said: `CHANGEFEED ...`, see `commands/feeds.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidelog.client.event import Checkpoint
from tidelog.feeds.span import Span, span_of_key, span_of_prefix

OneOrMore = bytes | str | Sequence[bytes | str]
"""One, or several."""
Word = bytes | str | int


@dataclass(frozen=True, slots=True)
class FeedRequest:
    """The request of a feed."""

    spans: tuple[Span, ...]
    """Each once, as the server has them in its checkpoints."""
    since: int | Checkpoint | None = None
    initial: bool = False
    until: int | None = None
    name: str | None = None
    txn: bool = False
    groups: bool = False
    expiry: bool = False
    checkpoint_ms: int | None = None
    """None: as often as the server does by itself."""
    one_checkpoint: bool = False
    """One checkpoint for all spans, not one for each."""
    database: int = 0

    def command(self, beginning: Sequence[Word]) -> list[Word]:
        """With where it begins, which is another place each time that it is resumed."""
        words: list[Word] = ["CHANGEFEED", *beginning]
        if self.checkpoint_ms is not None:
            words += ["CHECKPOINT", self.checkpoint_ms]
        words += ["ONECHECKPOINT"] * self.one_checkpoint
        if self.name is not None:
            words += ["NAME", self.name]
        if self.until is not None:
            words += ["UNTIL", self.until]
        words += ["TXN"] * self.txn + ["GROUPS"] * self.groups + ["EXPIRY"] * self.expiry
        for span in self.spans:
            words += ["SPAN", span.start, span.end]
        return words


def spans_of(
    prefix: OneOrMore | None, keys: OneOrMore | None, spans: Sequence[tuple[bytes | str, bytes | str]]
) -> tuple[Span, ...]:
    """All that are meant, each once; everything, if nothing is said."""
    found = [span_of_prefix(each) for each in _several(prefix)]
    found += [span_of_key(each) for each in _several(keys)]
    found += [Span(_bytes(start), _bytes(end)) for start, end in spans]
    return tuple(dict.fromkeys(found)) or (Span(b"", b""),)


def _several(keys: OneOrMore | None) -> list[bytes]:
    if keys is None:
        return []
    return [_bytes(keys)] if isinstance(keys, bytes | str) else [_bytes(key) for key in keys]


def _bytes(key: bytes | str) -> bytes:
    return key.encode() if isinstance(key, str) else key
