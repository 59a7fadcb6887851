"""The actions that the tests of the suite share. They work in the space `user:ada` unless a test names another."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from afterturn.ports import Store, Unit
from afterturn.testing.entries import admit, operation
from afterturn.text import terms
from afterturn.types import (
    Added,
    Candidate,
    ConversationKey,
    Decision,
    Draft,
    EmbedderIdentity,
    Entry,
    Erased,
    JobQueue,
    Kind,
    Lane,
    LaneQuery,
    Operation,
    Scope,
    Selector,
    Step,
    Tenant,
    TurnRow,
    TurnStatus,
    Verb,
)

TENANT = "default"
SPACE = "user:ada"
BOB = "user:bob"
TEAM = "team:bees"
TALK = ConversationKey(TENANT, SPACE, "talk")
ADA = Scope(TENANT, (SPACE,))
ALL_SPACES = Tenant(TENANT)
QUEUE = JobQueue()
NOW = 1_000.0
SMALL = EmbedderIdentity("small", "1", 4)


async def converse(store: Store, key: ConversationKey = TALK, *, at: float = 1.0) -> None:
    """Starts a turn, with which a conversation begins."""
    turn = TurnRow("turn-0", TurnStatus.OPEN, at, "hash")
    await store.write(lambda unit: unit.conversations.start_turn(key, turn), at=key.scope)


async def add(store: Store, text: str, *, within: Operation | None = None, **draft: Any) -> Added:
    chosen = within or operation(at=draft.get("at", 100.0))
    return await store.write(lambda unit: unit.memories.add(chosen, admit(text, **draft)), at=Tenant(chosen.tenant))


async def record(store: Store, text: str, *, within: Operation | None = None, **draft: Any) -> Entry:
    chosen = within or operation(Verb.RECORD, at=draft.get("at", 100.0))
    admitted = admit(text, kind=Kind.RECORD, **draft)
    entries = await store.write(lambda unit: unit.records.add(chosen, [admitted]), at=Tenant(chosen.tenant))
    return entries[0]


async def update(
    store: Store,
    entry_id: str,
    text: str,
    *,
    expected: int | None = None,
    within: Operation | None = None,
    **draft: Any,
) -> Entry:
    chosen = within or operation(Verb.UPDATE, at=draft.get("at", 100.0))
    admitted = admit(text, **draft)
    return await store.write(
        lambda unit: unit.memories.update(chosen, entry_id, admitted, expected_version=expected),
        at=Tenant(chosen.tenant),
    )


async def delete(store: Store, entry_id: str, *, within: Operation | None = None) -> Entry:
    chosen = within or operation(Verb.DELETE)
    return await store.write(lambda unit: unit.memories.delete(chosen, entry_id), at=Tenant(chosen.tenant))


async def undo(store: Store, target: str, *, within: Operation | None = None) -> list[Step]:
    chosen = within or operation(Verb.UNDO)
    return await store.write(lambda unit: unit.operations.undo(chosen, target=target), at=Tenant(chosen.tenant))


async def forget(store: Store, selector: Selector, *, at: float = NOW, space: str = SPACE) -> Erased:
    return await store.write(lambda unit: unit.operations.forget(TENANT, space, selector, at=at), at=ALL_SPACES)


async def forget_memory(store: Store, entry_id: str, *, space: str = SPACE, tenant: str = TENANT) -> Erased:
    return await store.write(
        lambda unit: unit.operations.forget(tenant, space, Selector(memory=entry_id), at=NOW), at=Tenant(tenant)
    )


async def get(store: Store, entry_id: str, *, version: int | None = None, scope: Scope = ADA) -> Entry:
    return await store.read(lambda unit: unit.memories.get(scope, entry_id, version=version), at=scope)


class Found(NamedTuple):
    """One entry that a search in the store returns."""

    key: int
    entry: Entry
    terms: tuple[str, ...]


async def found(store: Store, text: str, query: LaneQuery | None = None, *, limit: int = 100) -> list[Found]:
    wanted, asked = list(dict.fromkeys(terms(text))), query or LaneQuery(ADA, NOW)
    return await store.read(lambda unit: matches(unit, asked, wanted, limit=limit), at=asked.scope)


def matches(unit: Unit, query: LaneQuery, wanted: Sequence[str], *, limit: int) -> list[Found]:
    """Newest first, as entries."""
    indexed = unit.index.matches(query, wanted, limit=limit)
    keys = [entry.key for entry in indexed]
    resolved = unit.index.resolve(query, keys)
    return [Found(entry.key, resolved[entry.key], entry.terms) for entry in indexed]


def around(unit: Unit, query: LaneQuery, keys: Sequence[int], *, reach: int) -> list[str]:
    """The texts of the records around these, in alphabetical order."""
    near = [entry.key for entry, _ in unit.index.around(query, keys, reach=reach)]
    return sorted(entry.text for entry in unit.index.resolve(LaneQuery(query.scope, NOW), near).values())


async def texts(store: Store, text: str, query: LaneQuery | None = None, *, limit: int = 100) -> list[str]:
    """The texts that a search returns, newest first."""
    return [match.entry.text for match in await found(store, text, query, limit=limit)]


async def frequencies(store: Store, words: Sequence[str], scope: Scope = ADA) -> dict[str, dict[str, int]]:
    return await store.read(lambda unit: unit.index.frequencies(scope, words), at=scope)


async def key_of(store: Store, text: str) -> int:
    """The key of the active entry with exactly this text."""
    return next(match.key for match in await found(store, text) if match.entry.text == text)


def candidate(
    entry: Entry, *, score: float = 0.5, similarity: float | None = None, decision: Decision | None = None
) -> Candidate:
    """A statement as a candidate of a recall."""
    return Candidate(entry.ref, entry.space, Lane.LONG_TERM, score, score / 2, similarity, decision)


def draft_fields() -> Draft:
    """A draft with a value in every field."""
    return Draft(
        text="Ada keeps bees",
        agent="helper",
        project="garden",
        conversation="talk-1",
        owner="user:bob",
        turn="turn-1",
        position=3,
        speaker="ada",
        occurred_at=50.0,
        valid_from=10.0,
        valid_to=9_000.0,
        expires_at=9_500.0,
        pinned=True,
        firm=True,
        metadata={"hive": 2, "wild": False, "name": 'Queen "B"', "note": None},
        sources=("first", "second"),
    )
