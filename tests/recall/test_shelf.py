"""A shelf ranks a whole space as the formula does entry by entry."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from bookshelf import IDENTITY, SPACE, PlainIndex, shelved, stocked
from hypothesis import given, settings
from hypothesis import strategies as st
from weighing import Plain

from afterturn.base.types import EmbedderIdentity, Kind, Lane, Origin, Shelved
from afterturn.recall import edition as edition_module
from afterturn.recall import shelf as shelf_module
from afterturn.recall.asked import Asked, Weights
from afterturn.recall.shelf import Shelf

TERMS = ("apple", "bee", "cider", "dew", "elm")
WEIGHTS = Weights({"apple": 2.5, "bee": 1.25, "cider": 0.5}, {}, total=4.25, telling=3.75, even=1.5)
ASKED = Asked(TERMS[:3], frozenset({"ada"}), {SPACE: WEIGHTS})


WIDE = EmbedderIdentity("wide", "1", 192)


@st.composite
def entries(draw: st.DrawFn, key: int) -> Shelved:
    kind = draw(st.sampled_from(Kind))
    conversation = draw(st.sampled_from(("c1", "c2", None)))
    return Shelved(
        key,
        SPACE,
        kind,
        draw(st.sampled_from((Origin.USER, Origin.AGENT))),
        draw(st.sampled_from(("Ada Lovelace", "Bob", None))),
        conversation,
        draw(st.sampled_from((None, "user:bob"))),
        # In a space, a conversation has one record in a position.
        draw(st.sampled_from((None, key, key // 2 * 3 + key % 2))) if conversation else None,
        tuple(draw(st.lists(st.sampled_from(TERMS), max_size=8))),
    )


@st.composite
def spaces(draw: st.DrawFn, *, first: int = 1, rows_max: int = 24) -> PlainIndex:
    index = PlainIndex()
    for key in range(first, first + draw(st.integers(0, rows_max))):
        grow(draw, index, key)
    return index


def grow(draw: st.DrawFn, index: PlainIndex, key: int) -> None:
    entry = draw(entries(key))
    taken = {(one.owner, one.conversation, one.position) for one in index.entries.values() if one.kind is Kind.RECORD}
    if (entry.owner, entry.conversation, entry.position) not in taken:
        index.put(entry)
        if draw(st.booleans()):
            index.embed(key, vector(key))


def change(data: st.DataObject, index: PlainIndex, key: int, away: list[Shelved]) -> None:
    """One thing that may happen to a space: something comes, goes, comes back or gets its vector."""
    step = data.draw(st.sampled_from(("add", "remove", "embed", "return")))
    if step == "add":
        grow(data.draw, index, key)
    elif step == "return" and away:
        index.put(away.pop())
    elif index.entries:
        chosen = data.draw(st.sampled_from(sorted(index.entries)))
        if step == "remove":
            away.append(index.remove(chosen))
        else:
            index.embed(chosen, vector(chosen))


def vector(seed: int) -> np.ndarray:
    values = np.random.default_rng(seed).normal(0.4, 1.0, IDENTITY.dimensions)
    return (values / np.linalg.norm(values)).astype(np.float32)


def assert_agrees(shelf: Shelf, index: PlainIndex, query: np.ndarray | None) -> None:
    plain = Plain(SPACE, list(index.entries.values()), index.cosines(query))
    expected = plain.scores(ASKED)
    found = shelf.read(ASKED, query).best(None, None, 1000)
    assert sorted(one.key for one in found) == sorted(expected)
    for one in found:
        assert (one.score, one.share) == pytest.approx(expected[one.key], abs=2e-6)
        assert one.similarity == pytest.approx(plain.cosines.get(one.key), abs=2e-6)
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)


@given(index=spaces(), exact=st.booleans(), whole=st.booleans(), is_asked_by_meaning=st.booleans())
def test_every_entry_is_weighed_as_by_itself(index, exact, whole, is_asked_by_meaning):
    """L6: words, vectors, context, speaker and recency, for every entry of a space at once."""
    query = vector(0) if is_asked_by_meaning else None
    assert_agrees(shelved(index, exact=exact, whole=whole), index, query)


@given(data=st.data(), whole=st.booleans())
def test_a_shelf_that_followed_its_space_is_as_one_made_anew(data, whole):
    """M2, M3: entries that came, went, came back or got a vector, in any order."""
    index = data.draw(spaces(rows_max=10))
    stock = stocked(index, whole=whole)
    away: list[Shelved] = []
    for key in range(100, 100 + data.draw(st.integers(1, 12))):
        change(data, index, key, away)
        if data.draw(st.booleans()):
            assert stock.follow(index)
    assert stock.follow(index)
    assert_agrees(Shelf(stock, index), index, vector(0))


@settings(max_examples=25)
@given(index=spaces(), exact=st.booleans())
@pytest.mark.parametrize("owner", [None, SPACE, "user:bob"])
@pytest.mark.parametrize("lane", [*Lane, None])
def test_each_lane_gives_its_own(index, exact, lane, owner):
    """L1, L2: lanes are disjoint; without an owner the conversation's id alone counts."""
    reading = shelved(index, exact=exact).read(ASKED, vector(0))
    found = [one.key for one in reading.best(lane, (owner, "c1"), 100)]
    chosen = in_lane(list(index.entries.values()), lane, owner)
    assert sorted(found) == sorted(entry.key for entry in chosen)


