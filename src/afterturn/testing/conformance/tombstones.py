"""What was forgotten stays forgotten for turns that were under way, whatever the clocks say."""

from pathlib import Path

from afterturn.ports import Store
from afterturn.testing.conformance.scene import SPACE, TENANT, forget
from afterturn.types import Selector


class TestTombstones:
    async def test_a_forgotten_conversation_is_remembered_as_forgotten(self, store: Store) -> None:
        """M2: a turn that began before can't bring it back; one that begins afterwards is recorded."""
        before = await _forgets(store)
        await forget(store, Selector(conversation="talk"))
        assert await _forgotten(store, conversation="talk", since=before)
        assert not await _forgotten(store, conversation="talk", since=await _forgets(store))
        assert not await _forgotten(store, conversation="other", since=before)

    async def test_a_forgotten_speaker_is_remembered_as_forgotten(self, store: Store) -> None:
        """M2: in whatever conversation that speaker is heard."""
        await forget(store, Selector(speaker="bob"))
        assert await _forgotten(store, speakers=("ada", "bob"), since=0)
        assert not await _forgotten(store, speakers=("ada",), since=0)

    async def test_a_forgotten_space_covers_all_of_it(self, store: Store) -> None:
        """M2: whatever was under way in it."""
        await forget(store, Selector(everything=True))
        assert await _forgotten(store, conversation="anything", since=0)
        assert not await _forgotten(store, conversation="anything", since=await _forgets(store))

    async def test_another_space_is_not_covered(self, store: Store) -> None:
        """L2: the same conversation id under another owner is another conversation."""
        await forget(store, Selector(conversation="talk"), space="user:bob")
        assert not await _forgotten(store, conversation="talk", since=0)

    async def test_a_clock_that_ran_ahead_refuses_nothing_afterwards(self, store: Store) -> None:
        """M2: forgets are counted, so a turn that starts after one is free of it, however the clock was put right."""
        await forget(store, Selector(conversation="talk"), at=9e9)
        assert not await _forgotten(store, conversation="talk", since=await _forgets(store))

    async def test_a_clock_that_was_put_back_lets_nothing_through(self, store: Store) -> None:
        """M2: a turn that was under way is refused, though the forget seems to lie before its start."""
        await forget(store, Selector(conversation="talk"), at=50.0)
        under_way = await _forgets(store)
        await forget(store, Selector(conversation="talk"), at=10.0)
        assert await _forgotten(store, conversation="talk", since=under_way)

    async def test_the_count_begins_at_zero_and_looking_makes_no_space(self, store: Store) -> None:
        assert await _forgets(store) == 0

    async def test_each_forget_of_a_conversation_speaker_or_space_is_counted(self, store: Store) -> None:
        """M2: the count only grows."""
        seen = [await _forgets(store)]
        for selector in (Selector(conversation="talk"), Selector(speaker="bob"), Selector(everything=True)):
            await forget(store, selector)
            seen.append(await _forgets(store))
        assert seen == sorted(set(seen))

    async def test_a_restore_does_not_take_the_count_back(self, store: Store, tmp_path: Path) -> None:
        """M2: what is forgotten after it is forgotten for turns that began before it, too."""
        await store.backup(tmp_path / "copy", progress=lambda done, total: None)
        for _ in range(3):
            await forget(store, Selector(conversation="talk"))
        under_way = await _forgets(store)
        await store.restore(tmp_path / "copy", progress=lambda done, total: None)
        await forget(store, Selector(conversation="talk"))
        assert await _forgotten(store, conversation="talk", since=under_way)

    async def test_one_count_can_be_compared_in_every_space_of_the_tenant(self, store: Store) -> None:
        """M2: a turn notes one number, though its conversation's owner and its records are in two spaces."""
        await forget(store, Selector(everything=True), space="team:bees")
        under_way = await _forgets(store)
        assert under_way == await _forgets(store, space="team:bees")
        await forget(store, Selector(everything=True), space="team:bees")
        assert await _forgotten(store, space="team:bees", since=under_way)


async def _forgets(store: Store, *, space: str = SPACE) -> int:
    return await store.read(lambda unit: unit.conversations.forgets(TENANT, space))


async def _forgotten(
    store: Store, *, conversation: str = "talk", speakers: tuple[str, ...] = (), since: int, space: str = SPACE
) -> bool:
    return await store.read(
        lambda unit: unit.conversations.is_forgotten(
            TENANT, space, conversation=conversation, speakers=speakers, since=since
        )
    )
