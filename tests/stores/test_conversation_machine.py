"""Random lives of two conversations against a simple model of what a store must still know of them."""

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from afterturn.config import Config
from afterturn.ports import Unit
from afterturn.stores.sqlite.engine import open_engine
from afterturn.testing.clock import ManualClock
from afterturn.testing.entries import admit, operation
from afterturn.types import (
    BlockRow,
    Candidate,
    CarriedRow,
    ConversationKey,
    ConversationState,
    Entry,
    Lane,
    Outcome,
    Phase,
    RecallCause,
    RecallRow,
    Selector,
    StandingRow,
    TurnRow,
    TurnStatus,
)

TENANT = "default"
SPACES = ("user:ada", "team:bees")
TALKS = tuple(ConversationKey(TENANT, space, "talk") for space in SPACES)
RECALLS_MAX = 3
TALK = st.sampled_from(range(len(TALKS)))
HASHES = st.sampled_from(["h1", "h2", "h3"])


class Model:
    """One conversation as it should be. What it shows is told apart by the entries' references."""

    def __init__(self) -> None:
        self.blocks: dict[str, BlockRow] = {}
        self.state = ConversationState()
        self.cleared_at = 0.0
        self.carried: CarriedRow | None = None
        self.standing: StandingRow | None = None

    def inject(self, block: BlockRow) -> None:
        known = self.blocks.get(block.hash)
        if known is None:
            self.blocks[block.hash] = block
        elif not known.in_sight:
            self.blocks[block.hash] = replace(block, refs=known.refs, text=known.text or block.text)
        elif not known.text:
            self.blocks[block.hash] = replace(known, text=block.text)

    def clear(self, at: float, still: set[str], *, compacted: bool) -> None:
        self.blocks = {
            name: replace(block, in_sight=block.in_sight and name in still) for name, block in self.blocks.items()
        }
        self.carried, self.cleared_at = None, at
        if compacted:
            self.state = replace(self.state, compactions=self.state.compactions + 1, compacted_at=at)

    def forget(self, entry: Entry, *, is_own: bool) -> None:
        for name, block in self.blocks.items():
            if entry.ref in block.refs:
                refs = tuple(ref for ref in block.refs if ref != entry.ref) if is_own else block.refs
                self.blocks[name] = replace(block, text="", refs=refs)
        if self.standing is not None and entry.ref in self.standing.refs:
            self.standing = None
        if self.carried is not None:
            left = tuple(seen for seen in self.carried.candidates if seen.ref != entry.ref)
            self.carried = replace(self.carried, candidates=left)


