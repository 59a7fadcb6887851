"""Drafts of the next version of a memory, which keep all its fields except the text."""

from afterturn.types import Draft, Entry


def successor(current: Entry, text: str) -> Draft:
    """Returns a draft with new text for the same fact. All other fields stay, except `occurred_at`."""
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
