"""What conversations keep of entries goes when these are forgotten, in whatever conversation of the tenant it is."""

from dataclasses import dataclass, replace

import pytest

from afterturn.ports import Store, Unit
from afterturn.testing.conformance.scene import SPACE, TALK, TENANT, add, candidate, forget, record, update
from afterturn.testing.drafts import operation
from afterturn.types import (
    BlockRow,
    CarriedRow,
    ConversationKey,
    ConversationState,
    Entry,
    Outcome,
    Phase,
    RecallCause,
    RecallRow,
    Selector,
    StandingRow,
    TurnRow,
    TurnStatus,
    Verb,
)

TEAM = "team:bees"
_OTHER = ConversationKey(TENANT, SPACE, "other")


@dataclass(frozen=True)
class _Kept:
    """What is left of a conversation in which something was said and shown."""

    text: str = ""
    questions: tuple[str, ...] = ()
    carried: str = ""
    standing: str = ""


_ALL = _Kept("a block", ("turn-1", "turn-2"), "turn-2", "a standing block")


class TestTraces:
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
        await store.write(lambda unit: unit.conversations.add_block(TALK, block))
        await forget(store, Selector(memory=gone.id))
        blocks = await store.read(lambda unit: unit.conversations.blocks(TALK))
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
        await store.write(lambda unit: unit.operations.forget("acme", SPACE, selector, at=1.0))
        assert await _kept(store) == _ALL

    @pytest.mark.parametrize("selector", [Selector(conversation="talk"), Selector(everything=True)])
    async def test_a_conversation_goes_with_all_that_it_keeps(self, store: Store, selector: Selector) -> None:
        """M2: counters too; when it begins again, it is new."""
        entry = (await add(store, "Ada keeps bees")).entry
        await _keep(store, entry)
        await store.write(lambda unit: unit.conversations.clear(TALK, at=20.0, compacted=True))
        await forget(store, selector)
        await store.write(lambda unit: unit.conversations.open(TALK, at=30.0))
        assert await _kept(store) == _Kept()
        assert await store.read(lambda unit: unit.conversations.state(TALK)) == ConversationState()

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

    await store.write(work)
    for turn in ("turn-1", "turn-2"):
        await _ask(store, turn, key)


async def _ask(store: Store, turn: str, key: ConversationKey = TALK) -> None:
    row = RecallRow(f"c-{turn}", turn, 1, RecallCause.MESSAGE, Phase.FAST, "bees?", 5.0, 6.0, Outcome.EMPTY, "")
    await store.write(lambda unit: unit.recalls.add(key, row, entries_max=10))


async def _record_turn(store: Store, turn: str) -> None:
    def work(unit: Unit) -> None:
        unit.conversations.start_turn(TALK, TurnRow(turn, TurnStatus.OPEN, 1.0, "hash"))
        unit.conversations.end_turn(TALK, turn, status=TurnStatus.COMPLETED, at=2.0, recorded=True)

    await store.write(work)


async def _kept(store: Store, key: ConversationKey = TALK) -> _Kept:
    def work(unit: Unit) -> _Kept:
        carried, standing = unit.conversations.find_carried(key), unit.conversations.find_standing(key)
        return _Kept(
            text="".join(block.text for block in unit.conversations.blocks(key)),
            questions=tuple(row.turn for row in unit.recalls.page(key)),
            carried=carried.turn if carried else "",
            standing=standing.text if standing else "",
        )

    return await store.read(work)
