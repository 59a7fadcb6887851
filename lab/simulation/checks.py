"""Checks after a simulated run: its events, its processes and its store."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from afterturn.memory import Memory
from afterturn.recall.block import find_blocks
from afterturn.types import Entry, Event, Filter, Kind, Origin, Status
from lab.simulation.janitor import Forget
from lab.simulation.process import Process
from lab.simulation.transcript import MARK, SimulatedTurn, Transcript
from lab.simulation.world import START


def check_process(process: Process) -> list[str]:
    """A closed process must leave no task behind."""
    left = [f"a task is left after closing: {name}" for name in process.unfinished()]
    return left + [f"asyncio: {trouble}" for trouble in process.troubles]


def check_recalls(processes: Sequence[Process]) -> list[str]:
    """R5: each phase of each recall has one outcome, in any process. R3: one recall per conversation at a time.

    Recalls of killed processes are not checked, nor those that were carried and never asked for again.
    """
    ended = Counter(_phase(event) for process in processes for event in process.events if event.name == "recall_ended")
    started = {str(event.data["correlation"]) for process in processes for event in _named(process, "recall_started")}
    carried = {str(event.data["correlation"]) for process in processes for event in _named(process, "recall_carried")}
    broken: list[str] = []
    for process in processes:
        broken += [f"{process.name}: {what}" for what in _flights(process.events)]
        for event in () if process.killed else _named(process, "recall_started"):
            correlation = str(event.data["correlation"])
            for phase in () if correlation in carried else process.phases:
                if ended[correlation, phase] == 0:
                    broken.append(f"R5: the {phase} phase of the recall {correlation} of {event.turn} has no outcome")
    if not any(process.killed for process in processes):
        broken += [f"R5 twice: {which} has {count} outcomes" for which, count in sorted(ended.items()) if count > 1]
    return broken + [f"R5: {which} ended and never began" for which in sorted(ended) if which[0] not in started]


def _named(process: Process, name: str) -> list[Event]:
    return [event for event in process.events if event.name == name]


def _phase(event: Event) -> tuple[str, str]:
    return str(event.data["correlation"]), str(event.data["phase"])


def _flights(events: Iterable[Event]) -> list[str]:
    broken: list[str] = []
    flying: defaultdict[str, set[str]] = defaultdict(set)
    for event in events:
        under_way = flying[event.conversation]
        if event.name == "recall_started":
            under_way.add(str(event.data["correlation"]))
            if len(under_way) > 1:
                broken.append(f"R3: {event.conversation} has the recalls {sorted(under_way)} under way")
        elif event.name in ("recall_settled", "recall_ended"):
            under_way.discard(str(event.data["correlation"]))
    return broken


class ForgetReach:
    """Which turns a `forget` may have erased, by the time at which memory read the start of each turn."""

    def __init__(self, forgets: Sequence[Forget], processes: Sequence[Process]) -> None:
        started = [event for process in processes for event in _named(process, "turn_started")]
        self._forgets = forgets
        self._read_at = {event.turn: event.at - START for event in started}

    def has_erased(self, transcript: Transcript, turn: SimulatedTurn) -> bool:
        """It was read, and its conversation was forgotten afterwards."""
        at = self._read_at.get(turn.id, math.inf)
        return any(forget.done and at < forget.began for forget in self._forgets_of(transcript))

    def may_have_erased(self, transcript: Transcript, turn: SimulatedTurn) -> bool:
        """Nothing is expected of such a turn. A turn that ended before it was read counts as an earlier one."""
        if any(turn.id == forget.turn for forget in self._forgets):
            return True
        is_read = self._read_at.get(turn.id, math.inf) <= turn.left
        return any(turn.began <= forget.ended or not is_read for forget in self._forgets_of(transcript))

    def _forgets_of(self, transcript: Transcript) -> list[Forget]:
        return [forget for forget in self._forgets if forget.conversation == transcript.id]


async def check_records(memory: Memory, transcript: Transcript, reach: ForgetReach) -> list[str]:
    """C1, C2, C3: a promised turn is stored once and complete; a cancelled one is not stored.

    M2: a turn that was open when its conversation was forgotten is not stored either.
    """
    space = memory.space(transcript.owner)
    chosen = Filter(kind=Kind.RECORD, conversation=transcript.id)
    entries = await space.list(limit=1000, filter=chosen)
    stored: defaultdict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        stored[entry.turn or ""].append(entry)
    broken = []
    for turn in transcript.turns:
        found = stored.pop(turn.id, [])
        if found and reach.has_erased(transcript, turn):
            broken.append(f"M2: {turn.id} was under way when it was forgotten, and is recorded")
        elif not reach.may_have_erased(transcript, turn):
            broken += _turn(turn, found)
    return broken + [f"C1: records of {id!r}, which no host began" for id in stored]


def _turn(turn: SimulatedTurn, entries: list[Entry]) -> list[str]:
    texts = [entry.text for entry in sorted(entries, key=lambda entry: entry.position or 0)]
    if turn.refused:
        return [f"C1: {turn.id} was cancelled and is recorded: {texts}"] if texts else []
    if not texts:
        if turn.acknowledged:
            return [f"C2: {turn.id} was acknowledged and is not stored"]
        return [f"C4: {turn.id} was completed and is not stored"] if turn.promised else []
    if texts == turn.said:
        return []
    rule = "C5" if any(find_blocks(text) for text in texts) else "C1"
    return [f"{rule}: {turn.id} is recorded as {texts}, but the host said {turn.said}"]


def check_reviews(processes: Sequence[Process]) -> list[str]:
    """V4: a review ends at most once, in any process."""
    ended = Counter(str(event.data["review"]) for process in processes for event in _named(process, "review_ended"))
    return [f"V4: the review {review} has {count} ends" for review, count in sorted(ended.items()) if count > 1]


async def check_learned(memory: Memory, owner: str, forgets: Sequence[Forget]) -> list[str]:
    """M2: forgotten facts do not return in any words. V5: the sources of a learned statement exist."""
    entries = await memory.space(owner).list(limit=1000, filter=Filter(statuses=tuple(Status)))
    held = {entry.id for entry in entries}
    done = [forget for forget in forgets if forget.done]
    broken = [f"M2: {name} was forgotten, and is back" for forget in done for name in forget.ids if name in held]
    marks = {mark for forget in done for mark in forget.marks}
    for entry in entries:
        said = marks.intersection(MARK.findall(entry.text))
        broken += [f"M2: {mark} was forgotten, and {entry.ref} contains it" for mark in sorted(said)]
        if entry.kind is Kind.STATEMENT and entry.origin is Origin.BACKGROUND_REVIEW:
            missing = sorted(set(entry.sources) - held)
            if missing or not entry.sources:
                broken.append(f"V5: {entry.ref} has the sources {missing or 'none'}, which do not exist")
    return broken
