"""`tidelog journal show`: the records of a journal."""

from __future__ import annotations

import os
from itertools import chain, islice
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tidelog.cli.exits import DAMAGED, FINE, complain, guarded
from tidelog.cli.journal.folder import (
    DataFolder,
    find_place,
    known_operations,
    opcode_name,
    real_disk,
    tell_damage,
    tell_tail,
)
from tidelog.cli.options import AsJson
from tidelog.cli.output.stdout import Column, Output
from tidelog.cli.output.values import (
    bytes_to_text,
    parse_moment,
    parse_number,
    parse_range,
    time_of,
    time_or_number,
    value_to_json,
    value_to_text,
)
from tidelog.resp.json_form import bytes_to_json

if TYPE_CHECKING:
    from tidelog.journal.operation import OperationTable
    from tidelog.journal.record_inspection import RecordInfo, Selection

EPILOG: Final = """\
Examples:

  tidelog journal show data --limit 20

  tidelog journal show data --payload --key user:1 --key user:2

  tidelog journal show data --ts 2025-11-15T20:00..2025-11-15T20:05 --opcode del

  tidelog journal show data/shard-0 --lsn 1000..1010 --payload --json

  tidelog journal show data --opcode mark --payload

JSON: kind "record" (shard, segment, file, frame, position, lsn, ts, time, opcode, opcode_number, flags, database,
expire_ms, payload_bytes, continues, proved; with --payload also payload), then "tail" and "damage". A payload has the
fields of its operation; that of an unknown opcode is {"raw": ...}. Keys and values are strings if they are UTF-8, and
otherwise {"base64": "..."}.

Exit status: 0, 1 if damage was found, 2 if DIR cannot be read."""

_COLUMNS: Final = (
    Column("shard", 5, right=True),
    Column("segment", 10, right=True),
    Column("frame", 5, right=True),
    Column("position", 10, right=True),
    Column("lsn", 10, right=True, style="cyan"),
    Column("ts", 27),
    Column("opcode", 7, style="bold"),
    Column("db", 2, right=True),
    Column("bytes", 8, right=True),
    Column("flags", 9),
    Column("expire"),
)


@guarded
def show(
    folder: DataFolder,
    payload: Annotated[
        bool,
        typer.Option("--payload", help="Also decode the payloads; payloads of unknown opcodes are shown as they are."),
    ] = False,
    lsn: Annotated[
        str | None,
        typer.Option(metavar="A..B", help="Only these lsns, both ends included; A.., ..B and A alone work too."),
    ] = None,
    ts: Annotated[
        str | None,
        typer.Option(metavar="A..B", help="Only these ts: numbers in µs or ISO times (UTC unless they name a zone)."),
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY", help="Only records that name this key, or every key. Repeatable."),
    ] = None,
    opcode: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME|0xNN", help="Only this opcode. Repeatable."),
    ] = None,
    shard: Annotated[int | None, typer.Option(metavar="N", help="Only this shard.", min=0)] = None,
    limit: Annotated[int | None, typer.Option(metavar="N", help="At most this many records.", min=0)] = None,
    control: Annotated[
        bool, typer.Option("--control/--no-control", help="Show marks, selects and epochs, or leave them out.")
    ] = True,
    as_json: AsJson = False,
) -> int:
    """Show the records of a journal, shard by shard, in order.

    It goes straight to the first frame that may have matching records, and reads payloads only with --payload or --key.
    It takes no lock: a server may be writing at the same time.

    The segment is named by its first lsn; the position is in bytes from the start of its file. A record about the
    journal itself (mark, select, epoch) has no lsn, and neither has the continuation of one that was split over two
    frames. The flag `unproved` marks records that no checksum or mark covers.
    """
    from tidelog.journal.inspection import ShardInspection
    from tidelog.journal.record_inspection import select_records

    disk, output, table = real_disk(), Output(as_json=as_json), known_operations()
    place = find_place(disk, folder)
    if shard is not None and shard not in place.shards:
        raise typer.BadParameter(f"{folder} has no shard {shard}", param_hint="--shard")
    selection = _selection(table, lsn, ts, key or [], opcode or [], control=control, payloads=payload)
    shards = [ShardInspection(disk, place, each) for each in place.shards if shard in (None, each)]
    records = chain.from_iterable(select_records(each, table, selection) for each in shards)
    if not as_json:
        output.header(_COLUMNS)
    for record in islice(records, limit):
        _print_record(output, table, record, with_payload=payload)
    damage = [error for each in shards for error in each.damage]
    for each in shards:
        if each.tail is not None:
            tell_tail(output, each.shard, each.tail)
        each.close()
    tell_damage(output, damage)
    if damage:
        complain(f"damage in {len(damage)} place(s); `tidelog journal verify {folder}` checks everything")
    return DAMAGED if damage else FINE


