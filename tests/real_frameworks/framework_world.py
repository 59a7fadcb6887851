"""What every test of a framework uses: a memory whose recall can be held back, the scripted model, and what must be
true of the requests that the model got."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from afterturn import Components, Event, Filter, Kind, blocking
from afterturn.config import Config
from afterturn.ports import Clock, Store, Unit
from afterturn.runtime.once_future import OnceFuture
from afterturn.stores.sqlite.store import open_store
from afterturn.types import UnitScope
from lab.clients.model_server import Call, ModelRequest, ModelServer, Rule, Say, follow

R = TypeVar("R")
WITHIN = 60.0
EXAMPLES = Path(__file__).parents[2] / "examples" / "frameworks"

BLOCK = "<afterturn-memory>"
STANDING = "<afterturn-standing>"
FACT = "Ada's cat Miso is allergic to chicken."
QUESTION = "What food is my cat Miso allergic to?"
ANSWER = "Miso is allergic to chicken."
SUPPER = "What can I cook for Miso tonight?"
# A preference of a few words stands; a fact has to be recalled, which these tests are about.
STANDING_CHARS = 30
LOOK_UP = "look_up"
STEPS = 3

# What a test shows: the rows of the table in docs/frameworks.md, in this order.
KNOWN = "what was said in one conversation is known in the next"
ONCE = "one block in a tool loop of three steps; earlier messages never change; calls and results stay together"
LATE = "a slow recall arrives after a tool result"
NOT_RECORDED = "blocks and tool results are not recorded as anybody's words"
COMPACTION = "after a compaction, what was lost is recalled again"
SUBAGENT = "a hand-off stays in the turn; a sub-agent's words are not the user's"
RULES = "rules of the user at tool calls; a firm rule refuses the call"
STANDING_ROW = "the standing context is in the system prompt"
STREAMING = "streaming"
SYNC = "without an event loop"
IDS = "users and conversations come from the framework's own ids, or from one line of configuration"
BROKEN = "a broken memory never fails a run"


class HeldStore:
    """The real SQLite store, whose searches, or other reads, wait while `hold` is in force."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self._free: OnceFuture[bool] = OnceFuture()
        self._free.settle(True)
        self._held = ""

    def hold(self, read: str = "answer_question") -> None:
        self._free, self._held = OnceFuture(), read

    def release(self) -> None:
        self._free.settle(True)

    async def read(self, work: Callable[[Unit], R], *, at: UnitScope) -> R:
        if self._held and self._held in getattr(getattr(work, "func", work), "__qualname__", ""):
            await self._free.wait(within=WITHIN)
        return await self._inner.read(work, at=at)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class World:
    """One memory on a file and one scripted model. `memory` is open; adapters may be given it, or `path`."""

    def __init__(self, folder: Path, server: ModelServer, *, grace: float = WITHIN) -> None:
        self.path, self.server = folder / "memory.db", server
        self.events: list[Event] = []
        self._happened = threading.Condition()
        self._store: HeldStore | None = None
        settings = {"grace": grace, "standing_chars_max": STANDING_CHARS}
        self.memory = blocking.open(
            self.path, settings, on_event=self._note, components=Components(store=self._open_store)
        )

    def __enter__(self) -> World:
        self.memory.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.store.release()
        self.memory.close()

    def _open_store(self, path: Path, config: Config, clock: Clock) -> Store:
        self._store = HeldStore(open_store(path, config, clock))
        return self._store  # type: ignore[return-value]

    @property
    def store(self) -> HeldStore:
        assert self._store is not None
        return self._store

    def _note(self, event: Event) -> None:
        with self._happened:
            self.events.append(event)
            self._happened.notify_all()

    def count(self, name: str) -> int:
        return sum(event.name == name for event in self.events)

    def wait_for(self, name: str, count: int = 1) -> None:
        """Waits until the event has happened that often in all."""
        with self._happened:
            happened = self._happened.wait_for(lambda: self.count(name) >= count, timeout=WITHIN)
        assert happened, f"{name} did not happen {count} times: {[event.name for event in self.events]}"

    def knows(self, text: str = FACT, *, space: str = "user:ada", **fields: Any) -> None:
        """Ada has said this before."""
        self.memory.space(space).add(text, **fields)
        self.memory.ready()

    def release_recall(self) -> str:
        """What a tool does while a recall is held back: the recall ends before the tool's result is there."""
        settled = self.count("recall_settled")
        self.store.release()
        self.wait_for("recall_settled", settled + 1)
        return "nothing on the shelf"

    def play(self, *rules: Rule, otherwise: str = "Noted.") -> None:
        """What the model answers from now on."""
        self.server.script = follow(rules, otherwise)

    def play_tools(self, question: str = QUESTION, *, tool: str = LOOK_UP, answer: str = ANSWER) -> None:
        """A loop of three tool calls after this question, then the answer."""
        calls = tuple(Call(tool, {"query": f"shelf {number}"}) for number in range(1, STEPS + 1))
        self.play(Rule(question, (*calls, Say(answer))))

    def play_shell(self) -> None:
        """Two rules of Ada, and a model that calls `shell` once against the firm one and once against the other."""
        self.knows("Never push to main", firm=True)
        self.knows("We use pnpm in this repo", target="environment", metadata={"kind": "convention"})
        calls = (Call("shell", {"command": "git push origin main"}), Call("shell", {"command": "npm install lodash"}))
        self.play(Rule("Publish", (*calls, Say("Done."))))

    def records(self, space: str = "user:ada") -> list[tuple[str | None, str]]:
        """Speakers and texts of all recorded messages of a space, in order."""
        entries = self.memory.space(space).list(filter=Filter(kind=Kind.RECORD), limit=100)
        ordered = sorted(entries, key=lambda entry: (entry.recorded_at, entry.position or 0))
        return [(entry.speaker, entry.text) for entry in ordered]

    @property
    def requests(self) -> list[ModelRequest]:
        return self.server.requests


