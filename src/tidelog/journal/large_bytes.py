"""Large `bytes` that are made little by little.

To slice or to join 300 MB takes a tenth of a second or two in which the interpreter runs nothing else, on whatever
thread it happens, and for a while the same bytes are there twice. A `BytesIO` grows in place where the system can do
that, and hands out what it holds without a copy.
"""

from __future__ import annotations

from io import BytesIO

from tidelog import limits


class GrowingBytes:
    """Pieces that become one."""

    def __init__(self) -> None:
        self._pieces = BytesIO()

    def add(self, piece: bytes) -> None:
        self._pieces.write(piece)

    def whole(self) -> bytes:
        """All of them; nothing more is added."""
        return self._pieces.getvalue()


def cut(data: bytes, start: int, end: int) -> bytes:
    """`data[start:end]`, while others run."""
    if end - start < limits.STAGED_BYTES_MIN:
        return data[start:end]
    out, view = BytesIO(), memoryview(data)
    for at in range(start, end, limits.STAGED_PIECE_BYTES):
        out.write(view[at : min(at + limits.STAGED_PIECE_BYTES, end)])
    return out.getvalue()
