"""A recording: the messages of a finished turn, and the transaction that stores them."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from afterturn.errors import InvalidFile
from afterturn.guard.gate import Gate
from afterturn.guard.pasted import has_pasted
from afterturn.learning.scheduling import NO_REVIEWS, ReviewSchedule, ScheduledReview, schedule_after_turn
from afterturn.learning.snapshot import ORIGINS, snapshot_record
from afterturn.ports import Ids, Unit
from afterturn.types.conversations import Message, Taint, TurnStatus
from afterturn.types.entries import PASTED, ConversationKey, Entry, Kind, Origin, Scope, Status, Target, Verb
from afterturn.types.operations import Draft, Operation
from afterturn.types.rows import BlockRow, JobKind, ReviewKind, ReviewRow, StoredTurn, TurnRow, new_job

Key: TypeAlias = tuple[str, str, str, str]
EmbedWritten: TypeAlias = Callable[[Unit, str, str], bool]
"""Gives the new entries of a space, by tenant and name, their vectors. Returns False if that is left to a job."""


class SinkKind(StrEnum):
    """Where a turn is to be stored, by the settings when it ended: in memory's own store, by a provider, or nowhere."""

    MEMORY = "memory"
    PROVIDER = "provider"
    NOBODY = "nobody"


class RecordingOutcome(StrEnum):
    """The result of a recording. All but `stored` and `known` mean: not recorded, or not yet (`waits`)."""

    STORED = "stored"
    KNOWN = "known"
    FORGOTTEN = "forgotten"
    DECLINED = "declined"
    INCOGNITO = "incognito"
    WAITS = "waits"
    GIVEN_UP = "given_up"


@dataclass(frozen=True, slots=True)
class Recording:
    """A completed turn, ready to be written: plain values, so that it can wait in a file.

    `forgets` is the number of the newest forget when the turn began. `reads` are the spaces that its conversation
    may read. The messages of a `subagent` are recorded as its own. `redacted` are the kinds of secrets that
    were redacted in each message, and empty if there were none. `shown` are the memories in
    its blocks. `environment` is the space for what is learned about the environment, or blank for `space`. `taint` is
    what is known before they and the earlier turns are looked at.
    """

    tenant: str
    space: str
    conversation: str
    turn: str
    owner: str
    started_at: float
    forgets: int
    user_hash: str
    messages: tuple[Message, ...]
    agent: str | None = None
    project: str | None = None
    blocks: tuple[BlockRow, ...] = ()
    ended_at: float = 0.0
    metadata: dict[str, str] = field(default_factory=dict)
    reads: tuple[str, ...] = ()
    subagent: bool = False
    redacted: tuple[tuple[str, ...], ...] = ()
    kept_by: SinkKind = SinkKind.MEMORY
    shown: tuple[str, ...] = ()
    taint: Taint | None = None
    environment: str = ""

    @property
    def key(self) -> Key:
        """Unique in the store: the id of a turn is unique only in its conversation."""
        return (self.tenant, self.owner, self.conversation, self.turn)

    @property
    def speakers(self) -> set[str]:
        return {message.speaker for message in self.messages}

    def _check_types(self) -> None:
        """Raises TypeError. A file that fails later than this would keep all others waiting."""
        spoken = [part for one in self.messages for part in (one.role, one.text, one.speaker, one.hash)]
        optional = [value for value in (self.agent, self.project) if value is not None]
        texts = [*self.key, self.space, self.user_hash, self.environment, *self.reads, *self.shown, *spoken, *optional]
        for values, kind in ((texts, str), ((self.started_at, self.ended_at), int | float), ((self.forgets,), int)):
            if not all(isinstance(value, kind) for value in values):
                raise TypeError(f"a value is not of type {kind}")

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=True)

    @classmethod
    def from_json(cls, text: str) -> Recording:
        """Raises InvalidFile for a text that `to_json` did not write."""
        try:
            fields = json.loads(text)
            # A waiting file may be from an earlier version, which had another name for the number.
            fields["forgets"] = fields.pop("epoch") if "epoch" in fields else fields["forgets"]
            fields["messages"] = tuple(Message(**message) for message in fields["messages"])
            fields["blocks"] = tuple(BlockRow(**{**block, "refs": tuple(block["refs"])}) for block in fields["blocks"])
            fields["reads"] = tuple(fields.get("reads", ()))
            fields["redacted"] = tuple(tuple(kinds) for kinds in fields.get("redacted", ()))
            fields["kept_by"] = SinkKind(fields.get("kept_by", SinkKind.MEMORY))
            fields["shown"] = tuple(fields.get("shown", ()))
            taint = fields.get("taint", Taint.UNKNOWN)
            fields["taint"] = Taint(taint) if taint else None
            found = cls(**fields)
            found._check_types()
            return found
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise InvalidFile(
                f"A waiting recording cannot be read: {error}. Move the file away, or delete it."
            ) from error


