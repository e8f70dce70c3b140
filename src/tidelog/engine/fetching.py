"""Commands that need cold nodes: threads read the nodes from disk before the command runs, and nobody waits.

    run --a node is away--> held: in line --there is room--> its nodes are pinned, those that are away are read
     ^                                                                    |
     '------------------- all of them are open: looked at as if it had just arrived

A handler decides before anything is applied, so it can be run again. It tells of as many nodes as it knows that it
needs, and is fetched for again if it needs more: everything that was fetched for it stays pinned until it has run. If
streams change faster than that, it reads the rest on the spot after some attempts.

A command may need `FETCHED_BYTES_MAX` of opened nodes, and all together may pin `FETCHED_TOGETHER_BYTES_MAX`: the
others stand in line, first come first served. One that needs more than it has pinned lets go of that and stands in
front, so that commands never wait for each other's pins. A node that is being read for one is not read for another:
commands that need the same nodes go on in the order in which they came. TCOMPACT of a large stream needs one portion of
it after the other, and what it has decided of a portion is applied before the next is fetched.

Nodes that lie in an object store have threads, a line and room of their own: commands that read from disk never wait
for a store that is far or ill.

Whoever else needs nodes on the loop (clients that wait for a key, entries that expire) uses the same line (`fetch`).
Nodes that a scan will probably read next are read when a thread has nothing else to do, and are not pinned.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from tidelog import limits
from tidelog.engine.table import STREAM, Command, HandlerKind
from tidelog.errors import CommandError
from tidelog.ports import Loop, Worker
from tidelog.streams.cold import OPENED, NodesAway
from tidelog.streams.columns import Columns
from tidelog.streams.opening import Read, open_nodes
from tidelog.streams.sealed_node import SealedNode

if TYPE_CHECKING:
    from tidelog.engine.session import Session
    from tidelog.store.store import Store
    from tidelog.store.transaction import Transaction
    from tidelog.streams.compaction import Compaction

_UNBOUNDED: Final = frozenset(["TCOMPACT", "COPY", "MOVE", "RENAME", "RENAMENX"])
"""Commands on a whole stream, which cannot be asked for less: where they need too much, they read on the spot. TCOMPACT
does so inside of MULTI and scripts."""


class Fetch:
    """Nodes that are fetched, and for whom."""

    __slots__ = (
        "arguments", "compaction", "done", "error", "is_away", "is_pinned", "lane", "nodes", "size_bytes", "times",
    )  # fmt: skip

    def __init__(self, arguments: Sequence[bytes], done: Callable[[], None]) -> None:
        self.arguments = arguments
        """Of the command; empty: it is fetched for something else."""
        self.done = done
        """Is called when the nodes are open, or cannot be read."""
        self.nodes: dict[SealedNode, None] = {}
        """All that were needed so far."""
        self.size_bytes = 0
        """What they take, opened."""
        self.is_pinned = False
        self.lane: _Lane | None = None
        """Where it stands in line, or has something pinned."""
        self.is_away = False
        """It waits for nodes, or for its turn."""
        self.times = 0
        """How often it was fetched for."""
        self.error = ""
        """Why a node cannot be read."""
        self.compaction: Compaction | None = None
        """Of a command that needs one portion of a stream after the other."""

    def begin_portion(self, compaction: Compaction) -> None:
        """Of what was fetched for it, nothing is needed any more, and it was given up."""
        self.compaction = compaction
        self.nodes, self.size_bytes, self.times = {}, 0, 0

    def add(self, nodes: Iterable[SealedNode]) -> None:
        for node in nodes:
            if node not in self.nodes:
                self.nodes[node] = None
                self.size_bytes += node.opened_bytes


class _Job:
    """Nodes that a thread reads."""

    __slots__ = ("nodes", "read")

    def __init__(self, nodes: list[SealedNode]) -> None:
        self.nodes = nodes
        self.read: list[Read] = []

    def run(self) -> None:
        self.read = open_nodes(self.nodes)


class _Lane:
    """Threads that read from one kind of place, and those that wait for them."""

    __slots__ = ("ahead", "idle", "is_remote", "line", "pinned_bytes", "wanted")

    def __init__(self, workers: Sequence[Worker], *, is_remote: bool) -> None:
        self.idle = list(workers)
        self.is_remote = is_remote
        self.line: deque[Fetch] = deque()
        """Those that have nothing pinned yet."""
        self.pinned_bytes = 0
        self.wanted: dict[SealedNode, None] = {}
        """Nodes that are to be read, and by no thread yet."""
        self.ahead: deque[SealedNode] = deque()
        """Nodes that scans will read next."""

    @property
    def room_bytes(self) -> int:
        """What may be pinned at a time."""
        return limits.HISTORY_FETCHED_TOGETHER_BYTES_MAX if self.is_remote else limits.FETCHED_TOGETHER_BYTES_MAX


class Fetching:
    """Fetches cold nodes. For the loop's thread."""

    def __init__(
        self, store: Store, loop: Loop, workers: Sequence[Worker], remote_workers: Sequence[Worker] = ()
    ) -> None:
        """`workers`: threads; each has one job at a time. `remote_workers`: those for nodes in an object store; without
        any, the others read these too."""
        self._store = store
        self._loop = loop
        self._local = _Lane(workers, is_remote=False)
        self._remote = self._local
        self._lanes = [self._local]
        if remote_workers:
            self._remote = _Lane(remote_workers, is_remote=True)
            self._lanes.append(self._remote)
        self._begun: dict[Fetch, None] = {}
        """Those whose nodes are being read, first come first."""
        self._reading: set[SealedNode] = set()
        """Nodes that a thread reads."""
        self._is_closed = False
        self.fetched_count = 0
        """Nodes that were read ..."""
        self.fetched_bytes = 0
        """... and what lies of them on disk."""
        OPENED.fetch_ahead = self._look_ahead

    def close(self) -> None:
        """The store is going to be closed: nothing is fetched any more."""
        self._is_closed = True
        if OPENED.fetch_ahead == self._look_ahead:
            OPENED.fetch_ahead = None
        for fetch in [*(each for lane in self._lanes for each in lane.line), *self._begun]:
            self.give_up(fetch)

    # --- commands -----------------------------------------------------------------------------------------------

    def may_hold(self, session: Session, arguments: Sequence[bytes]) -> bool:
        """Whether a command that is about to run may be held, or has been held too often. `CommandError`: a node that
        it needs cannot be read."""
        fetch = session.fetch
        if fetch is None or fetch.arguments is not arguments:
            return True
        if fetch.error:
            raise CommandError(fetch.error)
        return fetch.times < limits.FETCHED_TIMES_MAX

    def compaction_of(self, session: Session, arguments: Sequence[bytes]) -> Compaction | None:
        """How far a command is that is run once more."""
        fetch = session.fetch
        return fetch.compaction if fetch is not None and fetch.arguments is arguments else None

    def hold(self, session: Session, row: Command, arguments: Sequence[bytes], away: NodesAway) -> bool:
        """Fetch nodes for a command, whose session is told when it can run (`end_staging`). False: it is to run at
        once, on the spot or with an error, as `may_hold` says."""
        fetch, nodes = self._fetch_of(session, arguments), away.nodes
        if away.compaction is not None:
            self.give_up(fetch)
            fetch.begin_portion(away.compaction)
        if not is_too_much(fetch, nodes):
            self.fetch(fetch, nodes)
            return True
        if row.name in _UNBOUNDED:
            fetch.times = limits.FETCHED_TIMES_MAX
        else:
            fetch.error = refusal_of(fetch, nodes)
        return False

    def _fetch_of(self, session: Session, arguments: Sequence[bytes]) -> Fetch:
        """That of a command, made if there is none."""
        fetch = session.fetch
        if fetch is None or fetch.arguments is not arguments:
            self.release(session)
            session.fetch = fetch = Fetch(arguments, session.end_staging)
        return fetch

    def release(self, session: Session) -> None:
        """A command that was held has run, or its client is gone."""
        fetch, session.fetch = session.fetch, None
        if fetch is not None:
            self.give_up(fetch)

    def is_held(self, session: Session) -> bool:
        """Whether a command that was just tried is held; if not, it has run."""
        if session.fetch is not None and session.fetch.is_away:
            return True
        self.release(session)
        return False

    def is_ready(self, session: Session, arguments: Sequence[bytes]) -> bool:
        """Whether EXEC can run now: the nodes that its commands need are open, as far as that can be known before.

        Each command on streams is asked what it would do now. What those before it change may make it need more.
        """
        fetch = session.fetch if session.fetch is not None and session.fetch.arguments is arguments else None
        if fetch is not None and (fetch.error or fetch.times >= limits.FETCHED_TIMES_MAX):
            return True  # the command that needs the node gets the error, and the others run
        nodes: list[SealedNode] = []
        transaction = self._store.begin(session.database)
        for row, words in session.queued or ():
            if row.group is STREAM and row.kind is not HandlerKind.CONNECTION:
                nodes += _needed(row, transaction, words)
        self._store.commit(transaction)
        if not nodes:
            return True
        fetch = self._fetch_of(session, arguments)
        fitting = []
        size = fetch.size_bytes
        for node in dict.fromkeys(nodes):
            if node not in fetch.nodes:
                size += node.opened_bytes
                if size <= limits.FETCHED_BYTES_MAX:
                    fitting.append(node)
        if not fitting:
            return True
        self.fetch(fetch, fitting)
        return False

    # --- fetching -----------------------------------------------------------------------------------------------

    def fetch(self, fetch: Fetch, nodes: Iterable[SealedNode]) -> None:
        """Fetch nodes, with all that were fetched for it before, and then call `done`, never inside of this call. They
        are pinned until it is given up."""
        fetch.times += 1
        fetch.is_away = True
        before = list(fetch.nodes) if fetch.is_pinned else []
        if fetch.is_pinned and fetch.lane is not None:
            fetch.lane.pinned_bytes -= fetch.size_bytes
        fetch.is_pinned = False
        fetch.add(nodes)
        is_far = any(OPENED.is_away(node) and self._lane_of(node) is self._remote for node in fetch.nodes)
        lane = fetch.lane = self._remote if is_far else self._local
        if fetch.times > 1:
            lane.line.appendleft(fetch)
        else:
            lane.line.append(fetch)
        self._go_on()
        OPENED.unpin(before)  # after they were pinned again, if there was room

    def _lane_of(self, node: SealedNode) -> _Lane:
        return self._remote if node.is_remote else self._local

    def fetch_once(self, nodes: Sequence[SealedNode], done: Callable[[str], None]) -> None:
        """Fetch nodes and call `done`, with why one of them cannot be read; they are pinned until it returns."""

        def finish() -> None:
            done(fetch.error)
            self.give_up(fetch)

        fetch = Fetch((), finish)
        self.fetch(fetch, nodes)

    def give_up(self, fetch: Fetch) -> None:
        """It is not needed any more: let go of what is pinned for it."""
        fetch.is_away = False
        lane = fetch.lane
        if fetch.is_pinned and lane is not None:
            fetch.is_pinned = False
            lane.pinned_bytes -= fetch.size_bytes
            OPENED.unpin(fetch.nodes)
            if self._begun.pop(fetch, False) is None and any(each.wanted for each in self._lanes):
                for node in fetch.nodes:
                    if not any(node in other.nodes for other in self._begun):
                        for each in self._lanes:
                            each.wanted.pop(node, None)
        elif lane is not None and fetch in lane.line:
            lane.line.remove(fetch)
        self._go_on()

    def _look_ahead(self, nodes: list[SealedNode]) -> None:
        """A scan will probably read these next."""
        for node in nodes:
            ahead = self._lane_of(node).ahead
            if node not in ahead:
                ahead.append(node)
            if len(ahead) > limits.AHEAD_NODES_MAX:
                ahead.popleft()
        self._go_on()

    def _go_on(self) -> None:
        """Give those their turn for which there is room, and idle threads something to read."""
        if self._is_closed:
            return
        for lane in self._lanes:
            line = lane.line
            while line and (not lane.pinned_bytes or lane.pinned_bytes + line[0].size_bytes <= lane.room_bytes):
                fetch = line.popleft()
                fetch.is_pinned = True
                lane.pinned_bytes += fetch.size_bytes
                OPENED.pin(fetch.nodes)
                self._begun[fetch] = None
                away = [node for node in fetch.nodes if OPENED.is_away(node)]
                for node in away:
                    if node not in self._reading and not any(node in each.wanted for each in self._lanes):
                        self._lane_of(node).wanted[node] = None
                if not away:  # another has fetched them meanwhile
                    self._loop.call_soon(self._finish_begun)
        for lane in self._lanes:
            while lane.idle:
                nodes = self._next_nodes(lane)
                if not nodes:
                    break
                job, worker = _Job(nodes), lane.idle.pop()
                self._reading.update(nodes)
                worker.submit(job.run, partial(self._finish, job, lane, worker))

    def _next_nodes(self, lane: _Lane) -> list[SealedNode]:
        """What a thread reads next, and no more of it than lets others have their turn."""
        found: list[SealedNode] = []
        size = 0
        while lane.wanted and size < limits.FETCHED_PIECE_BYTES:
            node = next(iter(lane.wanted))
            del lane.wanted[node]
            found.append(node)
            size += node.opened_bytes
        while not found and lane.ahead:
            node = lane.ahead.popleft()
            if OPENED.is_away(node) and node not in self._reading:
                found.append(node)
        return found

    def _finish(self, job: _Job, lane: _Lane, worker: Worker) -> None:
        """A thread has read some nodes."""
        if self._is_closed:
            return
        lane.idle.append(worker)
        self._reading.difference_update(job.nodes)
        self.fetched_count += len(job.nodes)
        self.fetched_bytes += sum(node.place.size for node in job.nodes if node.place is not None)
        opened: list[tuple[SealedNode, Columns]] = []
        for node, read in job.read:
            if isinstance(read, Columns):
                opened.append((node, read))
                continue
            waiting = [fetch for fetch in self._begun if node in fetch.nodes]
            if waiting:  # otherwise it was read ahead, or for one that is gone
                error = OPENED.explain(node, read)
                for fetch in waiting:
                    fetch.error = error
        OPENED.put_all(opened)
        self._finish_begun()
        self._go_on()

    def _finish_begun(self) -> None:
        """Tell those whose nodes are all read, in the order in which they came."""
        for fetch in list(self._begun):
            if fetch in self._begun and not any(self._is_coming(node) for node in fetch.nodes):
                del self._begun[fetch]
                fetch.is_away = False
                fetch.done()

    def _is_coming(self, node: SealedNode) -> bool:
        return node in self._reading or any(node in lane.wanted for lane in self._lanes)