class Conversations(RuleBasedStateMachine):
    entries = Bundle("entries")

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.engine = open_engine(self.folder / "memory.db", Config(synchronous="normal"), ManualClock())
        self.models = [Model() for _ in TALKS]
        self.recalls: list[dict[str, RecallRow]] = [{} for _ in TALKS]
        self.shown: dict[tuple[int, str], tuple[str, ...]] = {}
        self.forgotten: set[str] = set()
        self.time = 1.0

    def teardown(self) -> None:
        self.engine.close()
        shutil.rmtree(self.folder)

    def tick(self) -> float:
        self.time += 1.0
        return self.time

    @initialize(target=entries)
    def begin(self) -> object:
        return multiple(*(self.add(space) for space in (0, 1)))

    @rule(target=entries, space=TALK)
    def add(self, space: int) -> Entry:
        draft = admit(f"fact {self.tick()}")
        return self.engine.write_now(lambda unit: unit.memories.add(operation(space=SPACES[space]), draft)).entry

    @rule(talk=TALK, name=HASHES, entry=entries)
    def inject(self, talk: int, name: str, entry: Entry) -> None:
        at = self.tick()
        # Equal bytes show equal things.
        refs = self.shown.setdefault((talk, name), (entry.ref,))
        block = BlockRow(name, f"turn {at}", refs, 9, at, "user_message", f"anchor {at}", f"text of {name}")
        self.engine.write_now(lambda unit: unit.conversations.add_block(TALKS[talk], block))
        self.models[talk].inject(block if self.forgotten.isdisjoint(refs) else replace(block, text=""))

    @rule(talk=TALK, name=HASHES)
    def store_again(self, talk: int, name: str) -> None:
        """As a recording does, with no text, however late: it changes nothing that is known."""
        known = self.models[talk].blocks.get(name)
        if known is not None and (known.in_sight or known.injected_at < self.models[talk].cleared_at):
            late = replace(known, text="", in_sight=True)
            self.engine.write_now(lambda unit: unit.conversations.add_block(TALKS[talk], late))

    @rule(talk=TALK, compacted=st.booleans(), still=st.sets(HASHES))
    def clear(self, talk: int, *, compacted: bool, still: set[str]) -> None:
        at = self.tick()
        self.engine.write_now(
            lambda unit: unit.conversations.clear(TALKS[talk], at=at, compacted=compacted, still=still)
        )
        self.models[talk].clear(at, still, compacted=compacted)

    @rule(talk=TALK, entry=entries)
    def carry(self, talk: int, entry: Entry) -> None:
        at = self.tick()
        carried = CarriedRow(f"c{at}", f"turn {at}", 1, "bees?", at, at, (Phase.FAST,), (_seen(entry),))
        self.engine.write_now(lambda unit: unit.conversations.carry(TALKS[talk], carried))
        self.models[talk].carried = carried

    @rule(talk=TALK)
    def offer(self, talk: int) -> None:
        carried = self.models[talk].carried
        name = carried.correlation if carried else "none"
        ended = self.engine.write_now(lambda unit: unit.conversations.drop_carried(TALKS[talk], name))
        assert ended == (carried is not None)
        self.models[talk].carried = None

    @rule(talk=TALK, entry=entries)
    def freeze(self, talk: int, entry: Entry) -> None:
        standing = StandingRow(f"standing at {self.tick()}", (entry.ref,), self.time)
        self.engine.write_now(lambda unit: unit.conversations.put_standing(TALKS[talk], standing))
        self.models[talk].standing = standing

    @rule(talk=TALK)
    def record(self, talk: int) -> None:
        turn, at = f"turn {self.tick()}", self.time

        def work(unit: Unit) -> list[bool]:
            unit.conversations.start_turn(TALKS[talk], TurnRow(turn, TurnStatus.OPEN, at, "hash"))
            return [
                unit.conversations.end_turn(TALKS[talk], turn, status=TurnStatus.COMPLETED, at=at, recorded=True)
                for _ in range(2)
            ]

        assert self.engine.write_now(work) == [True, False]
        self.models[talk].state = replace(self.models[talk].state, turns=self.models[talk].state.turns + 1)

    @rule(talk=TALK, entry=entries)
    def trace(self, talk: int, entry: Entry) -> None:
        at = self.tick()
        row = RecallRow(f"c{at}", f"turn {at}", 1, RecallCause.MESSAGE, Phase.FAST, "?", at, at, Outcome.EMPTY, "")
        row = replace(row, candidates=(_seen(entry),), excluded=(entry.ref,))
        self.engine.write_now(lambda unit: unit.recalls.add(TALKS[talk], row, entries_max=RECALLS_MAX))
        kept = {**self.recalls[talk], row.correlation: row}
        self.recalls[talk] = dict(list(kept.items())[-RECALLS_MAX:])

    @rule(entry=consumes(entries))
    def forget(self, entry: Entry) -> None:
        self.engine.write_now(
            lambda unit: unit.operations.forget(TENANT, entry.space, Selector(memory=entry.id), at=self.time)
        )
        self.forgotten.add(entry.ref)
        for at, key in enumerate(TALKS):
            is_own = key.space == entry.space
            self.models[at].forget(entry, is_own=is_own)
            self.recalls[at] = {name: _forgotten(row, entry, is_own=is_own) for name, row in self.recalls[at].items()}

    @rule(talk=TALK)
    def forget_conversation(self, talk: int) -> None:
        """One without blocks: those would stay known by their hashes."""
        if not self.models[talk].blocks:
            self.engine.write_now(
                lambda unit: unit.operations.forget(
                    TENANT, TALKS[talk].space, Selector(conversation="talk"), at=self.time
                )
            )
            self.models[talk], self.recalls[talk] = Model(), {}

    @invariant()
    def everything_is_as_the_model_says(self) -> None:
        for key, model, recalls in zip(TALKS, self.models, self.recalls, strict=True):
            expected = model.carried if model.carried is not None and model.carried.candidates else None
            found = self.engine.read_now(lambda unit, key=key: _all_of(unit, key))
            blocks = sorted(model.blocks.values(), key=lambda block: (block.injected_at, block.hash))
            assert found == (blocks, model.state, expected, model.standing, list(recalls.values()))


def _seen(entry: Entry) -> Candidate:
    return Candidate(entry.ref, entry.space, Lane.LONG_TERM, 0.5, 0.5, None)


def _forgotten(row: RecallRow, entry: Entry, *, is_own: bool) -> RecallRow:
    """Another space's forget does not reach ids that were excluded, but no candidate of it is given."""
    excluded = tuple(ref for ref in row.excluded if ref != entry.ref) if is_own else row.excluded
    return replace(row, candidates=tuple(seen for seen in row.candidates if seen.ref != entry.ref), excluded=excluded)


def _all_of(unit: Unit, key: ConversationKey) -> tuple[object, ...]:
    return (
        unit.conversations.blocks(key),
        unit.conversations.state(key),
        unit.conversations.read(key).carried,
        unit.conversations.find_standing(key),
        unit.recalls.page(key),
    )


def test_each_conversation_keeps_what_is_its_own_in_whatever_order_things_happen() -> None:
    """R8, H6, H7, S3, M2: blocks in sight, counters, what is carried and what stands, with things forgotten between."""
    run_state_machine_as_test(Conversations, settings=settings(max_examples=25, stateful_step_count=30, deadline=None))
