"""Writes the state of one conversation in the background: open turns, blocks, traces of recalls, carried recalls.

Nothing waits for these writes. If the store fails, some are lost; what must not be lost is written with the recording.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from afterturn.config import SHAPING, Config
from afterturn.conversation.delivery import LoopTurn, PhaseRun, Prefetch, ReadyBlock, SharedTurn
from afterturn.conversation.read_turn import candidates_max
from afterturn.conversation.scope import ConversationScope
from afterturn.errors import AfterturnError, DeadlineExceeded, StoreError
from afterturn.log import logger
from afterturn.ports import Unit
from afterturn.types import (
    BlockRow,
    Candidate,
    CarriedRow,
    ConversationKey,
    Decision,
    Hit,
    Outcome,
    Phase,
    RecallRow,
    Scalar,
    Taint,
    TurnRow,
    TurnStatus,
)

if TYPE_CHECKING:
    from afterturn.services import Services

R = TypeVar("R")
# Of a space, for `afterturn trace`. A recall emits about ten events, and takes as much room as they do.
RECALLS_MAX = 1_000
# In all shorter than closing takes, and longer than other processes usually hold the store.
_RETRY_AFTER = (0.1, 0.4, 1.6)


class ConversationLog:
    """Used on memory's loop. Closing waits for writes that have begun. Without a store nothing is written.

    Tasks that write keep `owner`, the engine, alive. A host that opens the conversation meanwhile gets the same engine,
    which knows what is not in the store yet.
    """

    def __init__(self, services: Services, key: ConversationKey, owner: object) -> None:
        self._services = services
        self._key = key
        self._owner = owner
        self._clearing: set[asyncio.Task[None]] = set()

    # Turns.

    async def store_turn(self, turn: LoopTurn) -> None:
        key = self._key
        incognito = turn.shared.incognito
        user_hash = "" if incognito else turn.user_hash
        taint, started_at = turn.shared.taint, turn.shared.started_at
        row = TurnRow(turn.id, TurnStatus.OPEN, started_at, user_hash, taint=taint, incognito=incognito)

        def work(unit: Unit) -> bool:
            return unit.conversations.start_turn(key, row)

        try:
            turn.shared.stored.settle(await self._write(work, f"turn {turn.id!r}") is True)
        finally:
            turn.shared.stored.settle(False)

    def mark_incognito(self, turn: LoopTurn) -> None:
        """A stored turn has become incognito, by something that the user said in the middle of it."""

        async def write() -> None:
            await turn.shared.stored.wait(within=self._services.config.busy_timeout)
            await self._write(lambda unit: unit.conversations.mark_incognito(self._key, turn.id), f"turn {turn.id!r}")

        if self._services.has_store:
            self._services.recorder.expect(self._services.supervisor.start(write(), f"incognito turn {turn.id}"))

    async def find_turn(self, turn_id: str) -> TurnRow | None:
        """Raises DeadlineExceeded when the store does not answer in time."""
        if not self._services.has_store:
            return None
        timeout = self._services.config.recall_timeout
        try:
            async with asyncio.timeout(timeout):
                return await self._services.store.read(
                    lambda unit: unit.conversations.find_turn(self._key, turn_id), at=self._key.scope
                )
        except TimeoutError as error:
            raise DeadlineExceeded(f"The store did not answer within {timeout:g} seconds. Try again later.") from error

    def touch_turn(self, turn_id: str) -> None:
        """Notes that a host uses the turn again, so that it does not count as idle."""
        at = self._services.clock.now()
        self._start_write(
            lambda unit: unit.conversations.touch_turn(self._key, turn_id, at=at), f"the return to turn {turn_id!r}"
        )

    def taint_turn(self, turn: SharedTurn, taint: Taint) -> None:
        if self._services.has_store:
            task = self._services.supervisor.start(self._store_taint(turn, taint), f"taint of turn {turn.id}")
            self._services.recorder.expect(task)

    async def _store_taint(self, turn: SharedTurn, taint: Taint) -> None:
        await turn.stored.wait(within=self._services.config.busy_timeout)
        await self._write(
            lambda unit: unit.conversations.taint_turn(self._key, turn.id, taint), f"the taint of turn {turn.id!r}"
        )

    async def end_turn(self, turn: LoopTurn, status: TurnStatus) -> None:
        """Ends a turn whose messages are not recorded. `recorded` is settled when other processes can know it."""
        at = self._services.clock.now()
        # The store may have refused them when they were injected, and they are still in the host's list.
        blocks = [replace(_stored_block(turn, row), text="") for row in turn.shared.blocks]
        # The next list shows what was in it, unless the host hides its history.
        taint = turn.shared.taint or (Taint.UNKNOWN if turn.scope.is_hidden else None)

        def work(unit: Unit) -> None:
            for row in blocks:
                unit.conversations.add_block(self._key, row)
            unit.conversations.end_turn(self._key, turn.id, status=status, at=at, recorded=False, taint=taint)

        try:
            await turn.shared.stored.wait(within=self._services.config.busy_timeout)
            if turn.shared.opened.peek():
                await self._write(work, f"the end of turn {turn.id!r}")
        finally:
            turn.shared.recorded.settle(False)

    def abandon_turn(self, turn_id: str) -> None:
        at, status = self._services.clock.now(), TurnStatus.ABANDONED
        self._start_write(
            lambda unit: unit.conversations.end_turn(self._key, turn_id, status=status, at=at, recorded=False),
            f"the end of turn {turn_id!r}",
        )

    # Blocks.

    def add_block(self, turn: LoopTurn, row: BlockRow) -> asyncio.Task[None] | None:
        """Stores a block, so that another process that resumes the turn can recognise it."""
        row = _stored_block(turn, row)

        def work(unit: Unit) -> None:
            unit.conversations.add_block(self._key, row)

        return self._start_write(work, f"a block of turn {row.turn!r}")

    def clear(self, scope: ConversationScope, *, compacted: bool, still: Iterable[BlockRow] = ()) -> None:
        """The model no longer sees any earlier block, except those in `still`."""
        key, at, visible = scope.key, self._services.clock.now(), list(still)

        def work(unit: Unit) -> None:
            # First, because a block that was never stored would be taken for one that was lost.
            for row in visible:
                unit.conversations.add_block(key, row)
            unit.conversations.clear(key, at=at, compacted=compacted, still=[row.hash for row in visible])
            if compacted:
                # Also for a process that has no standing context of its own to renew.
                unit.conversations.put_standing(key, None)

        task = self._start_write(work, "a compaction", retry=False)
        if task is not None:
            self._clearing.add(task)
            task.add_done_callback(self._clearing.discard)

    async def wait_cleared(self) -> None:
        """Waits until every compaction that we know of is in the store, so that a read sees no older state.

        Bounded, because a failing store may never accept it.
        """
        if self._clearing:
            await asyncio.wait(set(self._clearing), timeout=self._services.config.busy_timeout)

    # Recalls.

    def add_recall(self, run: PhaseRun, delivered: Delivered | None) -> None:
        """Reports how a phase ended, and stores it for `afterturn trace`."""
        row = recall_row(run, self._services.config, delivered)
        self._services.events.emit(
            "recall_ended",
            space=self._key.space,
            conversation=self._key.id,
            turn=row.turn,
            correlation=row.correlation,
            phase=row.phase,
            outcome=row.outcome,
            reason=row.reason,
        )

        def work(unit: Unit) -> None:
            if not self._is_forgotten(unit, run.prefetch):
                unit.recalls.add(self._key, row, entries_max=RECALLS_MAX)

        self._start_write(work, f"the trace of turn {row.turn!r}")

    def carry(self, prefetch: Prefetch, runs: Sequence[PhaseRun]) -> CarriedRow:
        """Stores what a turn recalled too late, for the next turn of this or another process."""
        assert prefetch.question is not None
        assert prefetch.asked_at is not None
        row = CarriedRow(
            correlation=prefetch.correlation,
            turn=prefetch.turn,
            epoch=prefetch.epoch,
            question=prefetch.question.text,
            asked_at=prefetch.asked_at,
            settled_at=self._services.clock.now(),
            phases=tuple(run.phase for run in runs),
            candidates=_candidates(hit for run in runs for hit in run.hits),
            refined=tuple(hit.entry.ref for run in runs if run.phase is Phase.REFINED for hit in run.hits),
            cause=prefetch.cause,
            forgets=prefetch.forgets,
            speakers=prefetch.speakers,
        )

        def work(unit: Unit) -> None:
            if not self._is_forgotten(unit, prefetch):
                unit.conversations.carry(self._key, row)

        self._start_write(work, f"what turn {row.turn!r} carries over", retry=False)
        return row

    def drop_carried(self, correlation: str) -> None:
        self._start_write(
            lambda unit: unit.conversations.drop_carried(self._key, correlation), "the end of a carried recall"
        )

    def _is_forgotten(self, unit: Unit, prefetch: Prefetch) -> bool:
        """Whether the question must not be stored: its conversation, speaker or space was forgotten since."""
        key, spaces = self._key, {self._key.space}
        if prefetch.scope is not None:
            spaces.add(prefetch.scope.writes)
        return any(
            unit.conversations.is_forgotten(
                key.tenant, space, conversation=key.id, speakers=prefetch.speakers, since=prefetch.forgets
            )
            for space in spaces
        )

    # Writing.

    def _start_write(
        self, work: Callable[[Unit], object], what: str, *, retry: bool = True
    ) -> asyncio.Task[None] | None:
        """`retry` only for writes that may be made late, after later ones."""
        if not self._services.has_store:
            return None

        async def write() -> None:
            await self._write(work, what, retry=retry)

        task = self._services.supervisor.start(write(), what)
        self._services.recorder.expect(task)
        return task

    async def _write(self, work: Callable[[Unit], R], what: str, *, retry: bool = True) -> R | None:
        at = self._key.scope
        try:
            for pause in _RETRY_AFTER if retry else ():
                try:
                    return await self._services.store.write(work, at=at)
                except StoreError:
                    await asyncio.sleep(pause)
            return await self._services.store.write(work, at=at)
        except (AfterturnError, asyncio.CancelledError) as error:
            # Closing reports in one line what it had no time for, so each single write is only an info.
            closing = isinstance(error, asyncio.CancelledError)
            logger.log(logging.INFO if closing else logging.WARNING, "%s is not noted in the store: %r", what, error)
            if closing:
                raise
            return None


def _stored_block(turn: LoopTurn, row: BlockRow) -> BlockRow:
    """Without the anchor if the turn is incognito: that is a hash of what was said before the block."""
    return replace(row, anchor="") if turn.shared.incognito else row


# The stored trace of a recall, which explains later why each memory was shown or not. Pure.


class Delivered(NamedTuple):
    """The block in which a phase was handed over, and the phase's position among those that the block was made of."""

    row: BlockRow
    ready: ReadyBlock
    order: int


