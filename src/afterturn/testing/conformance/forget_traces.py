"""Forgetting: what conversations and reviews keep of entries is erased too, in all spaces of the tenant."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from afterturn.errors import NotFound
from afterturn.ports import Store, Unit
from afterturn.testing.conformance.actions import (
    ALL_SPACES,
    BOB,
    QUEUE,
    SPACE,
    TALK,
    TEAM,
    TENANT,
    add,
    candidate,
    converse,
    forget,
    record,
    update,
)
from afterturn.testing.conformance.reviews import end, messages_of, review, said, schedule
from afterturn.testing.entries import operation
from afterturn.types import (
    BlockRow,
    CarriedRow,
    ConversationKey,
    ConversationState,
    Entry,
    Event,
    Job,
    Outcome,
    Phase,
    RecallCause,
    RecallRow,
    ReviewKind,
    ReviewState,
    Scope,
    Selector,
    StandingRow,
    Tenant,
    TurnRow,
    TurnStatus,
    Verb,
)

_OTHER = ConversationKey(TENANT, SPACE, "other")


@dataclass(frozen=True)
class _Kept:
    """What is left of a conversation in which something was said and shown."""

    text: str = ""
    questions: tuple[str, ...] = ()
    carried: str = ""
    standing: str = ""


_ALL = _Kept("a block", ("turn-1", "turn-2"), "turn-2", "a standing block")


class TestForgottenTraces:
    async def test_a_memory_takes_along_what_shows_it(self, store: Store) -> None:
        """M2: block texts and the standing block; questions belong to the conversation."""
        entry = (await add(store, "Ada keeps bees")).entry
        await _keep(store, entry)
        await forget(store, Selector(memory=entry.id))
        assert await _kept(store) == _Kept(questions=("turn-1", "turn-2"))

    async def test_another_memory_takes_nothing_along(self, store: Store) -> None:
        """M2: what is not shown is not touched."""
        entry, other = (await add(store, "Ada keeps bees")).entry, (await add(store, "Ada likes tea")).entry
        await _keep(store, entry)
        await forget(store, Selector(memory=other.id))
        assert await _kept(store) == _ALL

    async def test_a_block_that_shows_several_loses_its_text_with_one(self, store: Store) -> None:
        """M2: it is still known by hash and size, and what else it shows counts as shown."""
        gone, stays = (await add(store, "Ada keeps bees")).entry, (await add(store, "Ada likes tea")).entry
        block = BlockRow("h", "turn-1", (stays.ref, gone.ref), 9, 1.0, "user_message", "anchor", "both")
        await store.write(lambda unit: unit.conversations.add_block(TALK, block), at=ALL_SPACES)
        await forget(store, Selector(memory=gone.id))
        blocks = await store.read(lambda unit: unit.conversations.blocks(TALK), at=ALL_SPACES)
        assert blocks == [replace(block, refs=(stays.ref,), text="")]

    async def test_an_erased_version_takes_along_what_shows_it(self, store: Store) -> None:
        """M2: though a later version of the same memory stays."""
        source = await record(store, "hello bees", conversation="elsewhere")
        first = (await add(store, "Ada keeps bees", sources=(source.id,))).entry
        await update(store, first.id, "Ada keeps many bees")
        await _keep(store, first)
        await forget(store, Selector(conversation="elsewhere"))
        assert await _kept(store) == _Kept(questions=("turn-1", "turn-2"))

    async def test_a_version_that_stays_keeps_what_shows_it(self, store: Store) -> None:
        """M2: by version, not by id."""
        source = await record(store, "hello bees", conversation="elsewhere")
        first = (await add(store, "Ada keeps bees", sources=(source.id,))).entry
        newer = await update(store, first.id, "Ada keeps many bees")
        await _keep(store, newer)
        await forget(store, Selector(conversation="elsewhere"))
        assert await _kept(store) == _ALL

    async def test_another_space_s_memory_takes_along_what_shows_it(self, store: Store) -> None:
        """M2: its text was copied into this conversation."""
        entry = (await add(store, "Bees swarm", within=operation(space=TEAM))).entry
        await _keep(store, entry)
        await forget(store, Selector(memory=entry.id), space=TEAM)
        assert await _kept(store) == _Kept(questions=("turn-1", "turn-2"))

    async def test_another_tenant_s_memory_of_the_same_id_takes_nothing(self, store: Store) -> None:
        """L2: tenants never meet."""
        entry = (await add(store, "Ada keeps bees")).entry
        await add(store, "Bob keeps wasps", id=entry.id, within=operation(tenant="acme"))
        await _keep(store, entry)
        selector = Selector(memory=entry.id)
        await store.write(lambda unit: unit.operations.forget("acme", SPACE, selector, at=1.0), at=Tenant("acme"))
        assert await _kept(store) == _ALL

    @pytest.mark.parametrize("selector", [Selector(conversation="talk"), Selector(everything=True)])
    async def test_a_conversation_goes_with_all_that_it_keeps(self, store: Store, selector: Selector) -> None:
        """M2: counters too; when it begins again, it is new."""
        entry = (await add(store, "Ada keeps bees")).entry
        await _keep(store, entry)
        await store.write(lambda unit: unit.conversations.clear(TALK, at=20.0, compacted=True), at=ALL_SPACES)
        await forget(store, selector)
        await converse(store, at=30.0)
        assert await _kept(store) == _Kept()
        assert await store.read(lambda unit: unit.conversations.state(TALK), at=ALL_SPACES) == ConversationState()

    async def test_another_conversation_keeps_its_own(self, store: Store) -> None:
        """M2: a memory that was not said in the forgotten one stays where it is shown."""
        entry = (await add(store, "Ada keeps bees")).entry
        await _keep(store, entry)
        await _keep(store, entry, _OTHER)
        await forget(store, Selector(conversation="talk"))
        assert await _kept(store, _OTHER) == _ALL

    async def test_a_recorded_message_takes_along_what_was_asked_in_its_turn(self, store: Store) -> None:
        """M2, M4: a question is the message again, so retention reaches it too."""
        await _keep(store, (await add(store, "Ada keeps bees")).entry)
        said = await record(store, "do bees sleep?", conversation="talk", turn="turn-2")
        await forget(store, Selector(memory=said.id))
        assert await _kept(store) == replace(_ALL, questions=("turn-1",), carried="")

    async def test_a_speaker_takes_along_what_was_asked(self, store: Store) -> None:
        """M2: in turns that hold a word of theirs, and in those of which nobody knows who spoke."""
        await _keep(store, (await add(store, "Ada keeps bees")).entry)
        for turn, speaker in (("turn-1", "ada"), ("turn-2", "bob")):
            await _record_turn(store, turn)
            await record(store, f"{speaker} asks", conversation="talk", turn=turn, speaker=speaker)
        await _ask(store, "turn-3")
        await forget(store, Selector(speaker="bob"))
        assert await _kept(store) == replace(_ALL, questions=("turn-1",), carried="")

    async def test_a_shared_space_reaches_the_owner_s_questions(self, store: Store) -> None:
        """M2: what was recorded there is forgotten with what its owner's conversation keeps of the words."""
        await _keep(store, (await add(store, "Ada keeps bees")).entry)
        within = operation(Verb.RECORD, space=TEAM)
        await record(store, "do bees sleep?", within=within, conversation="talk", owner=SPACE, turn="turn-1")
        await forget(store, Selector(conversation="talk"), space=TEAM)
        assert await _kept(store) == replace(_ALL, questions=(), carried="")

    async def test_a_shared_space_reaches_no_further(self, store: Store) -> None:
        """L2: another owner's conversation of the same id was not recorded there."""
        await _keep(store, (await add(store, "Ada keeps bees")).entry)
        within = operation(Verb.RECORD, space=TEAM)
        await record(store, "do bees sleep?", within=within, conversation="talk", owner="user:bob", turn="turn-1")
        await forget(store, Selector(conversation="talk"), space=TEAM)
        assert await _kept(store) == _ALL


