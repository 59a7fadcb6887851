"""The index in memory gives what the reference scorer gives, entry by entry, however its space has changed."""

import tracemalloc
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from fake_index import IDENTITY, SPACE, FakeIndex, MemoryIndex, reachable
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_scorer import ReferenceScorer

from afterturn.recall.query import Query, TermWeights
from afterturn.recall.scoring import RECENT, ScoredRow
from afterturn.types import EmbedderIdentity, IndexedEntry, Kind, Lane, Origin

TERMS = ("apple", "bee", "cider", "dew", "elm")
WEIGHTS = TermWeights({"apple": 2.5, "bee": 1.25, "cider": 0.5}, {}, total=4.25, distinctive=3.75, midpoint=1.5)
ASKED = Query(TERMS[:3], frozenset({"ada"}), {SPACE: WEIGHTS})
WIDE = EmbedderIdentity("wide", "1", 192)


def vector(seed: int) -> np.ndarray:
    values = np.random.default_rng(seed).normal(0.4, 1.0, IDENTITY.dimensions)
    return (values / np.linalg.norm(values)).astype(np.float32)


QUERY = vector(0)


@st.composite
def entries(draw: st.DrawFn, key: int) -> IndexedEntry:
    conversation = draw(st.sampled_from(("c1", "c2", None)))
    return IndexedEntry(
        key,
        SPACE,
        draw(st.sampled_from(Kind)),
        draw(st.sampled_from((Origin.USER, Origin.AGENT))),
        draw(st.sampled_from(("Ada Lovelace", "Bob", None))),
        conversation,
        draw(st.sampled_from((None, "user:bob"))),
        # In a space, a conversation has one record in a position.
        draw(st.sampled_from((None, key, key // 2 * 3 + key % 2))) if conversation else None,
        tuple(draw(st.lists(st.sampled_from(TERMS), max_size=8))),
    )


@st.composite
def spaces(draw: st.DrawFn, *, rows_max: int = 24) -> FakeIndex:
    index = FakeIndex()
    for key in range(1, 1 + draw(st.integers(0, rows_max))):
        grow(draw, index, key)
    return index


def grow(draw: st.DrawFn, index: FakeIndex, key: int) -> None:
    entry = draw(entries(key))
    taken = {(one.owner, one.conversation, one.position) for one in index.by_key.values() if one.kind is Kind.RECORD}
    if (entry.owner, entry.conversation, entry.position) not in taken:
        index.put(entry)
        if draw(st.booleans()):
            index.embed(key, vector(key))


def change(draw: st.DrawFn, index: FakeIndex, key: int, away: list[IndexedEntry]) -> None:
    """Adds an entry, removes one, puts one back or gives one its vector."""
    step = draw(st.sampled_from(("add", "remove", "embed", "return")))
    if step == "add":
        grow(draw, index, key)
    elif step == "return" and away:
        index.put(away.pop())
    elif index.by_key:
        chosen = draw(st.sampled_from(sorted(index.by_key)))
        if step == "remove":
            away.append(index.remove(chosen))
        else:
            index.embed(chosen, vector(chosen))


def said(key: int, *terms: str, position: int | None = None, **fields: str) -> IndexedEntry:
    """A statement, or a message if it has a position."""
    kind, conversation = (Kind.STATEMENT, None) if position is None else (Kind.RECORD, "c1")
    entry = IndexedEntry(key, SPACE, kind, Origin.USER, None, conversation, None, position, terms)
    return entry._replace(**fields)


def assert_agrees(found: Sequence[ScoredRow], index: FakeIndex, query: np.ndarray | None) -> None:
    reference = ReferenceScorer(SPACE, list(index.by_key.values()), index.cosines(query))
    expected = reference.scores(ASKED)
    by_key = {one.key: one for one in found}
    keys = sorted(expected)
    assert sorted(one.key for one in found) == keys
    assert [by_key[key].score for key in keys] == pytest.approx([expected[key][0] for key in keys], abs=2e-6)
    assert [by_key[key].share for key in keys] == pytest.approx([expected[key][1] for key in keys], abs=2e-6)
    for one in found:
        assert one.similarity == pytest.approx(reference.cosines.get(one.key), abs=2e-6)
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)


def assert_counts(memory: MemoryIndex, index: FakeIndex) -> None:
    held = [entry.terms for entry in index.by_key.values()]
    counts = {term: count for term in TERMS if (count := sum(term in terms for terms in held))}
    searcher = memory.searcher()
    assert (searcher.frequencies(TERMS), searcher.documents) == (counts, len(held))


@given(index=spaces(), exact=st.booleans(), whole=st.booleans(), by_meaning=st.booleans())
def test_a_new_index_agrees_with_the_reference(index, exact, whole, by_meaning):
    """L6: words, vectors, context, speaker and recency, for every entry of a space at once."""
    memory, query = MemoryIndex(index, exact=exact, whole=whole), QUERY if by_meaning else None
    assert_agrees(memory.search(ASKED, query), index, query)
    assert_counts(memory, index)


@given(data=st.data(), whole=st.booleans())
def test_an_index_that_followed_its_space_agrees_with_the_reference(data, whole):
    """M2, M3: entries are added, removed, put back or get a vector, in any order."""
    index = data.draw(spaces(rows_max=10))
    memory = MemoryIndex(index, whole=whole)
    away: list[IndexedEntry] = []
    for key in range(100, 100 + data.draw(st.integers(1, 12))):
        change(data.draw, index, key, away)
        if data.draw(st.booleans()):
            memory.follow()
    memory.follow()
    assert_agrees(memory.search(ASKED, QUERY), index, QUERY)
    assert_counts(memory, index)


@pytest.mark.parametrize("at_a_time", [1, 7, 250])
def test_a_long_history_of_changes_agrees_with_the_reference(at_a_time):
    """L6, M2: more entries than recency tells apart, some removed and put back, in steps of any size."""
    random, index, away = np.random.default_rng(at_a_time), FakeIndex(), []
    for key in range(1, RECENT):
        index.put(said(key, *random.choice(TERMS, 3)))
    memory = MemoryIndex(index)
    for key in range(RECENT, RECENT + 300):
        index.put(said(key, *random.choice(TERMS, 3), position=key if key % 3 else None))
        if key % 5 == 0:
            index.embed(key, vector(key))
            away.append(index.remove(int(random.choice(sorted(index.by_key)))))
        if key % 11 == 0:
            index.put(away.pop(0))
        if key % at_a_time == 0:
            memory.follow()
    memory.follow()
    assert_agrees(memory.search(ASKED, QUERY), index, QUERY)
    assert_counts(memory, index)


@pytest.mark.parametrize("whole", [True, False])
def test_a_search_under_way_does_not_see_what_is_added_later(whole):
    """L6: neither new entries nor that a message now stands next to one that the search has seen."""
    index = FakeIndex()
    for key in range(1, 9):
        index.put(said(key, "apple", "elm", position=4 * key))
        index.embed(key, vector(key))
    memory = MemoryIndex(index, whole=whole)
    under_way = []
    for key in range(1, 9):
        for number in (100 * key, 100 * key + 1):
            index.put(said(number, "bee"))
            memory.follow()
        under_way.append((memory.ask(ASKED, QUERY), memory.search(ASKED, QUERY)))
        index.put(said(100 * key + 2, "apple", "cider", position=4 * key + 1))
        memory.follow()
    for search, expected in under_way:
        assert search.best(None, None, 1000) == expected
    assert_agrees(memory.search(ASKED, QUERY), index, QUERY)


@settings(max_examples=25)
@given(index=spaces(), exact=st.booleans())
@pytest.mark.parametrize("owner", [None, SPACE, "user:bob"])
@pytest.mark.parametrize("lane", [*Lane, None])
def test_each_lane_gives_its_own(index, exact, lane, owner):
    """L1, L2: lanes are disjoint; without an owner the conversation's id alone counts."""
    found = MemoryIndex(index, exact=exact).ask(ASKED, QUERY).best(lane, (owner, "c1"), 100)
    chosen = in_lane(list(index.by_key.values()), lane, owner)
    assert sorted(one.key for one in found) == sorted(entry.key for entry in chosen)


def in_lane(held: Sequence[IndexedEntry], lane: Lane | None, owner: str | None) -> list[IndexedEntry]:
    def is_here(entry: IndexedEntry) -> bool:
        return entry.conversation == "c1" and owner in (None, entry.owner or SPACE)

    records = [entry for entry in held if entry.kind is Kind.RECORD]
    return {
        Lane.LONG_TERM: [entry for entry in held if entry.kind is Kind.STATEMENT],
        Lane.SHORT_TERM: [entry for entry in records if is_here(entry)],
        Lane.EPISODIC: [entry for entry in records if not is_here(entry)],
        None: list(held),
    }[lane]


@settings(max_examples=50)
@given(
    index=spaces(),
    exact=st.booleans(),
    lanes=st.lists(st.sampled_from(Lane), min_size=1, unique=True),
    conversation=st.sampled_from((None, (None, "c1"), (SPACE, "c1"), ("user:bob", "c1"), (None, "c9"))),
    count=st.integers(1, 30),
)
def test_lanes_at_once_give_the_best_of_each(index, exact, lanes, conversation, count):
    """L1, L3: the same entries with the same scores as lane by lane, each in its own."""
    memory = MemoryIndex(index, exact=exact)
    at_once = memory.ask(ASKED, QUERY).best_of(lanes, conversation, count)
    one_by_one = memory.ask(ASKED, QUERY)
    expected = [one for lane in lanes for one in one_by_one.best(lane, conversation, count)]
    expected.sort(key=lambda one: (-one.score, -one.key))
    assert list(at_once)[:count] == expected[:count]


@given(index=spaces(), sizes=st.lists(st.integers(1, 30), min_size=1, max_size=4))
def test_asking_for_more_goes_on_behind_what_was_given(index, sizes):
    """L3: who skips some is given the next, none twice and none left out."""
    search = MemoryIndex(index).ask(ASKED, QUERY)
    counts = sorted(sizes)
    pages = [[one.key for one in search.best(None, None, count)] for count in counts]
    for earlier, later in pairwise(pages):
        assert later[: len(earlier)] == earlier
    assert len(pages[-1]) == len(set(pages[-1])) == min(counts[-1], len(index.by_key))


@pytest.mark.parametrize("exact", [True, False])
def test_of_equal_entries_the_newer_come_first(exact):
    """L6: also among those that are too old for recency to tell apart."""
    index = FakeIndex()
    for key in range(1, RECENT + 301):
        index.put(said(key, "apple"))
    found = MemoryIndex(index, exact=exact).ask(ASKED, None).best(None, None, RECENT + 50)
    assert [one.key for one in found] == list(range(RECENT + 300, 250, -1))


def large_space(rows: int, *, is_patchy: bool) -> FakeIndex:
    """Conversations of forty messages about one topic each, in words whose frequencies are those of a language.

    A patchy one has entries without a vector and messages that say nothing.
    """
    random, index = np.random.default_rng(7), FakeIndex()
    rarities = 1 / np.arange(1, 2001)
    common = random.normal(0, 1, WIDE.dimensions)
    for key in range(1, rows + 1):
        talk, position = divmod(key, 40)
        topic = np.random.default_rng(talk % 50)
        chances = np.roll(rarities, topic.integers(2000)) + rarities
        words = random.choice(2000, size=random.integers(3, 25), p=chances / chances.sum())
        terms = ("sure", "thank") if is_patchy and key % 4 == 1 else tuple(f"w{number}" for number in words)
        kind = Kind.STATEMENT if key % 7 == 0 else Kind.RECORD
        conversation = f"c{talk}" if kind is Kind.RECORD else None
        index.put(
            IndexedEntry(key, SPACE, kind, Origin.USER, ("Ada", "Bob")[key % 2], conversation, None, position, terms)
        )
        if not (is_patchy and key % 3 == 0):
            meaning = common + topic.normal(0, 1, WIDE.dimensions) + random.normal(0, 1, WIDE.dimensions)
            index.embed(key, meaning / np.linalg.norm(meaning))
    return index


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("is_patchy", [True, False])
def test_estimates_find_nearly_all_of_the_best(is_patchy, whole):
    """L5, L6: of the ten best of a large space at least 0.97 are found, in every lane."""
    index = large_space(3000, is_patchy=is_patchy)
    memory = MemoryIndex(index, whole=whole, embedder=WIDE)
    random = np.random.default_rng(3)
    found = []
    for key in random.choice([key for key in index.data if "sure" not in index.by_key[key].terms], 20):
        words = dict.fromkeys(random.choice(index.by_key[key].terms, 4).tolist(), 5.0)
        weights = TermWeights(words, {}, total=5.0 * len(words), distinctive=15.0, midpoint=1.5)
        asked = Query(tuple(words), frozenset(), {SPACE: weights})
        query = np.frombuffer(index.data[key], "<f2") + random.normal(0, 0.1, WIDE.dimensions)
        meant = (query / np.linalg.norm(query)).astype(np.float32)
        quick, exact = (memory.ask(asked, meant, exact=exact) for exact in (False, True))
        for lane in Lane:
            best, right = ({one.key for one in search.best(lane, (None, "c3"), 10)} for search in (quick, exact))
            found.append(len(best & right) / len(right))
    assert sum(found) / len(found) >= 0.97


def test_messages_that_say_nothing_do_not_crowd_out_others():
    """L6: an estimate does not give them the words of the messages around them."""
    index = FakeIndex()
    for key in range(1, 1501):
        words = ("sure", "thank") if key % 3 else ("apple", f"one{key}", f"two{key}")
        index.put(said(key, *words, position=key))
    memory = MemoryIndex(index, whole=False)
    quick, exact = (memory.ask(ASKED, None, exact=exact).best(None, None, 10) for exact in (False, True))
    assert [one.key for one in quick] == [one.key for one in exact]


def test_entries_without_a_vector_are_not_lost_among_those_with_one():
    """L5, L6: an estimate gives them the same likeness as their score does."""
    index = FakeIndex()
    for key in range(1, 1501):
        index.put(said(key, "apple"))
        if key % 150:
            index.embed(key, (vector(key) - 9 * QUERY) / 9)
    found = MemoryIndex(index, whole=False).ask(ASKED, QUERY).best(None, None, 10)
    assert {one.key for one in found} == set(range(150, 1501, 150))


@pytest.mark.parametrize("whole", [True, False])
def test_a_removed_entry_leaves_memory(whole):
    """M2: its vector, its speaker and its conversation, once the index has followed."""
    index = FakeIndex()
    for key in range(1, 40):
        index.put(said(key, "apple", position=key))
        index.embed(key, vector(key))
    index.put(said(40, "bee", position=40, speaker="Eve Secret", conversation="secret talk"))
    index.embed(40, vector(40))
    memory = MemoryIndex(index, whole=whole)

    def traces() -> list[bool]:
        held = list(reachable(memory.root))
        strings = " ".join(one for one in held if isinstance(one, str)).casefold()
        arrays = [one for one in held if isinstance(one, np.ndarray)]
        half = np.frombuffer(index.data[40], "<f2")
        is_vector_held = any(
            half.astype(array.dtype).tobytes() in array.tobytes() for array in arrays if array.dtype.kind == "f"
        )
        return ["eve" in strings, "secret talk" in strings, is_vector_held]

    before = traces()
    index.remove(40)
    memory.follow()
    assert (before, traces()) == ([True, True, whole], [False, False, False])
    assert "bee" not in memory.searcher().frequencies(TERMS)


def taken_bytes() -> int:
    """Since tracing began, without what the fake takes."""
    traces = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(False, "*fake_index.py")])
    return sum(trace.size for trace in traces.traces)


