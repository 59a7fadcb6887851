"""A space weighs the same in the store and in memory: a recall does not change when its space has come to memory."""

from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest
from asking import indexed, request
from hypothesis import given, settings
from hypothesis import strategies as st

from afterturn.ports import Unit
from afterturn.recall.index.cache import IndexCache
from afterturn.recall.search import search
from afterturn.testing.entries import admit, operation
from afterturn.testing.hashing import HashingEmbedder
from afterturn.types import Filter, Hit, Kind, Lane, Origin, Scope, SearchResults, Verb

WORDS = ("apple", "bee", "cider", "dew", "really", "the", "Bob", "猫")
EMBEDDER = HashingEmbedder(32)
SPEAKERS = ("Ada Byron", "Bob", None)
# Of a lane, so many records are asked about in the store.
RECORDS_MAX = 14


@dataclass(frozen=True)
class Said:
    text: str
    conversation: str | None
    origin: Origin
    speaker: str | None
    is_excluded: bool


texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=7).map(" ".join)
said = st.builds(
    Said,
    texts,
    st.sampled_from(("now", "then", None)),
    st.sampled_from((Origin.USER, Origin.AGENT, Origin.TOOL)),
    st.sampled_from(SPEAKERS),
    st.integers(0, 4).map(lambda number: number == 0),
)


_numbers = count()


def fill(library: Any, messages: list[Said]) -> tuple[Scope, frozenset[str]]:
    """In a space of its own. A conversation is without a gap."""
    space = f"user:u{next(_numbers)}"

    def work(unit: Unit) -> frozenset[str]:
        positions = {"now": count(), "then": count()}
        excluded = []
        for one in messages:
            fields = {"origin": one.origin, "speaker": one.speaker}
            if one.conversation is None:
                step = operation(space=space)
                entry = unit.memories.add(step, admit(one.text, **fields)).entry
            else:
                step = operation(Verb.RECORD, space=space)
                place = {"conversation": one.conversation, "position": next(positions[one.conversation])}
                [entry] = unit.records.add(step, [admit(one.text, kind=Kind.RECORD, **place, **fields)])
            excluded += [entry.ref] if one.is_excluded else []
        return frozenset(excluded)

    excluded = library.write(work)
    library.embed(EMBEDDER, space=space)
    return Scope("default", (space,)), excluded


def ask(library: Any, cache: IndexCache | None, scope: Scope, text: str, **fields) -> SearchResults:
    asked = request(text, scope=scope, limit=100, score_min=-100.0, conversation="now", **fields)
    return library.read(lambda unit: search(unit, asked, cache))


def weighed(found: SearchResults, *, by_words: bool = False) -> dict[tuple[Lane, str], float]:
    return {(hit.lane, hit.entry.ref): hit.score for hit in found.hits if hit.terms or not by_words}


@given(st.lists(said, max_size=RECORDS_MAX), texts)
@settings(max_examples=60)
def test_by_words_what_shares_one_weighs_alike(lasting_library, messages, text):
    """L6: what shares none is found by its context, as far as the store was asked for that."""
    scope, excluded = fill(lasting_library, messages)
    stored = ask(lasting_library, None, scope, text, excluded_refs=excluded)
    kept = ask(lasting_library, indexed(lasting_library, scope, EMBEDDER), scope, text, excluded_refs=excluded)
    assert weighed(stored, by_words=True) == pytest.approx(weighed(kept, by_words=True), abs=1e-5)


def admits(narrow: Filter, hit: Hit) -> bool:
    is_kind = narrow.kind in (None, hit.entry.kind)
    return is_kind and narrow.conversation in (None, hit.entry.conversation)


@given(
    st.lists(said, max_size=RECORDS_MAX, unique_by=lambda one: one.text),
    texts,
    st.sampled_from((Filter(), Filter(kind=Kind.RECORD), Filter(kind=Kind.STATEMENT), Filter(conversation="then"))),
    st.sets(st.sampled_from(Lane), min_size=1),
    st.booleans(),
)
@settings(max_examples=60)
def test_narrowing_a_search_leaves_out_entries_and_changes_no_score(
    lasting_library, messages, text, narrow, lanes, is_in_memory
):
    """L1, L3, L6: filters, exclusions and lanes, from the store and from the index in memory."""
    scope, excluded = fill(lasting_library, messages)
    cache = indexed(lasting_library, scope, EMBEDDER) if is_in_memory else None
    everything = ask(lasting_library, cache, scope, text)
    found = ask(lasting_library, cache, scope, text, filter=narrow, excluded_refs=excluded, lanes=tuple(sorted(lanes)))
    left = [hit for hit in everything.hits if hit.lane in lanes and hit.entry.ref not in excluded]
    expected = SearchResults(text, tuple(hit for hit in left if admits(narrow, hit)))
    assert weighed(found, by_words=True) == pytest.approx(weighed(expected, by_words=True), abs=1e-5)


def test_what_shares_no_word_and_has_no_vector_is_not_found(library):
    """L5: in memory as in the store, an entry that waits for its vector is found by its words alone."""
    library.add("red apple pie")
    library.add("The train leaves at nine")
    cache = IndexCache(EMBEDDER.identity, 1 << 20)
    scope = Scope("default", ("user:ada",))
    asked = request("red apple", scope=scope, score_min=0.0, query_vector=EMBEDDER.embed(["red apple"])[0])
    in_store = library.read(lambda unit: search(unit, asked))
    in_memory = library.read(lambda unit: search(unit, asked, cache))
    assert [hit.entry.text for hit in in_memory.hits] == ["red apple pie"]
    assert [hit.entry.text for hit in in_store.hits] == ["red apple pie"]
