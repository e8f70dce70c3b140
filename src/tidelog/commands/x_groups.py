"""XGROUP and XACK: groups and consumers, and what they have dealt with."""

from __future__ import annotations

from typing import Final

from tidelog.commands.arguments import integer
from tidelog.commands.help import help_reply
from tidelog.commands.stream_ids import any_id, strict_id
from tidelog.commands.streams import find_stream
from tidelog.commands.x_reading import check_consumer, text
from tidelog.engine.table import NO_KEYS, ONE_KEY, STREAM, Arguments, Command, Decision, Keys, connection, write
from tidelog.errors import CommandError
from tidelog.resp.encoder import Reply
from tidelog.store.transaction import Transaction
from tidelog.streams.dump import group_set
from tidelog.streams.group import UNKNOWN, Group
from tidelog.streams.operations import ConsumerDrop, ConsumerSet, GroupDrop, acks
from tidelog.streams.stream import Stream

_SECOND: Final = Keys(2, 2, 1)


def bad_subcommand(arguments: Arguments) -> CommandError:
    """What Redis says to words that a subcommand does not take."""
    container = arguments[0].decode().upper()
    return CommandError(
        f"ERR unknown subcommand or wrong number of arguments for '{text(arguments[1][:128])}'. Try {container} HELP."
    )


def no_group(key: bytes, name: bytes) -> CommandError:
    return CommandError(f"NOGROUP No such consumer group '{text(name)}' for key name '{text(key)}'")


def _stream(transaction: Transaction, key: bytes) -> Stream:
    stream = find_stream(transaction, key)
    if stream is None:
        raise CommandError(
            "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the "
            "MKSTREAM option to create an empty stream automatically."
        )
    return stream


def _group(transaction: Transaction, arguments: Arguments) -> tuple[Stream, Group]:
    stream = _stream(transaction, arguments[2])
    group = stream.groups.get(arguments[3])
    if group is None:
        raise no_group(arguments[2], arguments[3])
    return stream, group


def _entries_read(word: bytes) -> int:
    number = integer(word)
    if number < 0 and number != UNKNOWN:
        raise CommandError("ERR value for ENTRIESREAD must be positive or -1")
    return number


def _place(stream: Stream, number: int, entries_read: int) -> Group:
    """A group that begins after an id."""
    return Group(stream.offset_at_or_after(number + 1) - 1, number, entries_read)


def xgroup_create(transaction: Transaction, arguments: Arguments) -> Decision:
    key, name = arguments[2], arguments[3]
    makes_stream, entries_read = False, UNKNOWN
    at = 5
    while at < len(arguments):
        option = arguments[at].upper()
        if option == b"MKSTREAM":
            makes_stream = True
            at += 1
        elif option == b"ENTRIESREAD" and at + 1 < len(arguments):
            entries_read = _entries_read(arguments[at + 1])
            at += 2
        else:
            raise bad_subcommand(arguments)
    stream = find_stream(transaction, key) if makes_stream else _stream(transaction, key)
    if len(arguments) > 8:
        raise bad_subcommand(arguments)
    if stream is None:
        stream = Stream()
    number = stream.last_id if arguments[4] == b"$" else strict_id(arguments[4])
    if name in stream.groups:
        raise CommandError("BUSYGROUP Consumer Group name already exists")
    return "OK", [group_set(key, name, _place(stream, number, entries_read))]


def xgroup_setid(transaction: Transaction, arguments: Arguments) -> Decision:
    entries_read = UNKNOWN
    for at in range(5, len(arguments), 2):
        if arguments[at].upper() != b"ENTRIESREAD" or at + 1 == len(arguments):
            raise bad_subcommand(arguments)
        entries_read = _entries_read(arguments[at + 1])
    stream, group = _group(transaction, arguments)
    if len(arguments) > 7:
        raise bad_subcommand(arguments)
    number = stream.last_id if arguments[4] == b"$" else any_id(arguments[4])
    moved = _place(stream, number, entries_read)
    operation = group_set(arguments[2], arguments[3], group)
    return "OK", [operation._replace(last_offset=moved.last_offset, last_id=number, entries_read=entries_read)]


def xgroup_destroy(transaction: Transaction, arguments: Arguments) -> Decision:
    stream = _stream(transaction, arguments[2])
    if arguments[3] not in stream.groups:
        return 0, []
    return 1, [GroupDrop(arguments[2], arguments[3])]


def xgroup_createconsumer(transaction: Transaction, arguments: Arguments) -> Decision:
    _, group = _group(transaction, arguments)
    check_consumer(arguments[4])
    if arguments[4] in group.consumers:
        return 0, []
    return 1, [ConsumerSet(arguments[2], arguments[3], arguments[4], transaction.now_ms, -1)]


def xgroup_delconsumer(transaction: Transaction, arguments: Arguments) -> Decision:
    _, group = _group(transaction, arguments)
    consumer = group.consumers.get(arguments[4])
    if consumer is None:
        return 0, []
    return consumer.pending_count, [ConsumerDrop(arguments[2], arguments[3], arguments[4])]


def xack(transaction: Transaction, arguments: Arguments) -> Decision:
    stream = find_stream(transaction, arguments[1])
    group = stream.groups.get(arguments[2]) if stream is not None else None
    if group is None:
        return 0, []
    ids = [strict_id(word) for word in arguments[3:]]
    if not group.pending:
        return 0, []
    offsets = group.ids.offsets
    acknowledged = {offsets[number] for number in ids if number in offsets}
    acknowledged.difference_update(group.expired(transaction.now_ms))
    return len(acknowledged), acks(arguments[1], arguments[2], sorted(acknowledged))


def xgroup_help(_client: object, _arguments: Arguments) -> Reply:
    return help_reply(
        "XGROUP",
        """
        CREATE <key> <groupname> <id|$> [option]
            Create a new consumer group. Options are:
            * MKSTREAM
              Create the empty stream if it does not exist.
            * ENTRIESREAD entries_read
              Set the group's entries_read counter (internal use).
        CREATECONSUMER <key> <groupname> <consumer>
            Create a new consumer in the specified group.
        DELCONSUMER <key> <groupname> <consumer>
            Remove the specified consumer.
        DESTROY <key> <groupname>
            Remove the specified group.
        SETID <key> <groupname> <id|$> [ENTRIESREAD entries_read]
            Set the current group ID and entries_read counter.
        """,
    )


COMMANDS: list[Command] = [
    write(STREAM, "XGROUP|CREATE", -5, xgroup_create, _SECOND, "denyoom", summary="make a group"),
    write(STREAM, "XGROUP|SETID", -5, xgroup_setid, _SECOND, summary="move the cursor of a group"),
    write(STREAM, "XGROUP|DESTROY", 4, xgroup_destroy, _SECOND, summary="remove a group"),
    write(
        STREAM,
        "XGROUP|CREATECONSUMER",
        5,
        xgroup_createconsumer,
        _SECOND,
        "denyoom",
        summary="make a consumer of a group",
    ),
    write(STREAM, "XGROUP|DELCONSUMER", 5, xgroup_delconsumer, _SECOND, summary="remove a consumer of a group"),
    connection(
        STREAM, "XGROUP|HELP", 2, xgroup_help, "loading stale", summary="list the subcommands of XGROUP", keys=NO_KEYS
    ),
    write(STREAM, "XACK", -4, xack, ONE_KEY, "fast", summary="acknowledge entries for a group"),
]
