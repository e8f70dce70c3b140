"""URLs of servers: nothing in them is passed over, and a password in one that is wrong is not shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from redis.cluster import RedisCluster

from benchmarks.peers import stop_peer
from tests.channels.replicas import with_replica
from tests.cli.command_line import invoke, run
from tests.cli.day_streams import DaysServer, line, text_of
from tests.days.days_of_events import MAY_MS
from tests.days.servers import Servers, start_two_nodes
from tidelog import limits
from tidelog.cli.server_link import ServerLink, find_address
from tidelog.errors import ClientError, ServerRefused, ServerUnreachable

__all__ = ["with_replica"]


def test_the_database_of_a_url_is_the_one_that_is_used(servers: Servers) -> None:
    days = DaysServer(servers, "redis")
    url = days.options[1]
    invoke("events", "put", "q", "j", "--url", f"{url}/3", stdin=text_of([line(MAY_MS)]))
    assert invoke("events", "tail", "q", "j", "--until-now", "--json", "--url", url).objects == []
    for options in (["--url", f"{url}/3"], ["--url", url, "--database", "3"], ["--url", f"{url}/3", "-n", "3"]):
        assert len(invoke("events", "tail", "q", "j", "--until-now", "--json", *options).objects) == 1
    days.redis.flushall()
    days.close()


def test_a_node_of_a_cluster_says_what_to_do_or_the_command_goes_where_the_key_is(tmp_path: Path) -> None:
    nodes = start_two_nodes(tmp_path)
    try:
        urls = [f"redis://127.0.0.1:{port}" for _, port in nodes]
        lines = text_of([line(MAY_MS)])
        put = {url: invoke("events", "put", "q", "j", "--url", url, stdin=lines) for url in urls}
        assert sorted(each.status for each in put.values()) == [0, 2], "one of them has the job set"
        [refused] = [url for url, each in put.items() if each.status]
        assert "this is a cluster: use --cluster" in put[refused].stderr
        for command in (
            ["events", "tail", "q", "j", "--until-now"],
            ["pipeline", "compress", "--older-than-days", "2"],
        ):
            outcome = run(*command, "--url", refused)
            assert (outcome.status, outcome.stderr.count("\n")) == (2, 1)
            assert "this is a cluster: use --cluster" in outcome.stderr
        assert invoke("events", "put", "q", "j", "--url", refused, "--cluster", stdin=lines).status == 0
        with RedisCluster(host="127.0.0.1", port=nodes[0][1]) as client:
            for job in ("compress", "expire", "other"):
                client.hset(f"tidelog:pipeline:{job}", mapping={"state": "done", "streams": 6, "ratio": 4.5})
                client.sadd("tidelog:pipeline:jobs", job)
        for url in urls:
            for more in ([], ["--cluster"]):
                outcome = invoke("pipeline", "status", "--url", url, *more, "--json")
                assert outcome.stderr == ""
                assert [told["job"] for told in outcome.objects] == ["compress", "expire", "other"]
        assert "6 compressed, 4.5 times smaller" in invoke("pipeline", "status", "--url", urls[0], "--cluster").stdout
    finally:
        for process, _ in nodes:
            stop_peer(process)


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


# --- several servers --------------------------------------------------------------------------------------------------


def test_the_link_is_to_the_one_that_leads(with_replica: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    leader, follower = with_replica
    with ServerLink(find_address(f"redis://127.0.0.1:1,127.0.0.1:{follower},127.0.0.1:{leader}/3", None)) as link:
        assert link.info("server")["tcp_port"] == str(leader)
        link.call(b"SET", b"key", b"in 3")
    with ServerLink(find_address(f"redis://127.0.0.1:{leader}", None)) as link:
        assert link.call(b"EXISTS", b"key") == 0
    monkeypatch.setattr(limits, "CLIENT_SEARCHES_MAX", 2)
    with pytest.raises(ServerUnreachable, match=rf":{follower}: it follows 127\.0\.0\.1:{leader}; 127\.0\.0\.1:1: "):
        ServerLink(find_address(f"redis://127.0.0.1:{follower},127.0.0.1:1", None))
    with pytest.raises(ServerRefused, match="does not let us in: 127"):
        ServerLink(find_address(f"redis://:wrong@127.0.0.1:{leader},127.0.0.1:1", None))


@pytest.mark.parametrize(
    "command",
    [
        ["stream", "ls"],
        ["events", "ls"],
        ["view", "ls"],
        ["pipeline", "status"],
        ["feed", "--until-now", "--since", "0"],
        ["feed", "--until-now", "--since", "0", "--from-followers"],
        ["channel", "ls"],
    ],
)
def test_commands_take_several_servers(servers: Servers, command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CLIENT_START_S_MAX", 0.1)
    url = f"redis://127.0.0.1:1,127.0.0.1:{servers.port('tidelog')}"
    outcome = invoke(*command, "--url", url, "--json")
    assert (outcome.status, outcome.stderr) == (0, "")
    outcome = invoke(*command, "--url", "redis://:hidden@127.0.0.1:1,127.0.0.1:2")
    assert outcome.status == 2
    assert "no server answers at redis://127.0.0.1:1,127.0.0.1:2: 127.0.0.1:1: " in outcome.stderr
    assert "hidden" not in outcome.stderr
