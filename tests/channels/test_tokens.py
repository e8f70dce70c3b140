"""Tokens: what is accepted, and that nothing is that was not issued for the channel."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import random
from pathlib import Path
from typing import Any

import pytest

from tests.channels.servers import in_loop
from tests.channels.token_makers import (
    KEYS,
    NOW_S,
    OTHER_SECRET,
    RULES,
    SECRET,
    ec_key,
    encoded,
    good_claims,
    public_pem,
    rsa_key,
    token,
    token_rules,
)
from tidelog.channels.rules import ChannelRules
from tidelog.channels.tokens import TokenChecker, bearer_token, read_token
from tidelog.errors import (
    ChannelError,
    ChannelTokenInvalid,
    ChannelTokenMissing,
    ChannelTokenRefused,
    ChannelTokenRevoked,
)

ALGORITHMS = list(KEYS)


@pytest.fixture
def rules(tmp_path: Path) -> ChannelRules:
    return token_rules(tmp_path)


def verdict(
    rules: ChannelRules, text: str | None, channel: str = "chat-7", now_s: float = NOW_S
) -> type[Exception] | None:
    """The error for a token; None: it is accepted."""
    checker = TokenChecker(None, now_s=lambda: now_s)
    try:
        asyncio.run(checker.check(text, rules.match(channel).tokens))
    except ChannelError as error:
        return type(error)
    return None


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_token_that_was_issued_is_accepted(algorithm: str, rules: ChannelRules) -> None:
    issued = token(algorithm, KEYS[algorithm](), good_claims())
    assert verdict(rules, issued) is None
    assert verdict(rules, issued, "chat-8") is ChannelTokenRefused
    assert verdict(rules, None) is ChannelTokenMissing
    assert verdict(rules, "") is ChannelTokenMissing
    assert verdict(rules, None, "open") is None
    assert verdict(rules, "whatever", "open") is None


def test_each_of_several_keys_may_have_signed(rules: ChannelRules) -> None:
    assert verdict(rules, token("HS256", OTHER_SECRET, good_claims())) is None


@pytest.mark.parametrize(
    ("claims", "error"),
    [
        ({"exp": NOW_S - 9}, None),
        ({"exp": NOW_S - 10}, ChannelTokenInvalid),
        ({"exp": ...}, ChannelTokenInvalid),
        ({"exp": None}, ChannelTokenInvalid),
        ({"exp": str(NOW_S + 60)}, ChannelTokenInvalid),
        ({"exp": True}, ChannelTokenInvalid),
        ({"exp": 10**400}, ChannelTokenInvalid),
        ({"exp": NOW_S + 0.5}, None),
        ({"nbf": NOW_S + 10}, None),
        ({"nbf": NOW_S + 11}, ChannelTokenInvalid),
        ({"nbf": "now"}, ChannelTokenInvalid),
        ({"iss": "https://other-issuer/"}, None),
        ({"iss": "https://issuer"}, ChannelTokenInvalid),
        ({"iss": ["https://issuer/"]}, ChannelTokenInvalid),
        ({"iss": ...}, ChannelTokenInvalid),
        ({"aud": ["x", "https://chat/"]}, None),
        ({"aud": []}, ChannelTokenInvalid),
        ({"aud": ["x"]}, ChannelTokenInvalid),
        ({"aud": ["https://chat/", 3]}, ChannelTokenInvalid),
        ({"aud": ...}, ChannelTokenInvalid),
        ({"room": 7}, None),
        ({"room": ["6", "7"]}, None),
        ({"room": 7.0}, ChannelTokenRefused),
        ({"room": "07"}, ChannelTokenRefused),
        ({"room": "{id}"}, ChannelTokenRefused),
        ({"room": ["6"]}, ChannelTokenRefused),
        ({"room": {"7": 1}}, ChannelTokenRefused),
        ({"room": True}, ChannelTokenRefused),
        ({"room": None}, ChannelTokenRefused),
        ({"room": ...}, ChannelTokenRefused),
    ],
)  # fmt: skip
def test_claims(claims: dict[str, Any], error: type[Exception] | None, rules: ChannelRules) -> None:
    assert verdict(rules, token("HS256", SECRET, good_claims(**claims))) is error


def test_a_capture_that_took_no_part_is_matched_by_nothing(tmp_path: Path) -> None:
    rules = token_rules(tmp_path, RULES.replace("chat-(?P<id>[0-9]+)", "chat-7(?P<id>[0-9]+)?"))
    for room in ("", "None", "7", None):
        assert verdict(rules, token("HS256", SECRET, good_claims(room=room))) is ChannelTokenRefused


def test_all_rules_must_be_satisfied(tmp_path: Path) -> None:
    second = "[[channels]]\nregex = '.+'\nexpire = '1m'\n[channels.jwt]\nallow-no-exp = true\n"
    rules = token_rules(tmp_path, f"{RULES}{second}[channels.jwt.keys]\nES256 = ['ec.pem']\n")
    no_audience = good_claims(aud=..., exp=...)
    assert verdict(rules, token("ES256", ec_key(), no_audience), "other") is None
    assert verdict(rules, token("ES256", ec_key(), good_claims()), "other") is ChannelTokenInvalid  # for another
    assert verdict(rules, token("HS256", SECRET, no_audience), "other") is ChannelTokenInvalid
    assert verdict(rules, token("HS256", SECRET, good_claims())) is ChannelTokenInvalid
    assert verdict(rules, token("ES256", ec_key(), good_claims())) is ChannelTokenInvalid


# --- what was not issued ----------------------------------------------------------------------------------------------


def forged(claims: dict[str, Any]) -> list[str]:
    """Tokens that somebody made who has no key, or another one; `claims`: what would be accepted."""
    rsa_pem, ec_pem = public_pem(rsa_key()), public_pem(ec_key())
    made = [
        token("none", b"", claims),
        token("None", b"", claims),
        token("", b"", claims),
        token("HS256", SECRET, claims, header={"alg": "none"}),
        token("HS256", SECRET, claims, header={"alg": "hs256"}),
        token("HS256", SECRET, claims, header={"alg": "HS512"}),
        token("HS256", SECRET, claims, header={"alg": ["HS256"]}),
        token("HS256", SECRET, claims, header={"alg": None}),
        token("HS256", SECRET, claims, header={"crit": ["exp"]}),
        token("HS256", SECRET, claims, header={"b64": False}),
        # Key confusion: what everybody knows, as a secret.
        *(token("HS256", key, claims) for key in (rsa_pem, rsa_pem.rstrip(), ec_pem, ec_pem.rstrip(), b"", b"x" * 32)),
        *(token("HS256", SECRET, claims, header={"alg": name}) for name in ("RS256", "ES256")),
        *(token("RS256", rsa_key(), claims, header={"alg": name}) for name in ("HS256", "ES256", "PS256", "RS512")),
        *(token("ES256", ec_key(), claims, header={"alg": name}) for name in ("HS256", "RS256", "ES256K")),
        # Keys of somebody else, also where the token brings its own.
        token("RS256", rsa_key("other"), claims),
        token("ES256", ec_key("other"), claims),
        token("RS256", rsa_key("other"), claims, header={"jwk": {"kty": "RSA"}, "jku": "https://x/", "kid": "/x"}),
        # Not objects, or not the JSON of one.
        *(token("HS256", SECRET, body) for body in (b"", b"[]", b"3", b"{", b"\xff", b'{"exp":NaN}', b"[" * 3000)),
        token("HS256", SECRET, json.dumps(claims)[:-1].encode() + b',"room":"7"}'),
        token("HS256", SECRET, good_claims(padding="x" * 9000)),
        "", "a", "..", "a.b", "a.b.c.d", "....", "e30.e30.", "e30.e30.e30", "\x00.\x00.\x00", "é.é.é", "x" * 100_000,
    ]  # fmt: skip
    good = token("HS256", SECRET, claims)
    head, payload, proof = good.split(".")
    made += [f"{good}=", f" {good}", f"{good} ", f"{good}.", f"{head}.{payload}.", f"{head}.{payload}", good + "\n"]
    made += [f"{head}..{proof}", f".{payload}.{proof}", good.swapcase(), f"Bearer {good}", f"{good},{good}"]
    other = encoded(json.dumps(good_claims(room="8")).encode())
    return [*made, f"{head}.{other}.{proof}"]


def test_nothing_forged_is_accepted(rules: ChannelRules) -> None:
    accepted = [text for text in forged(good_claims()) if verdict(rules, text) is None]
    assert accepted == []


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("seed", [1])
def test_no_changed_token_is_accepted(algorithm: str, seed: int, rules: ChannelRules) -> None:
    """Every bit of a token is flipped; then random letters, cuts, repeats and swaps of parts."""
    issued = token(algorithm, KEYS[algorithm](), good_claims())
    other = token(algorithm, KEYS[algorithm](), good_claims(room="8", jti="t2"))
    chance = random.Random(seed)
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.=+/ "
    changed = set()
    for index, letter in enumerate(issued):
        changed |= {issued[:index] + chr(ord(letter) ^ 1 << bit) + issued[index + 1 :] for bit in range(8)}
    for index in range(len(issued) - 4, len(issued)):  # spare bits are in the last letters
        changed |= {issued[:index] + letter + issued[index + 1 :] for letter in letters}
    for _ in range(300):
        at, to = sorted(chance.sample(range(len(issued)), 2))
        changed |= {
            issued[:at] + issued[to:],
            issued[:to] + issued[at:],
            issued[:at] + chance.choice(letters) + issued[at:],
        }
    mixed = [
        mine if chance.random() < 0.5 else its for mine, its in zip(issued.split("."), other.split("."), strict=True)
    ]
    changed |= {".".join(mixed), ".".join(issued.split(".")[:2] + other.split(".")[2:])}
    changed -= {issued, other}
    checker = TokenChecker(None, now_s=lambda: NOW_S)
    demanded = rules.match("chat-7").tokens

    async def accepted() -> list[str]:
        found = []
        for text in sorted(changed):
            try:
                await checker.check(text, demanded)
            except ChannelError:
                continue
            found.append(text)
        return found

    assert len(changed) > 2000
    assert asyncio.run(accepted()) == []
    assert verdict(rules, issued) is None


def test_bits_that_count_for_nothing_are_refused(rules: ChannelRules) -> None:
    issued = token("HS256", SECRET, good_claims())
    proof = issued.rpartition(".")[2]
    same = [
        issued[:-1] + letter
        for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
        if base64.urlsafe_b64decode(proof[:-1] + letter + "=") == base64.urlsafe_b64decode(proof + "=")
    ]
    assert len(same) == 4
    assert [verdict(rules, text) for text in same].count(None) == 1
    for text in set(same) - {issued}:
        with pytest.raises(ValueError, match="it has spare bits"):
            read_token(text)  # whatever the library makes of it


def test_reasons_are_for_operators_only(rules: ChannelRules, caplog: pytest.LogCaptureFixture) -> None:
    expired = token("HS256", SECRET, good_claims(exp=1))
    with caplog.at_level(logging.DEBUG, "tidelog.channels"):
        assert verdict(rules, expired) is ChannelTokenInvalid
    assert "its time is over" in caplog.text
    assert expired not in caplog.text
    assert SECRET.decode() not in caplog.text


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ("Bearer abc", "abc"),
        ("bearer  abc ", "abc"),
        ("Basic abc", None),
        ("Bearer", None),
        ("Bearer a b", None),
        ("", None),
        (None, None),
    ],
)
def test_bearer_tokens(header: str | None, found: str | None) -> None:
    assert bearer_token(header) == found


@in_loop
async def test_a_checker_without_demands_looks_at_nothing() -> None:
    await TokenChecker(None, now_s=lambda: 0).check("nonsense", ())


def test_each_refusal_has_its_status_over_http() -> None:
    answers = pytest.importorskip("tidelog.channels.http.answer", reason="there is no HTTP edge")
    for error, status in (
        (ChannelTokenMissing, 401), (ChannelTokenInvalid, 401), (ChannelTokenRevoked, 401), (ChannelTokenRefused, 403)
    ):  # fmt: skip
        assert answers.answer_to(error("x")).status == status
