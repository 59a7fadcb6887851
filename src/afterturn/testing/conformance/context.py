"""What is said around a record, who spoke in a space, and what is newest in it."""

from typing import Any

import pytest

from afterturn.ports import Store, Unit
from afterturn.testing.conformance.scene import (
    ADA,
    NOW,
    SPACE,
    TENANT,
    add,
    around,
    delete,
    forget,
    found,
    key_of,
    record,
    undo,
    update,
)
from afterturn.testing.drafts import admit, operation
from afterturn.text import terms
from afterturn.types import Kind, Lane, LaneQuery, Origin, Scope, Selector, Verb

BOTH = Scope(TENANT, (SPACE, "team:bees"))


class TestAround:
    async def test_messages_within_reach_come_with_the_one_itself(self, store: Store) -> None:
        """L6: so many before and after it, and no further."""
        await self._talk(store, "zero", "one", "two", "three", "four", "five", "six")
        assert await self._around(store, "three", reach=2) == ["five", "four", "one", "three", "two"]
        assert await self._around(store, "zero", reach=1) == ["one", "zero"]
        assert await self._around(store, "six", reach=0) == ["six"]

    async def test_each_comes_once_with_its_place_and_terms(self, store: Store) -> None:
        """L6: of two that stand close to each other, what is around both."""
        await self._talk(store, "bees", "honey, honey", "wasps", "hives")
        keys = [await key_of(store, "bees"), await key_of(store, "wasps")]
        found = await store.read(lambda unit: unit.index.around(LaneQuery(ADA, NOW), keys, reach=1))
        said = enumerate(("bees", "honey, honey", "wasps", "hives"))
        told = sorted((entry.position or 0, entry.conversation, entry.terms) for entry, _ in found)
        assert told == [(position, "talk", terms(text)) for position, text in said]
        assert len({entry.key for entry, _ in found}) == 4

    async def test_around_nothing_there_is_nothing(self, store: Store) -> None:
        await self._talk(store, "bees")
        assert await store.read(lambda unit: unit.index.around(LaneQuery(ADA, NOW), [], reach=3)) == []
        assert await store.read(lambda unit: unit.index.around(LaneQuery(ADA, NOW), [987_654], reach=3)) == []

    async def test_conversations_do_not_mix(self, store: Store) -> None:
        """L2: neither those of another id, nor those of another owner."""
        await self._talk(store, "mine", "my answer")
        await self._talk(store, "other", "other answer", conversation="other")
        await self._talk(store, "bob's", "bob's answer", owner="user:bob")
        assert await self._around(store, "mine", reach=4) == ["mine", "my answer"]
        assert await self._around(store, "bob's", reach=4) == ["bob's", "bob's answer"]

    async def test_statements_are_no_context_and_have_none(self, store: Store) -> None:
        """L6: a statement may name the conversation that it was learned from."""
        await self._talk(store, "bees", "honey")
        await add(store, "Ada keeps bees", conversation="talk", position=1)
        await add(store, "Ada sells honey")
        assert await self._around(store, "bees", reach=4) == ["bees", "honey"]
        assert await self._around(store, "Ada sells honey", reach=4) == []

    @pytest.mark.parametrize(
        "lane, conversation, seen_since",
        [(Lane.LONG_TERM, None, None), (Lane.EPISODIC, "talk", None), (None, "talk", 1.0), (None, None, None)],
    )
    async def test_what_the_query_leaves_out_is_context_all_the_same(
        self, store: Store, lane: Lane | None, conversation: str | None, seen_since: float | None
    ) -> None:
        """L3, L6: a question that the model has seen still tells what its answer is about."""
        said = frozenset(await self._talk(store, "bees", "honey", "wasps"))
        query = LaneQuery(ADA, NOW, lane, conversation, excluded_refs=said, seen_since=seen_since)
        assert await store.read(lambda unit: unit.index.matches(query, ["bee", "honey", "wasp"], limit=9)) == []
        key = await key_of(store, "honey")
        assert await store.read(lambda unit: around(unit, query, [key], reach=1)) == ["bees", "honey", "wasps"]

    async def test_it_is_told_what_of_the_context_the_query_admits(self, store: Store) -> None:
        """L3, L9: what may be given as an answer, and what only makes one."""
        shown, _, _ = await self._talk(store, "bees", "honey", "wasps")
        query = LaneQuery(ADA, NOW, Lane.EPISODIC, excluded_refs=frozenset([shown]))
        key = await key_of(store, "honey")
        found = await store.read(lambda unit: unit.index.around(query, [key], reach=1))
        assert sorted((entry.position or 0, is_admitted) for entry, is_admitted in found) == [
            (0, False),
            (1, True),
            (2, True),
        ]

    async def test_a_tools_output_is_no_context(self, store: Store) -> None:
        """C6: what is not recalled makes nothing else an answer."""
        await record(store, "a wasp", conversation="talk", position=0, origin=Origin.TOOL)
        await record(store, "it stings", conversation="talk", position=1)
        assert await self._around(store, "it stings", reach=1) == ["it stings"]
        [output] = await found(store, "wasp", LaneQuery(ADA, NOW, evidence=True))
        assert await store.read(lambda unit: around(unit, LaneQuery(ADA, NOW), [output.key], reach=1)) == ["it stings"]

    async def test_what_is_gone_is_no_context(self, store: Store) -> None:
        """L7, M2: deleted or forgotten, until it comes back."""
        entries = await self._talk(store, "bees", "honey", "wasps")
        removal = operation(Verb.DELETE)
        await delete(store, entries[0], within=removal)
        await forget(store, Selector(memory=entries[2]))
        assert await self._around(store, "honey", reach=2) == ["honey"]
        await undo(store, removal.id)
        assert await self._around(store, "honey", reach=2) == ["bees", "honey"]

    async def test_spaces_that_were_not_named_stay_out(self, store: Store) -> None:
        """L2: a key of another space, or a conversation of the same name, opens nothing."""
        await self._talk(store, "bees", "honey")
        await self._talk(store, "foreign bees", "foreign honey", space="team:bees")
        theirs = (await found(store, "foreign", LaneQuery(BOTH, NOW)))[0].key
        assert await self._around(store, "bees", reach=2) == ["bees", "honey"]
        assert await store.read(lambda unit: unit.index.around(LaneQuery(ADA, NOW), [theirs], reach=2)) == []
        both = await store.read(lambda unit: around(unit, LaneQuery(BOTH, NOW), [theirs], reach=2))
        assert both == ["foreign bees", "foreign honey"]

    async def _talk(self, store: Store, *texts: str, space: str = SPACE, **draft: Any) -> list[str]:
        within = [operation(Verb.RECORD, space=space) for _ in texts]
        fields = {"conversation": "talk", **draft}
        entries = [
            await record(store, text, within=step, position=position, **fields)
            for position, (text, step) in enumerate(zip(texts, within, strict=True))
        ]
        return [entry.id for entry in entries]

    async def _around(self, store: Store, text: str, *, reach: int) -> list[str]:
        key = await key_of(store, text)
        return await store.read(lambda unit: around(unit, LaneQuery(ADA, NOW), [key], reach=reach))


