"""The components that the verbs of every space share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from afterturn.config import Config
from afterturn.embedders.service import EmbeddingService
from afterturn.events import Events
from afterturn.guard.gate import Gate
from afterturn.ports import Clock, Ids, Store, Unit
from afterturn.types import (
    Selector,
)

R = TypeVar("R")


class Readable(Protocol):
    """The reading side of a store."""

    def read(self, work: Callable[[Unit], R]) -> Awaitable[R]: ...


class ReadingParts(Protocol):
    """What asking needs. Without `embedding`, recall goes by words."""

    @property
    def store(self) -> Readable: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def ids(self) -> Ids: ...
    @property
    def config(self) -> Config: ...
    @property
    def embedding(self) -> EmbeddingService | None: ...
    @property
    def tenant(self) -> str: ...


@dataclass(frozen=True, slots=True)
class SpaceParts:
    """`on_write` wakes the jobs; `on_forget` drops what waits in memory or in files, `on_erased` what was recalled from
    a space, and is told the number of the forget (M2). `run_reviews` runs those that wait; without a model only rules
    are."""

    store: Store
    gate: Gate
    clock: Clock
    ids: Ids
    config: Config
    events: Events
    embedding: EmbeddingService | None
    tenant: str
    on_write: Callable[[], None]
    on_forget: Callable[[str, Selector], Awaitable[int]]
    on_erased: Callable[[str, int], None]
    out_of_reach: Callable[[], list[str]]
    run_reviews: Callable[[], Awaitable[object]]
    has_model: bool = False
