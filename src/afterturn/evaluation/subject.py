"""The memory that is examined: a real store in a temporary folder, asked through the verbs that hosts use."""

from __future__ import annotations

import re
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from afterturn import blocking
from afterturn.config import Config, load_config
from afterturn.conversation.read_turn import compose, weighed_max
from afterturn.embedders.service import SLICE
from afterturn.errors import ConfigError, DeadlineExceeded
from afterturn.evaluation.conversations import Item
from afterturn.ports import Batching, Closable, Embedder
from afterturn.runtime.clock import SystemClock, TimeOrderedIds
from afterturn.services import Components, default_embedder
from afterturn.text import estimate_tokens, terms
from afterturn.types import Draft, EmbedderIdentity, Entry, Event, Hit, Kind, Lane, Origin, Outcome, Target

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DAY = 86_400.0
# Nobody measures time here: a machine that is busy with other things must not cost an answer.
PATIENCE = 600.0
_PAGE = 1000
# No message is too long to be examined.
_RECORD_BYTES_MAX = 1 << 30
_REF = re.compile(r"^- \[([0-9a-z]+)(?:\.\d+)?\]", re.MULTILINE)


class EvalClock:
    """Calendar time as the conversations have it, deadlines in real time."""

    def __init__(self) -> None:
        self._real = SystemClock()
        self._now = self._real.now()

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._real.monotonic()

    def set(self, at: float) -> None:
        self._now = at


class Faults:
    """What recalls had to do without: figures that hide it would be too low for the wrong reason."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def hear(self, event: Event) -> None:
        """The `on_event` of a memory."""
        if event.name == "recall_settled":
            self.note(str(event.data["missing"]))
        elif event.name == "recall_ended" and event.data["outcome"] == Outcome.DEGRADED:
            self.note(str(event.data["reason"]))

    def note(self, missing: str) -> None:
        if missing:
            self.counts[missing] += 1


class CachedEmbedder:
    """Embeds a text once, whoever asks: the memory, its second opening and the baseline all need the same vectors."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._known: dict[str, NDArray[np.float32]] = {}
        self._lock = threading.Lock()

    @property
    def identity(self) -> EmbedderIdentity:
        return self._embedder.identity

    @property
    def batch_texts(self) -> int:
        """The Batching port; for an embedder that has none, as many as a memory gives to it without a turn beside."""
        return self._embedder.batch_texts if isinstance(self._embedder, Batching) else SLICE

    def close(self) -> None:
        """The Closable port."""
        if isinstance(self._embedder, Closable):
            self._embedder.close()

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        import numpy as np

        if not texts:
            return self._embedder.embed(texts)
        with self._lock:
            missing = list(dict.fromkeys(text for text in texts if text not in self._known))
            if missing:
                self._known.update(zip(missing, self._embedder.embed(missing), strict=True))
        return np.stack([self._known[text] for text in texts])


@dataclass(frozen=True, slots=True)
class EvaluatedBlock:
    """What a model would see: `ids` of the memories in it. Blank when there is nothing to say."""

    text: str = ""
    ids: tuple[str, ...] = ()

    @property
    def tokens(self) -> int:
        return estimate_tokens(self.text)


def block_of(text: str) -> EvaluatedBlock:
    return EvaluatedBlock(text, tuple(_REF.findall(text)))


def plain(text: str) -> str:
    """As it is compared: whatever white space, one space."""
    return " ".join(text.split())


