"""Forgetting: the selected entries and everything derived from them are erased, and stay erased."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from afterturn.errors import InvalidInput, NotFound
from afterturn.ports import Store, Unit
from afterturn.testing.conformance.actions import (
    ADA,
    ALL_SPACES,
    BOB,
    NOW,
    QUEUE,
    SMALL,
    SPACE,
    TALK,
    TEAM,
    TENANT,
    add,
    converse,
    delete,
    forget,
    frequencies,
    get,
    key_of,
    record,
    texts,
    undo,
    update,
)
from afterturn.testing.entries import admit, operation
from afterturn.types import (
    BlockRow,
    ConversationKey,
    Entry,
    Event,
    Filter,
    Job,
    LaneQuery,
    Scope,
    Selector,
    StandingRow,
    Status,
    Tenant,
    TurnRow,
    TurnStatus,
    Verb,
)


class TestForgetting:
    async def test_a_memory_goes_with_every_version(self, store: Store) -> None:
        """M2: `forget` can't be undone."""
        added, change = await add(store, "Ada keeps bees"), operation(Verb.UPDATE)
        await update(store, added.entry.id, "Ada keeps wasps", within=change)
        erased = await forget(store, Selector(memory=added.entry.id))
        assert (erased.ids, erased.versions) == ((added.entry.id,), 2)
        with pytest.raises(NotFound):
            await get(store, added.entry.id)
        with pytest.raises(NotFound):
            await undo(store, change.id)

    async def test_a_deleted_memory_can_still_be_forgotten(self, store: Store) -> None:
        """M2: hidden is not erased."""
        added = await add(store, "Ada keeps bees")
        await delete(store, added.entry.id)
        assert (await forget(store, Selector(memory=added.entry.id))).versions == 1

    async def test_figures_forget_too(self, store: Store) -> None:
        """M2: index entries go with their text."""
        added = await add(store, "Ada keeps bees")
        await forget(store, Selector(memory=added.entry.id))
        assert await frequencies(store, ["ada", "keep", "bee"]) == {}
        assert await store.read(lambda unit: unit.index.stats(ADA), at=ALL_SPACES) == {}

    async def test_vectors_go_with_their_text(self, store: Store) -> None:
        """M2: nothing derived stays."""
        added = await add(store, "Ada keeps bees")
        key = await key_of(store, "Ada keeps bees")
        await store.write(lambda unit: unit.index.put_vectors(TENANT, SPACE, SMALL, [(key, bytes(8))]), at=ALL_SPACES)
        await forget(store, Selector(memory=added.entry.id))
        assert (
            await store.read(lambda unit: unit.index.vectors(TENANT, SPACE, SMALL, range(1, 100)), at=ALL_SPACES) == {}
        )

    async def test_operations_left_empty_go_and_others_stay(self, store: Store) -> None:
        """M2: history forgets what it was about."""
        both = operation()

        def work(unit: Unit) -> list[str]:
            return [unit.memories.add(both, admit(text)).entry.id for text in ("Ada keeps bees", "Ada sells honey")]

        bees, honey = await store.write(work, at=ALL_SPACES)
        alone = await add(store, "Ada sleeps")
        await forget(store, Selector(memory=bees))
        await forget(store, Selector(memory=alone.entry.id))
        steps = await store.read(lambda unit: unit.operations.steps(ADA), at=ALL_SPACES)
        assert [(step.operation.id, step.entry_id) for step in steps] == [(both.id, honey)]
        assert len(await store.read(lambda unit: unit.operations.page(ADA, limit=10), at=ALL_SPACES)) == 1

    async def test_a_conversation_goes_whole(self, store: Store) -> None:
        """M2: records and turns of it."""
        await record(store, "hello bees", conversation="talk")
        await record(store, "other bees", conversation="other")
        turn = TurnRow("turn-1", TurnStatus.OPEN, 1.0, "hash")
        await store.write(lambda unit: unit.conversations.start_turn(TALK, turn), at=ALL_SPACES)
        await forget(store, Selector(conversation="talk"))
        assert await texts(store, "bees") == ["other bees"]
        assert await store.read(lambda unit: unit.conversations.page(TENANT, SPACE, limit=10), at=ALL_SPACES) == []
        assert await store.read(lambda unit: unit.conversations.find_turn(TALK, "turn-1"), at=ALL_SPACES) is None

    async def test_a_speaker_s_records_go_and_others_stay(self, store: Store) -> None:
        """M2: by speaker."""
        await record(store, "bob's bees", conversation="talk", speaker="bob")
        await record(store, "ada's bees", conversation="talk", speaker="ada")
        await forget(store, Selector(speaker="bob"))
        assert await texts(store, "bees") == ["ada's bees"]

    async def test_a_source_goes_with_what_names_it(self, store: Store) -> None:
        """M2: by source, wherever it is one of several."""
        source = await record(store, "hello bees", conversation="talk")
        await add(store, "Ada keeps bees", sources=(source.id, "another"))
        await add(store, "Ada likes bees", sources=("another",))
        await forget(store, Selector(source=source.id))
        assert await texts(store, "bees") == ["Ada likes bees"]

    async def test_everything_is_the_whole_space_and_no_other(self, store: Store) -> None:
        """M2: by space."""
        await add(store, "Ada keeps bees")
        await record(store, "hello bees", conversation="talk")
        await _add_job(store, Job("j1", "embed", TENANT, SPACE, "{}", 1.0))
        await converse(store)
        await store.write(
            lambda unit: unit.timeline.add([Event("x", 1.0, TENANT, SPACE)], entries_max=10), at=ALL_SPACES
        )
        bob = operation(space="user:bob")
        kept = await add(store, "Bob keeps bees", within=bob)
        assert (await forget(store, Selector(everything=True))).versions == 2
        assert await store.read(lambda unit: unit.memories.counts(ADA), at=ALL_SPACES) == {}
        assert await store.read(lambda unit: unit.jobs.page(TENANT), at=ALL_SPACES) == []
        assert await store.read(lambda unit: unit.conversations.page(TENANT, SPACE, limit=10), at=ALL_SPACES) == []
        assert await store.read(lambda unit: unit.timeline.page(ADA, limit=10), at=ALL_SPACES) == []
        assert kept.operation == bob.id

    async def test_statements_that_rest_only_on_it_go_too(self, store: Store) -> None:
        """M2: down the whole lineage."""
        source = await record(store, "hello bees", conversation="talk")
        child = await add(store, "Ada keeps bees", sources=(source.id,))
        await add(store, "Ada is a keeper of bees", sources=(child.entry.id,))
        erased = await forget(store, Selector(conversation="talk"))
        assert erased.versions == 3
        assert await texts(store, "bees keeper") == []

    async def test_statements_that_rest_on_more_stay_without_it(self, store: Store) -> None:
        """M2: merged statements keep their other sources."""
        gone = await record(store, "hello bees", conversation="talk")
        stays = await record(store, "more bees", conversation="other")
        merged = await add(store, "Ada keeps bees", sources=(gone.id, stays.id))
        await forget(store, Selector(conversation="talk"))
        assert (await get(store, merged.entry.id)).sources == (stays.id,)

    async def test_a_statement_that_was_said_again_stays_with_the_later_message(self, store: Store) -> None:
        """M2: it has both as sources, and is erased with the last of them."""
        first, second = await record(store, "I keep bees"), await record(store, "I do keep bees")
        added = await add(store, "Ada keeps bees", sources=(first.id,))
        await add(store, "Ada keeps bees", sources=(second.id,))
        await forget(store, Selector(memory=first.id))
        assert (await get(store, added.entry.id)).sources == (second.id,)
        assert added.entry.id in (await forget(store, Selector(memory=second.id))).ids

    async def test_a_version_that_rests_on_nothing_stays(self, store: Store) -> None:
        """M2: what the user said too does not rest only on what is erased."""
        source = await record(store, "hello bees", conversation="talk")
        added = await add(store, "Ada keeps bees", sources=(source.id,))
        await update(store, added.entry.id, "Ada keeps many bees")
        await forget(store, Selector(conversation="talk"))
        versions = await store.read(lambda unit: unit.memories.history(ADA, added.entry.id), at=ALL_SPACES)
        assert [(entry.version, entry.status) for entry in versions] == [(2, Status.ACTIVE)]

    async def test_a_version_does_not_come_back_beside_a_later_one(self, store: Store) -> None:
        """M2, G6: what was changed once more since is not said again."""
        source = await record(store, "I keep wasps", conversation="talk")
        added = await add(store, "Ada keeps bees")
        await update(store, added.entry.id, "Ada keeps wasps", sources=(source.id,))
        await update(store, added.entry.id, "Ada keeps hornets")
        await forget(store, Selector(conversation="talk"))
        versions = await store.read(lambda unit: unit.memories.history(ADA, added.entry.id), at=ALL_SPACES)
        assert [(entry.version, entry.status) for entry in versions] == [(1, Status.SUPERSEDED), (3, Status.ACTIVE)]
        assert await texts(store, "bees wasps hornets") == ["Ada keeps hornets"]

    async def test_a_version_does_not_come_back_beside_another_memory_of_its_words(self, store: Store) -> None:
        """M2, G6: nothing is said twice."""
        source = await record(store, "I keep wasps", conversation="talk")
        added = await add(store, "Ada keeps bees")
        await update(store, added.entry.id, "Ada keeps wasps", sources=(source.id,))
        again = await add(store, "Ada keeps bees")
        await forget(store, Selector(conversation="talk"))
        assert (await get(store, added.entry.id)).status is Status.SUPERSEDED
        assert (await get(store, again.entry.id)).status is Status.ACTIVE
        assert await texts(store, "bees") == ["Ada keeps bees"]

    async def test_a_forgotten_version_s_number_is_not_given_again(self, store: Store) -> None:
        """M2: who saw it must not take other words for it, however much is forgotten in between."""
        added = await add(store, "Ada keeps bees")
        for text, version in (("wasps", 2), ("hornets", 3), ("ants", 4)):
            said = await record(store, f"I keep {text}", conversation=text)
            updated = await update(store, added.entry.id, f"Ada keeps {text}", sources=(said.id,))
            assert updated.version == version
            await forget(store, Selector(conversation=text))
        assert (await get(store, added.entry.id)).version == 1

    async def test_a_version_can_be_a_source(self, store: Store) -> None:
        """M2: lineage holds by version as well as by id."""
        source = await add(store, "Ada keeps bees")
        newer = await update(store, source.entry.id, "Ada keeps many bees")
        await add(store, "Ada likes bees", sources=(newer.ref,))
        assert (await forget(store, Selector(memory=source.entry.id))).versions == 3

    async def test_jobs_that_name_it_go(self, store: Store) -> None:
        """M2: jobs too, and in-flight ones find nothing to finish."""
        entry = await record(store, "hello bees", conversation="talk")
        payloads = {
            "j1": {"ids": [entry.id]},
            "j2": {"deep": {"conversation": "talk"}},
            "j3": {"conversation": "other"},
        }
        for job_id, payload in payloads.items():
            await _add_job(store, Job(job_id, "embed", TENANT, SPACE, json.dumps(payload), 1.0))
        await store.write(lambda unit: unit.jobs.claim(["embed"], owner="one", now=5.0, lease=60.0, limit=1), at=QUEUE)
        await forget(store, Selector(conversation="talk"))
        assert [job.id for job in await store.read(lambda unit: unit.jobs.page(TENANT), at=ALL_SPACES)] == ["j3"]
        assert not await store.write(lambda unit: unit.jobs.complete("j1", owner="one"), at=ALL_SPACES)

    @pytest.mark.parametrize(
        "selector",
        [Selector(speaker="bob"), Selector(conversation="bob"), Selector(memory="bob"), Selector(memory="with")],
        ids=["speaker", "conversation", "memory", "a word"],
    )
    async def test_jobs_of_a_conversation_that_has_a_word_in_common_stay(
        self, store: Store, selector: Selector
    ) -> None:
        """M2: a name means what has that name, and a conversation's is nobody else's."""
        await record(store, "hello bees", conversation="call with bob", speaker="bob")
        names = ("call with bob", "bob") if selector.conversation is None else ("call with bob",)
        for name in names:
            payload = json.dumps({"review": "r1", "conversation": name})
            await _add_job(store, Job(f"job of {name}", "review", TENANT, SPACE, payload, 1.0))
        await forget(store, selector)
        left = await store.read(lambda unit: unit.jobs.page(TENANT), at=ALL_SPACES)
        assert {job.id for job in left} == {f"job of {name}" for name in names}

    async def test_the_timeline_forgets_whatever_names_it(self, store: Store) -> None:
        """M2: by conversation, and by id wherever it stands."""
        entry = await record(store, "hello bees", conversation="talk")
        events = [
            Event("started", 1.0, TENANT, SPACE, "talk"),
            Event("delivered", 2.0, TENANT, SPACE, "other", data={"refs": f"m1,{entry.id}"}),
            Event("delivered", 3.0, TENANT, SPACE, "other", data={"refs": "m1,m2"}),
        ]
        await store.write(lambda unit: unit.timeline.add(events, entries_max=10), at=ALL_SPACES)
        await forget(store, Selector(conversation="talk"))
        assert [
            event.at for event in await store.read(lambda unit: unit.timeline.page(ADA, limit=10), at=ALL_SPACES)
        ] == [3.0]

    async def test_blocks_lose_the_reference(self, store: Store) -> None:
        """M2: the block is still known by its hash, so it is still stripped from what is recorded."""
        added = await add(store, "Ada keeps bees")
        newer = await update(store, added.entry.id, "Ada keeps many bees")
        block = BlockRow("block-hash", "turn-1", ("m1", newer.ref, added.entry.ref), 10, 1.0)
        await store.write(lambda unit: unit.conversations.add_block(TALK, block), at=ALL_SPACES)
        await forget(store, Selector(memory=added.entry.id))
        blocks = await store.read(lambda unit: unit.conversations.blocks(TALK), at=ALL_SPACES)
        assert [(item.hash, item.refs) for item in blocks] == [("block-hash", ("m1",))]

    async def test_a_forgotten_statement_can_be_said_again(self, store: Store) -> None:
        """M2: a forgotten text may be added again."""
        added = await add(store, "Ada keeps bees")
        await forget(store, Selector(memory=added.entry.id))
        assert (await add(store, "Ada keeps bees")).created

    async def test_forgetting_what_is_not_there_erases_nothing(self, store: Store) -> None:
        await add(store, "Ada keeps bees")
        assert (await forget(store, Selector(memory="nowhere"))).versions == 0
        assert len(await store.read(lambda unit: unit.memories.page(ADA, Filter(), limit=10), at=ALL_SPACES)) == 1

    async def test_several_memories_go_together(self, store: Store) -> None:
        """M2: an entry with two of them as sources is erased with both, though it would stay without one."""
        first, second = await add(store, "Ada keeps bees"), await add(store, "Bees sting")
        both = await add(store, "Ada gets stung", sources=(first.entry.id, second.entry.id))
        kept = await add(store, "Ada likes tea")
        erased = await forget(store, Selector(memories=(first.entry.id, second.entry.id)))
        assert set(erased.ids) == {first.entry.id, second.entry.id, both.entry.id}
        assert [
            entry.id
            for entry in await store.read(lambda unit: unit.memories.page(ADA, Filter(), limit=9), at=ALL_SPACES)
        ] == [kept.entry.id]

    @pytest.mark.parametrize(
        "selector",
        [Selector(), Selector(memory="m1", speaker="ada"), Selector(memory="m1", memories=("m2",))],
        ids=["none", "two", "one and several"],
    )
    async def test_exactly_one_thing_is_selected(self, store: Store, selector: Selector) -> None:
        """M2: nothing is forgotten by mistake."""
        with pytest.raises(InvalidInput):
            await forget(store, selector)

    async def test_many_entries_go_at_once(self, store: Store) -> None:
        """M2: however many there are."""

        def work(unit: Unit) -> None:
            for number in range(1_300):
                unit.memories.add(operation(), admit(f"bees number{number}", conversation="talk"))

        await store.write(work, at=ALL_SPACES)
        assert (await forget(store, Selector(conversation="talk"))).versions == 1_300
        assert await frequencies(store, ["bee"]) == {}


