"""A whole recall on a real store: lanes, the floor, and what is missing."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from asking import (
    BYTES_MAX,
    SCORE_MIN,
    STATIC,
    by_words,
    indexed,
    query_vector,
    request,
    texts,
    with_vectors,
)

from afterturn.errors import DeadlineExceeded, StoreError
from afterturn.recall.index import cache as cache_module
from afterturn.recall.index.cache import IndexCache
from afterturn.recall.scoring import FLOOR_SHARE, above_floor
from afterturn.recall.search import search, search_as_of
from afterturn.testing.entries import hit
from afterturn.types import Lane, LaneQuery, Scope

FACTS = ["My cat is called Miso", "I am allergic to peanuts", "The deploy script lives in tools/ship", "I prefer tea"]
WAYS = pytest.mark.parametrize("ask", [by_words, with_vectors])


@WAYS
def test_a_question_finds_its_answer(library, ask):
    """L6: by words, with vectors, and in memory."""
    library.add_all(FACTS)
    assert texts(ask(library, "what's my cat called?")) == ["My cat is called Miso"]


@WAYS
@pytest.mark.parametrize("said", ["thanks a lot", "ok", "Who are you?"])
def test_what_asks_for_nothing_finds_nothing(library, ask, said):
    """L5: though somebody once said thanks, and recall is asked all the same."""
    library.add_all([*FACTS, "Thanks a lot for the ok on the budget"])
    assert texts(ask(library, said)) == []


def test_meaning_finds_what_shares_no_word(library):
    """L6: vectors bring in what the words alone would miss."""
    library.add_all([*FACTS, "She is a lawyer"])
    question, like = "Who might be an advocate?", STATIC.embed(["She is a lawyer"])[0]
    assert by_words(library, question).hits == ()
    library.embed(STATIC)
    index = IndexCache(STATIC.identity, BYTES_MAX)
    found = library.read(lambda unit: search(unit, request(question, query_vector=like), index))
    assert texts(found) == ["She is a lawyer"]


def test_a_recall_without_vectors_says_so(library):
    """L1: degraded is not empty."""
    library.add_all(FACTS)
    asked = [ask(library, "my cat").missing for ask in (by_words, with_vectors)]
    assert asked == [("vectors",), ()]


def test_a_recall_before_most_entries_have_their_vectors_says_so(library):
    """L1: what has none can be found by its words alone, and the answer tells."""
    library.add("The deploy script lives in tools/ship")
    library.embed(STATIC)
    library.add_all(["my cat sleeps all day", "my cat is called Miso"])
    asked = request("my cat", query_vector=query_vector(library, "my cat", request("").scope))
    index = IndexCache(STATIC.identity, BYTES_MAX)
    found = library.read(lambda unit: search(unit, asked, index))
    assert (len(found.hits), found.missing) == (2, ("vectors",))


@pytest.mark.parametrize("is_indexed", [False, True])
def test_what_was_just_added_is_found_and_nothing_is_missed(library, is_indexed):
    """L1: the newest few always wait for their vectors; that alone is no degraded answer."""
    library.add_all(FACTS)
    library.embed(STATIC)
    asked = request("my cat", query_vector=STATIC.embed(["my cat"])[0])
    index = indexed(library, asked.scope) if is_indexed else IndexCache(STATIC.identity, BYTES_MAX)
    library.add("my cat sleeps all day")
    found = library.read(lambda unit: search(unit, asked, index))
    assert sorted(texts(found)) == ["My cat is called Miso", "my cat sleeps all day"]
    assert found.missing == ()


def test_hits_tell_why_they_were_found(library):
    """L6: words, likeness and the score that came of them."""
    library.add_all(FACTS)
    [found] = with_vectors(library, "what's my cat called?").hits
    assert found.terms == ("cat", "call")
    assert found.similarity == pytest.approx(0.66, abs=0.02)
    assert 0 < found.lexical < 1
    assert SCORE_MIN < found.score < 1


@WAYS
def test_lanes_are_disjoint_and_named(library, ask):
    """L1: statements, this conversation's records, other conversations' records."""
    library.add("miso is my cat")
    library.add("my cat miso is ill", conversation="now")
    library.add("miso the cat was bought in May", conversation="then")
    found = ask(library, "cat miso", conversation="now")
    assert {one.lane: one.entry.text for one in found.hits} == {
        Lane.LONG_TERM: "miso is my cat",
        Lane.SHORT_TERM: "my cat miso is ill",
        Lane.EPISODIC: "miso the cat was bought in May",
    }


@WAYS
def test_without_a_conversation_every_record_is_episodic(library, ask):
    """L1: a direct search is in no conversation."""
    library.add("my cat miso is ill", conversation="now")
    assert [one.lane for one in ask(library, "cat miso").hits] == [Lane.EPISODIC]


@WAYS
def test_only_the_lanes_that_were_asked_for_are_searched(library, ask):
    """L1: a host that wants statements alone gets no record."""
    library.add("miso is my cat")
    library.add("my cat miso is ill", conversation="now")
    assert texts(ask(library, "cat miso", lanes=(Lane.LONG_TERM,))) == ["miso is my cat"]


@WAYS
def test_every_space_of_the_scope_is_searched_and_no_other(library, ask):
    """L2: whether it is in memory or not."""
    library.add("my cat is called Miso")
    library.add("our office cat is called Mochi", space="team:a")
    library.add("his cat is called Tofu", space="user:bob")
    found = ask(library, "what is the cat called?", scope=Scope("default", ("user:ada", "team:a", "user:nobody")))
    assert sorted(texts(found)) == ["my cat is called Miso", "our office cat is called Mochi"]


def test_a_space_in_memory_and_one_in_the_store_are_asked_together(library, monkeypatch):
    """L2, L6: scores are of one scale, wherever they come from."""
    both = Scope("default", ("user:ada", "team:a"))
    library.add("my cat is called Miso")
    library.add("our office cat is called Mochi", space="team:a")
    asked = request("what is the cat called?", scope=both)
    part, all_of_it = indexed(library, Scope("default", ("team:a",))), indexed(library, both)
    monkeypatch.setattr(cache_module, "AT_ONCE_ROWS_MAX", 0)
    found = library.read(lambda unit: search(unit, asked, part))
    whole = library.read(lambda unit: search(unit, asked, all_of_it))
    assert texts(found) == texts(whole)
    assert (part.has_queued, all_of_it.has_queued) == (True, False)
    assert [one.score for one in found.hits] == pytest.approx([one.score for one in whole.hits], abs=1e-5)
    assert {one.entry.space for one in found.hits} == {"user:ada", "team:a"}


class BrokenIndex:
    """The real index, of which one lane fails, or one verb."""

    def __init__(self, index, broken: Lane | str, error: Exception) -> None:
        self._index = index
        self._broken = broken
        self._error = error

    def __getattr__(self, name: str):
        def call(*arguments, **bounds):
            queried = [one.lane for one in arguments if isinstance(one, LaneQuery)]
            # What is asked of all lanes meets the broken one too.
            if self._broken in (name, *queried) or (isinstance(self._broken, Lane) and None in queried):
                raise self._error
            return getattr(self._index, name)(*arguments, **bounds)

        return call


def broken_unit(unit, broken: Lane | str, error: Exception) -> Any:
    return SimpleNamespace(index=BrokenIndex(unit.index, broken, error), check=unit.check)


def test_a_broken_lane_fails_alone_and_is_reported(library, caplog):
    """L1: the others are whole, the missing one is named and its traceback logged."""
    library.add("miso is my cat")
    library.add("miso the cat was bought in May", conversation="then")
    broken = StoreError("the disk failed")
    with caplog.at_level(logging.ERROR):
        found = library.read(lambda unit: search(broken_unit(unit, Lane.EPISODIC, broken), request("cat miso")))
    assert texts(found) == ["miso is my cat"]
    assert found.missing == ("vectors", "episodic")
    assert "the disk failed" in caplog.text


def test_a_question_that_can_not_be_read_leaves_every_part_missing(library, caplog):
    """L1: without the space's figures nothing can be weighed, and nothing is claimed."""
    library.add("miso is my cat")
    broken = StoreError("the disk failed")
    asked = request("cat miso", conversation="now")
    found = library.read(lambda unit: search(broken_unit(unit, "stats", broken), asked))
    assert (found.hits, found.missing) == ((), ("vectors", "short_term", "long_term", "episodic"))
    assert "the disk failed" in caplog.text


