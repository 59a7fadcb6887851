"""A TCP proxy before a PostgreSQL server that counts round trips, and can delay them as a network would, or hold them
as a server that hangs."""

from __future__ import annotations

import itertools
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from time import perf_counter, sleep
from types import TracebackType
from typing import NamedTuple

# SSLRequest, GSSENCRequest and CancelRequest: untyped messages that come before, or instead of, the start of a session.
_REQUESTS = (80877103, 80877104, 80877102)


class Sent(NamedTuple):
    """The statements of one message, and the number of the connection that sent it."""

    connection: int
    text: str


class WireProxy:
    """A client that sends a query or a Sync waits for the answer, so each of these messages is one round trip, except a
    ROLLBACK after a read. `delay` is how many seconds each takes longer."""

    def __init__(self, port: int, *, delay: float = 0.0) -> None:
        self._port = port
        self._delay = delay
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._sent: list[Sent] = []
        self._changed = threading.Condition()
        self._is_free = threading.Event()
        self._is_free.set()
        self._held_text: bytes = b""
        self.port: int = self._listener.getsockname()[1]

    def hold(self, text: str = "") -> None:
        """From now on it passes nothing on, as before a server that hangs; with a text, from the message on that has
        it. New connections are accepted."""
        self._held_text = text.encode()
        self._is_free.clear()

    def resume(self) -> None:
        """Passes on what was held."""
        self._is_free.set()

    def __enter__(self) -> WireProxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.resume()
        for each in (self._listener, *self._sockets):
            _close(each)

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

    def _accept(self) -> None:
        with suppress(OSError):
            for number in itertools.count():
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._port))
                for each in (client, server):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._sockets += [client, server]
                threading.Thread(target=self._pass_on, args=(number, client, server), daemon=True).start()
                threading.Thread(target=_pass_back, args=(client, server), daemon=True).start()

    def _pass_on(self, number: int, client: socket.socket, server: socket.socket) -> None:
        reader = _MessageReader()
        with suppress(OSError):
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
        with suppress(OSError):
            server.shutdown(socket.SHUT_WR)


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


def _pass_back(client: socket.socket, server: socket.socket) -> None:
    with suppress(OSError):
        while data := server.recv(65536):
            client.sendall(data)
    _close(client)
    _close(server)


def _close(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()


if __name__ == "__main__":
    with WireProxy(int(sys.argv[1]), delay=float(sys.argv[2])) as proxy:
        print(proxy.port, flush=True)
        sys.stdin.read()
