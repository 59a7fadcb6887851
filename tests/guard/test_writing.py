"""The door itself, inside units of work: what reviews and other callers of it rely on."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from afterturn.config import Config
from afterturn.errors import Conflict, NotAllowed, OverBudget
from afterturn.guard.gate import Gate
from afterturn.guard.statement_writer import StatementWriter
from afterturn.ports import Unit
from afterturn.stores.sqlite.store import open_store
from afterturn.testing.clock import ManualClock, SequentialIds
from afterturn.types import Draft, Entry, Filter, Kind, Operation, Origin, Scope, Status, Verb

R = TypeVar("R")
SCOPE = Scope("default", ("user:ada",))


class Door:
    """`StatementWriter` over a store; one unit of work a call."""

    def __init__(self, path: Path, **config: object) -> None:
        self.config = Config(**config)  # type: ignore[arg-type]
        self.clock, self.ids = ManualClock(), SequentialIds()
        self.gate = Gate(self.config, self.clock, self.ids)
        self.store = open_store(path, self.config, self.clock)
        self.writing = StatementWriter(self.config)

    async def write(self, work: Callable[[Unit], R]) -> R:
        return await self.store.write(work, at=None)

    def operation(self, actor: Origin = Origin.USER, verb: Verb = Verb.ADD) -> Operation:
        return Operation(self.ids.new(), "default", "user:ada", verb, actor, self.clock.now())

    async def add(self, text: str, origin: Origin = Origin.USER, **fields: object) -> Entry:
        admitted, operation = self.gate.admit(Draft(text, origin=origin, **fields)), self.operation(origin)  # type: ignore[arg-type]
        return (await self.write(lambda unit: self.writing.add(unit, operation, admitted))).entry

    async def delete(self, entry: Entry, origin: Origin, expected_version: int | None = None) -> Entry:
        operation = self.operation(origin, Verb.DELETE)
        return await self.write(
            lambda unit: self.writing.delete(
                unit, operation, entry.id, trust=origin.trust, expected_version=expected_version
            )
        )

    async def active(self) -> list[str]:
        found = await self.store.read(lambda unit: unit.memories.page(SCOPE, Filter(), limit=100), at=None)
        return [entry.text for entry in found]


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    door = Door(tmp_path / "memory.db")
    yield door
    await door.store.close(within=5.0)


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Door]:
    """Everything but the user's own words waits, and ten bytes are the limit."""
    door = Door(tmp_path / "memory.db", approval="all", user_bytes_max=10)
    yield door
    await door.store.close(within=5.0)


@pytest.mark.parametrize("origin", [Origin.SUBAGENT, Origin.TOOL, Origin.WEB, Origin.IMPORT])
async def test_an_untrusted_origin_deletes_nothing_that_is_trusted_more(door: Door, origin: Origin) -> None:
    """G2: it may delete what is trusted no more than itself."""
    entry, equal = await door.add("Ada likes tea"), await door.add("From afar", Origin.IMPORT)
    with pytest.raises(NotAllowed, match="trusted more"):
        await door.delete(entry, origin)
    assert (await door.delete(equal, origin)).status is Status.DELETED
    assert await door.active() == ["Ada likes tea"]


@pytest.mark.parametrize("origin", [Origin.AGENT, Origin.BACKGROUND_REVIEW])
async def test_a_trusted_origin_deletes_what_is_not_pinned(door: Door, origin: Origin) -> None:
    """G2: a review may let go of what no longer holds, but not of what its user has pinned."""
    plain, pinned = await door.add("Ada likes tea"), await door.add("Never force-push", pinned=True)
    assert (await door.delete(plain, origin)).status is Status.DELETED
    with pytest.raises(NotAllowed, match="pinned"):
        await door.delete(pinned, origin)
    assert await door.active() == ["Never force-push"]


async def test_a_delete_of_another_version_than_expected_is_a_conflict(door: Door) -> None:
    """V4: compared before it is hidden."""
    entry = await door.add("Ada likes tea")
    with pytest.raises(Conflict, match="version 1, not 2"):
        await door.delete(entry, Origin.AGENT, expected_version=2)
    assert (await door.delete(entry, Origin.AGENT, expected_version=1)).status is Status.DELETED


async def test_a_delete_that_waits_leaves_the_memory_until_it_is_approved(guarded: Door) -> None:
    """V8: beside the active version, and nothing else changes."""
    entry = await guarded.add("Tea")
    assert (await guarded.delete(entry, Origin.AGENT)).status is Status.WITHDRAWAL
    assert await guarded.active() == ["Tea"]
    operation = guarded.operation(verb=Verb.APPROVE)
    await guarded.write(lambda unit: guarded.writing.approve(unit, operation, entry.id))
    assert await guarded.active() == []


