"""Reviews that have ended are kept to a bounded number, and what they have done outlives them."""

from afterturn.errors import NotFound
from afterturn.ports import REVIEWS_MAX, Store, Unit
from afterturn.testing.conformance.reviews import end, messages_of, review, said, schedule
from afterturn.testing.conformance.scene import SPACE, TENANT, add, texts, undo
from afterturn.testing.drafts import operation
from afterturn.types import ReviewKind, ReviewState

BOB = "user:bob"
_ENDED = {"kind": ReviewKind.RULES, "state": ReviewState.NOTHING, "ended_at": 9.0}


class TestKeptReviews:
    async def test_the_oldest_that_has_ended_goes(self, store: Store) -> None:
        """V8: the newest are kept to be read, in each space; what waits is not counted."""
        await schedule(store, review("waits"), said())
        await schedule(store, review("bob", space=BOB, writes=BOB, **_ENDED))
        await _fill(store, 0, REVIEWS_MAX)
        assert await self._is_kept(store, "r00000")
        await schedule(store, review("r99999", kind=ReviewKind.RULES), said())
        assert await self._is_kept(store, "r00000")
        assert await end(store, review("r99999", **_ENDED))
        assert [await self._is_kept(store, name) for name in ("r00000", "r00001", "r99999", "bob")] == [
            False,
            True,
            True,
            True,
        ]

    async def test_what_waits_stays_however_old_it_is(self, store: Store) -> None:
        """V1: it is still to be run."""
        await schedule(store, review("old"), said())
        await _fill(store, 0, REVIEWS_MAX + 2)
        assert await messages_of(store, "old") == ["I keep bees"]
        assert (await store.read(lambda unit: unit.reviews.get(TENANT, "old"))).state is ReviewState.WAITING

    async def test_the_last_consolidation_stays(self, store: Store) -> None:
        """V10: by which it is known that nothing has changed since."""
        await add(store, "Ada keeps bees", within=operation(at=100.0))
        for name, at in (("a1", 150.0), ("a2", 200.0)):
            tidied = {**_ENDED, "kind": ReviewKind.CONSOLIDATION, "created_at": at}
            await schedule(store, review(name, conversation="", **tidied))
        await _fill(store, 0, REVIEWS_MAX)
        assert [await self._is_kept(store, name) for name in ("a1", "a2")] == [False, True]
        assert await store.read(lambda unit: unit.reviews.unconsolidated(TENANT, before=0.0, limit=9)) == []

    async def test_what_it_did_can_still_be_undone(self, store: Store) -> None:
        """V8: by its id, as the group of its operations."""
        await schedule(store, review("old", **_ENDED))
        await add(store, "Ada keeps bees", within=operation(group="old"))
        await _fill(store, 0, REVIEWS_MAX)
        assert not await self._is_kept(store, "old")
        assert len(await undo(store, "old")) == 1
        assert await texts(store, "bees") == []

    async def _is_kept(self, store: Store, review_id: str) -> bool:
        try:
            await store.read(lambda unit: unit.reviews.get(TENANT, review_id))
        except NotFound:
            return False
        return True


async def _fill(store: Store, first: int, count: int) -> None:
    """Ends so many reviews, whose ids sort after `a…` and `old`."""

    def work(unit: Unit) -> None:
        for number in range(first, first + count):
            unit.reviews.add(review(f"r{number:05d}", space=SPACE, **_ENDED), ())

    await store.write(work)
