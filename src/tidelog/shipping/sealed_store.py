"""An object store whose objects are encrypted before they leave this machine, and checked when they come back.

    0        8           16          32
    +--------+-----------+-----------+---------------------+---------------------+- - -
    | magic  | id of the |   salt    |      block 0        |      block 1        |
    |        |   key     | (random)  | ≤ 64 KiB + 16 bytes | ≤ 64 KiB + 16 bytes |
    +--------+-----------+-----------+---------------------+---------------------+- - -

Each object has a key of its own, made of the given key and the salt (HKDF). Every block is AES-256-GCM with that key:
the nonce is the number of the block, and the name of the object, the number and whether it is the last block are
authenticated with it. All blocks but the last are full. An empty object is one empty block.

What follows from it:

- A part of an object is read by decrypting the blocks that it lies in, and nothing else.
- What is read is what was put, whatever was done to the object: a changed bit, blocks in another order, another object
  under its name, and an end that is not its own are noticed when the block, or the end, is read. `size` and `list`
  compute sizes from those of the encrypted objects, and check nothing.
- Names, sizes and times are not hidden. Nor does it show that an object is missing, or that one of the same name was
  replaced by an older one: names are never used again (`ports.ObjectStore`), so there is none.

One key for all, with random nonces, was rejected: it must not be used for more than 2^32 blocks, and a random number of
12 bytes leaves no room for a counter. With a key an object no nonce is ever used twice.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tidelog import limits
from tidelog.ports import Chunk, ObjectEntry, ObjectStore
from tidelog.shipping.sealing_key import ID_BYTES, SealingKey

MAGIC: Final = b"TIDESEA1"
SALT_BYTES: Final = 16
HEADER_BYTES: Final = len(MAGIC) + ID_BYTES + SALT_BYTES
TAG_BYTES: Final = 16
BLOCK_BYTES: Final = limits.SEALED_BLOCK_BYTES
SEALED_BYTES: Final = BLOCK_BYTES + TAG_BYTES
"""A full block in its encrypted form."""
_NONCE_BYTES: Final = 12
_PURPOSE: Final = b"tidelog sealed object"


class SealedStore:
    """`ports.ObjectStore` on another one."""

    __slots__ = ("_headers", "_key", "_random_bytes", "_store")

    def __init__(self, store: ObjectStore, key: SealingKey, random_bytes: Callable[[int], bytes]) -> None:
        """`random_bytes` must be good enough for keys: `os.urandom`."""
        self._store: Final = store
        self._key: Final = key
        self._random_bytes: Final = random_bytes
        self._headers: Final[dict[str, bytes]] = {}
        """Of objects of which parts were read: they never change."""

    def __repr__(self) -> str:
        return f"<SealedStore {self._key.id.hex()} {self._store!r}>"

    def put(self, name: str, chunks: Sequence[Chunk]) -> None:
        header = MAGIC + self._key.id + self._random_bytes(SALT_BYTES)
        cipher = self._cipher(name, header)
        sealed = [header]
        blocks = list(_blocks(chunks))
        for index, block in enumerate(blocks):
            is_last = index == len(blocks) - 1
            sealed.append(cipher.encrypt(_nonce(index), block, _authenticated(name, index, is_last=is_last)))
        self._store.put(name, sealed)

    def get(self, name: str) -> bytes:
        sealed = memoryview(self._store.get(name))
        cipher = self._cipher(name, bytes(sealed[:HEADER_BYTES]))
        return b"".join(_opened(cipher, name, sealed[HEADER_BYTES:], 0, ends=True))

    def read(self, name: str, position: int, length: int) -> bytes:
        if position < 0 or length < 0:
            raise ValueError(f"{length} bytes from {position} on are no part of an object")
        first = position // BLOCK_BYTES
        count = max(1, -(-(position + length) // BLOCK_BYTES) - first)
        # One byte more shows whether the object goes on, so nobody has to ask for its size.
        wanted = count * SEALED_BYTES + 1
        header = self._headers.get(name, b"")
        if header or first:
            header = header or self._store.read(name, 0, HEADER_BYTES)
            cipher = self._cipher(name, header)
            sealed = self._store.read(name, HEADER_BYTES + first * SEALED_BYTES, wanted)
        else:
            sealed = self._store.read(name, 0, HEADER_BYTES + wanted)
            header, sealed = sealed[:HEADER_BYTES], sealed[HEADER_BYTES:]
            cipher = self._cipher(name, header)
        if not sealed and first:
            self._check_end(name, cipher)
            return b""
        ends = len(sealed) < wanted
        if not ends:
            sealed = sealed[:-1]
        opened = b"".join(_opened(cipher, name, memoryview(sealed), first, ends=ends))
        self._keep(name, header)
        skipped = position - first * BLOCK_BYTES
        return opened[skipped : skipped + length]

    def size(self, name: str) -> int:
        size = plain_size(self._store.size(name))
        if size is None:
            raise _not_sealed(name)
        return size

    def folders(self, prefix: str) -> list[str]:
        return self._store.folders(prefix)

    def delete(self, name: str) -> None:
        self._store.delete(name)

    def list(self, prefix: str, after: str = "") -> list[ObjectEntry]:
        """Objects that cannot be encrypted are listed, too, with the size that they have."""
        entries = []
        for name, stored_size in self._store.list(prefix, after):
            size = plain_size(stored_size)
            entries.append(ObjectEntry(name, stored_size if size is None else size))
        return entries

    def _cipher(self, name: str, header: bytes) -> AESGCM:
        """The cipher of one object; `OSError` if this is not the header of one of ours."""
        if len(header) < HEADER_BYTES or not header.startswith(MAGIC):
            raise _not_sealed(name)
        key_id = header[len(MAGIC) : len(MAGIC) + ID_BYTES]
        if key_id != self._key.id:
            words = f"the object is encrypted with another key: {key_id.hex()}, and ours is {self._key.id.hex()}"
            raise OSError(errno.EIO, words, name)
        return AESGCM(self._key.derive(header[-SALT_BYTES:], _PURPOSE))

    def _check_end(self, name: str, cipher: AESGCM) -> None:
        """Something after the end was asked for: look whether the end is that of the object, or it was cut."""
        last = max(0, self._store.size(name) - HEADER_BYTES - 1) // SEALED_BYTES
        sealed = self._store.read(name, HEADER_BYTES + last * SEALED_BYTES, SEALED_BYTES)
        for _ in _opened(cipher, name, memoryview(sealed), last, ends=True):
            pass

    def _keep(self, name: str, header: bytes) -> None:
        if name not in self._headers:
            if len(self._headers) >= limits.SEALED_HEADERS_KEPT:
                self._headers.clear()
            self._headers[name] = header


def plain_size(stored_size: int) -> int | None:
    """The size of an object whose encrypted form has this one; None: it is the size of none."""
    full, rest = divmod(stored_size - HEADER_BYTES, SEALED_BYTES)
    if full < 0 or 0 < rest < TAG_BYTES or (rest == TAG_BYTES and full) or not (full or rest):
        return None
    return full * BLOCK_BYTES + max(0, rest - TAG_BYTES)


def _blocks(chunks: Sequence[Chunk]) -> Iterator[Chunk]:
    """The same bytes in blocks, of which only the last is not full; at least one."""
    block = bytearray()
    has_any = False
    for chunk in chunks:
        left = memoryview(chunk)
        while len(left):
            if len(block) == BLOCK_BYTES:
                yield block
                block, has_any = bytearray(), True
            room = BLOCK_BYTES - len(block)
            block += left[:room]
            left = left[room:]
    if block or not has_any:
        yield block


def _opened(cipher: AESGCM, name: str, sealed: memoryview, first: int, *, ends: bool) -> Iterator[bytes]:
    """Decrypt a run of blocks, of which the last is the last of the object if it ends there."""
    count = max(1, -(-len(sealed) // SEALED_BYTES))
    for index in range(count):
        block = sealed[index * SEALED_BYTES : (index + 1) * SEALED_BYTES]
        is_last = ends and index == count - 1
        try:
            yield cipher.decrypt(_nonce(first + index), block, _authenticated(name, first + index, is_last=is_last))
        except InvalidTag:
            words = f"block {first + index} of the encrypted object was changed, cut, or belongs to another object"
            raise OSError(errno.EIO, words, name) from None


def _nonce(index: int) -> bytes:
    return index.to_bytes(_NONCE_BYTES, "big")


def _authenticated(name: str, index: int, *, is_last: bool) -> bytes:
    return index.to_bytes(8, "big") + bytes([is_last]) + name.encode()


def _not_sealed(name: str) -> OSError:
    return OSError(errno.EIO, "the object is not encrypted, or not by Tidelog, and a key was given", name)