async def test_where_deletes_wait_a_record_is_deleted_by_its_user_only(guarded: Door) -> None:
    """V8: what was said has no versions that could wait."""
    admitted = guarded.gate.admit_import(Draft("said", kind=Kind.RECORD, origin=Origin.TOOL))
    operation = guarded.operation()
    (record,) = await guarded.write(lambda unit: unit.records.add(operation, [admitted]))
    with pytest.raises(NotAllowed, match="recorded message"):
        await guarded.delete(record, Origin.AGENT)
    assert (await guarded.delete(record, Origin.USER)).status is Status.DELETED


async def test_what_only_waits_is_rejected(guarded: Door) -> None:
    """V8: whoever withdraws a proposal proposes nothing more."""
    entry = await guarded.add("Tea", Origin.AGENT)
    assert entry.status is Status.PROPOSED
    assert (await guarded.delete(entry, Origin.AGENT)).status is Status.DELETED


async def test_after_a_refusal_the_same_unit_of_work_goes_on(guarded: Door) -> None:
    """V4, G4: what is refused has written nothing, so the others stand."""
    texts = ["12345", "too long by far", "67890"]
    work = [(guarded.operation(), guarded.gate.admit(Draft(text))) for text in texts]

    def add_all(unit: Unit) -> list[str]:
        refused = []
        for operation, admitted in work:
            try:
                guarded.writing.add(unit, operation, admitted)
            except OverBudget:
                refused.append(admitted.text)
        return refused

    assert await guarded.write(add_all) == ["too long by far"]
    assert sorted(await guarded.active()) == ["12345", "67890"]


async def test_a_statement_is_embedded_behind_the_write_and_a_refused_one_is_not(guarded: Door) -> None:
    """G1, C8: the job is written with the statement."""
    with pytest.raises(OverBudget):
        await guarded.add("too long by far")
    assert await guarded.store.read(lambda unit: unit.jobs.counts("default"), at=None) == {}
    await guarded.add("Tea")
    assert sum((await guarded.store.read(lambda unit: unit.jobs.counts("default"), at=None)).values()) == 1


async def test_a_draft_with_lineage_keeps_its_trust_through_the_door(door: Door) -> None:
    """G2: a review that rests on a tool's words, which the gate was told of, is trusted as far as the tool."""
    admitted = door.gate.admit(Draft("Wants the beta", origin=Origin.BACKGROUND_REVIEW), lineage=[100, 40])
    operation = door.operation(Origin.BACKGROUND_REVIEW)
    added = await door.write(lambda unit: door.writing.add(unit, operation, admitted))
    assert added.entry.trust == 40
    pinned = door.gate.admit(Draft("Wants", origin=Origin.BACKGROUND_REVIEW, pinned=True), lineage=[40])
    with pytest.raises(NotAllowed):
        await door.write(lambda unit: door.writing.add(unit, door.operation(), pinned))


# Items of a program


async def put(door: Door, text: str, id: str = "item1") -> Entry:
    operation = door.operation(Origin.AGENT, Verb.UPDATE)
    admitted = door.gate.admit(Draft(text, origin=Origin.AGENT, id=id, agent=f"store-{id}"))
    return await door.write(lambda unit: door.writing.put_item(unit, operation, admitted))


async def test_an_item_has_one_id_for_all_its_values(door: Door) -> None:
    """M1: a put is a new memory, a new version, or a version after a delete."""
    first, second = await put(door, "blue"), await put(door, "green")
    await door.delete(second, Origin.AGENT)
    third = await put(door, "red")
    assert [entry.version for entry in (first, second, third)] == [1, 2, 3]
    assert await door.active() == ["red"]


async def test_items_with_the_same_text_stay_apart(door: Door) -> None:
    """G6: they belong to different keys."""
    await put(door, "blue", "item1")
    await put(door, "blue", "item2")
    assert await door.active() == ["blue", "blue"]


async def test_an_item_is_a_report_and_is_not_withheld_from_its_program(door: Door) -> None:
    """G2: it is trusted as a tool's output is; its secret is redacted, and the rest can be read."""
    entry = await put(door, "The key is ghp_abcdefghijklmnopqrstuvwxyz0123456789")
    assert (entry.status, entry.is_report) == (Status.ACTIVE, True)
    assert entry.text == "The key is [redacted: github token]"


async def test_an_item_does_not_replace_what_a_person_has_corrected(door: Door) -> None:
    """G2: a person is trusted more."""
    await put(door, "blue")
    admitted = door.gate.admit(Draft("green", id="item1", agent="store-item1"))
    corrected = door.operation(Origin.USER, Verb.UPDATE)
    await door.write(lambda unit: door.writing.update(unit, corrected, "item1", admitted, expected_version=None))
    with pytest.raises(NotAllowed):
        await put(door, "red")
    assert await door.active() == ["green"]
