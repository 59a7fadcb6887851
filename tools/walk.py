"""Count what a reader walks through: every call inside afterturn while one warm turn runs.

It plays a conversation on a store of its own, traces three parts of it, and prints the files in the order in which they
are first entered, and the counts. `--json` prints the same for programs. A test keeps the counts bounded.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = str(ROOT / "src" / "afterturn") + "/"
# Work that goes on behind the turn is not part of its path: the timeline's batches, jobs, warming up.
# What stands is not recalled, and every fact below would stand.
SETTINGS = {"background": False, "rules": False, "standing": False}
FACTS = {
    "What can my cat not eat?": "My cat Miso is allergic to chicken.",
    "Which units should I use?": "Ada prefers metric units.",
    "When does the api deploy?": "The api deploys on Fridays.",
    "Where does my sister live?": "Ada's sister lives in Oslo.",
    "Which editor do I use?": "Ada uses the editor Helix.",
    "What is the name of my boat?": "The name of Ada's boat is Kestrel.",
    "When is the rent due?": "The rent is due on the third.",
    "Which tea do I drink?": "Ada drinks green tea.",
    "What colour is my bicycle?": "Ada's bicycle is orange in colour.",
    "Who repairs the heating?": "Mr Okafor repairs the heating.",
    "Which airport is nearest?": "The nearest airport is Torp.",
    "What do I grow in the garden?": "Ada grows beans in the garden.",
    "Which instrument do I play?": "Ada plays an instrument, the cello.",
    "When do the trains stop?": "The trains stop at midnight.",
    "Where are the spare keys?": "The spare keys are in the shed.",
    "Which bank do I use?": "Ada uses the bank Nordlys.",
}
WARM_AFTER = 2
# Events reach the timeline in batches, five times a second, whether or not a turn is open.
BEHIND_THE_TURN = ("maintenance.py", "stores/sql/timeline.py")


@dataclass
class Walk:
    """One traced part. A call is counted each time a function is entered or a coroutine resumed."""

    name: str
    calls: int = 0
    functions: set[tuple[str, str]] = field(default_factory=set)
    files: dict[str, int] = field(default_factory=dict)
    file_changes: int = 0
    thread_switches: int = 0
    depth: int = 0
    deepest: list[str] = field(default_factory=list)
    _last: tuple[int, str] | None = None

    def enter(self, frame: FrameType, file: str) -> None:
        thread = threading.get_ident()
        self.calls += 1
        self.functions.add((file, frame.f_code.co_qualname))
        self.files[file] = self.files.get(file, 0) + 1
        if self._last is not None:
            self.thread_switches += self._last[0] != thread
            self.file_changes += self._last[1] != file
        self._last = (thread, file)
        stack = list(_own_frames(frame))
        if len(stack) > self.depth:
            self.depth = len(stack)
            self.deepest = [f"{_file_of(each)}:{each.f_code.co_name}" for each in reversed(stack)]

    def counts(self) -> dict[str, int]:
        return {
            "calls": self.calls,
            "functions": len(self.functions),
            "files": len(self.files),
            "file changes": self.file_changes,
            "thread switches": self.thread_switches,
            "depth": self.depth,
        }


def _file_of(frame: FrameType) -> str | None:
    file = frame.f_code.co_filename
    return file.removeprefix(PACKAGE) if file.startswith(PACKAGE) else None


def _own_frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        if _file_of(frame) is not None:
            yield frame
        frame = frame.f_back


class Tracer:
    """Sees the calls of every thread that is started while it is installed; counts them only inside `walking`."""

    def __init__(self) -> None:
        self._walk: Walk | None = None
        # Threads interleave here; the counts are sums, so one lock keeps them whole.
        self._lock = threading.Lock()

    @contextmanager
    def installed(self) -> Iterator[None]:
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    @contextmanager
    def walking(self, name: str) -> Iterator[Walk]:
        self._walk = walk = Walk(name)
        try:
            yield walk
        finally:
            self._walk = None

    def _profile(self, frame: FrameType, event: str, _argument: object) -> None:
        if event != "call" or self._walk is None or (file := _file_of(frame)) is None or file in BEHIND_THE_TURN:
            return
        with self._lock:
            if self._walk is not None:
                self._walk.enter(frame, file)


async def play(path: Path) -> list[Walk]:
    """Traces warm turns: everything is loaded, and the index is in memory. Returns the shortest walk of each part.

    Memory's loop also finishes earlier work while a turn runs. That adds files to some walks, least to the shortest.
    """
    # Imported here, so that the tracer is installed before any thread of memory's is started.
    import afterturn

    tracer, asked, recorded = Tracer(), [], []
    with tracer.installed():
        async with afterturn.open(path, SETTINGS) as memory:
            await memory.ready()
            ada = memory.space("user:ada")
            for fact in FACTS.values():
                await ada.add(fact)
            await memory.drain()
            conversation = memory.conversation("monday", user="ada")
            messages: list[Any] = []
            for question in FACTS:
                messages.append({"role": "user", "content": question})
                with tracer.walking("a user message → its block") as walk:
                    turn = await conversation.start_turn(messages)
                    block = await turn.inject(messages, within=5.0)
                if block is not None:
                    asked.append(walk)
                messages.append({"role": "assistant", "content": "As you said."})
                with tracer.walking("a finished turn → recorded") as walk:
                    turn.finish(messages)
                    await turn.wait_recorded()
                recorded.append(walk)
                await memory.drain()
            operation = (await ada.operations())[0]
            with tracer.walking("undo") as undone:
                await ada.undo(operation.id)
    shortest = [
        min(walks[WARM_AFTER:], key=lambda walk: (len(walk.files), walk.counts()["calls"]))
        for walks in (asked, recorded)
    ]
    return [*shortest, undone]


def report(walks: list[Walk], write: Callable[[str], object]) -> None:
    for walk in walks:
        write(f"{walk.name}\n")
        for number, (file, calls) in enumerate(walk.files.items(), start=1):
            write(f"  {number:3} {file:45} {calls:5} calls\n")
        write("  deepest: " + " > ".join(walk.deepest) + "\n\n")
    columns = list(walks[0].counts())
    write(f"{'':30}" + "".join(f"{column:>16}" for column in columns) + "\n")
    for walk in walks:
        write(f"{walk.name:30}" + "".join(f"{count:>16,}" for count in walk.counts().values()) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the counts, the files and the deepest stack as JSON")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        walks = asyncio.run(play(Path(folder) / "memory.db"))
    if arguments.json:
        told = {walk.name: {**walk.counts(), "in order": list(walk.files), "deepest": walk.deepest} for walk in walks}
        sys.stdout.write(json.dumps(told) + "\n")
    else:
        report(walks, sys.stdout.write)


if __name__ == "__main__":
    main()
