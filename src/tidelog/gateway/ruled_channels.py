"""Channels that a file of rules configures: who may use which of them, and the webhooks that get their messages.

A password and a token come in the same header, so a call needs one of them: the token if the groups of its channel
demand one, and otherwise the password, if there is one.

    start   the file is read again on SIGHUP, and webhooks begin to send what is left to be sent
    stop    webhooks end the calls that are under way; then the caller closes the channels
"""

from __future__ import annotations

import time

from tidelog.channels.backend import Backend
from tidelog.channels.channels import Channels
from tidelog.channels.http import CallGate
from tidelog.channels.http.answer import Answer
from tidelog.channels.http.call import HttpCall
from tidelog.channels.names import is_name
from tidelog.channels.revocations import Revocations
from tidelog.channels.rules_file import ChannelRulesFile
from tidelog.channels.rules_policy import RulesPolicy
from tidelog.channels.webhooks.counters import WebhookCounters
from tidelog.channels.webhooks.runner import WebhookRunner
from tidelog.engine.password import Password
from tidelog.errors import InvalidChannel
from tidelog.gateway.channels import password_gate


class RuledChannels:
    """The policy of a file, and what it sets in motion."""

    def __init__(self, path: str, channels: Channels, backend: Backend) -> None:
        """`BadChannelRules`: the file cannot be used. `channels` are those of the backend."""
        self._file = ChannelRulesFile(path)
        self._runner = WebhookRunner(channels, backend, lambda: self._file.rules)
        revocations = Revocations(backend, now_s=time.time)
        self.policy = RulesPolicy(
            lambda: self._file.rules, revocations, now_s=time.time, before_use=self._runner.prepare
        )

    @property
    def webhooks(self) -> WebhookCounters:
        """For metrics."""
        return self._runner.counters

    def gate(self, password: Password) -> CallGate:
        """Asks for the password where the rules demand no token."""
        ask = password_gate(password)

        async def gate(call: HttpCall) -> Answer | None:
            return None if self._demands_token(call.names[0]) else await ask(call)

        return gate

    def _demands_token(self, channel: str) -> bool:
        if not is_name(channel):
            return False
        try:
            return bool(self._file.rules.match(channel).tokens)
        except InvalidChannel:
            return False

    def start(self) -> None:
        """In the loop that runs."""
        self._file.reload_on_signal()
        self._runner.start()

    async def aclose(self) -> None:
        await self._runner.aclose()
