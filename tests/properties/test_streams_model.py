"""Streams beside a naive model: whatever is written, read, acknowledged, evicted, compacted and restarted, and in any
order, the T commands show what plain lists show.

What whole nodes are is not in the model: how far an eviction went is taken from the stream, and must be as promised.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.commands.running import WAITS, Commands
from tests.streams.cold_nodes import cool
from tidelog import limits
from tidelog.store.dead_letters import PendingExpiry
from tidelog.store.stream_retention import StreamRetention

GROUPS = (b"g", b"h")
TAGS = (b"a", b"b", b"")


@dataclass
class Waiting:
    """A pending entry."""

    offset: int
    retry_ms: int
    """After each delivery; 0: never."""
    retry_at: int
    expire_at: int
    deliveries: int = 1

    def has_expired(self, now_ms: int) -> bool:
        return 0 < self.expire_at <= now_ms


@dataclass
class Group:
    last: int
    pending_max: int = limits.PENDING_MAX_DEFAULT
    deliveries_max: int = 0
    pending: list[Waiting] = field(default_factory=list)


@dataclass
class Model:
    """One stream, its groups, and the dead letters of both."""

    exists: bool = False
    first: int = 1
    next: int = 1
    entries: dict[int, tuple[bytes, bytes, int]] = field(default_factory=dict)
    """Offset -> tag, entry, ms."""
    groups: dict[bytes, Group] = field(default_factory=dict)
    rule: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("MAXBYTES", "MAXAGE", "BACKLOG"), 0))
    calls: dict[int, int] = field(default_factory=dict)
    """Of the one producer: seq -> offset."""
    dead: list[tuple[bytes, bytes]] = field(default_factory=list)
    last_ms: int = 0

    def write(self, pairs: list[tuple[bytes, bytes]], now_ms: int) -> int:
        self.exists, offset = True, self.next
        self.last_ms = max(self.last_ms, now_ms)
        for tag, entry in pairs:
            self.entries[self.next] = tag, entry, self.last_ms
            self.next += 1
        return offset

    def read(self, offset: int, count: int) -> list[list[Any] | None]:
        offset = offset or 1
        nils: list[list[Any] | None] = [None] * min(max(self.first - offset, 0), count) if offset < self.next else []
        found: list[list[Any] | None] = [
            [at, tag, entry] for at, (tag, entry, _) in self.entries.items() if at >= offset
        ]
        return [*nils, *found[: count - len(nils)]]

    def read_back(self, offset: int, count: int) -> list[list[Any] | None]:
        offset = min(offset or self.next - 1, self.next - 1)
        found: list[list[Any] | None] = [
            [at, *self.entries[at][:2]] if at in self.entries else None
            for at in range(offset, 0, -1)
            if at in self.entries or at < self.first
        ]
        return found[:count]

    def group(self, name: bytes, *, is_new: bool = False) -> Group:
        self.exists = True
        if name not in self.groups:
            self.groups[name] = Group(self.next - 1 if is_new else self.first - 1)
        return self.groups[name]

    def read_group(
        self, name: bytes, count: int, retry: tuple[int, int] | None, now_ms: int, *, is_new: bool
    ) -> list[Any]:
        group = self.group(name, is_new=is_new)
        again: list[Waiting] = []
        self.expire(group, now_ms)
        for each in [each for each in group.pending if each.retry_at]:
            if len(again) == count or each.retry_at > now_ms:
                break
            if 0 < group.deliveries_max <= each.deliveries:
                self._give_up(group, each)
            else:
                each.retry_ms = retry[0] if retry is not None else each.retry_ms
                each.retry_at, each.deliveries = (now_ms + each.retry_ms if each.retry_ms else 0), each.deliveries + 1
                again.append(each)
        group.pending = [each for each in group.pending if each not in again] + again
        room = max(group.pending_max - len(group.pending), 0)
        new = [at for at in self.entries if at > group.last][: min(count - len(again), room)]
        for at in new:
            group.last = at
            if retry is not None:  # after START it may be pending already: it is delivered as if it were new
                group.pending = [each for each in group.pending if each.offset != at]
                expire_at = now_ms + retry[1] if retry[1] else 0
                group.pending.append(Waiting(at, retry[0], now_ms + retry[0] if retry[0] else 0, expire_at))
        return [[at, *self.entries[at][:2]] for at in [*(each.offset for each in again), *new]]

    def expire(self, group: Group, now_ms: int) -> int:
        expired = [each for each in group.pending if each.has_expired(now_ms)]
        for each in sorted(expired, key=lambda each: (each.expire_at, each.offset)):
            self._give_up(group, each)
        return len(expired)

    def _give_up(self, group: Group, each: Waiting) -> None:
        group.pending.remove(each)
        if group.deliveries_max:
            self.dead.append(self.entries[each.offset][:2])

    def _keep(self, entries: dict[int, tuple[bytes, bytes, int]]) -> int:
        """Only these entries stay; what is pending of the others goes with them. Returns how many went."""
        removed, self.entries = len(self.entries) - len(entries), entries
        for group in self.groups.values():
            group.pending = [each for each in group.pending if each.offset in entries]
        return removed

    def compact(self, now_ms: int) -> int:
        newest = {tag: at for at, (tag, _, _) in self.entries.items()}
        kept = {
            at: (tag, entry, ms)
            for at, (tag, entry, ms) in self.entries.items()
            if not tag or (newest[tag] == at and (entry or ms >= now_ms - limits.TOMBSTONE_KEPT_MS))
        }
        return self._keep(kept)

    def evict(self, first: int) -> int:
        self.first = max(first, self.first)
        return self._keep({at: entry for at, entry in self.entries.items() if at >= first})


def drawn(rng: Random) -> tuple[Any, ...]:
    """A step; what makes the others forget everything is rare."""
    pairs = [(rng.choice(TAGS), rng.choice([b"", b"x", b"entry"])) for _ in range(rng.randint(1, 6))]
    group, near = rng.choice(GROUPS), rng.randrange(60)
    retry = rng.choice([None, (rng.choice([0, 50, 80]), rng.choice([0, 0, 120]))])
    steps: list[tuple[int, tuple[Any, ...]]] = [
        (8, ("write", pairs, None, None)),
        (3, ("write", pairs, rng.choice([None, rng.randrange(30)]), rng.choice([None, 150]))),
        (3, ("produce", pairs, rng.randrange(40))),
        (3, ("read", near, rng.randrange(12))),
        (12, ("read group", group, rng.randrange(6), retry, rng.random() < 0.3, rng.random() < 0.5)),
        (5, ("ack", group, near, rng.randrange(4))),
        (2, ("limit", group, rng.randint(1, 8), rng.choice([None, rng.randint(1, 3)]))),
        (1, ("start", group, near + 1)),
        (2, ("evict", rng.randint(-40, 60))),
        (1, ("age", rng.choice([0, 60, 200]))),
        (1, ("config", rng.choice(["MAXBYTES", "MAXAGE", "BACKLOG"]), rng.choice([0, 9, 60, 200, 600]))),
        (2, ("retain",)),
        (2, ("compact",)),
        (8, ("time", rng.choice([1, 30, 60, 200]))),
        (1, ("time", 25 * 3600 * 1000)),
        (3, ("restart", rng.random() < 0.5)),
        (2, ("cool",)),
        (4, ("expire",)),
        (1, ("delete",) if rng.random() < 0.3 else ("compact",)),
    ]
    return rng.choices([step for _, step in steps], [weight for weight, _ in steps])[0]


class Check:
    """Runs steps on both."""

    def __init__(self, shards: int) -> None:
        self.run = Commands(shards)
        self.model = Model()

    def step(self, what: str, *details: Any) -> None:
        getattr(self, f"do_{what.replace(' ', '_')}")(*details)
        self.same()

    def do_write(self, pairs: list[tuple[bytes, bytes]], backlog: int | None, max_age: int | None) -> None:
        options: list[Any] = [] if backlog is None else ["BACKLOG", backlog]
        options += [] if max_age is None else ["MAXAGE", max_age]
        flat = [word for pair in pairs for word in pair]
        reply = self.run("TWRITE", b"{t}k", *options, "ENTRIES", *flat)
        assert reply == self.model.write(pairs, self.run.now_ms)
        self._evicted(reply - 1, backlog, self.run.now_ms - max_age if max_age is not None else None)

    def _evicted(self, last: int, kept: int | None, older_ms: int | None) -> None:
        """Whatever went was old, and more than was to be kept, as far as that was asked for."""
        first = self.run.stream(b"{t}k").first
        assert first <= last + 1
        gone = [entry for at, entry in self.model.entries.items() if at < first]
        if gone:
            assert kept is not None or older_ms is not None
            assert kept is None or len(self.model.entries) - len(gone) >= kept
            assert older_ms is None or all(ms < older_ms for _, _, ms in gone)
        self.model.evict(first)

    def do_produce(self, pairs: list[tuple[bytes, bytes]], seq: int) -> None:
        flat = [word for pair in pairs for word in pair]
        reply = self.run("TWRITE", b"{t}k", "PRODUCER", "p", seq, "ENTRIES", *flat)
        if seq in self.model.calls:
            assert reply == self.model.calls[seq]
        elif seq < max(self.model.calls, default=-1):
            assert "is forgotten" in str(reply)
        else:
            self.model.calls[seq] = self.model.write(pairs, self.run.now_ms)
            assert reply == self.model.calls[seq]

    def do_read(self, offset: int, count: int) -> None:
        found = self.model.read(offset, count)
        assert self.run.quietly("TREAD", b"{t}k", offset, count) == found
        down = self.model.read_back(offset, count)
        assert self.run.quietly("TREAD", b"{t}k", offset, count, "REV") == down
        waits = WAITS if count and not found else found
        assert self.run.quietly("TREAD", b"{t}k", offset, count, "BLOCK", 0) == waits

    def do_read_group(self, name: bytes, count: int, retry: tuple[int, int] | None, is_new: bool, blocks: bool) -> None:
        options: list[Any] = [b"NEWGROUP" if is_new else b"GROUP", name]
        options += [] if retry is None else ["RETRY", *retry]
        options += ["BLOCK", 0] if blocks else []
        found = self.model.read_group(name, count, retry, self.run.now_ms, is_new=is_new)
        reply = self.run("TREAD", b"{t}k", 0, count, *options)
        assert reply == (WAITS if blocks and count and not found else found)

    def do_ack(self, name: bytes, first: int, more: int) -> None:
        reply = self.run("TACK", b"{t}k", name, f"{first}-{first + more}" if more else first)
        group, now_ms = self.model.groups.get(name, Group(0)), self.run.now_ms
        left = [each for each in group.pending if not first <= each.offset <= first + more or each.has_expired(now_ms)]
        assert reply == len(group.pending) - len(left)
        group.pending = left

    def do_expire(self) -> None:
        expired = sum(self.model.expire(group, self.run.now_ms) for group in self.model.groups.values())
        assert PendingExpiry(self.run.store).run() == expired

    def do_limit(self, name: bytes, pending_max: int, deliveries_max: int | None) -> None:
        options: list[Any] = ["MAXPENDING", pending_max]
        options += [] if deliveries_max is None else ["DEADLETTER", "dead", "MAXDELIVERIES", deliveries_max]
        assert self.run("TGROUP", b"{t}k", name, *options) == b"OK"
        group = self.model.group(name)
        group.pending_max, group.deliveries_max = pending_max, deliveries_max or group.deliveries_max

    def do_start(self, name: bytes, offset: int) -> None:
        assert self.run("TGROUP", b"{t}k", name, "START", offset) == b"OK"
        self.model.group(name).last = offset - 1

    def do_evict(self, offset: int) -> None:
        before = dict(self.model.entries)
        reply = self.run("TEVICT", b"{t}k", offset)
        if not self.model.exists:
            assert reply == 0
            return
        first = self.run.stream(b"{t}k").first
        assert reply == self.model.evict(first)
        if offset < 0:
            assert len(self.model.entries) >= min(-offset, len(before))
        else:
            assert all(at <= offset for at in before.keys() - self.model.entries.keys())
            assert offset < self.model.next - 1 or not self.model.entries

    def do_age(self, ms: int) -> None:
        reply = self.run("TEVICT", b"{t}k", "AGE", ms)
        if self.model.exists:
            before = len(self.model.entries)
            self._evicted(self.model.next - 1, None, self.run.now_ms - ms)
            assert reply == before - len(self.model.entries)

    def do_config(self, name: str, value: int) -> None:
        assert self.run("TCONFIG", b"{t}k", name, value) == b"OK"
        self.model.exists = True
        self.model.rule[name] = value

    def do_retain(self) -> None:
        StreamRetention(self.run.store).run()
        model, rule = self.model, self.model.rule
        if not model.exists:
            return
        before, old_ms = dict(model.entries), self.run.now_ms - rule["MAXAGE"]
        gone = model.evict(self.run.stream(b"{t}k").first)
        assert len(model.entries) >= min(rule["BACKLOG"], len(before))
        is_old = [bool(rule["MAXAGE"]) and ms < old_ms for _, _, ms in before.values()]
        sizes = [24 + len(tag) + len(entry) for tag, entry, _ in before.values()]
        if gone and not all(is_old[:gone]):  # so it was too large, but for the last node and what holes take
            assert rule["MAXBYTES"] or (rule["BACKLOG"] and not rule["MAXAGE"])
            assert not rule["MAXBYTES"] or sum(each + 9 for each in sizes[max(gone - 5, 0) :]) > rule["MAXBYTES"]
        if len(model.entries) >= rule["BACKLOG"] + 5:
            assert sum(is_old[gone:]) <= 5
            assert not rule["MAXBYTES"] or sum(sizes[gone:]) <= rule["MAXBYTES"] or len(model.entries) <= 5
            assert rule["MAXBYTES"] or rule["MAXAGE"] or not rule["BACKLOG"]

    def do_compact(self) -> None:
        assert self.run("TCOMPACT", b"{t}k") == self.model.compact(self.run.now_ms)

    def do_time(self, ms: int) -> None:
        self.run.wait(ms)

    def do_restart(self, with_snapshot: bool) -> None:
        if with_snapshot:
            self.run.store.journal.writer.write()
            self.run.store.save()
        self.run.restart()

    def do_cool(self) -> None:
        if self.model.exists:
            self.run.stream(b"{t}k").seal()
            cool(self.run.store)

    def do_delete(self) -> None:
        assert self.run("DEL", b"{t}k") == int(self.model.exists)
        self.model = Model(dead=self.model.dead)

    def same(self) -> None:
        """The two show the same."""
        model, run = self.model, self.run
        assert run("EXISTS", b"{t}k") == int(model.exists)
        assert run("TREAD", b"{t}k", 1, 999) == model.read(1, 999)
        assert run("TREAD", b"{t}k", 1, 0, "WITHINFO") == [[min(model.entries, default=model.next), model.next - 1]]
        assert [entry[1:] for entry in run("TREAD", "dead", 1, 999)] == [list(pair) for pair in model.dead]
        if not model.exists:
            return
        assert run("TCONFIG", b"{t}k")[1::2] == list(model.rule.values())
        stream = run.stream(b"{t}k")
        assert set(stream.groups) == set(model.groups)
        for name, group in model.groups.items():
            found = [
                (offset, each.deliveries, each.delivered_ms + each.retry_after_ms if each.retry_after_ms else 0)
                for offset, each in stream.groups[name].pending.items()
            ]
            assert found == [(each.offset, each.deliveries, each.retry_at) for each in group.pending]
            alarm_ms = run.store.database(0).alarms.times.get(b"{t}k", 2**64)
            assert all(alarm_ms <= each.expire_at for each in group.pending if each.expire_at)


@pytest.mark.parametrize("shards", [1, 3])
@settings(max_examples=20)
@given(seed=st.integers(0, 2**32))
def test_streams_are_plain_lists(shards: int, seed: int) -> None:
    rng = Random(seed)
    with patch.object(limits, "NODE_ENTRIES_MAX", 5):
        check = Check(shards)
        for _ in range(250):
            check.step(*drawn(rng))
