"""Reviews: scheduled once, read in order, ended once, and counted by the turns between them."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from afterturn.errors import Conflict, NotFound
from afterturn.ports import Store, Unit
from afterturn.testing.conformance.scene import SPACE, TALK, TENANT, forget, record
from afterturn.types import ConversationKey, ReviewKind, ReviewMessage, ReviewRow, ReviewState, Selector

BOB = "user:bob"
_TURN_TAKING = [kind for kind in ReviewKind if kind.takes_turns]


def review(review_id: str = "r1", **fields: Any) -> ReviewRow:
    """Of the conversation `talk`, unless told otherwise."""
    row = ReviewRow(review_id, ReviewKind.INTERVAL, TENANT, SPACE, SPACE, 1.0, conversation="talk")
    return replace(row, **fields)


def said(text: str = "I keep bees", **fields: Any) -> ReviewMessage:
    return replace(ReviewMessage("user", "ada", text, None, 100, 5.0), **fields)


async def schedule(store: Store, row: ReviewRow, *messages: ReviewMessage) -> None:
    await store.write(lambda unit: unit.reviews.add(row, messages))


async def messages_of(store: Store, review_id: str = "r1") -> list[str]:
    found = await store.read(lambda unit: unit.reviews.messages(TENANT, review_id))
    return [message.text for message in found]


async def end(store: Store, row: ReviewRow) -> bool:
    return await store.write(lambda unit: unit.reviews.end(row))


async def _waiting(store: Store, key: ConversationKey = TALK) -> ReviewRow | None:
    return await store.read(lambda unit: unit.reviews.find_waiting(key))


class TestReviews:
    async def test_a_review_comes_back_as_it_was_scheduled(self, store: Store) -> None:
        """V2: with every field that it will need."""
        row = review(
            writes="team:bees",
            turn="turn-3",
            reads=(SPACE, "project:hive"),
            agent="helper",
            project="hive",
            forgets=7,
            reason="asked",
        )
        await schedule(store, row)
        assert await self._get(store, "r1") == row

    async def test_messages_come_back_in_their_order(self, store: Store) -> None:
        """V2: a deep copy, kept with the review."""
        source = (await record(store, "I keep bees", conversation="talk")).id
        told = [
            said(source=source),
            said("No, wasps", role="assistant", speaker="helper", trust=80, fresh=False),
            said("I keep bees", occurred_at=6.5),
        ]
        await schedule(store, review(), *told)
        assert await store.read(lambda unit: unit.reviews.messages(TENANT, "r1")) == told

    async def test_whatever_a_host_has_said_can_be_kept(self, store: Store) -> None:
        """V2: half a surrogate pair is no reason to lose a review."""
        await schedule(store, review(), said("bees \ud83d!"), said("蜂\0🐝"))
        assert await messages_of(store) == ["bees ?!", "蜂\0🐝"]

    async def test_an_id_is_used_once(self, store: Store) -> None:
        """V4: at most once per review id, whatever became of the first."""
        await schedule(store, review())
        await end(store, review(state=ReviewState.NOTHING, ended_at=2.0))
        for again in (review(), review(space=BOB, conversation="other"), review(kind=ReviewKind.RULES)):
            with pytest.raises(Conflict):
                await schedule(store, again)

    async def test_an_unknown_review_is_not_found(self, store: Store) -> None:
        await schedule(store, review())
        for tenant, review_id in ((TENANT, "nowhere"), ("acme", "r1")):
            with pytest.raises(NotFound):
                await self._get(store, review_id, tenant=tenant)

    async def test_another_tenant_s_review_of_the_same_id_is_another(self, store: Store) -> None:
        """L2: neither in the way nor within reach."""
        await schedule(store, review(), said())
        await schedule(store, review(tenant="acme"), said("elsewhere"))
        assert await messages_of(store) == ["I keep bees"]
        assert await end(store, review(tenant="acme", state=ReviewState.NOTHING))
        assert (await self._get(store, "r1")).state is ReviewState.WAITING
        assert await messages_of(store) == ["I keep bees"]

    @pytest.mark.parametrize("kind", _TURN_TAKING)
    async def test_what_asks_a_model_waits_for_the_conversation(self, store: Store, kind: ReviewKind) -> None:
        """V1: one review pending or running per conversation."""
        await schedule(store, review(kind=kind))
        found = await _waiting(store)
        assert found == review(kind=kind)
        for other in _TURN_TAKING:
            with pytest.raises(Conflict):
                await schedule(store, review("r2", kind=other))

    async def test_two_who_schedule_at_once_schedule_one(self, store: Store) -> None:
        """V1: by constraint, not by race."""
        done = await asyncio.gather(*(schedule(store, review(f"r{at}")) for at in range(4)), return_exceptions=True)
        assert sorted(type(item).__name__ for item in done) == ["Conflict", "Conflict", "Conflict", "NoneType"]

    @pytest.mark.parametrize("kind", [kind for kind in ReviewKind if not kind.takes_turns])
    async def test_other_kinds_wait_for_nobody(self, store: Store, kind: ReviewKind) -> None:
        """V1, V11: what asks no model about a conversation stands in no one's way."""
        for name in ("r1", "r2"):
            await schedule(store, review(name, kind=kind))
        assert await _waiting(store) is None
        await schedule(store, review("r3"))

    async def test_another_conversation_waits_for_itself(self, store: Store) -> None:
        """L2: the same id under another owner is another conversation."""
        await schedule(store, review())
        for key in (ConversationKey(TENANT, SPACE, "other"), ConversationKey(TENANT, BOB, "talk")):
            assert await _waiting(store, key) is None
            await schedule(store, review(f"of {key.space} {key.id}", space=key.space, conversation=key.id))

    async def test_what_has_ended_is_waited_for_no_more(self, store: Store) -> None:
        """V1: then the next one may be scheduled."""
        await schedule(store, review())
        await end(store, review(state=ReviewState.TIMED_OUT))
        assert await _waiting(store) is None
        await schedule(store, review("r2"))

    async def test_a_later_trigger_joins_with_all_that_is_to_be_read(self, store: Store) -> None:
        """V1: further triggers coalesce."""
        await schedule(store, review(), said("first"), said("second"))
        await self._replace(store, "r1", said("second", fresh=False), said("third"), said("fourth"))
        assert await messages_of(store) == ["second", "third", "fourth"]

    async def test_what_has_ended_takes_no_messages(self, store: Store) -> None:
        """V4: nothing is kept that nobody will read."""
        await schedule(store, review(), said())
        await end(store, review(state=ReviewState.NOTHING))
        await self._replace(store, "r1", said("late"))
        await self._replace(store, "nowhere", said("late"))
        assert [await messages_of(store, name) for name in ("r1", "nowhere")] == [[], []]

    async def test_how_it_ended_is_stored_and_the_messages_go(self, store: Store) -> None:
        """V4, V8: what it came to stays, what it read does not."""
        await schedule(store, review(turn="turn-3", reads=(SPACE,)), said())
        ended = review(
            turn="turn-3",
            reads=(SPACE,),
            state=ReviewState.SAVED,
            ended_at=9.0,
            written=2,
            proposed=1,
            refusals=("too many", "no such memory"),
            calls=3,
            tokens=120,
            reason="done",
            spaces=(SPACE, "project:hive"),
        )
        assert await end(store, ended)
        assert await self._get(store, "r1") == ended
        assert await messages_of(store) == []

    async def test_only_the_first_end_counts(self, store: Store) -> None:
        """V4: at most once per review id."""
        await schedule(store, review())
        first = review(state=ReviewState.TIMED_OUT, ended_at=2.0)
        assert [await end(store, first), await end(store, review(state=ReviewState.SAVED, written=3))] == [True, False]
        assert await self._get(store, "r1") == first

    async def test_of_two_that_end_it_at_once_one_does(self, store: Store) -> None:
        """V4: whoever comes second is told, and writes nothing."""
        await schedule(store, review())
        states = (ReviewState.SAVED, ReviewState.TIMED_OUT, ReviewState.FAILED)
        ended = await asyncio.gather(*(end(store, review(state=state)) for state in states))
        assert sorted(ended) == [False, False, True]

    async def test_what_was_never_scheduled_or_is_forgotten_is_not_ended(self, store: Store) -> None:
        """V4, M2: then nothing of it may be written."""
        await schedule(store, review())
        await forget(store, Selector(conversation="talk"))
        assert not await end(store, review(state=ReviewState.SAVED))
        assert not await end(store, review("nowhere", space="user:new", state=ReviewState.SAVED))

    async def test_an_end_and_its_writes_are_one(self, store: Store) -> None:
        """V4: a unit that fails leaves the review waiting, with its messages."""
        await schedule(store, review(), said())

        def work(unit: Unit) -> None:
            assert unit.reviews.end(review(state=ReviewState.SAVED))
            raise Conflict("somebody changed it meanwhile")

        with pytest.raises(Conflict):
            await store.write(work)
        assert (await self._get(store, "r1")).state is ReviewState.WAITING
        assert await messages_of(store) == ["I keep bees"]

    async def test_reviews_are_listed_newest_first_page_by_page(self, store: Store) -> None:
        """V8: of a space, of one conversation, and of no other space."""
        for name in ("r1", "r2", "r3", "r4"):
            await schedule(store, review(name, kind=ReviewKind.RULES, conversation="other" if name == "r3" else "talk"))
        await schedule(store, review("r5", space=BOB))
        pages = [await self._page(store, limit=2, before=before) for before in (None, "r3", "r1")]
        assert pages == [["r4", "r3"], ["r2", "r1"], []]
        assert await self._page(store, limit=9, conversation="talk") == ["r4", "r2", "r1"]
        assert await self._page(store, limit=9, conversation="talk", before="r4") == ["r2", "r1"]
        assert await store.read(lambda unit: unit.reviews.page("acme", SPACE, limit=9)) == []

    async def test_a_message_whose_record_was_forgotten_meanwhile_is_not_kept(self, store: Store) -> None:
        """M2: what was read before can not bring it back."""
        gone, kept = [await record(store, text, conversation="talk") for text in ("I keep bees", "Hello")]
        told = (said(source=gone.id), said("Hello", source=kept.id), said("not recorded"))
        await forget(store, Selector(memory=gone.id))
        await schedule(store, review(), *told)
        assert await messages_of(store) == ["Hello", "not recorded"]
        await self._replace(store, "r1", *told, said("more"))
        assert await messages_of(store) == ["Hello", "not recorded", "more"]

    async def _get(self, store: Store, review_id: str, *, tenant: str = TENANT) -> ReviewRow:
        return await store.read(lambda unit: unit.reviews.get(tenant, review_id))

    async def _replace(self, store: Store, review_id: str, *messages: ReviewMessage) -> None:
        await store.write(lambda unit: unit.reviews.replace_messages(TENANT, review_id, messages))

    async def _page(
        self, store: Store, *, limit: int, conversation: str | None = None, before: str | None = None
    ) -> list[str]:
        found = await store.read(
            lambda unit: unit.reviews.page(TENANT, SPACE, conversation=conversation, limit=limit, before=before)
        )
        return [row.id for row in found]


