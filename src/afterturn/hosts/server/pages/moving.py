"""Moves a memory to another space: the wrong person or project had it."""

from __future__ import annotations

from afterturn.errors import AfterturnError, InvalidInput
from afterturn.memory import Space
from afterturn.space.arguments import DraftFields
from afterturn.types import Added, Entry, Kind, Origin, Status


async def move_entry(space: Space, entry: Entry, to: Space) -> tuple[Added, list[tuple[str, str]]]:
    """Adds it to `to` as a memory, trusted as far as it was, and hides it here. Returns also what `undo` takes."""
    if entry.status is not Status.ACTIVE:
        raise InvalidInput("Only a memory that is in use can be moved. Undo what was done to it first.")
    if to.name == space.name:
        raise InvalidInput(f"It is in {space.name} already. Choose another space.")
    # Words of others stay a report, and only what an agent says can be one under its own origin.
    is_lowered = entry.is_report or entry.trust < entry.origin.trust
    is_raised = is_lowered and entry.origin is not Origin.AGENT and entry.origin.trust > Origin.TOOL.trust
    fields = DraftFields(
        target=entry.target,
        origin=Origin.TOOL if is_raised else entry.origin,
        clean=not is_lowered,
        agent=entry.agent,
        project=None if to.name.startswith("project:") else entry.project,
        conversation=entry.conversation,
        owner=None if entry.conversation is None else entry.owner or space.name,
        metadata=dict(entry.metadata),
        pinned=entry.pinned,
        firm=entry.firm,
        occurred_at=entry.occurred_at,
        valid_from=entry.valid_from,
        valid_to=entry.valid_to,
        expires_at=entry.expires_at,
        sources=entry.sources if entry.kind is Kind.STATEMENT else (entry.id,),
    )
    added = await to.add(entry.text, **fields)
    undo = [(to.name, added.operation)] if added.operation else []
    try:
        return added, [*undo, (space.name, (await space.delete(entry.id)).operation)]
    except AfterturnError:
        for _, operation in undo:
            await to.undo(operation)
        raise
