"""Cold nodes whose file is gone: whoever reads their entries or their ids is found out."""

from __future__ import annotations

from tests.streams.cold_nodes import chill_all, node_files
from tidelog.streams.stream import Stream


def unreadable(stream: Stream) -> Stream:
    """The same stream, with sealed nodes of which only memory is left."""
    files = node_files()
    chill_all(stream, files)
    for file in files:
        files.disk.remove(file.path)
    return stream
