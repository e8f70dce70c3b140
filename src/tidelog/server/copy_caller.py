"""Calls a copy in an object store that the server follows (`--follow-from`), in the place of a leader."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tidelog.ports import Disk, LinkOwner, NetworkAddress
from tidelog.server.lasting_parts import LastingParts
from tidelog.server.ship_target import OpenStore
from tidelog.server.work_thread import WorkThread
from tidelog.shipping.copy_link import CopyLink
from tidelog.shipping.copy_reader import CopyReader
from tidelog.shipping.copy_session import CopySession


class CopyCaller:
    """`connect` for `Replication`, of copies."""

    def __init__(self, lasting: LastingParts, open_store: OpenStore, make_scratch: Callable[[], Disk]) -> None:
        self._lasting = lasting
        self._make_scratch = make_scratch
        self._open_store = open_store
        self._reader: CopyReader | None = None
        """It stays over links: where it is in the manifests is not forgotten."""
        self._worker: WorkThread | None = None

    def connect(self, address: NetworkAddress, owner: LinkOwner) -> CopyLink:
        lasting, url = self._lasting, address[0]
        if self._reader is None or self._worker is None:
            open_objects = partial(self._open_store, url, lasting.config.ship_key_file, 0)
            self._reader = CopyReader(open_objects, url, lasting.config.database, lasting.clock)
            self._worker = WorkThread(lasting.loop, "copy")
        session = CopySession(self._reader, lasting.clock, self._make_scratch())
        return CopyLink(address, owner, session, lasting.clock, lasting.loop, self._worker)
