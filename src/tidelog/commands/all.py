"""Every command there is, from the files of the families. Lists, streams, Lua and ACL users take their places here."""

from __future__ import annotations

from tidelog.commands import (
    clients,
    command_info,
    config,
    connection,
    hashes,
    info,
    keys,
    pubsub,
    server,
    sets,
    slow_log,
    sorted_set_algebra,
    sorted_set_ranges,
    sorted_sets,
    strings,
    transactions,
)
from tidelog.commands.table import CommandTable

FAMILIES = (
    strings,
    keys,
    hashes,
    sets,
    sorted_sets,
    sorted_set_ranges,
    sorted_set_algebra,
    pubsub,
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