class TestSpeakers:
    async def test_everybody_who_spoke_is_named_once(self, store: Store) -> None:
        """L6: of records and statements, however often they spoke."""
        for text, speaker in (("one", "Ada"), ("two", "Bob"), ("three", "Ada"), ("four", None), ("five", "Élodie 李")):
            await record(store, text, conversation="talk", speaker=speaker)
        await add(store, "said by Carol", speaker="Carol")
        assert sorted(await self._speakers(store)) == ["Ada", "Bob", "Carol", "Élodie 李"]

    async def test_at_most_so_many_are_named_in_each_space(self, store: Store) -> None:
        """L6: a space of ten thousand speakers takes no longer than one of a few."""
        for number in range(5):
            await record(store, f"text {number}", conversation="talk", speaker=f"Ada {number}")
            within = operation(Verb.RECORD, space="team:bees")
            await record(store, f"text {number}", within=within, conversation="talk", speaker=f"Bob {number}")
        assert len(await self._speakers(store, ADA, limit=3)) == 3
        named = await self._speakers(store, BOTH, limit=3)
        assert sorted(name[:3] for name in named) == ["Ada"] * 3 + ["Bob"] * 3

    async def test_whoever_is_gone_is_not_named(self, store: Store) -> None:
        """L7, M2: not when nothing is left that they said."""
        entries = [await record(store, name, conversation="talk", speaker=name) for name in ("Ada", "Bob", "Carol")]
        await delete(store, entries[0].id)
        await forget(store, Selector(speaker="Bob"))
        assert await self._speakers(store) == ["Carol"]

    async def test_other_spaces_and_tenants_have_their_own(self, store: Store) -> None:
        """L2: who speaks elsewhere is nobody's business here."""
        await record(store, "one", conversation="talk", speaker="Ada")
        await record(store, "two", within=operation(Verb.RECORD, space="user:bob"), speaker="Bob")
        await record(store, "three", within=operation(Verb.RECORD, tenant="other"), speaker="Carol")
        assert await self._speakers(store) == ["Ada"]
        assert await self._speakers(store, Scope(TENANT, ("user:nobody",))) == []

    async def _speakers(self, store: Store, scope: Scope = ADA, *, limit: int = 10) -> list[str]:
        return await store.read(lambda unit: unit.index.speakers(scope, limit=limit))


