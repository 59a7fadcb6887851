"""Turn: what reached the model in one turn, why, and what to do about a line that is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from starlette.responses import Response
from starlette.routing import BaseRoute

from afterturn.config import SHAPING
from afterturn.conversation.conversation import Conversation
from afterturn.conversation.replay import Replay, check_changes
from afterturn.conversation.trace import NOT_RECORDED, TracedBlock, TracedRecall, TracedTurn
from afterturn.errors import ConfigError, InvalidInput, NotFound
from afterturn.hosts.server.api_conversations import readable_refs
from afterturn.hosts.server.pages.render import turn_link
from afterturn.hosts.server.pages.request import PageRequest, page_route
from afterturn.recall.explain import CAUSES, Explained
from afterturn.types import (
    Decision,
    Entry,
    Event,
    Filter,
    HandoverPoint,
    Hit,
    Kind,
    Lane,
    NoRecallReason,
    Outcome,
    Phase,
    RecallRow,
    Scalar,
    Status,
)

if TYPE_CHECKING:
    from afterturn.hosts.server.app import Service

# How many memories that were left out are shown at once.
_LEFT_OUT_SHOWN = 8
_RECORDS_MAX = 1000
_EVENTS_MAX = 10_000
# The width of a step that took no time, in percent.
_BAR_MIN = 0.4
_FOUND_MAX = 20
NO_RECALL = {
    NoRecallReason.OFF: "Recall was switched off.",
    NoRecallReason.NOTHING_TO_ASK: "The message asks nothing, so nothing was recalled.",
    NoRecallReason.OVERLOAD: "More turns began than memory could serve, so nothing was recalled.",
    NoRecallReason.NOT_BEGUN: "The turn ended before a recall began.",
    NoRecallReason.GONE: "Its recall is no longer stored.",
    NoRecallReason.UNKNOWN: "It has no recall: there was nothing to ask, recall was off, or its trace was removed.",
}
WHERE = {
    HandoverPoint.USER_MESSAGE: "after the user’s message",
    HandoverPoint.TOOL_RESULT: "after a tool’s result",
    HandoverPoint.PROMPT: "as text for the host’s prompt",
    HandoverPoint.STANDING: "after the user’s message, as the standing block",
}


@dataclass(frozen=True, slots=True)
class StateOfTurn:
    """What became of a turn's recall, in a word, with a tone for its chip, and in a sentence."""

    word: str
    tone: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Line:
    """A memory in a turn. `entry` is its version of now, None if it was forgotten; `explained` is None for a line of a
    standing block, which no recall chose. `is_restated`: another line says the same in its place."""

    ref: str
    text: str
    entry: Entry | None
    explained: Explained | None = None
    is_restated: bool = False

    @property
    def changed_to(self) -> Entry | None:
        """The version that replaced what was shown."""
        return self.entry if self.entry is not None and self.entry.ref != self.ref else None


@dataclass(frozen=True, slots=True)
class Weighed:
    """One recall with its memories. `left_out_total` counts also those that are not in `left_out`."""

    recall: TracedRecall
    cause: str
    shown: Sequence[Line]
    left_out: Sequence[Line]
    left_out_total: int


@dataclass(frozen=True, slots=True)
class TimelineStep:
    """A step of the timeline, from `start` to `end` in milliseconds since the user's message. `x` and `width` are its
    place in the picture, in percent."""

    name: str
    start: float
    end: float
    x: float = 0.0
    width: float = 0.0


def routes(service: Service) -> list[BaseRoute]:
    return [page_route(service, "/turns/{turn:path}", show_turn)]


