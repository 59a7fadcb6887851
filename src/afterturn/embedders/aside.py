"""The static embedder beside this process: for long backlogs, which would fight for Python's lock in this one."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import select
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from afterturn.base.errors import EmbedderUnavailable
from afterturn.base.types import EmbedderIdentity

logger = logging.getLogger("afterturn")

# -P: a folder that a host happens to be in must not lend the child its modules.
_PROGRAM = ("-P", "-m", "afterturn.embedders.child")
_LENGTH_BYTES = 4
_FRAME_BYTES_MAX = 1 << 26
# A batch fits, so that neither side waits for the other in the middle of one.
_PIPE_BYTES = 1 << 20
# For the next part of a frame, the child's start included; a child that takes longer is stuck.
_WITHIN = 10.0
_REAP_WITHIN = 1.0


class ChildEmbedder:
    """The Aside port on a child process. Lives on one event loop; one `embed` at a time."""

    def __init__(self, process: subprocess.Popen[bytes], identity: EmbedderIdentity) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._identity = identity
        self._pipes = (process.stdin, process.stdout)
        self._input, self._output = (pipe.fileno() for pipe in self._pipes)
        os.set_blocking(self._input, False)
        os.set_blocking(self._output, False)
        self._is_known = False

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        try:
            await self._write(json.dumps(texts).encode())
            if not self._is_known:
                self._check_identity(await self._read())
            vectors = await self._read()
        except (OSError, TimeoutError) as error:
            raise _broken(f"does not answer ({type(error).__name__})") from error
        size = 2 * self._identity.dimensions
        if len(vectors) != size * len(texts):
            raise _broken(f"answered {len(texts)} texts with {len(vectors)} bytes")
        return [vectors[start : start + size] for start in range(0, len(vectors), size)]

    def close(self) -> None:
        if self._pipes[0].closed:
            return
        self._process.kill()
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

    def _check_identity(self, hello: bytes) -> None:
        """Another one answers where the wheel was exchanged under a running process (M3)."""
        try:
            self._is_known = json.loads(hello) == asdict(self._identity)
        except ValueError as error:
            raise _broken("did not say whose vectors it gives") from error
        if not self._is_known:
            raise _broken("gives other vectors than this process")

    async def _write(self, body: bytes) -> None:
        loop = asyncio.get_running_loop()
        rest = memoryview(len(body).to_bytes(_LENGTH_BYTES, "big") + body)
        while rest:
            try:
                rest = rest[os.write(self._input, rest) :]
            except BlockingIOError:
                await _ready(self._input, loop.add_writer, loop.remove_writer)

    async def _read(self) -> bytes:
        size = int.from_bytes(await self._read_exactly(_LENGTH_BYTES), "big")
        if size > _FRAME_BYTES_MAX:
            raise _broken(f"announced {size} bytes")
        return await self._read_exactly(size)

    async def _read_exactly(self, size: int) -> bytes:
        loop = asyncio.get_running_loop()
        parts: list[bytes] = []
        while size:
            try:
                part = os.read(self._output, size)
            except BlockingIOError:
                await _ready(self._output, loop.add_reader, loop.remove_reader)
                continue
            if not part:
                raise _broken("ended")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


async def _ready(
    descriptor: int, watch: Callable[[int, Callable[[], None]], object], unwatch: Callable[[int], object]
) -> None:
    ready: asyncio.Event = asyncio.Event()
    watch(descriptor, ready.set)
    try:
        async with asyncio.timeout(_WITHIN):
            await ready.wait()
    finally:
        unwatch(descriptor)


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
