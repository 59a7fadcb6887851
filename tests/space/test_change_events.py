"""What a host learns about changes of memories through `on_event`."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import afterturn
from afterturn.errors import StoreUnavailable
from afterturn.ports import Unit
from afterturn.stores.sqlite.store import open_store
from afterturn.testing import EventLog
from afterturn.types import Draft, Event, UnitScope

SECRET = "sk-" + "proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD"


@pytest.fixture
def heard() -> EventLog:
    return EventLog()


@pytest.fixture
async def memory(tmp_path: Path, heard: EventLog) -> AsyncIterator[afterturn.Memory]:
    async with afterturn.open(tmp_path / "memory.db", {"embedder": "none"}, on_event=heard) as opened:
        yield opened


def changes(heard: EventLog) -> list[tuple[str, object, object, object]]:
    return [
        (event.name, event.data["memory"], event.data["version"], event.data["verb"])
        for event in heard.events
        if "version" in event.data
    ]


async def test_adding_updating_and_deleting_are_reported_with_their_ids(
    memory: afterturn.Memory, heard: EventLog
) -> None:
    """M1: each by one event, with the operation that `undo` takes."""
    ada = memory.space("user:ada")
    added = await ada.add("Ada drinks tea")
    updated = await ada.update(added.entry.id, "Ada drinks oolong")
    deleted = await ada.delete(added.entry.id)

    one = added.entry.id
    assert changes(heard) == [
        ("memory_added", one, 1, "add"),
        ("memory_updated", one, 2, "update"),
        ("memory_deleted", one, 2, "delete"),
    ]
    reported = [event for event in heard.events if "version" in event.data]
    assert [event.data["operation"] for event in reported] == [added.operation, updated.operation, deleted.operation]
    assert {(event.tenant, event.space) for event in reported} == {("default", "user:ada")}


async def test_adding_what_is_there_already_changes_nothing(memory: afterturn.Memory, heard: EventLog) -> None:
    """G6: so nothing is reported."""
    ada = memory.space("user:ada")
    await ada.add("Ada drinks tea")
    await ada.add("Ada drinks tea")
    assert len(changes(heard)) == 1


async def test_an_undo_is_reported_with_what_it_changed(memory: afterturn.Memory, heard: EventLog) -> None:
    """M1: the undo itself, and what it did to each memory."""
    ada = memory.space("user:ada")
    added = await ada.add("Ada drinks tea")
    updated = await ada.update(added.entry.id, "Ada drinks oolong")
    heard.events.clear()
    undone = await ada.undo(updated.operation)
    await ada.undo(str(added.operation))

    one = added.entry.id
    assert changes(heard) == [("memory_updated", one, 1, "undo"), ("memory_deleted", one, 1, "undo")]
    first = heard.named("undone")[0]
    assert dict(first.data) == {"undone": updated.operation, "operation": undone.operation, "memories": 1}


async def test_forgetting_is_reported_for_each_entry(memory: afterturn.Memory, heard: EventLog) -> None:
    """M2: by id, and once with the count."""
    ada = memory.space("user:ada")
    ids = [(await ada.add(text)).entry.id for text in ("Ada drinks tea", "Ada rides a bike")]
    await ada.forget(everything=True)

    assert {event.data["memory"] for event in heard.named("memory_forgotten")} == set(ids)
    assert [event.data["erased"] for event in heard.named("forgotten")] == [2]


async def test_decisions_on_proposals_are_reported(tmp_path: Path, heard: EventLog) -> None:
    """V8: a proposal changes nothing for models until it is approved."""
    settings = {"embedder": "none", "approval": "all"}
    async with afterturn.open(tmp_path / "memory.db", settings, on_event=heard) as memory:
        ada = memory.space("user:ada")
        wanted = (await ada.add("Ada drinks tea", origin="agent")).entry.id
        unwanted = (await ada.add("Ada drinks rum", origin="agent")).entry.id
        await ada.approve(wanted)
        await ada.reject(unwanted)

    assert changes(heard) == [
        ("proposed", wanted, 1, "add"),
        ("proposed", unwanted, 1, "add"),
        ("memory_added", wanted, 1, "approve"),
        ("proposal_rejected", unwanted, 1, "delete"),
    ]


async def test_an_import_is_one_event(memory: afterturn.Memory, heard: EventLog) -> None:
    """M4: with the group that `undo` takes."""
    ada = memory.space("user:ada")
    imported = await ada.add_many([Draft("Ada drinks tea"), Draft("Ada rides a bike"), Draft("Ada drinks tea")])
    (event,) = heard.named("memories_imported")
    assert dict(event.data) == {"group": imported.group, "created": 2, "existing": 1}
    await ada.undo(imported.group)
    assert [name for name, *_ in changes(heard)] == ["memory_deleted", "memory_deleted"]


async def test_edits_and_consolidation_are_reported(memory: afterturn.Memory, heard: EventLog) -> None:
    """M1, V10: whatever changes a memory."""
    ada = memory.space("user:ada")
    await ada.add("Ada drinks oolong tea", origin="agent")
    edited = await ada.apply_edits(await ada.compare_markdown(await ada.as_markdown() + "\n- Ada rides a bike\n"))
    assert [event.data["group"] for event in heard.named("memory_added")] == ["", edited.group]
    await ada.add("Ada drinks oolong tea.", origin="agent")
    heard.events.clear()
    review = await ada.consolidate()

    assert [(name, verb) for name, _, _, verb in changes(heard)] == [("memory_deleted", "delete")]
    await ada.undo_review(review.row.id)
    assert [(name, verb) for name, _, _, verb in changes(heard)][1:] == [("memory_added", "undo")]


async def test_restoring_a_backup_is_reported(memory: afterturn.Memory, heard: EventLog, tmp_path: Path) -> None:
    """M4: every memory may have changed."""
    await memory.backup(tmp_path / "copy.db")
    await memory.restore(tmp_path / "copy.db")
    assert len(heard.named("store_restored")) == 1


async def test_no_event_contains_a_text(memory: afterturn.Memory, heard: EventLog) -> None:
    """G1: neither a memory's words nor a secret in them."""
    ada = memory.space("user:ada")
    added = await ada.add(f"The key is {SECRET}")
    await ada.update(added.entry.id, f"The other key is {SECRET}")
    await ada.add(f"Their key is {SECRET}", origin="web")

    def shows(event: Event) -> bool:
        return any("key" in str(value) or SECRET in str(value) for value in event.data.values())

    assert [name for name, *_ in changes(heard)] == ["memory_added", "memory_updated", "memory_quarantined"]
    assert not any(map(shows, heard.events))


