"""Forgetting what statements of other spaces rest on: a review writes what somebody said where that person's are."""

from collections.abc import Callable

import pytest

from afterturn.errors import NotFound
from afterturn.ports import Store
from afterturn.testing.conformance.scene import (
    ADA,
    NOW,
    SMALL,
    SPACE,
    TALK,
    TENANT,
    add,
    forget,
    frequencies,
    get,
    key_of,
    record,
    texts,
    update,
)
from afterturn.testing.drafts import operation
from afterturn.types import BlockRow, ConversationKey, Entry, Event, Job, LaneQuery, Scope, Selector, StandingRow, Verb

BOB, TEAM = "user:bob", "team:bees"


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
        """M2: figures, vectors, jobs, timeline; and whoever holds the other space in memory is told."""
        said = await _said(store, "I keep bees")
        learned = await add(store, "Ada keeps bees", sources=(said.id,))
        key = await key_of(store, "Ada keeps bees")
        await store.write(lambda unit: unit.index.put_vectors(SMALL, [(key, bytes(8))]))
        job = Job("j1", "embed", TENANT, SPACE, f'{{"ids": ["{learned.entry.id}"]}}', 1.0)
        await store.write(lambda unit: unit.jobs.add(job))
        events = [
            Event("delivered", at, TENANT, SPACE, data={"refs": ref})
            for at, ref in enumerate(("m1", learned.entry.ref))
        ]
        await store.write(lambda unit: unit.timeline.add(events, entries_max=9))
        seen = await store.read(lambda unit: unit.index.changes(TENANT, SPACE, since=0))
        await forget(store, Selector(conversation="talk"), space=TEAM)
        assert await frequencies(store, ["ada", "keep", "bee"]) == {}
        assert await store.read(lambda unit: unit.index.vectors(TENANT, SPACE, SMALL, None)) == {}
        assert await store.read(lambda unit: unit.jobs.page(TENANT)) == []
        assert await store.read(lambda unit: unit.timeline.page(ADA, limit=9)) == events[:1]
        changes = await store.read(lambda unit: unit.index.changes(TENANT, SPACE, since=seen.seq))
        assert tuple(changes.keys or ()) == (key,)

    async def test_conversations_that_show_it_lose_it(self, store: Store) -> None:
        """M2: texts, references and standing blocks."""
        said = await _said(store, "I keep bees")
        learned = (await add(store, "Ada keeps bees", sources=(said.id,))).entry
        block = BlockRow("hash", "turn-1", (learned.ref,), 9, 1.0, text="Ada keeps bees")
        await store.write(lambda unit: unit.conversations.add_block(TALK, block))
        standing = StandingRow("Ada keeps bees", (learned.ref,), 1.0)
        await store.write(lambda unit: unit.conversations.put_standing(TALK, standing))
        await forget(store, Selector(conversation="talk"), space=TEAM)
        (left,) = await store.read(lambda unit: unit.conversations.blocks(TALK))
        assert (left.text, left.refs) == ("", ())
        assert await store.read(lambda unit: unit.conversations.find_standing(TALK)) is None

    async def test_a_record_that_another_space_holds_too_is_that_one_s(self, store: Store) -> None:
        """L2: nobody can make another's statement go by forgetting a copy of what it rests on."""
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


class TestReadAgain:
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
    await store.write(lambda unit: unit.conversations.open(key, at=1.0))
    await store.write(lambda unit: unit.reviews.scheduled(key, position=position))


async def _unread(store: Store, key: ConversationKey) -> int:
    return (await store.read(lambda unit: unit.reviews.unreviewed(key)))[1]
