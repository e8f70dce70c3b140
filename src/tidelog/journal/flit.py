"""flit: unsigned integers in 1 to 9 bytes.

The trailing zero bits of the first byte say how many bytes follow; the rest, little-endian, is the number:

    xxxxxxx1                      7 bits    zero is 0x01
    xxxxxx10 xxxxxxxx            14 bits
    xxxxx100 xxxxxxxx xxxxxxxx   21 bits
    ...
    10000000 and 7 bytes         56 bits
    00000000 and 8 bytes         64 bits
"""

from __future__ import annotations

from typing import Final

SIZE_MAX: Final = 9

_ONE_BYTE: Final = [bytes([n << 1 | 1]) for n in range(128)]


def encode(number: int) -> bytes:
    """The shortest encoding of `number`."""
    if 0 <= number < 128:
        return _ONE_BYTE[number]
    if number < 16384:
        return (number << 2 | 2).to_bytes(2, "little")
    size = (number.bit_length() + 6) // 7
    if size > 8:
        return b"\0" + number.to_bytes(8, "little")
    return (number << size | 1 << (size - 1)).to_bytes(size, "little")


def size_of(number: int) -> int:
    """How many bytes `encode(number)` has."""
    if number < 128:
        return 1
    return min((number.bit_length() + 6) // 7, SIZE_MAX)


def decode(data: bytes, position: int) -> tuple[int, int]:
    """The number at `position` and the position after it; `IndexError` if the data ends before it does."""
    first = data[position]
    if first & 1:
        return first >> 1, position + 1
    if first & 2:
        return (first | data[position + 1] << 8) >> 2, position + 2
    size = (first & -first).bit_length() if first else SIZE_MAX
    end = position + size
    if end > len(data):
        raise IndexError("the data ends inside a flit")
    if not first:
        return int.from_bytes(data[position + 1 : end], "little"), end
    return int.from_bytes(data[position:end], "little") >> size, end