@settings(max_examples=50)
@given(
    index=spaces(),
    exact=st.booleans(),
    lanes=st.lists(st.sampled_from(Lane), min_size=1, unique=True),
    conversation=st.sampled_from((None, (None, "c1"), (SPACE, "c1"), ("user:bob", "c1"), (None, "c9"))),
    count=st.integers(1, 30),
)
def test_lanes_at_once_give_the_best_of_each(index, exact, lanes, conversation, count):
    """L1, L3: the same rows with the same scores as lane by lane, each in its own."""
    shelf = shelved(index, exact=exact)
    at_once = shelf.read(ASKED, vector(0)).best_of(lanes, conversation, count)
    one_by_one = shelf.read(ASKED, vector(0))
    expected = [one for lane in lanes for one in one_by_one.best(lane, conversation, count)]
    expected.sort(key=lambda one: (-one.score, -one.key))
    assert list(at_once)[:count] == expected[:count]


def in_lane(held: Sequence[Shelved], lane: Lane | None, owner: str | None) -> list[Shelved]:
    def is_here(entry: Shelved) -> bool:
        return entry.conversation == "c1" and owner in (None, entry.owner or SPACE)

    records = [entry for entry in held if entry.kind is Kind.RECORD]
    return {
        Lane.LONG_TERM: [entry for entry in held if entry.kind is Kind.STATEMENT],
        Lane.SHORT_TERM: [entry for entry in records if is_here(entry)],
        Lane.EPISODIC: [entry for entry in records if not is_here(entry)],
        None: list(held),
    }[lane]


@given(index=spaces(), sizes=st.lists(st.integers(1, 30), min_size=1, max_size=4))
def test_asking_for_more_goes_on_behind_what_was_given(index, sizes):
    """L3: whoever passes over some is given the next, none twice and none left out."""
    reading = shelved(index).read(ASKED, vector(0))
    counts = sorted(sizes)
    pages = [[one.key for one in reading.best(None, None, count)] for count in counts]
    for earlier, later in pairwise(pages):
        assert later[: len(earlier)] == earlier
    assert len(pages[-1]) == len(set(pages[-1])) == min(counts[-1], len(index.entries))


def said(key: int, *terms: str, position: int | None = None) -> Shelved:
    """A statement, or a message where it has a position."""
    kind, conversation = (Kind.STATEMENT, None) if position is None else (Kind.RECORD, "c1")
    return Shelved(key, SPACE, kind, Origin.USER, None, conversation, None, position, terms)


@pytest.mark.parametrize("is_weighed", [True, False])
def test_of_equal_ones_the_newer_are_given(monkeypatch, is_weighed):
    """L6: also where they are too old to be told apart, and too many to be weighed."""
    monkeypatch.setattr(edition_module, "RECENT", 2)
    monkeypatch.setattr(shelf_module, "WEIGHED_ROWS_MAX", 1024 if is_weighed else 0)
    index = PlainIndex()
    for key in range(1, 301):
        index.put(said(key, "apple"))
    found = shelved(index).read(ASKED, None).best(None, None, 10)
    assert [one.key for one in found] == list(range(300, 290, -1))


