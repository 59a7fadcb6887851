"""A few conversations that the small model reviews, and checks that must hold whatever it answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import afterturn
from afterturn.learning.evidence import measure_support
from afterturn.models.chat import OpenAICompatible
from afterturn.types import Entry, Filter, Kind, Origin, ReviewRow, ReviewState, Status

TALKS = (
    (
        ("I moved to Oslo in May, and I prefer the train over flying.", "Noted: Oslo, and trains."),
        ("Our staging database is called birch. Never run migrations on it before noon.", "Understood."),
    ),
    (
        ("What is the capital of Norway?", "Oslo."),
        ("Thanks! And how do I spell Trondheim?", "T, r, o, n, d, h, e, i, m."),
    ),
)
USER = "ada"
SPACE = f"user:{USER}"
_STATEMENTS = Filter(kind=Kind.STATEMENT, statuses=(Status.ACTIVE, Status.PROPOSED))


@dataclass(slots=True)
class Trial:
    """The results. `broken` lists every promise that was not kept."""

    reviews: Sequence[ReviewRow] = ()
    learned: Sequence[Entry] = ()
    broken: list[str] = field(default_factory=list)


async def run_trial(store: Path, url: str, *, timeout: float = 90.0) -> Trial:
    model = OpenAICompatible(url, "SmolLM2-135M-Instruct", timeout=timeout)
    config: dict[str, Any] = {"review_interval": 1, "review_timeout": timeout, "rules": False, "embedder": "none"}
    async with afterturn.open(store, config, model=model) as memory:
        for number, talk in enumerate(TALKS):
            conversation = memory.conversation(f"talk-{number}", user=USER)
            for said, answered in talk:
                messages: list[dict[str, Any]] = [{"role": "user", "content": said}]
                async with conversation.turn(messages) as turn:
                    messages.append({"role": "assistant", "content": answered})
                await turn.wait_recorded()
                await memory.drain(within=2 * timeout)
        return await _judged(memory)


async def _judged(memory: afterturn.Memory) -> Trial:
    space = memory.space(SPACE)
    records = await space.list(filter=Filter(kind=Kind.RECORD), limit=1000)
    trial = Trial(await space.reviews(), await space.list(filter=_STATEMENTS, limit=1000))
    said = {text for talk in TALKS for exchange in talk for text in exchange}
    if {record.text for record in records} != said or len(records) != len(said):
        trial.broken.append("the recorded messages differ from the conversation")
    if len(trial.reviews) != sum(map(len, TALKS)) or any(row.state is ReviewState.WAITING for row in trial.reviews):
        trial.broken.append("not every review of a turn ended")
    by_id = {record.id: record.text for record in records}
    trial.broken += [f"{entry.id}: {fault}" for entry in trial.learned for fault in _faults(entry, by_id)]
    if sum(row.written + row.proposed for row in trial.reviews) < len(trial.learned):
        trial.broken.append("a statement was learned that no review reports")
    trial.broken += [finding.message for finding in await memory.check() if finding.level == "error"]
    return trial


def _faults(entry: Entry, records: dict[str, str]) -> list[str]:
    """The faults of one learned statement."""
    faults = []
    if entry.origin is not Origin.BACKGROUND_REVIEW or "review" not in entry.metadata:
        faults.append("has no reference to a review")
    if not entry.sources or any(source not in records for source in entry.sources):
        faults.append("has no recorded message as its source")
    if measure_support(entry.text, [records[source] for source in entry.sources if source in records]).missing:
        faults.append("has a name or number that nobody said")
    return faults
