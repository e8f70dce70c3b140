"""A store that something happens to, at random and from a seed, and the rows that views find in it.

The rows are read from the server with plain commands, and made without any of the code that views are made by.

    prefix:order:   hashes and JSON strings, with whatever else a key may be, and what is no JSON
    prefix:city:    what is joined to them by `city`
    stream:ticks    entries of T and X commands
    days:shop/web   events of some days
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from tidelog.days.compressor import compress_day
from tidelog.days.jobset import JobSet
from tidelog.days.lease import Lease
from tidelog.days.message import EventId, Message
from tidelog.days.reader import Reader
from tidelog.days.retention import expire_days
from tidelog.days.writer import Writer

Row = dict[str, str | None]

ORDERS: Final = 12
CITIES: Final = 4
JOBSET: Final = JobSet("shop", "web")
DAY_1: Final = date(2026, 3, 1)
_DAY_1_MS: Final = 1_772_323_200_000
_DAY_MS: Final = 86_400_000
_STATES: Final = ("new", "paid", "sent", "50 %", "a:b", "", "Grün")


class World:
    """What happens. Times are in it as data alone."""

    def __init__(self, client: Any, seed: int, *, flushes: bool = True) -> None:
        self.client = client
        self.chance = random.Random(seed)
        self._day = 0
        self._event = 0
        self._is_flushed_at_times = flushes
        self._ends: list[bytes] = []
        """Keys that are about to expire."""

    def call(self, *words: Any) -> Any:
        return self.client.execute_command(*words)

    def write(self, count: int) -> None:
        """So many things happen."""
        deeds: list[tuple[int, Callable[[], Any]]] = [
            (10, self._set_fields),
            (6, self._set_json),
            (4, self._remove_fields),
            (3, self._remove_key),
            (2, self._rename),
            (2, self._turn_into_something_else),
            (2, self._expire_key),
            (3, self._change_city),
            (6, self._append),
            (3, self._remove_entries),
            (1, self._recreate_stream),
            (6, self._add_events),
            (1, self._compress),
            (1, self._expire_days),
        ]
        weights = [weight for weight, _ in deeds]
        for _, deed in self.chance.choices(deeds, weights, k=count):
            deed()
        if self._is_flushed_at_times and self.chance.random() < 0.1:
            self.call("FLUSHDB")
            self._set_fields()
        self._wait_until_expired()

    def _wait_until_expired(self) -> None:
        deadline = time.monotonic() + 10
        while self._ends and self.call("EXISTS", *self._ends):
            assert time.monotonic() < deadline
            time.sleep(0.005)
        self._ends = []

    # --- keys -----------------------------------------------------------------------------------------------------

    def _order(self) -> bytes:
        key = b"order:%d" % self.chance.randrange(ORDERS)
        if key in self._ends:
            self._wait_until_expired()
        return key

    def _columns(self) -> dict[str, Any]:
        chance = self.chance
        made: dict[str, Any] = {
            "state": chance.choice(_STATES),
            "amount": chance.choice([chance.randrange(-40, 400) / 4, chance.randrange(100), "12.25", "x"]),
            "n": chance.choice([chance.randrange(-5, 9), "none"]),
            "city": f"city:{chance.randrange(CITIES + 1)}",
            "at": f"2026-03-01 {chance.randrange(4):02}:{chance.randrange(60):02}:30",
            "other": chance.random(),
        }
        return {name: made[name] for name in chance.sample(sorted(made), chance.randrange(1, len(made) + 1))}

    def _set_fields(self) -> None:
        key = self._order()
        if self.call("TYPE", key) != b"hash":
            self.call("DEL", key)
        pairs = [word for name, value in self._columns().items() for word in (name, str(value))]
        self.call("HSET", key, *pairs)

    def _set_json(self) -> None:
        columns = self._columns()
        texts = [json.dumps({**columns, "more": [1, {"a": None}], "is_new": True}), "no JSON", "[1]", b"\xff{", "{"]
        self.call("SET", self._order(), self.chance.choices(texts, [12, 1, 1, 1, 1])[0])

    def _remove_fields(self) -> None:
        key = self._order()
        if self.call("TYPE", key) == b"hash":
            fields = self.call("HKEYS", key)
            self.call("HDEL", key, *self.chance.sample(fields, self.chance.randrange(1, len(fields) + 1)))

    def _remove_key(self) -> None:
        self.call("DEL", self._order(), self._order())

    def _rename(self) -> None:
        key = self._order()
        if self.call("EXISTS", key):
            self.call("RENAME", key, self.chance.choice([self._order(), b"elsewhere"]))
        elif self.call("EXISTS", "elsewhere"):
            self.call("COPY", "elsewhere", key, "REPLACE")

    def _turn_into_something_else(self) -> None:
        key = self._order()
        self.call("DEL", key)
        self.call("SADD", key, "member")

    def _expire_key(self) -> None:
        key = self._order()
        if self.call("PEXPIRE", key, 1):
            self._ends.append(key)

    def _change_city(self) -> None:
        key = f"city:{self.chance.randrange(CITIES)}"
        if self.chance.random() < 0.3:
            self.call("DEL", key)
        elif self.chance.random() < 0.8:
            self.call("HSET", key, "name", self.chance.choice(["Ulm", "Oslo", "Rome"]))
        else:
            self.call("HSET", key, "size", "1")

    # --- entries --------------------------------------------------------------------------------------------------

    def _append(self) -> None:
        chance = self.chance
        if chance.random() < 0.5:
            entries = [
                word
                for _ in range(chance.randrange(1, 4))
                for word in (f"t{chance.randrange(3)}", json.dumps(self._columns()) if chance.random() < 0.9 else "x")
            ]
            self.call("TWRITE", "ticks", "ENTRIES", *entries)
        else:
            pairs = [word for name, value in self._columns().items() for word in (name, str(value))]
            self.call("XADD", "ticks", "*", *pairs)

    def _remove_entries(self) -> None:
        ids = [each for each, _ in self._entries()]
        if not ids:
            return
        if self.chance.random() < 0.5:
            self.call("XDEL", "ticks", *self.chance.sample(ids, min(len(ids), 2)))
        else:
            self.call("XTRIM", "ticks", "MAXLEN", max(1, len(ids) - self.chance.randrange(1, 4)))

    def _recreate_stream(self) -> None:
        self.call("DEL", "ticks")
        self._append()

    def _entries(self) -> list[tuple[bytes, dict[bytes, bytes]]]:
        found = self.client.xrange("ticks")
        return [(entry_id, fields) for entry_id, fields in found]

    # --- events of days -------------------------------------------------------------------------------------------

    def _add_events(self) -> None:
        self._day += self.chance.random() < 0.2
        messages = []
        for _ in range(self.chance.randrange(1, 4)):
            self._event += 1
            ms = _DAY_1_MS + self._day * _DAY_MS + self._event
            event = json.dumps(self._columns()) if self.chance.random() < 0.9 else "x"
            messages.append(Message(EventId(ms, 0), ms, event.encode()))
        Writer(self.client, JOBSET).write(messages)

    def _compress(self) -> None:
        lease = Lease.take(self.client, "days")
        assert lease is not None
        day = DAY_1 + timedelta(days=self.chance.randrange(max(0, self._day - 2), self._day + 1))
        compress_day(self.client, JOBSET, day, lease.token)
        lease.release()

    def _expire_days(self) -> None:
        today = DAY_1 + timedelta(days=self._day + self.chance.randrange(2))
        expire_days(self.client, JOBSET, keep_days=self.chance.randrange(3), today=today)

    # --- what there is --------------------------------------------------------------------------------------------

    def rows(self, source: str) -> list[Row]:
        """The rows of a source, in their order."""
        kind, _, target = source.partition(":")
        if kind == "prefix":
            keys = sorted(self.client.scan_iter(match=f"{target}*"))
            return [row for key in keys for row in self._row_of_key(key)]
        if kind == "stream":
            return [_row_of_entry(target, entry_id, fields) for entry_id, fields in self._entries()]
        return [_row_of_event(message) for message in Reader(self.client, JOBSET).until_now()]

    def _row_of_key(self, key: bytes) -> list[Row]:
        its = self.call("TYPE", key)
        if its == b"string":
            value = self.call("GET", key)
            members = members_of(value)
            return [{**({"value": text(value)} if members is None else members), "key": text(key)}]
        if its == b"hash":
            flat = self.client.hgetall(key)
            return [{**{text(name): text(value) for name, value in flat.items()}, "key": text(key)}]
        return []


def text(value: bytes) -> str:
    return value.decode(errors="replace")


def members_of(value: bytes) -> Row | None:
    try:
        found = json.loads(value)
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    return {
        name: member if member is None or isinstance(member, str) else json.dumps(member)
        for name, member in found.items()
    }


def moment(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.") + f"{ms % 1000:03}"


def _row_of_entry(key: str, entry_id: bytes, fields: dict[bytes, bytes]) -> Row:
    row: Row = {"key": key, "id": text(entry_id), "timestamp": moment(int(entry_id.partition(b"-")[0]))}
    if fields.keys() == {b"tag", b"entry"}:
        row |= {"tag": text(fields[b"tag"]), "entry": text(fields[b"entry"])}
        members = members_of(fields[b"entry"]) or {}
    else:
        row |= {"tag": "", "entry": None}
        members = {text(name): text(value) for name, value in fields.items()}
    return {**row, **{name: value for name, value in members.items() if value is not None}}


def _row_of_event(message: Message) -> Row:
    row: Row = {"queue": JOBSET.queue, "jobset": JOBSET.jobset, "day": message.day.isoformat(), "id": str(message.id)}
    row |= {"timestamp": moment(message.id.ms), "event": text(message.event)}
    return {**row, **{name: value for name, value in (members_of(message.event) or {}).items() if value is not None}}
