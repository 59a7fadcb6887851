"""What an embedder may be besides the port of that name: who finds one of these uses it, and does without otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable


@runtime_checkable
class Batching(Protocol):
    """Works without Python's lock, or elsewhere.

    Others get few texts at a time, and pauses, so that a turn beside them does not feel it.
    """

    @property
    def batch_texts(self) -> int:
        """How many texts it takes at a time at best."""


@runtime_checkable
class Immediate(Protocol):
    """Safe to share between threads."""

    @property
    def is_immediate(self) -> bool:
        """Whether a question is embedded in about the time that it takes to hand it to another thread."""


@runtime_checkable
class Closable(Protocol):
    """Holds on to something, such as connections."""

    def close(self) -> None:
        """Ends what is under way, from any thread; `embed` raises EmbedderUnavailable then. Twice is harmless."""


class Aside(Protocol):
    """An embedder at work in another process, for one long backlog. Lives on one event loop.

    Its methods raise EmbedderUnavailable when the process is gone, stuck or talks nonsense; then only `close` is left.
    """

    def send(self, texts: Sequence[str]) -> None:
        """Returns at once; what the process can not take yet is kept back."""

    def received(self) -> list[bytes]:
        """The vectors that are back since the last call, as a store takes them, in the order of the texts."""

    async def wait(self) -> None:
        """Until more may be received. To be called only while something is outstanding."""

    def stop(self) -> None:
        """Has the process end, which has nothing to lose, and texts in its memory. Returns at once; `close` follows."""

    def close(self) -> None:
        """Stops the process and waits, bounded, until it is gone. Twice is harmless."""


@runtime_checkable
class Separable(Protocol):
    """Can work in another process too."""

    def start_aside(self) -> Aside | None:
        """Returns at once. None where no process can be started."""
