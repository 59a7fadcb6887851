"""A TCP proxy between the store and its server, which can cut a connection at its COMMIT."""

from __future__ import annotations

import socket

from lab.postgres.tcp_proxy import TcpProxy


class CommitProxy(TcpProxy):
    """`cut` is "before" or "after": the next COMMIT is not passed on, or its answer is not passed back. Once.

    `ends` refuses every connection after that.
    """

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.cut = ""
        self.cuts = 0
        self.ends = False

    def pass_on(self, number: int, client: socket.socket, server: socket.socket) -> None:
        while data := client.recv(65536):
            cut, self.cut = (self.cut, "") if b"COMMIT\x00" in data else ("", self.cut)
            if cut:
                self.cuts += 1
                if self.ends:
                    self.refuse()
                # Nothing more reaches the client.
                client.shutdown(socket.SHUT_WR)
            if cut != "before":
                server.sendall(data)
            if cut:
                return
