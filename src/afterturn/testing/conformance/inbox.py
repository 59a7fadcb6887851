"""The verbs of the inbox, in which the suite tells what waits and what becomes of it."""

from typing import Any

from afterturn.ports import Store
from afterturn.testing.conformance.scene import ADA, update
from afterturn.testing.drafts import operation
from afterturn.types import Entry, Filter, Operation, Status, Verb

WAITING = (Status.PROPOSED, Status.WITHDRAWAL)


async def propose_change(
    store: Store, entry_id: str, text: str = "Ada keeps wasps", *, expected: int | None = None, **fields: Any
) -> Entry:
    return await update(store, entry_id, text, expected=expected, proposed=True, **fields)


async def withdraw(
    store: Store, entry_id: str, *, expected: int | None = None, within: Operation | None = None
) -> Entry:
    chosen = within or operation(Verb.DELETE)
    return await store.write(
        lambda unit: unit.memories.propose_delete(unit.operations.start(chosen), entry_id, expected_version=expected)
    )


async def approve(store: Store, entry_id: str, *, within: Operation | None = None) -> Entry:
    chosen = within or operation(Verb.APPROVE)
    return await store.write(lambda unit: unit.memories.approve(unit.operations.start(chosen), entry_id))


async def listed(store: Store, *statuses: Status) -> list[Entry]:
    return await store.read(lambda unit: unit.memories.page(ADA, Filter(statuses=statuses), limit=10))
