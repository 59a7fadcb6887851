"""Where finished turns are stored: memory's own store, a provider that the host passed, or nowhere."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from afterturn.conversation.recording import (
    Key,
    Recording,
    RecordingOutcome,
    RecordingResult,
    SinkKind,
    find_outcome,
    note_end,
    write_recording,
)
from afterturn.embedders.service import EmbeddingService
from afterturn.errors import DeadlineExceeded, MemoryClosed, StoreError
from afterturn.guard.gate import Gate
from afterturn.learning.scheduling import ReviewSchedule
from afterturn.log import logger
from afterturn.ports import Clock, Ids, Interaction, RecordingProvider, Store
from afterturn.types import Metadata, Scope

# Outages end within a day. A turn that a provider has not accepted by then is given up.
PATIENCE = 86_400.0
# If a provider hangs, further turns wait in the queue instead of in calls.
CALLS_MAX = 32
# Answers of a provider that are not in the store yet.
ANSWERS_MAX = 1000


class RecordSink(Protocol):
    """A place for finished turns. `in_order`: while one turn waits, so do all later ones, which would fail as well."""

    in_order: bool

    async def record(self, recording: Recording) -> RecordingResult:
        """Raises StoreError, DeadlineExceeded or MemoryClosed if it should be tried again later."""


@dataclass(frozen=True, slots=True)
class RecordSinks:
    """`own` stores the turns of this process. A turn that another process left goes to the sink that it names."""

    own: SinkKind
    found: Mapping[SinkKind, RecordSink]


class StoreSink:
    """Every message is a record in memory's own store, in one transaction with what follows from it."""

    in_order = True

    def __init__(
        self, store: Store, gate: Gate, ids: Ids, plan: ReviewSchedule, embedding: EmbeddingService | None
    ) -> None:
        self._store = store
        self._gate = gate
        self._ids = ids
        self._plan = plan
        self._embedding = embedding

    async def record(self, recording: Recording) -> RecordingResult:
        embedding = self._embedding
        embed = None if embedding is None else embedding.embed_written
        written = await self._store.write(
            lambda unit: write_recording(unit, recording, self._gate, self._ids, self._plan, embed),
            at=_scope(recording),
        )
        if embedding is not None and written.outcome is RecordingOutcome.STORED:
            embedding.note_written(recording.tenant, recording.space)
        return written


class NullSink:
    """Stores nothing, not even while the store cannot be written: a waiting file would contain what was said."""

    in_order = True

    def __init__(self, store: Store) -> None:
        self._store = store

    async def record(self, recording: Recording) -> RecordingResult:
        try:
            return await self._store.write(lambda unit: note_end(unit, recording, recorded=False), at=_scope(recording))
        except (StoreError, DeadlineExceeded, MemoryClosed) as error:
            logger.warning("the end of turn %r is not noted in the store: %r", recording.turn, error)
            return RecordingResult(RecordingOutcome.DECLINED)


class ProviderSink:
    """A provider stores the messages; our store only notes that the turn has ended, and whether it was accepted."""

    in_order = False

    def __init__(self, store: Store, clock: Clock, provider: RecordingProvider, timeout: float) -> None:
        """`timeout` limits each call of the provider, in seconds. No turn waits for it."""
        self._store = store
        self._clock = clock
        self._provider = provider
        self._timeout = timeout
        self._under_way: set[Key] = set()
        self._answers: OrderedDict[Key, bool] = OrderedDict()

    async def record(self, recording: Recording) -> RecordingResult:
        outcome = await self._store.read(lambda unit: find_outcome(unit, recording), at=_scope(recording))
        if outcome is not None:
            return RecordingResult(outcome)
        if recording.key not in self._answers and (failure := await self._ask_provider(recording)) is not None:
            return failure
        answer = self._answers[recording.key]
        written = await self._store.write(lambda unit: note_end(unit, recording, recorded=answer), at=_scope(recording))
        self._answers.pop(recording.key, None)
        return written

    async def _ask_provider(self, recording: Recording) -> RecordingResult | None:
        """Returns None if the provider has answered, else why it has not."""
        key = recording.key
        if key in self._under_way or len(self._under_way) >= CALLS_MAX:
            return RecordingResult(RecordingOutcome.WAITS, reason="busy")
        self._under_way.add(key)
        try:
            self._answers[key] = await self._call(recording)
        except _Failed as failed:
            is_late = self._clock.now() - recording.ended_at > PATIENCE
            return RecordingResult(RecordingOutcome.GIVEN_UP if is_late else RecordingOutcome.WAITS, reason=str(failed))
        finally:
            self._under_way.discard(key)
        while len(self._answers) > ANSWERS_MAX:
            self._answers.popitem(last=False)
        return None

    async def _call(self, recording: Recording) -> bool:
        scope = Scope(recording.tenant, (recording.owner,))
        interaction = Interaction(recording.messages, recording.turn, _metadata(recording))
        try:
            async with asyncio.timeout(self._timeout):
                return bool(await self._provider.record(scope, interaction))
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # This task was not cancelled: the provider raised it.
            raise _failed(recording, error) from error
        except (Exception, KeyboardInterrupt, SystemExit) as error:  # the boundary: a host's code behind the port
            raise _failed(recording, error) from error


class _Failed(Exception):
    """The message is the reason, in one word."""


def _failed(recording: Recording, error: BaseException) -> _Failed:
    logger.warning("the recording provider did not accept turn %r", recording.turn, exc_info=error)
    return _Failed(type(error).__name__)


def _scope(recording: Recording) -> Scope:
    """The records and the conversation."""
    return Scope(recording.tenant, tuple(dict.fromkeys((recording.space, recording.owner))))


def _metadata(recording: Recording) -> Metadata:
    named = {"agent": recording.agent, "project": recording.project, "subagent": recording.subagent or None}
    return {
        **recording.metadata,
        "conversation": recording.conversation,
        "writes": recording.space,
        "started_at": recording.started_at,
        "ended_at": recording.ended_at,
        **{name: value for name, value in named.items() if value is not None},
    }