@pytest.mark.parametrize("whole", [True, False])
def test_what_an_index_takes_is_counted(whole):
    """L6: about as much as Python measures, for a new index and for one that has followed many changes."""
    index = FakeIndex()
    for key in range(1, 2001):
        index.put(said(key, *TERMS[: key % 5], f"word{key}", position=key if key % 2 else None))
        index.embed(key, vector(key))
    later = [said(key, "apple", f"word{key}") for key in range(3001, 3201)]
    MemoryIndex(index, whole=whole)
    tracemalloc.start()
    try:
        memory = MemoryIndex(index, whole=whole)
        sizes = [(taken_bytes(), memory.size_bytes)]
        for entry in later:
            index.put(entry)
            memory.follow()
        sizes.append((taken_bytes(), memory.size_bytes))
    finally:
        tracemalloc.stop()
    for taken, counted in sizes:
        assert 0.9 * taken <= counted <= 1.3 * taken


@pytest.mark.parametrize("removed", [True, False])
def test_an_index_is_built_again_when_much_has_changed(removed):
    """L6: entries out of order are looked up one by one, and removed ones take room, so there is a limit."""
    index = FakeIndex()
    for key in range(1, 2001):
        index.put(said(key, "apple"))
    memory, needs_rebuild = MemoryIndex(index), []
    for count in (1000, 100):
        for _ in range(count):
            index.remove(min(index.by_key)) if removed else index.put(said(max(index.by_key) + 1, "apple"))
        memory.follow()
        needs_rebuild.append(memory.needs_rebuild)
    assert (needs_rebuild, MemoryIndex(index).needs_rebuild) == ([False, True], False)