@dataclass(slots=True)
class Subject:
    """One store, in which each conversation has a space of its own. `unfloored` is the same store, asked for a ranking
    without the floor that decides whether something is worth a model's attention."""

    memory: blocking.Memory
    unfloored: blocking.Memory
    config: Config
    clock: EvalClock
    embedder: CachedEmbedder | None
    faults: Faults
    _asked: int = 0
    _terms: dict[str, frozenset[str]] = field(default_factory=dict)

    def learn(self, space: str, drafts: Sequence[Draft]) -> None:
        """Stores what was said as it would have been recorded then. Returns when the vectors are there."""
        if drafts:
            self.memory.space(space).add_many(drafts)
            self.settle()

    def settle(self) -> None:
        """Waits for vectors of all that was added."""
        if not self.memory.drain(within=PATIENCE):
            raise DeadlineExceeded(f"The vectors are not there after {PATIENCE:g} seconds. Take a faster embedder.")

    def newest(self, space: str, count: int) -> dict[str, Entry]:
        """So many of the space's entries, by id."""
        opened = self.memory.space(space)
        found: dict[str, Entry] = {}
        before = None
        while len(found) < count:
            page = opened.list(limit=min(_PAGE, count - len(found)), before=before)
            if not page:
                break
            found.update((entry.id, entry) for entry in page)
            before = page[-1].id
        return found

    def ranked(self, space: str, question: str, limit: int) -> tuple[Hit, ...]:
        """What is recalled, best first, whatever its score."""
        found = self.unfloored.space(space).search(question, limit=limit)
        self.faults.note(",".join(found.missing))
        return found.hits

    def handed_over(self, space: str, question: str, *, reads: Sequence[str] = ()) -> EvaluatedBlock:
        """The block of a turn that begins a new conversation with this question, under the budgets of the settings."""
        self._asked += 1
        conversation = self.memory.conversation(f"question {self._asked}", owner=space, reads=reads)
        with conversation.turn([{"role": "user", "content": question}]) as turn:
            text = turn.block(within=PATIENCE)
            turn.abort("evaluated")
        return block_of(text)

    def rendered(self, entries: Sequence[Entry], question: str) -> EvaluatedBlock:
        """What a block would be if this were the ranking."""
        wanted = frozenset(terms(question))
        hits = [self._as_hit(entry, place, wanted) for place, entry in enumerate(entries[: weighed_max(self.config)])]
        block = compose(hits, self.config, visible_bytes=0, now=self.clock.now())
        return EvaluatedBlock() if block is None else block_of(block.text)

    def _as_hit(self, entry: Entry, place: int, wanted: frozenset[str]) -> Hit:
        if entry.ref not in self._terms:
            self._terms[entry.ref] = frozenset(terms(entry.text))
        shared = tuple(sorted(wanted & self._terms[entry.ref]))
        return Hit(entry, Lane.EPISODIC, 1 / (place + 1), 0.0, None, shared)


@contextmanager
def open_subject(embedder: str | None = None) -> Iterator[Subject]:
    """Settings are those of the machine, but where it keeps its memories and what would ask a model."""
    chosen = {"embedder": embedder} if embedder is not None else {}
    config = replace(
        load_config(chosen),
        background=False,
        synchronous="normal",
        refined=False,
        model_url=None,
        tenant="default",
        recall_timeout=PATIENCE,
        record_bytes_max=_RECORD_BYTES_MAX,
    )
    clock, inner = EvalClock(), default_embedder(config)
    cached = CachedEmbedder(inner) if inner is not None else None
    parts, faults = Components(embedder=cached, clock=clock), Faults()
    with ExitStack() as stack:
        path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="afterturn-eval-"))) / "memory.db"
        memory = stack.enter_context(blocking.open(path, config, components=parts, on_event=faults.hear))
        unfloored = stack.enter_context(blocking.open(path, replace(config, recall_score_min=0.0), components=parts))
        for opened in (memory, unfloored):
            if cached is not None and not opened.ready(within=PATIENCE):
                raise ConfigError(f"The embedder {config.embedder!r} can not be loaded. See `afterturn doctor`.")
        yield Subject(memory, unfloored, config, clock, cached, faults)


def drafts_of(items: Sequence[Item]) -> list[Draft]:
    """One for each item, with an id of its own."""
    ids = TimeOrderedIds()
    drafts: list[Draft] = []
    positions: Counter[str] = Counter()
    for item in items:
        # An agent's words belong to the turn that they answer.
        follows = item.is_agents and drafts and drafts[-1].conversation == _conversation(item)
        turn = drafts[-1].turn if follows else f"turn {len(drafts)}"
        drafts.append(_draft(item, positions[item.session], turn, ids.new()))
        positions[item.session] += 1
    return drafts


def _draft(item: Item, position: int, turn: str | None, entry_id: str) -> Draft:
    return Draft(
        text=item.text,
        kind=Kind.RECORD,
        origin=Origin.AGENT if item.is_agents else Origin.USER,
        target=Target.ENVIRONMENT if item.is_agents else Target.USER,
        conversation=_conversation(item),
        turn=turn,
        position=position,
        speaker=item.speaker.lower() if item.speaker.lower() in ("user", "assistant") else item.speaker,
        occurred_at=item.at,
        id=entry_id,
    )


def _conversation(item: Item) -> str:
    return f"session {item.session}"
