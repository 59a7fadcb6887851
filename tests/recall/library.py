"""A real store to recall from, small enough to fill in one line."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from afterturn.config import Config
from afterturn.ports import Embedder, Unit
from afterturn.runtime.clock import SystemClock
from afterturn.stores.sqlite.engine import open_engine
from afterturn.testing.entries import admit, operation
from afterturn.types import Entry, Kind, Verb

R = TypeVar("R")


class Library:
    """What tests do with a store: add, embed, read. `add` gives records when a conversation is named."""

    def __init__(self, path: Path) -> None:
        self._engine = open_engine(path, Config(), SystemClock())

    def add(self, text: str, **draft: Any) -> Entry:
        [entry] = self.add_all([text], **draft)
        return entry

    def add_all(self, texts: Sequence[str], *, space: str = "user:ada", at: float = 100.0, **draft: Any) -> list[Entry]:
        """Each by an operation of its own, in one transaction."""

        def add(unit: Unit, text: str) -> Entry:
            step = operation(space=space, at=at)
            if draft.get("conversation"):
                return unit.records.add(step, [admit(text, at=at, kind=Kind.RECORD, **draft)])[0]
            return unit.memories.add(step, admit(text, at=at, **draft)).entry

        return self._engine.write_now(lambda unit: [add(unit, text) for text in texts])

    def delete(self, entry: Entry, *, at: float = 200.0) -> None:
        def work(unit: Unit) -> None:
            unit.memories.delete(operation(Verb.DELETE, space=entry.space, at=at), entry.id)

        self._engine.write_now(work)

    def embed(self, embedder: Embedder, *, space: str = "user:ada") -> None:
        def work(unit: Unit) -> None:
            waiting = unit.index.unembedded("default", space, embedder.identity, limit=1000)
            rows = embedder.embed([text for _, text in waiting]).astype("<f2")
            unit.index.put_vectors(
                "default",
                space,
                embedder.identity,
                [(key, row.tobytes()) for (key, _), row in zip(waiting, rows, strict=True)],
            )

        self._engine.write_now(work)

    def write(self, work: Callable[[Unit], R]) -> R:
        return self._engine.write_now(work)

    def read(self, work: Callable[[Unit], R]) -> R:
        return self._engine.read_now(work)

    def backup(self, target: Path) -> None:
        self._engine.backup(target)

    def restore(self, source: Path) -> None:
        self._engine.restore(source)

    def close(self) -> None:
        self._engine.close()
