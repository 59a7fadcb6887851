"""Operations: undo of an operation and of a group, and the entries that were known at a time."""

from collections.abc import Callable
from typing import Any

import pytest

from afterturn.errors import Conflict, NotFound
from afterturn.ports import Store, Unit
from afterturn.testing.conformance.actions import (
    ADA,
    ALL_SPACES,
    NOW,
    add,
    delete,
    frequencies,
    get,
    record,
    texts,
    undo,
    update,
)
from afterturn.testing.entries import operation
from afterturn.types import Filter, Lane, LaneQuery, Origin, Status, Verb


class TestUndo:
    async def test_an_undone_addition_is_gone(self, store: Store) -> None:
        """M1: history is complete and undoable."""
        added = await add(store, "Ada keeps bees")
        await undo(store, str(added.operation))
        assert await texts(store, "bees") == []
        assert (await get(store, added.entry.id)).status is Status.UNDONE

    async def test_an_undone_update_brings_the_former_version_back(self, store: Store) -> None:
        """M1: statuses move back, no text is rewritten."""
        added, change = await add(store, "Ada keeps bees"), operation(Verb.UPDATE)
        await update(store, added.entry.id, "Ada keeps wasps", within=change)
        await undo(store, change.id)
        assert await texts(store, "bees wasps") == ["Ada keeps bees"]
        assert (await get(store, added.entry.id, version=2)).status is Status.UNDONE

    async def test_an_undone_deletion_brings_the_memory_back(self, store: Store) -> None:
        """M2: `delete` can be undone."""
        added, removal = await add(store, "Ada keeps bees"), operation(Verb.DELETE)
        await delete(store, added.entry.id, within=removal)
        await undo(store, removal.id)
        assert await texts(store, "bees") == ["Ada keeps bees"]

    async def test_hiding_and_its_undo_are_steps_that_change_no_status(self, store: Store) -> None:
        """S1, M2: the memory is still found, and so is a record."""
        added, said = await add(store, "Ada keeps bees"), await record(store, "I keep wasps")
        assert await self._hide_and_undo_twice(store, added.entry.id) == [Verb.HIDE, Verb.UNDO, Verb.UNDO]
        assert await self._hide_and_undo_twice(store, said.id) == [Verb.HIDE, Verb.UNDO, Verb.UNDO]
        assert sorted(await texts(store, "bees wasps")) == ["Ada keeps bees", "I keep wasps"]

    async def _hide_and_undo_twice(self, store: Store, entry_id: str) -> list[Verb]:
        hiding, undoing = operation(Verb.HIDE), operation(Verb.UNDO)
        await store.write(lambda unit: unit.memories.hide(hiding, entry_id), at=ALL_SPACES)
        await undo(store, hiding.id, within=undoing)
        await undo(store, undoing.id)
        steps = await store.read(lambda unit: unit.operations.steps(ADA, entry_id=entry_id), at=ALL_SPACES)
        return [step.operation.verb for step in steps if step.before is step.after]

    async def test_an_undone_promotion_brings_the_former_trust_back(self, store: Store) -> None:
        """G6: a promotion is undone like any write."""
        await add(store, "Ada keeps bees", origin=Origin.WEB)
        promoted = await add(store, "Ada keeps bees", origin=Origin.USER)
        await undo(store, str(promoted.operation))
        page = await store.read(lambda unit: unit.memories.page(ADA, Filter(), limit=10), at=ALL_SPACES)
        assert [(entry.version, entry.trust) for entry in page] == [(1, Origin.WEB.trust)]

    async def test_undoing_an_undo_does_it_again(self, store: Store) -> None:
        """M1: undo is an operation too."""
        added, first = await add(store, "Ada keeps bees"), operation(Verb.UNDO)
        await undo(store, str(added.operation), within=first)
        await undo(store, first.id)
        assert await texts(store, "bees") == ["Ada keeps bees"]

    async def test_a_group_is_undone_whole(self, store: Store) -> None:
        """M1: by group, whatever its operations did."""
        kept = await add(store, "Ada keeps bees")
        await add(store, "Ada sells honey", within=operation(group="review-1"))
        await update(store, kept.entry.id, "Ada keeps wasps", within=operation(Verb.UPDATE, group="review-1"))
        await delete(store, kept.entry.id, within=operation(Verb.DELETE, group="review-1"))
        await undo(store, "review-1")
        assert await texts(store, "bees wasps honey") == ["Ada keeps bees"]

    async def test_the_steps_of_an_undo_say_what_it_did(self, store: Store) -> None:
        """M1: a person can read what was done."""
        added, back = await add(store, "Ada keeps bees"), operation(Verb.UNDO)
        steps = await undo(store, str(added.operation), within=back)
        assert [(step.operation, step.entry_id, step.version, step.before, step.after) for step in steps] == [
            (back, added.entry.id, 1, Status.ACTIVE, Status.UNDONE)
        ]

    async def test_what_was_changed_since_is_a_conflict(self, store: Store) -> None:
        """M1: undo never undoes somebody else's later work."""
        added = await add(store, "Ada keeps bees")
        await update(store, added.entry.id, "Ada keeps wasps")
        with pytest.raises(Conflict):
            await undo(store, str(added.operation))
        assert await texts(store, "bees wasps") == ["Ada keeps wasps"]

    async def test_what_was_changed_and_changed_back_is_no_conflict(self, store: Store) -> None:
        """M1: what counts is the state that an operation left behind."""
        added, change, removal = await add(store, "Ada keeps bees"), operation(Verb.UPDATE), operation(Verb.DELETE)
        await update(store, added.entry.id, "Ada keeps wasps", within=change)
        await delete(store, added.entry.id, within=removal)
        await undo(store, removal.id)
        await undo(store, change.id)
        assert await texts(store, "bees wasps") == ["Ada keeps bees"]

    async def test_undoing_twice_is_a_conflict(self, store: Store) -> None:
        """M1: the first undo is a later operation."""
        added = await add(store, "Ada keeps bees")
        await undo(store, str(added.operation))
        with pytest.raises(Conflict):
            await undo(store, str(added.operation))

    async def test_bringing_back_a_duplicate_is_a_conflict(self, store: Store) -> None:
        """G6: undo makes no duplicates."""
        first, removal = await add(store, "Ada keeps bees"), operation(Verb.DELETE)
        await delete(store, first.entry.id, within=removal)
        second = await add(store, "Ada keeps bees")
        with pytest.raises(Conflict):
            await undo(store, removal.id)
        assert (await get(store, second.entry.id)).status is Status.ACTIVE

    async def test_bringing_back_two_of_the_same_at_once_is_a_conflict(self, store: Store) -> None:
        """G6: nor does the undo of a group."""
        for _ in range(2):
            added = await add(store, "Ada keeps bees")
            await delete(store, added.entry.id, within=operation(Verb.DELETE, group="cleaning"))
        with pytest.raises(Conflict):
            await undo(store, "cleaning")
        assert await texts(store, "bees") == []

    async def test_a_refused_undo_changes_nothing_of_its_group(self, store: Store) -> None:
        """M1: conflict, and nothing changed."""
        await add(store, "Ada sells honey", within=operation(group="review-1"))
        touched = await add(store, "Ada keeps bees", within=operation(group="review-1"))
        await update(store, touched.entry.id, "Ada keeps wasps")
        with pytest.raises(Conflict):
            await undo(store, "review-1")
        assert await texts(store, "honey bees wasps") == ["Ada keeps wasps", "Ada sells honey"]

    async def test_an_unknown_operation_is_not_found(self, store: Store) -> None:
        with pytest.raises(NotFound):
            await undo(store, "nowhere")

    async def test_an_expired_duplicate_that_gave_way_comes_back(self, store: Store) -> None:
        """M1: each step's entry returns to its former state."""
        first = await add(store, "Ada is away", expires_at=200.0)
        again = await add(store, "Ada is away", at=300.0)
        await undo(store, str(again.operation))
        assert (await get(store, first.entry.id)).status is Status.ACTIVE

    async def test_operations_are_listed_by_the_entry_they_touched(self, store: Store) -> None:
        """M1: history is complete."""
        added, change = await add(store, "Ada keeps bees"), operation(Verb.UPDATE)
        await update(store, added.entry.id, "Ada keeps wasps", within=change)
        await add(store, "Ada sells honey")
        listed = await store.read(
            lambda unit: unit.operations.page(ADA, limit=10, entry_id=added.entry.id), at=ALL_SPACES
        )
        assert [item.id for item in listed] == [change.id, added.operation]

    async def test_operations_go_on_after_the_last_of_a_page(self, store: Store) -> None:
        """M4: page by page, each comes once."""
        done = [(await add(store, f"bees number{number}")).operation for number in range(3)]

        def page(before: str | None) -> Callable[[Unit], list[str]]:
            return lambda unit: [item.id for item in unit.operations.page(ADA, limit=2, before=before)]

        pages = [await store.read(page(before), at=ALL_SPACES) for before in (None, done[1], done[0])]
        assert pages == [[done[2], done[1]], [done[0]], []]

    async def test_an_operation_id_is_used_once(self, store: Store) -> None:
        chosen = operation()
        await add(store, "Ada keeps bees", within=chosen)
        with pytest.raises(Conflict):
            await add(store, "Ada sells honey", within=chosen)

    async def test_figures_are_the_same_after_there_and_back(self, store: Store) -> None:
        """L6: document frequencies stay exact."""
        added, change = await add(store, "Ada keeps bees and bees"), operation(Verb.UPDATE)
        words = ["ada", "keep", "bee", "wasp"]
        before = await frequencies(store, words), await store.read(lambda unit: unit.index.stats(ADA), at=ALL_SPACES)
        await update(store, added.entry.id, "Ada keeps wasps", within=change)
        await undo(store, change.id)
        extents = await store.read(lambda unit: unit.index.stats(ADA), at=ALL_SPACES)
        assert (await frequencies(store, words), extents["user:ada"].terms_total) == (
            before[0],
            before[1]["user:ada"].terms_total,
        )


