"""A TCP proxy before a server on this machine."""

from __future__ import annotations

import itertools
import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self


class TcpProxy:
    """Passes connections on to `port`. Use it with `with`: it ends them at the end."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in (self._listener, *self._sockets):
            _close(each)

    def refuse(self) -> None:
        """Accepts no connection from now on."""
        _close(self._listener)

    def pass_on(self, number: int, client: socket.socket, server: socket.socket) -> None:
        """Passes on what the client of the connection with this number sends, until it ends. May raise OSError."""
        while data := client.recv(65536):
            server.sendall(data)

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
        with suppress(OSError):
            self.pass_on(number, client, server)
        # The server sees the end of the connection after what was sent, and so still runs it.
        with suppress(OSError):
            server.shutdown(socket.SHUT_WR)


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
