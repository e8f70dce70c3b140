"""What sorted sets have of Redis 7.2; the rest is compared with a real Redis."""

from __future__ import annotations

import pytest

from tests.commands.running import Commands


@pytest.fixture
def run() -> Commands:
    made = Commands()
    made("ZADD", "z", 1, "a", "2.5", "b", 7, "c")
    return made


def test_a_rank_with_its_score(run: Commands) -> None:
    run.protocol = 3
    assert run("ZRANK", "z", "b", "WITHSCORE") == [1, 2.5]
    assert run("zrank", "z", "c", "withscore") == [2, 7.0]
    assert run("ZREVRANK", "z", "c", "WITHSCORE") == [0, 7.0]
    assert run("ZRANK", "z", "c") == 2
    run.protocol = 2
    assert run("ZREVRANK", "z", "a", "WITHSCORE") == [2, b"1"]


def test_what_is_not_there_has_none(run: Commands) -> None:
    for key, member in (("z", "none"), ("none", "a")):
        assert run("ZRANK", key, member, "WITHSCORE") is None
        assert run("ZRANK", key, member) is None


@pytest.mark.parametrize("name", ["ZRANK", "ZREVRANK"])
def test_what_is_refused(run: Commands, name: str) -> None:
    assert run.refused(name, "z", "a", "WITHSCORES") == "ERR syntax error"
    wrong = f"ERR wrong number of arguments for '{name.lower()}' command"
    assert run.refused(name, "z", "a", "WITHSCORE", "x") == wrong
