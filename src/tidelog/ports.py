"""The edges of the machine, as protocols: clock, timers, a thread, randomness, disk, object storage and network.

Everything above `system/` receives these through its constructor, so that the whole of it runs on real files and
sockets or inside a simulation that can crash at any write and cut any link. `system/` has the real ones, `testing/` the
simulated ones, and one conformance suite (`tests/conformance/`) holds both to what is written here.

Paths and names of objects are `str` with `/` between parts. A disk raises plain `OSError` with an errno: what that
means is for the caller to say.

A network has callbacks and no coroutines: code above it is state machines that are driven by calls on one loop, so a
simulation can run them without an event loop. What holds for every link, and what does not:

- The bytes that one side sends reach the other in their order, without a gap. What arrives is always a prefix of what
  was sent. How `send` divided them does not show: pieces are joined and cut on the way.
- When a link ends, for whatever reason, bytes that are on the way may be lost. A sender knows that something arrived
  only if the peer says so in bytes of its own.
- A link may be dead for a long time before anyone is told: the peer may be gone, or cut off. Whoever needs to know
  sooner sends something that must be answered, and sets a deadline. All deadlines are the caller's (`Loop.call_later`),
  for connecting and closing too: a network has no patience of its own, or too much of it.
- Callbacks come one at a time from the loop, never inside a call of the link or the network. An owner is told in this
  order, and of nothing after `ended`:

        connected  (received | room)*  ended
        ended                                      it never connected
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

Chunk = bytes | bytearray | memoryview

OpenMode = Literal["read", "write", "create"]
"""read: must exist, reads only. write: must exist, reads and writes. create: must not exist, reads and writes."""


class Clock(Protocol):
    """Where time comes from."""

    def wall_us(self) -> int:
        """Microseconds since 1970 in UTC; may step backwards."""

    def monotonic_us(self) -> int:
        """Microseconds since some moment; never steps backwards."""


class Timer(Protocol):
    """A call that was asked for and has not happened yet."""

    def cancel(self) -> None: ...


class Loop(Protocol):
    """Where calls are put off to; asyncio's and uvloop's loops are one."""

    def call_soon(self, call: Callable[[], None], /) -> Timer:
        """As soon as the loop comes round to it."""

    def call_later(self, seconds: float, call: Callable[[], None], /) -> Timer: ...


class Worker(Protocol):
    """A thread beside the loop, for work that touches nothing that the loop owns."""

    def submit(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        """Run `work` there, after all that was submitted before, and then `done` on the loop, never inside of this
        call. What `work` raises is raised on the loop in the place of `done`."""


_Drawn = TypeVar("_Drawn")


class Random(Protocol):
    """Where chance comes from; `random.Random` is one, with a seed wherever a run must be repeatable."""

    def randrange(self, stop: int, /) -> int:
        """One of 0 to stop - 1."""

    def sample(self, population: Sequence[_Drawn], k: int) -> list[_Drawn]:
        """`k` different places of a sequence, in random order."""


class File(Protocol):
    """One open file. Reads and writes name their position; there is no cursor to share."""

    @property
    def path(self) -> str: ...

    def size(self) -> int: ...

    def read(self, position: int, length: int) -> bytes:
        """Up to `length` bytes from `position`; fewer only at the end of the file."""

    def write(self, position: int, chunks: Sequence[Chunk]) -> int:
        """Write chunks one after the other from `position` and return how many bytes were written.

        It may be fewer than asked for (a short write), like pwritev(2). Past the end, a gap reads as zeros.
        """

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Make the contents and the size durable (fdatasync). The name is durable by `Disk.sync_folder` only."""

    def close(self) -> None:
        """Closing twice is fine. It makes nothing durable."""


class Lock(Protocol):
    """A lock on a file that one process holds; the operating system frees it when the process dies."""

    def release(self) -> None: ...


