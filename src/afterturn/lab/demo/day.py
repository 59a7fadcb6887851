"""One day of the story, in a process of its own: opens the memory, plays the day, writes down what it cost."""

import argparse
import asyncio
import json
import os
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import afterturn
from afterturn.base.clock import SystemClock
from afterturn.base.errors import AfterturnError
from afterturn.lab.demo.host import Cost, EventQueue, Host, StoryBroken
from afterturn.lab.demo.stage import Said, Stage
from afterturn.lab.demo.story import DAYS, SPACE, USER, Day
from afterturn.memory import Space

DAY = 86400.0
# Enough for a machine that is busy otherwise; what was really waited is measured and shown.
SETTINGS = {"grace": 2.0}


class PastClock(SystemClock):
    """The real clock, some days back."""

    def __init__(self, days: int) -> None:
        self._back = days * DAY

    def now(self) -> float:
        return super().now() - self._back


async def play(day: Day, store: Path, stage: Stage) -> Cost:
    clock = PastClock(day.days_ago)
    date = datetime.fromtimestamp(clock.now(), UTC).astimezone()
    stage.heading(day.title, f"{date.day} {date:%b} · process {os.getpid()}")
    events = EventQueue()
    async with afterturn.open(store, SETTINGS, on_event=events.put, parts=afterturn.Parts(clock=clock)) as memory:
        await memory.ready()
        ada = memory.space(SPACE)
        if day.forgets:
            await _forget(ada, day.forgets, store, stage)
        host = Host(memory.conversation(day.conversation, user=USER), ada, events, stage)
        for exchange in day.exchanges:
            await host.play(exchange, full_block=day.full_block and exchange is day.exchanges[0])
        if day.note:
            await ada.add(day.note)
            stage.moment([Said("Ada", f"+ {day.note}")], ["ada.add(…): one statement, can be undone"])
        await memory.drain(within=5.0)
    return host.cost


async def _forget(ada: Space, text: str, store: Path, stage: Stage) -> None:
    before = count_bytes(store, text)
    [entry] = [entry for entry in await ada.list() if text in entry.text]
    forgotten = await ada.forget(memory=entry.id)
    after = count_bytes(store, text)
    stage.moment(
        [Said("Ada", "Forget Grace's number, please."), Said("calls", f'→ ada.forget(memory="{entry.id}")')],
        [f"{forgotten.state} for good, with every trace:", f"“{text}” in the files: {before} before, {after} now"],
    )
    if after:
        raise StoryBroken(f"Memory failed: “{text}” is still in the files after it was forgotten.")


def count_bytes(store: Path, text: str) -> int:
    """How often the text occurs in the store's files."""
    return sum(path.read_bytes().count(text.encode()) for path in store.parent.glob(f"{store.name}*") if path.is_file())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m afterturn.lab.demo.day", description=__doc__)
    parser.add_argument("day", type=int, choices=range(len(DAYS)))
    parser.add_argument("store", type=Path)
    parser.add_argument("report", type=Path)
    parser.add_argument("--fast", action="store_true")
    given = parser.parse_args()
    stage = Stage(fast=given.fast)
    try:
        cost = asyncio.run(play(DAYS[given.day], given.store, stage))
    except (StoryBroken, AfterturnError) as error:
        stage.failure(str(error))
        return 1
    except KeyboardInterrupt:
        return 130
    given.report.write_text(json.dumps(asdict(cost)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
