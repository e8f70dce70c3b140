"""Which channels there are: groups by configuration, each with a regular expression for whole names.

    [[channels]]
    regex = 'chat-room-(?P<id>[0-9]+)'
    expire = "30m"

    [channels.jwt]             what tokens must be (`token_rule.py`)
    [[channels.webhooks]]      where messages are sent (`webhooks/webhook_rule.py`)

A channel may be in several groups. It keeps its messages for the longest time of them, a token must satisfy all that
demand one, and all their webhooks get its messages. A channel in no group cannot be used.

Rules never change: a new configuration is a new `ChannelRules`, made whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tidelog import limits
from tidelog.channels.names import ChannelKeys
from tidelog.channels.patterns import ChannelPattern
from tidelog.channels.settings_table import SettingsTable
from tidelog.channels.token_rule import DemandedToken, TokenRule, read_token_rule
from tidelog.channels.webhooks.webhook_rule import WebhookRule, WebhookUse, read_webhook_rule
from tidelog.errors import BadChannelRules, InvalidChannel


@dataclass(frozen=True, slots=True)
class ChannelRule:
    """A group of channels."""

    where: str
    """The file and the table, for errors."""
    pattern: ChannelPattern
    expire_ms: int
    token: TokenRule | None
    webhooks: tuple[WebhookRule, ...]


class ChannelMatch(NamedTuple):
    """What holds for one channel."""

    channel: str
    expire_ms: int
    tokens: tuple[DemandedToken, ...]
    """One token must satisfy all of them; none: no token is needed."""
    webhooks: tuple[WebhookUse, ...]


class ChannelRules:
    """A configuration of channels."""

    def __init__(self, rules: tuple[ChannelRule, ...]) -> None:
        self._rules = rules
        self._kept: dict[str, ChannelMatch | None] = {}
        """The last channels that were asked for, the oldest first; None: it is in no group."""
        self.has_webhooks = any(rule.webhooks for rule in rules)
        _check_webhooks(self)

    @classmethod
    def for_all(cls, expire_ms: int = limits.CHANNEL_EXPIRE_MS_DEFAULT) -> ChannelRules:
        """Every channel, without tokens and webhooks: what holds where nothing is configured."""
        return cls((ChannelRule("(nothing is configured)", ChannelPattern(".+"), expire_ms, None, ()),))

    def __iter__(self) -> Iterator[ChannelRule]:
        return iter(self._rules)

    def match(self, channel: str) -> ChannelMatch:
        """What holds for a channel; `InvalidChannel` if it is in no group, or cannot be a channel's name."""
        try:
            found = self._kept[channel]
        except KeyError:
            found = self._match(channel)
            if len(self._kept) >= limits.CHANNEL_MATCHES_KEPT_MAX:
                del self._kept[next(iter(self._kept))]
            self._kept[channel] = found
        if found is None:
            raise InvalidChannel(f"the channel {channel} is in no group of channels that is configured")
        return found

    def _match(self, channel: str) -> ChannelMatch | None:
        ChannelKeys(channel)  # no other names are matched: the cost of an expression is known for these
        found: list[tuple[ChannelRule, Mapping[str, str | None]]] = []
        for rule in self._rules:
            captures = rule.pattern.match(channel)
            if captures is not None:
                found.append((rule, captures))
        if not found:
            return None
        expire_ms = max(rule.expire_ms for rule, _ in found)
        tokens = [DemandedToken(rule.token, channel, captures) for rule, captures in found if rule.token is not None]
        uses = [
            WebhookUse(webhook, channel, expire_ms, captures) for rule, captures in found for webhook in rule.webhooks
        ]
        return ChannelMatch(channel, expire_ms, tuple(tokens), tuple(uses))


def read_rules(values: Any, where: str, folder: str) -> ChannelRules:
    """The rules of a configuration.

    values     what TOML has as `channels`
    where      the file, for errors
    folder     where files are that it names, unless their paths are absolute
    """
    table = SettingsTable(where, {"channels": values})
    rules = []
    for each in table.tables("channels", limits.CHANNEL_RULES_MAX):
        try:
            pattern = ChannelPattern(each.text("regex", length_max=limits.CHANNEL_PATTERN_LENGTH_MAX))
        except ValueError as problem:
            each.refuse("regex", str(problem))
        expire_ms = each.duration_ms("expire", None, limits.CHANNEL_EXPIRE_MS_MIN, limits.CHANNEL_EXPIRE_MS_MAX)
        tokens = each.table("jwt")
        token = None if tokens is None else read_token_rule(tokens, folder, pattern.captures)
        webhooks = [
            read_webhook_rule(webhook, folder, pattern.captures)
            for webhook in each.tables("webhooks", limits.WEBHOOKS_PER_GROUP_MAX)
        ]
        each.finish()
        rules.append(ChannelRule(each.where, pattern, expire_ms, token, tuple(webhooks)))
    if not rules:
        table.refuse("channels", "must have at least one group: without any, no channel could be used")
    return ChannelRules(tuple(rules))


def _check_webhooks(rules: ChannelRules) -> None:
    """Names are unique, since a cursor belongs to a name; dead letters have a channel, and do not run in a circle."""
    by_name: dict[str, WebhookRule] = {}
    for rule in rules:
        for webhook in rule.webhooks:
            if webhook.name in by_name:
                raise BadChannelRules(
                    f"{webhook.where}.name: {by_name[webhook.name].where} has the name {webhook.name}, too"
                )
            by_name[webhook.name] = webhook
    for webhook in by_name.values():
        following, seen = {webhook.name}, set[str]()
        while following:
            name = following.pop()
            seen.add(name)
            found = by_name[name]
            if found.dead_letter is None:
                continue
            try:
                uses = rules.match(found.dead_letter).webhooks
            except InvalidChannel:
                raise BadChannelRules(
                    f"{found.where}.dead-letter: the channel {found.dead_letter} is in no group: add one with its name"
                ) from None
            if any(use.webhook.name == webhook.name for use in uses):
                raise BadChannelRules(
                    f"{webhook.where}.dead-letter: what this webhook cannot send would come back to it; take a channel "
                    "whose webhooks do not lead here"
                )
            following |= {use.webhook.name for use in uses} - seen
