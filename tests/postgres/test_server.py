"""The servers of these tests: they end with the process that started them, however it ends."""

import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

pytestmark = pytest.mark.postgres

_START = """
from lab.postgres.server import PostgresServer
with PostgresServer() as server:
    print(server.folder, server.port, flush=True)
    input()
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_server_ends_with_the_process_that_started_it(how: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _START], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as starter:
        assert starter.stdout is not None
        folder, port = starter.stdout.readline().decode().split()
        socket.create_connection(("127.0.0.1", int(port))).close()
        starter.send_signal(how)
    gate = threading.Event()
    for _ in range(1_000):
        if not Path(folder).exists():
            break
        gate.wait(0.05)
    assert not Path(folder).exists()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(port)))