def recall_row(run: PhaseRun, config: Config, delivered: Delivered | None) -> RecallRow:
    """The trace of a phase that has ended. `made_at` and `order` in its settings say how its block was composed.

    A phase that was weighed for a block and has nothing in it names that block too: it may have influenced it.
    """
    prefetch, question, answer = run.prefetch, run.prefetch.question, run.prefetch.answer
    assert question is not None
    assert prefetch.asked_at is not None
    assert run.outcome is not None
    settings: dict[str, Scalar] = {name: getattr(config, name) for name in SHAPING}
    settings["candidates_max"] = candidates_max(config)
    if config.refined == "only":
        settings["refined"] = "only"
    if prefetch.speculated:
        settings["speculated"] = True
    if answer is not None:
        settings["score_kind"] = answer.score_kind
    if answer is not None and answer.exhausted:
        settings["exhausted"] = True
    if question.admitted.projects is not None:
        settings["projects"] = "\n".join(question.admitted.projects)
    if question.admitted.seen_since is not None:
        settings["seen_since"] = question.admitted.seen_since
    weighed = _weighed(run)
    if answer is not None and answer.is_cut:
        settings["candidates_max"] = len(weighed)
    row = RecallRow(
        correlation=prefetch.correlation,
        turn=prefetch.turn,
        epoch=prefetch.epoch,
        cause=prefetch.cause,
        phase=run.phase,
        question=question.text,
        asked_at=prefetch.asked_at,
        settled_at=run.settled_at,
        outcome=run.outcome,
        reason=run.reason,
        reads=question.scope.spaces,
        missing=answer.found.missing if answer else (),
        excluded=tuple(sorted(question.admitted.excluded_refs)),
        visible=tuple(sorted(question.admitted.visible_hashes)),
        visible_bytes=prefetch.visible_bytes,
        terms=tuple(sorted({term for hit in weighed for term in hit.terms})),
        candidates=_decided(run, weighed, delivered),
        settings=settings,
    )
    if prefetch.incognito:
        # Without the user's words, and without hashes of messages.
        row = replace(row, question="", terms=(), visible=(), settings={**settings, "incognito": True})
    if delivered is None:
        return row
    return replace(
        row,
        visible_bytes=delivered.ready.visible_bytes,
        settings={**row.settings, "made_at": delivered.ready.made_at, "order": delivered.order},
        point=delivered.row.point,
        block=delivered.row.hash,
        delivered_in=delivered.row.turn,
        delivered_at=delivered.row.injected_at,
    )


