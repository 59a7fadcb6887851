"""The static embedder beside this process: for long backlogs, which would fight for Python's lock in this one."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import select
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from afterturn.errors import EmbedderUnavailable
from afterturn.types import EmbedderIdentity

logger = logging.getLogger("afterturn")

# -P: a folder that a host happens to be in must not lend the child its modules.
_PROGRAM = ("-P", "-m", "afterturn.embedders.subprocess")
_LENGTH_BYTES = 4
_FRAME_BYTES_MAX = 1 << 26
# Several batches fit, so that the child has work and goes on while nobody looks at its pipes.
_PIPE_BYTES = 1 << 20
_PART_BYTES = 1 << 18
# For the next sign of it, its start included; a child that takes longer is stuck.
_WITHIN = 10.0
_REAP_WITHIN = 1.0


class ChildEmbedder:
    """The Aside port on a child process. Its pipes are read and written without ever waiting, but in `wait`."""

    def __init__(self, process: subprocess.Popen[bytes], identity: EmbedderIdentity) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._identity = identity
        self._pipes = (process.stdin, process.stdout)
        self._input, self._output = (pipe.fileno() for pipe in self._pipes)
        os.set_blocking(self._input, False)
        os.set_blocking(self._output, False)
        self._unsent = bytearray()
        self._unread = bytearray()
        self._expected: deque[int] = deque()
        self._is_known = False

    def send(self, texts: Sequence[str]) -> None:
        body = json.dumps(texts).encode()
        self._expected.append(len(texts))
        self._unsent += len(body).to_bytes(_LENGTH_BYTES, "big") + body
        self._write()

    def received(self) -> list[bytes]:
        self._write()
        has_ended = self._read()
        vectors: list[bytes] = []
        while (frame := self._next_frame()) is not None:
            if self._is_known:
                vectors += self._vectors(frame)
            else:
                self._check_identity(frame)
        if has_ended and not vectors:
            raise _broken("ended")
        return vectors

    async def wait(self) -> None:
        loop = asyncio.get_running_loop()
        moved = asyncio.Event()
        loop.add_reader(self._output, moved.set)
        if self._unsent:
            loop.add_writer(self._input, moved.set)
        try:
            async with asyncio.timeout(_WITHIN):
                await moved.wait()
        except TimeoutError as error:
            raise _broken(f"has not answered for {_WITHIN:g} seconds") from error
        finally:
            loop.remove_reader(self._output)
            loop.remove_writer(self._input)

    def stop(self) -> None:
        self._process.kill()

    def close(self) -> None:
        if self._pipes[0].closed:
            return
        self.stop()
        # Its end of the pipe goes with it. Asking for its end again and again, as `wait` does, takes 10 ms longer.
        hung_up = select.poll()
        hung_up.register(self._input, 0)
        hung_up.poll(_REAP_WITHIN * 1000)
        try:
            self._process.wait(_REAP_WITHIN)
        except subprocess.TimeoutExpired:
            logger.warning("the embedding process %d does not end", self._process.pid)
        for pipe in self._pipes:
            pipe.close()

    def _write(self) -> None:
        while self._unsent:
            try:
                del self._unsent[: os.write(self._input, self._unsent)]
            except BlockingIOError:
                return
            except OSError as error:
                raise _broken("ended") from error

    def _read(self) -> bool:
        """Whether there will be no more."""
        while True:
            try:
                part = os.read(self._output, _PART_BYTES)
            except BlockingIOError:
                return False
            except OSError as error:
                raise _broken("ended") from error
            if not part:
                return True
            self._unread += part

    def _next_frame(self) -> bytes | None:
        size = int.from_bytes(self._unread[:_LENGTH_BYTES], "big")
        if size > _FRAME_BYTES_MAX:
            raise _broken(f"announced {size} bytes")
        end = _LENGTH_BYTES + size
        if len(self._unread) < max(end, _LENGTH_BYTES):
            return None
        with memoryview(self._unread) as unread:
            frame = bytes(unread[_LENGTH_BYTES:end])
        del self._unread[:end]
        return frame

    def _vectors(self, frame: bytes) -> list[bytes]:
        count = self._expected.popleft() if self._expected else 0
        size = 2 * self._identity.dimensions
        if len(frame) != size * count:
            raise _broken(f"answered {count} texts with {len(frame)} bytes")
        return [frame[start : start + size] for start in range(0, len(frame), size)]

    def _check_identity(self, hello: bytes) -> None:
        """Another one answers where the wheel was exchanged under a running process (M3)."""
        try:
            self._is_known = json.loads(hello) == asdict(self._identity)
        except ValueError as error:
            raise _broken("did not say whose vectors it gives") from error
        if not self._is_known:
            raise _broken("gives other vectors than this process")


def start_child(identity: EmbedderIdentity) -> ChildEmbedder | None:
    """Returns before the child is up; what it is asked meanwhile waits. None where none can be started."""
    if not _is_python(sys.executable):
        return None
    try:
        process = subprocess.Popen(
            (sys.executable, *_PROGRAM),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            # Ctrl-C in a terminal is the host's to handle, and would only make the child print.
            start_new_session=True,
            pipesize=_PIPE_BYTES,
        )
    except OSError as error:
        logger.warning("no process for embedding could be started, this one embeds: %s", error)
        return None
    return ChildEmbedder(process, identity)


def _is_python(executable: str | None) -> bool:
    """A program that embeds Python, or was frozen with it, would start itself instead."""
    if os.name != "posix" or not executable or getattr(sys, "frozen", False):
        return False
    return Path(executable).name.startswith(("python", "pypy"))


def _broken(what: str) -> EmbedderUnavailable:
    return EmbedderUnavailable(f"The embedding process {what}. This process embeds instead; nothing has to be done.")


# The static embedder as a process of its own: frames of texts come in by stdin, frames of vectors go out by stdout.
#
# `embedders.aside` starts and ends it. It also ends by itself: when its input does, and when nothing comes for a while.

LENGTH_BYTES = 4
# Nobody's text stays here for long, not even when a forked copy of a dead parent holds the pipes open.
IDLE_SECONDS_MAX = 10
_WORDS_MAX = 50_000


def serve(source: int, sink: int) -> None:
    """Says whose vectors these are, then answers every list of texts with its vectors. Returns when `source` ends."""
    from afterturn.embedders.word_vectors import StaticEmbedder  # which imports this module to start the child

    embedder = StaticEmbedder(words_max=_WORDS_MAX)
    _write_frame(sink, json.dumps(asdict(embedder.identity)).encode())
    embedder.load()
    while (request := _read_frame(source)) is not None:
        _write_frame(sink, embedder.embed(json.loads(request)).astype("<f2").tobytes())


def _read_frame(source: int) -> bytes | None:
    signal.alarm(IDLE_SECONDS_MAX)
    head = _read(source, LENGTH_BYTES)
    body = _read(source, int.from_bytes(head, "big")) if head else None
    signal.alarm(0)
    return body


def _read(source: int, size: int) -> bytes | None:
    parts: list[bytes] = []
    while size:
        part = os.read(source, size)
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _write_frame(sink: int, body: bytes) -> None:
    signal.alarm(IDLE_SECONDS_MAX)
    rest = memoryview(len(body).to_bytes(LENGTH_BYTES, "big") + body)
    while rest:
        rest = rest[os.write(sink, rest) :]
    signal.alarm(0)


if __name__ == "__main__":
    # A host may ignore or block the signal, and its children inherit that.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    serve(0, 1)
