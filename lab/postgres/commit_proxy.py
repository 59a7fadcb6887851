"""A TCP proxy between the store and its server, which can cut a connection at its COMMIT."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType


class CommitProxy:
    """`cut` is "before" or "after": the next COMMIT is not passed on, or its answer is not passed back. Once.

    `ends` refuses every connection after that.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self.port: int = self._listener.getsockname()[1]
        self.cut = ""
        self.cuts = 0
        self.ends = False

    def __enter__(self) -> CommitProxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in (self._listener, *self._sockets):
            _close(each)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._port))
                self._sockets += [client, server]
                threading.Thread(target=self._pass_on, args=(client, server), daemon=True).start()
                threading.Thread(target=self._pass_back, args=(client, server), daemon=True).start()

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(65536):
                cut, self.cut = (self.cut, "") if b"COMMIT\x00" in data else ("", self.cut)
                if cut:
                    self.cuts += 1
                    if self.ends:
                        _close(self._listener)
                    # Nothing more reaches the client.
                    client.shutdown(socket.SHUT_WR)
                if cut != "before":
                    server.sendall(data)
                if cut:
                    break
        # The server sees the end of the connection after what was sent, and so still runs it.
        with suppress(OSError):
            server.shutdown(socket.SHUT_WR)

    def _pass_back(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                client.sendall(data)
        _close(client)
        _close(server)


def _close(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
