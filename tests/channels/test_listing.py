"""The list of channels and subscribers."""

from __future__ import annotations

import pytest

from tests.channels.servers import ChannelServer, SimulatedBackend, in_loop
from tests.channels.test_channels import numbered
from tidelog import limits
from tidelog.channels import BadChannelInput, Channels, ListedSubscriber


async def listed(channels: Channels, channel: str | None = None) -> tuple[dict[str, dict[str, int | None]], int]:
    """Lags by channel and subscriber, from all pages; and how many pages there were."""
    found: dict[str, dict[str, int | None]] = {}
    cursor: str | None = None
    pages = 0
    while True:
        page = await channels.list_page(cursor, channel=channel)
        pages += 1
        for each in page.channels:
            found.setdefault(each.channel, {}).update({row.subscriber: row.lag for row in each.subscribers})
        cursor = page.cursor
        if cursor is None:
            return found, pages


@in_loop
async def test_channels_and_their_subscribers(server: ChannelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CHANNEL_SCAN_KEYS", 10)
    monkeypatch.setattr(limits, "CHANNEL_SCANS_MAX", 3)
    expected: dict[str, dict[str, int | None]] = {}
    async with server.channels() as channels:
        assert await listed(channels) == ({}, 1) or server.is_cluster
        for number in range(12):
            name = f"ch{number}"
            count = number % 4
            for subscriber in range(count):
                await channels.subscribe(name, f"s{subscriber}")
                await channels.publish_several(name, numbered(*range(10 * subscriber, 10 * subscriber + 5)))
            await channels.publish(name, numbered(1000)[0])
            expected[name] = {f"s{subscriber}": 5 * (count - subscriber) + 1 for subscriber in range(count)}
        for key in ("c.{}.clock", "c.{a b}.clock", "c.{a}.x", "another"):
            server.client.set(key, 1)
        found, pages = await listed(channels)
        assert found == expected
        assert pages > 3
        assert (await listed(channels, "ch3"))[0] == {"ch3": expected["ch3"]}
        assert (await listed(channels, "none"))[0] == {}


@in_loop
async def test_a_page_of_a_few_keys(server: ChannelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CHANNEL_LISTED_DEFAULT", 1)
    monkeypatch.setattr(limits, "CHANNEL_SCAN_KEYS", 1)
    async with server.channels() as channels:
        for number in range(30):
            await channels.subscribe(f"ch{number}", "s")
        found, pages = await listed(channels)
        assert found == {f"ch{number}": {"s": 0} for number in range(30)}
        assert pages > 10


@in_loop
async def test_what_is_no_longer_whole(machine: SimulatedBackend) -> None:
    async with Channels(machine) as channels:
        await channels.subscribe("a", "lost", expire_ms=5000)
        machine.machine("DEL", "c.{a}.clock")
        await channels.subscribe("b", "ahead", expire_ms=5000)
        machine.machine("SET", "c.{b}.r.ahead", 7)
        machine.machine("SET", "c.{b}.r.odd", "x", "PX", 10)
        found = (await channels.list_page()).channels
        assert [(each.channel, each.clock, each.expires_in_ms) for each in found] == [("a", None, 0), ("b", 0, 5000)]
        assert found[0].subscribers == [ListedSubscriber("lost", None, 5000)]
        assert found[1].subscribers == [ListedSubscriber("ahead", None, 0), ListedSubscriber("odd", None, 10)]


@pytest.mark.parametrize("cursor", ["", "x", "0", "1-", "-1-0", "0-1x", f"0-{2**64}", "0-" + "9" * 30])
@in_loop
async def test_a_cursor_that_is_none_is_refused(cursor: str, machine: SimulatedBackend) -> None:
    async with Channels(machine) as channels:
        with pytest.raises(BadChannelInput, match="is not the cursor of a page of channels"):
            await channels.list_page(cursor)