def test_a_recall_that_was_given_up_blames_no_lane(library):
    """L1: an interrupted search is the caller's doing."""
    library.add("miso is my cat")
    given_up = DeadlineExceeded("stopped")
    with pytest.raises(DeadlineExceeded):
        library.read(lambda unit: search(broken_unit(unit, Lane.LONG_TERM, given_up), request("cat")))


class Impatient:
    """The real unit, whose caller gives up after so many checks."""

    def __init__(self, unit, checks: int) -> None:
        self._unit = unit
        self.checks = checks

    def __getattr__(self, name: str):
        return getattr(self._unit, name)

    def check(self) -> None:
        self.checks -= 1
        if self.checks < 0:
            raise DeadlineExceeded("nobody waits any more")


def test_scoring_stops_when_its_caller_has_given_up(library):
    """L1: between two statements of the store as well."""
    library.add_all([f"tea number {number}" for number in range(130)])
    with pytest.raises(DeadlineExceeded):
        library.read(lambda unit: search(Impatient(unit, 2), request("tea")))


def test_reading_the_past_stops_when_its_caller_has_given_up(library):
    """L7: every entry of that time is read, so every one may be the last."""
    library.add_all([f"tea number {number}" for number in range(5)])
    with pytest.raises(DeadlineExceeded):
        library.read(lambda unit: search_as_of(Impatient(unit, 4), request("tea"), 900.0))


