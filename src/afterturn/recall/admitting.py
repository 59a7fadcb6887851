"""What a query admits of an entry that is in memory: the same as a store's conditions let through."""

from afterturn.base.types import ANYTHING, Entry, Kind, Lane, LaneQuery, Origin, Shelved


def is_told_by_entries(query: LaneQuery) -> bool:
    """Whether `admits` knows what the query asks for. Filters are the store's."""
    return query.filter is ANYTHING or query.filter == ANYTHING


def admits(query: LaneQuery, entry: Entry) -> bool | None:
    """Of an active entry in the query's scope. None when it depends on other entries, which the store knows."""
    if not entry.is_valid(query.now) or entry.content_hash in query.visible_hashes:
        return False
    if query.excluded_refs and entry.ref in query.excluded_refs:
        return False
    if query.excluded_ids and entry.id in query.excluded_ids:
        return False
    if entry.origin is Origin.TOOL and not query.evidence and entry.kind is Kind.RECORD:
        return False
    seen_since = query.seen_since if query.conversation is not None else None
    if query.lane is None and seen_since is None:
        is_given = True
    else:
        lane = lane_of(entry, query)
        is_seen = lane is Lane.SHORT_TERM and seen_since is not None and entry.recorded_at > seen_since
        is_given = query.lane in (None, lane) and not is_seen
    is_learned = entry.sources and entry.kind is Kind.STATEMENT
    is_unsure = is_learned and (query.visible_hashes or seen_since is not None)
    return None if is_given and is_unsure else is_given


def lane_of(entry: Entry | Shelved, query: LaneQuery) -> Lane:
    """As stores tell lanes apart."""
    if entry.kind is Kind.STATEMENT:
        return Lane.LONG_TERM
    is_here = query.conversation is not None and entry.conversation == query.conversation
    is_owned = query.owner is None or (entry.owner or entry.space) == query.owner
    return Lane.SHORT_TERM if is_here and is_owned else Lane.EPISODIC
