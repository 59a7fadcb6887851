"""What becomes of a statement that a more trusted origin says again: the new words count, and nothing else is lost."""

from dataclasses import replace

from afterturn.base.names import METADATA_BYTES_MAX
from afterturn.base.types import SOURCES_MAX, Admitted, Entry, Metadata
from afterturn.stores.sql.rows import encode_metadata


def promoted(existing: Entry, admitted: Admitted) -> Admitted:
    """As admitted, with what the existing one says and the draft leaves open (G6)."""
    draft = admitted.draft
    valid_from, valid_to = _validity(existing, admitted)
    return replace(
        admitted,
        draft=replace(
            draft,
            pinned=draft.pinned or existing.pinned,
            metadata=_united(existing.metadata, draft.metadata),
            sources=_rested_on(existing.sources, draft.sources),
            expires_at=existing.expires_at if draft.expires_at is None else draft.expires_at,
            valid_from=valid_from,
            valid_to=valid_to,
        ),
    )


def _rested_on(existing: tuple[str, ...], new: tuple[str, ...]) -> tuple[str, ...]:
    """What somebody says on their own account rests on nothing else: it must not go when its old sources do (M2)."""
    return tuple(dict.fromkeys((*new, *existing)))[:SOURCES_MAX] if new else ()


def _validity(existing: Entry, admitted: Admitted) -> tuple[float | None, float | None]:
    """Either end as the draft says it, else as it was; a draft that begins after the old end is left as it is."""
    draft = admitted.draft
    begins = existing.valid_from if draft.valid_from is None else draft.valid_from
    ends = existing.valid_to if draft.valid_to is None else draft.valid_to
    if begins is not None and ends is not None and ends <= begins:
        return draft.valid_from, draft.valid_to
    return begins, ends


def _united(existing: Metadata, new: Metadata) -> Metadata:
    """The new wins; what is older gives way where both together would be too much for the next update."""
    united = {**existing, **new}
    for name in existing:
        if len(encode_metadata(united).encode()) <= METADATA_BYTES_MAX:
            break
        if name not in new:
            del united[name]
    return united
