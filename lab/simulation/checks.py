"""What must be true when a simulated run is over: of its events, its processes and its store."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from afterturn.memory import Memory
from afterturn.recall.block import find_blocks
from afterturn.types import Entry, Event, Filter, Kind, Origin, Status
from lab.simulation.janitor import Forget
from lab.simulation.process import Process
from lab.simulation.transcript import MARK, Told, Transcript
from lab.simulation.world import START


def check_process(process: Process) -> list[str]:
    """Of one that was closed: nothing of it is left."""
    left = [f"a task is left after closing: {name}" for name in process.unfinished()]
    return left + [f"asyncio: {trouble}" for trouble in process.troubles]


def check_recalls(processes: Sequence[Process]) -> list[str]:
    """R5: each phase of each recall has one outcome, in whichever process. R3: of a conversation, one at a time.

    Nothing is told of what a killed process was about, nor of what is carried and was never asked for again.
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


class Reach:
    """What forgets have to do with turns, by when memory had read how each of them began."""

    def __init__(self, forgets: Sequence[Forget], processes: Sequence[Process]) -> None:
        started = [event for process in processes for event in _named(process, "turn_started")]
        self._forgets = forgets
        self._read_at = {event.turn: event.at - START for event in started}

    def has_erased(self, transcript: Transcript, told: Told) -> bool:
        """It was read, and its conversation forgotten after that."""
        at = self._read_at.get(told.id, math.inf)
        return any(forget.done and at < forget.began for forget in self._forgets_of(transcript))

    def may_have_erased(self, transcript: Transcript, told: Told) -> bool:
        """Nothing is expected of such a turn. One that was left before it was read is taken for one of before."""
        if any(told.id == forget.turn for forget in self._forgets):
            return True
        is_read = self._read_at.get(told.id, math.inf) <= told.left
        return any(told.began <= forget.ended or not is_read for forget in self._forgets_of(transcript))

    def _forgets_of(self, transcript: Transcript) -> list[Forget]:
        return [forget for forget in self._forgets if forget.conversation == transcript.id]


async def check_records(memory: Memory, transcript: Transcript, reach: Reach) -> list[str]:
    """C1, C2, C3: a promised turn is there once and in full, one that was given up is not.

    M2: nor is one that was under way when its conversation was forgotten.
    """
    space = memory.space(transcript.owner)
    chosen = Filter(kind=Kind.RECORD, conversation=transcript.id)
    entries = await space.list(limit=1000, filter=chosen)
    stored: defaultdict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        stored[entry.turn or ""].append(entry)
    broken = []
    for told in transcript.turns:
        found = stored.pop(told.id, [])
        if found and reach.has_erased(transcript, told):
            broken.append(f"M2: {told.id} was under way when it was forgotten, and is recorded")
        elif not reach.may_have_erased(transcript, told):
            broken += _turn(told, found)
    return broken + [f"C1: records of {turn!r}, which nobody told of" for turn in stored]


def _turn(told: Told, entries: list[Entry]) -> list[str]:
    texts = [entry.text for entry in sorted(entries, key=lambda entry: entry.position or 0)]
    if told.refused:
        return [f"C1: {told.id} was given up and is recorded: {texts}"] if texts else []
    if not texts:
        if told.acknowledged:
            return [f"C2: {told.id} was acknowledged and is not there"]
        return [f"C4: {told.id} was handed over and is not there"] if told.promised else []
    if texts == told.said:
        return []
    rule = "C5" if any(find_blocks(text) for text in texts) else "C1"
    return [f"{rule}: {told.id} is recorded as {texts}, told was {told.said}"]


def check_reviews(processes: Sequence[Process]) -> list[str]:
    """V4: a review ends once at the most, in whichever process."""
    ended = Counter(str(event.data["review"]) for process in processes for event in _named(process, "review_ended"))
    return [f"V4: the review {review} has {count} ends" for review, count in sorted(ended.items()) if count > 1]


async def check_learned(memory: Memory, owner: str, forgets: Sequence[Forget]) -> list[str]:
    """M2: what was forgotten is not back, in whatever words. V5: what was learned rests on what is there."""
    entries = await memory.space(owner).list(limit=1000, filter=Filter(statuses=tuple(Status)))
    held = {entry.id for entry in entries}
    done = [forget for forget in forgets if forget.done]
    broken = [f"M2: {name} was forgotten, and is back" for forget in done for name in forget.ids if name in held]
    marks = {mark for forget in done for mark in forget.marks}
    for entry in entries:
        told = marks.intersection(MARK.findall(entry.text))
        broken += [f"M2: {mark} was forgotten, and {entry.ref} tells it" for mark in sorted(told)]
        if entry.kind is Kind.STATEMENT and entry.origin is Origin.BACKGROUND_REVIEW:
            missing = sorted(set(entry.sources) - held)
            if missing or not entry.sources:
                broken.append(f"V5: {entry.ref} rests on {missing or 'nothing'}, which is not there")
    return broken
