"""Ships a store that is served, as the configuration says."""

from __future__ import annotations

from collections.abc import Callable

from tidelog.journal.journal import Journal
from tidelog.ports import Disk, ObjectStore
from tidelog.server.lasting_parts import LastingParts
from tidelog.server.shipping import ServerShipping
from tidelog.server.turns import Turns
from tidelog.shipping.shipper import Shipper

OpenStore = Callable[[str, str | None, int], ObjectStore]
"""Opens the object store of a URL; with the file of a key, and bytes a second."""


def make_shipping(
    lasting: LastingParts, disk: Disk, open_store: OpenStore, journal: Journal, turns: Turns
) -> ServerShipping | None:
    """None: nobody asked for that."""
    config = lasting.config
    if config.ship_to is None:
        return None
    objects = open_store(config.ship_to, config.ship_key_file, config.ship_bandwidth)

    def make_shipper() -> Shipper:
        return Shipper(disk, config.data, journal.meta, objects, lasting.clock, config.ship_keep_us)

    return ServerShipping(lasting.loop, journal, turns, lasting.clock, config.ship_to, make_shipper)
