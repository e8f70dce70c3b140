"""Which addresses webhooks may call."""

from __future__ import annotations

import ipaddress
import socket

import pytest

from tests.channels.servers import in_loop
from tidelog.channels.webhooks.addresses import AddressRefused, CheckedResolver, checked_socket, is_allowed


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"]
)
def test_public_addresses_may_be_called(address: str) -> None:
    assert is_allowed(address, ())


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.1.2.3", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0", "100.64.0.1",
        "224.0.0.1", "255.255.255.255", "240.0.0.1", "192.0.2.1", "198.18.0.1", "::1", "::", "fe80::1", "fe80::1%lo",
        "fc00::1", "fd12::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "2002:a9fe:a9fe::1", "2001:0:7f00:1::", "2001:db8::1", "64:ff9b:1::1",
        "", "localhost", "127.1", "2130706433", "0x7f.1", "1.1.1.1.",
    ],
)  # fmt: skip
def test_other_addresses_may_not(address: str) -> None:
    assert not is_allowed(address, ())


def test_networks_that_are_allowed() -> None:
    networks = [ipaddress.ip_network("10.1.0.0/16"), ipaddress.ip_network("fd00::/8")]
    for address, expected in {"10.1.2.3": True, "10.2.0.1": False, "fd00::1": True, "::ffff:10.1.0.1": True}.items():
        assert is_allowed(address, networks) is expected
    assert not is_allowed("127.0.0.1", networks)


@in_loop
async def test_one_bad_address_of_a_name_refuses_all() -> None:
    async def lookup(_host: str, _port: int) -> list[str]:
        return ["8.8.8.8", "10.0.0.1"]

    with pytest.raises(AddressRefused):
        await CheckedResolver((), lookup).resolve("name", 80)
    found = await CheckedResolver([ipaddress.ip_network("10.0.0.0/8")], lookup).resolve("name", 80)
    assert [(each["host"], each["family"], each["hostname"]) for each in found] == [
        ("8.8.8.8", socket.AF_INET, "name"),
        ("10.0.0.1", socket.AF_INET, "name"),
    ]


def test_no_socket_is_made_for_another_address() -> None:
    with pytest.raises(AddressRefused):
        checked_socket(())((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 80)))