class TestNewest:
    async def test_the_newest_come_first(self, store: Store) -> None:
        """L6: statements and records alike, in the order in which they were stored."""
        texts = ["first bees", "second bees", "third bees"]
        for text in texts:
            await (add(store, text) if text.startswith("second") else record(store, text, conversation="talk"))
        keys = [await key_of(store, text) for text in texts]
        assert await self._newest(store) == keys[::-1]
        assert await self._newest(store, limit=2) == [keys[2], keys[1]]

    async def test_only_what_can_be_recalled_counts(self, store: Store) -> None:
        """L7: an old version, what was deleted and what was forgotten make nothing older."""
        kept = await add(store, "Ada keeps bees")
        gone, forgotten = await add(store, "Ada keeps cows"), await add(store, "Ada keeps dogs")
        newer = await update(store, kept.entry.id, "Ada keeps wasps")
        await delete(store, gone.entry.id)
        await forget(store, Selector(memory=forgotten.entry.id))
        assert newer.version == 2
        assert await self._newest(store) == [await key_of(store, "Ada keeps wasps")]

    async def test_a_space_has_its_own(self, store: Store) -> None:
        """L2: and one that nobody wrote to has none."""
        await add(store, "Bob keeps bees", within=operation(space="user:bob"))
        assert await self._newest(store) == []

    async def test_a_unit_sees_its_own_writes(self, store: Store) -> None:
        def work(unit: Unit) -> tuple[int, list[str], list[str]]:
            said = [
                admit(text, kind=Kind.RECORD, conversation="talk", position=position, speaker="Ada")
                for position, text in enumerate(("bees", "honey"))
            ]
            unit.records.add(unit.operations.start(operation(Verb.RECORD)), said)
            keys = unit.index.newest(TENANT, SPACE, limit=5)
            texts = around(unit, LaneQuery(ADA, NOW), keys[:1], reach=1)
            return len(keys), unit.index.speakers(ADA, limit=5), texts

        assert await store.write(work) == (2, ["Ada"], ["bees", "honey"])

    async def _newest(self, store: Store, *, limit: int = 10) -> list[int]:
        return await store.read(lambda unit: unit.index.newest(TENANT, SPACE, limit=limit))
