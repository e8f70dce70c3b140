"""`tidelog channel ls`: channels, subscribers and lags."""

from __future__ import annotations

from tests.channels.servers import ChannelServer
from tests.cli.channel.running import at, fill
from tests.cli.command_line import run, run_on_terminal


def test_channels_and_how_far_each_subscriber_is(any_server: ChannelServer) -> None:
    fill(any_server, 3)
    run("channel", "sub", "orders", "other", "--no-follow", *at(any_server))
    run("channel", "pub", "alone", "1", "--expire", "3d", *at(any_server))
    outcome = run("channel", "ls", *at(any_server))
    assert (outcome.status, outcome.stderr) == (0, "")
    head, *rows = [line.split() for line in outcome.stdout.splitlines()]
    assert head == ["channel", "subscriber", "lag", "expires", "in"]
    assert [row[:3] for row in rows] == [["alone", "-", "-"], ["orders", "me", "3"], ["orders", "other", "0"]]
    assert rows[0][3:] in (["3", "d", "0", "h"], ["2", "d", "23", "h"])
    assert rows[1][3].startswith("29:")


def test_as_json(any_server: ChannelServer) -> None:
    fill(any_server, 3)
    run("channel", "pub", "alone", "1", *at(any_server))
    channel, orders, me = run("channel", "ls", "--json", *at(any_server)).objects
    assert (channel["kind"], channel["channel"], channel["clock"]) == ("channel", "alone", 1)
    assert 0 < orders.pop("expires_in_ms") <= 1_800_000
    assert orders == {"kind": "channel", "channel": "orders", "clock": 3}
    assert 0 < me.pop("expires_in_ms") <= 1_800_000
    assert me == {"kind": "subscriber", "channel": "orders", "subscriber": "me", "lag": 3}
    assert run("channel", "ls", "alone", "--json", *at(any_server)).objects[0]["channel"] == "alone"
    assert run("channel", "ls", "nothing", "--json", *at(any_server)) == (0, "", "")


def test_on_a_terminal(one_server: ChannelServer) -> None:
    fill(one_server, 1234)
    outcome = run_on_terminal("channel", "ls", *at(one_server))
    assert outcome.status == 0
    assert "1,234" in outcome.stdout
    assert "\x1b[" in outcome.stdout


def test_a_subscriber_that_is_no_longer_found_has_no_lag(one_server: ChannelServer) -> None:
    fill(one_server, 1)
    one_server.client.set("c.{orders}.clock", -5)  # behind the cursor: it began anew
    [_, me] = run("channel", "ls", "--json", *at(one_server)).objects
    assert (me["subscriber"], me["lag"]) == ("me", None)
    assert run("channel", "ls", *at(one_server)).stdout.splitlines()[1].split()[:3] == ["orders", "me", "-"]


def test_no_server_is_one_line() -> None:
    outcome = run("channel", "ls", "--url", "redis://127.0.0.1:1")
    assert (outcome.status, outcome.stdout) == (2, "")
    assert outcome.stderr.startswith("tidelog: no server answers at redis://127.0.0.1:1: ")
    assert run("channel", "ls", "a b").stderr.startswith("tidelog: 'a b' is not the name of a channel")
