"""One lane: what is said around an entry, who is asked about, and what is passed over."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from asking import ADA, STATIC, by_words, embedded, request, texts, with_vectors

from afterturn.recall.index.cache import IndexCache
from afterturn.recall.query import lane_of
from afterturn.recall.scoring import ScoredRow
from afterturn.recall.search import search, search_in_memory
from afterturn.recall.store_search import StoreSearch
from afterturn.testing.entries import entry
from afterturn.types import Filter, IndexedEntry, Lane, LaneQuery, Origin

FOODS = ("peanuts", "shellfish", "wheat", "milk")
LANES = tuple(Lane)
WAYS = pytest.mark.parametrize("ask", [by_words, with_vectors])


def say(library, *said: str, conversation: str = "then", **draft) -> None:
    """One message after the other, the user's and the agent's by turns."""
    for position, text in enumerate(said):
        origin = Origin.AGENT if position % 2 else Origin.USER
        library.add(text, conversation=conversation, position=position, **{"origin": origin, **draft})


@WAYS
def test_an_answer_is_found_beside_the_question_that_it_answers(library, ask):
    """L6: "the blue one" says nothing by itself."""
    say(library, "Which bicycle should Carol buy for the mountain race?", "The blue one")
    library.add_all(["Tofu is a food", "The train leaves at nine"], conversation="other")
    found = ask(library, "Which bicycle for Carol's mountain race?")
    assert texts(found) == ["Which bicycle should Carol buy for the mountain race?", "The blue one"]
    assert found.hits[1].terms == ()


@WAYS
def test_what_was_said_elsewhere_is_no_context(library, ask):
    """L6: the same words without the question before them are not found."""
    say(library, "Which bicycle should Carol buy for the mountain race?")
    library.add("The blue one", conversation="other", position=1)
    assert texts(ask(library, "Which bicycle for Carol's mountain race?")) == [
        "Which bicycle should Carol buy for the mountain race?"
    ]


@WAYS
def test_what_says_nothing_is_made_no_answer_by_what_is_said_around_it(library, ask):
    """L5, L6: a polite word after a question shares all its neighbours and tells nothing."""
    say(library, "Which bicycle should Carol buy for the mountain race?", "Sure, happy to help!")
    assert texts(ask(library, "Which bicycle for Carol's mountain race?")) == [
        "Which bicycle should Carol buy for the mountain race?"
    ]


@WAYS
def test_context_counts_less_the_further_away_it_is(library, ask):
    """L6: the message itself, then the next one, then the one behind it."""
    say(
        library,
        "The zebra crossing needs paint",
        "Green stripes then",
        "Somebody wrote",
        "Unrelated entirely",
        origin=Origin.USER,
    )
    scores = {one.entry.text: one.lexical for one in ask(library, "zebra crossing paint", score_min=0.0).hits}
    itself, beside, behind = (
        scores[text] for text in ("The zebra crossing needs paint", "Green stripes then", "Somebody wrote")
    )
    assert itself > beside > behind > 0
    assert scores.get("Unrelated entirely", 0.0) == 0.0


@WAYS
def test_a_long_answer_says_little_about_its_neighbours(library, ask):
    """L6: an answer of pages is about itself."""
    page = " ".join(f"subject{number}" for number in range(400))
    say(library, "Tell Bruno", f"zebra {page}", conversation="long")
    say(library, "Tell Bruno", "zebra", conversation="short")
    hits = ask(library, "zebra", score_min=0.0).hits
    beside = {one.entry.conversation: one.lexical for one in hits if one.entry.text == "Tell Bruno"}
    assert beside["long"] < beside["short"] / 2


@WAYS
def test_whoever_is_named_is_heard_first(library, ask):
    """L6: two said the same; the question asks for one of them, whose words do not hold the name."""
    said = "I went hiking in the mountains"
    library.add(said, conversation="a", position=0, speaker="Bob Miller", origin=Origin.AGENT)
    library.add(f"{said}!", conversation="b", position=0, speaker="Carol", origin=Origin.AGENT)
    for name, first in (("Bob", "Bob Miller"), ("carol", "Carol")):
        hits = ask(library, f"Where did {name} go hiking?", score_min=0.0).hits
        assert (len(hits), hits[0].entry.speaker) == (2, first)


@WAYS
def test_a_name_is_a_hint_and_no_filter(library, ask):
    """L6: what answers is found though somebody else said it."""
    library.add("Carol is training for the mountain marathon", conversation="a", position=0, speaker="Bob")
    library.add("I am hungry", conversation="a", position=1, speaker="Carol")
    found = ask(library, "Which mountain marathon does Carol train for?")
    assert "Carol is training for the mountain marathon" in texts(found)


def test_names_of_speakers_are_left_out_of_the_vector(library):
    """L6: in a conversation of two, a name resembles everything that the other one said."""
    library.add("I went hiking", conversation="a", position=0, speaker="Bob")
    asked = embedded(library, "Where did Bob go hiking?")
    assert np.array_equal(asked.query_vector, STATIC.embed(["Where did go hiking?"])[0])


@WAYS
def test_the_users_own_words_come_before_the_agents(library, ask):
    """L6: of the same words, in whatever order they were said."""
    library.add("The blue bicycle is too small", conversation="a", position=0, origin=Origin.USER)
    library.add("The blue bicycle is too small.", conversation="b", position=0, origin=Origin.AGENT)
    library.add("The blue bicycle is too small!", conversation="c", position=0, origin=Origin.USER)
    found = ask(library, "blue bicycle too small", score_min=0.0)
    assert [one.entry.origin for one in found.hits] == ["user", "user", "agent"]


@WAYS
def test_of_equal_matches_the_newest_comes_first(library, ask):
    """L6: what was said last is what holds."""
    for number in range(5):
        library.add("The blue bicycle is too small", conversation=f"c{number}", position=0)
    found = ask(library, "blue bicycle too small")
    assert [one.entry.conversation for one in found.hits] == ["c4", "c3", "c2", "c1", "c0"]


@pytest.mark.parametrize("ask", [with_vectors])
def test_what_is_excluded_still_is_context(library, ask):
    """L3, L6: the model has seen the question, and the answer to it is still missing."""
    say(library, "Which bicycle should Carol buy for the mountain race?", "The blue one")
    shown = [one.entry.ref for one in ask(library, "Which bicycle for Carol's mountain race?").hits][:1]
    found = ask(library, "Which bicycle for Carol's mountain race?", excluded_refs=frozenset(shown), score_min=0.0)
    assert texts(found)[:1] == ["The blue one"]
    assert found.hits[0].lexical > 0


@WAYS
def test_what_is_not_admitted_does_not_come_in_as_context(library, ask):
    """L1, L7, L9, C6: neighbours of a match are given only where the query admits them."""
    say(library, "The zebra crossing needs paint", "Gone by now", conversation="now", expires_at=900.0)
    library.add("The zebra crossing in May", conversation="then", position=0)
    library.add("tool output", conversation="then", position=1, origin=Origin.TOOL)
    seen = library.add("in sight", conversation="then", position=2)
    found = ask(library, "zebra crossing", score_min=0.0, visible_hashes=frozenset([seen.content_hash]))
    assert texts(found) == ["The zebra crossing in May"]
    statements = ask(library, "zebra crossing", score_min=0.0, lanes=(Lane.LONG_TERM,))
    assert statements.hits == ()


@WAYS
def test_a_tools_words_make_no_answer_of_what_is_around_them(library, ask):
    """C6, L6: but the question before it and the answer behind it stand next to each other."""
    library.add("Which crossing is it?", conversation="then", position=0)
    library.add("zebra", conversation="then", position=1, origin=Origin.TOOL)
    library.add("That one near the harbour", conversation="then", position=2)
    assert [one.lexical for one in ask(library, "zebra", score_min=0.0).hits if one.lexical] == []
    found = ask(library, "crossing", score_min=0.0)
    assert [(one.entry.position, one.lexical > 0) for one in found.hits] == [(0, True), (2, True)]


def test_by_meaning_alone_everything_is_shown_once(library):
    """L3: A B C, then D E F, then G H, though no word is shared."""
    library.add_all([f"red apple {letter * 3}" for letter in "abcdefgh"])
    library.embed(STATIC)
    cache = IndexCache(STATIC.identity, 1 << 22)
    vector = STATIC.embed(["red apple"])[0]
    shown: list[str] = []
    sizes = []
    for _ in range(3):
        asked = request("pomme rouge", query_vector=vector, limit=3, excluded_refs=frozenset(shown), score_min=0.01)
        found = library.read(lambda unit, asked=asked: search(unit, asked, cache))
        shown.extend(one.entry.ref for one in found.hits)
        sizes.append(len(found.hits))
    assert (sizes, len(set(shown))) == ([3, 3, 2], 8)


def test_by_meaning_alone_a_lane_is_searched_past_what_is_nearer(library):
    """L1, L3: hundreds of nearer messages do not hide the one statement."""
    library.add_all(["red apple"] * 150, conversation="c1")
    library.add("red apple tree by the river")
    library.embed(STATIC)
    cache = IndexCache(STATIC.identity, 1 << 24)
    for lanes in ((Lane.LONG_TERM,), LANES):
        vector = STATIC.embed(["red apple"])[0]
        asked = request("pomme", query_vector=vector, lanes=lanes, score_min=0.01, limit=1000)
        found = library.read(lambda unit, asked=asked: search(unit, asked, cache))
        assert "red apple tree by the river" in texts(found)


class Row:
    """A searcher's reading that gives rows in its own order, and does not admit all of them."""

    def __init__(self, count: int, refused: set[int]) -> None:
        rows = [
            ScoredRow(key, LANES[key % 3], 1.0 - key / 1000, 0.5, None, ("tea",) * (key % 2)) for key in range(count)
        ]
        self.rows = {lane: rows[place::3] for place, lane in enumerate(LANES)}
        self.refused = refused
        self.asked: list[int] = []

    def best(self, lane, conversation, count):
        return self.rows[lane][:count]

    def best_of(self, lanes, conversation, count):
        found = [row for lane in lanes for row in self.best(lane, conversation, count)]
        return sorted(found, key=lambda row: row.key)

    def entries(self, query, keys):
        self.asked += keys
        return {key: entry("x", id=f"e{key}") for key in reversed(keys) if key not in self.refused}


