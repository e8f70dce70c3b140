"""`tidelog channel rm`: the server forgets a subscriber."""

from __future__ import annotations

from tests.channels.servers import ChannelServer
from tests.cli.channel.running import at, fill
from tests.cli.command_line import run


def test_a_subscriber_is_removed_once(any_server: ChannelServer) -> None:
    fill(any_server, 3)
    assert run("channel", "rm", "orders", "me", *at(any_server)) == (0, "me is no longer a subscriber of orders\n", "")
    assert run("channel", "rm", "orders", "me", *at(any_server)) == (0, "orders has no subscriber me\n", "")
    outcome = run("channel", "rm", "orders", "me", "--json", *at(any_server))
    assert outcome.objects == [{"kind": "removed", "channel": "orders", "subscriber": "me", "was_there": False}]
    assert "new subscriber" in run("channel", "sub", "orders", "me", "--no-follow", *at(any_server)).stderr


def test_what_cannot_be_is_one_line() -> None:
    for arguments, says in (
        (("a b", "me"), "is not the name of a channel"),
        (("orders", "a b"), "is not the name of a subscriber"),
        (("orders", "webhook-x"), "belong to webhooks"),
        (("orders", "me"), "no server answers at"),
    ):
        outcome = run("channel", "rm", *arguments, "--url", "redis://127.0.0.1:1")
        assert (outcome.status, outcome.stdout) == (2, "")
        assert says in outcome.stderr
        assert outcome.stderr.count("\n") == 1
