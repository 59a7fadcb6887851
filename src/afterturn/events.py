"""Events: reports of what memory does, passed to the host and kept in the timeline.

Changes of memories are passed to the host only, because the store has their operations.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from afterturn.log import logger
from afterturn.ports import Clock
from afterturn.types import ContentEvent, Event, EventContent, Operation, Scalar, Status, Step, Undone

EVENTS = {
    "memory_opened": "The store is open and can be searched by words.",
    "memory_off": "Memory is off (`open(None)`): turns work, and nothing is recalled or recorded. Sent once.",
    "memory_forked": "Memory was used in a forked child process, where its calls do nothing. Sent once.",
    "memory_closed": "A turn was used after its memory was closed, where its calls do nothing. Sent once.",
    "vectors_ready": "The embedder is loaded. From now on recall uses vectors too.",
    "embedder_unavailable": "The embedder cannot be loaded or called (`reason`). Recall continues by words alone.",
    "word_table_unavailable": "The word table cannot be loaded (`reason`). Recall does not compare words by meaning.",
    "embedding_progress": "A job makes many vectors: entries that are `done`, and those `left` in the space.",
    "turn_started": "A turn started. If it starts no recall, `no_recall` says why.",
    "turn_aborted": "A turn ended without an answer (`reason`).",
    "recall_started": "A recall started in the background (`cause`).",
    "recall_settled": "A recall has its result: hits per lane, what is `missing`, `milliseconds`.",
    "recall_ended": "A phase of a recall ended: `phase`, `outcome`, `reason`.",
    "recall_carried": "A recall finished too late for its turn. The next turn offers its result.",
    "refined_failed": "The model made no usable selection (`reason`). The fast result is used.",
    "speculation_started": "A recall started while the user was still typing (`conversation.expect`).",
    "speculation_ended": "A recall for text that the user was typing was used or discarded (`outcome`, `reason`).",
    "epoch_started": "New input arrived during a turn: its `cause`, and the number of the `epoch`.",
    "cue_refused": "The host gave more cues in one turn than `cues_max` allows.",
    "exclusions_exhausted": "Everything relevant was shown already, so it is offered again (hidden history only).",
    "compacted": "The messages were compacted. `how`: `reported` by the host, or `seen` in the messages.",
    "blocks_put_back": "The host rebuilt its prompt without the `blocks`. They were put back in their places.",
    "tool_rule": "A standing rule concerned a tool call: the memory, the words that decided, whether it was refused.",
    "tool_rules_failed": "A tool call was not checked against the standing rules, because memory failed.",
    "briefed": "A conversation was given a briefing about the last one in its project.",
    "incognito_changed": "Incognito was switched on or off for the conversation, in the store.",
    "conversation_reset": "The conversation was reset: nothing counts as shown, and nothing is carried.",
    "window_share": "The visible blocks take more than `window_share_max` of `window_tokens`.",
    "standing_changed": "The standing block was rebuilt and is different: the `reason`, and its files (`paths`).",
    "context_file_skipped": "A context file was not read (`path`, `reason`).",
    "history_compacted": "`conversation.compact` ended: messages and tokens before and after, `reason`.",
    "delegated": "A task for a sub-agent was written: how many `memories` and `bytes` it contains.",
    "verb_ended": "A verb of a space ended: `verb`, `memories`, `milliseconds`; the `memory` or the `error`, if any.",
    "memory_added": "A memory can be recalled now: `memory`, `version`, `verb`, `operation`, `group`.",
    "memory_updated": "A memory has a new version. It has the same fields as `memory_added`, like the next four.",
    "memory_deleted": "A memory is not recalled any more. It still exists: `undo` brings it back.",
    "memory_quarantined": "A memory was stored, but no model sees it, because it seems to contain a secret.",
    "proposed": "A memory, a change or a deletion was proposed. It waits for approval.",
    "proposal_rejected": "A proposal was removed without being applied.",
    "undone": "An operation or a group of them (`undone`) was taken back: the new `operation`, how many `memories`.",
    "memories_imported": "`add_many` ended: the `group`, how many were `created`, and how many were there already.",
    "store_restored": "The content of the store was replaced with a backup.",
    "proposals_expired": "Proposals that nobody decided for `inbox_days` were rejected (`proposals` counts them).",
    "proposal_refused": "A finding of a sub-agent was not proposed (`reason`), for example because it is too long.",
    "tool_called": "A model called a memory tool: the `tool`, `milliseconds`, and `memories` that it got or proposed.",
    "tool_failed": "A memory tool failed (`tool`, `reason`, `milliseconds`). The model got an answer that says so.",
    "handed_over": "A block was added to the host's messages: the `point`, `memories`, `bytes`, `tokens`.",
    "recorded": "A turn that the host left at `ended_at` was recorded durably (`records`).",
    "not_recorded": "A turn was left and nothing was recorded (`reason`). With `ended_at`, recording it failed.",
    "record_cut": "Messages longer than `record_bytes_max` were cut when they were recorded (`records`).",
    "recording_waits": "A turn cannot be recorded yet (`reason`). It waits in memory and, if `spilled`, in a file.",
    "turns_left": "Memory was closed before all turns were stored: `waiting` in files, and `lost`.",
    "recording_recovered": "A turn that had to wait is recorded now.",
    "review_scheduled": "A review was scheduled: its id (`review`), its `kind`, and how many `messages` it will read.",
    "review_ended": "A review ended: `review`, `kind`, `state`, `reason`; the counts `written`, `proposed`, `refused`.",
    "memories_saved": "With `review_verbose`: how many memories a review `saved`, `changed` and `removed`; `text`.",
    "secrets_redacted": "Secrets were removed from a turn before it was recorded: how many (`secrets`), `kinds`.",
    "withheld": "A memory was not shown to a model, because the guard would quarantine it today (`memory`, `reason`).",
    "model_paused": "`tokens_per_day_max` is used up. Refined recall and reviews pause (`purpose`).",
    "unknown_dialect": "The format of the messages is unknown. The turn continues without memory.",
    "job_failed": "A background job failed and will be tried again (`kind`, `error`).",
    "job_dead": "A background job failed too often and was set aside. `afterturn doctor` shows it.",
    "memory_forgotten": "An entry was erased for good (`memory`).",
    "forgotten": "Entries were erased: how many (`erased`), and the `state`, `pending` while a reader holds old pages.",
    "turns_abandoned": "Open turns that were not continued for `turn_idle_timeout` were closed.",
    "retention_ended": "`records` past `records_retention_days` were erased, with `statements` learned only from them.",
}

BUFFER_MAX = 1000
_WAITING = frozenset([Status.PROPOSED, Status.WITHDRAWAL])


class MemoryChange(NamedTuple):
    """The effect of one operation on one memory: the name of its event, and the version that it left."""

    event: str
    memory: str
    version: int
    operation: Operation


def changes_in(steps: Iterable[Step]) -> list[MemoryChange]:
    """What the steps of some operations changed for models and people. `steps` are in the order of the store."""
    by_memory: dict[tuple[str, str], dict[int, list[Step]]] = {}
    for step in steps:
        by_memory.setdefault((step.operation.id, step.entry_id), {}).setdefault(step.version, []).append(step)
    changes = []
    for versions in by_memory.values():
        before, after = {taken[0].before for taken in versions.values()}, [taken[-1] for taken in versions.values()]
        event = _effect(before, {step.after for step in after})
        if event is not None:
            left = next((step for step in after if step.after is Status.ACTIVE), after[-1])
            changes.append(MemoryChange(event, left.entry_id, left.version, left.operation))
    return changes


def _effect(before: set[Status | None], after: set[Status]) -> str | None:
    if Status.ACTIVE in after:
        return "memory_updated" if Status.ACTIVE in before else "memory_added"
    if Status.ACTIVE in before:
        return "memory_deleted"
    if after & _WAITING:
        return "proposed"
    if before & _WAITING:
        return "proposal_rejected"
    return "memory_quarantined" if Status.QUARANTINED in after else None


class Events:
    """Passes events to the host at once and buffers them for the timeline. Used on memory's thread."""

    def __init__(self, clock: Clock, tenant: str, on_event: Callable[[Event], None] | None) -> None:
        self._clock = clock
        self._tenant = tenant
        self._on_event = on_event
        self._buffer: deque[Event] = deque(maxlen=BUFFER_MAX)
        self._emitted_once: set[str] = set()
        self._wake: Callable[[], None] | None = None

    def when_buffered(self, wake: Callable[[], None]) -> None:
        """`wake` is called when there are events to store."""
        self._wake = wake

    def of(self, tenant: str) -> Events:
        """Events of another tenant, whose job runs here. They go to its timeline, not to this host."""
        if tenant == self._tenant:
            return self
        other = Events(self._clock, tenant, None)
        other._buffer, other._wake = self._buffer, self._wake
        return other

    def drop(self, is_forgotten: Callable[[Event], bool]) -> None:
        """Removes buffered events about something that is being forgotten."""
        kept = [event for event in self._buffer if not is_forgotten(event)]
        self._buffer.clear()
        self._buffer.extend(kept)

    def emit(
        self,
        name: str,
        content: EventContent | None = None,
        /,
        *,
        space: str = "",
        conversation: str = "",
        turn: str = "",
        **data: Scalar,
    ) -> None:
        """`content` is passed on and not kept. Make it only if `wants_content`."""
        assert name in EVENTS, f"{name} is not in EVENTS"
        event = Event(name, self._clock.now(), self._tenant, space, conversation, turn, data)
        self._pass_on(event, content)
        if space:
            self._buffer.append(event)
            if self._wake:
                self._wake()

    @property
    def has_handler(self) -> bool:
        return self._on_event is not None

    @property
    def wants_content(self) -> bool:
        """Whether the host's handler asks for the texts that some events are about, as telemetry does by opt-in."""
        return getattr(self._on_event, "wants_content", False) is True

    def pass_on(self, name: str, content: EventContent | None = None, /, *, space: str = "", **data: Scalar) -> None:
        """Passes an event to the host and does not keep it."""
        assert name in EVENTS, f"{name} is not in EVENTS"
        self._pass_on(Event(name, self._clock.now(), self._tenant, space, data=data), content)

    def report_changes(self, steps: Sequence[Step]) -> None:
        """Passes on one event for each memory that the steps of committed operations changed."""
        for change in changes_in(steps) if self.has_handler else ():
            made = change.operation
            self.pass_on(
                change.event,
                space=made.space,
                memory=change.memory,
                version=change.version,
                verb=made.verb.value,
                operation=made.id,
                group=made.group or "",
            )

    def report_undone(self, space: str, target: str, undone: Undone) -> None:
        """Passes on one event for the undo of `target`, and one for each memory that it changed."""
        changed = len({step.entry_id for step in undone.steps})
        self.pass_on("undone", space=space, undone=target, operation=undone.operation, memories=changed)
        self.report_changes(undone.steps)

    def emit_once(self, name: str, *, conversation: str = "", **data: Scalar) -> bool:
        """Passes an event to the host on the calling thread, the first time only. Works after memory has closed."""
        if not self.is_first(name):
            return False
        self._pass_on(Event(name, self._clock.now(), self._tenant, conversation=conversation, data=data))
        return True

    def is_first(self, what: str) -> bool:
        """True at the first call with `what`: for a warning that one memory logs once."""
        if what in self._emitted_once:
            return False
        self._emitted_once.add(what)
        return True

    def take(self) -> list[Event]:
        """Empties the buffer and returns the events to store."""
        taken = list(self._buffer)
        self._buffer.clear()
        return taken

    def _pass_on(self, event: Event, content: EventContent | None = None) -> None:
        if self._on_event is None:
            return
        if content is not None:
            at, where = event.at, (event.tenant, event.space, event.conversation, event.turn)
            event = ContentEvent(event.name, at, *where, event.data, content=content)
        try:
            self._on_event(event)
        except BaseException:
            # The boundary: a host's handler must not break memory or end its thread. Nothing is awaited in it, so a
            # CancelledError is its own too.
            logger.exception("the event handler failed on %s", event.name)
