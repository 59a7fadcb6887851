"""Plays scenes in a process of its own, each with a memory opened for it, and writes down what they cost."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import afterturn
from afterturn.errors import AfterturnError
from afterturn.runtime.clock import SystemClock
from afterturn.testing.model import ScriptedModel
from lab.demo import party, passing
from lab.demo.errand import play_errand
from lab.demo.host import Cost, Host, Play
from lab.demo.late import SlowEmbedder, play_late
from lab.demo.stage import EventQueue, Said, Stage, StoryBroken, count_bytes
from lab.demo.story import DAYS, SPACE, USER, Day


async def play_day(day: Day, play: Play) -> None:
    if day.forgets:
        await _forget(play, day.forgets)
    host = Host(play, play.memory.conversation(day.conversation, user=USER))
    for exchange in day.exchanges:
        await host.play(exchange, full_block=day.full_block and exchange is day.exchanges[0])
    if day.note:
        await play.ada.add(day.note)
        play.stage.moment([Said("Ada", f"+ {day.note}")], ["ada.add(…): one statement, can be undone"])


async def _forget(play: Play, text: str) -> None:
    before = count_bytes(play.store, text)
    [entry] = [entry for entry in await play.ada.list() if text in entry.text]
    forgotten = await play.ada.forget(memory=entry.id)
    after = count_bytes(play.store, text)
    play.stage.moment(
        [Said("Ada", "Forget Grace's number, please."), Said("calls", f'→ ada.forget(memory="{entry.id}")')],
        [f"{forgotten.state} for good, with every trace:", f"“{text}” in the files: {before} before, {after} now"],
    )
    if after:
        raise StoryBroken(f"Memory failed: “{text}” is still in the files after it was forgotten.")


DAY = 86400.0
# Enough for a machine that is busy otherwise; what was really waited is measured and shown.
SETTINGS = {"grace": 2.0}


@dataclass(frozen=True, slots=True)
class Scene:
    """`parts` and `settings` are what its memory is opened with, besides what all have."""

    title: str
    play: Callable[[Play], Awaitable[None]]
    days_ago: int = 0
    settings: Mapping[str, int | str] = field(default_factory=dict)
    parts: afterturn.Components = field(default_factory=afterturn.Components)


class PastClock(SystemClock):
    """The real clock, some days back."""

    def __init__(self, days: int) -> None:
        self._back = days * DAY

    def now(self) -> float:
        return super().now() - self._back


def scenes() -> tuple[Scene, ...]:
    """In the order of the play: the days first."""
    slow = SlowEmbedder()
    return (
        *(Scene(day.title, partial(play_day, day), day.days_ago) for day in DAYS),
        Scene(
            "Memory is slow: what comes too late is not lost",
            partial(play_late, slow),
            parts=afterturn.Components(embedder=slow),
        ),
        Scene(
            "Eight memories, three turns: nothing is said twice",
            party.play_party,
            settings=party.SETTINGS,
            parts=afterturn.Components(model=ScriptedModel(party.SUMMARY)),
        ),
        Scene("A sub-agent learns something, and Ada decides", play_errand),
        Scene(
            "First conversation: Ada says two things in passing, and one too many",
            passing.play_first,
            settings=passing.LEARNS,
            parts=afterturn.Components(review_model=passing.reviewer()),
        ),
        Scene("Second and third conversation: another process, and Basil knows", passing.play_third),
        Scene("What was learned is shown, and taken back", passing.play_undoing),
        Scene(
            "Learned again, and this time Ada is asked first",
            passing.play_approving,
            settings=passing.ASKS_FIRST,
            parts=afterturn.Components(review_model=passing.reviewer()),
        ),
    )


def processes() -> tuple[tuple[str, range], ...]:
    """Which scenes one process plays, and what is said before them."""
    days, count = len(DAYS), len(scenes())
    passing_from = days + 3
    return (
        *(("", range(day, day + 1)) for day in range(days)),
        ("So much for days. And within a turn?", range(days, passing_from)),
        ("And what nobody asked it to remember?", range(passing_from, passing_from + 1)),
        ("", range(passing_from + 1, count)),
    )


async def play(scene: Scene, store: Path, stage: Stage) -> Cost:
    clock = PastClock(scene.days_ago)
    date = datetime.fromtimestamp(clock.now(), UTC).astimezone()
    stage.heading(scene.title, f"{date.day} {date:%b} · process {os.getpid()}")
    events = EventQueue()
    parts = replace(scene.parts, clock=clock)
    async with afterturn.open(store, {**SETTINGS, **scene.settings}, on_event=events.put, components=parts) as memory:
        await memory.ready()
        playing = Play(memory, memory.space(SPACE), events, stage, store)
        await scene.play(playing)
        await memory.drain(within=5.0)
    return playing.cost


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.demo.scene", description=__doc__)
    every = scenes()
    parser.add_argument("store", type=Path)
    parser.add_argument("report", type=Path)
    parser.add_argument("scene", type=int, nargs="+", choices=range(len(every)))
    parser.add_argument("--fast", action="store_true")
    given = parser.parse_args()
    stage = Stage(fast=given.fast)
    try:
        costs = [asyncio.run(play(every[number], given.store, stage)) for number in given.scene]
    except (StoryBroken, AfterturnError) as error:
        stage.failure(str(error))
        return 1
    except KeyboardInterrupt:
        return 130
    given.report.write_text(json.dumps(asdict(sum(costs, Cost()))), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
