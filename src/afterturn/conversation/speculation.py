"""A recall for what the user is still typing (R9): used when the final words are close to it, else discarded."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from afterturn.conversation.ledger import Ledger
from afterturn.conversation.prefetch import Prefetch
from afterturn.conversation.prefetcher import RecallClient
from afterturn.conversation.read_turn import (
    RecallAnswer,
    RecallQuestion,
    all_hold,
    any_learned_from_visible,
    question_for,
)
from afterturn.conversation.scope import ConversationScope
from afterturn.errors import AfterturnError
from afterturn.ports import Ids, Unit
from afterturn.runtime.once_future import OnceFuture
from afterturn.runtime.supervisor import Supervisor
from afterturn.text import terms
from afterturn.types import Hit, Scalar

logger = logging.getLogger("afterturn")
# From how many shared words on the two find the same: one more word at the end, an ending, a typing mistake.
_CLOSE = 0.75


@dataclass(slots=True, eq=False)
class SpeculativeRecall:
    """`prepared` settles with None when it came to nothing."""

    question: RecallQuestion
    correlation: str
    prepared: OnceFuture[RecallAnswer | None] = field(default_factory=OnceFuture)
    task: asyncio.Task[None] | None = None


def is_close(partial: str, final: str) -> bool:
    """Whether a recall for the one is as good as one for the other."""
    typed, said = frozenset(terms(partial)), frozenset(terms(final))
    return bool(typed) and len(typed & said) >= _CLOSE * len(typed | said)


def under(speculation: SpeculativeRecall, ledger: Ledger, *, enough: int) -> RecallAnswer | None:
    """Without what the model sees already. None when too little is left: only a query can tell what comes next (L3)."""
    prepared = speculation.prepared.peek()
    if prepared is None or ledger.seen_since != speculation.question.ledger.seen_since:
        return None
    hits = tuple(hit for hit in prepared.hits if not _is_visible(hit, ledger))
    if len(hits) < min(enough, len(prepared.hits)):
        return None
    kept = tuple(hit for hit in prepared.found.hits if not _is_visible(hit, ledger))
    return replace(prepared, hits=hits, found=replace(prepared.found, hits=kept))


def _is_visible(hit: Hit, ledger: Ledger) -> bool:
    return hit.entry.ref in ledger.refs or hit.entry.content_hash in ledger.message_hashes


@dataclass(slots=True)
class SpeculativeRecalls:
    """Of one conversation, at most one at a time. `sight` tells what is in sight of a host that hides its messages."""

    recaller: RecallClient
    supervisor: Supervisor
    ids: Ids
    sight: Callable[[ConversationScope], Awaitable[Ledger]]
    emit: Callable[..., None]
    current: SpeculativeRecall | None = None

    def expect(self, place: ConversationScope, text: str) -> None:
        """Nothing new is asked while what is typed stays close to what was asked for."""
        question = question_for(text, place, Ledger(), self.recaller.config)
        if question is None or (self.current is not None and is_close(self.current.question.text, question.text)):
            return
        self.drop("new_query")
        speculation = self.current = SpeculativeRecall(question, self.ids.new())
        self.emit("speculation_started", correlation=speculation.correlation)
        speculation.task = self.supervisor.start(self._run(speculation), "speculation")
        speculation.task.add_done_callback(lambda _: speculation.prepared.settle(None))

    async def _run(self, speculation: SpeculativeRecall) -> None:
        place = speculation.question.place
        try:
            if place.is_hidden:
                speculation.question = replace(speculation.question, ledger=await self.sight(place))
            now = self.recaller.clock.now()
            prepared, _ = await self.recaller.find(
                speculation.question, speculation.correlation, (), visible_bytes=0, now=now
            )
        except (AfterturnError, TimeoutError) as error:
            logger.warning("a recall ahead of the user's words failed: %s", type(error).__name__)
            return
        speculation.prepared.settle(prepared)

    async def take(self, prefetch: Prefetch, question: RecallQuestion) -> RecallAnswer | None:
        """What was recalled while this was being typed, if it is of use; then nothing else is asked."""
        speculation = self.current
        if speculation is None:
            return None
        if speculation.question.place != question.place or not is_close(speculation.question.text, question.text):
            self.drop("other_words")
            return None
        await speculation.prepared.wait(within=self.recaller.config.recall_timeout)
        if prefetch.fast.consumed or self.current is not speculation:
            return None
        prepared = under(speculation, question.ledger, enough=self.recaller.config.recall_entries_max)
        if prepared is None:
            self.drop("already_visible" if speculation.prepared.peek() else "failed")
            return None
        if not await self._holds(question, prepared) or self.current is not speculation:
            self.drop("stale")
            return None
        self.current = None
        prefetch.speculated = True
        self.emit("speculation_ended", turn=prefetch.turn, correlation=speculation.correlation, **_USED)
        return prepared

    async def _holds(self, question: RecallQuestion, prepared: RecallAnswer) -> bool:
        """Whether nothing of it was changed or forgotten since, by anybody (L7, M2), or came from what is said here."""
        now = self.recaller.clock.now()

        def work(unit: Unit) -> bool:
            if not all_hold(unit, question.place, prepared.found.hits, now):
                return False
            return not any_learned_from_visible(unit, question, prepared.hits)

        try:
            async with asyncio.timeout(self.recaller.config.recall_timeout):
                return await self.recaller.store.read(work)
        except (AfterturnError, TimeoutError):
            return False  # the store will not be asked in vain either: the recall that follows says what is wrong

    def drop(self, reason: str) -> None:
        speculation, self.current = self.current, None
        if speculation is None:
            return
        if speculation.task is not None:
            speculation.task.cancel()
        self.emit("speculation_ended", correlation=speculation.correlation, outcome="discarded", reason=reason)


_USED: dict[str, Scalar] = {"outcome": "used", "reason": "close"}
