"""The object store that a server ships to, or a copy is read from: encrypted or not, at full speed or not."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from tidelog import limits
from tidelog.ports import ObjectStore
from tidelog.shipping.paced_store import PacedStore
from tidelog.shipping.sealed_store import SealedStore
from tidelog.system.clock import SystemClock
from tidelog.system.key_file import read_sealing_key
from tidelog.system.object_store import open_object_store

_LASTING: Final = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE)
"""What is no better a moment later."""


def open_ship_store(url: str, key_file: str | None = None, bytes_per_s: int = 0, *, is_new: bool = True) -> ObjectStore:
    """The store of a URL. `key_file`: what it holds is encrypted; `bytes_per_s`: no faster; 0: as fast as it goes.

    `is_new`: a folder that is not there is made. `OSError` or `ValueError`: the key cannot be had, or the URL is none.
    """
    key = None if key_file is None else read_sealing_key(key_file)
    objects = open_object_store(url, is_new=is_new)
    if bytes_per_s:
        objects = PacedStore(objects, bytes_per_s, SystemClock(), time.sleep)
    return objects if key is None else SealedStore(objects, key, os.urandom)


def open_read_store(url: str, key_file: str | None = None, bytes_per_s: int = 0) -> ObjectStore:
    """The same for those who only read. `FileNotFoundError`: it is a folder that is not there."""
    return open_ship_store(url, key_file, bytes_per_s, is_new=False)


def fetch_all(jobs: Iterable[Callable[[], None]], sleep: Callable[[float], None] = time.sleep) -> None:
    """Run them side by side: most of the time is spent waiting for answers. Raises what one of them raises.

    One that cannot reach its store is run again, later and later: a restore of hours is not lost by a minute without
    network. Each begins anew with what it fetches.
    """
    with ThreadPoolExecutor(limits.FETCHED_OBJECTS_AT_ONCE, thread_name_prefix="fetch") as threads:
        try:
            for done in [threads.submit(_patiently, job, sleep) for job in jobs]:
                done.result()
        except BaseException:
            threads.shutdown(cancel_futures=True)  # or all the others would still be fetched
            raise


def _patiently(job: Callable[[], None], sleep: Callable[[float], None]) -> None:
    for failures in range(limits.FETCH_ATTEMPTS - 1):
        try:
            return job()
        except OSError as error:
            if isinstance(error, FileNotFoundError | PermissionError) or error.errno in _LASTING:
                raise
            sleep(min(limits.SHIP_RETRY_S_MIN * 2**failures, limits.SHIP_RETRY_S_MAX))
    return job()
