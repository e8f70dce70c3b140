"""Which of several servers is taken: by what they, and Sentinels, say of themselves."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tidelog.address import ServerAddress
from tidelog.errors import ServerRefused
from tidelog.server_search import (
    Answer,
    FoundServer,
    NoAnswer,
    Place,
    RefusedCommand,
    ServerNotFound,
    ServerSearch,
    UnknownService,
    is_elsewhere,
)

A: Final = ("a", 1)
B: Final = ("b", 2)
C: Final = ("c", 3)
LIST: Final = ServerAddress("a", 1, password="secret", database=2, more_hosts=(B, C))
SENTINELS: Final = ServerAddress("x", 8, service="orders", sentinel_password="other", more_hosts=(("y", 9),))
GONE: Final = NoAnswer("connection refused")


def leader(*followers: Place, offset: int = 0) -> list[Any]:
    return [[b"master", offset, [[host.encode(), b"%d" % port, b"0"] for host, port in followers]], 5]


def follower(of: Place, state: bytes = b"connected") -> list[Any]:
    return [[b"slave", of[0].encode(), of[1], state, 0], 5]


def replica(place: Place, flags: bytes = b"slave") -> list[bytes]:
    return [b"name", b"?", b"ip", place[0].encode(), b"port", b"%d" % place[1], b"flags", flags]


class Fleet:
    """Servers that answer as they are told; who was asked is noted."""

    def __init__(self, **answers: Answer) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def find(self, search: ServerSearch) -> FoundServer:
        self.asked.clear()
        steps = search.steps()
        try:
            question = next(steps)
            while True:
                address = question.address
                self.asked.append(address.host)
                is_sentinel = question.commands[0][0] == "SENTINEL"
                assert address.password == ("other" if is_sentinel else search.address.password)
                assert not address.is_searched
                word = question.commands[0][1].split("-")[0] if is_sentinel else ""
                answer = self.answers.get(f"{address.host}_{word}" if word else address.host, GONE)
                assert isinstance(answer, NoAnswer) or len(answer) == len(question.commands)
                question = steps.send(answer)
        except StopIteration as end:
            found: FoundServer = end.value
            return found


# --- the leader of a list ---------------------------------------------------------------------------------------------


def test_a_leader_with_followers_ends_the_search() -> None:
    fleet = Fleet(a=follower(B), b=leader(A, C), c=follower(B))
    search = ServerSearch(LIST)
    assert fleet.find(search) == FoundServer("b", 2, is_leader=True)
    assert fleet.asked == ["a", "b"]
    fleet.find(search)
    assert fleet.asked == ["b"], "it is asked first the next time"


def test_one_that_came_back_does_not_lead_beside_the_one_that_has_followers() -> None:
    fleet = Fleet(a=leader(offset=900), b=leader(C, offset=10), c=follower(B))
    assert fleet.find(ServerSearch(LIST))[:2] == B


def test_of_leaders_without_followers_the_longest_history_counts() -> None:
    fleet = Fleet(a=leader(offset=5), b=leader(offset=7), c=leader(offset=7))
    assert fleet.find(ServerSearch(LIST))[:2] == B
    assert fleet.asked == ["a", "b", "c"]


def test_a_server_without_roles_leads_itself() -> None:
    fleet = Fleet(c=[RefusedCommand("ERR unknown command 'ROLE'"), 5])
    assert fleet.find(ServerSearch(LIST)) == FoundServer("c", 3, is_leader=True)


@pytest.mark.parametrize("code", ["LOADING", "MASTERDOWN"])
def test_one_that_cannot_answer_now_is_passed_over(code: str) -> None:
    loading = [leader(B)[0], RefusedCommand(f"{code} not now")]
    assert is_elsewhere(f"{code} not now")
    fleet = Fleet(a=loading, b=leader(), c=GONE)
    assert fleet.find(ServerSearch(LIST))[:2] == B


def test_a_reply_that_is_refused_for_other_reasons_is_an_answer() -> None:
    fleet = Fleet(a=[leader(B)[0], RefusedCommand("NOPERM this user has no permissions")])
    assert fleet.find(ServerSearch(LIST))[:2] == A


def test_what_was_asked_is_named_when_nobody_leads() -> None:
    fleet = Fleet(a=follower(("q", 7)), b=GONE, c=[leader()[0], RefusedCommand("LOADING a moment")])
    with pytest.raises(ServerNotFound) as caught:
        fleet.find(ServerSearch(LIST))
    assert str(caught.value) == "a:1: it follows q:7; b:2: connection refused; c:3: LOADING a moment"
    assert caught.value.has_answered
    with pytest.raises(ServerNotFound) as caught:
        Fleet().find(ServerSearch(LIST))
    assert not caught.value.has_answered


def test_a_wrong_password_is_told_only_if_nobody_else_leads() -> None:
    refusal = NoAnswer("invalid password", is_refused=True)
    assert Fleet(a=refusal, b=leader(C)).find(ServerSearch(LIST))[:2] == B
    with pytest.raises(ServerRefused, match=r"^b:2: invalid password$"):
        Fleet(b=refusal).find(ServerSearch(LIST))
    with pytest.raises(ServerRefused, match=r"^c:3: NOAUTH"):
        Fleet(c=[RefusedCommand("NOAUTH Authentication required."), RefusedCommand("NOAUTH")]).find(ServerSearch(LIST))


# --- followers of a list ----------------------------------------------------------------------------------------------


def test_followers_take_turns() -> None:
    fleet = Fleet(a=leader(B, C), b=follower(A), c=follower(A))
    search = ServerSearch(LIST, follower=1)
    assert [fleet.find(search)[:2] for _ in range(4)] == [B, C, B, B], "from b, from c, from a, and from b again"
    assert search.found == FoundServer("b", 2, is_leader=False)


def test_a_follower_that_lost_its_leader_is_none() -> None:
    fleet = Fleet(a=leader(C), b=follower(A, b"connect"), c=follower(A))
    assert fleet.find(ServerSearch(LIST, follower=1)) == FoundServer("c", 3, is_leader=False)
    fleet.answers["c"] = GONE
    assert fleet.find(ServerSearch(LIST, follower=1)) == FoundServer("a", 1, is_leader=True)
    fleet.answers["a"] = GONE
    with pytest.raises(ServerNotFound, match="b:2: it is not connected to a:1, which it follows"):
        fleet.find(ServerSearch(LIST, follower=1))


def test_without_followers_the_leader_that_has_some_counts() -> None:
    fleet = Fleet(a=leader(offset=9), b=leader(C), c=GONE)
    assert fleet.find(ServerSearch(LIST, follower=0)) == FoundServer("b", 2, is_leader=True)


# --- Sentinels --------------------------------------------------------------------------------------------------------


def test_the_master_that_sentinels_name_is_asked_whether_it_leads() -> None:
    fleet = Fleet(y_GET=[[b"a", b"1"]], a=leader())
    search = ServerSearch(SENTINELS)
    assert fleet.find(search) == FoundServer("a", 1, is_leader=True)
    assert fleet.asked == ["x", "y", "a"]
    fleet.find(search)
    assert fleet.asked == ["y", "a"], "the Sentinel that knew is asked first"


def test_another_sentinel_may_know_more() -> None:
    fleet = Fleet(x_GET=[[b"a", b"1"]], y_GET=[[b"b", b"2"]], a=follower(B), b=leader(A))
    assert fleet.find(ServerSearch(SENTINELS))[:2] == B
    fleet.answers["y_GET"] = [[b"a", b"1"]]
    with pytest.raises(ServerNotFound, match=r"^a:1: it is to lead, and still follows b:2$"):
        fleet.find(ServerSearch(SENTINELS))
    assert fleet.asked == ["x", "a", "y"], "a server is asked once"


@pytest.mark.parametrize("reply", [None, RefusedCommand("ERR No such master with that name")])
def test_a_service_that_nobody_knows(reply: Any) -> None:
    with pytest.raises(
        UnknownService, match=r"x:8: this Sentinel does not know the service 'orders'.*; y:9: connection"
    ) as caught:
        Fleet(x_GET=[reply]).find(ServerSearch(SENTINELS))
    assert not caught.value.has_answered, "nothing says that the name is right"
    with pytest.raises(ServerNotFound, match=r"x:8: this Sentinel does not know .*; a:1: connection") as found:
        Fleet(x_GET=[reply], y_GET=[[b"a", b"1"]]).find(ServerSearch(SENTINELS))
    assert found.type is ServerNotFound
    assert found.value.has_answered, "another Sentinel knows it"


def test_a_follower_that_sentinels_know() -> None:
    names = [replica(A, b"slave,s_down"), replica(B), replica(C)]
    fleet = Fleet(y_REPLICAS=[names], x_GET=[[b"a", b"1"]], b=follower(A, b"sync"), c=follower(A), a=leader())
    assert fleet.find(ServerSearch(SENTINELS, follower=0)) == FoundServer("c", 3, is_leader=False)
    assert fleet.asked == ["x", "y", "b", "c"]
    fleet.answers["c"] = GONE
    assert fleet.find(ServerSearch(SENTINELS, follower=0)) == FoundServer("a", 1, is_leader=True)
