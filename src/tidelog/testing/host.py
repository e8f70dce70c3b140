"""A simulated host: a machine with an address, on which one process at a time runs.

A host is the `ports.Network` of its process, and `loop` is the process's `ports.Loop`. It can be

- stopped (as by SIGSTOP) and continued: meanwhile no callback and no timer of the process happens, but its kernel
  completes connections and takes bytes, until its buffers are full;
- killed: the process is gone, and its kernel ends its links, some in good order, others with a reset. Who connects is
  refused;
- crashed, as by a power cut: nothing answers. Peers are not told; they find out by a reset once the host is back and
  they send, or when their patience ends.

`start` lets the next process begin, with a loop of its own and without links or open ports. `SimulatedDisk.kill` and
`SimulatedDisk.crash` are the same deaths for what is on disk.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tidelog.ports import LinkOwner, NetworkAddress, NetworkLink
from tidelog.testing.faults import os_error
from tidelog.testing.link import TIMED_OUT, SimulatedLink
from tidelog.testing.loop import ProcessLoop

if TYPE_CHECKING:
    from tidelog.testing.network import SimulatedNetwork

UNKNOWN_HOST: Final = "Name or service not known"
_FIRST_PORT_CHOSEN: Final = 40_000


class SimulatedPort:
    """`ports.OpenPort` of a simulated host."""

    __slots__ = ("_host", "accept", "address", "is_closed")

    def __init__(
        self, host: SimulatedHost, address: NetworkAddress, accept: Callable[[NetworkLink], LinkOwner]
    ) -> None:
        self._host = host
        self.address: Final = address
        self.accept: Final = accept
        self.is_closed = False

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            del self._host.ports[self.address[1]]


class SimulatedHost:
    """`ports.Network` of the process that runs on it. Its name is its address."""

    def __init__(self, network: SimulatedNetwork, name: str) -> None:
        self.name: Final = name
        self.network: Final = network
        self.loop = ProcessLoop(network.loop)
        """Of the process that runs, or was the last to run."""
        self.is_off = False
        """It has crashed and was not started again."""
        self.reads_bytes_per_s: float | None = None
        """How fast the process reads what has arrived on each link; None: as soon as it can."""
        self.ports: Final[dict[int, SimulatedPort]] = {}
        self._last_port_chosen = _FIRST_PORT_CHOSEN

    def __repr__(self) -> str:
        state = "off" if self.is_off else "down" if self.loop.is_dead else "stopped" if self.loop.is_held else "up"
        return f"<SimulatedHost {self.name} {state}>"

    # --- ports.Network ------------------------------------------------------------------------------------------

    def listen(self, address: NetworkAddress, accept: Callable[[NetworkLink], LinkOwner]) -> SimulatedPort:
        self._check_alive()
        name, number = address
        if name != self.name:
            raise os_error(errno.EADDRNOTAVAIL, f"{name}:{number}")
        if number in self.ports:
            raise os_error(errno.EADDRINUSE, f"{name}:{number}")
        port = SimulatedPort(self, (name, number or self.any_port()), accept)
        self.ports[port.address[1]] = port
        return port

    def connect(self, address: NetworkAddress, owner: LinkOwner) -> SimulatedLink:
        self._check_alive()
        network = self.network
        link = SimulatedLink(self, address, owner)
        there = network.find(address[0])
        if there is None:
            network.loop.call_later(0, lambda: link.fail(UNKNOWN_HOST))
        else:
            link.giving_up = network.loop.call_later(network.connect_us / 1e6, lambda: link.fail(TIMED_OUT))
            network.loop.call_at(network.arrival_us(self, there, 0), link.knock)
        return link

    def any_port(self) -> int:
        """A number that was not used before."""
        self._last_port_chosen += 1
        return self._last_port_chosen

    # --- what may happen to it ----------------------------------------------------------------------------------

    def stop(self) -> None:
        """Stop the process, as SIGSTOP does."""
        self._check_alive()
        self.loop.stop()

    def go_on(self) -> None:
        """Continue it, as SIGCONT does: what has become due meanwhile happens now."""
        self._check_alive()
        self.loop.go_on()

    def kill(self) -> None:
        """The process dies, and the machine lives on."""
        self._check_alive()
        self._end_process(has_kernel=True)

    def crash(self) -> None:
        """The power is cut. Also if no process runs."""
        if not self.is_off:
            self.is_off = True
            self._end_process(has_kernel=False)
            self.network.change()

    def start(self) -> None:
        """Let the next process begin, after a kill or a crash."""
        if not self.loop.is_dead:
            raise ValueError(f"{self.name}: a process runs; kill it first")
        self.loop = ProcessLoop(self.network.loop)
        if self.is_off:
            self.is_off = False
            self.network.change()

    def _end_process(self, *, has_kernel: bool) -> None:
        self.loop.die()
        self.ports.clear()
        for link in self.network.links_of(self):
            link.die(has_kernel=has_kernel)

    def _check_alive(self) -> None:
        if self.loop.is_dead:
            raise ValueError(f"{self.name}: no process runs; start one first")