class Broken:
    """Spaces in memory, of which one verb fails: finding a searcher or reading it."""

    complete = True
    documents = 1

    def __init__(self, verb: str) -> None:
        self._verb = verb

    def find(self, unit, tenant, space):
        self._fail("find")
        return self if self._verb in ("search", "best") else None

    def name_words(self):
        return frozenset()

    def frequencies(self, wanted):
        return dict.fromkeys(wanted, 1)

    def search(self, asked, query_vector):
        self._fail("search")
        return self

    def best_of(self, lanes, conversation, count):
        self._fail("best")

    def _fail(self, verb):
        if self._verb == verb:
            raise OSError("no memory left")


@pytest.mark.parametrize("verb", ["find", "search"])
def test_broken_vectors_leave_the_words(library, caplog, verb):
    """L1: vectors are a part like any other."""
    library.add("miso is my cat")
    asked = request("cat miso", query_vector=STATIC.embed(["cat miso"])[0])
    found = library.read(lambda unit: search(unit, asked, Broken(verb)))
    assert (texts(found), found.missing) == (["miso is my cat"], ("vectors",))
    assert "no memory left" in caplog.text


def test_a_shelf_that_breaks_while_it_is_read_leaves_its_lanes_missing(library, caplog):
    """L1: nothing is claimed of what could not be searched."""
    library.add("miso is my cat")
    asked = request("cat miso", query_vector=STATIC.embed(["cat miso"])[0])
    found = library.read(lambda unit: search(unit, asked, Broken("best")))
    assert (found.hits, found.missing) == ((), ("long_term", "episodic"))
    assert "no memory left" in caplog.text


def test_a_space_that_is_too_large_to_compare_by_the_way_says_so(library):
    """L1: until it is in memory it is found by its words, and the answer tells."""
    library.add("miso is my cat")
    asked = request("cat miso", query_vector=STATIC.embed(["cat miso"])[0])
    found = library.read(lambda unit: search(unit, asked, Broken("nothing: it is not there")))
    assert (texts(found), found.missing) == (["miso is my cat"], ("vectors",))


@WAYS
def test_three_turns_show_everything_once(library, ask):
    """L3: A B C, then D E F, then G H."""
    library.add_all([f"tea of kind {letter * 4}" for letter in "abcdefgh"])
    shown: list[str] = []
    sizes = []
    for _ in range(3):
        found = ask(library, "which tea", limit=3, excluded_refs=frozenset(shown))
        shown.extend(one.entry.ref for one in found.hits)
        sizes.append(len(found.hits))
    assert (sizes, len(set(shown))) == ([3, 3, 2], 8)


@WAYS
def test_messages_in_view_are_not_recalled(library, ask):
    """L9: memory does not echo the conversation."""
    seen = library.add("my cat miso is ill", conversation="now", position=0)
    library.add("my cat miso is well again", conversation="now", position=1)
    found = ask(library, "cat miso", conversation="now", visible_hashes=frozenset([seen.content_hash]))
    assert texts(found) == ["my cat miso is well again"]


@WAYS
def test_a_statement_stands_in_for_the_records_it_rests_on(library, ask):
    """L10: a block states a fact once."""
    said = library.add("By the way, my cat is called Miso, did I tell you?", conversation="then")
    library.add("The cat is called Miso", sources=(said.id,))
    assert texts(ask(library, "what is my cat called")) == ["The cat is called Miso"]


