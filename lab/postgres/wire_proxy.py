"""A TCP proxy before a PostgreSQL server that counts round trips, and can delay them as a network would, or hold them
as a server that hangs."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator
from time import perf_counter, sleep
from types import TracebackType
from typing import NamedTuple

from lab.postgres.tcp_proxy import TcpProxy

# SSLRequest, GSSENCRequest and CancelRequest: untyped messages that come before, or instead of, the start of a session.
_REQUESTS = (80877103, 80877104, 80877102)


class Sent(NamedTuple):
    """The statements of one message, and the number of the connection that sent it."""

    connection: int
    text: str


class WireProxy(TcpProxy):
    """A client that sends a query or a Sync waits for the answer, so each of these messages is one round trip, except a
    ROLLBACK after a read. `delay` is how many seconds each takes longer."""

    def __init__(self, port: int, *, delay: float = 0.0) -> None:
        super().__init__(port)
        self._delay = delay
        self._sent: list[Sent] = []
        self._changed = threading.Condition()
        self._is_free = threading.Event()
        self._is_free.set()
        self._held_text: bytes = b""

    def hold(self, text: str = "") -> None:
        """From now on it passes nothing on, as before a server that hangs; with a text, from the message on that has
        it. New connections are accepted."""
        self._held_text = text.encode()
        self._is_free.clear()

    def resume(self) -> None:
        """Passes on what was held."""
        self._is_free.set()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.resume()
        super().__exit__(kind, error, trace)

    def clear(self) -> None:
        """Counts from here."""
        with self._changed:
            self._sent.clear()

    def round_trips(self) -> list[Sent]:
        """In order, since `clear`. A ROLLBACK that is sent alone is not waited for."""
        with self._changed:
            return [one for one in self._sent if one.text != "ROLLBACK"]

    def wait_for(self, *parts: str, within: float) -> bool:
        """Waits until messages with these texts were sent, in this order, since `clear`."""

        def is_sent() -> bool:
            sent = iter(self._sent)
            return all(any(part in one.text for one in sent) for part in parts)

        with self._changed:
            return self._changed.wait_for(is_sent, within)

    def pass_on(self, number: int, client: socket.socket, server: socket.socket) -> None:
        reader = _MessageReader()
        while data := client.recv(65536):
            arrived = perf_counter()
            found = [Sent(number, text) for text in reader.read(data)]
            if found and self._delay:
                sleep(max(0.0, self._delay - (perf_counter() - arrived)))
            with self._changed:
                self._sent += found
                self._changed.notify_all()
            if not self._is_free.is_set() and self._held_text in data:
                # From here on every message.
                self._held_text = b""
                self._is_free.wait()
            server.sendall(data)


class _MessageReader:
    """Splits what one client sends into the protocol's messages."""

    def __init__(self) -> None:
        self._rest = b""
        self._has_started = False

    def read(self, data: bytes) -> Iterator[str]:
        """The text of each query, and "" for a Sync."""
        self._rest += data
        while len(self._rest) >= 8 or (self._has_started and len(self._rest) >= 5):
            at = 1 if self._has_started else 0
            size = at + int.from_bytes(self._rest[at : at + 4], "big")
            if len(self._rest) < size:
                return
            message, self._rest = self._rest[:size], self._rest[size:]
            if not self._has_started:
                self._has_started = int.from_bytes(message[4:8], "big") not in _REQUESTS
            elif message[:1] == b"Q":
                yield message[5:-1].decode(errors="replace")
            elif message[:1] == b"S":
                yield ""


if __name__ == "__main__":
    with WireProxy(int(sys.argv[1]), delay=float(sys.argv[2])) as proxy:
        print(proxy.port, flush=True)
        sys.stdin.read()
