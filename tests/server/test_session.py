"""Addresses as Redis shows them."""

from __future__ import annotations

import pytest

from tidelog.server.session import address_of


@pytest.mark.parametrize(
    ("name", "shown", "is_local"),
    [
        (("127.0.0.1", 5), "127.0.0.1:5", True),
        (("127.8.9.1", 5), "127.8.9.1:5", True),
        (("10.0.0.1", 5), "10.0.0.1:5", False),
        (("::1", 5, 0, 0), "[::1]:5", True),
        (("::ffff:127.0.0.1", 5, 0, 0), "[::ffff:127.0.0.1]:5", True),
        (("::ffff:10.0.0.1", 5, 0, 0), "[::ffff:10.0.0.1]:5", False),
        (("fe80::1%eth0", 5, 0, 2), "[fe80::1%eth0]:5", False),
        ("/run/socket", "/run/socket:0", True),
    ],
)
def test_addresses(name: object, shown: str, is_local: bool) -> None:
    assert address_of(name) == (shown, is_local)