async def show_turn(page: PageRequest) -> Response:
    wanted = page.path["turn"]
    owner, id = await _find_conversation(page, wanted)
    conversation = await page.past_conversation(id, owner)
    trace = await conversation.trace(wanted, limit=1)
    readable = await readable_refs(page, conversation, trace)
    traced = trace.turns[0]
    turn = traced.turn.id
    incognito = traced.turn.incognito
    blocks = [replace(one, text="") if incognito or not readable.shows(one) else one for one in traced.blocks]
    events = await (await page.reading(owner, "inspect")).trace(conversation=id, limit=_EVENTS_MAX)
    own_events = [event for event in events if event.turn == turn]
    messages, learned = await _said_and_learned(page, traced, owner, id)
    spaces = [one.name for one in await page.spaces()]
    return page.render(
        "turn.html",
        nav="Live",
        title=f"Turn {traced.number} of {id}",
        owner=owner,
        conversation=id,
        traced=traced,
        turns_total=trace.turns_total,
        state=state_of(traced, own_events),
        where=WHERE,
        blocks=blocks,
        messages=messages,
        learned=learned,
        standing=await _standing_lines(page, blocks, (owner, *spaces)),
        weighed=[] if incognito else [await _weigh(page, one) for one in traced.recalls],
        no_recall=NO_RECALL[traced.no_recall] if traced.no_recall is not None else "",
        not_recorded=NOT_RECORDED.get(traced.not_recorded, traced.not_recorded),
        timeline=_timeline(traced, own_events),
        around=_neighbours(owner, id, turn, events),
        spaces=[name for name in spaces if page.caller.grant.may_write(name)],
        what_if=await _what_if(page, conversation, traced, shows_all=all(map(readable.shows, traced.blocks))),
    )


async def _find_conversation(page: PageRequest, turn: str) -> tuple[str, str]:
    """The owner and the id of a turn's conversation: as the address says, or looked up in every readable space."""
    owner, conversation = page.query.get("owner"), page.query.get("conversation")
    if owner and conversation:
        return owner, conversation
    for one in [owner] if owner else [space.name for space in await page.spaces()]:
        found = await (await page.reading(one, "inspect")).conversations(turn=turn, limit=1)
        if found:
            return one, found[0]
    raise NotFound(f"There is no turn {turn[:60]!r} in the spaces that you may read. It may have been forgotten.")


def state_of(traced: TracedTurn, events: Iterable[Event]) -> StateOfTurn:
    """The state that a person should see first; `events` are those of the turn."""
    own = [one for one in traced.recalls if one.turn == traced.number]
    if traced.turn.incognito:
        return StateOfTurn("incognito", "", "Nothing of this turn was recorded or learned, so its texts are not here.")
    is_degraded = any(one.row.outcome is Outcome.DEGRADED for one in own)
    if is_degraded or traced.no_recall is NoRecallReason.OVERLOAD:
        fate = next((one.fate for one in own if one.row.outcome is Outcome.DEGRADED), "memory was overloaded")
        return StateOfTurn("failed", "bad", f"The recall failed: {fate}.")
    lines = sum(one.memories for one in traced.blocks)
    if traced.blocks and any(one.delivered_in == traced.number for one in own):
        sentence = f"{lines} {'memory' if lines == 1 else 'memories'} reached the model in this turn."
        return StateOfTurn("delivered", "good", sentence)
    if any(one.carried_from for one in traced.blocks):
        return StateOfTurn("carried", "accent", "What an earlier turn had recalled too late reached the model here.")
    is_carried = any(event.name == "recall_carried" for event in events)
    if is_carried or any(one.delivered_in not in (None, traced.number) for one in own):
        return StateOfTurn("late", "warn", "The recall was ready after the turn had ended. The next turn offers it.")
    if any(one.row.outcome is Outcome.UNDELIVERED for one in own):
        return StateOfTurn("late", "warn", f"What was recalled did not reach the model: {own[-1].fate}.")
    if traced.blocks:
        return StateOfTurn("delivered", "good", "The standing block reached the model. The recall added nothing to it.")
    return StateOfTurn("silent", "", f"Nothing was added: {own[-1].fate}." if own else "Nothing was recalled.")