# Of a score: two decimals are shown, and a recall stores up to 128 candidates with three numbers each.
_DECIMALS = 5


def _candidates(hits: Iterable[Hit], decisions: Iterable[Decision | None] = repeat(None)) -> tuple[Candidate, ...]:
    return tuple(
        Candidate(
            ref=hit.entry.ref,
            space=hit.entry.space,
            lane=hit.lane,
            score=round(hit.score, _DECIMALS),
            lexical=round(hit.lexical, _DECIMALS),
            similarity=hit.similarity and round(hit.similarity, _DECIMALS),
            decision=decision,
            is_earlier=hit.is_earlier,
            answer=hit.answer.ref if hit.answer is not None else None,
        )
        for hit, decision in zip(hits, decisions, strict=False)
    )


def _weighed(run: PhaseRun) -> tuple[Hit, ...]:
    """The hits that were to be delivered, in order; then those that were left out."""
    answer = run.prefetch.answer
    found = answer.found.hits if answer is not None and run is run.prefetch.fast else ()
    offered = {hit.entry.ref for hit in run.hits}
    return (*run.hits, *(hit for hit in found if hit.entry.ref not in offered))


def _decided(run: PhaseRun, weighed: tuple[Hit, ...], delivered: Delivered | None) -> tuple[Candidate, ...]:
    answer = run.prefetch.answer
    worthy = frozenset(hit.entry.ref for hit in answer.hits) if answer is not None else frozenset()
    answers = frozenset(hit.answer.ref for hit in run.hits if hit.answer is not None)
    decisions = [
        _offered_decision(run, hit, delivered) if at < len(run.hits) else _left_out_decision(run, hit, worthy, answers)
        for at, hit in enumerate(weighed)
    ]
    return _candidates(weighed, decisions)


