"""What a conversation writes beside its turns: open turns, blocks, traces, what is carried. Nobody waits for it.

Bookkeeping may be missed by a store in trouble: what matters of a turn is written when it is recorded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from afterturn.config import Config
from afterturn.conversation.prefetch import PhaseRun, Prefetch
from afterturn.conversation.recorder import Recorder
from afterturn.conversation.scope import ConversationScope
from afterturn.conversation.turn_state import TurnState
from afterturn.errors import AfterturnError, DeadlineExceeded, StoreError
from afterturn.events import Events
from afterturn.ports import Clock, Store, Unit
from afterturn.runtime.supervisor import Supervisor
from afterturn.types import BlockRow, CarriedRow, ConversationKey, RecallRow, TurnRow, TurnStatus

logger = logging.getLogger("afterturn")
R = TypeVar("R")
# Together shorter than closing takes, and longer than other processes hold the store in passing.
_AGAIN_AFTER = (0.1, 0.4, 1.6)


@dataclass(frozen=True, slots=True)
class ConversationLog:
    """Of one conversation, on memory's loop. Closing waits for what was begun. Without a store nothing is kept.

    While something is being written, the `keeper` lives: whoever opens the conversation again then finds this one,
    which knows what the store has not heard yet.
    """

    key: ConversationKey
    store: Store | None
    supervisor: Supervisor
    recorder: Recorder
    clock: Clock
    config: Config
    events: Events
    keeper: object
    clearing: set[asyncio.Task[None]] = field(default_factory=set)

    async def store_turn(self, state: TurnState) -> None:
        key, at = self.key, self.clock.now()
        row = TurnRow(state.id, TurnStatus.OPEN, state.started_at, state.user_hash)

        def work(unit: Unit) -> bool:
            unit.conversations.open(key, at=at)
            return unit.conversations.start_turn(key, row)

        try:
            state.stored.settle(await self._written(work, f"turn {state.id!r}") is True)
        finally:
            state.stored.settle(False)

    async def find_turn(self, turn_id: str) -> TurnRow | None:
        """DeadlineExceeded when the store does not answer."""
        key = self.key
        if self.store is None:
            return None
        try:
            async with asyncio.timeout(self.config.recall_timeout):
                return await self.store.read(lambda unit: unit.conversations.find_turn(key, turn_id))
        except TimeoutError as error:
            raise DeadlineExceeded(
                f"The store did not answer within {self.config.recall_timeout:g} seconds. Try again later."
            ) from error

    def touch_turn(self, turn_id: str) -> None:
        """Somebody came back to it, so it is not idle."""
        key, at = self.key, self.clock.now()
        self._later(lambda unit: unit.conversations.touch_turn(key, turn_id, at=at), f"the return to turn {turn_id!r}")

    async def end_turn(self, state: TurnState, status: TurnStatus) -> None:
        key, at = self.key, self.clock.now()
        # The store may have refused them when they were injected, and they are still in the host's list.
        blocks = [replace(row, text="") for row in state.blocks]
        await state.stored.wait(within=self.config.busy_timeout)

        def work(unit: Unit) -> None:
            for row in blocks:
                unit.conversations.add_block(key, row)
            unit.conversations.end_turn(key, state.id, status=status, at=at, recorded=False)

        if state.read.peek():
            await self._written(work, f"the end of turn {state.id!r}")

    def abandon_turn(self, turn_id: str) -> None:
        key, at, status = self.key, self.clock.now(), TurnStatus.ABANDONED
        self._later(
            lambda unit: unit.conversations.end_turn(key, turn_id, status=status, at=at, recorded=False),
            f"the end of turn {turn_id!r}",
        )

    def delivered(self, row: BlockRow) -> asyncio.Task[None] | None:
        """Whoever resumes the turn elsewhere must know our own words from the user's."""
        key, at = self.key, self.clock.now()

        def work(unit: Unit) -> None:
            unit.conversations.open(key, at=at)
            unit.conversations.add_block(key, row)

        return self._later(work, f"a block of turn {row.turn!r}")

    def ended(self, run: PhaseRun, row: RecallRow) -> None:
        """How a phase ended: said at once, kept for `afterturn trace`."""
        self.events.emit(
            "recall_ended",
            space=self.key.space,
            conversation=self.key.id,
            turn=row.turn,
            correlation=row.correlation,
            phase=row.phase,
            outcome=row.outcome,
            reason=row.reason,
        )
        # A recall leaves about ten events, and weighs as much as they do.
        entries_max = self.config.timeline_entries_max // 10

        def work(unit: Unit) -> None:
            if not self._is_forgotten(unit, run.prefetch):
                unit.recalls.add(self.key, row, entries_max=entries_max)

        self._later(work, f"the trace of turn {row.turn!r}")

    def carry(self, row: CarriedRow, state: TurnState) -> None:
        def work(unit: Unit) -> None:
            if not self._is_forgotten(unit, state.current):
                unit.conversations.carry(self.key, row)

        self._later(work, f"what turn {row.turn!r} carries", insist=False)

    def drop_carried(self, correlation: str) -> None:
        self._later(lambda unit: unit.conversations.drop_carried(self.key, correlation), "the end of a carried recall")

    def clear(self, place: ConversationScope, *, compacted: bool, still: Iterable[BlockRow] = ()) -> None:
        """No block of the past is in sight, but those that `still` are."""
        key, at, visible = place.key, self.clock.now(), list(still)

        def work(unit: Unit) -> None:
            # First, since one that was never stored would be taken for one that was lost.
            for row in visible:
                unit.conversations.add_block(key, row)
            unit.conversations.clear(key, at=at, compacted=compacted, still=[row.hash for row in visible])
            if compacted:
                # Also for a process that has no standing context of its own to make anew.
                unit.conversations.put_standing(key, None)

        task = self._later(work, "a compaction", insist=False)
        if task is not None:
            self.clearing.add(task)
            task.add_done_callback(self.clearing.discard)

    async def cleared(self) -> None:
        """Until the store has heard of every compaction that we have: whoever looks into it then sees no older state.

        Bounded, since a store in trouble may never hear of it.
        """
        if self.clearing:
            await asyncio.wait(set(self.clearing), timeout=self.config.busy_timeout)

    def _is_forgotten(self, unit: Unit, prefetch: Prefetch) -> bool:
        """Whether what was asked is to be known no more: its conversation, its speaker or its space went (M2)."""
        key, question = self.key, prefetch.question
        spaces = {key.space} if question is None else {key.space, question.place.writes}
        return any(
            unit.conversations.is_forgotten(
                key.tenant, space, conversation=key.id, speakers=prefetch.speakers, since=prefetch.forgets
            )
            for space in spaces
        )

    def _later(self, work: Callable[[Unit], object], what: str, *, insist: bool = True) -> asyncio.Task[None] | None:
        """`insist` for what may come late: behind what follows it, it says the same."""
        if self.store is None:
            return None
        task = self.supervisor.start(self._write(work, what, insist=insist), what)
        self.recorder.expect(task)
        return task

    async def _write(self, work: Callable[[Unit], object], what: str, *, insist: bool) -> None:
        await self._written(work, what, insist=insist)

    async def _written(self, work: Callable[[Unit], R], what: str, *, insist: bool = True) -> R | None:
        try:
            return await self._insisted(work, _AGAIN_AFTER if insist else ())
        except (AfterturnError, asyncio.CancelledError) as error:
            # Closing says in one line what it had no time for; this is one of many.
            closing = isinstance(error, asyncio.CancelledError)
            logger.log(logging.INFO if closing else logging.WARNING, "%s is not noted in the store: %r", what, error)
            if closing:
                raise
            return None

    async def _insisted(self, work: Callable[[Unit], R], pauses: Iterable[float]) -> R:
        """Another process would take a block that it does not know for the user's words (C5)."""
        assert self.store is not None
        for pause in pauses:
            try:
                return await self.store.write(work)
            except StoreError:
                await asyncio.sleep(pause)
        return await self.store.write(work)
