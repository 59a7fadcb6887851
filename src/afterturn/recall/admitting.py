"""What a query admits of an entry that is in memory: the same as a store's conditions let through."""

from afterturn.base.types import Entry, Filter, Kind, Lane, LaneQuery, Origin, Shelved

_ANYTHING = Filter()


def is_told_by_entries(query: LaneQuery) -> bool:
    """Whether `admits` knows what the query asks for. Filters are the store's."""
    return query.filter == _ANYTHING


def admits(query: LaneQuery, entry: Entry) -> bool | None:
    """Of an active entry in the query's scope. None when it depends on other entries, which the store knows."""
    if not entry.is_valid(query.now) or entry.content_hash in query.visible_hashes:
        return False
    if entry.kind is Kind.RECORD and entry.origin is Origin.TOOL and not query.evidence:
        return False
    if query.excluded_refs and entry.ref in query.excluded_refs:
        return False
    lane = lane_of(entry, query)
    if query.lane is not None and lane is not query.lane:
        return False
    seen_since = query.seen_since if query.conversation is not None else None
    if seen_since is not None and lane is Lane.SHORT_TERM and entry.recorded_at > seen_since:
        return False
    is_learned = entry.sources and entry.kind is Kind.STATEMENT
    return None if is_learned and (query.visible_hashes or seen_since is not None) else True


def lane_of(entry: Entry | Shelved, query: LaneQuery) -> Lane:
    """As stores tell lanes apart."""
    if entry.kind is Kind.STATEMENT:
        return Lane.LONG_TERM
    is_here = query.conversation is not None and entry.conversation == query.conversation
    is_owned = query.owner is None or (entry.owner or entry.space) == query.owner
    return Lane.SHORT_TERM if is_here and is_owned else Lane.EPISODIC