def _left_out_decision(run: PhaseRun, hit: Hit, worthy: frozenset[str], answers: frozenset[str]) -> Decision | None:
    """Why it was not to be delivered by itself. RESTATED: also in another's line, as one of the `answers`. STALE:
    changed, deleted or visible before it was offered."""
    answer = run.prefetch.answer
    if hit.entry.ref in answers:
        return Decision.QUARANTINED if hit.entry.ref in run.prefetch.withheld else Decision.RESTATED
    if run.phase is Phase.REFINED:
        # Only what a model selects is delivered; without a selection, nothing was decided.
        return Decision.NOT_SELECTED if run.hits or run.outcome is Outcome.EMPTY else None
    if answer is not None and hit.entry.ref in answer.restated:
        return Decision.RESTATED
    if answer is not None and any(hit.entry.ref == one.entry.ref for one in answer.standing):
        return Decision.VISIBLE
    if answer is not None and hit.entry.ref not in worthy:
        return Decision.FLOOR
    return Decision.STALE


def _offered_decision(run: PhaseRun, hit: Hit, delivered: Delivered | None) -> Decision | None:
    if hit.entry.ref in run.prefetch.withheld:
        return Decision.QUARANTINED
    if delivered is not None:
        if hit.entry.ref in delivered.ready.block.refs:
            return Decision.SHOWN
        return Decision.VISIBLE if hit.entry.ref in delivered.ready.visible_refs else Decision.BUDGET
    if run.outcome is not Outcome.DELIVERED and run.reason in (Decision.BUDGET, "already_visible"):
        return Decision.BUDGET if run.reason == Decision.BUDGET else Decision.VISIBLE
    return None
