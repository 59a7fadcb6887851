"""A host that does whatever chance has it do to its conversation, and notices when a promise is broken."""

from __future__ import annotations

import copy
import functools
import logging
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from controlled_store import HERBS, StagedStore
from hosted import Format, Listed, blocks_in, is_block, written
from hypothesis import strategies as st
from scripted_selector import MoodyModel
from spoken import Told

import afterturn
from afterturn import blocking
from afterturn.config import Config
from afterturn.conversation import engine
from afterturn.ports import Clock
from afterturn.stores.sqlite.store import open_store
from afterturn.testing.clock import ManualClock
from afterturn.text import is_acknowledgement

R = TypeVar("R")
GRACE = 0.02
# What a loaded machine may add to a wait; far below the limits of a recall and of a model.
SLACK = 5.0
LIMIT = 30.0
CUES_MAX = 2
SOUP, CAT, BED = "What goes into the soup?", "What is my cat called?", "Where does my cat sleep?"
SAID = st.sampled_from([SOUP, SOUP, "Which herb goes into the soup?", CAT, BED, "ok", ""])
KNOWN = (*(f"{herb} goes into the soup" for herb in HERBS), "Ada's cat is called Miso", "Ada's cat sleeps in the attic")
TROUBLES = ("failing searches", "failing reads", "failing writes", "hanging searches", "hanging reads")
CONFIG: dict[str, object] = {
    "embedder": "none",
    "grace": GRACE,
    "busy_timeout": 0.5,
    "close_timeout": 10.0,
    "recall_timeout": LIMIT,
    "recall_entries_max": 3,
    "synchronous": "normal",
}


