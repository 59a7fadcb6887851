"""Recalls of all conversations of one memory: how many run at a time, and what they ask of the store and the model.

Used on memory's loop. Without the queue, every turn of a burst is half done before one is finished, and under overload
waiting recalls fill memory.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from afterturn.config import Config
from afterturn.conversation.delivery import LoopTurn
from afterturn.conversation.scope import ConversationScope
from afterturn.embedders.service import EmbeddingService
from afterturn.events import Events
from afterturn.guard.output_filter import OutputFilter, neutralise
from afterturn.models.meter import MODEL_TIMEOUT, Meter
from afterturn.ports import ChatModel, Clock, Store, Unit
from afterturn.recall.answer import EarlierRecalls, RecallAnswer, answer_question
from afterturn.recall.block import Block, describe_age, describe_author
from afterturn.recall.query import RecallRequest
from afterturn.runtime.once_future import OnceFuture
from afterturn.types import ConversationKey, Hit, Phase, Purpose, Scope

if TYPE_CHECKING:
    from afterturn.recall.index.cache import IndexCache

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

# Enough to keep the readers of a store busy.
RUNNING_MAX = 8
# The work of about a second. Turns that began earlier have usually ended by then.
WAITING_MAX = 256
# How many turns may have begun that memory's loop has not seen yet.
POSTED_MAX = 256
OVERLOAD = "overload"
# How long a store may take that is slower than `recall_timeout`. A newer input, or closing, ends it earlier.
LATE_SECONDS = 60.0
# A recall waits so long for turns that ended so recently, in seconds. A store that cannot be written delays no recall
# that begins later.
STORED_WITHIN = 0.05
_RECENT = 0.25


class RecallShed(Exception):
    """Too many turns began: this recall is left out. The turn is recorded all the same."""


def reason_of(error: Exception) -> str:
    """Why a recall is degraded, for its outcome."""
    return OVERLOAD if isinstance(error, RecallShed) else type(error).__name__


class RecallQueue:
    """A priority queue: finishes recalls that have begun, then takes the newest turn.

    So early turns of a burst get their block within the grace, and then the host of the newest still waits. Older ones
    get their turn when fewer turns begin, or are dropped.
    """

    def __init__(self) -> None:
        self._posted = 0
        self._lock = threading.Lock()
        self._running = 0
        self._begun: deque[asyncio.Future[bool]] = deque()
        self._new: deque[asyncio.Future[bool]] = deque()

    def admit(self) -> bool:
        """Whether one more turn may begin on memory's loop, which then calls `arrive`. May be called on any thread."""
        with self._lock:
            if self._posted >= POSTED_MAX:
                return False
            self._posted += 1
            return True

    def arrive(self) -> None:
        with self._lock:
            self._posted -= 1

    async def run(self, work: Callable[[], Awaitable[R]], *, begun: bool = False) -> R:
        """Runs `work` when there is room. `begun`: an earlier step of the same recall has run. Raises RecallShed."""
        if self._running < RUNNING_MAX:
            self._running += 1
        else:
            await self._wait(self._begun if begun else self._new)
        try:
            return await work()
        finally:
            self._running -= 1
            self._admit_next()

    async def _wait(self, waiting: deque[asyncio.Future[bool]]) -> None:
        place: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        waiting.append(place)
        if len(self._new) > WAITING_MAX:
            _settle(self._new.popleft(), admitted=False)
        try:
            admitted = await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled() and place.result():
                self._running -= 1
                self._admit_next()
            raise
        if not admitted:
            raise RecallShed(f"more than {WAITING_MAX} turns wait for a recall")

    def _admit_next(self) -> None:
        while self._begun or self._new:
            if _settle(self._begun.popleft() if self._begun else self._new.pop(), admitted=True):
                self._running += 1
                return


def _settle(place: asyncio.Future[bool], *, admitted: bool) -> bool:
    """False if the caller was cancelled."""
    if place.done():
        return False
    place.set_result(admitted)
    return True


class Ask(Protocol[R_co]):
    """Work inside a unit of the store that answers a question: `recall.search.search`, or a function that calls it."""

    def __call__(self, unit: Unit, request: RecallRequest, cache: IndexCache | None) -> R_co: ...


class EndedTurn(NamedTuple):
    """A turn that has just ended, and may not be stored yet. `at` is the time of memory's loop."""

    key: ConversationKey
    space: str
    recorded: OnceFuture[bool]
    at: float


@dataclass(frozen=True, slots=True)
class RecallClient:
    """Asks on behalf of all conversations of one memory. Refines only with a model and `refined` set."""

    store: Store
    embedding: EmbeddingService | None
    model: ChatModel | None
    config: Config
    clock: Clock
    events: Events
    meter: Meter
    ended_turns: list[EndedTurn] = field(default_factory=list)

    @property
    def phases(self) -> tuple[Phase, ...]:
        if not self.config.refined or self.model is None:
            return (Phase.FAST,)
        return (Phase.REFINED,) if self.config.refined == "only" else tuple(Phase)

    async def ask(self, request: RecallRequest, work: Ask[R]) -> R:
        """Embeds the question, then runs `work` on a reader's thread: turns, direct searches and tools all ask here.

        `work` is `search`, or calls it. Without an embedder, or before it is ready, only words are compared.
        """
        cache = None
        if self.embedding is not None:
            vector = await self.embedding.query_vector(request.text, request.scope)
            request, cache = request._replace(query_vector=vector), self.embedding.index
        return await self.store.read(functools.partial(work, request=request, cache=cache), at=request.scope)

    async def recall(
        self,
        request: RecallRequest,
        *,
        visible_bytes: int = 0,
        turn: LoopTurn | None = None,
        waiting: Sequence[Hit] = (),
    ) -> tuple[RecallAnswer, Block | None]:
        """The fast phase, and the block that it makes together with the hits that are `waiting` to be handed over.

        For a `turn`, also what was forgotten since it was read, and a slow store gets more time: what it finds is
        carried. Raises TimeoutError after `recall_timeout`, or `LATE_SECONDS` later.
        """
        earlier = None if turn is None else EarlierRecalls(turn.scope, turn.forgets, turn.recalled)
        work = functools.partial(
            answer_question, config=self.config, waiting=waiting, visible_bytes=visible_bytes, earlier=earlier
        )
        async with asyncio.timeout(self.config.recall_timeout + (0.0 if turn is None else LATE_SECONDS)):
            return await self.ask(request, work)

    async def refine(self, question: RecallRequest, scope: ConversationScope, hits: Sequence[Hit]) -> list[Hit]:
        """The hits that the model chooses. Raises whatever is wrong with the model or its answer."""
        from afterturn.recall.rerank import select

        assert self.model is not None
        now = self.clock.now()
        model = self.meter.of(self.model, Purpose.RECALL, scope.tenant, scope.owner)

        def line(hit: Hit) -> str:
            entry = hit.entry
            return f"{describe_age(entry.occurred_at, now)}, {describe_author(entry)}: {neutralise(entry.text)}"

        async with asyncio.timeout(MODEL_TIMEOUT):
            offered = await self._filter(hits)
            chosen = await select(model, question.text, offered, entries_max=self.config.recall_entries_max, line=line)
        found = {hit.entry.ref: hit for hit in hits}
        return [found[hit.entry.ref] for hit in chosen]

    async def _filter(self, hits: Sequence[Hit]) -> list[Hit]:
        """The hits as the model may see them."""
        screen, offered = OutputFilter(scanning=self.config.scan_policy), []
        for hit in hits:
            text = screen.shown(hit.entry)
            if text is not None:
                offered.append(replace(hit, entry=replace(hit.entry, text=text)))
            # Long texts take a while, and other conversations share this loop.
            await asyncio.sleep(0)
        return offered

    def begin_turn(self, turn: object, scope: Scope) -> None:
        """Background work of the embedder pauses until `end_turn`."""
        if self.embedding is not None:
            self.embedding.begin_turn(turn)
            self.embedding.load_index(scope)

    def note_block_delivered(self) -> None:
        """The turn has its block: work that would disturb a recall may run while the model answers."""
        if self.embedding is not None:
            self.embedding.want()

    def note_ended(self, scope: ConversationScope, recorded: OnceFuture[bool]) -> None:
        """A turn has ended and will be recorded. Recalls of other conversations that read its space wait for it."""
        now = asyncio.get_running_loop().time()
        recent = [one for one in self.ended_turns if not one.recorded.settled and now - one.at < _RECENT]
        self.ended_turns[:] = [*recent, EndedTurn(scope.key, scope.writes, recorded, now)]

    async def wait_for_ended(self, scope: ConversationScope) -> None:
        """Waits until turns that have just ended in other conversations can be recalled, at most half of the grace.

        A program may ask in one conversation what was said in another a moment ago.
        """
        now = asyncio.get_running_loop().time()
        deadline = now + min(self.config.grace / 2, STORED_WITHIN)
        for ended in list(self.ended_turns):
            if ended.key != scope.key and ended.space in scope.reads and now - ended.at < _RECENT:
                await ended.recorded.wait(within=max(0.0, deadline - asyncio.get_running_loop().time()))

    def end_turn(self, turn: object) -> None:
        if self.embedding is not None:
            self.embedding.end_turn(turn)