async def _add_job(store: Store, job: Job) -> None:
    await store.write(lambda unit: unit.jobs.add(job), at=ALL_SPACES)


# Limits: other tenants and spaces are not affected, and blocks are still recognised

_OTHER_SPACES = pytest.mark.parametrize(
    "elsewhere", [Scope(TENANT, ("user:bob",)), Scope("acme", (SPACE,))], ids=["space", "tenant"]
)
_BLOCK = BlockRow("block-hash", "turn-1", ("m1",), 400, 11.0)


class TestForgetReach:
    @_OTHER_SPACES
    async def test_another_s_sources_of_the_same_id_stay(self, store: Store, elsewhere: Scope) -> None:
        """L2: an id names an entry of its own space alone."""
        place = operation(tenant=elsewhere.tenant, space=elsewhere.spaces[0])
        theirs = await add(store, "Bob keeps wasps", sources=("m1", "wiki"), within=place)
        await add(store, "Ada keeps bees", id="m1")
        await forget(store, Selector(memory="m1"))
        assert (await get(store, theirs.entry.id, scope=elsewhere)).sources == ("m1", "wiki")

    @_OTHER_SPACES
    async def test_another_s_copy_can_still_be_forgotten_whole(self, store: Store, elsewhere: Scope) -> None:
        """M2: the same export in two spaces; one forget leaves the other's lineage for its own."""
        for scope in (ADA, elsewhere):
            tenant, space = scope.tenant, scope.spaces[0]
            place = operation(Verb.RECORD, tenant=tenant, space=space)
            await record(store, "hello bees", id="m1", conversation="talk", within=place)
            await add(store, "Ada keeps bees", sources=("m1",), within=operation(tenant=tenant, space=space))
        for scope in (ADA, elsewhere):
            assert await _forget_first(store, scope) == 2

    @_OTHER_SPACES
    async def test_another_s_blocks_keep_their_references(self, store: Store, elsewhere: Scope) -> None:
        """L2: what is visible in one owner's conversation is not decided in another's space."""
        key = ConversationKey(elsewhere.tenant, elsewhere.spaces[0], "talk")
        await store.write(lambda unit: unit.conversations.add_block(key, _BLOCK), at=key.scope)
        await add(store, "Ada keeps bees", id="m1")
        await forget(store, Selector(memory="m1"))
        assert await _blocks(store, key) == [_BLOCK]

    @pytest.mark.parametrize("selector", [Selector(conversation="talk"), Selector(everything=True)])
    async def test_blocks_of_a_forgotten_conversation_are_still_known(self, store: Store, selector: Selector) -> None:
        """C5: by hash and size, so that they are still stripped from what the host shows; nothing else is kept."""
        await store.write(lambda unit: unit.conversations.add_block(TALK, _BLOCK), at=ALL_SPACES)
        await forget(store, selector)
        assert await _blocks(store, TALK) == [BlockRow("block-hash", "", (), 400, 0.0, in_sight=False)]

    async def test_any_conversation_of_the_space_knows_them(self, store: Store) -> None:
        """C5: a host may carry the messages of a forgotten conversation over into a new one."""
        await store.write(lambda unit: unit.conversations.add_block(TALK, _BLOCK), at=ALL_SPACES)
        await forget(store, Selector(conversation="talk"))
        await forget(store, Selector(conversation="talk"))
        assert [block.hash for block in await _blocks(store, ConversationKey(TENANT, SPACE, "new"))] == ["block-hash"]
        assert await _blocks(store, ConversationKey(TENANT, "user:bob", "talk")) == []

    async def test_a_block_that_is_injected_again_is_given_once(self, store: Store) -> None:
        """H6: a block counts by the hash of its bytes; what shows something now has its references."""
        await store.write(lambda unit: unit.conversations.add_block(TALK, _BLOCK), at=ALL_SPACES)
        await forget(store, Selector(conversation="talk"))
        await store.write(lambda unit: unit.conversations.add_block(TALK, _BLOCK), at=ALL_SPACES)
        assert await _blocks(store, TALK) == [_BLOCK]

    async def test_jobs_that_stay_lose_their_errors(self, store: Store) -> None:
        """M2: an error may quote what it failed on."""
        job = Job("j1", "embed", TENANT, SPACE, "{}", 1.0, error="can't embed 'bees'")
        theirs = Job("j2", "embed", TENANT, "user:bob", "{}", 2.0, error="no model")
        await store.write(lambda unit: unit.jobs.add(job), at=ALL_SPACES)
        await store.write(lambda unit: unit.jobs.add(theirs), at=ALL_SPACES)
        await forget(store, Selector(memory="m1"))
        jobs = await store.read(lambda unit: unit.jobs.page(TENANT), at=ALL_SPACES)
        assert [(item.id, item.error) for item in jobs] == [("j1", ""), ("j2", "no model")]


