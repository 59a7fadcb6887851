"""Proposals: what a sub-agent learned, stored for a person to approve, or at once if the host accepts it."""

from __future__ import annotations

import asyncio
import itertools
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from afterturn.config import Config
from afterturn.conversation.scope import ConversationScope
from afterturn.errors import AfterturnError, Conflict, InvalidInput, OverBudget
from afterturn.events import Events
from afterturn.guard.gate import Gate
from afterturn.guard.statement_writer import StatementWriter
from afterturn.log import logger
from afterturn.ports import Clock, Ids, Store, Unit
from afterturn.scanners.secrets import redact_within
from afterturn.text import regex
from afterturn.types import (
    Added,
    Admitted,
    ConversationKey,
    Draft,
    Metadata,
    Operation,
    Origin,
    Scalar,
    Scope,
    Status,
    Target,
    Verb,
)
from afterturn.validation import is_storable

PROPOSALS_MAX = 20
RESULT_CHARS_MAX = 65_536
# A shorter answer is one or two statements. Of a longer one, only the bullet points are statements.
SHORT_CHARS_MAX = 500
TASK_CHARS_MAX = 200
FAILURES_MAX = 3
_TURNS_MAX = 1_000
# Seconds that a write may take in addition to waiting for other processes.
WRITE_WITHIN = 1.0

_BULLET = regex(r"[ \t]{0,8}(?:[-*+•–]|\d{1,3}[.)])[ \t]+(?=\S)")
_FENCE = regex(r"[ \t]{0,8}(?:```|~~~)")


class ProposalContext(NamedTuple):
    """Where something was learned. `since` is the newest forget when the turn began: what was forgotten later must
    not be proposed."""

    scope: ConversationScope
    turn: str = ""
    since: int | None = None


@dataclass(slots=True)
class ProposalFailures:
    """Counts the failed calls of `remember_this` in one turn."""

    count: int = 0

    @property
    def is_enough(self) -> bool:
        return self.count >= FAILURES_MAX


@dataclass(slots=True)
class _Filed:
    """The entries that were added. `refused` is the error if there was no room for all."""

    added: list[Added]
    refused: OverBudget | None = None


