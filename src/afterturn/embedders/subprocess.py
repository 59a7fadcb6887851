"""The default embedder in a child process, for long backlogs: embedding them here would slow turns down.

Run as a program, this module is the child: frames of texts arrive on stdin, frames of vectors leave on stdout. The
child ends with its input, and when nothing arrives for a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TypeAlias

from afterturn.errors import EmbedderUnavailable
from afterturn.log import logger
from afterturn.types import EmbedderIdentity

# -P: the host's working directory must not lend the child its modules.
_PROGRAM = ("-P", "-m", "afterturn.embedders.subprocess")
_LENGTH_BYTES = 4
_FRAME_BYTES_MAX = 1 << 26
# How many bytes of vectors may be unread before the child waits with its next frame.
_UNREAD_BYTES_MAX = 1 << 22
# For the child's next frame, its start included.
_WITHIN = 30.0
_REAP_WITHIN = 5.0
# No text stays in the child for long, not even when a forked copy of a dead parent holds its pipes open.
IDLE_SECONDS_MAX = 10
_WORDS_MAX = 50_000

Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class ChildEmbedder:
    """The Aside port on a child process."""

    def __init__(self, process: subprocess.Popen[bytes], streams: Streams, identity: EmbedderIdentity) -> None:
        self._process = process
        self._output, self._input = streams
        self._identity = identity
        self._is_known = False
        self._expected: deque[int] = deque()

    def send(self, texts: Sequence[str]) -> None:
        self._expected.append(len(texts))
        self._input.write(_frame(json.dumps(texts).encode()))

    async def receive(self) -> list[bytes]:
        if not self._is_known:
            # Another embedder answers where the wheel was replaced under a running process.
            try:
                is_same = json.loads(await self._read()) == asdict(self._identity)
            except ValueError as error:
                raise _broken("did not identify its vectors") from error
            if not is_same:
                raise _broken("returns other vectors than this process")
            self._is_known = True
        vectors = await self._read()
        count, size = self._expected.popleft(), 2 * self._identity.dimensions
        if len(vectors) != size * count:
            raise _broken(f"answered {count} texts with {len(vectors)} bytes")
        return [vectors[start : start + size] for start in range(0, len(vectors), size)]

    async def close(self) -> None:
        self._process.kill()
        try:
            async with asyncio.timeout(_REAP_WITHIN):
                # To the end of its output: then it is dead, and waiting for it takes no time.
                await self._output.read()
        except (TimeoutError, ConnectionError) as error:
            logger.debug("the embedding process left its output open: %s", error)
        finally:
            # Also if this is cancelled. asyncio closes the socket one step later.
            self._input.transport.abort()
            _end(self._process)
            await asyncio.sleep(0)

    async def _read(self) -> bytes:
        try:
            async with asyncio.timeout(_WITHIN):
                size = int.from_bytes(await self._output.readexactly(_LENGTH_BYTES), "big")
                if size > _FRAME_BYTES_MAX:
                    raise _broken(f"announced {size} bytes")
                return await self._output.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise _broken("ended") from error
        except TimeoutError as error:
            raise _broken(f"has not answered for {_WITHIN:g} seconds") from error


async def start_child(identity: EmbedderIdentity, program: Sequence[str] = _PROGRAM) -> ChildEmbedder | None:
    """Returns before the child is up. None where none can be started."""
    # A program that embeds Python, or was frozen with it, would start itself instead.
    is_python = Path(sys.executable or "").name.startswith(("python", "pypy"))
    if os.name != "posix" or getattr(sys, "frozen", False) or not is_python:
        return None
    # Not asyncio's subprocesses: if their start or end is cancelled, pipes stay open until they are collected.
    with contextlib.ExitStack() as opened:
        try:
            ours, theirs = socket.socketpair()
            opened.enter_context(ours)
            with theirs:
                process = subprocess.Popen(  # noqa: ASYNC220 asyncio starts it in the same way
                    (sys.executable, *program),
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=subprocess.DEVNULL,
                    # Ctrl-C in a terminal is the host's to handle, and would only make the child print.
                    start_new_session=True,
                )
        except OSError as error:
            logger.warning("no process for embedding could be started, this one embeds: %s", error)
            return None
        opened.callback(_end, process)
        streams = await asyncio.open_connection(sock=ours, limit=_UNREAD_BYTES_MAX)
        opened.pop_all()
        return ChildEmbedder(process, streams, identity)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    try:
        process.wait(_REAP_WITHIN)
    except subprocess.TimeoutExpired:
        logger.warning("the embedding process %d does not end", process.pid)


def _broken(what: str) -> EmbedderUnavailable:
    return EmbedderUnavailable(f"The embedding process {what}. This process embeds instead; nothing has to be done.")


def _frame(body: bytes) -> bytes:
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


def serve() -> None:
    """The child: says whose vectors these are, then answers every list of texts until its input ends."""
    from afterturn.embedders.sentence_encoder import SentenceEncoder  # which imports this module

    source, sink = sys.stdin.buffer, sys.stdout.buffer
    embedder = SentenceEncoder(words_max=_WORDS_MAX)
    answer = json.dumps(asdict(embedder.identity)).encode()
    while True:
        signal.alarm(IDLE_SECONDS_MAX)
        sink.write(_frame(answer))
        sink.flush()
        request = source.read(int.from_bytes(source.read(_LENGTH_BYTES), "big"))
        signal.alarm(0)
        if not request:
            return
        answer = embedder.embed(json.loads(request)).astype("<f2").tobytes()


if __name__ == "__main__":
    # A host may ignore or block the signal, and its children inherit that.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    serve()
