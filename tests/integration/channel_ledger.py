"""A ledger of channels over HTTP: what was published, what came, and whether that is at least once and in order.

Publishers and subscribers are threads with real sockets, each drawn from the seed. They may use several gateways in
turn, and whatever is not answered they send again. Meanwhile the test does its worst to the processes.

    Publisher     numbers from 0 on, each until it is known to be published, then the next; some alone, some three at
                  once; now and then one that is long published, with another content, which must change nothing
    Subscriber    polls and acknowledges, or reads streams whose `Last-Event-ID` acknowledges; now and then it forgets
                  to, or goes away in the middle

What must hold for each subscriber:

    nothing is lost       of each publisher, every number that it was told is published, without a gap
    in order              of each publisher 0, 1, 2 ... when they first come; all subscribers see the same order
    nothing is skipped    a fetch begins at most one behind the newest that came before
    nothing comes back    that it was told is acknowledged; unless the backend may lose an acknowledgement
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

from tests.channels.http.gateways import HttpReply, HttpSite, polling

CHANNEL: Final = "ledger"
DRAIN_S_MAX: Final = 60.0
LATER: Final = (429, 503)
"""What a gateway answers that could not do it: the same may be sent again."""

Number = tuple[str, int]
"""A publisher, and which of its messages."""


class Violation(AssertionError):
    """A promise was broken."""


class Client:
    """One thread's way to the gateways: one after the other, and what fails is told as such."""

    def __init__(self, ledger: ChannelLedger, name: str, seed: int) -> None:
        self.ledger = ledger
        self.name = name
        self.rng = Random(f"{seed} {name}")
        self.is_over = False
        self.problem: BaseException | None = None
        self._thread = threading.Thread(target=self._guarded, name=name)
        self._sites: dict[int, HttpSite] = {}

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        self._thread.join(DRAIN_S_MAX)
        if self._thread.is_alive():
            raise Violation(f"{self.name} hangs")
        if self.problem is not None:
            raise self.problem

    def _guarded(self) -> None:
        try:
            self.run()
        except BaseException as problem:
            self.problem = problem
        finally:
            for site in self._sites.values():
                site.close()

    def run(self) -> None:
        raise NotImplementedError

    def port(self) -> int:
        return self.rng.choice(self.ledger.ports)

    def tried(self, method: str, path: str, body: bytes | None = None) -> HttpReply | None:
        """None: nobody knows whether it was done."""
        port = self.port()
        site = self._sites.get(port)
        if site is None:
            site = self._sites[port] = HttpSite(port)
            site.give_up_after(self.ledger.reply_s_max)
        try:
            reply = site(method, path, body)
        except (OSError, http.client.HTTPException):
            site.close()
            self.ledger.count("unanswered", method)
            time.sleep(0.02)
            return None
        self.ledger.count(str(reply.status), method)
        if reply.status in LATER:
            time.sleep(0.05)
            return None
        return reply

    def require(self, is_so: bool, *what: object) -> None:
        if not is_so:
            raise Violation(" ".join(map(str, (self.name, *what))))


class Publisher(Client):
    def __init__(self, ledger: ChannelLedger, name: str, seed: int) -> None:
        super().__init__(ledger, name, seed)
        self.published = 0
        """It was told that all below this are."""

    def run(self) -> None:
        while not self.is_over:
            count = 3 if self.rng.random() < 0.2 else 1
            if self._publish(range(self.published, self.published + count)):
                self.published += count
            if self.published and self.rng.random() < 0.1:
                self._publish([self.rng.randrange(self.published)], content="again")
            time.sleep(self.ledger.pause_s * self.rng.random())

    def _publish(self, numbers: Sequence[int], content: str = "") -> bool:
        ids = [f"{self.name}-{number}" for number in numbers]
        values = [content or [self.name, number] for number in numbers]
        if len(ids) == 1:
            reply = self.tried("PUT", f"/channel/{CHANNEL}/message/{ids[0]}", json.dumps(values[0]).encode())
        else:
            several = [{"messageID": each, "content": value} for each, value in zip(ids, values, strict=True)]
            reply = self.tried("POST", f"/channel/{CHANNEL}/messages", json.dumps(several).encode())
        self.require(reply is None or reply.status == 200, "was told", reply)
        return reply is not None


