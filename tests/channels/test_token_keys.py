"""Key files: what may be in them, and what becomes of one that changes."""

from __future__ import annotations

import datetime
import logging
import os
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import NameOID

from tests.channels.token_makers import OTHER_SECRET, SECRET, ec_key, public_pem, rsa_key
from tidelog.channels.token_keys import TokenKeyFile, proving_key


def certificate() -> bytes:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "issuer")])
    begun = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(rsa_key().public_key())
    made = made.serial_number(1).not_valid_before(begun).not_valid_after(begun + datetime.timedelta(days=9))
    return made.sign(rsa_key(), SHA256()).public_bytes(Encoding.PEM)


def test_keys_that_are_fine() -> None:
    assert proving_key("HS256", SECRET + b"\r\n") == SECRET
    assert proving_key("RS256", public_pem(rsa_key())) == rsa_key().public_key()
    assert proving_key("RS256", certificate()) == rsa_key().public_key()
    assert proving_key("ES256", public_pem(ec_key())) == ec_key().public_key()


def other_keys() -> list[tuple[str, bytes, str]]:
    edwards = ed25519.Ed25519PrivateKey.generate().public_key()
    private = rsa_key().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return [
        ("HS256", b"s" * 31, "at least 32 bytes"),
        ("HS256", public_pem(rsa_key()), "a key of another kind"),
        ("HS256", certificate(), "a key of another kind"),
        ("HS256", b"ssh-rsa AAAA" + b"x" * 40, "a key of another kind"),
        ("RS256", SECRET, "a public key or a certificate in PEM"),
        ("RS256", public_pem(ec_key()), "an RSA key of at least 2048 bits"),
        ("RS256", public_pem(rsa.generate_private_key(65537, 1024)), "an RSA key of at least 2048 bits"),
        ("RS256", private, "has a private key"),
        ("RS256", edwards.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo), "an RSA key"),
        ("ES256", public_pem(rsa_key()), "on the curve P-256"),
        ("ES256", public_pem(ec.generate_private_key(ec.SECP384R1())), "on the curve P-256"),
        ("none", SECRET, "must have a public key"),
    ]


def test_keys_of_another_kind_are_refused() -> None:
    for algorithm, content, problem in other_keys():
        with pytest.raises(ValueError, match=problem) as caught:
            proving_key(algorithm, content)
        assert SECRET.decode() not in str(caught.value)


def test_a_file_is_read_again_when_it_has_changed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, now_s = tmp_path / "secret", [0.0]
    path.write_bytes(SECRET)
    file = TokenKeyFile(str(path), "HS256")

    def key() -> object:
        now_s[0] += 0.6
        return file.key(lambda: now_s[0])

    assert key() == SECRET
    path.write_bytes(OTHER_SECRET)
    assert key() == SECRET  # it was looked at a moment ago
    assert key() == OTHER_SECRET
    with caplog.at_level(logging.WARNING, "tidelog.channels"):
        path.write_bytes(b"short")
        assert [key(), key()][1] == OTHER_SECRET
        assert "at least 32 bytes: the key from before stays in force" in caplog.text
        path.unlink()
        assert [key(), key()][1] is None
        assert "was removed" in caplog.text
        replacement = tmp_path / "new"
        replacement.write_bytes(SECRET)
        os.replace(replacement, path)
        assert [key(), key()][1] == SECRET
    assert SECRET.decode() not in caplog.text


def test_a_file_that_is_too_large(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"s" * 70_000)
    with pytest.raises(ValueError, match="more than 65536 bytes"):
        TokenKeyFile(str(tmp_path / "secret"), "HS256")
