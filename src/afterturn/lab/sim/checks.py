"""What must be true when a simulated run is over: of its events, its processes and its store."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from afterturn.base.types import Entry, Event, Filter, Kind
from afterturn.lab.sim.process import Process
from afterturn.lab.sim.transcript import Told, Transcript
from afterturn.memory import Memory


def check_process(process: Process) -> list[str]:
    """Of one that was closed: nothing of it is left."""
    left = [f"a task is left after closing: {name}" for name in process.unfinished()]
    return left + [f"asyncio: {trouble}" for trouble in process.troubles]


def check_events(processes: Iterable[Process], transcripts: Iterable[Transcript]) -> list[str]:
    broken: list[str] = []
    for process in processes:
        broken += [f"{process.name}: {what}" for what in _recalls(process)]
    return broken


def _recalls(process: Process) -> list[str]:
    """R5: every recall that began has one outcome. R3: of a conversation, one at a time."""
    broken: list[str] = []
    ended = Counter(event.turn for event in process.events if event.name == "recall_ended")
    begun = {event.turn for event in process.events if event.name == "recall_started"}
    for turn in sorted(begun):
        if ended[turn] != 1 and not process.killed:
            broken.append(f"R5: the recall of {turn} has {ended[turn]} outcomes")
    broken += [f"R5: the recall of {turn} ended and never began" for turn in sorted(ended) if turn not in begun]
    return broken + _flights(process.events)


def _flights(events: Iterable[Event]) -> list[str]:
    broken: list[str] = []
    flying: defaultdict[str, set[str]] = defaultdict(set)
    for event in events:
        if event.name == "recall_started":
            flying[event.conversation].add(event.turn)
            if len(flying[event.conversation]) > 1:
                broken.append(f"R3: {event.conversation} has recalls of {sorted(flying[event.conversation])} under way")
        elif event.name in ("recall_settled", "recall_ended"):
            flying[event.conversation].discard(event.turn)
    return broken


async def check_records(memory: Memory, transcript: Transcript) -> list[str]:
    """C1, C2, C3: a promised turn is there once and in full, one that was given up is not."""
    space = memory.space(transcript.owner)
    chosen = Filter(kind=Kind.RECORD, conversation=transcript.id)
    entries: list[Entry] = await space.list(limit=1000, filter=chosen)
    stored: defaultdict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        stored[entry.turn or ""].append(entry)
    broken = [what for told in transcript.turns for what in _turn(told, stored.pop(told.id, []))]
    return broken + [f"C1: records of {turn!r}, which nobody told of" for turn in stored]


def _turn(told: Told, entries: list[Entry]) -> list[str]:
    texts = [entry.text for entry in sorted(entries, key=lambda entry: entry.position or 0)]
    if told.refused:
        return [f"C1: {told.id} was given up and is recorded: {texts}"] if texts else []
    if not texts:
        if told.acknowledged:
            return [f"C2: {told.id} was acknowledged and is not there"]
        return [f"C4: {told.id} was handed over and is not there"] if told.promised else []
    return [] if texts == told.said else [f"C1: {told.id} is recorded as {texts}, told was {told.said}"]
