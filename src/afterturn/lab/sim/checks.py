"""What must be true when a simulated run is over: of its events, its processes and its store."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from afterturn.base.types import Entry, Event, Filter, Kind
from afterturn.context.block import find_blocks
from afterturn.lab.sim.process import Process
from afterturn.lab.sim.transcript import Told, Transcript
from afterturn.memory import Memory


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
    if texts == told.said:
        return []
    rule = "C5" if any(find_blocks(text) for text in texts) else "C1"
    return [f"{rule}: {told.id} is recorded as {texts}, told was {told.said}"]