async def _keep(store: Store, entry: Entry, key: ConversationKey = TALK) -> None:
    """One of everything that a conversation keeps, each showing the entry."""
    seen = (candidate(entry),)
    carried = CarriedRow("c-turn-2", "turn-2", 1, "and honey?", 5.0, 6.0, (Phase.FAST,), seen)

    def work(unit: Unit) -> None:
        unit.conversations.add_block(key, BlockRow("hash", "turn-1", (entry.ref,), 9, 1.0, text="a block"))
        unit.conversations.carry(key, carried)
        unit.conversations.put_standing(key, StandingRow("a standing block", (entry.ref,), 1.0))

    await store.write(work, at=ALL_SPACES)
    for turn in ("turn-1", "turn-2"):
        await _ask(store, turn, key)


async def _ask(store: Store, turn: str, key: ConversationKey = TALK) -> None:
    row = RecallRow(f"c-{turn}", turn, 1, RecallCause.MESSAGE, Phase.FAST, "bees?", 5.0, 6.0, Outcome.EMPTY, "")
    await store.write(lambda unit: unit.recalls.add(key, row, entries_max=10), at=key.scope)


async def _record_turn(store: Store, turn: str) -> None:
    def work(unit: Unit) -> None:
        unit.conversations.start_turn(TALK, TurnRow(turn, TurnStatus.OPEN, 1.0, "hash"))
        unit.conversations.end_turn(TALK, turn, status=TurnStatus.COMPLETED, at=2.0, recorded=True)

    await store.write(work, at=ALL_SPACES)


