"""How far forgetting reaches: never into another tenant or space, and never so far that our own text seems said."""

import pytest

from afterturn.ports import Store
from afterturn.testing.conformance.scene import ADA, SPACE, TALK, TENANT, add, forget, get, record
from afterturn.testing.drafts import operation
from afterturn.types import BlockRow, ConversationKey, Job, Scope, Selector, Verb

_ELSEWHERE = pytest.mark.parametrize(
    "elsewhere", [Scope(TENANT, ("user:bob",)), Scope("acme", (SPACE,))], ids=["space", "tenant"]
)
_BLOCK = BlockRow("block-hash", "turn-1", ("m1",), 400, 11.0)


class TestReach:
    @_ELSEWHERE
    async def test_another_s_sources_of_the_same_id_stay(self, store: Store, elsewhere: Scope) -> None:
        """L2: an id names an entry of its own space alone."""
        place = operation(tenant=elsewhere.tenant, space=elsewhere.spaces[0])
        theirs = await add(store, "Bob keeps wasps", sources=("m1", "wiki"), within=place)
        await add(store, "Ada keeps bees", id="m1")
        await forget(store, Selector(memory="m1"))
        assert (await get(store, theirs.entry.id, scope=elsewhere)).sources == ("m1", "wiki")

    @_ELSEWHERE
    async def test_another_s_copy_can_still_be_forgotten_whole(self, store: Store, elsewhere: Scope) -> None:
        """M2: the same export in two spaces; one forget leaves the other's lineage for its own."""
        for scope in (ADA, elsewhere):
            tenant, space = scope.tenant, scope.spaces[0]
            place = operation(Verb.RECORD, tenant=tenant, space=space)
            await record(store, "hello bees", id="m1", conversation="talk", within=place)
            await add(store, "Ada keeps bees", sources=("m1",), within=operation(tenant=tenant, space=space))
        for scope in (ADA, elsewhere):
            assert await _forget_first(store, scope) == 2

    @_ELSEWHERE
    async def test_another_s_blocks_keep_their_references(self, store: Store, elsewhere: Scope) -> None:
        """L2: what is visible in one owner's conversation is not decided in another's space."""
        key = ConversationKey(elsewhere.tenant, elsewhere.spaces[0], "talk")
        await store.write(lambda unit: unit.conversations.add_block(key, _BLOCK))
        await add(store, "Ada keeps bees", id="m1")
        await forget(store, Selector(memory="m1"))
        assert await _blocks(store, key) == [_BLOCK]

    @pytest.mark.parametrize("selector", [Selector(conversation="talk"), Selector(everything=True)])
    async def test_blocks_of_a_forgotten_conversation_are_still_known(self, store: Store, selector: Selector) -> None:
        """C5: by hash and size, so that they are still stripped from what the host shows; nothing else is kept."""
        await store.write(lambda unit: unit.conversations.add_block(TALK, _BLOCK))
        await forget(store, selector)
        assert await _blocks(store, TALK) == [BlockRow("block-hash", "", (), 400, 0.0, in_sight=False)]

    async def test_any_conversation_of_the_space_knows_them(self, store: Store) -> None:
        """C5: a host may carry the messages of a forgotten conversation over into a new one."""
        await store.write(lambda unit: unit.conversations.add_block(TALK, _BLOCK))
        await forget(store, Selector(conversation="talk"))
        await forget(store, Selector(conversation="talk"))
        assert [block.hash for block in await _blocks(store, ConversationKey(TENANT, SPACE, "new"))] == ["block-hash"]
        assert await _blocks(store, ConversationKey(TENANT, "user:bob", "talk")) == []

    async def test_a_block_that_is_injected_again_is_given_once(self, store: Store) -> None:
        """H6: a block counts by the hash of its bytes; what shows something now has its references."""
        await store.write(lambda unit: unit.conversations.add_block(TALK, _BLOCK))
        await forget(store, Selector(conversation="talk"))
        await store.write(lambda unit: unit.conversations.add_block(TALK, _BLOCK))
        assert await _blocks(store, TALK) == [_BLOCK]

    async def test_jobs_that_stay_lose_their_errors(self, store: Store) -> None:
        """M2: an error may quote what it failed on."""
        job = Job("j1", "embed", TENANT, SPACE, "{}", 1.0, error="can't embed 'bees'")
        theirs = Job("j2", "embed", TENANT, "user:bob", "{}", 2.0, error="no model")
        await store.write(lambda unit: unit.jobs.add(job))
        await store.write(lambda unit: unit.jobs.add(theirs))
        await forget(store, Selector(memory="m1"))
        jobs = await store.read(lambda unit: unit.jobs.page(TENANT))
        assert [(item.id, item.error) for item in jobs] == [("j1", ""), ("j2", "no model")]


async def _forget_first(store: Store, scope: Scope) -> int:
    selector = Selector(memory="m1")
    return (
        await store.write(lambda unit: unit.operations.forget(scope.tenant, scope.spaces[0], selector, at=1.0))
    ).versions


async def _blocks(store: Store, key: ConversationKey) -> list[BlockRow]:
    return await store.read(lambda unit: unit.conversations.blocks(key))
