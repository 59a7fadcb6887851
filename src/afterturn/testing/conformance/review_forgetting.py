"""What is forgotten leaves reviews too: their messages, themselves, and the jobs that were to run them."""

import json
from collections.abc import Callable

import pytest

from afterturn.errors import NotFound
from afterturn.ports import Store
from afterturn.testing.conformance.reviews import end, messages_of, review, said, schedule
from afterturn.testing.conformance.scene import SPACE, TENANT, add, forget, record
from afterturn.testing.drafts import operation
from afterturn.types import Entry, Job, ReviewKind, ReviewState, Selector, Verb

BOB, TEAM = "user:bob", "team:bees"


class TestForgottenReviews:
    async def test_a_conversation_takes_its_reviews_along(self, store: Store) -> None:
        """M2: with messages and jobs, whatever became of them; another conversation's stay."""
        await schedule(store, review("r1"), said())
        await schedule(store, review("r2", kind=ReviewKind.RULES))
        await end(store, review("r2", kind=ReviewKind.RULES, state=ReviewState.SAVED))
        await schedule(store, review("r3", conversation="other"), said("Hello"))
        for name in ("r1", "r3"):
            await _add_job(store, name)
        await forget(store, Selector(conversation="talk"))
        assert await _reviews(store) == ["r3"]
        assert [await messages_of(store, name) for name in ("r1", "r3")] == [[], ["Hello"]]
        assert await _jobs(store) == ["job of r3"]
        with pytest.raises(NotFound):
            await store.read(lambda unit: unit.reviews.get(TENANT, "r2"))

    async def test_a_space_takes_its_reviews_along_and_no_other_s(self, store: Store) -> None:
        """M2: consolidations too, which have no conversation."""
        await schedule(store, review("r1"), said())
        await schedule(store, review("r2", kind=ReviewKind.CONSOLIDATION, conversation=""))
        await schedule(store, review("r3", space=BOB, writes=BOB), said("Hello"))
        await _add_job(store, "r1")
        await forget(store, Selector(everything=True))
        assert [await _reviews(store, space) for space in (SPACE, BOB)] == [[], ["r3"]]
        assert await messages_of(store, "r3") == ["Hello"]
        assert await _jobs(store) == []

    async def test_a_running_review_finds_nothing_to_end(self, store: Store) -> None:
        """M2, V4: in-flight work can't bring it back."""
        await schedule(store, review(), said())
        await _add_job(store, "r1")
        await store.write(lambda unit: unit.jobs.claim(["review"], owner="one", now=5.0, lease=60.0, limit=1))
        await forget(store, Selector(conversation="talk"))
        assert not await store.write(lambda unit: unit.jobs.complete("job of r1", owner="one"))
        assert not await end(store, review(state=ReviewState.SAVED))

    @pytest.mark.parametrize(
        "selecting",
        [
            lambda entry_id: Selector(memory=entry_id),
            lambda entry_id: Selector(memories=(entry_id,)),
            lambda entry_id: Selector(source=entry_id),
        ],
        ids=["memory", "memories", "source"],
    )
    async def test_a_record_s_messages_go_from_what_is_to_be_read(
        self, store: Store, selecting: Callable[[str], Selector]
    ) -> None:
        """M2, M4: forgotten by id, or since its retention ended; the review goes on with the others."""
        gone, kept = await _said(store, "I keep bees"), await _said(store, "Hello")
        await schedule(store, review(), said(source=gone.id), said("Hello", source=kept.id))
        await schedule(store, review("r2", kind=ReviewKind.RULES), said(source=gone.id))
        await forget(store, selecting(gone.id))
        assert [await messages_of(store, name) for name in ("r1", "r2")] == [["Hello"], []]
        assert await _reviews(store) == ["r2", "r1"]

    async def test_what_no_record_holds_goes_with_any_record_of_the_conversation(self, store: Store) -> None:
        """M2: nothing tells which record it came to; what another conversation says stays."""
        gone, kept = await _said(store, "I keep bees"), await _said(store, "Hello")
        await schedule(store, review(), said("I keep bees, as shown"), said("Hello", source=kept.id))
        await schedule(store, review("r2", conversation="other"), said("as shown elsewhere"))
        await schedule(store, review("r3", space=BOB, writes=BOB), said("as shown to Bob"))
        await forget(store, Selector(memory=gone.id))
        told = [await messages_of(store, name) for name in ("r1", "r2", "r3")]
        assert told == [["Hello"], ["as shown elsewhere"], ["as shown to Bob"]]

    async def test_a_statement_takes_no_message_along(self, store: Store) -> None:
        """M2: a statement is not what was said."""
        said_so = await _said(store, "I keep bees")
        statement = await add(store, "Ada keeps bees", sources=(said_so.id,), conversation="talk")
        await schedule(store, review(), said(source=said_so.id), said("not recorded"))
        await forget(store, Selector(memory=statement.entry.id))
        assert await messages_of(store) == ["I keep bees", "not recorded"]

    async def test_a_speaker_s_messages_go_and_others_stay(self, store: Store) -> None:
        """M2: recorded or not, in the space's conversations and in those that write into it."""
        told = [said(speaker="ada"), said("Hello", speaker="bob")]
        await schedule(store, review(), *told)
        await schedule(store, review("r2", space=BOB, writes=SPACE), *told)
        await schedule(store, review("r3", space=BOB, writes=BOB, conversation="other"), *told)
        await forget(store, Selector(speaker="ada"))
        both = ["I keep bees", "Hello"]
        assert [await messages_of(store, name) for name in ("r1", "r2", "r3")] == [["Hello"], ["Hello"], both]

    async def test_a_shared_space_forgets_what_its_owners_reviews_are_to_read(self, store: Store) -> None:
        """M2: the reviews that owners keep of a conversation that was recorded there go with its records."""
        await _said(store, "I keep bees", space=TEAM, owner=SPACE)
        await schedule(store, review("r1", writes=TEAM), said())
        await schedule(store, review("r2", writes=TEAM, conversation="other"), said("Hello"))
        await schedule(store, review("r3", space=BOB, writes=BOB), said("Hello"))
        for name, space in (("r1", SPACE), ("r2", SPACE), ("r3", BOB)):
            await _add_job(store, name, space=space)
        await forget(store, Selector(conversation="talk"), space=TEAM)
        assert [await _reviews(store, space) for space in (SPACE, BOB)] == [["r2"], ["r3"]]
        assert await _jobs(store) == ["job of r2", "job of r3"]
        assert [await messages_of(store, name) for name in ("r1", "r2", "r3")] == [[], ["Hello"], ["Hello"]]

    @pytest.mark.parametrize("selector", [Selector(conversation="talk"), Selector(everything=True)])
    async def test_no_text_for_a_shared_space_stays_though_no_record_is_left(
        self, store: Store, selector: Selector
    ) -> None:
        """M2: then the review has nothing to read."""
        await schedule(store, review(writes=TEAM), said())
        await schedule(store, review("r2", writes=SPACE, conversation="other"), said("Hello"))
        await forget(store, selector, space=TEAM)
        assert [await messages_of(store, name) for name in ("r1", "r2")] == [[], ["Hello"]]
        assert await _reviews(store) == ["r2", "r1"]

    async def test_another_tenant_s_reviews_are_out_of_reach(self, store: Store) -> None:
        """L2: the same ids, names and speakers under another tenant are others."""
        gone = await _said(store, "I keep bees")
        theirs = operation(Verb.RECORD, tenant="acme")
        await record(store, "I keep bees", within=theirs, id=gone.id, conversation="talk")
        await schedule(store, review(tenant="acme"), said(source=gone.id), said("not recorded"))
        for selector in (
            Selector(memory=gone.id),
            Selector(speaker="ada"),
            Selector(conversation="talk"),
            Selector(everything=True),
        ):
            await forget(store, selector)
        left = await store.read(lambda unit: unit.reviews.messages("acme", "r1"))
        assert [message.text for message in left] == ["I keep bees", "not recorded"]


async def _said(store: Store, text: str, *, space: str = SPACE, owner: str | None = None) -> Entry:
    within = operation(Verb.RECORD, space=space)
    return await record(store, text, within=within, conversation="talk", turn="turn-1", owner=owner)


async def _add_job(store: Store, review_id: str, *, space: str = SPACE) -> None:
    job = Job(f"job of {review_id}", "review", TENANT, space, json.dumps({"review": review_id}), 1.0)
    await store.write(lambda unit: unit.jobs.add(job))


async def _jobs(store: Store) -> list[str]:
    return [job.id for job in await store.read(lambda unit: unit.jobs.page(TENANT))]


async def _reviews(store: Store, space: str = SPACE) -> list[str]:
    return [row.id for row in await store.read(lambda unit: unit.reviews.page(TENANT, space, limit=9))]
