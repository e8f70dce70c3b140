"""Leases of webhooks: one holder at a time, and tokens that grow."""

from __future__ import annotations

from tests.channels.servers import SimulatedBackend, in_loop
from tidelog import limits
from tidelog.channels.webhooks.lease import WebhookLease


class Holder:
    """A gateway with a clock of its own."""

    def __init__(self, backend: SimulatedBackend, webhook: str = "hook") -> None:
        self.now_s = 0.0
        self.lease = WebhookLease(backend, "news", webhook, now_s=lambda: self.now_s)


@in_loop
async def test_one_holder_at_a_time(machine: SimulatedBackend) -> None:
    one, two = Holder(machine), Holder(machine)
    assert await one.lease.take(1000)
    assert one.lease.is_held
    assert not await two.lease.take(1000)
    assert not two.lease.is_held
    assert await Holder(machine, "other").lease.take(1000)
    assert await one.lease.take(1000)  # a call that was sent twice
    await two.lease.release()
    assert await one.lease.renew()
    await one.lease.release()
    assert await two.lease.take(1000)
    assert (one.lease.token, two.lease.token) == (1000, 1001)
    assert not await one.lease.renew()


@in_loop
async def test_a_holder_stops_before_another_can_begin(machine: SimulatedBackend) -> None:
    one, two = Holder(machine), Holder(machine)
    assert await one.lease.take(1000)
    one.now_s = (limits.WEBHOOK_LEASE_MS - limits.WEBHOOK_LEASE_MARGIN_MS) / 1000
    machine.advance(int(one.now_s * 1000))
    assert not one.lease.is_held
    assert not await two.lease.take(1000)
    machine.advance(limits.WEBHOOK_LEASE_MARGIN_MS + 1)
    assert await two.lease.take(1000)
    assert not await one.lease.renew()
    assert not one.lease.is_held


@in_loop
async def test_tokens_grow_even_if_the_backend_was_emptied(machine: SimulatedBackend) -> None:
    one, two = Holder(machine), Holder(machine)
    assert await one.lease.take(5000)
    machine.machine("FLUSHALL")
    assert await two.lease.take(5001)
    assert two.lease.token > one.lease.token
    assert not await one.lease.renew()
