"""Keys that prove tokens, in files. A key is bound to its algorithm when its file is read.

    HS256    a secret of at least 32 bytes: the content of the file, without one line end at its end
    RS256    an RSA public key of at least 2048 bits, in PEM; a certificate is fine, too
    ES256    a public key on the curve P-256, in PEM; a certificate is fine, too

The configuration says which algorithm a file is for, never the token, and the content must be of that kind: a public
key is no secret, so that nobody can sign with what everybody may know. Private keys are refused: a gateway only
checks.

A file is looked at again when tokens come, at most once a second, and read if it has changed. One that cannot be
understood (it may be half written) leaves the key from before in force. One that was removed takes its key with it: it
was withdrawn. Both are logged.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from tidelog import limits

_LOG: Final = logging.getLogger("tidelog.channels")

ALGORITHMS: Final = ("HS256", "RS256", "ES256")

ProvingKey = bytes | RSAPublicKey | EllipticCurvePublicKey


def proving_key(algorithm: str, content: bytes) -> ProvingKey:
    """The key in a file; `ValueError` says why it is none for this algorithm, and shows nothing of it."""
    if algorithm == "HS256":
        return _secret(content)
    if b"PRIVATE KEY-----" in content:
        raise ValueError("has a private key: give the public key, gateways only check tokens")
    try:
        if b"-----BEGIN CERTIFICATE-----" in content:
            key: object = x509.load_pem_x509_certificate(content).public_key()
        else:
            key = load_pem_public_key(content)
    except (ValueError, UnsupportedAlgorithm):
        raise ValueError("must have a public key or a certificate in PEM") from None
    if algorithm == "RS256":
        if not isinstance(key, RSAPublicKey) or key.key_size < limits.CHANNEL_TOKEN_RSA_BITS_MIN:
            raise ValueError(f"must have an RSA key of at least {limits.CHANNEL_TOKEN_RSA_BITS_MIN} bits for RS256")
        return key
    if algorithm == "ES256":
        if not isinstance(key, EllipticCurvePublicKey) or not isinstance(key.curve, SECP256R1):
            raise ValueError("must have a key on the curve P-256 for ES256")
        return key
    raise ValueError(f"is for {algorithm}, which there is not (there are {', '.join(ALGORITHMS)})")


def _secret(content: bytes) -> bytes:
    if b"-----BEGIN " in content or content.lstrip().startswith((b"ssh-", b"ecdsa-sha2-")):
        raise ValueError("has a key of another kind: HS256 needs a secret that only issuer and gateways know")
    secret = content.removesuffix(b"\n").removesuffix(b"\r")
    if len(secret) < limits.CHANNEL_TOKEN_SECRET_BYTES_MIN:
        raise ValueError(f"must have a secret of at least {limits.CHANNEL_TOKEN_SECRET_BYTES_MIN} bytes")
    return secret


def read_bounded(path: str) -> bytes:
    """The content of a small file; `ValueError` says why it cannot be read."""
    try:
        with open(path, "rb") as file:
            content = file.read(limits.CHANNEL_TOKEN_KEY_BYTES_MAX + 1)
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None
    if len(content) > limits.CHANNEL_TOKEN_KEY_BYTES_MAX:
        raise ValueError(f"has more than {limits.CHANNEL_TOKEN_KEY_BYTES_MAX} bytes")
    return content


class TokenKeyFile:
    """The key in one file, as it is now."""

    def __init__(self, path: str, algorithm: str) -> None:
        """`ValueError` if there is no such key."""
        self.path: Final = path
        self.algorithm: Final = algorithm
        self._looked_s = float("-inf")
        self._seen = _seen(path)
        self._key: ProvingKey | None = proving_key(algorithm, read_bounded(path))

    def key(self, now_s: Callable[[], float]) -> ProvingKey | None:
        """None: it was withdrawn. `now_s`: any clock that goes forward."""
        now = now_s()
        if now - self._looked_s >= limits.CHANNEL_TOKEN_KEYS_LOOK_S:
            self._looked_s = now
            seen = _seen(self.path)
            if seen != self._seen:
                self._seen = seen
                self._read_again(is_there=seen is not None)
        return self._key

    def _read_again(self, *, is_there: bool) -> None:
        if not is_there:
            self._key = None
            _LOG.warning("the key file %s was removed: tokens of its key are refused now", self.path)
            return
        try:
            self._key = proving_key(self.algorithm, read_bounded(self.path))
        except ValueError as problem:
            _LOG.error("the key file %s %s: the key from before stays in force", self.path, problem)
        else:
            _LOG.info("the key file %s was read again", self.path)


def _seen(path: str) -> tuple[int, int, int] | None:
    """What tells one content of a file from another; None: there is no such file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
