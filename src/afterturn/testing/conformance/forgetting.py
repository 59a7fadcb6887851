"""Forgetting: what was selected goes with everything that was derived from it, and does not come back."""

import json

import pytest

from afterturn.errors import InvalidInput, NotFound
from afterturn.ports import Store, Unit
from afterturn.testing.conformance.scene import (
    ADA,
    SMALL,
    SPACE,
    TALK,
    TENANT,
    add,
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
from afterturn.testing.drafts import admit, operation
from afterturn.types import BlockRow, Event, Filter, Job, Selector, Status, TurnRow, TurnStatus, Verb


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
        assert await store.read(lambda unit: unit.index.stats(ADA)) == {}

    async def test_vectors_go_with_their_text(self, store: Store) -> None:
        """M2: nothing derived stays."""
        added = await add(store, "Ada keeps bees")
        key = await key_of(store, "Ada keeps bees")
        await store.write(lambda unit: unit.index.put_vectors(SMALL, [(key, bytes(8))]))
        await forget(store, Selector(memory=added.entry.id))
        assert await store.read(lambda unit: unit.index.vectors(TENANT, SPACE, SMALL, None)) == {}

    async def test_operations_left_empty_go_and_others_stay(self, store: Store) -> None:
        """M2: history forgets what it was about."""
        both = operation()

        def work(unit: Unit) -> list[str]:
            return [unit.memories.add(both, admit(text)).entry.id for text in ("Ada keeps bees", "Ada sells honey")]

        bees, honey = await store.write(work)
        alone = await add(store, "Ada sleeps")
        await forget(store, Selector(memory=bees))
        await forget(store, Selector(memory=alone.entry.id))
        steps = await store.read(lambda unit: unit.operations.steps(ADA))
        assert [(step.operation.id, step.entry_id) for step in steps] == [(both.id, honey)]
        assert len(await store.read(lambda unit: unit.operations.page(ADA, limit=10))) == 1

    async def test_a_conversation_goes_whole(self, store: Store) -> None:
        """M2: records and turns of it."""
        await record(store, "hello bees", conversation="talk")
        await record(store, "other bees", conversation="other")
        turn = TurnRow("turn-1", TurnStatus.OPEN, 1.0, "hash")
        await store.write(lambda unit: unit.conversations.start_turn(TALK, turn))
        await forget(store, Selector(conversation="talk"))
        assert await texts(store, "bees") == ["other bees"]
        assert await store.read(lambda unit: unit.conversations.page(TENANT, SPACE, limit=10)) == []
        assert await store.read(lambda unit: unit.conversations.find_turn(TALK, "turn-1")) is None

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
        await store.write(lambda unit: unit.conversations.open(TALK, at=1.0))
        await store.write(lambda unit: unit.timeline.add([Event("x", 1.0, TENANT, SPACE)], entries_max=10))
        bob = operation(space="user:bob")
        kept = await add(store, "Bob keeps bees", within=bob)
        assert (await forget(store, Selector(everything=True))).versions == 2
        assert await store.read(lambda unit: unit.memories.counts(ADA)) == {}
        assert await store.read(lambda unit: unit.jobs.page(TENANT)) == []
        assert await store.read(lambda unit: unit.conversations.page(TENANT, SPACE, limit=10)) == []
        assert await store.read(lambda unit: unit.timeline.page(ADA, limit=10)) == []
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
        """M2: it rests on both, and goes with the last of them."""
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
        versions = await store.read(lambda unit: unit.memories.history(ADA, added.entry.id))
        assert [(entry.version, entry.status) for entry in versions] == [(2, Status.ACTIVE)]

    async def test_a_version_does_not_come_back_beside_a_later_one(self, store: Store) -> None:
        """M2, G6: what was changed once more since is not said again."""
        source = await record(store, "I keep wasps", conversation="talk")
        added = await add(store, "Ada keeps bees")
        await update(store, added.entry.id, "Ada keeps wasps", sources=(source.id,))
        await update(store, added.entry.id, "Ada keeps hornets")
        await forget(store, Selector(conversation="talk"))
        versions = await store.read(lambda unit: unit.memories.history(ADA, added.entry.id))
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
        await store.write(lambda unit: unit.jobs.claim(["embed"], owner="one", now=5.0, lease=60.0, limit=1))
        await forget(store, Selector(conversation="talk"))
        assert [job.id for job in await store.read(lambda unit: unit.jobs.page(TENANT))] == ["j3"]
        assert not await store.write(lambda unit: unit.jobs.complete("j1", owner="one"))

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
        left = await store.read(lambda unit: unit.jobs.page(TENANT))
        assert {job.id for job in left} == {f"job of {name}" for name in names}

    async def test_the_timeline_forgets_whatever_names_it(self, store: Store) -> None:
        """M2: by conversation, and by id wherever it stands."""
        entry = await record(store, "hello bees", conversation="talk")
        events = [
            Event("started", 1.0, TENANT, SPACE, "talk"),
            Event("delivered", 2.0, TENANT, SPACE, "other", data={"refs": f"m1,{entry.id}"}),
            Event("delivered", 3.0, TENANT, SPACE, "other", data={"refs": "m1,m2"}),
        ]
        await store.write(lambda unit: unit.timeline.add(events, entries_max=10))
        await forget(store, Selector(conversation="talk"))
        assert [event.at for event in await store.read(lambda unit: unit.timeline.page(ADA, limit=10))] == [3.0]

    async def test_blocks_lose_the_reference(self, store: Store) -> None:
        """M2: the block is still known by its hash, so it is still stripped from what is recorded."""
        added = await add(store, "Ada keeps bees")
        newer = await update(store, added.entry.id, "Ada keeps many bees")
        block = BlockRow("block-hash", "turn-1", ("m1", newer.ref, added.entry.ref), 10, 1.0)
        await store.write(lambda unit: unit.conversations.add_block(TALK, block))
        await forget(store, Selector(memory=added.entry.id))
        blocks = await store.read(lambda unit: unit.conversations.blocks(TALK))
        assert [(item.hash, item.refs) for item in blocks] == [("block-hash", ("m1",))]

    async def test_a_forgotten_statement_can_be_said_again(self, store: Store) -> None:
        """M2: forgetting is no ban."""
        added = await add(store, "Ada keeps bees")
        await forget(store, Selector(memory=added.entry.id))
        assert (await add(store, "Ada keeps bees")).created

    async def test_forgetting_what_is_not_there_erases_nothing(self, store: Store) -> None:
        await add(store, "Ada keeps bees")
        assert (await forget(store, Selector(memory="nowhere"))).versions == 0
        assert len(await store.read(lambda unit: unit.memories.page(ADA, Filter(), limit=10))) == 1

    async def test_several_memories_go_together(self, store: Store) -> None:
        """M2: what rests on two of them goes with both, though it would stay without one."""
        first, second = await add(store, "Ada keeps bees"), await add(store, "Bees sting")
        both = await add(store, "Ada gets stung", sources=(first.entry.id, second.entry.id))
        kept = await add(store, "Ada likes tea")
        erased = await forget(store, Selector(memories=(first.entry.id, second.entry.id)))
        assert set(erased.ids) == {first.entry.id, second.entry.id, both.entry.id}
        assert [entry.id for entry in await store.read(lambda unit: unit.memories.page(ADA, Filter(), limit=9))] == [
            kept.entry.id
        ]

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

        await store.write(work)
        assert (await forget(store, Selector(conversation="talk"))).versions == 1_300
        assert await frequencies(store, ["bee"]) == {}


async def _add_job(store: Store, job: Job) -> None:
    await store.write(lambda unit: unit.jobs.add(job))