class TestKnownAt:
    async def test_each_time_knows_its_own_version(self, store: Store) -> None:
        """L7: `as_of` asks what was known at a time."""
        added = await add(store, "Ada keeps bees", at=100.0)
        await update(store, added.entry.id, "Ada keeps wasps", at=200.0)
        assert await self._known(store, 99.0) == []
        assert await self._known(store, 100.0) == ["Ada keeps bees"]
        assert await self._known(store, 199.0) == ["Ada keeps bees"]
        assert await self._known(store, 200.0) == ["Ada keeps wasps"]

    async def test_what_was_deleted_since_was_known(self, store: Store) -> None:
        """L7: by the operations up to then."""
        added = await add(store, "Ada keeps bees", at=100.0)
        await delete(store, added.entry.id, within=operation(Verb.DELETE, at=200.0))
        assert await self._known(store, 150.0) == ["Ada keeps bees"]
        assert await self._known(store, 250.0) == []

    async def test_what_was_undone_since_was_known(self, store: Store) -> None:
        """L7: what was known, not what is true now."""
        added = await add(store, "Ada keeps bees", at=100.0)
        await undo(store, str(added.operation), within=operation(Verb.UNDO, at=200.0))
        assert await self._known(store, 150.0) == ["Ada keeps bees"]
        assert await self._known(store, 250.0) == []

    async def test_what_had_expired_by_then_was_not_known(self, store: Store) -> None:
        """L7: expiry and validity count at that time."""
        await add(store, "Ada is away", at=100.0, expires_at=150.0)
        await add(store, "Ada is back", at=100.0, valid_from=150.0)
        assert await self._known(store, 149.0) == ["Ada is away"]
        assert await self._known(store, 150.0) == ["Ada is back"]

    async def test_lane_filter_and_exclusions_hold(self, store: Store) -> None:
        """L7: the past is asked by the same query."""
        shown = await add(store, "shown bees", pinned=True)
        await add(store, "pinned bees", pinned=True)
        await add(store, "plain bees")
        await record(store, "recorded bees", conversation="talk")
        asked: dict[str, Any] = {
            "lane": Lane.LONG_TERM,
            "filter": Filter(pinned=True),
            "excluded_refs": frozenset({shown.entry.ref}),
        }
        assert await self._known(store, NOW, **asked) == ["pinned bees"]

    async def _known(self, store: Store, at: float, **query: Any) -> list[str]:
        entries = await store.read(lambda unit: unit.memories.known_at(LaneQuery(ADA, NOW, **query), at), at=ALL_SPACES)
        return [entry.text for entry in entries]