async def _forget_first(store: Store, scope: Scope) -> int:
    selector = Selector(memory="m1")
    erased = await store.write(
        lambda unit: unit.operations.forget(scope.tenant, scope.spaces[0], selector, at=1.0), at=Tenant(scope.tenant)
    )
    return erased.versions


async def _blocks(store: Store, key: ConversationKey) -> list[BlockRow]:
    return await store.read(lambda unit: unit.conversations.blocks(key), at=key.scope)


# Statements in other spaces whose sources are forgotten


class TestAcrossSpaces:
    @pytest.mark.parametrize(
        "selecting",
        [
            lambda entry_id: Selector(memory=entry_id),
            lambda entry_id: Selector(memories=(entry_id,)),
            lambda entry_id: Selector(source=entry_id),
            lambda _: Selector(conversation="talk"),
            lambda _: Selector(speaker="ada"),
            lambda _: Selector(everything=True),
        ],
        ids=["memory", "memories", "source", "conversation", "speaker", "everything"],
    )
    async def test_a_statement_goes_with_the_last_record_it_rests_on(
        self, store: Store, selecting: Callable[[str], Selector]
    ) -> None:
        """M2, M4: however it is forgotten, in whichever space of the tenant the statement is."""
        said = await _said(store, "I keep bees")
        learned = await add(store, "Ada keeps bees", sources=(said.id,), owner=TEAM, conversation="talk")
        erased = await forget(store, selecting(said.id), space=TEAM)
        assert (set(erased.ids), erased.versions) == ({said.id, learned.entry.id}, 2)
        assert erased.spaces == (TEAM, SPACE)
        with pytest.raises(NotFound):
            await get(store, learned.entry.id)

    async def test_what_rests_on_that_goes_too(self, store: Store) -> None:
        """M2: down the whole lineage, which goes on in the other space."""
        said = await _said(store, "I keep bees")
        learned = await add(store, "Ada keeps bees", sources=(said.id,))
        merged = await add(store, "Ada is a keeper of bees", sources=(learned.entry.id,))
        erased = await forget(store, Selector(memory=said.id), space=TEAM)
        assert set(erased.ids) == {said.id, learned.entry.id, merged.entry.id}

    async def test_a_statement_that_rests_on_records_of_two_spaces_goes_with_both(self, store: Store) -> None:
        """M2: and stays without the first of them."""
        shared, own = await _said(store, "I keep bees"), await record(store, "I do keep bees")
        learned = await add(store, "Ada keeps bees", sources=(shared.id, own.id))
        await forget(store, Selector(memory=shared.id), space=TEAM)
        assert (await get(store, learned.entry.id)).sources == (own.id,)
        assert learned.entry.id in (await forget(store, Selector(memory=own.id))).ids

    async def test_the_version_before_it_is_said_again(self, store: Store) -> None:
        """M2: as where a record of the same space goes."""
        added, said = await add(store, "Ada keeps bees"), await _said(store, "I keep wasps now")
        await update(store, added.entry.id, "Ada keeps wasps", sources=(said.id,))
        await forget(store, Selector(memory=said.id), space=TEAM)
        assert (await get(store, added.entry.id)).text == "Ada keeps bees"
        assert await texts(store, "bees wasps") == ["Ada keeps bees"]

    async def test_nothing_derived_of_it_stays(self, store: Store) -> None:
        """M2: statistics, vectors, jobs and timeline; and indexes of the other space in memory learn of it."""
        said = await _said(store, "I keep bees")
        learned = await add(store, "Ada keeps bees", sources=(said.id,))
        key = await key_of(store, "Ada keeps bees")
        await store.write(lambda unit: unit.index.put_vectors(TENANT, SPACE, SMALL, [(key, bytes(8))]), at=ALL_SPACES)
        job = Job("j1", "embed", TENANT, SPACE, f'{{"ids": ["{learned.entry.id}"]}}', 1.0)
        await store.write(lambda unit: unit.jobs.add(job), at=ALL_SPACES)
        events = [
            Event("delivered", at, TENANT, SPACE, data={"refs": ref})
            for at, ref in enumerate(("m1", learned.entry.ref))
        ]
        await store.write(lambda unit: unit.timeline.add(events, entries_max=9), at=ALL_SPACES)
        seen = await store.read(lambda unit: unit.index.changes(TENANT, SPACE, since=0), at=ALL_SPACES)
        await forget(store, Selector(conversation="talk"), space=TEAM)
        assert await frequencies(store, ["ada", "keep", "bee"]) == {}
        assert (
            await store.read(lambda unit: unit.index.vectors(TENANT, SPACE, SMALL, range(1, 100)), at=ALL_SPACES) == {}
        )
        assert await store.read(lambda unit: unit.jobs.page(TENANT), at=ALL_SPACES) == []
        assert await store.read(lambda unit: unit.timeline.page(ADA, limit=9), at=ALL_SPACES) == events[:1]
        changes = await store.read(lambda unit: unit.index.changes(TENANT, SPACE, since=seen.seq), at=ALL_SPACES)
        assert tuple(changes.keys or ()) == (key,)

    async def test_conversations_that_show_it_lose_it(self, store: Store) -> None:
        """M2: texts, references and standing blocks."""
        said = await _said(store, "I keep bees")
        learned = (await add(store, "Ada keeps bees", sources=(said.id,))).entry
        block = BlockRow("hash", "turn-1", (learned.ref,), 9, 1.0, text="Ada keeps bees")
        await store.write(lambda unit: unit.conversations.add_block(TALK, block), at=ALL_SPACES)
        standing = StandingRow("Ada keeps bees", (learned.ref,), 1.0)
        await store.write(lambda unit: unit.conversations.put_standing(TALK, standing), at=ALL_SPACES)
        await forget(store, Selector(conversation="talk"), space=TEAM)
        (left,) = await store.read(lambda unit: unit.conversations.blocks(TALK), at=ALL_SPACES)
        assert (left.text, left.refs) == ("", ())
        assert await store.read(lambda unit: unit.conversations.find_standing(TALK), at=ALL_SPACES) is None

    async def test_a_record_that_another_space_holds_too_is_that_one_s(self, store: Store) -> None:
        """L2: forgetting a copy of a source does not erase another person's statement."""
        said = await _said(store, "I keep bees")
        copied = operation(Verb.RECORD, space="user:eve")
        await record(store, "I keep bees", id=said.id, within=copied)
        learned = await add(store, "Ada keeps bees", sources=(said.id,))
        await forget(store, Selector(memory=said.id), space="user:eve")
        assert (await get(store, learned.entry.id)).sources == (said.id,)
        await forget(store, Selector(memory=said.id), space=TEAM)
        assert await texts(store, "bees") == []

    async def test_another_s_statement_is_no_source_across_spaces(self, store: Store) -> None:
        """L2: an id that somebody chose may be chosen by others for something else."""
        await add(store, "The team keeps bees", id="wiki", within=operation(space=TEAM))
        learned = await add(store, "Ada keeps bees", sources=("wiki",))
        await forget(store, Selector(memory="wiki"), space=TEAM)
        assert (await get(store, learned.entry.id)).sources == ("wiki",)

    async def test_another_tenant_s_statements_are_out_of_reach(self, store: Store) -> None:
        """L2: the same id under another tenant is another record."""
        said = await _said(store, "I keep bees")
        theirs = operation(tenant="acme")
        await add(store, "Ada keeps bees", sources=(said.id,), within=theirs)
        await forget(store, Selector(memory=said.id), space=TEAM)
        assert await texts(store, "bees", LaneQuery(Scope("acme", (SPACE,)), NOW)) == ["Ada keeps bees"]


