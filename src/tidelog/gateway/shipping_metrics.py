"""What /metrics shows of the copy in an object store: the numbers of INFO shipping."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from tidelog.gateway.sample import Sample, label
from tidelog.server.shipping import ShippingFacts, ShippingState


def shipping_samples(facts: ShippingFacts | None) -> Iterator[Sample]:
    """Numbers of one name follow each other; none, if nothing is shipped."""
    yield Sample("tidelog_shipping_enabled", "gauge", "1: a copy is kept in an object store.", facts is not None)
    if facts is None:
        return
    for state in get_args(ShippingState):
        is_it = state == facts.state
        yield Sample("tidelog_shipping_state", "gauge", "1: that of shipping.", is_it, f'{{state="{label(state)}"}}')
    lag = "How old the oldest change is that a restore from the copy would lack."
    yield Sample("tidelog_shipping_lag_seconds", "gauge", lag, facts.lag_us / 1e6)
    yield Sample("tidelog_shipping_manifest", "gauge", "The number of the newest manifest.", facts.manifest)
    ts = "The last transaction that a restore from the copy would have."
    yield Sample("tidelog_shipping_ts", "gauge", ts, facts.shipped_ts)
    yield Sample("tidelog_shipping_rounds_total", "counter", "Rounds of shipping.", facts.rounds)
    yield Sample("tidelog_shipping_failures_total", "counter", "Calls that failed.", facts.failures)
    yield Sample("tidelog_shipping_round_seconds", "gauge", "What the last round took.", facts.last_round_us / 1e6)
    yield Sample("tidelog_shipping_objects_total", "counter", "Objects that were put.", facts.objects_put)
    yield Sample("tidelog_shipping_bytes_total", "counter", "Bytes that were put.", facts.bytes_put)
    left = "What is still to be shipped of a snapshot."
    yield Sample("tidelog_shipping_snapshot_bytes_left", "gauge", left, facts.snapshot_bytes_left)
    yield Sample("tidelog_shipping_going_objects", "gauge", "Objects announced to be deleted.", facts.going)
    failures = "Attempts to delete what is needed no more that failed."
    yield Sample("tidelog_shipping_upkeep_failures_total", "counter", failures, facts.upkeep_failures)