async def test_changes_are_not_in_the_timeline(memory: afterturn.Memory, heard: EventLog) -> None:
    """M1: the operations are, and a timeline has room for so many."""
    ada = memory.space("user:ada")
    await ada.add("Ada drinks tea")
    await memory.drain(within=20)
    assert "memory_added" not in [event.name for event in await ada.trace()]
    assert len(heard.named("memory_added")) == 1


async def _elsewhere(heard: EventLog, count: int) -> list[dict[str, object]]:
    await asyncio.to_thread(heard.wait, "changed_elsewhere", count)
    return [{"space": event.space, **event.data} for event in heard.named("changed_elsewhere")]


async def test_changes_of_another_process_reach_a_host_that_watches(
    tmp_path: Path, memory: afterturn.Memory, heard: EventLog
) -> None:
    """M1: one event for each space and look, with ids and kinds; nothing of its own, and nothing before."""
    ada, early = memory.space("user:ada"), await memory.space("user:ada").add("Ada drinks tea")
    async with afterturn.open(tmp_path / "memory.db", {"embedder": "none"}) as other:
        await memory.watch(["user:ada", "user:grace"], every=0.01)
        await ada.add("Ada rides a bike")
        added = await other.space("user:ada").add("Ada lives in Ghent")
        first = await _elsewhere(heard, 1)
        await other.space("user:bob").add("Bob drinks rum")
        await other.space("user:ada").delete(early.entry.id)
        last = (await _elsewhere(heard, 2))[-1]
        messages = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]
        async with other.conversation("c", user="grace").turn(messages) as turn:
            pass
        assert await turn.wait_recorded()
        recorded = (await _elsewhere(heard, 3))[-1]
    assert first == [{"space": "user:ada", "memories": added.entry.id, "kinds": "memory_added", "more": False}]
    assert last == {"space": "user:ada", "memories": early.entry.id, "kinds": "memory_deleted", "more": False}
    assert (recorded["space"], recorded["kinds"]) == ("user:grace", "recorded,recorded")


