"""The ports in the line of a server that is ready."""

from __future__ import annotations

import pytest

from tidelog.testing.ready_line import ReadyPorts, read_ports


@pytest.mark.parametrize(
    ("places", "ports"),
    [
        ("redis://127.0.0.1:1", ReadyPorts(1, 0, 0)),
        ("redis://127.0.0.1:1 http://127.0.0.1:22 grpc://127.0.0.1:333", ReadyPorts(1, 22, 333)),
        ("rediss://[::1]:1 https://[::1]:2 grpc+tls://[::1]:3 unix:/s", ReadyPorts(1, 2, 3)),
        ("unix:/somewhere", ReadyPorts(0, 0, 0)),
    ],
)
def test_ports_are_found(places: str, ports: ReadyPorts) -> None:
    assert read_ports(f"tidelog: ready on {places}, data in /http://x:9 , pid 7") == ports


@pytest.mark.parametrize("line", ["", "tidelog: cannot listen on 127.0.0.1:6399: Address already in use"])
def test_another_line_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="not the line of a server"):
        read_ports(line)