async def _kept(store: Store, key: ConversationKey = TALK) -> _Kept:
    def work(unit: Unit) -> _Kept:
        carried, standing = unit.conversations.read(key).carried, unit.conversations.find_standing(key)
        return _Kept(
            text="".join(block.text for block in unit.conversations.blocks(key)),
            questions=tuple(row.turn for row in unit.recalls.page(key)),
            carried=carried.turn if carried else "",
            standing=standing.text if standing else "",
        )

    return await store.read(work, at=ALL_SPACES)


# Reviews, their messages and their jobs


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
            await store.read(lambda unit: unit.reviews.get(TENANT, "r2"), at=ALL_SPACES)

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
        await store.write(lambda unit: unit.jobs.claim(["review"], owner="one", now=5.0, lease=60.0, limit=1), at=QUEUE)
        await forget(store, Selector(conversation="talk"))
        assert not await store.write(lambda unit: unit.jobs.complete("job of r1", owner="one"), at=ALL_SPACES)
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

    async def test_an_imported_record_does_not_reach_the_owner_that_it_names(self, store: Store) -> None:
        """L2, M2: a file may name any owner and any id; forgetting what was imported stays in its space."""
        theirs = await _said(store, "I keep bees", space=BOB)
        await schedule(store, review("r1", space=BOB, writes=BOB), said(source=theirs.id), said("not recorded"))
        await _add_job(store, "r1", space=BOB)
        event = Event("turn_started", 1.0, TENANT, BOB, conversation="talk", turn="turn-1")
        await store.write(lambda unit: unit.timeline.add([event], entries_max=9), at=ALL_SPACES)
        key = ConversationKey(TENANT, BOB, "talk")
        row = RecallRow("q1", "turn-1", 1, RecallCause.MESSAGE, Phase.FAST, "bees?", 5.0, 6.0, Outcome.EMPTY, "")
        await store.write(lambda unit: unit.recalls.add(key, row, entries_max=10), at=key.scope)
        imported = operation(Verb.IMPORT)
        await record(store, "I keep bees", within=imported, id=theirs.id, conversation="talk", turn="turn-1", owner=BOB)
        await forget(store, Selector(conversation="talk"))
        assert await messages_of(store, "r1") == ["I keep bees", "not recorded"]
        assert (await _reviews(store, BOB), await _jobs(store)) == (["r1"], ["job of r1"])
        bob = Scope(TENANT, (BOB,))
        assert [one.name for one in await store.read(lambda unit: unit.timeline.page(bob, limit=9), at=ALL_SPACES)] == [
            "turn_started"
        ]
        assert [
            row.correlation for row in await store.read(lambda unit: unit.recalls.page(key, limit=9), at=key.scope)
        ] == ["q1"]

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
        left = await store.read(lambda unit: unit.reviews.messages("acme", "r1"), at=Tenant("acme"))
        assert [message.text for message in left] == ["I keep bees", "not recorded"]


async def _said(store: Store, text: str, *, space: str = SPACE, owner: str | None = None) -> Entry:
    within = operation(Verb.RECORD, space=space)
    return await record(store, text, within=within, conversation="talk", turn="turn-1", owner=owner)


async def _add_job(store: Store, review_id: str, *, space: str = SPACE) -> None:
    job = Job(f"job of {review_id}", "review", TENANT, space, json.dumps({"review": review_id}), 1.0)
    await store.write(lambda unit: unit.jobs.add(job), at=ALL_SPACES)


async def _jobs(store: Store) -> list[str]:
    return [job.id for job in await store.read(lambda unit: unit.jobs.page(TENANT), at=ALL_SPACES)]


async def _reviews(store: Store, space: str = SPACE) -> list[str]:
    return [row.id for row in await store.read(lambda unit: unit.reviews.page(TENANT, space, limit=9), at=ALL_SPACES)]