class TestUnreviewed:
    async def test_turns_are_counted_until_a_review_is_scheduled(self, store: Store) -> None:
        """V1: the counter is stored with the conversation, and set back when a review is scheduled."""
        await self._open(store)
        assert [await self._count(store) for _ in range(3)] == [1, 2, 3]
        await store.write(lambda unit: unit.reviews.scheduled(TALK, position=6))
        assert await self._unreviewed(store) == (0, 6)
        assert await self._count(store) == 1
        assert await self._unreviewed(store) == (1, 6)

    async def test_turns_at_once_are_all_counted(self, store: Store) -> None:
        """V1: each of them gets a number of its own."""
        await self._open(store)
        assert sorted(await asyncio.gather(*(self._count(store) for _ in range(6)))) == [1, 2, 3, 4, 5, 6]

    async def test_what_was_read_stays_read(self, store: Store) -> None:
        """V1: a review that was scheduled with less does not take it back."""
        await self._open(store)
        await store.write(lambda unit: unit.reviews.scheduled(TALK, position=8))
        await store.write(lambda unit: unit.reviews.scheduled(TALK, position=4))
        assert await self._unreviewed(store) == (0, 8)

    async def test_what_a_review_came_to_nothing_over_is_unread_again(self, store: Store) -> None:
        """V4: from there on; and reopening never marks anything as read."""
        await self._open(store)
        await store.write(lambda unit: unit.reviews.scheduled(TALK, position=6))
        await store.write(lambda unit: unit.reviews.reopen(TALK, position=9))
        assert await self._unreviewed(store) == (0, 6)
        await store.write(lambda unit: unit.reviews.reopen(TALK, position=2))
        assert await self._unreviewed(store) == (0, 2)

    async def test_a_conversation_that_is_not_there_counts_nothing(self, store: Store) -> None:
        """M2: counting does not bring back what was forgotten."""
        await self._open(store)
        await self._count(store)
        await forget(store, Selector(conversation="talk"))
        assert await self._count(store) == 0
        await store.write(lambda unit: unit.reviews.scheduled(TALK, position=4))
        assert await self._unreviewed(store) == (0, 0)
        assert await store.read(lambda unit: unit.conversations.page(TENANT, SPACE, limit=9)) == []

    async def test_each_owner_s_conversation_has_a_count_of_its_own(self, store: Store) -> None:
        """L2: the same id under another owner is another conversation."""
        await self._open(store)
        bob = ConversationKey(TENANT, BOB, "talk")
        await store.write(lambda unit: unit.conversations.open(bob, at=1.0))
        await self._count(store)
        assert await store.read(lambda unit: unit.reviews.unreviewed(bob)) == (0, 0)

    async def _open(self, store: Store) -> None:
        await store.write(lambda unit: unit.conversations.open(TALK, at=1.0))

    async def _count(self, store: Store) -> int:
        return await store.write(lambda unit: unit.reviews.count_turn(TALK))

    async def _unreviewed(self, store: Store) -> tuple[int, int]:
        return await store.read(lambda unit: unit.reviews.unreviewed(TALK))