def _selection(
    table: OperationTable,
    lsn: str | None,
    ts: str | None,
    keys: list[str],
    opcodes: list[str],
    *,
    control: bool,
    payloads: bool,
) -> Selection:
    from tidelog.journal.record_inspection import Selection

    everything = Selection()
    lsns, moments = (everything.lsn_first, everything.lsn_last), (everything.ts_first, everything.ts_last)
    try:
        lsns = parse_range(lsn, parse_number) if lsn is not None else lsns
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--lsn") from None
    try:
        moments = parse_range(ts, parse_moment) if ts is not None else moments
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--ts") from None
    return Selection(
        *lsns,
        *moments,
        opcodes=frozenset(_parse_opcode(table, name) for name in opcodes),
        keys=frozenset(os.fsencode(key) for key in keys),  # as the shell gave it: any bytes
        control=control,
        payloads=payloads,
    )


def _parse_opcode(table: OperationTable, text: str) -> int:
    from tidelog.journal import control

    if (kind := table.named(text.lower())) is not None:
        return kind.opcode
    numbers = {name: number for number, name in control.NAMES.items()}
    if text.lower() in numbers:
        return numbers[text.lower()]
    try:
        number = int(text, 16) if text.lower().startswith("0x") else -1
    except ValueError:
        number = -1
    if not 0 < number <= 0xFF:
        names = ", ".join([*table.names(), *numbers])
        raise typer.BadParameter(f"{text!r} is not an opcode: give 0x01 to 0xff, or {names}", param_hint="--opcode")
    return number


def _flags(record: RecordInfo) -> list[str]:
    from tidelog.journal import record as record_format

    names = {
        record_format.TS: "ts",
        record_format.PADDED: "padded",
        record_format.EXPIRE: "expire",
        record_format.NEXT_CONT: "next_cont",
        record_format.FINISH: "finish",
        record_format.BLOB: "blob",
    }
    return [name for bit, name in names.items() if record.flags & bit]


def _print_record(output: Output, table: OperationTable, record: RecordInfo, *, with_payload: bool) -> None:
    name = opcode_name(table, record.opcode)
    if output.as_json:
        output.object("record", _members(table, record, name, with_payload=with_payload))
        return
    flags = [
        *_flags(record),
        *(["continues"] if record.continues else []),
        *([] if record.is_proved else ["unproved"]),
    ]
    expire = None if record.expire_ms is None else time_or_number(record.expire_ms * 1000)
    output.row(
        _COLUMNS,
        [
            record.shard,
            record.segment,
            record.frame,
            record.position,
            record.lsn,
            time_or_number(record.ts),
            name,
            record.database,
            record.payload_bytes,
            "+".join(flags) or "-",
            expire or "",
        ],
    )
    if with_payload and not record.continues:
        output.line(f"        {_payload_text(table, record)}", "green" if record.problem is None else "red")


def _members(table: OperationTable, record: RecordInfo, name: str, *, with_payload: bool) -> dict[str, Any]:
    from tidelog.journal.segment import journal_name

    members: dict[str, Any] = {
        "shard": record.shard,
        "segment": record.segment,
        "file": journal_name(record.segment),
        "frame": record.frame,
        "position": record.position,
        "lsn": record.lsn,
        "ts": record.ts,
        "time": time_of(record.ts),
        "opcode": name,
        "opcode_number": record.opcode,
        "flags": _flags(record),
        "database": record.database,
        "expire_ms": record.expire_ms,
        "payload_bytes": record.payload_bytes,
        "continues": record.continues,
        "proved": record.is_proved,
    }
    if with_payload:
        members["payload"] = _payload_json(table, record)
    return members


def _decode(table: OperationTable, record: RecordInfo) -> Any:
    """The operation, or what a record about the journal says; None: the opcode is unknown."""
    from tidelog.journal import control

    assert record.payload is not None
    if record.opcode == control.MARK:
        return control.decode_mark(record.payload)
    if record.opcode == control.SELECT:
        return {"database": control.decode_select(record.payload)}
    if record.opcode in control.EPOCHS:
        return control.decode_epoch(record.opcode, record.payload)
    if table.get(record.opcode) is None:
        return None
    return table.decode(record.opcode, record.payload, record.expire_ms)


def _payload_json(table: OperationTable, record: RecordInfo) -> Any:
    from tidelog.errors import FormatError

    if record.payload is None:
        return None if record.problem is None else {"problem": record.problem}
    try:
        decoded = _decode(table, record)
    except FormatError as error:
        return {"raw": bytes_to_json(record.payload), "problem": error.problem}
    if decoded is None:
        return {"raw": bytes_to_json(record.payload)}
    return decoded if isinstance(decoded, dict) else value_to_json(decoded)


def _payload_text(table: OperationTable, record: RecordInfo) -> str:
    from tidelog.errors import FormatError

    if record.payload is None:
        return record.problem or ""
    try:
        decoded = _decode(table, record)
    except FormatError as error:
        return f"{bytes_to_text(record.payload)} ({error.problem})"
    if decoded is None:
        return bytes_to_text(record.payload)
    if isinstance(decoded, dict):
        return " ".join(f"{name}={value_to_text(value)}" for name, value in decoded.items())
    return value_to_text(decoded)