def _size_with(fetch: Fetch, nodes: Iterable[SealedNode]) -> int:
    """What a fetch takes with some more nodes."""
    return fetch.size_bytes + sum(node.opened_bytes for node in nodes if node not in fetch.nodes)


def is_too_much(fetch: Fetch, nodes: Sequence[SealedNode]) -> bool:
    """Whether a command needs more than it may. One node alone is never too much."""
    is_one = len({*fetch.nodes, *nodes}) == 1
    return not is_one and _size_with(fetch, nodes) > limits.FETCHED_BYTES_MAX


def refusal_of(fetch: Fetch, nodes: Sequence[SealedNode]) -> str:
    """The reply to such a command."""
    needed, most = _size_with(fetch, nodes) // limits.MIB, limits.FETCHED_BYTES_MAX // limits.MIB
    return (
        f"ERR this needs {needed} MiB of entries that lie on disk, and a command gets at most {most} MiB of them: "
        f"ask for fewer entries, with a smaller COUNT"
    )


def _needed(row: Command, transaction: Transaction, arguments: Sequence[bytes]) -> Sequence[SealedNode]:
    """The nodes that a command would miss if it were run now. Handlers change nothing."""
    OPENED.fetches = True
    try:
        row.handler(transaction, arguments)
    except NodesAway as away:
        return away.nodes
    except Exception:  # it is met again, and told, when the command is run
        return ()
    finally:
        OPENED.fetches = False
    return ()