@pytest.mark.parametrize("refused", [set(), set(range(0, 40, 2)), set(range(300)), set(range(500))])
def test_what_a_query_refuses_is_passed_over_before_the_cut(refused):
    """L3: page after page of the best, each row looked up once, until enough are admitted or none is left."""
    searcher = Row(500, refused)
    found, is_done = search_in_memory(searcher, LaneQuery(ADA, 0.0), LANES, limit=20)
    best = sorted(found, key=lambda hit: -hit.score)[:20]
    expected = [key for key in range(500) if key not in refused][:20]
    assert is_done
    assert [hit.entry.id for hit in best] == [f"e{key}" for key in expected]
    assert [hit.lane for hit in best] == [LANES[key % 3] for key in expected]
    assert [hit.terms for hit in best] == [("tea",) * (key % 2) for key in expected]
    assert len(searcher.asked) == len(set(searcher.asked))


def test_a_lane_with_nothing_to_give_does_not_have_the_others_looked_through():
    """H9, L3: all of this conversation is in sight, as at most turns."""
    in_sight = {key for key in range(900) if LANES[key % 3] is Lane.SHORT_TERM}
    searcher = Row(900, in_sight)
    found, is_done = search_in_memory(searcher, LaneQuery(ADA, 0.0), LANES, limit=20)
    others = [key for key in searcher.asked if key not in in_sight]
    assert is_done
    assert sorted(int(hit.entry.id[1:]) for hit in found) == others[:20]
    assert others[:20] == [key for key in range(900) if key not in in_sight][:20]
    assert len(others) < 100
    assert len(searcher.asked) == len(set(searcher.asked))


