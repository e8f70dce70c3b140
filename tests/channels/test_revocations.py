"""Revoked tokens: all gateways see them, for as long as they would have been valid."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.channels.servers import ChannelServer, SimulatedBackend, in_loop
from tests.channels.token_makers import NOW_S, SECRET, good_claims, token, token_rules
from tidelog import limits
from tidelog.address import ServerAddress
from tidelog.channels import ChannelPolicy, backend_at
from tidelog.channels.revocations import Revocations, revocation_key
from tidelog.channels.rules_policy import RulesPolicy
from tidelog.errors import BadChannelInput, ChannelTokenRevoked, InvalidChannel, ServerUnreachable


class Clock:
    def __init__(self) -> None:
        self.now_s = float(NOW_S)

    def __call__(self) -> float:
        return self.now_s


@in_loop
async def test_a_revocation_counts_at_all_gateways(server: ChannelServer, tmp_path: Path) -> None:
    rules = token_rules(tmp_path)
    address = ServerAddress.parse(server.url, takes_settings=True, takes_cluster=True)
    clock = Clock()
    backends = [backend_at(address), backend_at(address)]
    try:
        here, there = (RulesPolicy(lambda: rules, Revocations(each, now_s=clock), now_s=clock) for each in backends)
        policy: ChannelPolicy = here
        bad, good = (token("HS256", SECRET, good_claims(jti=jti)) for jti in ("bad", "good"))
        assert (await policy.grant("chat-7", bad)).expire_ms == 30 * 60_000
        await there.grant("chat-7", bad)
        await here.revoke_token("bad", NOW_S + 60)
        await here.revoke_token("bad", NOW_S + 60)
        with pytest.raises(ChannelTokenRevoked):
            await here.grant("chat-7", bad)
        await there.grant("chat-7", bad)  # it may be remembered for so long
        clock.now_s += limits.CHANNEL_REVOCATION_STALE_S
        with pytest.raises(ChannelTokenRevoked):
            await there.grant("chat-7", bad)
        await there.grant("chat-7", good)
        with pytest.raises(InvalidChannel):
            await here.grant("elsewhere", good)
        await here.grant("open", None)
        left_ms = server.client.pttl(revocation_key("bad"))
        assert 0 < left_ms - 60_000 <= limits.CHANNEL_CLOCK_SKEW_MS_MAX
        assert "bad" not in revocation_key("bad")[-64:]
    finally:
        for backend in backends:
            await backend.aclose()


@in_loop
async def test_a_revocation_lives_until_its_token_has_expired(machine: SimulatedBackend) -> None:
    clock = Clock()
    revocations = Revocations(machine, now_s=clock)
    await revocations.revoke("t1", NOW_S + 60)
    await revocations.revoke("t1", NOW_S + 10)  # a time is only ever put off
    await revocations.revoke("t2", NOW_S - limits.CHANNEL_CLOCK_SKEW_MS_MAX / 1000 - 1)
    assert not await revocations.is_revoked("t2")
    await revocations.revoke("t3", None)
    await revocations.revoke("t3", NOW_S + 10)
    machine.advance(59_000 + limits.CHANNEL_CLOCK_SKEW_MS_MAX)
    assert await Revocations(machine, now_s=clock).is_revoked("t1")
    machine.advance(2_000)
    assert not await Revocations(machine, now_s=clock).is_revoked("t1")
    assert await Revocations(machine, now_s=clock).is_revoked("t3")
    assert await revocations.is_revoked("t1")


@in_loop
async def test_what_is_remembered_is_bounded(machine: SimulatedBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CHANNEL_REVOCATIONS_KEPT_MAX", 10)
    revocations = Revocations(machine, now_s=Clock())
    await revocations.revoke("t0", NOW_S + 60)
    for number in range(50):
        assert await revocations.is_revoked(f"t{number}") is (number == 0)
    assert len(revocations._known) == 10
    assert await revocations.is_revoked("t0")


@in_loop
async def test_without_a_backend_no_token_with_an_id_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CHANNEL_ATTEMPTS_MORE", 0)
    rules, backend = token_rules(tmp_path), backend_at(ServerAddress(port=1))
    try:
        policy = RulesPolicy(lambda: rules, Revocations(backend, now_s=Clock()), now_s=Clock())
        with pytest.raises(ServerUnreachable):
            await policy.grant("chat-7", token("HS256", SECRET, good_claims()))
        await policy.grant("chat-7", token("HS256", SECRET, good_claims(jti=...)))
    finally:
        await backend.aclose()


@pytest.mark.parametrize(("jti", "exp"), [("", 1), ("x" * 513, 1), ("x", -1), ("x", 2**60)])
@in_loop
async def test_what_cannot_be_revoked(jti: str, exp: int, machine: SimulatedBackend) -> None:
    with pytest.raises(BadChannelInput):
        await Revocations(machine, now_s=Clock()).revoke(jti, exp)
