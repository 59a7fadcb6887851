"""Ports to the machine and to models: clocks, ids, workers, embedders, chat models, recordings and keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from afterturn.types import EmbedderIdentity, Message, Metadata, Scope


class Clock(Protocol):
    """Time, so that tests and simulations can control it."""

    def now(self) -> float:
        """Unix seconds, for times that are stored or shown."""

    def monotonic(self) -> float:
        """Seconds that never go back, for deadlines."""


class Ids(Protocol):
    def new(self) -> str:
        """A new id, which sorts after all earlier ones of this process."""


class Worker(Protocol):
    """Runs blocking work on a thread, in the order in which it was posted."""

    def post(self, work: Callable[[], None]) -> None:
        """Returns at once. `work` must not raise."""

    def close(self, *, within: float) -> bool:
        """Runs what was posted, then ends. Returns False if that takes longer than `within` seconds."""


class Embedder(Protocol):
    """Turns texts into vectors. It is called on several threads at the same time."""

    @property
    def identity(self) -> EmbedderIdentity:
        """Name, version and dimensions. Vectors are stored under it."""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Returns one row for each text, of length 1, or zeros for a text without content.

        May block. Raises EmbedderUnavailable.
        """


# An embedder may also implement these.


@runtime_checkable
class Batching(Protocol):
    """An embedder that releases Python's global lock, or runs elsewhere.

    Other embedders get few texts at a time, with pauses, so that they do not delay turns.
    """

    @property
    def batch_texts(self) -> int:
        """The best number of texts for one call."""


@runtime_checkable
class Immediate(Protocol):
    """An embedder that may be called on any thread."""

    @property
    def is_immediate(self) -> bool:
        """Whether embedding a question takes no longer than passing it to another thread."""


@runtime_checkable
class Gradual(Protocol):
    """An embedder that can be loaded step by step."""

    def load_gradually(self, pause: Callable[[], object]) -> None:
        """Calls `pause` every few milliseconds. Raises EmbedderUnavailable if it cannot be loaded."""


@runtime_checkable
class Closable(Protocol):
    """An embedder that holds resources, such as connections."""

    def close(self) -> None:
        """Ends running calls, from any thread; `embed` then raises EmbedderUnavailable. May be called twice."""


class Aside(Protocol):
    """An embedder in another process, for one long backlog. Belongs to one event loop.

    `receive` raises EmbedderUnavailable if the process ended, hangs or sends invalid data. Only `close` may be called
    then.
    """

    def send(self, texts: Sequence[str]) -> None:
        """Returns at once. Several batches may be sent before the first result."""

    async def receive(self) -> list[bytes]:
        """Returns the vectors of the oldest batch without a result, in the form that a store takes."""

    async def close(self) -> None:
        """Stops the process and waits for its end, for a limited time. May be called twice."""


@runtime_checkable
class Separable(Protocol):
    """An embedder that can run in another process too."""

    async def start_aside(self) -> Aside | None:
        """Returns before the process is ready. None if no process can be started."""


class ChatModel(Protocol):
    """A chat model: messages in, one assistant message out, in the format of OpenAI's chat completions.

    It may be called from any event loop, several times concurrently. Cancelling a call ends it.
    """

    async def complete(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        schema: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Returns the assistant's message.

        `schema` is the JSON Schema of the wanted answer; a model that does not support it may ignore it. The cost of
        the call may be in the answer under "usage", as servers report it; otherwise it is estimated. Raises ModelError
        if there is no answer.
        """


@dataclass(frozen=True, slots=True)
class Interaction:
    """A completed turn, from its user message on, without the blocks that memory added.

    `run_id` is the id of the turn, unique within its conversation. `metadata` has the `conversation`, the space that it
    `writes`, when the turn began and ended, and `agent`, `project` and `subagent` if they are set.
    """

    messages: tuple[Message, ...]
    run_id: str
    metadata: Metadata = field(default_factory=dict)


class RecordingProvider(Protocol):
    """Stores finished turns instead of memory.

    It is called after the turn, several times concurrently, on memory's own event loop, which it must not block. A turn
    that it accepted is not offered again, by any process, except when a process dies or loses its store in between;
    `run_id` and `conversation` identify the turn then.
    """

    async def record(self, scope: Scope, interaction: Interaction) -> bool:
        """Returns True once the turn is stored for good, False to decline it. If it raises, it is called again later.

        `scope` is the space that owns the conversation.
        """
        return False


class KeyProvider(Protocol):
    """Keeps the keys of a sealed store's spaces, outside the store. See docs/keys.md.

    It is called on several threads, and may block: nothing waits longer for it than a few seconds. Whatever it raises
    is reported as KeysUnavailable, by the name of its type only.
    """

    def make(self, tenant: str, space: str) -> str:
        """Makes a new random key of 32 bytes and returns its id: at most 200 characters, not secret, never used
        before. The key must be durable by then. Both names are blank for the key of the store itself."""

    def get(self, key_id: str) -> bytes | None:
        """Returns the key, None if it was destroyed. If it cannot be found out now, raises."""

    def destroy(self, key_id: str) -> None:
        """When it returns, nobody can get the key any more. Does nothing if there is no such key."""