class TestPositionsAfterForget:
    """Positions of records that were forgotten are used again, and count as read no more."""

    async def test_what_takes_a_forgotten_record_s_place_is_unread(self, store: Store) -> None:
        """V1, M2: though the record before it was read."""
        entries = [await record(store, f"bees {at}", conversation="talk", turn="t", position=at) for at in range(3)]
        await _read(store, TALK, position=3)
        await forget(store, Selector(memory=entries[0].id))
        assert await _unread(store, TALK) == 3
        await forget(store, Selector(memory=entries[2].id))
        assert await _unread(store, TALK) == 2
        await forget(store, Selector(memory=entries[1].id))
        assert await _unread(store, TALK) == 0

    async def test_so_it_is_where_another_space_holds_the_records(self, store: Store) -> None:
        """V1, L2: by the owner's conversation; another owner's of the same id goes on as it was."""
        theirs = ConversationKey(TENANT, BOB, "talk")
        for key in (TALK, theirs):
            await _read(store, key, position=1)
            await _said(store, f"bees of {key.space}", owner=key.space, speaker=key.space)
        await forget(store, Selector(speaker=SPACE), space=TEAM)
        assert [await _unread(store, key) for key in (TALK, theirs)] == [0, 1]


async def _said(store: Store, text: str, *, owner: str = TEAM, speaker: str = "ada") -> Entry:
    within = operation(Verb.RECORD, space=TEAM)
    place = {"conversation": "talk", "turn": "turn-1", "position": 0}
    return await record(store, text, within=within, speaker=speaker, owner=owner, **place)


