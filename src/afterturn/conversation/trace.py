"""The trace of a conversation: what each turn recalled, what was delivered, what was left out and why.

Only reads. `recall/explain.py` explains each memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from afterturn.errors import InvalidInput, NotFound
from afterturn.ports import Unit
from afterturn.recall.explain import Explained, Explainer, describe_outcome, shown_first
from afterturn.text import estimate_tokens
from afterturn.types import (
    BlockRow,
    ConversationKey,
    Decision,
    Event,
    NoRecallReason,
    RecallRow,
    Scope,
    TurnRow,
    TurnStatus,
)
from afterturn.validation import check_id, check_name

LAST = "last"
TURNS_MAX = 10_000
_EVENTS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class TracedBlock:
    """A block as it was delivered. `tokens` is estimated.

    `text` is empty and `tokens` is None once a memory in it was forgotten. `refs` are the memories that the model knows
    from it, including those that another one restates; `memories` is how many it shows. `carried_from` are the numbers
    of the earlier turns in which they were recalled. `in_sight`: as far as is known, no compaction has removed it.
    """

    hash: str
    point: str
    injected_at: float
    size_bytes: int
    tokens: int | None
    memories: int
    refs: tuple[str, ...]
    carried_from: tuple[int, ...]
    text: str
    in_sight: bool = True


@dataclass(frozen=True, slots=True)
class TracedRecall:
    """One phase of a recall. `fate` says in words how it ended; `row` is all that was stored.

    `milliseconds` is the time until the result was ready. `turn` and `delivered_in` are numbers of turns.
    """

    turn: int | None
    delivered_in: int | None
    milliseconds: float | None
    fate: str
    shown: tuple[Explained, ...]
    left_out: tuple[Explained, ...]
    row: RecallRow


@dataclass(frozen=True, slots=True)
class TracedRule:
    """A standing rule that concerned a tool call. `why` are the words that decided, `ref` is the memory. `rule` is its
    text, blank if it was forgotten."""

    tool: str
    ref: str
    rule: str
    why: str
    refused: bool


@dataclass(frozen=True, slots=True)
class TracedTurn:
    """One turn, with the recalls that were started or delivered in it, and the rules that its tool calls were given.
    `number` counts from 1.

    `no_recall` says why there is no recall. `not_recorded` is the reason why an ended turn was not recorded, empty
    otherwise.
    """

    number: int
    turn: TurnRow
    blocks: tuple[TracedBlock, ...]
    recalls: tuple[TracedRecall, ...]
    no_recall: NoRecallReason | None = None
    not_recorded: str = ""
    rules: tuple[TracedRule, ...] = ()


NOT_RECORDED: Mapping[str, str] = {
    "no_final_answer": "the message list did not end with the assistant's answer; if you build a new list, pass it to "
    "turn.complete(messages)",
    "no_exchange": "the message list has no user message with an answer",
    "unknown_dialect": "the message format is unknown",
    "unreadable_messages": "the messages could not be read",
    "switched_off": "recording is off",
    "incognito": "it was incognito",
    "declined": "the recording provider declined it",
    "forgotten": "its conversation was forgotten",
    "queue_full": "too many turns were waiting to be stored",
    "closing": "memory closed before it was stored",
    "aborted": "the host gave it up",
    "left_with_exception": "the host left the turn with an exception",
    "abandoned": "the turn was never ended",
}
"""Why a turn was not recorded, in words, by the reason in its events. A host's own reason for aborting has no entry."""


@dataclass(frozen=True, slots=True)
class Trace:
    """The newest turns of a conversation, oldest first, out of `turns_total`."""

    space: str
    conversation: str
    turns_total: int
    turns: tuple[TracedTurn, ...]


@dataclass(frozen=True, slots=True)
class TraceAnswer:
    """Why a memory was, or was not, in one recall."""

    turn: int
    question: str
    asked_at: float
    phase: str
    explained: Explained


def check_turn(turn: str | int | None) -> str | int | None:
    if turn is None or (isinstance(turn, int) and not isinstance(turn, bool)):
        return turn
    return check_name(turn, "turn")


def check_ref(memory: str) -> str:
    """A memory's id, or an id, a dot and a version."""
    entry_id, _, version = memory.partition(".") if isinstance(memory, str) else (memory, "", "")
    check_id(entry_id)
    if version and not version.isdecimal():
        raise InvalidInput(f"{memory[:60]!r} is not a memory reference. Use an id, or id.version.")
    return memory


def find_turns(unit: Unit, key: ConversationKey, wanted: str | int | None = None) -> list[tuple[int, TurnRow]]:
    """All turns with their numbers, or the one that `wanted` names: an id, a number or "last". Raises NotFound."""
    numbered = list(enumerate(unit.conversations.turns(key), start=1))
    if not numbered:
        raise NotFound(
            f"There is no conversation {key.id!r} in {key.space}, or it has no turn yet. "
            "`afterturn list` shows the conversations of a space."
        )
    if wanted is None:
        return numbered
    # A host may call its turns "1" and "2", so an id comes before a number.
    found = [(number, turn) for number, turn in numbered if turn.id == str(wanted)]
    if not found and wanted == LAST:
        found = numbered[-1:]
    if not found and str(wanted).isdecimal():
        found = [(number, turn) for number, turn in numbered if number == int(wanted)]
    if not found:
        raise NotFound(
            f"Conversation {key.id!r} has no turn {wanted!r}. Use an id, a number from 1 to {len(numbered)}, or {LAST}."
        )
    return found


