"""The table of all commands, from the files of the families. A new family is one line here."""

from __future__ import annotations

from tidelog.commands import (
    clients,
    command_info,
    config,
    connection,
    feeds,
    hashes,
    info,
    key_ranges,
    keys,
    pubsub,
    server,
    sets,
    slow_log,
    sorted_set_algebra,
    sorted_set_ranges,
    sorted_sets,
    stream_groups,
    stream_reading,
    streams,
    strings,
    transactions,
    x_entries,
    x_groups,
    x_info,
    x_pending,
    x_reading,
)
from tidelog.engine.table import CommandTable

FAMILIES = (
    strings,
    keys,
    key_ranges,
    hashes,
    sets,
    sorted_sets,
    sorted_set_ranges,
    sorted_set_algebra,
    streams,
    stream_groups,
    stream_reading,
    x_entries,
    x_reading,
    x_groups,
    x_pending,
    x_info,
    pubsub,
    feeds,
    transactions,
    connection,
    clients,
    command_info,
    config,
    info,
    slow_log,
    server,
)


def command_table() -> CommandTable:
    """A table with the rows of all families."""
    return CommandTable(row for family in FAMILIES for row in family.COMMANDS)