class Disk(Protocol):
    """A file system. Files are made 0600 and folders 0700."""

    def open(self, path: str, mode: OpenMode) -> File: ...

    def exists(self, path: str) -> bool: ...

    def list(self, folder: str) -> list[str]:
        """The names in a folder, sorted."""

    def make_folder(self, path: str) -> None:
        """Make one folder; fine if it exists, an error if its parent does not."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file or folder atomically; a file that has the new name is replaced."""

    def link(self, old: str, new: str) -> None:
        """Give a file a second name, which must be free. `OSError`: this file system cannot, or not between the two.

        What is written by one name is read by the other. Each name goes for itself.
        """

    def remove(self, path: str) -> None:
        """Remove a file, or a folder that is empty."""

    def sync_folder(self, path: str) -> None:
        """Make the names in a folder durable: what was created, renamed or removed in it."""

    def lock(self, path: str) -> Lock:
        """Take the lock or raise `BlockingIOError` at once; the file is made if it is missing."""

    def free_bytes(self, path: str) -> int:
        """How much can still be written on the file system that holds `path`."""


@runtime_checkable
class DiskWithRemoteFiles(Protocol):
    """What a disk has, beside the rest, that shows files which are not on this machine (`shipping.tiered_disk`)."""

    def is_remote(self, path: str) -> bool:
        """Whether a file lies somewhere else: what is read of it is fetched from there."""


def is_remote(disk: Disk, path: str) -> bool:
    """The same on any disk."""
    return isinstance(disk, DiskWithRemoteFiles) and disk.is_remote(path)


@runtime_checkable
class FileWithKeptBytes(Protocol):
    """What a file has, beside the rest, that keeps what it fetched from elsewhere (`shipping.tiered_disk`)."""

    def forget(self, position: int, length: int) -> bool:
        """The bytes there are not what they should be: keep them no longer. Whether another read may give others."""


def may_read_again(file: File, position: int, length: int) -> bool:
    """The bytes of any file are not what they should be: whether another read may give others."""
    return isinstance(file, FileWithKeptBytes) and file.forget(position, length)


class ObjectEntry(NamedTuple):
    """One line of a listing."""

    name: str
    size: int


class ObjectStore(Protocol):
    """A bucket, or a folder of one: named objects that are written whole and never change.

    Names are parts with `/` between them. A part is not empty, does not begin with a dot, and has no control
    characters; bounds are in `limits` (`ValueError` otherwise). No name is the folder of another: where there is `a/b`,
    there is no object `a`.

    Calls block, for seconds if the store is far or ill, and may come from any thread. Errors are plain `OSError` that
    name the object: `FileNotFoundError` and `FileExistsError` are about the object and nothing else (a bucket that is
    missing is an `OSError`), then there are `PermissionError` and `TimeoutError`; everything else has `errno.EIO`, or
    the errno of the disk, and words that say more. Overwriting is left out on purpose.
    """

    def put(self, name: str, chunks: Sequence[Chunk]) -> None:
        """Create an object of the chunks, one after the other. It is durable and visible to `get` when this returns.

        `FileExistsError`: another put has the name, and nothing was changed. The call is never repeated inside, so it
        was not this one. After any other error the object may be there or not, now or a little later: a caller that
        tries again and is told that the name is taken compares what is there.
        """

    def read(self, name: str, position: int, length: int) -> bytes:
        """Up to `length` bytes from `position`; fewer only at the end of the object. `ValueError` below 0."""

    def get(self, name: str) -> bytes:
        """All of an object."""

    def size(self, name: str) -> int: ...

    def folders(self, prefix: str) -> list[str]:
        """The names, sorted, of the folders directly below a folder ("" or "a/b/") that have objects somewhere in them.

        Of `a/b/c/d` and `a/b/e`, below `a/b/`, that is `c`. It may be late like `list`, and reads a page for each
        thousand objects that lie beside the folders.
        """

    def delete(self, name: str) -> None:
        """Delete an object; fine if it is not there."""

    def list(self, prefix: str, after: str = "") -> list[ObjectEntry]:
        """The next objects whose names begin with `prefix` and come after the name `after`, in order of their names.

        It is one page: at most `limits.OBJECTS_LISTED_MAX`; fewer mean that there are no more. It may be late: an
        object that was put or deleted just now may be missing or still be there.
        """


