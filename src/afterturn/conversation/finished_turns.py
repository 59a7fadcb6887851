"""Ends the turns of one conversation: records what was said in them, or reports why not.

The path of a finished turn: `leave` (host) > `_record` > `recorder.make_recording` > `Recorder.enqueue`.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from afterturn.conversation.delivery import HostTurn, LoopTurn, TurnMessages
from afterturn.conversation.recall_client import OVERLOAD
from afterturn.conversation.recorder import INCOGNITO, NO_FINAL_ANSWER, SWITCHED_OFF, make_recording
from afterturn.conversation.recording import Recording
from afterturn.conversation.scope import ConversationScope
from afterturn.errors import AfterturnError
from afterturn.log import logger
from afterturn.types import Outcome, Taint, TurnStatus

if TYPE_CHECKING:
    from afterturn.conversation.engine import ConversationEngine
    from afterturn.services import Services


class FinishedTurns:
    """Hosts call `leave` and `abort` on any thread; the rest runs on memory's loop."""

    def __init__(self, services: Services, engine: ConversationEngine) -> None:
        self._services, self._engine = services, engine
        self._visible, self._log, self._prefetcher = engine.visible, engine.log, engine.prefetcher

    def leave(self, turn: HostTurn, messages: TurnMessages, *, completed: bool, failed: bool) -> None:
        """The host is done with the turn: memory's loop records it, or a file takes it if too many wait there."""
        recorder, is_added, reason = self._services.recorder, False, ""
        if failed and not completed:
            self._engine.post(self._abort, turn.loop, "left_with_exception")
            return
        if not self._services.has_store or recorder.admit():
            self._engine.post(self._leave, turn.loop, messages, completed=completed, admitted=self._services.has_store)
            return
        try:
            recording, reason = self._make_recording(replace(turn.loop), messages, completed=completed)
            is_added = recording is not None and recorder.append(recording)
        except Exception:  # the boundary: memory's loop tries it, and reports why it fails
            logger.exception("conversation %r: a turn cannot be added to a file", self._engine.key.id)
        if is_added or reason:
            self._engine.post(self._leave_added, turn.loop, reason)
        else:
            self._engine.post(self._leave, turn.loop, messages, completed=completed, admitted=False)

    def abort(self, turn: HostTurn, reason: str) -> None:
        self._engine.post(self._abort, turn.loop, reason)

    def _leave(self, turn: LoopTurn, messages: TurnMessages, *, completed: bool, admitted: bool) -> None:
        make = functools.partial(self._make_recording, turn, messages, completed=completed)
        task = self._start_ending(turn, self._record(turn, make))
        self._services.recorder.track_reading(turn, lambda: make()[0], task, admitted=admitted)
        self._services.recall_client.note_ended(turn.scope, turn.shared.recorded)

    def _leave_added(self, turn: LoopTurn, reason: str) -> None:
        """A turn that memory had no room for has ended: it is in a file, or is not recorded for this reason."""
        if reason:
            self._services.recorder.expect(self._start_ending(turn, self._end_unrecorded(turn, reason)))
            return
        self._prefetcher.leave(turn)
        self._engine.remove_open(turn)
        self._services.recorder.note_appended(turn)
        self._services.recall_client.end_turn(turn.shared)
        self._engine.emit("recording_waits", turn=turn.id, reason=OVERLOAD, spilled=True)

    def _start_ending(self, turn: LoopTurn, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        self._prefetcher.leave(turn)
        self._engine.remove_open(turn)
        task = self._services.supervisor.start(work, f"leave turn {turn.id}")
        task.add_done_callback(lambda task: self._left(turn, cancelled=task.cancelled()))
        return task

    def _left(self, turn: LoopTurn, *, cancelled: bool) -> None:
        if cancelled:
            turn.shared.recorded.settle(False)
        self._services.recall_client.end_turn(turn.shared)

    def _make_recording(
        self, turn: LoopTurn, messages: TurnMessages, *, completed: bool
    ) -> tuple[Recording | None, str]:
        """The recording by what is known now, or None and the reason. On a host's thread, pass a copy of the turn."""
        if not turn.shared.opened.peek():
            self._engine.find_user_text(turn)
            if self._engine.known_incognito:
                turn.shared.mark_incognito()
            if self._engine.has_untrusted:
                turn.shared.mark_tainted(Taint.MEMORY)
        blocks, at = self._visible.copy(), self._services.clock.now()
        return make_recording(turn, messages, blocks, self._services.config, ended_at=at, completed=completed)

    async def _record(self, turn: LoopTurn, make: Callable[[], tuple[Recording | None, str]]) -> None:
        if not self._services.has_store:
            turn.shared.recorded.settle(False)
            return
        try:
            await turn.shared.opened.wait(within=self._services.config.recall_timeout)
            await self._load_blocks(turn.scope)
            recording, reason = make()
        except Exception as error:
            turn.shared.recorded.settle(False)
            self._engine.emit("not_recorded", turn=turn.id, reason=type(error).__name__)
            raise
        if recording is not None:
            self._services.recorder.enqueue(recording, turn.shared.recorded)
            return
        await self._end_unrecorded(turn, reason)

    async def _end_unrecorded(self, turn: LoopTurn, reason: str) -> None:
        self._engine.emit("not_recorded", turn=turn.id, reason=reason)
        if reason == INCOGNITO and not turn.shared.incognito:
            # The user's words were not reported, and are found only in the finished list.
            turn.shared.mark_incognito()
            self._log.mark_incognito(turn)
        if reason in (SWITCHED_OFF, INCOGNITO):
            await self._log.end_turn(turn, TurnStatus.COMPLETED)
            return
        if reason == NO_FINAL_ANSWER and self._services.events.is_first(NO_FINAL_ANSWER):
            logger.warning(
                "conversation %r: a turn was not recorded, because the message list that it was given does not end "
                "with the assistant's answer. Append the answer to that list. If you build a new list instead, such "
                "as `messages + [reply]`, pass it: turn.complete(messages).",
                self._engine.key.id,
            )
        # It had no answer, so it carries nothing over, though the next turn may have begun.
        self._prefetcher.abandon(turn)
        if self._engine.current is not None and self._engine.current is not turn:
            self._prefetcher.offer(self._engine.current)
        await self._log.end_turn(turn, TurnStatus.ABORTED)

    async def _load_blocks(self, scope: ConversationScope) -> None:
        """The blocks that any process has injected. A store that cannot be read must not cost the turn."""
        try:
            async with asyncio.timeout(self._services.config.recall_timeout):
                rows = await self._services.store.read(
                    lambda unit: unit.conversations.blocks(scope.key), at=scope.key.scope
                )
        except (AfterturnError, TimeoutError) as error:
            logger.warning("conversation %r: blocks of other processes are not known: %r", self._engine.key.id, error)
            return
        self._visible.add_unknown(rows)

    def _abort(self, turn: LoopTurn, reason: str) -> None:
        self._prefetcher.stop_all(turn, Outcome.CANCELLED, "abort")
        turn.left = True
        self._engine.remove_open(turn)
        self._services.recall_client.end_turn(turn.shared)
        if self._services.has_store:
            self._engine.emit("turn_aborted", turn=turn.id, reason=reason)
            self._services.supervisor.start(self._log.end_turn(turn, TurnStatus.ABORTED), f"abort turn {turn.id}")
        else:
            turn.shared.recorded.settle(False)
