"""A recall for what the user is still typing: used when the final words are close to it, else discarded."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from afterturn.conversation.delivery import Prefetch
from afterturn.conversation.ledger import Ledger
from afterturn.conversation.prefetcher import RecallClient
from afterturn.conversation.read_turn import (
    RecallAnswer,
    all_valid,
    any_learned_from_visible,
    exclude_visible,
    make_question,
)
from afterturn.conversation.scope import ConversationScope
from afterturn.errors import AfterturnError
from afterturn.ports import Ids, Unit
from afterturn.recall.query import RecallRequest
from afterturn.runtime.once_future import OnceFuture
from afterturn.runtime.supervisor import Supervisor
from afterturn.text import terms
from afterturn.types import Hit

logger = logging.getLogger("afterturn")
# From this share of common words on, two texts find the same: one more word at the end, an ending, a typing mistake.
_CLOSE = 0.75


@dataclass(slots=True, eq=False)
class SpeculativeRecall:
    """`answer` settles with None if the recall failed."""

    question: RecallRequest
    scope: ConversationScope
    correlation: str
    answer: OnceFuture[RecallAnswer | None] = field(default_factory=OnceFuture)
    task: asyncio.Task[None] | None = None


def is_close(partial: str, final: str) -> bool:
    """Whether a recall for the one is as good as one for the other."""
    typed, said = frozenset(terms(partial)), frozenset(terms(final))
    return bool(typed) and len(typed & said) >= _CLOSE * len(typed | said)


@dataclass(slots=True)
class Speculation:
    """At most one recall at a time, of one conversation.

    `read_ledger` finds what the model of a host that hides its messages can see.
    """

    client: RecallClient
    supervisor: Supervisor
    ids: Ids
    read_ledger: Callable[[ConversationScope], Awaitable[Ledger]]
    emit: Callable[..., None]
    current: SpeculativeRecall | None = None

    def start(self, scope: ConversationScope, text: str) -> None:
        """Asks nothing while what is typed stays close to what was asked."""
        question = make_question(text, scope, Ledger(), self.client.config)
        if question is None or (self.current is not None and is_close(self.current.question.text, question.text)):
            return
        self.drop("new_query")
        speculation = self.current = SpeculativeRecall(question, scope, self.ids.new())
        self.emit("speculation_started", correlation=speculation.correlation)
        speculation.task = self.supervisor.start(self._run(speculation), "speculation")
        speculation.task.add_done_callback(lambda _: speculation.answer.settle(None))

    async def _run(self, speculation: SpeculativeRecall) -> None:
        scope = speculation.scope
        try:
            if scope.is_hidden:
                ledger = await self.read_ledger(scope)
                speculation.question = exclude_visible(speculation.question, scope, ledger)
            now, correlation = self.client.clock.now(), speculation.correlation
            answer, _ = await self.client.recall(speculation.question.asked(now=now, correlation=correlation))
        except (AfterturnError, TimeoutError) as error:
            logger.warning("a recall for a message that is being typed failed: %s", type(error).__name__)
            return
        speculation.answer.settle(answer)

    async def take(self, prefetch: Prefetch, scope: ConversationScope, question: RecallRequest) -> RecallAnswer | None:
        """The answer that was found while this was typed, if it can be used; then nothing else is asked."""
        speculation = self.current
        if speculation is None:
            return None
        if speculation.scope != scope or not is_close(speculation.question.text, question.text):
            self.drop("other_words")
            return None
        await speculation.answer.wait(within=self.client.config.recall_timeout)
        if prefetch.fast.consumed or self.current is not speculation:
            return None
        answer = _unseen(speculation, question, enough=self.client.config.recall_entries_max)
        if answer is None:
            self.drop("already_visible" if speculation.answer.peek() else "failed")
            return None
        if not await self._is_valid(question, answer) or self.current is not speculation:
            self.drop("stale")
            return None
        self.current = None
        prefetch.speculated = True
        self.emit(
            "speculation_ended",
            turn=prefetch.turn,
            correlation=speculation.correlation,
            outcome="used",
            reason="close",
        )
        return answer

    async def _is_valid(self, question: RecallRequest, answer: RecallAnswer) -> bool:
        """Whether none of it was changed or forgotten since, or learned from messages that the model sees."""
        now = self.client.clock.now()

        def work(unit: Unit) -> bool:
            if not all_valid(unit, question.scope, answer.found.hits, now):
                return False
            return not any_learned_from_visible(unit, question, answer.hits)

        try:
            async with asyncio.timeout(self.client.config.recall_timeout):
                return await self.client.store.read(work)
        except (AfterturnError, TimeoutError):
            return False  # the recall that follows reports what is wrong with the store

    def drop(self, reason: str) -> None:
        speculation, self.current = self.current, None
        if speculation is None:
            return
        if speculation.task is not None:
            speculation.task.cancel()
        self.emit("speculation_ended", correlation=speculation.correlation, outcome="discarded", reason=reason)


def _unseen(speculation: SpeculativeRecall, question: RecallRequest, *, enough: int) -> RecallAnswer | None:
    """The answer without what the model sees. None when too little is left: only a query can find what comes next."""
    answer = speculation.answer.peek()
    if answer is None or question.admitted.seen_since != speculation.question.admitted.seen_since:
        return None
    hits = tuple(hit for hit in answer.hits if not _is_visible(hit, question))
    if len(hits) < min(enough, len(answer.hits)):
        return None
    found = tuple(hit for hit in answer.found.hits if not _is_visible(hit, question))
    return replace(answer, hits=hits, found=replace(answer.found, hits=found))


def _is_visible(hit: Hit, question: RecallRequest) -> bool:
    return (
        hit.entry.ref in question.admitted.excluded_refs or hit.entry.content_hash in question.admitted.visible_hashes
    )
