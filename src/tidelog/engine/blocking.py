"""Clients that wait for a key: BLPOP and its like, BZPOPMIN and its like, BLOCK of TREAD, XREAD and XREADGROUP.

A command that has nothing to answer raises `WouldBlock`. Its client then stands in the line of each of its keys. The
engine runs the same command again, as a transaction of its own, when

    a key has changed      right after the command or transaction that changed it, before anything else runs
    an entry is due        a pending entry of a group is to be delivered again, or expires: one timer a group
    its time is over       the client gets the reply for that

A key has one line, first come first served, whatever the commands in it. Many clients in it are alike: they run the
same command, and if one of them gets nothing, nobody behind it would. So a line is kept as one queue for each *kin*,
and the queues are merged by the order of arrival:

    line of "jobs"     BLPOP        1  4  5  7 ...        served 1, 2, 3, 4: as long as the list has elements;
                       BLMOVE       2  3  9               then the first of a queue gets nothing, and the queue
                       BZPOPMIN     6  8                  is left alone

A change costs one attempt for each client that gets something, at most one more for each kin, and one for each reader
of a stream without a group, which all see different entries. A value of a type that a client does not wait for costs a
look at the value. A client that was served and waits again goes to the end of the line; one that got nothing keeps its
place.

Serving is one loop, even where the change of one client serves another (BLMOVE): nothing here calls itself. While the
gate is closed for writes, clients that would write keep waiting and are tried again later.

A BLMOVE that finds a large element is not run here, because the element has to be written first, by a thread
(`staging`): the client sends its command once more, so to speak. Everyone else in the line waits until it has run.

A reader that needs cold nodes is served when a thread has read them (`fetching`). It keeps its place: the others of its
kin wait until then, and everyone else is served.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

from tidelog import limits
from tidelog.engine.deadline import Deadline
from tidelog.engine.dispatch import run_command
from tidelog.engine.fetching import Fetch, is_too_much, refusal_of
from tidelog.engine.follower_waits import UNBLOCKED
from tidelog.engine.hot_commands import Commands, HotRun
from tidelog.engine.table import Command
from tidelog.engine.would_block import WouldBlock
from tidelog.errors import ApplyFailed
from tidelog.ports import Loop, Timer
from tidelog.resp.encoder import ErrorReply, Reply
from tidelog.streams.cold import OPENED, NodesAway
from tidelog.streams.progress import top_id
from tidelog.streams.sealed_node import SealedNode
from tidelog.streams.stream import Stream

if TYPE_CHECKING:
    from tidelog.engine.engine import Engine
    from tidelog.engine.session import Session

KeyPlace = tuple[int, bytes]
"""Database and key."""
Kin = tuple[str, bytes | None]
"""The command, and what makes its clients alike (`WouldBlock.kin`): a group, or nothing. None: they are not alike."""
ROLE_CHANGED: Final = "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)"


class Waiter:
    """A client and the command that waits."""

    __slots__ = (
        "arrival",
        "awaits",
        "commands",
        "deadline",
        "fetch",
        "kin",
        "needs_key",
        "places",
        "row",
        "run",
        "session",
        "timed_out",
        "until_us",
    )

    def __init__(
        self,
        session: Session,
        row: Command,
        wait: WouldBlock,
        arrival: int,
        places: list[KeyPlace],
        run: HotRun | None,
    ) -> None:
        self.session = session
        self.row = row
        self.arrival = arrival
        """Its number among all that ever waited: the order of a line."""
        self.commands: Commands = [list(wait.arguments)]
        """The one that is run again."""
        self.run = run
        """How it is run first: hot. It stays so, because nothing that its client sends is run meanwhile."""
        self.timed_out = wait.timed_out
        self.needs_key = wait.needs_key
        self.awaits = wait.awaits
        self.kin: Kin = (row.name, wait.kin)
        self.places = places
        self.deadline: Deadline | None = None
        self.until_us = 0
        """When its time is over (monotonic); 0: never."""
        self.fetch: Fetch | None = None
        """Cold nodes that it needs to be served; None: it does not need any."""


Line = dict[Kin, OrderedDict[Waiter, None]]
"""All that wait for one key. A queue is never empty. It is an `OrderedDict` because that finds its first in no time; a
dict would look at all the places of those that have left."""


class Blocking:
    """All clients that wait."""

    def __init__(self, engine: Engine, loop: Loop) -> None:
        self._engine = engine
        self._loop = loop
        self._lines: dict[KeyPlace, Line] = {}
        self._by_session: dict[Session, Waiter] = {}
        self._arrivals = 0
        """How many have ever waited."""
        self._due: dict[tuple[KeyPlace, Kin], Timer] = {}
        """When something of a group is due."""
        self._put_off: dict[KeyPlace, None] = {}
        """Keys whose clients the gate held back: tried again by `tick`."""
        self._moving: dict[KeyPlace, tuple[Session, int]] = {}
        """Clients that were given a large element to move, which they may have done by now, and how many commands each
        had run before."""
        self._is_serving = False

    def __len__(self) -> int:
        """How many wait, be it for a key or for followers."""
        return len(self._by_session) + len(self._engine.follower_waits)

    @property
    def key_count(self) -> int:
        """How many keys are waited for."""
        return len(self._lines)

    def has(self, session: Session) -> bool:
        """Whether a client waits for a key."""
        return session in self._by_session

    # --- coming and going ---------------------------------------------------------------------------------------

    def add(self, session: Session, row: Command, wait: WouldBlock) -> None:
        """A client begins to wait."""
        number = session.database
        places = [(number, key) for key in dict.fromkeys(wait.keys)]
        hot = self._engine.hot_commands(session).get(wait.arguments[0])
        self._arrivals += 1
        waiter = Waiter(session, row, wait, self._arrivals, places, None if hot is None else hot.run)
        self._by_session[session] = waiter
        session.set_blocked(True)
        waiting = self._engine.store.database(number).waiting
        for place in places:
            line = self._lines.get(place)
            if line is None:
                line = self._lines[place] = {}
                waiting.add(place[1])
            queue = line.get(waiter.kin)
            if queue is None:
                queue = line[waiter.kin] = OrderedDict()
            queue[waiter] = None
        if wait.timeout_ms:
            waiter.until_us = self._engine.clock.monotonic_us() + 1000 * wait.timeout_ms
            seconds = wait.timeout_ms / 1000
            waiter.deadline = Deadline(self._loop, seconds, lambda: self._finish(waiter, waiter.timed_out))
        self._set_due(waiter, wait.due_ms)

    def forget(self, session: Session) -> None:
        """A client is gone, or has been answered; fine if it did not wait."""
        waiter = self._by_session.pop(session, None)
        if waiter is None:
            self._engine.long_commands.forget(session)
            self._engine.follower_waits.forget(session)
            if self._moving:
                self._moving = {place: each for place, each in self._moving.items() if each[0] is not session}
            return
        session.set_blocked(False)
        self._end_fetch(waiter)
        if waiter.deadline is not None:
            waiter.deadline.cancel()
        for place in waiter.places:
            line = self._lines[place]
            queue = line[waiter.kin]
            del queue[waiter]
            if not queue:
                del line[waiter.kin]
                self._cancel_due(place, waiter.kin)
                if not line:
                    del self._lines[place]
                    self._engine.store.database(place[0]).waiting.discard(place[1])

    def unblock(self, session: Session, *, with_error: bool) -> bool:
        """CLIENT UNBLOCK; false if it does not wait."""
        waiter = self._by_session.get(session)
        if waiter is None:
            return self._engine.follower_waits.unblock(session, with_error=with_error)
        self._finish(waiter, ErrorReply(UNBLOCKED) if with_error else waiter.timed_out)
        return True

    def end_writes(self) -> None:
        """The server no longer takes writes, so nobody who waits to write will get anything: they are told so and, as
        in Redis, cut off, because the leader is elsewhere. Reads wait on: what the leader writes will serve them."""
        for waiter in list(self._by_session.values()):
            if waiter.row.journals(waiter.commands[0]):
                waiter.session.close_after_reply()
                self._finish(waiter, ErrorReply(ROLE_CHANGED))
        self._engine.long_commands.end_all(ROLE_CHANGED)
        self._engine.follower_waits.end_all(ROLE_CHANGED)

    def end_all(self, error: str) -> None:
        """Nobody is served any more: all are told so, and cut off."""
        for waiter in list(self._by_session.values()):
            waiter.session.close_after_reply()
            self._finish(waiter, ErrorReply(error))
        self._engine.long_commands.end_all(error)
        self._engine.follower_waits.end_all(error)

    def close(self) -> None:
        """The server stops: nobody is served any more. They still wait, so that nothing they sent later is run."""
        for session in list(self._by_session):
            self.forget(session)
            session.set_blocked(True)
        self._engine.long_commands.close()
        self._engine.follower_waits.close()

    # --- serving ------------------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Run again what waits for keys that have changed, in the order of the changes. What that changes may serve
        others."""
        if self._is_serving:
            return  # by the loop below
        self._is_serving = True
        signals = self._engine.store.signals
        try:
            while signals:
                for place in list(signals):
                    del signals[place]
                    if self._moving and self._is_moved_from(place):
                        continue
                    line = self._lines.get(place)
                    if line is not None:
                        self._serve_line(place, line, line)
        finally:
            self._is_serving = False

    def tick(self) -> None:
        """Now and then: serve what changed outside of commands, and clients that were put off."""
        self._engine.follower_waits.look()
        for place in self._put_off:
            self._engine.store.signals[place] = False
        self._put_off.clear()
        self.serve()

    def _is_moved_from(self, place: KeyPlace) -> bool:
        """Whether a client is still about to move a large element from a key: its command has not been run, or the
        element is being written."""
        moving = self._moving.get(place)
        if moving is None:
            return False
        session, run_before = moving
        is_to_run = session.command_count == run_before and not session.is_clogged
        if session.staging is None and not is_to_run:
            del self._moving[place]
            return False
        self._put_off[place] = None
        return True

    def _serve_line(self, place: KeyPlace, line: Line, kins: Iterable[Kin]) -> None:
        """Give a key to those of some kins that wait for it, by their arrival."""
        heads: list[tuple[int, Waiter]] = []
        """A heap: the first of each queue, and all of those who are not alike."""
        for kin in kins:
            queue = line[kin]
            if kin[1] is None:
                heads += [(waiter.arrival, waiter) for waiter in queue]
            else:
                first = next(iter(queue))
                heads.append((first.arrival, first))
        if len(heads) > 1:
            heapify(heads)
        while heads:
            waiter = heappop(heads)[1]
            is_served = self._attempt(waiter, place)
            if self._moving and place in self._moving:
                return
            if is_served and waiter.kin[1] is not None:
                behind = line.get(waiter.kin)
                if behind is not None:
                    first = next(iter(behind))
                    heappush(heads, (first.arrival, first))

    def _attempt(self, waiter: Waiter, place: KeyPlace) -> bool:
        """Whether the command had something to answer this time."""
        engine, row, arguments = self._engine, waiter.row, waiter.commands[0]
        if waiter.fetch is not None:
            if waiter.fetch.is_away:
                return False
            if waiter.fetch.error:
                self._finish(waiter, ErrorReply(waiter.fetch.error))
                return True
        database = engine.store.database(place[0])
        if waiter.awaits is not None and type(database.peek(place[1])) is not waiter.awaits:
            return False
        if row.name == "XREADGROUP" and self._has_read_all(place, waiter.kin[1]):
            return False
        if engine.gate.stops(row, arguments):
            self._put_off[place] = None
            return False
        if row.large is not None and engine.staging is not None and row.large(database, arguments):
            self.forget(waiter.session)
            self._moving[place] = waiter.session, waiter.session.command_count
            self._put_off[place] = None  # for those behind it, whatever becomes of it
            waiter.session.run_again(self._with_time_left(waiter))
            return False
        out: list[bytes] = []
        if waiter.run is not None and waiter.run(waiter.commands, 0, out):
            self.forget(waiter.session)
            waiter.session.unblock(out[0])
            return True
        transaction = engine.store.begin(place[0])
        transaction.may_wait = True
        transaction.fetches = engine.fetching is not None and (
            waiter.fetch is None or waiter.fetch.times < limits.FETCHED_TIMES_MAX
        )
        if waiter.needs_key and all(transaction.peek(key) is None for _, key in waiter.places):
            self._set_due(waiter, 0)
            return False
        try:
            try:
                reply = run_command(row, transaction, arguments)
            except WouldBlock as wait:
                engine.commit(transaction)
                self._end_fetch(waiter)
                self._set_due(waiter, wait.due_ms)
                return False
            except NodesAway as away:
                engine.commit(transaction)
                return self._fetch_for(waiter, place, away.nodes)
            engine.commit(transaction)
        except ApplyFailed as error:
            engine.fail(error)
        self._finish(waiter, reply)
        return True

    def _fetch_for(self, waiter: Waiter, place: KeyPlace, nodes: Sequence[SealedNode]) -> bool:
        """Serve a client once its nodes are open. Until then it keeps its place, and nobody of its kin is served."""
        fetching = self._engine.fetching
        assert fetching is not None
        fetch = waiter.fetch
        if fetch is None:
            waiter.fetch = fetch = Fetch(waiter.commands[0], lambda: self._serve_again(place))
        if is_too_much(fetch, nodes):
            self._finish(waiter, ErrorReply(refusal_of(fetch, nodes)))
            return True
        fetching.fetch(fetch, nodes)
        return False

    def _serve_again(self, place: KeyPlace) -> None:
        self._engine.store.signals[place] = False
        self.serve()

    def _end_fetch(self, waiter: Waiter) -> None:
        fetch, waiter.fetch = waiter.fetch, None
        if fetch is not None and self._engine.fetching is not None:
            self._engine.fetching.give_up(fetch)

    def _with_time_left(self, waiter: Waiter) -> list[bytes]:
        """The command of one that moves an element, whose last word is how long it waits."""
        words = waiter.commands[0]
        if not waiter.until_us:
            return words
        left_us = max(waiter.until_us - self._engine.clock.monotonic_us(), 1000)  # 0 would be for ever
        return [*words[:-1], b"%.3f" % (left_us / 1e6)]

    def _has_read_all(self, place: KeyPlace, group_name: bytes | None) -> bool:
        """Whether a group is there and has plainly nothing to read."""
        database = self._engine.store.database(place[0])
        stream = database.peek(place[1])
        if group_name is None or not isinstance(stream, Stream) or place[1] in database.expiries:
            return False
        group = stream.groups.get(group_name)
        try:
            OPENED.fetches = self._engine.fetching is not None
            return group is not None and top_id(stream) <= group.last_id
        except NodesAway:
            return False  # the command finds out
        finally:
            OPENED.fetches = False

    def _finish(self, waiter: Waiter, reply: Reply) -> None:
        session = waiter.session
        self.forget(session)
        if type(reply) is ErrorReply:
            self._engine.count_failure(waiter.row, reply)
        session.unblock(self._engine.encode_for(session, waiter.row, reply))

    # --- what becomes due ---------------------------------------------------------------------------------------

    def _set_due(self, waiter: Waiter, due_ms: int) -> None:
        """One timer for all readers of a group: at the time of the entry that is due first."""
        place, kin = waiter.places[0], waiter.kin
        self._cancel_due(place, kin)
        if due_ms:
            seconds = max(1000 * due_ms - self._engine.clock.wall_us(), 0) / 1e6
            self._due[place, kin] = self._loop.call_later(
                min(seconds, limits.TIMER_S_MAX), lambda: self._fall_due(place, kin)
            )

    def _cancel_due(self, place: KeyPlace, kin: Kin) -> None:
        if not self._due:
            return
        before = self._due.pop((place, kin), None)
        if before is not None:
            before.cancel()

    def _fall_due(self, place: KeyPlace, kin: Kin) -> None:
        del self._due[place, kin]
        self._serve_line(place, self._lines[place], [kin])
        self.serve()
