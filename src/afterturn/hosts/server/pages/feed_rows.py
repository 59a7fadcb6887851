"""The rows of the live page: one for each turn, made of its events, and one for each change, made of its operation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from afterturn.hosts.server.pages.render import turn_link
from afterturn.types import Entry, Event, LoggedOperation, Origin, Outcome, Verb

# Rows that are kept; older ones are forgotten.
ROWS_MAX = 300
_TEXT_CHARS = 240
# What a person sees of a verb. A record is a turn, which has a row of its own.
VERBS = {
    Verb.ADD: "added",
    Verb.UPDATE: "changed",
    Verb.PROMOTE: "promoted",
    Verb.APPROVE: "approved",
    Verb.DELETE: "hid",
    Verb.HIDE: "changed the standing context",
    Verb.IMPORT: "imported",
    Verb.UNDO: "took back",
}
# The same while a person has not decided.
PROPOSED = {Verb.UPDATE: "proposed to change it to", Verb.DELETE: "proposed to delete"}
_ENDED = {"not_recorded": "not recorded", "turn_aborted": "given up"}


@dataclass(slots=True)
class FeedRow:
    """A row. `text` is the user's message, or the memory that changed. `undo` are pairs of a space and an operation or
    a group, and `changed` the ids of its memories. `learned` are texts of what a review saved."""

    id: str
    at: float
    space: str
    kind: str
    conversation: str = ""
    link: str = ""
    state: str = ""
    lines: int = 0
    milliseconds: float | None = None
    learned: list[str] = field(default_factory=list)
    review: str = ""
    said: str = ""
    actor: str = ""
    text: str = ""
    memory: str = ""
    changed: set[str | None] = field(default_factory=set)
    undo: list[tuple[str, str]] = field(default_factory=list)
    note: str = ""

    @property
    def tone(self) -> str:
        return {"failed": "bad", "late": "warn", "carried": "accent", "delivered": "good"}.get(self.state, "")

    def is_wanted(self, show: str) -> bool:
        """`show` is all, turns, changes or failed."""
        return show in ("", "all", f"{self.kind}s") or (show == "failed" and self.state == "failed")


class FeedRows:
    """Folds events and operations into rows. `day` is the time from which `counts` counts the states of turns."""

    def __init__(self, day: float) -> None:
        self.rows: dict[str, FeedRow] = {}
        self._day = day
        self._operations: set[str] = set()
        self._carried: set[tuple[str, str]] = set()

    def newest(self) -> list[FeedRow]:
        return sorted(self.rows.values(), key=lambda row: -row.at)

    def counts(self) -> Counter[str]:
        return Counter(row.state for row in self.rows.values() if row.kind == "turn" and row.at >= self._day)

    def add_event(self, event: Event) -> FeedRow | None:
        """The row that it changes; None if it is not about a turn."""
        if not event.turn:
            return None
        id, place = f"turn-{event.space}-{event.turn}", (event.space, event.conversation)
        row = self.rows.get(id) or self._new_turn(id, event.at, *place, event.turn, "silent")
        if row.state == "recorded":
            row.state = "silent"
        data = event.data
        match event.name:
            case "turn_started":
                row.note = {"off": "recall is off", "overload": "overload"}.get(str(data.get("no_recall") or ""), "")
                row.state = "failed" if row.note == "overload" else row.state
            case "recall_settled":
                row.milliseconds = float(str(data.get("milliseconds") or 0))
                row.note = (
                    f"without {data['missing']}".replace("_", " ").replace(",", ", ") if data.get("missing") else ""
                )
            case "recall_ended" if data.get("outcome") == Outcome.DEGRADED:
                row.state = "failed"
            case "recall_carried":
                row.state = "late"
                self._carried.add(place)
            case "handed_over":
                row.lines += int(str(data.get("memories") or 0))
                row.state = "carried" if place in self._carried else "delivered"
                self._carried.discard(place)
            case "standing_delivered":
                row.state = "delivered" if row.state == "silent" else row.state
                row.note = "standing block"
            case "not_recorded" | "turn_aborted":
                row.note = "incognito" if data.get("reason") == "incognito" else _ENDED[event.name]
        return row

    def add_message(self, entry: Entry, *, since: float) -> FeedRow | None:
        """The row of the turn that the user began with this message; None if it has one already. Turns from `since` on
        get a row before their events are stored."""
        owner = entry.owner or entry.space
        id = f"turn-{owner}-{entry.turn}"
        if entry.origin is not Origin.USER or entry.turn is None or entry.conversation is None:
            return None
        row = self.rows.get(id)
        if row is None and entry.recorded_at >= since:
            row = self._new_turn(id, entry.occurred_at, owner, entry.conversation, entry.turn, "recorded")
        if row is None or row.text:
            return None
        row.text = entry.text[:_TEXT_CHARS]
        return row

    def _new_turn(self, id: str, at: float, space: str, conversation: str, turn: str, state: str) -> FeedRow:
        address = turn_link(space, conversation, turn)
        self.rows[id] = row = FeedRow(id, at, space, "turn", conversation, address, state)
        return row

    def is_new(self, one: LoggedOperation) -> bool:
        """Whether it is to be shown: not yet, and not a recorded turn, which has a row of its own."""
        return one.verb is not Verb.RECORD and one.id not in self._operations

    def add_operation(
        self, one: LoggedOperation, learned: Entry | None = None, *, waits: bool = False
    ) -> list[FeedRow]:
        """The rows that it changes: that of the turn which `learned` was learned from, or a new one, and those of
        earlier changes of the same memory, which cannot be undone before this one. `waits`: in the inbox."""
        self._operations.add(one.id)
        changed = [row for row in self.rows.values() if row.undo and one.entry_id in row.changed]
        for earlier in changed:
            earlier.undo = []
        row = None if learned is None else self.rows.get(f"turn-{learned.owner or learned.space}-{learned.turn}")
        if row is not None:
            row.learned.append(one.text)
        else:
            id = f"change-{one.id}"
            said = PROPOSED.get(one.verb, "proposed") if waits else VERBS[one.verb]
            row = FeedRow(id, one.at, one.space, "change", said=said, actor=str(one.actor), text=one.text)
            row.note = "waits in the inbox" if waits else row.note
            row.memory = one.entry_id or ""
            row.note = f"and {one.entries - 1} more" if one.entries > 1 else row.note
            self.rows[id] = row
        row.undo = list(dict.fromkeys([*row.undo, (one.space, one.group or one.id)]))
        row.changed.add(one.entry_id)
        return [*changed, row]

    def trim(self) -> None:
        """Keeps the newest rows, and what today's counts need."""
        for row in self.newest()[ROWS_MAX:]:
            if row.at < self._day or row.kind == "change":
                del self.rows[row.id]


def is_change(
    event: Event, names: Collection[str] = ("changed_elsewhere", "undone", "proposed", "review_ended")
) -> bool:
    """Whether the operations of the event's space are to be read again."""
    return event.name in names or event.name.startswith(("memory_", "memories_", "proposal_"))
