"""A whole recall on a real store."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from afterturn.base.config import Config
from afterturn.base.errors import DeadlineExceeded, StoreError
from afterturn.base.types import Lane, Scope
from afterturn.embedders.static import StaticEmbedder
from afterturn.recall.lanes import RecallRequest, recall, recall_as_of
from afterturn.recall.vectors import VectorIndex

ADA = Scope("default", ("user:ada",))
STATIC = StaticEmbedder()
SCORE_MIN = Config().recall_score_min


def request(text: str, **fields) -> RecallRequest:
    return RecallRequest(text=text, **{"scope": ADA, "now": 1000.0, "limit": 8, "score_min": SCORE_MIN, **fields})


def by_words(library, text: str, **fields):
    return library.read(lambda unit: recall(unit, request(text, **fields)))


def hybrid(library, text: str, **fields):
    library.embed(STATIC)
    asked = request(text, query_vector=STATIC.embed([text])[0], **fields)
    index = VectorIndex(STATIC.identity, 1 << 22)
    return library.read(lambda unit: recall(unit, asked, index))


def texts(found) -> list[str]:
    return [hit.entry.text for hit in found.hits]


FACTS = ["My cat is called Miso", "I am allergic to peanuts", "The deploy script lives in tools/ship", "I prefer tea"]


@pytest.mark.parametrize("ask", [by_words, hybrid])
def test_a_question_finds_its_answer(library, ask):
    """L6: with vectors and without."""
    library.add_all(FACTS)
    assert texts(ask(library, "what's my cat called?")) == ["My cat is called Miso"]


@pytest.mark.parametrize("ask", [by_words, hybrid])
@pytest.mark.parametrize(
    "small_talk", ["How is the weather today?", "Tell me a joke, please", "ok thanks", "What is 2+2?", "Good morning!"]
)
def test_small_talk_finds_nothing(library, ask, small_talk):
    """L5: recalling nothing is a good answer."""
    library.add_all(FACTS)
    assert ask(library, small_talk).hits == ()


def test_an_acknowledgement_matches_not_even_itself(library):
    """L5: "ok" was said a hundred times and means nothing."""
    library.add("ok", conversation="old")
    assert by_words(library, "ok").hits == ()


def test_meaning_finds_what_shares_no_word(library):
    """L6: vectors bring in what the words alone would miss."""
    library.add_all([*FACTS, "She is a lawyer"])
    question = "Who works as an attorney?"
    assert by_words(library, question).hits == ()
    assert texts(hybrid(library, question)) == ["She is a lawyer"]


def test_a_recall_without_vectors_says_so(library):
    """L1: degraded is not empty."""
    library.add_all(FACTS)
    assert by_words(library, "my cat").missing == ("vectors",)
    assert hybrid(library, "my cat").missing == ()


def test_a_recall_before_the_last_entry_has_its_vector_says_so(library):
    """L1: what was just added can be found by its words alone, and the answer tells."""
    library.add_all(FACTS)
    library.embed(STATIC)
    library.add("my cat sleeps all day")
    asked = request("my cat", query_vector=STATIC.embed(["my cat"])[0])
    index = VectorIndex(STATIC.identity, 1 << 22)
    found = library.read(lambda unit: recall(unit, asked, index))
    assert (len(found.hits), found.missing) == (2, ("vectors",))


def test_hits_tell_why_they_were_found(library):
    """L6: words, likeness and the score that came of them."""
    library.add_all(FACTS)
    [hit] = hybrid(library, "what's my cat called?").hits
    assert hit.terms == ("cat", "call")
    assert hit.similarity == pytest.approx(0.66, abs=0.02)
    assert hit.score > hit.lexical > 0


def test_lanes_are_disjoint_and_named(library):
    """L1: statements, this conversation's records, other conversations' records."""
    library.add("miso is my cat")
    library.add("my cat miso is ill", conversation="now")
    library.add("miso the cat was bought in May", conversation="then")
    found = by_words(library, "cat miso", conversation="now")
    assert {hit.lane: hit.entry.text for hit in found.hits} == {
        Lane.LONG_TERM: "miso is my cat",
        Lane.SHORT_TERM: "my cat miso is ill",
        Lane.EPISODIC: "miso the cat was bought in May",
    }


def test_without_a_conversation_every_record_is_episodic(library):
    """L1: a direct search is in no conversation."""
    library.add("my cat miso is ill", conversation="now")
    assert [hit.lane for hit in by_words(library, "cat miso").hits] == [Lane.EPISODIC]


class BrokenIndex:
    """The real index, one lane of which fails."""

    def __init__(self, index, lane: Lane, error: Exception) -> None:
        self._index = index
        self._lane = lane
        self._error = error

    def __getattr__(self, name: str):
        return getattr(self._index, name)

    def matches(self, query, wanted, **bounds):
        if query.lane is self._lane:
            raise self._error
        return self._index.matches(query, wanted, **bounds)


def broken_unit(unit, lane: Lane, error: Exception) -> Any:
    return SimpleNamespace(index=BrokenIndex(unit.index, lane, error), check=unit.check)


def test_a_broken_lane_fails_alone_and_is_reported(library, caplog):
    """L1: the others are whole, the missing one is named and its traceback logged."""
    library.add("miso is my cat")
    library.add("miso the cat was bought in May", conversation="then")
    broken = StoreError("the disk failed")
    with caplog.at_level(logging.ERROR):
        found = library.read(lambda unit: recall(broken_unit(unit, Lane.EPISODIC, broken), request("cat miso")))
    assert texts(found) == ["miso is my cat"]
    assert found.missing == ("vectors", "episodic")
    assert "the disk failed" in caplog.text


def test_a_recall_that_was_given_up_blames_no_lane(library):
    """L1: an interrupted search is the caller's doing."""
    library.add("miso is my cat")
    given_up = DeadlineExceeded("stopped")
    with pytest.raises(DeadlineExceeded):
        library.read(lambda unit: recall(broken_unit(unit, Lane.LONG_TERM, given_up), request("cat")))


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
        library.read(lambda unit: recall(Impatient(unit, 2), request("tea")))


