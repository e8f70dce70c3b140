"""Which of several servers to talk to: the one that leads, or one that follows it.

An address may name several servers, or the Sentinels that watch them (`address.py`). Whenever a connection is made they
are asked anew, so that a client goes where the leader is now:

    ROLE      master, with followers     it leads, and no other is asked
              master, without            it may have failed and come back, while another leads now: all are asked, and
                                         of those that say that they lead, the one with the longest history counts
              slave, connected           it follows a leader, and has what that one has, a little later
              slave, otherwise           it has lost its leader
    DBSIZE    an error                   it cannot answer now: it is loading, or has nothing to show without its leader

Sentinels are asked for the master of a service by its name. (In their list of masters, one that has failed stands until
its failover is over.) What they name is asked for its role as well, because a failover may be under way.

This module only decides. `ServerSearch.steps` yields questions and is sent what came of them, so that clients for
threads, clients for asyncio and the plain sockets of the command line share it.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from tidelog.address import ServerAddress, shown_place
from tidelog.errors import ServerRefused, ServerUnreachable

Place: TypeAlias = tuple[str, int]
"""A host and a port."""

_STANDING: Final = (("ROLE",), ("DBSIZE",))
_NOT_NOW: Final = ("READONLY", "MASTERDOWN", "LOADING", "UNBLOCKED")
_NOT_LET_IN: Final = ("NOAUTH", "WRONGPASS")
_DOWN: Final = (b"s_down", b"o_down", b"disconnected")


def is_elsewhere(error: str) -> bool:
    """Whether an error, with its code in front, says that another server may answer, or this one later."""
    return error.partition(" ")[0] in _NOT_NOW


class ServerNotFound(ServerUnreachable):
    """None of several servers can be used now; the message names all that were asked."""

    def __init__(self, message: str, *, has_answered: bool) -> None:
        super().__init__(message)
        self.has_answered = has_answered
        """Some did answer: they are the right ones, and perhaps one of them will lead soon."""


class UnknownService(ServerNotFound):
    """The Sentinels that answer watch no service of this name: it is wrong, or not there yet."""


class FoundServer(NamedTuple):
    """The server to talk to."""

    host: str
    port: int
    is_leader: bool


# --- questions and answers --------------------------------------------------------------------------------------------


class Question(NamedTuple):
    """Commands for one server, which are sent together on a connection of their own."""

    address: ServerAddress
    """Of one server, with the login that it wants."""
    commands: Sequence[Sequence[str]]


class RefusedCommand(NamedTuple):
    """An error in the place of a reply."""

    text: str
    """With its code, if it still has one."""


class NoAnswer(NamedTuple):
    """There was no reply at all."""

    reason: str
    is_refused: bool = False
    """It does not let us in."""


Answer: TypeAlias = Sequence[Any] | NoAnswer
"""One reply a command, as in RESP2."""
Steps: TypeAlias = Generator[Question, Answer, FoundServer]


@dataclass(frozen=True, slots=True)
class _Standing:
    """What a server says of itself."""

    place: Place
    is_leader: bool
    follower_count: int = 0
    offset: int = 0
    """How long its history is, if it leads."""
    leader: str = ""
    """Whom it follows ..."""
    is_linked: bool = False
    """... and whether it is connected to that one."""


def _standing(place: Place, role: Any) -> _Standing:
    if isinstance(role, RefusedCommand) or not role:
        return _Standing(place, is_leader=True)  # a server that knows of no roles leads itself
    if role[0] == b"master":
        return _Standing(place, is_leader=True, follower_count=len(role[2]), offset=int(role[1]))
    _, host, port, state, *_ = role
    return _Standing(
        place, is_leader=False, leader=shown_place(host.decode(), int(port)), is_linked=state == b"connected"
    )


# --- searching --------------------------------------------------------------------------------------------------------


class ServerSearch:
    """Finds the server of an address, as often as it is asked to. Threads may share it."""

    def __init__(self, address: ServerAddress, *, follower: int | None = None) -> None:
        """`follower`: one that follows will do, and is better; where among them to begin. None: the leader."""
        self.address = address
        self._turn = follower
        self.found: FoundServer | None = None
        """The last time."""
        self._answered: Place | None = None
        """Who told, the last time: the server or a Sentinel. It is asked first."""

    def steps(self) -> Steps:
        """One search; `ServerNotFound`, or `ServerRefused` if a password is wrong."""
        asking = _Asking(self.address)
        found: _Standing | None = None
        if self._turn is not None:
            places = self.address.hosts
            if self.address.service is not None:
                places = yield from self._replicas(asking)
            turn, self._turn = self._turn, self._turn + 1
            at = turn % max(1, len(places))
            found = yield from self._follower(asking, [*places[at:], *places[:at]])
        elif self.address.service is None:
            found = yield from self._leader(asking, self._in_order())
        if found is None and self.address.service is not None:
            found = yield from self._master(asking)
        if found is None:
            raise asking.failure()
        if self.address.service is None:
            self._answered = found.place
        self.found = FoundServer(*found.place, found.is_leader)
        return self.found

    def _in_order(self) -> list[Place]:
        """All hosts; the one that knew the last time comes first."""
        return sorted(self.address.hosts, key=lambda place: place != self._answered)

    @staticmethod
    def _leader(asking: _Asking, places: Sequence[Place]) -> Generator[Question, Answer, _Standing | None]:
        best: _Standing | None = None
        for place in places:
            standing = yield from asking.server(place)
            if standing is None:
                continue
            if not standing.is_leader:
                asking.note(place, f"it follows {standing.leader}")
            elif standing.follower_count:
                return standing
            elif best is None or standing.offset > best.offset:
                best = standing
        return best

    @staticmethod
    def _follower(asking: _Asking, places: Sequence[Place]) -> Generator[Question, Answer, _Standing | None]:
        """One that follows; if there is none, the leader if it is among them."""
        best: _Standing | None = None
        for place in places:
            standing = yield from asking.server(place)
            if standing is None:
                continue
            if not standing.is_leader:
                if standing.is_linked:
                    return standing
                asking.note(place, f"it is not connected to {standing.leader}, which it follows")
            elif best is None or (standing.follower_count, standing.offset) > (best.follower_count, best.offset):
                best = standing
        return best

    # --- by Sentinels -------------------------------------------------------------------------------------------------

    def _master(self, asking: _Asking) -> Generator[Question, Answer, _Standing | None]:
        assert self.address.service is not None
        seen: set[Place] = set()
        for sentinel in self._in_order():
            reply = yield from asking.sentinel(sentinel, "GET-MASTER-ADDR-BY-NAME", self.address.service)
            if reply is None:
                continue
            place = reply[0].decode(), int(reply[1])
            if place in seen:
                continue
            seen.add(place)
            standing = yield from asking.server(place)
            if standing is not None and standing.is_leader:
                self._answered = sentinel
                return standing
            if standing is not None:
                asking.note(place, f"it is to lead, and still follows {standing.leader}")
        return None

    def _replicas(self, asking: _Asking) -> Generator[Question, Answer, tuple[Place, ...]]:
        """Those that a Sentinel knows and that are up."""
        assert self.address.service is not None
        for sentinel in self._in_order():
            reply = yield from asking.sentinel(sentinel, "REPLICAS", self.address.service)
            if reply is not None:
                facts = [dict(zip(each[::2], each[1::2], strict=True)) for each in reply]
                up = [each for each in facts if not any(word in each[b"flags"] for word in _DOWN)]
                return tuple((each[b"ip"].decode(), int(each[b"port"])) for each in up)
        return ()


class _Asking:
    """The questions of one search, and the problems that there were."""

    def __init__(self, address: ServerAddress) -> None:
        self._address = address
        self._problems: dict[str, None] = {}
        """Each once, in order."""
        self._refusal: str | None = None
        self._has_answered = False
        self._is_service_unknown = False
        """To a Sentinel."""

    def note(self, place: Place, problem: str) -> None:
        self._problems[f"{shown_place(*place)}: {problem}"] = None

    def failure(self) -> ServerNotFound | ServerRefused:
        if self._refusal is not None:
            return ServerRefused(self._refusal)
        kind = UnknownService if self._is_service_unknown and not self._has_answered else ServerNotFound
        return kind("; ".join(self._problems), has_answered=self._has_answered)

    def server(self, place: Place) -> Generator[Question, Answer, _Standing | None]:
        """What a server says of itself; None: it cannot be used now."""
        replies = yield from self._ask(place, Question(self._address.server_at(*place), _STANDING))
        if replies is None:
            return None
        self._has_answered = True
        role, size = replies
        if isinstance(size, RefusedCommand) and is_elsewhere(size.text):
            self.note(place, size.text)
            return None
        return _standing(place, role)

    def sentinel(self, place: Place, *words: str) -> Generator[Question, Answer, Sequence[Any] | None]:
        """What a Sentinel replies; None: it does not know."""
        question = Question(self._address.sentinel_at(*place), [("SENTINEL", *words)])
        replies = yield from self._ask(place, question)
        if replies is None:
            return None
        [reply] = replies
        if reply is None or isinstance(reply, RefusedCommand):
            why = "" if reply is None else f" ({reply.text})"
            self.note(place, f"this Sentinel does not know the service {self._address.service!r}{why}")
            self._is_service_unknown = True
            return None
        self._has_answered = True
        found: Sequence[Any] = reply
        return found

    def _ask(self, place: Place, question: Question) -> Generator[Question, Answer, Sequence[Any] | None]:
        answer = yield question
        if not isinstance(answer, NoAnswer):
            errors = [reply.text for reply in answer if isinstance(reply, RefusedCommand)]
            if errors and errors[0].startswith(_NOT_LET_IN):
                answer = NoAnswer(errors[0], is_refused=True)
        if isinstance(answer, NoAnswer):
            self.note(place, answer.reason)
            if answer.is_refused:
                self._refusal = f"{shown_place(*place)}: {answer.reason}"
            return None
        return answer
