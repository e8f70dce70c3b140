"""Reads the key that shipped objects are encrypted with from its file."""

from __future__ import annotations

import logging
import os
import stat
from typing import Final

from tidelog.shipping.sealing_key import SealingKey, parse_key

_LOG: Final = logging.getLogger("tidelog.shipping")
_READ_BYTES_MAX: Final = 4096
"""Far more than a key has, so that the length of something else is told, and no large file is read for it."""


def read_sealing_key(path: str) -> SealingKey:
    """`OSError` if the file cannot be read, `ValueError` if it holds no key. Warns if anybody may read it."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        mode = os.fstat(fd).st_mode
        content = os.read(fd, _READ_BYTES_MAX)
    finally:
        os.close(fd)
    if mode & stat.S_IROTH:
        _LOG.warning("every user of this machine can read the key in %s: chmod 600 %s", path, path)
    try:
        return parse_key(content)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