def test_reading_the_past_stops_when_its_caller_has_given_up(library):
    """L7: every entry of that time is read, so every one may be the last."""
    library.add_all([f"tea number {number}" for number in range(5)])
    with pytest.raises(DeadlineExceeded):
        library.read(lambda unit: recall_as_of(Impatient(unit, 4), request("tea"), 900.0))


def test_broken_vectors_leave_the_words(library, caplog):
    """L1: vectors are a part like any other."""

    class Broken:
        def compare(self, unit, scope, query_vector):
            raise OSError("no memory left")

    library.add("miso is my cat")
    asked = request("cat miso", query_vector=STATIC.embed(["cat miso"])[0])
    found = library.read(lambda unit: recall(unit, asked, Broken()))
    assert (texts(found), found.missing) == (["miso is my cat"], ("vectors",))
    assert "no memory left" in caplog.text


def test_three_turns_show_everything_once(library):
    """L3: A B C, then D E F, then G H."""
    library.add_all([f"tea of kind {letter * 4}" for letter in "abcdefgh"])
    shown: list[str] = []
    sizes = []
    for _ in range(3):
        found = hybrid(library, "which tea", limit=3, excluded_refs=frozenset(shown))
        shown.extend(hit.entry.ref for hit in found.hits)
        sizes.append(len(found.hits))
    assert (sizes, len(set(shown))) == ([3, 3, 2], 8)


def test_messages_in_view_are_not_recalled(library):
    """L9: memory does not echo the conversation."""
    seen = library.add("my cat miso is ill", conversation="now")
    library.add("my cat miso is well again", conversation="now")
    found = by_words(library, "cat miso", conversation="now", visible_hashes=frozenset([seen.content_hash]))
    assert texts(found) == ["my cat miso is well again"]


def test_a_statement_stands_in_for_the_records_it_rests_on(library):
    """L10: a block states a fact once."""
    said = library.add("By the way, my cat is called Miso, did I tell you?", conversation="then")
    library.add("The cat is called Miso", sources=(said.id,))
    assert texts(by_words(library, "what is my cat called")) == ["The cat is called Miso"]


def test_what_is_gone_is_not_recalled(library):
    """L7: deleted and expired entries stay out, by words and by meaning."""
    library.delete(library.add("my cat is called Miso"))
    library.add("my cat is called Mochi", expires_at=900.0)
    assert hybrid(library, "what is my cat called").hits == ()


def test_as_of_answers_from_what_was_known_then(library):
    """L7: the past is asked, with the past's own word frequencies."""
    old = library.add("my cat is called Miso", at=100.0)
    library.delete(old, at=200.0)
    library.add("my cat is called Mochi", at=300.0)
    ask = request("what is my cat called")
    assert texts(library.read(lambda unit: recall_as_of(unit, ask, 150.0))) == ["my cat is called Miso"]
    assert texts(library.read(lambda unit: recall_as_of(unit, ask, 250.0))) == []
    assert texts(library.read(lambda unit: recall_as_of(unit, ask, 350.0))) == ["my cat is called Mochi"]


def test_the_same_question_gets_the_same_answer(library):
    """L6: same input, same parts ready, same output."""
    library.add_all([f"note {number} on tea and cats" for number in range(30)])
    assert hybrid(library, "tea and cats") == hybrid(library, "tea and cats")