class RecordingResult(NamedTuple):
    """`records` counts the messages that were stored. `reason`, one word, is why it waits or was given up. `has_jobs`:
    something is left to background jobs."""

    outcome: RecordingOutcome
    records: int = 0
    cut: int = 0
    scheduled: tuple[ScheduledReview, ...] = ()
    reason: str = ""
    has_jobs: bool = False


def is_exchange(messages: Sequence[Message]) -> bool:
    """Whether there is a user's text and an answer of the agent. Less than that is not recorded."""
    return any(m.role == "user" and m.text.strip() for m in messages) and any(
        m.role == "assistant" and m.text.strip() for m in messages
    )


def write_recording(
    unit: Unit,
    recording: Recording,
    gate: Gate,
    ids: Ids,
    plan: ReviewSchedule = NO_REVIEWS,
    embed: EmbedWritten | None = None,
) -> RecordingResult:
    """Writes turn, records, blocks, vectors and scheduled reviews in one transaction; a turn id is recorded once."""
    stored = _read_turn(unit, recording)
    if stored.is_forgotten:
        return RecordingResult(RecordingOutcome.FORGOTTEN)
    recording = replace(recording, taint=_find_taint(unit, recording, stored))
    if _is_incognito(stored):
        _end_turn(unit, recording, recorded=False)
        unit.conversations.mark_incognito(_conversation(recording), recording.turn)
        return RecordingResult(RecordingOutcome.INCOGNITO)
    if not _end_turn(unit, recording, recorded=True):
        return RecordingResult(RecordingOutcome.KNOWN)
    return _write_records(unit, recording, gate, ids, plan, embed, stored=stored)


def find_outcome(unit: Unit, recording: Recording) -> RecordingOutcome | None:
    """For a turn that a provider stores. Returns None if that is still to be done."""
    stored = _read_turn(unit, recording)
    if stored.is_forgotten:
        return RecordingOutcome.FORGOTTEN
    if _is_incognito(stored):
        return RecordingOutcome.INCOGNITO
    is_recorded = stored.turn is not None and stored.turn.recorded_at is not None
    return RecordingOutcome.KNOWN if is_recorded else None


def note_end(unit: Unit, recording: Recording, *, recorded: bool) -> RecordingResult:
    """Stores that the turn has ended, and whether a provider has `recorded` its messages."""
    stored = _read_turn(unit, recording)
    if stored.is_forgotten:
        return RecordingResult(RecordingOutcome.FORGOTTEN)
    recording = replace(recording, taint=_find_taint(unit, recording, stored))
    is_first = _end_turn(unit, recording, recorded=recorded)
    if not recorded:
        return RecordingResult(RecordingOutcome.DECLINED)
    return (
        RecordingResult(RecordingOutcome.STORED, len(recording.messages))
        if is_first
        else RecordingResult(RecordingOutcome.KNOWN)
    )


def _is_incognito(stored: StoredTurn) -> bool:
    """Whether incognito was switched on for the conversation before this turn was stored."""
    if stored.turn is not None and (stored.turn.incognito or stored.turn.recorded_at is not None):
        return stored.turn.incognito
    return stored.state.incognito


def _read_turn(unit: Unit, recording: Recording) -> StoredTurn:
    return unit.conversations.read_turn(
        _conversation(recording),
        recording.turn,
        writes=recording.space,
        speakers=recording.speakers,
        since=recording.forgets,
    )


def _end_turn(unit: Unit, recording: Recording, *, recorded: bool) -> bool:
    """Returns True for the first call that records it. Also stores the blocks of the turn."""
    key = _conversation(recording)
    is_first = unit.conversations.end_turn(
        key,
        recording.turn,
        status=TurnStatus.COMPLETED,
        at=recording.ended_at,
        recorded=recorded,
        taint=recording.taint,
        start=TurnRow(recording.turn, TurnStatus.OPEN, recording.started_at, recording.user_hash),
    )
    if is_first or not recorded:
        for block in recording.blocks:
            unit.conversations.add_block(key, block)
    return is_first