@pytest.mark.parametrize("conversation", [None, "c1"])
@pytest.mark.parametrize("owner", [None, "user:ada", "user:bob"])
def test_lanes_are_told_apart_as_the_store_does(library, conversation, owner):
    """L1, L2: what was found for all lanes at once ends up where a search of the lane would have found it."""
    library.add("tea")
    library.add("tea of a conversation", project="x")
    for number, said_in in enumerate((None, "user:ada", "user:bob")):
        library.add(f"tea {number}", conversation="c1", owner=said_in, position=number)
        library.add(f"tea {number} elsewhere", conversation="c2", owner=said_in, position=number)
    query = LaneQuery(ADA, 1000.0, conversation=conversation, owner=owner)

    def found(lane: Lane | None) -> list[IndexedEntry]:
        asked = query._replace(lane=lane)
        return library.read(lambda unit: unit.index.matches(asked, ["tea"], limit=100))

    by_lane = {
        entry.key: lane for lane in LANES if lane is not Lane.SHORT_TERM or conversation for entry in found(lane)
    }
    assert {entry.key: lane_of(entry, query) for entry in found(None)} == by_lane
    assert len(by_lane) == 8


def test_a_question_that_no_space_can_answer_finds_nothing(library):
    """L5: neither by words nor by context."""
    say(library, "The zebra crossing needs paint", "Green stripes then")
    asked = SimpleNamespace(terms=("unheard",), names=frozenset(), spaces={}, term_set=frozenset({"unheard"}))
    search = partial(StoreSearch, lane_query=LaneQuery(ADA, 1000.0), query=asked)  # type: ignore[arg-type]
    assert library.read(lambda unit: search(unit).search((Lane.EPISODIC,), limit=9)) == []


