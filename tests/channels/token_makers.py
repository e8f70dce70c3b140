"""Makes keys and tokens for tests, byte by byte, so that wrong ones can be made as well as right ones."""

from __future__ import annotations

import base64
import hmac
import json
import tomllib
from functools import cache
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tidelog.channels.rules import ChannelRules, read_rules

NOW_S: Final = 1_800_000_000
SECRET: Final = b"a secret that only two parties know"
OTHER_SECRET: Final = b"another secret, of an earlier time, say"


@cache
def rsa_key(name: str = "first") -> rsa.RSAPrivateKey:
    del name  # a key for each
    return rsa.generate_private_key(65537, 2048)


@cache
def ec_key(name: str = "first") -> ec.EllipticCurvePrivateKey:
    del name
    return ec.generate_private_key(ec.SECP256R1())


def public_pem(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def signed(algorithm: str, key: Any, data: bytes) -> bytes:
    if algorithm == "HS256":
        return hmac.digest(key, data, "sha256")
    if algorithm == "RS256":
        made: bytes = key.sign(data, padding.PKCS1v15(), SHA256())
        return made
    if algorithm == "ES256":
        r, s = decode_dss_signature(key.sign(data, ec.ECDSA(SHA256())))
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")
    return b""


def token(
    algorithm: str, key: Any, claims: Any, *, header: dict[str, Any] | None = None, signs_as: str | None = None
) -> str:
    """`header`: more of it, or `alg` instead of the true one."""
    head = json.dumps({"typ": "JWT", "alg": algorithm, **(header or {})}).encode()
    body = claims if isinstance(claims, bytes) else json.dumps(claims).encode()
    text = f"{encoded(head)}.{encoded(body)}"
    return f"{text}.{encoded(signed(signs_as or algorithm, key, text.encode()))}"


KEYS: Final[dict[str, Any]] = {"HS256": lambda: SECRET, "RS256": rsa_key, "ES256": ec_key}
"""The key that signs, by algorithm."""

RULES: Final = """
[[channels]]
regex = 'chat-(?P<id>[0-9]+)'
expire = "30m"

[channels.jwt]
iss = ["https://issuer/", "https://other-issuer/"]
aud = ["https://chat/"]
clock-skew = "10s"

[channels.jwt.keys]
HS256 = ["secret", "other-secret"]
RS256 = ["rsa.pem"]
ES256 = ["ec.pem"]

[channels.jwt.claims]
room = "{id}"

[[channels]]
regex = 'open'
expire = "30m"
"""


def good_claims(**more: Any) -> dict[str, Any]:
    claims = {"iss": "https://issuer/", "aud": "https://chat/", "exp": NOW_S + 60, "room": "7", "jti": "t1"}
    return {name: value for name, value in {**claims, **more}.items() if value is not ...}


def write_keys(folder: Path) -> None:
    (folder / "secret").write_bytes(SECRET + b"\n")
    (folder / "other-secret").write_bytes(OTHER_SECRET)
    (folder / "rsa.pem").write_bytes(public_pem(rsa_key()))
    (folder / "ec.pem").write_bytes(public_pem(ec_key()))


def token_rules(folder: Path, text: str = RULES) -> ChannelRules:
    write_keys(folder)
    return read_rules(tomllib.loads(text)["channels"], "rules.toml", str(folder))
