"""What a group of channels demands of tokens: the table `jwt` of its configuration.

    [channels.jwt]
    iss = ["https://issuer.example.com/"]
    aud = ["https://chat.example.com/"]
    clock-skew = "30s"

    [channels.jwt.keys]
    RS256 = ["issuer.pem"]

    [channels.jwt.claims]
    chatroom = "{id}"

In the templates of claims, captures of the channel may be named as they are (`{id}`), or as in all other templates
(`{channel.id}`).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tidelog import limits
from tidelog.channels.settings_table import SettingsTable
from tidelog.channels.templates import TextTemplate, channel_names, channel_values
from tidelog.channels.token_keys import ALGORITHMS, TokenKeyFile

_RESERVED = frozenset({"iss", "aud", "exp", "nbf", "iat"})
"""Claims that have keys of their own, or whose meaning is fixed."""


@dataclass(frozen=True, slots=True)
class TokenRule:
    """All of it must hold of a token."""

    keys: Mapping[str, tuple[TokenKeyFile, ...]]
    """By algorithm: these algorithms and no other. Any one of an algorithm's keys may have signed."""
    issuers: frozenset[str]
    """One of them issued it; empty: whoever has a key may."""
    audiences: frozenset[str]
    """It is for one of them; empty: it is for nobody in particular, and names none."""
    claims: Mapping[str, TextTemplate]
    """By the name of the claim, what it has to be."""
    clock_skew_ms: int
    needs_expiry: bool
    """A token without `exp` is refused."""


class DemandedToken:
    """A rule, for one channel."""

    __slots__ = ("claims", "rule")

    def __init__(self, rule: TokenRule, channel: str, captures: Mapping[str, str | None]) -> None:
        values = channel_values(channel, captures)
        values |= {name: text for name, text in captures.items() if text is not None}
        self.rule = rule
        self.claims = {claim: template.fill(values) for claim, template in rule.claims.items()}
        """By the name of the claim, what it has to be; None: nothing is right, a capture took no part."""


def read_token_rule(table: SettingsTable, folder: str, captures: Collection[str]) -> TokenRule:
    """`folder`: where key files are, unless their paths are absolute."""
    keys = _read_keys(table, folder)
    claims: dict[str, TextTemplate] = {}
    claim_table = table.table("claims")
    if claim_table is not None:
        known = channel_names(captures) | frozenset(captures)
        for claim, text in claim_table.entries():
            if claim in _RESERVED:
                claim_table.refuse(claim, "is not compared with a template")
            if not isinstance(text, str) or not text:
                claim_table.refuse(claim, 'must be a text, such as "{id}" for a group (?P<id>...) of the regex')
            try:
                claims[claim] = TextTemplate(text, known)
            except ValueError as problem:
                claim_table.refuse(claim, str(problem))
    rule = TokenRule(
        keys,
        frozenset(table.texts("iss", ())),
        frozenset(table.texts("aud", ())),
        claims,
        table.duration_ms("clock-skew", 0, 0, limits.CHANNEL_CLOCK_SKEW_MS_MAX),
        not table.is_on("allow-no-exp", False),
    )
    table.finish()
    return rule


def _read_keys(table: SettingsTable, folder: str) -> dict[str, tuple[TokenKeyFile, ...]]:
    key_table = table.table("keys")
    if key_table is None:
        table.refuse("keys", f"is missing: name key files by algorithm ({', '.join(ALGORITHMS)})")
    keys: dict[str, tuple[TokenKeyFile, ...]] = {}
    for algorithm in ALGORITHMS:
        paths = key_table.texts(algorithm, (), count_max=limits.CHANNEL_TOKEN_KEYS_MAX)
        files = []
        for path in paths:
            try:
                files.append(TokenKeyFile(os.path.join(folder, path), algorithm))
            except ValueError as problem:
                key_table.refuse(algorithm, f"the file {path} {problem}")
        if files:
            keys[algorithm] = tuple(files)
    key_table.finish()
    if not keys:
        table.refuse("keys", f"must name at least one key file ({', '.join(ALGORITHMS)})")
    return keys
