"""A server that answers every HTTP request in one way, for tests of what a client does then; or that never answers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class AnsweringServer:
    def __init__(self, answer: bytes | None) -> None:
        """Without an answer, requests wait until the server is closed. An empty one breaks the connection."""
        self._answer = answer
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.requests: list[bytes] = []
        """The first bytes of each."""
        self.endpoint = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._listening.accept()
            connection.settimeout(30)
            received = connection.recv(65536)
            if not received:  # from close()
                connection.close()
                return
            self.requests.append(received)
            if self._answer is None:
                self._open.append(connection)
                continue
            connection.sendall(self._answer)
            connection.close()

    def close(self) -> None:
        socket.create_connection(self._listening.getsockname()).close()
        self._thread.join(30)
        self._listening.close()
        for connection in self._open:
            connection.close()


def answer(status: str, body: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {len(body.encode())}\r\n\r\n{body}".encode()


@contextmanager
def answering(reply: bytes | None) -> Iterator[AnsweringServer]:
    server = AnsweringServer(reply)
    try:
        yield server
    finally:
        server.close()
