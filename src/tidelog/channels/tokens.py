"""Tokens (JWT) that clients show for a channel: who issued them, for whom, until when, and for which channel.

PyJWT checks the signature. All else is checked here, since time comes through the constructor and since a token is
taken more strictly than libraries do:

- The configuration says which algorithms there are, and which keys each has. The token's header only chooses among
  them; `none` is not among them, and a key never serves two algorithms (`token_keys.py`).
- There is one way to write a token: base64url without padding and without spare bits, no name twice in an object.
- Extensions that a token declares critical (`crit`) are not understood, so it is refused.

A token must satisfy every rule that demands one. An error tells a client what it may know: that there is no token,
that it is not valid (whatever the reason), that it was revoked, or that it is for another channel. The reason is
logged, for operators (at level debug), without the token.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from jwt import PyJWS
from jwt.exceptions import PyJWTError

from tidelog import limits
from tidelog.channels.revocations import Revocations
from tidelog.channels.token_rule import DemandedToken, TokenRule
from tidelog.errors import ChannelTokenInvalid, ChannelTokenMissing, ChannelTokenRefused, ChannelTokenRevoked

_LOG: Final = logging.getLogger("tidelog.channels")
_JWS: Final = PyJWS()
_PART: Final = re.compile(r"[0-9A-Za-z_-]+", re.ASCII)
_BEARER: Final = re.compile(r"bearer +([^ ]+) *", re.IGNORECASE | re.ASCII)


def bearer_token(authorization: str | None) -> str | None:
    """The token of a header `Authorization: Bearer <token>`; None if there is none."""
    found = _BEARER.fullmatch(authorization or "")
    return None if found is None else found[1]


class ReadToken(NamedTuple):
    """A token of the right form, of which nothing is proven yet."""

    text: str
    algorithm: str
    claims: dict[str, Any]


class TokenChecker:
    """Checks tokens for channels."""

    def __init__(self, revocations: Revocations | None, *, now_s: Callable[[], float]) -> None:
        """`revocations`: None: no token is ever revoked. `now_s`: unix time."""
        self._revocations = revocations
        self._now_s = now_s

    async def check(self, text: str | None, demanded: Sequence[DemandedToken]) -> None:
        """Return if a token satisfies all rules.

        ChannelTokenMissing     there is none
        ChannelTokenInvalid     it was not issued for this service, or its time is over
        ChannelTokenRevoked     it was revoked
        ChannelTokenRefused     it is for another channel
        """
        if not demanded:
            return
        if not text:
            raise ChannelTokenMissing("this channel needs a token: send it as Authorization: Bearer <token>")
        try:
            token = read_token(text)
            for each in demanded:
                self._check_rule(token, each.rule)
        except ValueError as problem:
            _LOG.debug("a token was refused: %s", problem)
            raise ChannelTokenInvalid("the token is not valid: get a new one") from None
        await self._check_revoked(token)
        if not all(_is_for_channel(token.claims, each) for each in demanded):
            raise ChannelTokenRefused("the token is not for this channel")

    def _check_rule(self, token: ReadToken, rule: TokenRule) -> None:
        self._check_signature(token, rule)
        claims = token.claims
        now, skew_s = self._now_s(), rule.clock_skew_ms / 1000
        expires = _time(claims, "exp")
        if expires is None and rule.needs_expiry:
            raise ValueError("it has no exp")
        if expires is not None and now >= expires + skew_s:
            raise ValueError("its time is over")
        begins = _time(claims, "nbf")
        if begins is not None and now < begins - skew_s:
            raise ValueError("its time has not come")
        if rule.issuers and not (isinstance(claims.get("iss"), str) and claims["iss"] in rule.issuers):
            raise ValueError("it has another issuer")
        _check_audience(claims, rule)

    def _check_signature(self, token: ReadToken, rule: TokenRule) -> None:
        for file in rule.keys.get(token.algorithm, ()):
            key = file.key(self._now_s)
            if key is None:
                continue
            try:
                _JWS.decode(token.text, key, algorithms=[file.algorithm])
                return
            except PyJWTError:
                continue  # another key may have signed it
        raise ValueError("no key of its algorithm has signed it")

    async def _check_revoked(self, token: ReadToken) -> None:
        token_id = token.claims.get("jti")
        if token_id is None or self._revocations is None:
            return
        if not isinstance(token_id, str) or not 0 < len(token_id) <= limits.CHANNEL_TOKEN_ID_LENGTH_MAX:
            raise ChannelTokenInvalid("the token is not valid: get a new one")
        if await self._revocations.is_revoked(token_id):
            raise ChannelTokenRevoked("the token was revoked: get a new one")


def read_token(text: str) -> ReadToken:
    """The parts of a token; `ValueError` if it is not written as one."""
    if len(text) > limits.CHANNEL_TOKEN_BYTES_MAX:
        raise ValueError("it is too long")
    parts = text.split(".")
    if len(parts) != 3:
        raise ValueError("it does not have three parts")
    head, payload, _ = map(_decoded, parts)
    header = _object(head)
    if "crit" in header or "b64" in header:
        raise ValueError("it needs extensions")
    algorithm = header.get("alg")
    if not isinstance(algorithm, str):
        raise ValueError("it names no algorithm")
    return ReadToken(text, algorithm, _object(payload))


def _decoded(part: str) -> bytes:
    """Base64url as JWT has it. Spare bits must be 0: else several texts would be one token."""
    if _PART.fullmatch(part) is None:
        raise ValueError("it is not base64url")
    try:
        data = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except binascii.Error:
        raise ValueError("it is not base64url") from None
    if base64.urlsafe_b64encode(data).rstrip(b"=") != part.encode():
        raise ValueError("it has spare bits")
    return data


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data.decode(), object_pairs_hook=_without_twins, parse_constant=_refused)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("it is not of JSON objects")
    return value


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Of two members with one name, issuer and checker might each take another."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("it has a name twice")
    return found


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _time(claims: dict[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        if name in claims:
            raise ValueError(f"its {name} is no time")
        return None
    if type(value) not in (int, float) or not -(2**53) <= value <= 2**53:
        raise ValueError(f"its {name} is no time")
    return float(value)


def _check_audience(claims: dict[str, Any], rule: TokenRule) -> None:
    """Without audiences in the rule, a token that names one is for somebody else (RFC 7519, section 4.1.3)."""
    named = claims.get("aud")
    if named is None and not rule.audiences:
        return
    names = [named] if isinstance(named, str) else named
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("it names no audience")
    if not rule.audiences.intersection(names):
        raise ValueError("it is for another audience")


def _is_for_channel(claims: dict[str, Any], demanded: DemandedToken) -> bool:
    return all(_is_claimed(claims.get(name), text) for name, text in demanded.claims.items())


def _is_claimed(claim: Any, wanted: str | None) -> bool:
    """A text or a whole number must be what is wanted; of a list, one of its members."""
    if wanted is None:
        return False
    members = claim if isinstance(claim, list) else [claim]
    return any(
        (type(each) is int and str(each) == wanted) or (type(each) is str and each == wanted) for each in members
    )