class Subscriber(Client):
    """One that polls."""

    def __init__(self, ledger: ChannelLedger, name: str, seed: int) -> None:
        super().__init__(ledger, name, seed)
        self.order: list[Number] = []
        """In which messages first came."""
        self._places: dict[Number, int] = {}
        self.settled = 0
        """It was told that so many of them are acknowledged."""
        self.repeated = 0
        self.may_hold = False
        """It does not acknowledge anything while the ledger holds."""

    def subscribe(self) -> None:
        deadline = time.monotonic() + DRAIN_S_MAX
        while (reply := self.tried("PUT", polling(CHANNEL, self.name))) is None:
            self.require(time.monotonic() < deadline, "could not subscribe")
        self.require(reply.status == 200, "was told", reply)

    def run(self) -> None:
        while not self.is_over:
            self._poll()

    def _poll(self) -> None:
        reply = self.tried("GET", f"{polling(CHANNEL, self.name)}?timeout=200ms&max={self.rng.choice((1, 5, 64))}")
        if reply is None:
            return
        self.require(reply.status == 200, "was told", reply)
        handle = reply.value.get("ackHandle")
        if handle is None:
            return
        end = self.take([(each["messageID"], each["content"]) for each in reply.value["messages"]])
        while self.ledger.is_holding and self.may_hold and not self.is_over:
            time.sleep(0.02)
        while self.rng.random() < 0.9:  # else it forgets
            told = self.tried("DELETE", f"{polling(CHANNEL, self.name)}/message?ackHandle={handle}")
            if told is None:
                continue
            if told.status == 204:
                self.settled = max(self.settled, end)
            else:
                self.require(self.ledger.may_forget and told.status == 400, "was told", told)
            return

    def take(self, messages: Sequence[tuple[str, Any]]) -> int:
        """Enter what came; returns where in the order the last of it is."""
        end = 0
        for message_id, content in messages:
            self.require(isinstance(content, list) and message_id == "-".join(map(str, content)), "got", content)
            number = content[0], content[1]
            place = self._places.get(number)
            if place is None:
                place = self._places[number] = len(self.order)
                self.order.append(number)
            else:
                self.repeated += 1
                self.require(place >= self.settled or self.ledger.may_forget, "got again", number)
            self.require(not end or place == end or self.ledger.may_forget, "got", number, "after place", end - 1)
            end = place + 1
        return end


class StreamSubscriber(Subscriber):
    """One that reads streams. They are of HTTP/1.0, whose body is what comes until the end."""

    def __init__(self, ledger: ChannelLedger, name: str, seed: int) -> None:
        super().__init__(ledger, name, seed)
        self._last_id = ""
        self._last_end = 0

    def run(self) -> None:
        while not self.is_over:
            try:
                self._read()
            except OSError:
                self.ledger.count("unanswered", "stream")
                time.sleep(0.05)

    def _read(self) -> None:
        told, told_end = self._last_id, self._last_end
        asked = [f"GET {polling(CHANNEL, self.name)} HTTP/1.0", "host: localhost", "accept: text/event-stream"]
        asked += [f"last-event-id: {told}"] if told else []
        with socket.create_connection(("127.0.0.1", self.port()), timeout=0.2) as link:
            link.sendall("\r\n".join([*asked, "", ""]).encode())
            head, rest = self._head(link)
            if not head:
                return
            status = int(head.split()[1])
            self.ledger.count(str(status), "stream")
            if status in LATER or b"\r\nretry-after: " in head:  # a stream that is put off has done nothing
                time.sleep(0.05)
                return
            if status == 400 and self.ledger.may_forget:
                self._last_id = ""
                return
            self.require(status == 200, "was told", head, rest)
            if told:
                self.settled = max(self.settled, told_end)
            self._events(link, rest)

    def _events(self, link: socket.socket, got: bytes) -> None:
        enough = self.rng.randint(1, 40)
        pending: list[tuple[str, Any]] = []
        while not self.is_over and enough > 0:
            *events, got = got.split(b"\n\n")
            for event in events:
                fields = dict(line.split(b": ", 1) for line in event.split(b"\n") if b": " in line)
                if b"data" in fields and b"event" not in fields:
                    message = json.loads(fields[b"data"])
                    pending.append((message["messageID"], message["content"]))
                if b"id" in fields:
                    end = self.take(pending)
                    enough -= len(pending)
                    pending = []
                    self._last_id, self._last_end = fields[b"id"].decode(), max(end, self._last_end)
            try:
                more = link.recv(65536)
            except TimeoutError:
                enough -= 1
                continue
            if not more:
                return
            got += more

    def _head(self, link: socket.socket) -> tuple[bytes, bytes]:
        got = b""
        deadline = time.monotonic() + self.ledger.reply_s_max
        while b"\r\n\r\n" not in got and time.monotonic() < deadline and not self.is_over:
            try:
                more = link.recv(65536)
            except TimeoutError:
                continue
            if not more:
                raise ConnectionResetError("no answer")
            got += more
        head, _, rest = got.partition(b"\r\n\r\n")
        return head if rest or got.endswith(b"\r\n\r\n") else b"", rest