def parts(request: ModelRequest) -> list[tuple[str, str, str]]:
    """What the model reads, without the system prompt."""
    return [(part.role, part.kind, part.text) for part in request.parts if part.role not in ("system", "developer")]


def system(request: ModelRequest) -> str:
    return "\n".join(part.text for part in request.parts if part.role in ("system", "developer"))


def blocks(request: ModelRequest) -> list[str]:
    """The texts that have a block of memory in them. A block is always in a text of the user's role."""
    holding = [(role, text) for role, kind, text in parts(request) if BLOCK in text]
    assert all(role == "user" for role, _ in holding), holding
    return [text for _, text in holding]


def assert_rules_held(request: ModelRequest, ran: list[str]) -> None:
    """After `play_shell`: the firm rule refused its call, and the other rule came with the tool's "done"."""
    refused, result = [part.text for part in request.parts if part.kind == "result"]
    assert ran == ["npm install lodash"], result
    assert "Refused by your rule: Never push to main" in refused
    assert result.startswith("done\n\nRules of the user")


def assert_append_only(requests: Sequence[ModelRequest]) -> None:
    """H3: each request repeats what the one before it had, and adds to its end."""
    for earlier, later in pairwise(requests):
        assert parts(later)[: len(parts(earlier))] == parts(earlier)


def assert_paired(request: ModelRequest) -> None:
    """H1: nothing stands between calls and their results."""
    open_calls = 0
    for role, kind, text in parts(request):
        if kind == "call":
            open_calls += 1
        elif kind == "result":
            assert open_calls > 0, (role, text)
            open_calls -= 1
        else:
            assert open_calls == 0, f"{text!r} stands between a call and its result"
    assert open_calls == 0


def assert_one_block_in_a_loop(requests: Sequence[ModelRequest]) -> None:
    """R1, H2: the requests of one turn with three tool calls have the same single block, from the first one on."""
    assert len(requests) == STEPS + 1
    assert [len(blocks(request)) for request in requests] == [1] * (STEPS + 1)
    assert all("allergic to chicken" in blocks(request)[0] for request in requests)
    assert_append_only(requests)
    for request in requests:
        assert_paired(request)


def assert_late_block(requests: Sequence[ModelRequest]) -> None:
    """H1: the block that was not ready at first comes after the first tool result, once."""
    assert len(requests) == STEPS + 1
    assert [len(blocks(request)) for request in requests] == [0, *[1] * STEPS]
    assert_append_only(requests)
    for request in requests:
        assert_paired(request)


def run_example(name: str, folder: Path, environment: Mapping[str, str]) -> str:
    """Runs a file of examples/frameworks with this Python in a folder, and returns what it printed."""
    ended = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        cwd=folder,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "AFTERTURN_STANDING_CHARS_MAX": str(STANDING_CHARS),
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=WITHIN,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout
