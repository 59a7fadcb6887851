"""Plays scenes in this process, each with its own open memory, and writes their costs to a file."""

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
from lab.demo import learning, party
from lab.demo.host import Cost, Host, SceneContext
from lab.demo.late_recall import SlowEmbedder, play_late
from lab.demo.screen import Cell, DemoFailed, EventQueue, Screen, count_bytes
from lab.demo.story import DAYS, SPACE, USER, Day
from lab.demo.subagent import play_subagent


async def play_day(day: Day, play: SceneContext) -> None:
    if day.forgets:
        await _forget(play, day.forgets)
    host = Host(play, play.memory.conversation(day.conversation, user=USER))
    for exchange in day.exchanges:
        await host.play(exchange, full_block=day.full_block and exchange is day.exchanges[0])
    if day.note:
        await play.ada.add(day.note)
        play.screen.moment([Cell("Ada", f"+ {day.note}")], ["ada.add(…): one statement, can be undone"])


async def _forget(play: SceneContext, text: str) -> None:
    before = count_bytes(play.store, text)
    [entry] = [entry for entry in await play.ada.list() if text in entry.text]
    await play.ada.forget(memory=entry.id)
    after = count_bytes(play.store, text)
    play.screen.moment(
        [Cell("Ada", "Forget Grace's number, please."), Cell("calls", f'→ ada.forget(memory="{entry.id}")')],
        ["erased permanently:", f"“{text}” in the files: {before} before, {after} now"],
    )
    if after:
        raise DemoFailed(f"Memory failed: “{text}” is still in the files after it was forgotten.")


DAY = 86400.0
# Long enough for a busy machine. The demo measures and prints the real waiting time.
SETTINGS = {"grace": 2.0}


@dataclass(frozen=True, slots=True)
class Scene:
    """`components` and `settings` are passed to `open`, with those that all scenes share."""

    title: str
    play: Callable[[SceneContext], Awaitable[None]]
    days_ago: int = 0
    settings: Mapping[str, int | str] = field(default_factory=dict)
    components: afterturn.Components = field(default_factory=afterturn.Components)


class PastClock(SystemClock):
    """The real clock, some days back."""

    def __init__(self, days: int) -> None:
        self._back = days * DAY

    def now(self) -> float:
        return super().now() - self._back


def scenes() -> tuple[Scene, ...]:
    """All scenes in order, the days first."""
    slow = SlowEmbedder()
    return (
        *(Scene(day.title, partial(play_day, day), day.days_ago) for day in DAYS),
        Scene(
            "Memory is slow: a late recall is used in the next turn",
            partial(play_late, slow),
            components=afterturn.Components(embedder=slow),
        ),
        Scene(
            "Eight memories, three turns: nothing is repeated",
            party.play_party,
            settings=party.SETTINGS,
            components=afterturn.Components(model=ScriptedModel(party.SUMMARY)),
        ),
        Scene("A sub-agent learns something, and Ada decides whether to keep it", play_subagent),
        Scene(
            "First conversation: Ada mentions two preferences and a secret",
            learning.play_first,
            settings=learning.LEARNS,
            components=afterturn.Components(review_model=learning.reviewer()),
        ),
        Scene("Second and third conversation: another process, and Basil remembers", learning.play_third),
        Scene("Show what was learned, and undo it", learning.play_undoing),
        Scene(
            "Learn it again, this time with Ada's approval",
            learning.play_approving,
            settings=learning.ASKS_FIRST,
            components=afterturn.Components(review_model=learning.reviewer()),
        ),
    )


def processes() -> tuple[tuple[str, range], ...]:
    """For each process: the line printed before it, and its scenes."""
    days, count = len(DAYS), len(scenes())
    learning_from = days + 3
    return (
        *(("", range(day, day + 1)) for day in range(days)),
        ("Next: inside one turn", range(days, learning_from)),
        ("Next: learning what nobody asked it to remember", range(learning_from, learning_from + 1)),
        ("", range(learning_from + 1, count)),
    )


async def play(scene: Scene, store: Path, screen: Screen) -> Cost:
    clock = PastClock(scene.days_ago)
    date = datetime.fromtimestamp(clock.now(), UTC).astimezone()
    screen.heading(scene.title, f"{date.day} {date:%b} · process {os.getpid()}")
    events = EventQueue()
    components = replace(scene.components, clock=clock)
    async with afterturn.open(
        store, {**SETTINGS, **scene.settings}, on_event=events.put, components=components
    ) as memory:
        await memory.ready()
        playing = SceneContext(memory, memory.space(SPACE), events, screen, store)
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
    parser.add_argument("--brief", action="store_true")
    given = parser.parse_args()
    screen = Screen(fast=given.fast, brief=given.brief)
    try:
        costs = [asyncio.run(play(every[number], given.store, screen)) for number in given.scene]
    except (DemoFailed, AfterturnError) as error:
        screen.failure(str(error))
        return 1
    except KeyboardInterrupt:
        return 130
    given.report.write_text(json.dumps(asdict(sum(costs, Cost()))), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
