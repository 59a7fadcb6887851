"""Conversation state in two openings of one file: what one process leaves, the next turn's process finds."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from afterturn.config import Config
from afterturn.errors import Conflict
from afterturn.ports import Unit
from afterturn.runtime.clock import SystemClock
from afterturn.stores.sqlite.engine import Engine, open_engine
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
    Verb,
)

TENANT, SPACE = "default", "user:ada"
TALK = ConversationKey(TENANT, SPACE, "talk")
ROUNDS = 20
R = TypeVar("R")


@pytest.fixture
def engines(tmp_path: Path) -> Iterator[tuple[Engine, Engine]]:
    opened = [open_engine(tmp_path / "memory.db", Config(synchronous="normal"), SystemClock()) for _ in range(2)]
    yield opened[0], opened[1]
    for engine in opened:
        engine.close()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as threads:
        yield threads


def both(pool: ThreadPoolExecutor, engines: tuple[Engine, Engine], work: Callable[[Unit], R]) -> list[R]:
    """What two processes get that do the same at once."""
    return list(pool.map(lambda engine: engine.write_now(work), engines))


def test_what_one_leaves_the_other_finds(engines: tuple[Engine, Engine]) -> None:
    """R8, H6, S3: the next turn may run in another process."""
    here, there = engines
    entry = here.write_now(lambda unit: unit.memories.add(operation(), admit("Ada keeps bees"))).entry
    carried = _carried(entry)
    block = BlockRow("hash", "turn-1", (entry.ref,), 9, 2.0, "user_message", "anchor", "a block")
    standing = StandingRow("Be brief", (entry.ref,), 1.0)

    def work(unit: Unit) -> None:
        unit.conversations.clear(TALK, at=1.0, compacted=True)
        unit.conversations.add_block(TALK, block)
        unit.conversations.carry(TALK, carried)
        unit.conversations.put_standing(TALK, standing)

    here.write_now(work)
    assert there.read_now(lambda unit: unit.conversations.state(TALK)) == ConversationState(0, 1, 1.0)
    assert there.read_now(lambda unit: unit.conversations.blocks(TALK)) == [block]
    assert there.read_now(lambda unit: unit.conversations.read(TALK).carried) == carried
    assert there.read_now(lambda unit: unit.conversations.find_standing(TALK)) == standing


def test_a_carried_recall_ends_in_one_of_two_processes(
    engines: tuple[Engine, Engine], pool: ThreadPoolExecutor
) -> None:
    """R5, R8: however often both try at once, one is told that it was there."""
    entry = engines[0].write_now(lambda unit: unit.memories.add(operation(), admit("Ada keeps bees"))).entry
    for _ in range(ROUNDS):
        engines[0].write_now(lambda unit: unit.conversations.carry(TALK, _carried(entry)))
        assert sorted(both(pool, engines, lambda unit: unit.conversations.drop_carried(TALK, "c1"))) == [False, True]


def test_a_turn_is_counted_by_one_of_two_processes(engines: tuple[Engine, Engine], pool: ThreadPoolExecutor) -> None:
    """C3: both record it, one does."""

    def work(unit: Unit) -> int:
        turn = f"turn-{unit.conversations.state(TALK).turns}"
        unit.conversations.start_turn(TALK, TurnRow(turn, TurnStatus.OPEN, 1.0, "hash"))
        unit.conversations.end_turn(TALK, turn, status=TurnStatus.COMPLETED, at=2.0, recorded=True)
        return unit.conversations.state(TALK).turns

    counted = [count for _ in range(ROUNDS) for count in both(pool, engines, work)]
    assert sorted(counted) == list(range(1, 2 * ROUNDS + 1))


def test_a_proposal_is_approved_by_one_of_two_processes(
    engines: tuple[Engine, Engine], pool: ThreadPoolExecutor
) -> None:
    """G6, V8: the other is told that it came late."""
    for number in range(ROUNDS):
        draft = admit(f"Ada keeps {number} bees", proposed=True)
        engines[0].write_now(lambda unit, draft=draft: unit.memories.add(operation(), draft))

        def work(unit: Unit, entry_id: str = draft.id) -> bool:
            try:
                unit.memories.approve(operation(Verb.APPROVE), entry_id)
            except Conflict:
                return False
            return True

        assert sorted(both(pool, engines, work)) == [False, True]


def test_rows_of_recalls_stay_bounded_though_two_processes_write_them(
    engines: tuple[Engine, Engine], pool: ThreadPoolExecutor
) -> None:
    """R5: the bound is the space's, not a process's."""
    row = RecallRow("c", "turn", 1, RecallCause.MESSAGE, Phase.FAST, "bees?", 1.0, 2.0, Outcome.EMPTY, "")

    def write(engine: Engine, name: str) -> None:
        for number in range(ROUNDS):
            recall = replace(row, correlation=f"{name}{number}")
            engine.write_now(lambda unit, recall=recall: unit.recalls.add(TALK, recall, entries_max=ROUNDS))

    list(pool.map(write, engines, ("a", "b")))
    assert len(engines[0].read_now(lambda unit: unit.recalls.page(TALK))) == ROUNDS


def test_what_one_forgets_the_other_neither_finds_nor_brings_back(engines: tuple[Engine, Engine]) -> None:
    """M2: a block that was rendered in one process before the other forgot what it shows."""
    here, there = engines
    entry = here.write_now(lambda unit: unit.memories.add(operation(), admit("Ada keeps bees"))).entry
    block = BlockRow("hash", "turn-1", (entry.ref,), 9, 2.0, "user_message", "anchor", "Ada keeps bees")
    here.write_now(lambda unit: unit.conversations.carry(TALK, _carried(entry)))
    there.write_now(lambda unit: unit.operations.forget(TENANT, SPACE, Selector(memory=entry.id), at=3.0))
    here.write_now(lambda unit: unit.conversations.add_block(TALK, block))
    assert here.read_now(lambda unit: unit.conversations.read(TALK).carried) is None
    assert [found.text for found in there.read_now(lambda unit: unit.conversations.blocks(TALK))] == [""]


def _carried(entry: Entry) -> CarriedRow:
    seen = (Candidate(entry.ref, SPACE, Lane.LONG_TERM, 0.5, 0.5, None, "shown"),)
    return CarriedRow("c1", "turn-1", 1, "bees?", 1.0, 2.0, (Phase.FAST,), seen)
