"""Drafts of what is known already: how a memory gets a next version without losing what it says beside its words."""

from afterturn.types import Draft, Entry


def successor(current: Entry, text: str) -> Draft:
    """New words for the same fact: everything else stays but when it was said."""
    return Draft(
        text=text,
        origin=current.origin,
        target=current.target,
        agent=current.agent,
        project=current.project,
        conversation=current.conversation,
        owner=current.owner,
        turn=current.turn,
        speaker=current.speaker,
        valid_from=current.valid_from,
        valid_to=current.valid_to,
        expires_at=current.expires_at,
        pinned=current.pinned,
        metadata=current.metadata,
        sources=current.sources,
        id=current.id,
    )