class Proposals:
    """Used on memory's loop. The origin is always `subagent`, whatever the text or its arguments say."""

    def __init__(self, store: Store, gate: Gate, clock: Clock, ids: Ids, config: Config, events: Events) -> None:
        self._store = store
        self._gate = gate
        self._clock = clock
        self._ids = ids
        self._events = events
        self._write_timeout = config.busy_timeout + WRITE_WITHIN
        self._writer = StatementWriter(config)
        self._failures: OrderedDict[tuple[ConversationKey, str], ProposalFailures] = OrderedDict()

    def failures(self, scope: ConversationScope, turn: str) -> ProposalFailures:
        """One object for all tools of a turn. Between turns nothing is counted."""
        if not turn:
            return ProposalFailures()
        known = self._failures.setdefault((scope.key, turn), ProposalFailures())
        while len(self._failures) > _TURNS_MAX:
            self._failures.popitem(last=False)
        return known

    async def propose(
        self, context: ProposalContext, texts: Sequence[str], *, target: Target = Target.ENVIRONMENT, task: str = ""
    ) -> list[Added]:
        """Adds one proposal per text, in one transaction. For a text that is stored already, returns its entry.

        Raises InvalidInput for a text that the guard refuses, OverBudget if there is no room, Conflict if the
        conversation was forgotten meanwhile, StoreError or TimeoutError if it cannot be written.
        """
        filed = await self._file(context, [self._admit(context, text, target, task) for text in texts])
        if filed.refused is not None:
            raise filed.refused
        return filed.added

    async def returned(
        self, context: ProposalContext, task: str, texts: Sequence[str], *, accept: bool = False
    ) -> list[Added]:
        """Proposes the `statements` of a sub-agent's answer, or stores them at once if the host accepts them. What is
        refused is logged and reported as an event, not raised."""
        if not texts:
            self._refuse(context, "no_statements")
        if len(texts) > PROPOSALS_MAX:
            self._refuse(context, "too_many")
        admitted = self._admissible(context, texts[:PROPOSALS_MAX], task, accept=accept)
        if not admitted:
            return []
        try:
            filed = await self._file(context, admitted)
        except (AfterturnError, TimeoutError) as error:
            logger.warning("what a sub-agent learned is not proposed: %r", error)
            self._refuse(context, type(error).__name__)
            return []
        if filed.refused is not None:
            # The message of the error lists memories, which must not be logged.
            logger.warning("some of what a sub-agent learned is not proposed: memory is full")
            self._refuse(context, type(filed.refused).__name__)
        return filed.added

    async def _file(self, context: ProposalContext, admitted: Sequence[Admitted]) -> _Filed:
        group = self._ids.new()
        work = [(self._operation(context.scope, one.draft.target, group), one) for one in admitted]
        scope = Scope(context.scope.tenant, tuple({operation.space: None for operation, _ in work}))
        async with asyncio.timeout(self._write_timeout):
            filed = await self._store.write(lambda unit: self._add(unit, context, work), at=scope)
        for one in filed.added:
            if one.entry.status is Status.QUARANTINED:
                self._refuse(context, Status.QUARANTINED)
            elif one.created:
                self._emit(
                    "proposed" if one.entry.status is Status.PROPOSED else "memory_added",
                    context,
                    memory=one.entry.id,
                    version=one.entry.version,
                    verb=Verb.ADD.value,
                    operation=one.operation,
                    group=group,
                )
        return filed

    def _add(self, unit: Unit, context: ProposalContext, work: Sequence[tuple[Operation, Admitted]]) -> _Filed:
        scope = context.scope
        since = context.since
        if since is not None and any(
            unit.conversations.is_forgotten(scope.tenant, space, conversation=scope.id, speakers=(), since=since)
            for space in {scope.writes, scope.owner, scope.space_for(Target.ENVIRONMENT)}
        ):
            raise Conflict(f"Conversation {scope.id!r} has been forgotten, so nothing from it is stored.")
        filed = _Filed([])
        for operation, admitted in work:
            try:
                write = self._writer.put if admitted.draft.proposed else self._writer.add
                filed.added.append(write(unit, operation, admitted))
            except OverBudget as error:
                filed.refused = error
        return filed

    def _admissible(self, context: ProposalContext, texts: Sequence[str], task: str, *, accept: bool) -> list[Admitted]:
        admitted = []
        for text in texts:
            try:
                admitted.append(self._admit(context, text, Target.ENVIRONMENT, task, accept=accept))
            except InvalidInput as error:
                logger.warning("something that a sub-agent learned is not proposed: %s", error)
                self._refuse(context, type(error).__name__)
        return admitted

    def _admit(
        self, context: ProposalContext, text: str, target: Target, task: str, *, accept: bool = False
    ) -> Admitted:
        scope = context.scope
        draft = Draft(
            text=text,
            origin=Origin.SUBAGENT,
            target=target,
            agent=scope.agent,
            project=scope.project,
            conversation=scope.id,
            owner=None if scope.owner == scope.space_for(target) else scope.owner,
            turn=context.turn or None,
            metadata=self._metadata(task),
            proposed=not accept,
        )
        return self._gate.admit(draft)

    def _metadata(self, task: str) -> Metadata:
        """The task of the sub-agent, for the person who decides."""
        clean = redact_within(task, 2 * TASK_CHARS_MAX, self._gate.scanner).text
        asked = " ".join(clean.split())[:TASK_CHARS_MAX]
        return {"task": asked} if asked and is_storable(asked) else {}

    def _operation(self, scope: ConversationScope, target: Target, group: str) -> Operation:
        space = scope.space_for(target)
        return Operation(self._ids.new(), scope.tenant, space, Verb.ADD, Origin.SUBAGENT, self._clock.now(), group)

    def _refuse(self, context: ProposalContext, reason: str) -> None:
        self._emit("proposal_refused", context, reason=reason)

    def _emit(self, name: str, context: ProposalContext, **data: Scalar) -> None:
        scope = context.scope
        self._events.emit(name, space=scope.owner, conversation=scope.id, turn=context.turn, **data)


def statements(result: object) -> list[str]:
    """The statements of a result, at most `PROPOSALS_MAX` and one more. Of a long text its bullets, but not those in
    code; of a short one without bullets all of it."""
    if isinstance(result, str):
        text = result[:RESULT_CHARS_MAX]
        found = list(itertools.islice(_bullets(text), PROPOSALS_MAX + 1))
        return found or ([text.strip()] if text.strip() and len(text) <= SHORT_CHARS_MAX else [])
    return list(result[: PROPOSALS_MAX + 1]) if isinstance(result, list | tuple) else []


def _bullets(text: str) -> Iterator[str]:
    in_code = False
    for line in text.splitlines():
        if _FENCE.match(line):
            in_code = not in_code
        elif not in_code and (mark := _BULLET.match(line)):
            yield line[mark.end() :].strip()