def test_where_hardly_anything_is_admitted_the_search_leaves_it_to_the_store():
    """L3, G5: a filter that admits the last of ten thousand must not look up all of them."""
    searcher = Row(10_000, set(range(9_999)))
    found, is_done = search_in_memory(searcher, LaneQuery(ADA, 0.0), LANES, limit=20)
    assert (found, is_done) == ([], False)
    assert len(searcher.asked) < 2_000


@pytest.mark.parametrize("excluded", ["excluded_refs", "visible_hashes"])
def test_what_the_model_has_seen_is_no_reason_to_give_up(excluded):
    """L3: a long conversation has thousands in sight, and the next best are behind all of them."""
    searcher = Row(10_000, set(range(1_500)))
    query = LaneQuery(ADA, 0.0)._replace(**{excluded: frozenset(map(str, range(1_500)))})
    found, is_done = search_in_memory(searcher, query, LANES, limit=20)
    best = sorted(found, key=lambda hit: -hit.score)[:20]
    assert is_done
    assert [hit.entry.id for hit in best] == [f"e{key}" for key in range(1_500, 1_520)]


@WAYS
def test_what_hardly_anything_passes_finds_the_one_that_does(library, ask, monkeypatch):
    """L3: where memory gives up, the store is asked, so that it is found whichever way."""
    monkeypatch.setattr("afterturn.recall.search._RESOLVED_MAX", 4)
    library.add("red apple in the cellar of the old house by the river", project="orchard")
    library.add_all([f"red apple {number}" for number in range(40)])
    found = ask(library, "red apple", limit=2, filter=Filter(project="orchard"))
    assert texts(found) == ["red apple in the cellar of the old house by the river"]


@WAYS
def test_whoever_has_spoken_can_still_be_asked_about(library, ask):
    """L6: a name tells what is said about somebody, though everybody says it."""
    names = ("Rose", "Bruno", "Carol", "Dmitri")
    library.add_all([f"{name} is allergic to {food}" for name, food in zip(names, FOODS, strict=True)])
    for name in names:
        library.add("The train was late again", conversation=f"with {name}", speaker=name)
    for name, food in zip(names, FOODS, strict=True):
        assert texts(ask(library, f"What is {name} allergic to?"))[0] == f"{name} is allergic to {food}"
