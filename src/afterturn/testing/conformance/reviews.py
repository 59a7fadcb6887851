"""Reviews, consolidation, and the usage of models."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from afterturn.errors import Conflict, NotFound
from afterturn.ports import REVIEWS_MAX, Store, Unit
from afterturn.testing.conformance.actions import (
    ALL_SPACES,
    BOB,
    SPACE,
    TALK,
    TENANT,
    add,
    converse,
    forget,
    forget_memory,
    record,
    texts,
    undo,
)
from afterturn.testing.entries import operation
from afterturn.types import (
    BlockRow,
    ConversationKey,
    Purpose,
    ReviewKind,
    ReviewMessage,
    ReviewRow,
    ReviewState,
    Scope,
    Selector,
    Showing,
    StandingRow,
    Tenant,
    TurnRow,
    TurnStatus,
    UsageRow,
    Verb,
)

_TURN_TAKING = [kind for kind in ReviewKind if kind.takes_turns]


def review(review_id: str = "r1", **fields: Any) -> ReviewRow:
    """Of the conversation `talk`, unless told otherwise."""
    row = ReviewRow(review_id, ReviewKind.INTERVAL, TENANT, SPACE, SPACE, 1.0, conversation="talk")
    return replace(row, **fields)


def said(text: str = "I keep bees", **fields: Any) -> ReviewMessage:
    return replace(ReviewMessage("user", "ada", text, None, 100, 5.0), **fields)


async def schedule(store: Store, row: ReviewRow, *messages: ReviewMessage) -> None:
    await store.write(lambda unit: unit.reviews.add(row, messages), at=Tenant(row.tenant))


async def messages_of(store: Store, review_id: str = "r1") -> list[str]:
    found = await store.read(lambda unit: unit.reviews.messages(TENANT, review_id), at=ALL_SPACES)
    return [message.text for message in found]


async def end(store: Store, row: ReviewRow) -> bool:
    return await store.write(lambda unit: unit.reviews.end(row), at=Scope(row.tenant, (row.space,)))


async def _waiting(store: Store, key: ConversationKey = TALK) -> ReviewRow | None:
    return await store.read(lambda unit: unit.reviews.find_waiting(key), at=key.scope)


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
        assert await store.read(lambda unit: unit.reviews.messages(TENANT, "r1"), at=ALL_SPACES) == told

    async def test_whatever_a_host_has_said_can_be_kept(self, store: Store) -> None:
        """V2: half a surrogate pair or a NUL does not lose the review."""
        await schedule(store, review(), said("bees \ud83d!"), said("蜂\0🐝"))
        assert await messages_of(store) == ["bees ?!", "蜂\ufffd🐝"]

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
        """V4: the second one gets False, and writes nothing."""
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
            await store.write(work, at=ALL_SPACES)
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
        assert await store.read(lambda unit: unit.reviews.page("acme", SPACE, limit=9), at=Tenant("acme")) == []

    async def test_a_message_whose_record_was_forgotten_meanwhile_is_not_kept(self, store: Store) -> None:
        """M2: an earlier read cannot bring it back."""
        gone, kept = [await record(store, text, conversation="talk") for text in ("I keep bees", "Hello")]
        told = (said(source=gone.id), said("Hello", source=kept.id), said("not recorded"))
        await forget(store, Selector(memory=gone.id))
        await schedule(store, review(), *told)
        assert await messages_of(store) == ["Hello", "not recorded"]
        await self._replace(store, "r1", *told, said("more"))
        assert await messages_of(store) == ["Hello", "not recorded", "more"]

    async def _get(self, store: Store, review_id: str, *, tenant: str = TENANT) -> ReviewRow:
        return await store.read(lambda unit: unit.reviews.get(tenant, review_id), at=Tenant(tenant))

    async def _replace(self, store: Store, review_id: str, *messages: ReviewMessage) -> None:
        await store.write(lambda unit: unit.reviews.replace_messages(TENANT, review_id, messages), at=ALL_SPACES)

    async def _page(
        self, store: Store, *, limit: int, conversation: str | None = None, before: str | None = None
    ) -> list[str]:
        found = await store.read(
            lambda unit: unit.reviews.page(TENANT, SPACE, conversation=conversation, limit=limit, before=before),
            at=ALL_SPACES,
        )
        return [row.id for row in found]


class TestUnreviewed:
    async def test_turns_are_counted_until_a_review_is_scheduled(self, store: Store) -> None:
        """V1: the counter is stored with the conversation, and set back when a review is scheduled."""
        await converse(store)
        assert [await self._count(store) for _ in range(3)] == [1, 2, 3]
        await store.write(lambda unit: unit.reviews.scheduled(TALK, position=6), at=ALL_SPACES)
        assert await self._unreviewed(store) == (0, 6)
        assert await self._count(store) == 1
        assert await self._unreviewed(store) == (1, 6)

    async def test_turns_at_once_are_all_counted(self, store: Store) -> None:
        """V1: each of them gets a number of its own."""
        await converse(store)
        assert sorted(await asyncio.gather(*(self._count(store) for _ in range(6)))) == [1, 2, 3, 4, 5, 6]

    async def test_what_was_read_stays_read(self, store: Store) -> None:
        """V1: a review that was scheduled with less does not take it back."""
        await converse(store)
        await store.write(lambda unit: unit.reviews.scheduled(TALK, position=8), at=ALL_SPACES)
        await store.write(lambda unit: unit.reviews.scheduled(TALK, position=4), at=ALL_SPACES)
        assert await self._unreviewed(store) == (0, 8)

    async def test_what_a_review_came_to_nothing_over_is_unread_again(self, store: Store) -> None:
        """V4: from there on; and reopening never marks anything as read."""
        await converse(store)
        await store.write(lambda unit: unit.reviews.scheduled(TALK, position=6), at=ALL_SPACES)
        await store.write(lambda unit: unit.reviews.reopen(TALK, position=9), at=ALL_SPACES)
        assert await self._unreviewed(store) == (0, 6)
        await store.write(lambda unit: unit.reviews.reopen(TALK, position=2), at=ALL_SPACES)
        assert await self._unreviewed(store) == (0, 2)

    async def test_a_conversation_that_is_not_there_counts_nothing(self, store: Store) -> None:
        """M2: counting does not bring back what was forgotten."""
        await converse(store)
        await self._count(store)
        await forget(store, Selector(conversation="talk"))
        assert await self._count(store) == 0
        await store.write(lambda unit: unit.reviews.scheduled(TALK, position=4), at=ALL_SPACES)
        assert await self._unreviewed(store) == (0, 0)
        assert await store.read(lambda unit: unit.conversations.page(TENANT, SPACE, limit=9), at=ALL_SPACES) == []

    async def test_each_owner_s_conversation_has_a_count_of_its_own(self, store: Store) -> None:
        """L2: the same id under another owner is another conversation."""
        await converse(store)
        bob = ConversationKey(TENANT, BOB, "talk")
        await converse(store, bob)
        await self._count(store)
        assert await store.read(lambda unit: unit.reviews.unreviewed(bob), at=ALL_SPACES) == (0, 0)

    async def _count(self, store: Store) -> int:
        return await store.write(lambda unit: unit.reviews.count_turn(TALK), at=ALL_SPACES)

    async def _unreviewed(self, store: Store) -> tuple[int, int]:
        return await store.read(lambda unit: unit.reviews.unreviewed(TALK), at=ALL_SPACES)


# Finished reviews: a limited number is kept, and their changes stay
_ENDED = {"kind": ReviewKind.RULES, "state": ReviewState.NOTHING, "ended_at": 9.0}


class TestFinishedReviews:
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
        assert (
            await store.read(lambda unit: unit.reviews.get(TENANT, "old"), at=ALL_SPACES)
        ).state is ReviewState.WAITING

    async def test_the_last_consolidation_stays(self, store: Store) -> None:
        """V10: by which it is known that nothing has changed since."""
        await add(store, "Ada keeps bees", within=operation(at=100.0))
        for name, at in (("a1", 150.0), ("a2", 200.0)):
            tidied = {**_ENDED, "kind": ReviewKind.CONSOLIDATION, "created_at": at}
            await schedule(store, review(name, conversation="", **tidied))
        await _fill(store, 0, REVIEWS_MAX)
        assert [await self._is_kept(store, name) for name in ("a1", "a2")] == [False, True]
        assert (
            await store.read(lambda unit: unit.reviews.unconsolidated(TENANT, before=0.0, limit=9), at=ALL_SPACES) == []
        )

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
            await store.read(lambda unit: unit.reviews.get(TENANT, review_id), at=ALL_SPACES)
        except NotFound:
            return False
        return True


async def _fill(store: Store, first: int, count: int) -> None:
    """Ends this number of reviews, whose ids sort after `a…` and `old`."""

    def work(unit: Unit) -> None:
        for number in range(first, first + count):
            unit.reviews.add(review(f"r{number:05d}", space=SPACE, **_ENDED), ())

    await store.write(work, at=ALL_SPACES)


# Consolidation


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
        shown = await store.read(
            lambda unit: unit.conversations.last_shown(TENANT, [entry.ref, "other", "never"]), at=ALL_SPACES
        )
        assert shown == {entry.ref: 30.0, "other": 10.0}
        showings = await store.read(
            lambda unit: unit.conversations.showings(TENANT, [entry.ref, "other", "never"], limit=2), at=ALL_SPACES
        )
        assert showings == [
            Showing(entry.ref, BOB, "talk", "turn-1", 30.0),
            Showing(entry.ref, SPACE, "talk", "turn-1", 10.0),
        ]

    async def test_what_stands_in_a_system_prompt_is_shown(self, store: Store) -> None:
        """V10: as long as the conversation goes on, whether or not it is recalled."""
        standing, both = (await add(store, "Ada keeps bees")).entry, (await add(store, "Ada likes tea")).entry
        await _inject(store, ConversationKey(TENANT, SPACE, "other"), BlockRow("b1", "turn-1", (both.ref,), 9, 50.0))
        for key, at in ((TALK, 20.0), (ConversationKey(TENANT, BOB, "talk"), 30.0)):
            await _stand(store, key, StandingRow("...", (standing.ref, both.ref), at))
        turn = TurnRow("turn-1", TurnStatus.OPEN, 40.0, "hash")
        await store.write(lambda unit: unit.conversations.start_turn(TALK, turn), at=ALL_SPACES)
        theirs = ConversationKey("acme", SPACE, "talk")
        await add(store, "Ada keeps bees", within=operation(tenant="acme"), id=standing.id)
        await _stand(store, theirs, StandingRow("...", (standing.ref,), 90.0))
        shown = await store.read(
            lambda unit: unit.conversations.last_shown(TENANT, [standing.ref, both.ref]), at=ALL_SPACES
        )
        assert shown == {standing.ref: 40.0, both.ref: 50.0}

    async def test_without_a_version_to_ask_for_there_is_nothing_to_tell(self, store: Store) -> None:
        assert await store.read(lambda unit: unit.conversations.last_shown(TENANT, []), at=ALL_SPACES) == {}


async def _due(store: Store, *, before: float = 0.0, limit: int = 9) -> list[str]:
    return await store.read(lambda unit: unit.reviews.unconsolidated(TENANT, before=before, limit=limit), at=ALL_SPACES)


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
    assert await store.read(lambda unit: unit.reviews.get(TENANT, review_id), at=ALL_SPACES) == ended


async def _inject(store: Store, key: ConversationKey, block: BlockRow) -> None:
    await store.write(lambda unit: unit.conversations.add_block(key, block), at=key.scope)


async def _stand(store: Store, key: ConversationKey, standing: StandingRow) -> None:
    await store.write(lambda unit: unit.conversations.put_standing(key, standing), at=key.scope)


# Usage: summed by space, day and purpose
_CALL = UsageRow(SPACE, "2026-01-02", Purpose.REVIEW, calls=1, tokens_in=30, tokens_out=5, estimated=4)


class TestUsage:
    async def test_calls_of_one_kind_are_one_sum(self, store: Store) -> None:
        """V12: all model calls pass one meter."""
        await _spend(store)
        await _spend(store, calls=2, tokens_in=10, tokens_out=1, estimated=0)
        assert await _page(store) == [replace(_CALL, calls=3, tokens_in=40, tokens_out=6, estimated=4)]

    async def test_calls_at_once_are_all_summed(self, store: Store) -> None:
        """V12: none is lost to another."""
        await asyncio.gather(*(_spend(store) for _ in range(8)))
        assert [(spent.calls, spent.tokens) for spent in await _page(store)] == [(8, 280)]

    async def test_the_day_s_tokens_are_of_every_purpose(self, store: Store) -> None:
        """V12: in one space, or in all of the tenant's."""
        await _spend(store)
        await _spend(store, purpose=Purpose.RECALL, tokens_in=100)
        await _spend(store, space=BOB, tokens_in=1000)
        await _spend(store, day="2026-01-03", tokens_in=10_000)
        await store.write(lambda unit: unit.usage.add("acme", replace(_CALL, tokens_in=100_000)), at=Tenant("acme"))
        assert [await _tokens(store, space=space) for space in (SPACE, BOB, None)] == [140, 1005, 1145]
        assert await _tokens(store, day="2026-01-03") == 10_005
        assert await _tokens(store, tenant="acme") == 100_005

    async def test_where_nothing_was_spent_it_is_nothing(self, store: Store) -> None:
        assert [await _tokens(store), await _tokens(store, space="user:nobody")] == [0, 0]
        assert await _page(store, space="user:nobody") == []

    async def test_the_newest_day_comes_first_then_space_and_purpose(self, store: Store) -> None:
        """V12: `afterturn usage` shows it."""
        for fields in (
            {"day": "2026-01-01"},
            {"space": BOB},
            {"purpose": Purpose.RECALL},
            {},
            {"day": "2026-01-10"},
        ):
            await _spend(store, **fields)
        listed = [(spent.day, spent.space, spent.purpose.value) for spent in await _page(store)]
        assert listed == [
            ("2026-01-10", SPACE, "review"),
            ("2026-01-02", SPACE, "recall"),
            ("2026-01-02", SPACE, "review"),
            ("2026-01-02", BOB, "review"),
            ("2026-01-01", SPACE, "review"),
        ]
        assert [spent.day for spent in await _page(store, space=BOB)] == ["2026-01-02"]
        assert len(await _page(store, limit=2)) == 2
        assert await store.read(lambda unit: unit.usage.page("acme", limit=9), at=Tenant("acme")) == []

    async def test_it_goes_with_the_whole_space_and_with_nothing_less(self, store: Store) -> None:
        """M2: figures hold no text, but everything is everything."""
        await _spend(store)
        await _spend(store, space=BOB)
        await forget(store, Selector(conversation="talk"))
        await forget(store, Selector(speaker="ada"))
        assert len(await _page(store)) == 2
        await forget(store, Selector(everything=True))
        assert [spent.space for spent in await _page(store)] == [BOB]


async def _spend(store: Store, **fields: Any) -> None:
    await store.write(lambda unit: unit.usage.add(TENANT, replace(_CALL, **fields)), at=ALL_SPACES)


async def _tokens(store: Store, *, day: str = "2026-01-02", space: str | None = None, tenant: str = TENANT) -> int:
    return await store.read(lambda unit: unit.usage.tokens(tenant, day, space=space), at=Tenant(tenant))


async def _page(store: Store, *, space: str | None = None, limit: int = 9) -> list[UsageRow]:
    return await store.read(lambda unit: unit.usage.page(TENANT, space=space, limit=limit), at=ALL_SPACES)
