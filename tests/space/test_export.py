"""An export gives everything that a space holds, however much that is."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import afterturn
from afterturn.config import Config
from afterturn.ports import REVIEWS_MAX, Unit
from afterturn.space.transfer import PAGE, export_lines
from afterturn.stores.sqlite.engine import Engine, open_engine
from afterturn.testing.clock import ManualClock
from afterturn.testing.entries import admit, operation
from afterturn.types import (
    BlockRow,
    Candidate,
    CarriedRow,
    ConversationKey,
    Event,
    Lane,
    Outcome,
    Phase,
    Purpose,
    RecallCause,
    RecallRow,
    ReviewKind,
    ReviewMessage,
    ReviewRow,
    ReviewState,
    Scope,
    Selector,
    StandingRow,
    TurnRow,
    TurnStatus,
    UsageRow,
)

TENANT, SPACE = "default", "user:ada"
ADA = Scope(TENANT, (SPACE,))
MANY = PAGE + 7


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    opened = open_engine(tmp_path / "memory.db", Config(), ManualClock())
    yield opened
    opened.close()


def exported(engine: Engine) -> list[dict[str, Any]]:
    return engine.read_now(lambda unit: export_lines(unit, ADA, 9.0))[1:]


def kinds(lines: list[dict[str, Any]]) -> Counter[str]:
    return Counter(next(iter(line)) for line in lines)


def test_an_export_does_not_end_with_a_page(engine: Engine):
    """M4: everything held, not the newest of it."""

    turn = TurnRow("turn-1", TurnStatus.OPEN, 1.0, "hash")

    def work(unit: Unit) -> None:
        for number in range(MANY):
            unit.memories.add(operation(), admit(f"fact number{number}"))
            unit.conversations.start_turn(ConversationKey(TENANT, SPACE, f"talk{number}"), turn)
        events = [Event("recalled", float(number), TENANT, SPACE) for number in range(MANY)]
        unit.timeline.add(events, entries_max=MANY)

    engine.write_now(work)
    lines = exported(engine)
    assert kinds(lines) == dict.fromkeys(("entry", "operation", "step", "conversation", "turn", "event"), MANY)
    assert [line["event"]["at"] for line in lines if "event" in line] == [float(number) for number in range(MANY)]


def test_an_operation_is_followed_by_what_it_did(engine: Engine):
    """M4: the history of a space leaves with its texts."""
    added = engine.write_now(lambda unit: unit.memories.add(operation(), admit("Ada keeps bees")))
    lines = [line for line in exported(engine) if "operation" in line or "step" in line]
    assert [next(iter(line)) for line in lines] == ["operation", "step"]
    assert lines[1]["step"] == {
        "operation": added.operation,
        "entry_id": added.entry.id,
        "version": 1,
        "before": None,
        "after": "active",
    }


def test_a_conversation_is_followed_by_its_turns_and_blocks(engine: Engine):
    """M4: what was injected where, without what a forgotten conversation left of its blocks."""
    talk, gone = (ConversationKey(TENANT, SPACE, name) for name in ("talk", "gone"))

    def work(unit: Unit) -> None:
        unit.conversations.start_turn(talk, TurnRow("turn-1", TurnStatus.OPEN, 1.0, "hash"))
        unit.conversations.add_block(talk, BlockRow("b1", "turn-1", ("m1", "m2"), 40, 2.0))
        unit.conversations.add_block(gone, BlockRow("b2", "turn-2", (), 40, 2.0))
        unit.operations.forget(TENANT, SPACE, Selector(conversation="gone"), at=3.0)

    engine.write_now(work)
    conversation, turn, block = exported(engine)
    assert conversation == {"conversation": "talk"}
    assert (turn["turn"]["conversation"], turn["turn"]["id"], turn["turn"]["status"]) == ("talk", "turn-1", "open")
    assert (block["block"]["conversation"], block["block"]["hash"], block["block"]["refs"]) == (
        "talk",
        "b1",
        ("m1", "m2"),
    )


def test_what_a_conversation_takes_along_is_in_the_export(engine: Engine):
    """M4: counters, carried recall, standing block and every recall, each under its kind."""
    talk = ConversationKey(TENANT, SPACE, "talk")
    entry = engine.write_now(lambda unit: unit.memories.add(operation(), admit("Ada keeps bees"))).entry
    seen = (Candidate(entry.ref, SPACE, Lane.LONG_TERM, 0.5, 0.5, None),)
    row = RecallRow("c1", "turn-1", 1, RecallCause.MESSAGE, Phase.FAST, "bees?", 1.0, 2.0, Outcome.DELIVERED, "")

    def work(unit: Unit) -> None:
        unit.conversations.clear(talk, at=1.0, compacted=True)
        unit.conversations.carry(talk, CarriedRow("c0", "turn-0", 1, "honey?", 1.0, 2.0, (Phase.FAST,), seen))
        unit.conversations.put_standing(talk, StandingRow("Be brief", (entry.ref,), 1.0))
        for number in range(MANY):
            unit.recalls.add(talk, replace(row, correlation=f"c{number}", candidates=seen), entries_max=MANY)

    engine.write_now(work)
    lines = [line for line in exported(engine) if not line.keys() & {"entry", "operation", "step"}]
    assert kinds(lines) == {"conversation": 1, "state": 1, "carried": 1, "standing": 1, "recall": MANY}
    assert [next(iter(line.values()))["conversation"] for line in lines[1:]] == ["talk"] * (MANY + 3)
    assert json.loads(json.dumps(lines[-1]))["recall"]["candidates"][0]["ref"] == entry.ref


def test_reviews_are_in_the_export_with_what_they_are_to_read(engine: Engine):
    """M4, V8: oldest first, what waits with its messages, and what models cost."""
    row = ReviewRow("r0", ReviewKind.RULES, TENANT, SPACE, SPACE, 1.0, conversation="talk")
    ended = replace(row, state=ReviewState.SAVED, ended_at=2.0, written=1, spaces=(SPACE,))

    def work(unit: Unit) -> None:
        for number in range(MANY):
            unit.reviews.add(
                replace(row, id=f"r{number:06d}"), [ReviewMessage("user", "ada", "I keep bees", None, 100, 1.0)]
            )
            if number >= MANY - REVIEWS_MAX:
                assert unit.reviews.end(replace(ended, id=f"r{number:06d}"))
        unit.reviews.add(replace(row, space="user:bob"), ())
        for space in (SPACE, "user:bob"):
            unit.usage.add(TENANT, UsageRow(space, "2026-01-02", Purpose.REVIEW, 1, 30, 5))

    engine.write_now(work)
    lines = json.loads(json.dumps(exported(engine)))
    assert kinds(lines) == {"review": MANY, "review_message": MANY - REVIEWS_MAX, "usage": 1}
    first, message, *_, latest, last = lines
    newest = f"r{MANY - 1:06d}"
    assert (first["review"]["id"], first["review"]["state"]) == ("r000000", "waiting")
    assert (message["review_message"]["review"], message["review_message"]["text"]) == ("r000000", "I keep bees")
    assert (latest["review"]["id"], latest["review"]["state"], latest["review"]["written"]) == (newest, "saved", 1)
    assert (last["usage"]["space"], last["usage"]["tokens_in"]) == (SPACE, 30)


async def test_a_spoken_turn_is_in_the_export_of_its_owner(memory: afterturn.Memory, ada: afterturn.Space) -> None:
    """M4: turns and their records leave together."""
    messages: list[Any] = [{"role": "user", "content": "My cat is called Miso"}]
    async with memory.conversation("talk", user="ada").turn(messages, id="turn-1") as turn:
        messages.append({"role": "assistant", "content": "What a name!"})
    assert await turn.wait_recorded()
    lines = await ada.export()
    assert [line["turn"]["id"] for line in lines if "turn" in line] == ["turn-1"]
    assert [line["entry"]["turn"] for line in lines if "entry" in line] == ["turn-1", "turn-1"]
