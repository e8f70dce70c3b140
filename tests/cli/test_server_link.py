"""URLs of servers: nothing in them is passed over, and a password in one that is wrong is not shown."""

from __future__ import annotations

import pytest

from tests.cli.command_line import invoke, run
from tests.cli.day_streams import DaysServer, line, text_of
from tests.days.days_of_events import MAY_MS
from tests.days.servers import Servers
from tidelog.cli.server_link import find_address
from tidelog.errors import ClientError


def test_the_database_of_a_url_is_the_one_that_is_used(servers: Servers) -> None:
    days = DaysServer(servers, "redis")
    url = days.options[1]
    run("events", "put", "q", "j", "--url", f"{url}/3", stdin=text_of([line(MAY_MS)]))
    assert run("events", "tail", "q", "j", "--until-now", "--json", "--url", url).objects == []
    for options in (["--url", f"{url}/3"], ["--url", url, "--database", "3"], ["--url", f"{url}/3", "-n", "3"]):
        assert len(run("events", "tail", "q", "j", "--until-now", "--json", *options).objects) == 1
    days.redis.flushall()
    days.close()


def test_an_option_that_contradicts_the_url_is_refused() -> None:
    assert find_address("redis://h/2", None, 0).database == 2
    with pytest.raises(ClientError, match="it names database 2, but the option says 1"):
        find_address("redis://h/2", None, 1)


@pytest.mark.parametrize("command", [["feed"], ["events", "ls"], ["stream", "ls"], ["view", "ls"]])
def test_a_url_that_is_none_is_refused_without_its_password(command: list[str]) -> None:
    outcome = invoke(*command, "--url", "redis://:hidden@h:99999")
    assert outcome.status == 2
    assert "is not the URL of a server" in outcome.stderr
    assert "hid" not in outcome.stderr
