"""How words and meaning make one score, and the order of hits. Pure; the numbers were chosen on LoCoMo's questions."""

from collections.abc import Iterable

from afterturn.base.types import Hit, Kind, Origin

# A memory that holds every word of the query once, and is about the same thing, comes out near 1.
_LEXICAL_SCALE = 4 / 3
# Half of the right answers are closer than this; a memory that has no vector yet is taken for one of them.
_SIMILARITY_ASSUMED = 0.3
# From here on likeness alone is an answer, though a modest one: static vectors find much alike that only sounds so.
SIMILARITY_MIN = 0.52
_MEANING_WORTH = 0.16
_MEANING_SLOPE = 0.1


def fuse(lexical: float, similarity: float | None) -> float:
    """0 to 1. Shared words count more when the meaning agrees; meaning alone stays below a good match of words."""
    likeness = max(0.0, _SIMILARITY_ASSUMED if similarity is None else similarity)
    by_words = _LEXICAL_SCALE * lexical * (1 + likeness)
    return min(1.0, max(by_words, _by_meaning(likeness)))


def _by_meaning(likeness: float) -> float:
    return _MEANING_WORTH + _MEANING_SLOPE * (likeness - SIMILARITY_MIN) if likeness >= SIMILARITY_MIN else 0.0


def in_order(hits: Iterable[Hit]) -> list[Hit]:
    """Best first; equal scores: the newer, then by id."""
    return sorted(hits, key=lambda hit: (-hit.score, -hit.entry.occurred_at, hit.entry.id, hit.entry.version))


def without_repeats(hits: Iterable[Hit]) -> list[Hit]:
    """A statement stands in for the records it rests on, at the place of the best of them (L10).

    Only for those that are trusted no more than it is: naming a record as its source must not silence it.
    """
    ordered = list(hits)
    statements: dict[str, list[Hit]] = {}
    for hit in ordered:
        if hit.entry.kind is Kind.STATEMENT:
            for source in hit.entry.sources:
                statements.setdefault(source, []).append(hit)
    chosen: dict[str, Hit] = {}
    for hit in ordered:
        shown = hit if hit.entry.kind is Kind.STATEMENT else _stand_in(hit, statements.get(hit.entry.id, ()))
        chosen.setdefault(shown.entry.ref, shown)
    return list(chosen.values())


def _stand_in(record: Hit, statements: Iterable[Hit]) -> Hit:
    # What a review wrote stands for the user's own words that it rests on; what a tool or a page says does not.
    least = min(record.entry.trust, Origin.BACKGROUND_REVIEW.trust)
    return next((hit for hit in statements if hit.entry.trust >= least), record)