async def test_many_changes_of_another_process_are_one_bounded_event(
    tmp_path: Path, memory: afterturn.Memory, heard: EventLog
) -> None:
    """M1: the newest, and that there were more."""
    async with afterturn.open(tmp_path / "memory.db", {"embedder": "none"}) as other:
        await memory.watch(["user:ada"], every=0.01)
        await other.space("user:ada").add_many([Draft(f"Ada has {number} cats") for number in range(2, 72)])
        (event,) = await _elsewhere(heard, 1)
    assert (len(str(event["memories"]).split(",")), event["more"]) == (50, True)


class RefusingStore:
    """A real store that can be read, or not."""

    def __init__(self, *values: Any) -> None:
        self._inner = open_store(*values)
        self.refuses = False

    def read(self, work: Callable[[Unit], Any], *, at: UnitScope) -> Awaitable[Any]:
        if self.refuses:
            raise StoreUnavailable("The store is away. Come back later.")
        return self._inner.read(work, at=at)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


async def test_a_watch_that_failed_to_start_reports_no_history_later(tmp_path: Path, heard: EventLog) -> None:
    """M1: only what changes after the call that returned, and all spaces at one interval."""
    stores: list[RefusingStore] = []

    def opened(*values: Any) -> RefusingStore:
        stores.append(RefusingStore(*values))
        return stores[-1]

    parts = afterturn.Components(store=opened)
    async with afterturn.open(tmp_path / "memory.db", {"embedder": "none"}) as other:
        await other.space("user:ada").add("Ada drinks tea")
        async with afterturn.open(
            tmp_path / "memory.db", {"embedder": "none"}, on_event=heard, components=parts
        ) as memory:
            stores[0].refuses = True
            with pytest.raises(StoreUnavailable):
                await memory.watch(["user:ada"], every=0.01)
            stores[0].refuses = False
            await memory.watch(["user:ada"], every=0.01)
            added = await other.space("user:ada").add("Ada lives in Ghent")
            (event,) = await _elsewhere(heard, 1)
            assert event["memories"] == added.entry.id
            with pytest.raises(afterturn.InvalidInput, match=r"0\.01 seconds"):
                await memory.watch(["user:bob"], every=1.0)


async def test_nothing_is_watched_by_default_and_a_wrong_call_is_explained(
    tmp_path: Path, memory: afterturn.Memory, heard: EventLog
) -> None:
    """M1: watching costs a read of each space every two seconds, so a host asks for it."""
    async with afterturn.open(tmp_path / "memory.db", {"embedder": "none"}) as other:
        await other.space("user:ada").add("Ada lives in Ghent")
        with pytest.raises(afterturn.InvalidInput, match="on_event"):
            await other.watch(["user:ada"])
    many = [f"user:u{number}" for number in range(65)]
    for spaces, every in (("user:ada", 1.0), (["user:ada"], 0.0), (["user:ada"], float("inf")), (many, 1.0)):
        with pytest.raises(afterturn.InvalidInput):
            await memory.watch(spaces, every=every)
    assert heard.named("changed_elsewhere") == []
