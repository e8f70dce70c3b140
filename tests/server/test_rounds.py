"""Rounds: who is next, and when a turn is over."""

from __future__ import annotations

import pytest

from tidelog import limits
from tidelog.server.rounds import Rounds
from tidelog.testing.clock import SimulatedClock


class Client:
    """Has so many pieces to run, each of which takes so long."""

    def __init__(self, world: World, name: str, pieces: int, takes_us: int = 0) -> None:
        self._world = world
        self.name = name
        self.pieces = pieces
        self._takes_us = takes_us

    def take_go(self) -> None:
        self._world.went.append(self.name)
        self._world.clock.advance(self._takes_us)
        self.pieces -= 1
        if self.pieces:
            self._world.rounds.add(self, is_new=False)


class World:
    def __init__(self) -> None:
        self.clock = SimulatedClock()
        self.rounds = Rounds(self.clock.monotonic_us)
        self.went: list[str] = []

    def turn(self) -> str:
        """Who has a go in the next turn."""
        self.went.clear()
        self.rounds.begin_turn()
        self.rounds.go()
        return "".join(self.went)


def test_all_go_round_until_they_are_done() -> None:
    world = World()
    for name, pieces in (("a", 3), ("b", 1), ("c", 2)):
        world.rounds.add(Client(world, name, pieces), is_new=True)
    assert world.turn() == "abcaca"
    assert (len(world.rounds), world.turn()) == (0, "")


def test_a_turn_ends_when_its_time_is_over() -> None:
    world = World()
    for name in "abc":
        world.rounds.add(Client(world, name, 2, limits.TURN_US_MAX // 2), is_new=False)
    assert [world.turn() for _ in range(4)] == ["ab", "ca", "bc", ""]


def test_a_turn_ends_after_so_many_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TURN_PIECES_MAX", 3)
    world = World()
    for name in "ab":
        world.rounds.add(Client(world, name, 3), is_new=False)
    assert [world.turn() for _ in range(3)] == ["aba", "bab", ""]


def test_new_ones_go_first_and_one_old_one_goes_whatever_comes() -> None:
    world = World()
    for name in "ab":
        world.rounds.add(Client(world, name, 9, limits.TURN_US_MAX), is_new=False)
    world.rounds.add(Client(world, "x", 1), is_new=True)
    assert world.turn() == "xa"
    for name in "yz":
        world.rounds.add(Client(world, name, 1, limits.TURN_US_MAX), is_new=True)
    assert [world.turn() for _ in range(3)] == ["yb", "za", "b"]


def test_room_of_a_turn_is_shared_with_those_that_are_not_in_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TURN_PIECES_MAX", 2)
    world = World()
    assert [world.rounds.has_room() for _ in range(3)] == [True, True, False]
    world.rounds.begin_turn()
    assert world.rounds.has_room()
    world.clock.advance(limits.TURN_US_MAX)
    assert not world.rounds.has_room()
    assert world.rounds.is_late
    world.rounds.begin_turn()
    assert not world.rounds.is_late


def test_after_a_command_that_took_long_old_ones_wait_for_a_turn() -> None:
    world = World()
    for name in "ab":
        world.rounds.add(Client(world, name, 2), is_new=False)
    world.rounds.rest()
    world.rounds.add(Client(world, "x", 1), is_new=True)
    assert [world.turn() for _ in range(2)] == ["x", "abab"]


def test_old_ones_have_a_go_also_if_one_command_after_the_other_takes_long() -> None:
    world = World()
    world.rounds.add(Client(world, "a", 3, limits.TURN_US_MAX), is_new=False)
    went = []
    for _ in range(6):
        world.rounds.rest()
        went.append(world.turn())
    assert went == ["", "a", "", "a", "", "a"]
