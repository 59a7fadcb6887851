"""Events: reports of what memory does, passed to the host and kept in the timeline.

Changes of memories are passed to the host only, because the store has their operations.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from afterturn.log import logger
from afterturn.ports import Clock
from afterturn.types import ContentEvent, Event, EventContent, Operation, Scalar, Status, Step, Undone

EVENTS: dict[str, str] = json.loads(Path(__file__).with_suffix(".json").read_bytes())
"""Descriptions of all events by name."""

BUFFER_MAX = 1000
_WAITING = frozenset([Status.PROPOSED, Status.WITHDRAWAL])


class MemoryChange(NamedTuple):
    """The effect of one operation on one memory: the name of its event, and the version that it left."""

    event: str
    memory: str
    version: int
    operation: Operation


def changes_in(steps: Iterable[Step]) -> list[MemoryChange]:
    """The changes by `steps` that models and people can see. `steps` are in the order of the store."""
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