class ChannelLedger:
    """Everybody, and what they were told."""

    def __init__(
        self,
        ports: Sequence[int],
        seed: int,
        *,
        publishers: int = 3,
        pollers: int = 2,
        streams: int = 1,
        may_forget: bool = False,
        pause_s: float = 0.01,
        reply_s_max: float = 15.0,
    ) -> None:
        """
        ports         of the gateways, any of which may be asked
        may_forget    the backend may lose what was acknowledged, so that messages come again and handles are not known
        pause_s       a publisher pauses for up to so long
        reply_s_max   then a client takes a reply for lost
        """
        self.ports = list(ports)
        self.may_forget = may_forget
        self.pause_s = pause_s
        self.reply_s_max = reply_s_max
        self.numbers: Counter[tuple[str, str]] = Counter()
        """How often each kind of request had which answer."""
        self._lock = threading.Lock()
        self.publishers = [Publisher(self, f"p{number}", seed) for number in range(publishers)]
        self.subscribers: list[Subscriber] = [Subscriber(self, f"s{number}", seed) for number in range(pollers)]
        for subscriber in self.subscribers[::2]:
            subscriber.may_hold = True
        self.is_holding = False
        """Every other one that polls keeps what it got, and acknowledges it when this is over."""
        self.subscribers += [StreamSubscriber(self, f"e{number}", seed) for number in range(streams)]

    def count(self, answer: str, method: str) -> None:
        with self._lock:
            self.numbers[answer, method] += 1

    @property
    def published(self) -> int:
        return sum(publisher.published for publisher in self.publishers)

    def run(self, faults: Callable[[], None]) -> None:
        """Play while a function does its worst; then all that is left is to come, and the books are checked."""
        for subscriber in self.subscribers:
            subscriber.subscribe()
        everybody: list[Client] = [*self.publishers, *self.subscribers]
        for client in everybody:
            client.start()
        try:
            faults()
            for publisher in self.publishers:
                publisher.is_over = True
            for publisher in self.publishers:
                publisher.join()
            self._drain()
        finally:
            for client in everybody:
                client.is_over = True
            for client in everybody:
                client._thread.join(DRAIN_S_MAX)
        for client in everybody:
            client.join()
        self.check()

    def wait_for_published(self, count: int) -> None:
        """Until so many more messages are published."""
        enough = self.published + count
        self._wait(lambda: self.published >= enough)

    def wait_for_more(self, count: int) -> None:
        """Until so many more messages are published and acknowledged by all."""
        self.wait_for_published(count)
        least = min(subscriber.settled for subscriber in self.subscribers)
        self._wait(lambda: min(subscriber.settled for subscriber in self.subscribers) >= least + count)

    def _drain(self) -> None:
        self._wait(lambda: all(self._has_all(subscriber) for subscriber in self.subscribers))

    def _has_all(self, subscriber: Subscriber) -> bool:
        came = Counter(name for name, _ in subscriber.order)
        return all(came[publisher.name] >= publisher.published for publisher in self.publishers)

    def _wait(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DRAIN_S_MAX
        while not is_so():
            for client in (*self.publishers, *self.subscribers):
                if client.problem is not None:
                    raise client.problem
            if time.monotonic() > deadline:
                return  # the books tell what is missing
            time.sleep(0.02)

    def check(self) -> None:
        """Whether what came is what was published."""
        for subscriber in self.subscribers:
            for publisher in self.publishers:
                came = [number for name, number in subscriber.order if name == publisher.name]
                subscriber.require(came == list(range(len(came))), "got of", publisher.name, "in this order:", came)
                subscriber.require(
                    len(came) >= publisher.published,
                    *("got", len(came), "of", publisher.name, "which was told that", publisher.published, "are there"),
                )
        if not self.may_forget:
            longest = max((subscriber.order for subscriber in self.subscribers), key=len)
            for subscriber in self.subscribers:
                subscriber.require(subscriber.order == longest[: len(subscriber.order)], "saw another order")