@WAYS
def test_what_was_learned_from_a_message_does_not_hide_the_rest_of_it(library, ask):
    """L10: of a message about two things, the question asks for the other."""
    said = library.add("Call me Max. My flight to Oslo leaves at nine on Friday from gate B12.", conversation="then")
    learned = library.add("Call the user Max", sources=(said.id,))
    assert texts(ask(library, "When does my flight to Oslo leave?")) == [said.text]
    assert set(texts(ask(library, "Where does Max go?"))) == {said.text, learned.text}


@WAYS
def test_what_was_learned_is_worth_what_it_says_itself(library, ask):
    """L10: it comes beside its record only by its own words, at its own score."""
    said = library.add("We use Postgres 15, and Grace owns the migration runbook of the wiki", conversation="then")
    learned = library.add("We use Postgres 15", sources=(said.id,))
    question = "Who owns the migration runbook of our Postgres 15?"
    alone = ask(library, question, lanes=(Lane.LONG_TERM,), score_min=0.0).hits
    together = ask(library, question, score_min=0.0).hits
    assert [hit.entry.ref for hit in together] == [said.ref, learned.ref]
    assert together[1].score == pytest.approx(alone[0].score)


@WAYS
def test_what_was_learned_from_messages_in_view_is_not_recalled(library, ask):
    """L9, L3: it is passed over before the cut, and what rests on something else too is not."""
    seen = library.add("my cat miso is ill", conversation="now", position=0)
    gone = library.add("my cat miso eats tuna", conversation="then", position=0)
    both = library.add("The cat Miso is ill from tuna", sources=(seen.id, gone.id))
    for number in range(3):
        library.add(f"Cat Miso is ill, {number}", sources=(seen.id,))
    fields = {"conversation": "now", "lanes": (Lane.LONG_TERM,), "limit": 1}
    for sight in ({"visible_hashes": frozenset([seen.content_hash])}, {"seen_since": 0.0}):
        assert [hit.entry.ref for hit in ask(library, "cat miso ill", **fields, **sight).hits] == [both.ref]


@WAYS
def test_what_is_gone_is_not_recalled(library, ask):
    """L7: deleted and expired entries stay out, by words and by meaning."""
    library.delete(library.add("my cat is called Miso"))
    library.add("my cat is called Mochi", expires_at=900.0)
    assert ask(library, "what is my cat called").hits == ()


def test_as_of_answers_from_what_was_known_then(library):
    """L7: the past is asked, with the past's own word frequencies."""
    old = library.add("my cat is called Miso", at=100.0)
    library.delete(old, at=200.0)
    library.add("my cat is called Mochi", at=300.0)
    ask = request("what is my cat called")
    assert texts(library.read(lambda unit: search_as_of(unit, ask, 150.0))) == ["my cat is called Miso"]
    assert texts(library.read(lambda unit: search_as_of(unit, ask, 250.0))) == []
    assert texts(library.read(lambda unit: search_as_of(unit, ask, 350.0))) == ["my cat is called Mochi"]


def test_as_of_now_weighs_as_a_recall_by_words_does(library):
    """L7: what is known now is asked for like the past, and found as well."""
    library.add_all(FACTS)
    for position, said in enumerate(["Did you feed the cat?", "Miso had tuna", "The script is slow"]):
        library.add(said, conversation="then", position=position)
    ask = request("what is my cat called", score_min=0.0)
    then = library.read(lambda unit: search_as_of(unit, ask, 900.0))
    now = {one.entry.id: one.score for one in by_words(library, ask.text, score_min=0.0).hits}
    weighed = {one.entry.id: one.score for one in then.hits}
    assert weighed == pytest.approx({entry_id: now[entry_id] for entry_id in weighed})
    assert texts(then)[0] == "My cat is called Miso"


@WAYS
def test_the_same_question_gets_the_same_answer(library, ask):
    """L6: same input, same parts ready, same output."""
    library.add_all([f"note {number} on tea and cats" for number in range(30)])
    assert ask(library, "tea and cats") == ask(library, "tea and cats")


def test_the_floor_is_for_the_best_and_the_rest_may_be_a_little_weaker():
    """L5: what stands beside a good answer helps; alone it would not have been worth saying."""
    best, next_best = hit("a", id="a", score=0.5), hit("b", id="b", score=0.5 * FLOOR_SHARE)
    weaker = hit("c", id="c", score=0.5 * FLOOR_SHARE - 0.01)
    assert above_floor([best, next_best, weaker], 0.5) == [best, next_best]
    assert above_floor([next_best, weaker], 0.5) == []
    assert above_floor([], 0.5) == []