async def _said_and_learned(
    page: PageRequest, traced: TracedTurn, owner: str, id: str
) -> tuple[list[Entry], list[Entry]]:
    """The turn's recorded messages in order, and the statements that were learned from it. They may be in another
    space than the owner's."""
    row = traced.turn
    since = row.started_at - 1
    others = [space for one in traced.recalls for space in one.row.reads] + [page.query.get("owner", owner)]
    found: dict[tuple[str, str], Entry] = {}
    for name in dict.fromkeys([owner, *others]):
        if not page.may_read(name):
            continue
        wanted = Filter(conversation=id, since=since)
        entries = await (await page.reading(name, "inspect")).list(limit=_RECORDS_MAX, filter=wanted)
        found |= {(name, one.id): one for one in entries if one.turn == row.id and one.owner in (None, owner)}
    own = sorted(found.values(), key=lambda one: (one.position or 0, one.id))
    return [one for one in own if one.kind is Kind.RECORD], [one for one in own if one.kind is Kind.STATEMENT]


async def _standing_lines(page: PageRequest, blocks: Iterable[TracedBlock], spaces: Iterable[str]) -> list[Line]:
    """The memories of a standing block, in its order."""
    standing = [one for one in blocks if one.text and one.point == HandoverPoint.STANDING]
    lines = []
    for ref, block in ((ref, one.text) for one in standing for ref in one.refs):
        entry = await _find_entry(page, ref, spaces)
        if entry is None:
            continue
        shown = await (await page.reading(entry.space, "inspect")).get(entry.id, version=_version_of(ref))
        lines.append(Line(ref, shown.text, entry, is_restated=shown.text not in block))
    return sorted(lines, key=lambda line: line.is_restated)


async def _weigh(page: PageRequest, traced: TracedRecall) -> Weighed:
    may_read = page.caller.grant.may_read
    left_out = sorted((one for one in traced.left_out if may_read(one.space)), key=_least_likely)
    most = len(left_out) if page.query.get("all") else _LEFT_OUT_SHOWN
    return Weighed(
        recall=traced,
        cause=CAUSES[traced.row.cause] + (", refined by a model" if traced.row.phase is Phase.REFINED else ""),
        shown=[await _line(page, one) for one in traced.shown if may_read(one.space)],
        left_out=[await _line(page, one) for one in left_out[:most]],
        left_out_total=len(left_out),
    )


def _least_likely(one: Explained) -> tuple[bool, float]:
    """Those that matched too little matter least."""
    return one.why is Decision.FLOOR, -(one.score or 0.0)


async def _line(page: PageRequest, explained: Explained) -> Line:
    entry = await _find_entry(page, explained.ref, [explained.space])
    text = explained.text
    if entry is not None and text.endswith(f": {entry.text}"):
        # Before it are the age and the origin, which have a place of their own here.
        text = entry.text
    return Line(explained.ref, text, entry, explained)


async def _find_entry(page: PageRequest, ref: str, spaces: Iterable[str]) -> Entry | None:
    """The version of now, or the named one if none is active. None if it was forgotten, or in none of these spaces that
    the caller may read."""
    for name in dict.fromkeys(spaces):
        if page.may_read(name):
            space, id = await page.reading(name, "inspect"), ref.partition(".")[0]
            try:
                entry = await space.get(id)
                return entry if entry.status is Status.ACTIVE else await space.get(id, version=_version_of(ref))
            except NotFound:
                continue
    return None


def _version_of(ref: str) -> int:
    return int(ref.partition(".")[2] or 1)


def _neighbours(owner: str, conversation: str, turn: str, events: Iterable[Event]) -> dict[str, str]:
    """The addresses of the turns before and after this one, empty if there is none."""
    started = list(dict.fromkeys(event.turn for event in events if event.name == "turn_started"))
    at = started.index(turn) if turn in started else None
    earlier = started[at - 1] if at else ""
    later = started[at + 1] if at is not None and at + 1 < len(started) else ""
    return {name: turn_link(owner, conversation, one) if one else "" for name, one in (("k", earlier), ("j", later))}