def trace(unit: Unit, key: ConversationKey, wanted: str | int | None, *, limit: int) -> Trace:
    everything = find_turns(unit, key)
    chosen = everything[-limit:] if wanted is None else find_turns(unit, key, wanted)
    numbers = {turn.id: number for number, turn in everything}
    blocks = unit.conversations.blocks(key)
    turns = [_traced(unit, key, numbers, blocks, turn) for _, turn in chosen]
    return Trace(key.space, key.id, len(everything), tuple(_with_reasons(unit, key, turns)))


def answers(
    unit: Unit, key: ConversationKey, wanted: str | int | None, memory: str, look_in: Sequence[str]
) -> list[TraceAnswer]:
    """Explains one memory for each recall of a turn, by default the last turn."""
    (number, turn), *_ = find_turns(unit, key, LAST if wanted is None else wanted)
    rows = unit.recalls.page(key, turn=turn.id)
    if not rows:
        raise NotFound(f"Turn {number} of {key.id!r} recalled nothing, so nothing was left out. Choose another turn.")
    return [
        TraceAnswer(number, row.question, row.asked_at, row.phase, Explainer(unit, key, row).about(memory, look_in))
        for row in rows
    ]


def _traced(
    unit: Unit, key: ConversationKey, numbers: dict[str, int], blocks: Sequence[BlockRow], turn: TurnRow
) -> TracedTurn:
    rows = unit.recalls.page(key, turn=turn.id)
    weighed_here = {row.block for row in rows if row.delivered_in == turn.id}
    own = [block for block in blocks if block.turn == turn.id or block.hash in weighed_here]
    texts = {block.hash: block.text for block in own}
    return TracedTurn(
        number=numbers[turn.id],
        turn=turn,
        blocks=tuple(_block(block, rows, numbers) for block in own),
        recalls=tuple(_recall(unit, key, numbers, row, texts.get(row.block, "")) for row in rows),
    )


def _with_reasons(unit: Unit, key: ConversationKey, turns: Sequence[TracedTurn]) -> Iterator[TracedTurn]:
    events: dict[str, list[Event]] = {}
    for event in unit.timeline.page(Scope(key.tenant, (key.space,)), conversation=key.id, limit=_EVENTS_MAX):
        events.setdefault(event.turn, []).append(event)
    for turn in turns:
        found = events.get(turn.turn.id, ())
        no_recall = None if turn.recalls else _no_recall(found)
        rules = tuple(_rule(unit, key.tenant, event) for event in found if event.name == "tool_rule")
        yield replace(turn, no_recall=no_recall, not_recorded=_not_recorded(turn.turn, found), rules=rules)


def _rule(unit: Unit, tenant: str, event: Event) -> TracedRule:
    tool, ref, space, why = (str(event.data.get(name, "")) for name in ("tool", "memory", "rule_space", "why"))
    found = unit.memories.versions(Scope(tenant, (space,)), [ref]).get(ref) if space else None
    return TracedRule(tool, ref, "" if found is None else found.text, why, bool(event.data.get("refused")))


def _no_recall(events: Sequence[Event]) -> NoRecallReason:
    """Why a turn has no recall, by its events."""
    if any(event.name == "recall_started" for event in events):
        return NoRecallReason.GONE
    reasons = [event.data.get("no_recall") for event in events if event.name == "turn_started"]
    if not reasons or reasons[0] is None:
        return NoRecallReason.UNKNOWN
    return NoRecallReason(str(reasons[0])) if reasons[0] else NoRecallReason.NOT_BEGUN


def _not_recorded(turn: TurnRow, events: Sequence[Event]) -> str:
    if turn.recorded_at is not None or turn.status is TurnStatus.OPEN:
        return ""
    if turn.incognito and turn.status is TurnStatus.COMPLETED:
        return "incognito"
    reasons = [event.data.get("reason") for event in events if event.name in ("not_recorded", "turn_aborted")]
    if turn.status is TurnStatus.ABANDONED or not reasons:
        return "unknown" if turn.status is TurnStatus.COMPLETED else str(turn.status)
    return str(reasons[-1])


def _block(block: BlockRow, rows: Sequence[RecallRow], numbers: dict[str, int]) -> TracedBlock:
    asked_in = {row.turn for row in rows if row.block == block.hash and row.turn != row.delivered_in}
    candidates = (one for row in rows if row.block == block.hash for one in row.candidates)
    shown = len({one.ref for one in candidates if one.decision is Decision.SHOWN})
    if not any(row.block == block.hash for row in rows):  # a standing line may have several sources
        shown = min(len(block.refs), sum(line.startswith("- ") for line in block.text.splitlines()))
    return TracedBlock(
        hash=block.hash,
        point=block.point,
        injected_at=block.injected_at,
        size_bytes=block.size_bytes,
        tokens=estimate_tokens(block.text) if block.text else None,
        memories=shown,
        refs=block.refs,
        carried_from=tuple(sorted(numbers[turn] for turn in asked_in if turn in numbers)),
        text=block.text,
        in_sight=block.in_sight,
    )


def _recall(unit: Unit, key: ConversationKey, numbers: dict[str, int], row: RecallRow, block: str) -> TracedRecall:
    explainer = Explainer(unit, key, row)
    shown, left_out = shown_first([*explainer.candidates(), *explainer.passed_over()])
    return TracedRecall(
        turn=numbers.get(row.turn),
        delivered_in=numbers.get(row.delivered_in),
        milliseconds=None if row.settled_at is None else round((row.settled_at - row.asked_at) * 1000, 2),
        fate=describe_outcome(row),
        shown=tuple(replace(one, text=_line(block, one.ref) or one.text) for one in shown),
        left_out=tuple(left_out),
        row=row,
    )


def _line(block: str, ref: str) -> str:
    """The line that the model read of a memory, without the reference."""
    start = f"- [{ref}] "
    return next((line.removeprefix(start) for line in block.splitlines() if line.startswith(start)), "")