def test_what_has_gone_is_not_counted():
    """M2, L6: how rare a term is says nothing of what was forgotten."""
    index = PlainIndex()
    for key in range(1, 6):
        index.put(said(key, "apple", *(["bee"] if key == 2 else [])))
    stock = stocked(index)
    before = Shelf(stock, index).frequencies(TERMS)
    index.remove(2)
    assert stock.follow(index)
    shelf = Shelf(stock, index)
    assert (before, shelf.frequencies(TERMS), shelf.documents) == ({"apple": 5, "bee": 1}, {"apple": 4}, 4)


def test_what_has_no_vector_or_says_nothing_is_estimated_as_it_is_weighed():
    """L5, L6: no likeness is made up for the one, and the other hears nothing of what is said around it."""
    index = PlainIndex()
    for position in range(40):
        words = ("sure", "thank") if position % 4 == 1 else ("apple", "bee") if position % 4 == 2 else ("elm",)
        index.put(said(position + 1, *words, position=position))
    for key in range(50, 90):
        index.put(said(key, "apple"))
        if key % 2:
            index.embed(key, vector(key))
    reading = shelved(index, whole=False).read(ASKED, vector(0))
    edition = reading._edition
    alike = sorted({*edition.deaf.tolist(), *edition.without_vector[edition.without_vector >= 40].tolist()})
    estimated, weighed = reading._scoring.estimated(), reading._scoring.weigh(None).scores
    assert len(alike) == 30
    assert estimated[alike] == pytest.approx(weighed[alike], abs=1e-6)


def large_space(rows: int) -> PlainIndex:
    """Conversations of forty messages about one thing each, in words that are as rare as words are."""
    random, index = np.random.default_rng(7), PlainIndex()
    rarities = 1 / np.arange(1, 2001)
    common = random.normal(0, 1, WIDE.dimensions)
    for key in range(1, rows + 1):
        talk, position = divmod(key, 40)
        topic = np.random.default_rng(talk % 50)
        chances = np.roll(rarities, topic.integers(2000)) + rarities
        said = random.choice(2000, size=random.integers(3, 25), p=chances / chances.sum())
        kind = Kind.STATEMENT if key % 7 == 0 else Kind.RECORD
        words = tuple(f"w{number}" for number in said)
        conversation = f"c{talk}" if kind is Kind.RECORD else None
        index.put(Shelved(key, SPACE, kind, Origin.USER, ("Ada", "Bob")[key % 2], conversation, None, position, words))
        meaning = common + topic.normal(0, 1, WIDE.dimensions) + random.normal(0, 1, WIDE.dimensions)
        index.embed(key, meaning / np.linalg.norm(meaning))
    return index


@pytest.mark.parametrize("whole", [True, False])
def test_estimates_find_nearly_all_of_the_best(whole):
    """L6: of the ten best of a large space at least 0.97 are found, in every lane."""
    index = large_space(5000)
    stock = stocked(index, whole=whole, embedder=WIDE)
    random = np.random.default_rng(3)
    found = []
    for key in random.integers(1, 5001, 30):
        words = dict.fromkeys(random.choice(index.entries[key].terms, 4).tolist(), 5.0)
        asked = Asked(
            tuple(words), frozenset(), {SPACE: Weights(words, {}, total=5.0 * len(words), telling=15.0, even=1.5)}
        )
        query = np.frombuffer(index.data[key], "<f2") + random.normal(0, 0.1, WIDE.dimensions)
        meant = (query / np.linalg.norm(query)).astype(np.float32)
        quick, exact = (Shelf(stock, index, exact=exact).read(asked, meant) for exact in (False, True))
        for lane in (Lane.LONG_TERM, Lane.EPISODIC, Lane.SHORT_TERM):
            best, right = ({one.key for one in reading.best(lane, (None, "c3"), 10)} for reading in (quick, exact))
            found.append(len(best & right) / len(right))
    assert sum(found) / len(found) >= 0.97


@pytest.mark.parametrize("share", [0.05, 0.9])
def test_context_is_estimated_alike_from_both_ends(share):
    """L6: whether few rows have something to say or most."""
    edition = stocked(large_space(600), embedder=None).edition
    random = np.random.default_rng(5)
    reached = (random.uniform(0, 1, 600) * (random.uniform(0, 1, 600) < share)).astype(np.float32)
    around, there = edition.around(np.arange(600))
    expected = reached + 1.6 * (edition.said_around(around, there) * reached[around]).sum(axis=0)
    edition.add_context(reached)
    assert reached == pytest.approx(expected, abs=1e-5)