def _timeline(traced: TracedTurn, events: Iterable[Event]) -> list[TimelineStep]:
    """What happened when: each step from the end of the one that it waited for."""
    row = traced.turn
    own = next((one.row for one in traced.recalls if one.turn == traced.number), None)
    at: dict[str, float | None] = {
        "said": row.started_at,
        "recall started": None if own is None else own.asked_at,
        "settled": None if own is None else own.settled_at,
        "handed over": min((one.injected_at for one in traced.blocks), default=None),
        "answered": row.ended_at,
        "recorded": next((event.at for event in events if event.name == "recorded"), row.recorded_at),
        "learned": next((event.at for event in events if _has_learned(event)), None),
    }
    steps, before = [], 0.0
    for name, when in at.items():
        if when is not None:
            end = max(0.0, (when - row.started_at) * 1000)
            steps.append(TimelineStep(name, min(before, end), end))
            before = end
    # A review may come minutes later; it runs out of the picture.
    longest = max((one.end for one in steps if one.name != "learned"), default=0.0) * 1.1 or 1.0
    return [_drawn(one, longest) for one in steps]


def _drawn(step: TimelineStep, longest: float) -> TimelineStep:
    start, end = (min(100.0, 100 * value / longest) for value in (step.start, step.end))
    width = max(end - start, _BAR_MIN)
    return replace(step, x=round(min(start, 100 - width), 2), width=round(width, 2))


def _has_learned(event: Event) -> bool:
    return event.name == "review_ended" and bool(event.data.get("written") or event.data.get("proposed"))


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What was asked, and the answer: blocks under other settings, or what another search finds."""

    asked: dict[str, str]
    settings: dict[str, Scalar]
    replayed: Replay | None = None
    found: Sequence[Hit] | None = None
    wrong: str = ""


async def _what_if(page: PageRequest, conversation: Conversation, traced: TracedTurn, *, shows_all: bool) -> WhatIf:
    """Other settings replay the recall exactly. Other lanes or another date need another search."""
    asked = {name: page.query.get(name, "").strip() for name in (*SHAPING, "as_of")}
    lanes = [Lane(one) for one in page.query.getlist("lane") if one in list(Lane)]
    row = traced.recalls[-1].row if traced.recalls else None
    settings = {name: row.settings.get(name) for name in SHAPING} if row is not None else {}
    before = WhatIf(asked, settings)
    if row is None or not row.question or not shows_all or not page.query.get("what_if"):
        return before
    if not all(map(page.may_read, row.reads)):
        return replace(before, wrong="This turn recalled from spaces that you may not read.")
    try:
        if asked["as_of"] or (lanes and len(lanes) < len(Lane)):
            return replace(before, found=await _search_again(page, row, asked, lanes))
        changes = check_changes({name: _number(name, asked[name]) for name in SHAPING if asked[name]})
        return replace(before, replayed=await conversation.replay(traced.turn.id, changes=changes or settings))
    except (ConfigError, InvalidInput) as error:
        return replace(before, wrong=str(error))


async def _search_again(page: PageRequest, row: RecallRow, asked: dict[str, str], lanes: Sequence[Lane]) -> list[Hit]:
    """The same question, best first, as another search finds it in the same spaces."""
    hits: list[Hit] = []
    for name in row.reads:
        space = await page.reading(name, "inspect")
        score_min = _number("recall_score_min", asked["recall_score_min"]) if asked["recall_score_min"] else None
        found = await space.search(
            row.question,
            limit=_FOUND_MAX,
            lanes=lanes or None,
            as_of=_day_end(asked["as_of"]) if asked["as_of"] else None,
            score_min=score_min,
        )
        hits += found.hits
    return sorted(hits, key=lambda hit: -hit.score)[:_FOUND_MAX]


def _number(name: str, text: str) -> float | int:
    try:
        return float(text) if name == "recall_score_min" else int(text)
    except ValueError as error:
        raise InvalidInput(f"{name} is {text[:40]!r}. Use a number.") from error


def _day_end(text: str) -> float:
    """The end of a day as a browser sends it, in the server's time zone."""
    try:
        return datetime.strptime(text, "%Y-%m-%d").astimezone().timestamp() + 86_400
    except ValueError as error:
        raise InvalidInput(f"The date is {text[:40]!r}. Use one such as 2026-11-15.") from error