class Complaints(logging.Handler):
    """What memory logs as an error is a broken promise: its faults end inside of it, with a warning."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.heard: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.heard.append(self.format(record))


class Host:
    """One conversation. `style` says where blocks go: append, merge, hidden, or block for one that writes its prompt.

    `questions` counts what was said in each turn that deserves a recall; `exact` is whether each of them had the time
    to be asked; `forgetful`: the store did not take everything, so that another process may not know our blocks.
    """

    def __init__(self, template: Path, form: Format, style: str, *, named: bool, refined: bool) -> None:
        self.form, self.style, self.refined = form, style, refined
        self.where: dict[str, Any] = {"user": "ada", "dialect": form.name if named else None}
        self.where |= {"merge": {"placement": "merge"}, "hidden": {"history": "hidden"}}.get(style, {})
        self.folder = Path(tempfile.mkdtemp())
        self.patched = pytest.MonkeyPatch()
        self.patched.setattr(engine, "CUES_MAX", CUES_MAX)
        shutil.copy(template, self.folder / "memory.db")
        self.told, self.clock, self.complaints = Told(), ManualClock(), Complaints()
        logging.getLogger("afterturn").addHandler(self.complaints)
        self.messages: Listed = []
        self.waiting: list[str] = []
        self.turn: blocking.Turn | None = None
        self.lingering: list[tuple[blocking.Turn, Listed]] = []
        self.questions: Counter[str] = Counter()
        self.steps = self.began = 0
        self.text = ""
        self.durable = self.forgetful = self.exact = False
        self.open()

    # A memory's life.

    def open(self) -> None:
        self.model = MoodyModel()
        parts = afterturn.Components(clock=self.clock, store=self._stage)
        config = {**CONFIG, "refined": self.refined}
        self.memory = blocking.open(
            self.folder / "memory.db", config, on_event=self.told, components=parts, model=self.model
        ).start()
        self.conversation = self.memory.conversation("c", **self.where)

    def _stage(self, target: Path, config: Config, clock: Clock) -> StagedStore:
        self.store = StagedStore(open_store(target, config, clock))
        return self.store

    def close(self) -> None:
        """With recalls and models in flight; of what hangs, a recall's search goes on hanging."""
        self.store.reading.open()
        services = self.memory._services
        self.memory.close()
        assert not services.supervisor._tasks, "a task is left"
        assert not services.supervisor.failures
        assert self.complaints.heard == []

    def end(self) -> None:
        logging.getLogger("afterturn").removeHandler(self.complaints)
        self.close()
        self.patched.undo()
        shutil.rmtree(self.folder)

    # What is said.

    def user_speaks(self, text: str, *, durable: bool) -> None:
        if self.style == "hidden":
            self.messages = []
        self.messages.append(self.form.user(text))
        self.clock.advance(1.0)
        self.text, self.began, self.durable = "", len(self.messages) - 1, durable
        if durable:
            self.store.mend()
            self.turn = self.conversation.start_turn(self.messages)
        else:
            self.turn = self.watched(lambda: self.conversation.turn(self.messages))
        self.exact = True
        self._asked(text)

    def user_interjects(self, text: str) -> None:
        assert self.turn is not None
        self.messages.append(self.form.user(text))
        self._hurries()
        self.watched(functools.partial(self.turn.interject, text))
        self._asked(text)

    def host_cues(self, text: str) -> None:
        assert self.turn is not None
        self._hurries()
        refused = self.turn._turn is not None and self.turn._turn.cues >= CUES_MAX
        self.watched(functools.partial(self.turn.cue, text))
        if not refused:
            self._asked(text)

    def _hurries(self) -> None:
        """Before memory has asked the last question, the next one takes its place."""
        assert self.turn is not None
        assert self.turn._turn is not None
        self.exact = self.exact and self.turn._turn.shared.current.fast.settled.settled

    def _asked(self, text: str) -> None:
        assert self.turn is not None
        self.questions[self.turn.id] += bool(text.strip()) and not is_acknowledgement(text)

    # What is handed over.

    def host_injects(self, how: str) -> None:
        if self.style == "block":
            self._takes_text(how)
            return
        before = written(self.messages)
        element = self.watched(lambda: self._injected(how))
        if self.waiting:
            assert element is None, "H1: nothing is handed over while a call is open"
        self._check_grown(before, element)

    def _injected(self, how: str) -> Any:
        assert self.turn is not None
        if how == "now":
            return self.turn.inject_now(self.messages)
        if how == "grace":
            return self.turn.inject(self.messages)
        return self.turn.inject(self.messages, within=GRACE, phase="refined" if how == "refined" else "fast")

    def _takes_text(self, how: str) -> None:
        assert self.turn is not None
        turn = self.turn
        text = self.watched(turn.block_now if how == "now" else lambda: turn.block(within=GRACE))
        assert text.startswith(self.text), "H8: what was in the prompt changed"
        self.text = text

    def _check_grown(self, before: list[str], element: Any) -> None:
        """H3: at the end, or merged into the last one; what the host rebuilt gets its blocks back in between."""
        after = written(self.messages)
        if element is None:
            assert after == before
        elif self.style == "merge":
            assert after[: len(before) - 1] == before[:-1]
            assert len(after) <= len(before) + 1
        else:
            assert blocks_in([element], self.form)
            blocks = {written([message])[0] for message in self.messages if is_block(message, self.form)}
            assert [text for text in after if text not in blocks] == [text for text in before if text not in blocks]

    # What the agent does.

    def model_calls_tools(self, calls: int) -> None:
        self.waiting = [f"call-{self.steps}-{number}" for number in range(calls)]
        self.steps += 1
        self.messages.extend(self.form.calls(self.waiting))

    def tools_answer(self) -> None:
        self.messages.extend(self.form.answers(self.waiting))
        self.waiting = []

    def model_answers(self, how: str) -> None:
        """`lingers`: a streaming host, whose answer is there and whose turn stays open."""
        assert self.turn is not None
        turn, self.turn = self.turn, None
        self.messages.append(self.form.assistant(f"Answer {self.steps}."))
        self.steps += 1
        if how == "lingers":
            self.lingering.append((turn, list(self.messages)))
        elif how == "finishes":
            self.watched(lambda: turn.finish(self.messages))
        else:
            self.watched(lambda: turn.__exit__(None, None, None))

    def host_leaves_late(self) -> None:
        turn, messages = self.lingering.pop()
        self.watched(lambda: turn.finish(messages))

    def host_aborts(self) -> None:
        assert self.turn is not None
        self.watched(functools.partial(self.turn.abort, "turn limit"))
        self._give_up()

    def _give_up(self) -> None:
        """The host goes on where no call is open."""
        self.turn, self.waiting = None, []
        while self.messages and self.calls(-1):
            self.messages.pop()

    # What the host does to its list.

    def host_compacts(self, *, is_told: bool, keeps: bool) -> None:
        """Mid-turn the user's message stays, with or without what stood after it."""
        tail = self.messages[self.began :] if self.turn is not None else []
        tail = tail if keeps else tail[:1]
        head = [] if self.style == "hidden" else [self.form.user("Summary: we spoke."), self.form.assistant("Yes.")]
        self.messages, self.began = head + tail, len(head)
        if self.style == "hidden":
            self.watched(lambda: self.conversation.compacted())
        elif is_told:
            self.watched(lambda: self.conversation.compacted(self.messages))

    def host_rewinds(self, turns: int) -> None:
        """To where the user was about to speak, so many turns ago."""
        ends = [0, *(at for at in range(1, len(self.messages)) if self.is_answer(at - 1))]
        del self.messages[ends[max(0, len(ends) - turns)] :]

    def host_rebuilds(self) -> None:
        """Writes its list anew, without what is not its own; the next point brings the same bytes back."""
        whole = written(self.messages)
        self.messages = [message for message in self.messages if not is_block(message, self.form)]
        if self.turn is None or len(self.messages) == len(whole) or self.is_assistant(-1):
            return
        put_back = self.watched(functools.partial(self.turn.inject_now, self.messages))
        if put_back is not None and not self.forgetful:
            assert written(self.messages)[: len(whole)] == whole, "H6: same bytes, same places"

    def host_copies_its_list(self) -> None:
        self.messages = copy.deepcopy(self.messages)

    def host_resets(self) -> None:
        if self.turn is not None:
            self.host_aborts()
        self.watched(lambda: self.conversation.reset())
        self.messages, self.text = [], ""

    # What becomes of memory.

    def store_has_trouble(self, trouble: str) -> None:
        self.store.mend()
        self.store.fails_searches = trouble == "failing searches"
        self.store.fails_reads = trouble == "failing reads"
        self.store.fails_writes = trouble == "failing writes"
        self.forgetful = self.forgetful or self.store.fails_writes
        self.exact = self.exact and "reads" not in trouble
        if trouble == "hanging searches":
            self.store.searching.shut()
        if trouble == "hanging reads":
            self.store.reading.shut()

    def everything_settles(self) -> None:
        self.store.mend()
        if self.turn is None:
            return
        state = self.turn._turn
        assert state is not None
        assert state.shared.current.fast.settled.wait_blocking(within=LIMIT) is not None
        started = [event for event in self.told.named("recall_started") if event.turn == self.turn.id]
        epochs = sum(event.data["cause"] != "compaction" for event in started)
        assert not self.exact or epochs == self.questions[self.turn.id], "R1: prefetches are epochs"

    def somebody_learns(self, text: str) -> None:
        self.store.mend()
        self.memory.space("user:ada").add(f"{text}, said {self.steps}")

    def process_ends_and_another_begins(self) -> None:
        self.close()
        self.lingering = []
        self.open()
        if self.turn is None:
            return
        if self.durable:
            self.turn, self.exact = self.conversation.resume_turn(self.turn.id), False
        else:
            self._give_up()

    # How it looks.

    @property
    def own(self) -> int:
        """How many messages there would be without memory."""
        return sum(not is_block(message, self.form) for message in self.messages)

    def watched(self, act: Callable[[], R]) -> R:
        """Does it, and looks at how long the host had to wait."""
        began = time.monotonic()
        done = act()
        assert time.monotonic() - began < GRACE + SLACK, "R2: the host waited"
        return done

    def is_assistant(self, at: int) -> bool:
        return self.form.read(self.messages[at]).role == "assistant"

    def calls(self, at: int) -> bool:
        return bool(self.form.read(self.messages[at]).calls)

    def is_answer(self, at: int) -> bool:
        return self.is_assistant(at) and not self.calls(at)
