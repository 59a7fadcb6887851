"""The static embedder as a process of its own: frames of texts come in by stdin, frames of vectors go out by stdout.

`embedders.aside` starts and ends it. It also ends by itself: when its input does, and when nothing comes for a while.
"""

from __future__ import annotations

import json
import os
import signal
from dataclasses import asdict

from afterturn.embedders.static import StaticEmbedder

LENGTH_BYTES = 4
# Nobody's text stays here for long, not even when a forked copy of a dead parent holds the pipes open.
IDLE_SECONDS_MAX = 10
_WORDS_MAX = 50_000


def serve(source: int, sink: int) -> None:
    """Says whose vectors these are, then answers every list of texts with its vectors. Returns when `source` ends."""
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