async def _read(store: Store, key: ConversationKey, *, position: int) -> None:
    await converse(store, key)
    await store.write(lambda unit: unit.reviews.scheduled(key, position=position), at=key.scope)


async def _unread(store: Store, key: ConversationKey) -> int:
    return (await store.read(lambda unit: unit.reviews.unreviewed(key), at=key.scope))[1]


# Tombstones: a turn that began before a forget writes nothing back, whatever the clocks say


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

    async def test_one_count_can_be_compared_in_every_space_of_the_tenant(self, store: Store) -> None:
        """M2: a turn notes one number, though its conversation's owner and its records are in two spaces."""
        await forget(store, Selector(everything=True), space="team:bees")
        under_way = await _forgets(store)
        await forget(store, Selector(everything=True), space="team:bees")
        assert await _forgotten(store, space="team:bees", since=under_way)

    async def test_another_tenant_has_a_count_of_its_own(self, store: Store) -> None:
        """L2: what others forget does not show in the numbers of a tenant."""
        await forget(store, Selector(everything=True))
        theirs = await store.read(lambda unit: unit.conversations.forgets("acme"), at=Tenant("acme"))
        await store.write(
            lambda unit: unit.operations.forget("acme", SPACE, Selector(speaker="bob"), at=9.0), at=Tenant("acme")
        )
        assert (theirs, await _forgets(store)) == (0, 1)


async def _forgets(store: Store) -> int:
    return await store.read(lambda unit: unit.conversations.forgets(TENANT), at=ALL_SPACES)


async def _forgotten(
    store: Store, *, conversation: str = "talk", speakers: tuple[str, ...] = (), since: int, space: str = SPACE
) -> bool:
    return await store.read(
        lambda unit: unit.conversations.is_forgotten(
            TENANT, space, conversation=conversation, speakers=speakers, since=since
        ),
        at=ALL_SPACES,
    )