def _find_taint(unit: Unit, recording: Recording, stored: StoredTurn) -> Taint | None:
    if recording.taint is not None:
        return recording.taint
    scope = Scope(recording.tenant, tuple(dict.fromkeys((recording.space, recording.owner, *recording.reads))))
    if not _all_trusted(unit, scope, recording.shown):
        return Taint.MEMORY
    return Taint.EARLIER if stored.any_tainted else None


def find_stored_taint(unit: Unit, key: ConversationKey, scope: Scope, shown: Collection[str]) -> Taint | None:
    """The taint of a turn by what the store knows: the memories that it was `shown`, and the turns before it."""
    if not _all_trusted(unit, scope, shown):
        return Taint.MEMORY
    return Taint.EARLIER if unit.conversations.is_tainted(key) else None


def _all_trusted(unit: Unit, scope: Scope, refs: Collection[str]) -> bool:
    """Whether recalled versions are trusted. One that was forgotten meanwhile is not: nobody knows what it said."""
    found = unit.memories.versions(scope, refs)
    return all(ref in found and not found[ref].is_report for ref in refs)


def _conversation(recording: Recording) -> ConversationKey:
    return ConversationKey(recording.tenant, recording.owner, recording.conversation)


def _write_records(
    unit: Unit,
    recording: Recording,
    gate: Gate,
    ids: Ids,
    plan: ReviewSchedule,
    embed: EmbedWritten | None,
    *,
    stored: StoredTurn,
) -> RecordingResult:
    drafts = [_draft(recording, message, stored.next_position + at) for at, message in enumerate(recording.messages)]
    redacted = recording.redacted or ((),) * len(drafts)
    admitted = [
        entry
        for draft, kinds in zip(drafts, redacted, strict=True)
        if (entry := gate.admit_record(draft, lineage=_lineage(recording, draft), redacted=kinds)) is not None
    ]
    operation = Operation(ids.new(), recording.tenant, recording.space, Verb.RECORD, Origin.USER, recording.ended_at)
    entries = unit.records.add(operation, admitted)
    is_embedded = embed is not None and embed(unit, recording.tenant, recording.space)
    if not is_embedded:
        job = new_job(JobKind.EMBED, ids.new(), recording.tenant, recording.space, recording.ended_at)
        unit.jobs.add(job, coalesce=True)
    cut = sum("cut" in entry.reason for entry in admitted)
    scheduled = _follow_up(unit, recording, entries, plan, ids, forgets=stored.forgets)
    has_jobs = bool(scheduled) or not is_embedded
    return RecordingResult(RecordingOutcome.STORED, len(admitted), cut, scheduled, has_jobs=has_jobs)


def _lineage(recording: Recording, draft: Draft) -> tuple[int, ...]:
    """What an assistant says in a tainted turn may come from a tool, so it is trusted no more than a tool."""
    return (Origin.TOOL.trust,) if recording.taint is not None and draft.origin is Origin.AGENT else ()


def _follow_up(
    unit: Unit, recording: Recording, entries: Sequence[Entry], plan: ReviewSchedule, ids: Ids, *, forgets: int
) -> tuple[ScheduledReview, ...]:
    """Schedules what is learned from the turn later. Nothing is learned from a sub-agent's turns."""
    if recording.subagent or plan == NO_REVIEWS:
        return ()
    review = ReviewRow(
        id="",
        kind=ReviewKind.INTERVAL,
        tenant=recording.tenant,
        space=recording.owner,
        writes=recording.space,
        created_at=recording.ended_at,
        conversation=recording.conversation,
        turn=recording.turn,
        reads=recording.reads,
        agent=recording.agent,
        project=recording.project,
        environment=recording.environment,
        forgets=forgets,
    )
    turn = [snapshot_record(entry) for entry in entries if entry.status is Status.ACTIVE]
    return tuple(schedule_after_turn(unit, plan, review, turn, ids))


def _draft(recording: Recording, message: Message, position: int) -> Draft:
    # A clean turn has no pasted text.
    is_pasted = recording.taint is not None and message.role == "user" and has_pasted(message.text)
    return Draft(
        text=message.text,
        kind=Kind.RECORD,
        origin=Origin.SUBAGENT if recording.subagent else ORIGINS.get(message.role, Origin.TOOL),
        target=Target.USER if message.role == "user" else Target.ENVIRONMENT,
        agent=recording.agent,
        project=recording.project,
        conversation=recording.conversation,
        owner=recording.owner if recording.owner != recording.space else None,
        turn=recording.turn,
        position=position,
        speaker=message.speaker,
        occurred_at=recording.ended_at,
        metadata={**recording.metadata, PASTED: True} if is_pasted else recording.metadata,
    )
