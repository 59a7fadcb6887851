"""What consolidation asks of a store: where something has changed since, and what was shown when."""

from afterturn.ports import Store
from afterturn.testing.conformance.reviews import review, schedule
from afterturn.testing.conformance.scene import SPACE, TALK, TENANT, add, forget_memory, record, undo
from afterturn.testing.drafts import operation
from afterturn.types import BlockRow, ConversationKey, ReviewKind, ReviewState, StandingRow, TurnRow, TurnStatus, Verb

BOB = "user:bob"


class TestUnconsolidated:
    async def test_a_space_with_statements_is_due_until_it_was_consolidated(self, store: Store) -> None:
        """V10: and again once a statement changed."""
        await add(store, "Ada keeps bees", within=operation(at=100.0))
        assert await _due(store) == [SPACE]
        await _consolidate(store, "r1", at=200.0)
        assert await _due(store) == []
        await add(store, "Ada likes tea", within=operation(at=300.0))
        assert await _due(store) == [SPACE]

    async def test_its_own_changes_do_not_make_it_due(self, store: Store) -> None:
        """V10: what it did at the time of its review is not news, nor is that being undone."""
        added = await add(store, "Ada keeps bees", within=operation(at=200.0, group="r1"))
        await _consolidate(store, "r1", at=200.0)
        assert await _due(store) == []
        await undo(store, str(added.operation), within=operation(Verb.UNDO, at=300.0))
        assert await _due(store) == []

    async def test_recorded_turns_do_not_make_it_due(self, store: Store) -> None:
        """V10: statements are consolidated, records are not."""
        await record(store, "hello bees", conversation="talk")
        assert await _due(store) == []

    async def test_other_reviews_consolidate_nothing(self, store: Store) -> None:
        """V10: only its own kind counts."""
        await add(store, "Ada keeps bees", within=operation(at=100.0))
        await schedule(store, review("r1", kind=ReviewKind.RULES, created_at=200.0))
        assert await _due(store) == [SPACE]

    async def test_after_a_while_it_is_due_again(self, store: Store) -> None:
        """V10: memories fade though nobody changes them."""
        await add(store, "Ada keeps bees", within=operation(at=100.0))
        await _consolidate(store, "r1", at=200.0)
        assert [await _due(store, before=before) for before in (200.0, 201.0)] == [[], [SPACE]]

    async def test_who_waits_longest_comes_first(self, store: Store) -> None:
        """V10: bounded, of one tenant, and without what was forgotten."""
        for space in (SPACE, BOB, "team:bees"):
            await add(store, f"{space} keeps bees", within=operation(space=space, at=100.0))
        gone = operation(space="user:gone", at=100.0)
        forgotten = await add(store, "Somebody keeps bees", within=gone)
        await forget_memory(store, forgotten.entry.id, space="user:gone")
        await add(store, "Others keep bees", within=operation(tenant="acme", at=100.0))
        await _consolidate(store, "r1", at=50.0)
        await _consolidate(store, "r2", at=20.0, space=BOB)
        assert await _due(store) == ["team:bees", BOB, SPACE]
        assert await _due(store, limit=2) == ["team:bees", BOB]


class TestLastShown:
    async def test_the_last_block_with_a_version_counts_in_whatever_conversation(self, store: Store) -> None:
        """V10: what was recalled is not unused; another version is another."""
        entry = (await add(store, "Ada keeps bees")).entry
        elsewhere = ConversationKey(TENANT, BOB, "talk")
        for key, block in (
            (TALK, BlockRow("b1", "turn-1", (entry.ref, "other"), 9, 10.0)),
            (elsewhere, BlockRow("b2", "turn-1", (entry.ref,), 9, 30.0)),
            (TALK, BlockRow("b3", "turn-2", (f"{entry.id}.2",), 9, 40.0)),
            (ConversationKey("acme", SPACE, "talk"), BlockRow("b4", "turn-1", (entry.ref,), 9, 90.0)),
        ):
            await _inject(store, key, block)
        shown = await store.read(lambda unit: unit.conversations.last_shown(TENANT, [entry.ref, "other", "never"]))
        assert shown == {entry.ref: 30.0, "other": 10.0}

    async def test_what_stands_in_a_system_prompt_is_shown(self, store: Store) -> None:
        """V10: as long as the conversation goes on, whether or not it is recalled."""
        standing, both = (await add(store, "Ada keeps bees")).entry, (await add(store, "Ada likes tea")).entry
        await _inject(store, ConversationKey(TENANT, SPACE, "other"), BlockRow("b1", "turn-1", (both.ref,), 9, 50.0))
        for key, at in ((TALK, 20.0), (ConversationKey(TENANT, BOB, "talk"), 30.0)):
            await _stand(store, key, StandingRow("...", (standing.ref, both.ref), at))
        turn = TurnRow("turn-1", TurnStatus.OPEN, 40.0, "hash")
        await store.write(lambda unit: unit.conversations.start_turn(TALK, turn))
        theirs = ConversationKey("acme", SPACE, "talk")
        await add(store, "Ada keeps bees", within=operation(tenant="acme"), id=standing.id)
        await _stand(store, theirs, StandingRow("...", (standing.ref,), 90.0))
        shown = await store.read(lambda unit: unit.conversations.last_shown(TENANT, [standing.ref, both.ref]))
        assert shown == {standing.ref: 40.0, both.ref: 50.0}

    async def test_without_a_version_to_ask_for_there_is_nothing_to_tell(self, store: Store) -> None:
        assert await store.read(lambda unit: unit.conversations.last_shown(TENANT, [])) == {}


async def _due(store: Store, *, before: float = 0.0, limit: int = 9) -> list[str]:
    return await store.read(lambda unit: unit.reviews.unconsolidated(TENANT, before=before, limit=limit))


async def _consolidate(store: Store, review_id: str, *, at: float, space: str = SPACE) -> None:
    """As it is stored: when it is over."""
    ended = review(
        review_id,
        kind=ReviewKind.CONSOLIDATION,
        space=space,
        writes=space,
        created_at=at,
        conversation="",
        state=ReviewState.SAVED,
        ended_at=at,
        notes=("2 said the same",),
    )
    await schedule(store, ended)
    assert await store.read(lambda unit: unit.reviews.get(TENANT, review_id)) == ended


async def _inject(store: Store, key: ConversationKey, block: BlockRow) -> None:
    await store.write(lambda unit: unit.conversations.add_block(key, block))


async def _stand(store: Store, key: ConversationKey, standing: StandingRow) -> None:
    await store.write(lambda unit: unit.conversations.put_standing(key, standing))
