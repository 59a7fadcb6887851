"""Entries as rows and back. One column list for every query, so that reading is written once."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from afterturn.stores.sql.session import Row, Session, Value
from afterturn.types import Admitted, Entry, IndexedEntry, Kind, Metadata, Origin, ReadMetadata, Status, Target

_COLUMNS = (
    "id version kind text status origin trust target content_hash recorded_at occurred_at agent project conversation "
    "owner turn position speaker valid_from valid_to expires_at pinned metadata reason"
).split()

SELECTED = ", ".join(["e.key", "s.name", "e.has_sources", *(f"e.{column}" for column in _COLUMNS)])
"""What `read_entries` takes, from `entry AS e` and `space AS s`. More columns may follow."""
SHELVED = "e.key, e.space_key, e.kind, e.origin, e.speaker, e.conversation, e.owner, e.position"
"""What `read_shelved` takes, from `entry AS e`. More columns may follow."""
FROM_ENTRY = "entry AS e JOIN space AS s ON s.key = e.space_key"

INSERT = (
    f"INSERT INTO entry (space_key, has_sources, {', '.join(_COLUMNS)}) "
    f"VALUES ({', '.join('?' * (len(_COLUMNS) + 2))}) ON CONFLICT DO NOTHING"
)
"""Nothing is inserted when a constraint (one active version, no duplicate, one row a version) forbids it."""

_NO_METADATA = ReadMetadata()
_KINDS = {str(kind): kind for kind in Kind}
_STATUSES = {str(status): status for status in Status}
_ORIGINS = {str(origin): origin for origin in Origin}
_TARGETS = {str(target): target for target in Target}


def new_entry(admitted: Admitted, entry_id: str, *, version: int, space: str, status: Status) -> Entry:
    draft = admitted.draft
    return Entry(
        id=entry_id,
        version=version,
        kind=draft.kind,
        space=space,
        text=admitted.text,
        status=status,
        origin=draft.origin,
        trust=admitted.trust,
        target=draft.target,
        content_hash=admitted.content_hash,
        recorded_at=admitted.recorded_at,
        occurred_at=admitted.recorded_at if draft.occurred_at is None else draft.occurred_at,
        agent=draft.agent,
        project=draft.project,
        conversation=draft.conversation,
        owner=None if draft.owner == space else draft.owner,
        turn=draft.turn,
        position=draft.position,
        speaker=draft.speaker,
        valid_from=draft.valid_from,
        valid_to=draft.valid_to,
        expires_at=draft.expires_at,
        pinned=draft.pinned,
        metadata=draft.metadata,
        sources=draft.sources,
        reason=admitted.reason,
    )


def values_of(entry: Entry, space_key: int) -> tuple[Value, ...]:
    """What `INSERT` binds."""
    return (
        space_key,
        int(bool(entry.sources)),
        entry.id,
        entry.version,
        entry.kind.value,
        entry.text,
        entry.status.value,
        entry.origin.value,
        entry.trust,
        entry.target.value,
        entry.content_hash,
        entry.recorded_at,
        entry.occurred_at,
        entry.agent,
        entry.project,
        entry.conversation,
        entry.owner,
        entry.turn,
        entry.position,
        entry.speaker,
        entry.valid_from,
        entry.valid_to,
        entry.expires_at,
        int(entry.pinned),
        encode_metadata(entry.metadata),
        entry.reason,
    )


def read_entries(session: Session, rows: Sequence[Row]) -> list[Entry]:
    """Entries of rows that begin with the `SELECTED` columns, in their order."""
    sources = _sources(session, [row[0] for row in rows if row[2]])
    return [_entry(row, sources.get(row[0], ())) for row in rows]


def read_shelved(row: Row, spaces: Mapping[int, str], terms: tuple[str, ...]) -> IndexedEntry:
    place = (row[5], row[6], row[7])
    return IndexedEntry(row[0], spaces[row[1]], _KINDS[row[2]], _ORIGINS[row[3]], row[4], *place, terms)


def encode_metadata(metadata: Metadata) -> str:
    return json.dumps(dict(metadata), ensure_ascii=False) if metadata else "{}"


def decode_metadata(text: str) -> Metadata:
    return _NO_METADATA if text == "{}" else ReadMetadata(json.loads(text))


def _entry(row: Row, sources: tuple[str, ...]) -> Entry:
    return Entry(
        id=row[3],
        version=row[4],
        kind=_KINDS[row[5]],
        space=row[1],
        text=row[6],
        status=_STATUSES[row[7]],
        origin=_ORIGINS[row[8]],
        trust=row[9],
        target=_TARGETS[row[10]],
        content_hash=row[11],
        recorded_at=row[12],
        occurred_at=row[13],
        agent=row[14],
        project=row[15],
        conversation=row[16],
        owner=row[17],
        turn=row[18],
        position=row[19],
        speaker=row[20],
        valid_from=row[21],
        valid_to=row[22],
        expires_at=row[23],
        pinned=bool(row[24]),
        metadata=decode_metadata(row[25]),
        sources=sources,
        reason=row[26],
    )


def _sources(session: Session, keys: Sequence[int]) -> dict[int, tuple[str, ...]]:
    if not keys:
        return {}
    condition, value = session.among("entry_key", keys)
    found: dict[int, tuple[str, ...]] = {}
    for key, source in session.rows(
        f"SELECT entry_key, source FROM source WHERE {condition} ORDER BY entry_key, ordinal", (value,)
    ):
        found[key] = (*found.get(key, ()), source)
    return found