NetworkAddress = tuple[str, int]
"""A host (its name or number) and a port."""

LinkEnd = Literal["failed", "by_us", "by_peer", "lost"]
"""How a link ended.

failed: it never connected. by_us: after `close`, when all that was sent has left, or after `abort`. by_peer: the other
side closed it, or its process died, and all that came before was received. lost: anything else, such as a reset or a
time-out; also after `close`, if perhaps not all has left.
"""


class NetworkLink(Protocol):
    """One connection, seen from one of its sides.

    It is open from `connected` on (if it was accepted: from `accept` on), until this side closes or aborts it, or is
    told that it ended.
    """

    @property
    def peer(self) -> NetworkAddress:
        """The address that was connected to; of an accepted link, where it comes from."""

    @property
    def is_open(self) -> bool: ...

    @property
    def unsent_bytes(self) -> int:
        """How much of what was sent this process still holds, because the system has not taken it yet.

        With TLS: about, and encrypted bytes are counted.
        """

    @property
    def has_room(self) -> bool:
        """Whether a sender should go on.

        It turns false once more than `limits.LINK_UNSENT_BYTES_MAX` are unsent. When no more than
        `limits.LINK_ROOM_BYTES` are, it is true again, and then `room` is called. Nothing is refused meanwhile: it is
        for the sender to wait, or to put what it would send somewhere else.
        """

    def send(self, data: bytes) -> None:
        """Send bytes after all that were sent before; never waits.

        If the link has ended and its owner was not told yet, they are lost. If it is not open, `ValueError`.
        """

    def stop_receiving(self) -> None:
        """Let the peer wait: `received` is not called until `resume_receiving`, also not for bytes that are there.

        What the peer sends meanwhile fills the buffers of the system, and then stays with the peer. An end by the peer
        waits behind the bytes that came before it. Other ends may be told at once (what was not received is lost), or
        only when receiving is resumed or something is sent.
        """

    def resume_receiving(self) -> None: ...

    def close(self) -> None:
        """Send what is unsent and end the link; receive nothing more.

        A peer that sends nothing from then on receives all of it, and then the end. One that still sends may be
        told that the link is lost instead, and miss the rest. After `limits.LINK_CLOSING_S` the link is
        aborted, whatever is unsent then. One that has not connected is aborted at once.
        """

    def abort(self) -> None:
        """End the link at once, or give up connecting; receive nothing more. What has not left is dropped.

        The peer is told that the link is lost (after `close`: or that it was closed), unless the network loses that
        too. Like `close`, it is fine once more, and after the end.
        """


class LinkOwner(Protocol):
    """Who is told what happens on a link."""

    def connected(self) -> None:
        """The link is open."""

    def received(self, data: bytes) -> None:
        """The next bytes, at least one."""

    def room(self) -> None:
        """`NetworkLink.has_room` was false, and is true again."""

    def ended(self, end: LinkEnd, reason: str) -> None:
        """The link is over. The reason is for people: a few plain words, such as "Connection refused"."""


class OpenPort(Protocol):
    """An address where others can connect."""

    @property
    def address(self) -> NetworkAddress:
        """With the port that was chosen, if any was asked for."""

    def close(self) -> None:
        """Accept nothing more; links that were accepted go on. Closing twice is fine."""


class Network(Protocol):
    """Where links come from. Whether they are encrypted is its own matter."""

    def listen(self, address: NetworkAddress, accept: Callable[[NetworkLink], LinkOwner]) -> OpenPort:
        """Let others connect; port 0 takes any that is free. `OSError` if the address cannot be had.

        `accept` is called with each new link and returns its owner, which is told at once that it is connected.
        """

    def connect(self, address: NetworkAddress, owner: LinkOwner) -> NetworkLink:
        """Begin to connect. The owner is told when it has worked out or failed; `abort` gives up."""
