"""What memory tells about itself: every event by name, handed to the host and kept in the timeline."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from afterturn.ports import Clock
from afterturn.types import Event, Scalar

logger = logging.getLogger("afterturn")

EVENTS = {
    "memory_opened": "The store is open and lexical recall is ready.",
    "memory_off": "`open(None)`: the same calls, no memory. Said once.",
    "memory_forked": "A memory was used in a forked child, where it gives nothing. Said once.",
    "memory_closed": "A turn was used after its memory was closed, and got nothing. Said once.",
    "vectors_ready": "The embedder is loaded; from now on recall uses vectors too.",
    "embedder_unavailable": "The embedder can not be loaded or asked (`reason`); recall goes on with words alone.",
    "embedding_progress": "A long backlog gets its vectors: entries `done` by one job, and `left` in the space.",
    "turn_started": "A turn began in a conversation; `no_recall` says why nothing is asked, where that is so.",
    "turn_aborted": "A turn ended without a finished answer (`reason`).",
    "recall_started": "A recall is under way; nobody waits for it.",
    "recall_settled": "A recall has its result: hits per lane, what is missing, milliseconds.",
    "recall_ended": "How a phase of a recall ended: `phase`, `outcome` and `reason`.",
    "recall_carried": "A recall settled too late for its turn, and is offered in the next one.",
    "refined_failed": "The model chose nothing usable (`reason`); the fast recall stands.",
    "speculation_started": "A recall began while the user was still typing.",
    "speculation_ended": "What became of it: `outcome` is used or discarded, with a `reason`.",
    "epoch_started": "Something new was said in a turn: `cause`, and which epoch of the turn it is.",
    "cue_refused": "The host named a new focus more often than `cues_max` allows.",
    "exclusions_exhausted": "All that is relevant was shown already, so what was shown long ago is offered again.",
    "compacted": "The host's context was compacted: told, or seen in its messages (`how`).",
    "blocks_put_back": "The host rebuilt its prompt; the blocks that were in it went back to their places.",
    "conversation_reset": "The conversation begins anew: nothing counts as shown, nothing is carried.",
    "window_share": "Memory takes more of the model's window than `window_share_max`.",
    "standing_changed": "The standing block was made anew: why, and from which files (`paths`).",
    "context_file_skipped": "A context file was not read (`reason`).",
    "history_compacted": "A history was summarised: messages and tokens before and after, or why not.",
    "delegated": "A task for a sub-agent was written, with so many memories.",
    "proposed": "A memory was proposed and waits for approval.",
    "proposal_refused": "What a sub-agent learned was not proposed (`reason`): too long, too many, nothing in it.",
    "tool_called": "A model called a memory tool: which one, and how many memories it was shown.",
    "tool_failed": "A memory tool could not do what was asked (`reason`); the model was told so.",
    "handed_over": "A block went into the host's messages: where, how many memories, bytes and tokens.",
    "recorded": "A turn's messages are durably stored.",
    "not_recorded": "A turn was left but nothing was stored (`reason`).",
    "record_cut": "A message was longer than `record_bytes_max` and was stored cut.",
    "recording_waits": "A turn could not be written yet; it waits in memory and in the spill folder.",
    "recording_recovered": "A turn that had to wait is stored now.",
    "review_scheduled": "A review was scheduled: `review`, `kind`, how many messages it is to read.",
    "review_ended": "How a review ended: `review`, `state`, what it wrote and proposed, how much was refused, and why.",
    "memories_saved": "With `review_verbose`, after a review that wrote something: `text` is for the user.",
    "secrets_redacted": "Secrets were taken out of a turn before it was stored: how many, and their `kinds`.",
    "withheld": "A memory was left out of a block since it would not be stored today: `memory`, `reason`.",
    "model_paused": "`tokens_per_day_max` is used up; refined recall and reviews pause (`purpose`).",
    "unknown_dialect": "The messages are in no format that memory reads; the turn goes on without it.",
    "job_failed": "A background job failed and will be tried again.",
    "job_dead": "A background job failed too often; `afterturn doctor` shows it.",
    "forgotten": "Something was erased: how many entries, and whether old bytes are still held by a reader.",
    "turns_abandoned": "Open turns that nobody came back to were closed.",
    "retention_ended": "Records past `records_retention_days` were erased, and statements that rest on them alone.",
}

BUFFER_MAX = 1000


class Events:
    """Hands events to the host at once and buffers them for the timeline. Lives on memory's thread."""

    def __init__(self, clock: Clock, tenant: str, on_event: Callable[[Event], None] | None) -> None:
        self._clock = clock
        self._tenant = tenant
        self._on_event = on_event
        self._buffer: deque[Event] = deque(maxlen=BUFFER_MAX)
        self._told: set[str] = set()
        self._wake: Callable[[], None] | None = None

    def when_buffered(self, wake: Callable[[], None]) -> None:
        """`wake` is called when there is something to store."""
        self._wake = wake

    def of(self, tenant: str) -> Events:
        """For what is done here on behalf of another tenant: its timeline gets the event, this host does not."""
        if tenant == self._tenant:
            return self
        other = Events(self._clock, tenant, None)
        other._buffer, other._wake = self._buffer, self._wake
        return other

    def drop(self, is_forgotten: Callable[[Event], bool]) -> None:
        """Takes back what is buffered about something that is being forgotten."""
        kept = [event for event in self._buffer if not is_forgotten(event)]
        self._buffer.clear()
        self._buffer.extend(kept)

    def emit(self, name: str, *, space: str = "", conversation: str = "", turn: str = "", **data: Scalar) -> None:
        assert name in EVENTS, f"{name} is not in EVENTS"
        event = Event(name, self._clock.now(), self._tenant, space, conversation, turn, data)
        self._tell(event)
        if space:
            self._buffer.append(event)
            if self._wake:
                self._wake()

    def tell_once(self, name: str, *, conversation: str = "", **data: Scalar) -> bool:
        """Hands an event to the host from whatever thread this is, the first time; for when memory's own is gone."""
        if not self.is_first(name):
            return False
        self._tell(Event(name, self._clock.now(), self._tenant, conversation=conversation, data=data))
        return True

    def is_first(self, what: str) -> bool:
        """True at the first call with `what`: for a warning that one memory logs once."""
        if what in self._told:
            return False
        self._told.add(what)
        return True

    def take(self) -> list[Event]:
        """What is to be stored; the buffer is empty afterwards."""
        taken = list(self._buffer)
        self._buffer.clear()
        return taken

    def _tell(self, event: Event) -> None:
        if self._on_event is None:
            return
        try:
            self._on_event(event)
        except BaseException:
            # The boundary: a host's handler must not break memory, nor end its thread. It awaits nothing, so whatever
            # comes out of it is its own, a cancellation too.
            logger.exception("the event handler failed on %s", event.name)
