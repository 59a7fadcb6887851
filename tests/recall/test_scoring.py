"""How words, meaning and what is known of an entry become one score."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterturn.recall.duplicates import replace_sources
from afterturn.recall.query import Query, TermWeights, weigh_terms
from afterturn.recall.scoring import (
    RECENT,
    SEARCH_SCORE_MIN,
    ScoredRow,
    best_first,
    context_weight,
    evidence,
    in_context,
    is_own,
    midpoint,
    prior,
    saturated,
    score,
    worth,
)
from afterturn.recall.store_search import LexicalScorer, Neighbours
from afterturn.testing.entries import hit
from afterturn.types import Hit, IndexedEntry, Kind, Lane, LaneQuery, Origin, Scope

SPACE = "user:ada"
AT_LENGTH, IN_SHORT = "By the way, I really like oolong tea", "Likes oolong tea"
STATED = IndexedEntry(1, SPACE, Kind.STATEMENT, Origin.USER, None, None, None, None, ())
shares = st.floats(0, 1)
likenesses = st.floats(0, 1)
weights = st.floats(0, 200)
flags = st.sampled_from((0.0, 1.0))
ages = st.integers(0, RECENT).map(float)
counts = st.floats(0.001, 1000)
lengths = st.floats(0, 10_000)


def scored(share: float, likeness: float, *, total: float = 12.0, place: float = 1.0) -> float:
    return score(evidence(share, worth(total, total), likeness), place, 1.5)


def said(position: int, *terms: str, length: int) -> IndexedEntry:
    """A message with these terms, and others up to that length."""
    others = [f"other{number}" for number in range(length - len(terms))]
    record = (position, SPACE, Kind.RECORD, Origin.USER, None, "c1", None, position)
    return IndexedEntry(*record, (*terms, *others))


def asked_for_honey(entry: IndexedEntry, *around: IndexedEntry) -> ScoredRow:
    """In a space where nothing has a vector."""
    honey = TermWeights({"honey": 2.0}, {"honey": 1}, 2.0, 2.0, 1.0)
    scorer = LexicalScorer(
        LaneQuery(Scope("default", (SPACE,)), 0.0), Query(("honey",), frozenset(), {SPACE: honey}), {}
    )
    return scorer.score(entry, Neighbours([entry, *around]))


def light_share() -> float:
    """Of a question of a light word and another as rare, the part that the other weighs."""
    weighed = weigh_terms(("honey", "great"), {}, 100)
    return weighed.distinctive / weighed.total


PINNED = [
    ("the only term of eight that was asked for", saturated(1.0, 8.0), 0.833),
    ("what a message of ten terms says of its neighbours", context_weight(10.0), 0.75),
    ("in the next message, of ten terms", asked_for_honey(said(1, length=2), said(2, "honey", length=10)).share, 0.75),
    (
        "in the one behind it, after thirty terms",
        asked_for_honey(said(1, length=2), said(2, length=30), said(3, "honey", length=10)).share,
        0.532,
    ),
    ("like the question, between two that are not", in_context(0.8, 0.2, 0.2), 0.575),
    ("a question that weighs 12, of which 8 tell", worth(12.0, 8.0), 1.25),
    ("beside a light word as rare", light_share(), 0.625),
    ("named, the user's own, 200 are newer", prior(1.0, 1.0, 200.0), 1.72),
    ("even in a space of one", midpoint(1), 0.8),
    ("even in a space of a hundred", midpoint(100), 1.356),
    ("even in a space of a million", midpoint(1_000_000), 1.55),
    ("even to a question of ten words", midpoint(100, 10), 1.193),
    ("even to a pasted page", midpoint(100, 48), 1.085),
    ("evidence of 0.9, where 1.2 is even", score(0.9, 1.0, 1.2), 0.5),
    ("an old statement that holds nothing of it", asked_for_honey(STATED).score, 0.447),
]


@pytest.mark.parametrize("what, found, pinned", PINNED, ids=[what for what, _, _ in PINNED])
def test_the_formula_is_changed_on_purpose_alone(what, found, pinned):
    """L6: `afterturn eval` decides such changes, on conversations of several kinds; then the figure here follows."""
    assert round(found, 3) == pinned


@given(shares, likenesses, weights, flags, flags, ages)
def test_a_score_is_between_zero_and_one(share, likeness, total, named, own, newer):
    """L5: whatever the parts say, so that a floor has a meaning."""
    assert 0 < scored(share, likeness, total=total, place=prior(named, own, newer)) < 1


@given(shares, shares, likenesses)
def test_more_words_never_score_less(one, other, likeness):
    """L6: the score grows with each of its parts."""
    assert scored(min(one, other), likeness) <= scored(max(one, other), likeness)


@given(shares, st.floats(-1, 1), st.floats(-1, 1))
def test_more_likeness_never_scores_less(share, one, other):
    """L6: the score grows with each of its parts."""
    assert scored(share, min(one, other)) <= scored(share, max(one, other))


@given(shares, likenesses, weights, weights)
def test_the_same_share_of_a_question_that_says_more_is_worth_more(share, likeness, one, other):
    """L5, L6: all of "the tea?" is less than all of a sentence."""
    assert scored(share, likeness, total=min(one, other)) <= scored(share, likeness, total=max(one, other))


@given(weights, weights)
def test_light_words_are_worth_less_than_others_of_the_same_weight(total, telling):
    """L5: "telling" is what is not light."""
    assert worth(total, min(total, telling)) <= worth(total, total)


@given(st.integers(0, 10_000), st.integers(0, 60), st.integers(0, 60))
def test_a_question_of_more_words_never_needs_more(documents, one, other):
    """L5: the more it says, the less of it any one message holds; up to seven words there is no difference."""
    assert 0 < midpoint(documents, max(one, other)) <= midpoint(documents, min(one, other)) <= midpoint(documents)
    assert midpoint(documents, 7) == midpoint(documents)


def test_likeness_alone_reaches_the_floor_only_when_it_is_great():
    """L5: what merely sounds alike is not recalled, be it the user's own newest word."""
    floor, newest = SEARCH_SCORE_MIN, prior(0.0, 1.0, 0.0)
    assert scored(0.0, 0.35, place=newest) < floor < scored(0.0, 1.0, place=newest)


def test_a_whole_question_found_in_an_entry_reaches_the_floor():
    """L5: however old, and by words alone."""
    assert scored(saturated(1.0, 8.0), 0.3, place=prior(0.0, 1.0, float(RECENT))) > SEARCH_SCORE_MIN


@given(flags, flags, ages)
def test_being_named_the_users_own_and_recent_all_speak_for_an_entry(named, own, newer):
    """L6: softly, so that none of them outweighs what was asked."""
    place = prior(named, own, newer)
    assert prior(0.0, own, newer) <= place <= prior(1.0, own, newer)
    assert prior(named, 0.0, newer) <= place <= prior(named, 1.0, newer)
    assert prior(named, own, float(RECENT)) <= place <= prior(named, own, 0.0)
    assert 1 < place < 2.5


@given(counts, counts, lengths)
def test_more_occurrences_count_more_and_never_more_than_one(one, other, length):
    """L6: a word said ten times is not ten words."""
    assert 0 <= saturated(min(one, other), length) <= saturated(max(one, other), length) <= 1


@given(counts, lengths, lengths)
def test_a_word_counts_less_in_a_longer_entry(count, one, other):
    """L6: short turns and long documents alike."""
    assert saturated(count, max(one, other)) <= saturated(count, min(one, other))


@given(lengths, lengths)
def test_a_longer_message_says_less_of_its_neighbours(one, other):
    """L6: an answer of pages is about itself."""
    assert 0 < context_weight(max(one, other)) <= context_weight(min(one, other)) <= 1


@given(likenesses, likenesses, likenesses)
def test_likeness_in_context_lies_between_its_parts(own, before, after):
    """L6: without neighbours it is the entry's own."""
    assert min(own, before, after) - 1e-9 <= in_context(own, before, after) <= max(own, before, after) + 1e-9
    assert in_context(own, own, own) == pytest.approx(own)


def test_statements_and_what_the_user_said_are_the_users_own():
    """L6: a prior for the user's own words."""
    own = [is_own(kind, origin) for kind in (Kind.STATEMENT, Kind.RECORD) for origin in (Origin.USER, Origin.AGENT)]
    assert own == [True, True, True, False]


def test_equal_scores_go_by_recency_and_then_by_id():
    """L6: ties are broken the same way every time."""
    hits = [hit("x", id="b", occurred_at=1.0), hit("y", id="a", occurred_at=1.0), hit("z", id="c", occurred_at=2.0)]
    assert [item.entry.id for item in best_first(hits)] == ["c", "a", "b"]


def answering(
    text: str, lexical: float = 0.5, similarity: float | None = None, *terms: str, score: float = 0.7, **fields: Any
) -> Hit:
    """A hit that reaches so much of the question, whatever its score is."""
    return replace(hit(text, terms=terms, score=score, **fields), lexical=lexical, similarity=similarity)


def heard(*told: Any, text: str = AT_LENGTH, score: float = 0.7) -> Hit:
    return answering(text, *told, id="r1", lane=Lane.EPISODIC, score=score)


def learned(*told: Any, id: str = "s1", text: str = IN_SHORT, score: float = 0.7, **fields: Any) -> Hit:
    return answering(text, *told, id=id, score=score, sources=("r1", "r2"), **fields)


def left(*hits: Hit) -> list[tuple[str, float]]:
    return [(item.entry.id, item.score) for item in replace_sources(hits)]


def test_a_statement_takes_the_place_of_its_best_record():
    """L10: it answers as well, and only its standing is less; it is shown in the record's place and worth as much."""
    other = hit("something else", id="s2", score=0.5)
    assert left(heard(score=0.9), other, learned(score=0.3)) == [("s1", 0.9), ("s2", 0.5)]


def test_a_quotation_gives_way_to_a_message_that_says_more():
    """L10, V11: a fact is stated once, and nothing that was said beside it is lost."""
    quotes = {"origin": Origin.BACKGROUND_REVIEW, "metadata": {"quotes": "user"}}
    said = "my sister Ruth bakes bread and plays chess in Leeds on sundays"
    part = learned(text="my sister Ruth bakes bread", score=0.8, **quotes)
    assert left(part, heard(text=said, score=0.4)) == [("r1", 0.8)]
    assert left(part) == [("s1", 0.8)]
    nearly = learned(text="my sister Ruth bakes bread and plays chess in Leeds", score=0.8, **quotes)
    assert left(heard(text=said, score=0.9), nearly) == [("s1", 0.9)]


def test_a_statement_that_matches_better_keeps_its_own_score():
    """L10: its record says nothing new."""
    assert left(learned(score=0.6), heard(score=0.4)) == [("s1", 0.6)]


@pytest.mark.parametrize(
    "said, stated",
    [
        ((0.4, None, "oolong", "tea"), (0.6, None, "tea")),
        ((0.5,), (0.39,)),
        ((0.5, 0.5), (0.5, 0.39)),
        ((0.5, 0.5), (0.5, None)),
    ],
    ids=["a word", "what its words weigh", "its meaning", "a meaning that nobody knows yet"],
)
def test_a_record_that_answers_better_stays(said, stated):
    """L10: what was learned from a message does not hide it, nor is it worth more for that."""
    assert left(heard(*said, score=0.9), learned(*stated, score=0.6)) == [("r1", 0.9), ("s1", 0.6)]


@pytest.mark.parametrize(
    "said, stated",
    [
        ((0.5, None, "oolong", "realli"), (0.4, None, "oolong")),
        ((0.5, 0.5), (0.5, 0.41)),
        ((0.5, 0.3), (0.5, None)),
        ((0.5, None), (0.5, 0.0)),
    ],
    ids=["a light word", "a little of its meaning", "a meaning like most", "no meaning to compare with"],
)
def test_a_record_that_answers_hardly_better_goes(said, stated):
    """L10: no two sentences say the same in the same words."""
    assert left(heard(*said), learned(*stated)) == [("s1", 0.7)]


@pytest.mark.parametrize(
    "text, is_left",
    [
        ("I really like oolong tea", False),
        ("I like oolong tea, Grace brought some", False),
        ("I like oolong tea. My flight to Oslo leaves on Friday", True),
        (f"I like oolong tea. {'Yes, really! ' * 20}", True),
    ],
)
def test_a_record_that_says_much_more_stays(text, is_left):
    """L10: the question may name what both do, and ask for the rest of the message."""
    found = left(heard(text=text), learned())
    assert found == ([("r1", 0.7), ("s1", 0.7)] if is_left else [("s1", 0.7)])


def test_a_less_trusted_statement_does_not_silence_a_record():
    """L10, G2: what the web says about a user's words stands beside them, not in their place."""
    assert [id for id, _ in left(heard(), learned(origin=Origin.WEB))] == ["r1", "s1"]


def test_the_best_statement_that_may_stand_in_does():
    """L10: a better-ranked one that is less trusted, or says less, does not keep another from doing so."""
    web = learned(score=0.5, origin=Origin.WEB)
    less = learned(id="s2", text="Likes something", score=0.4)
    assert [id for id, _ in left(heard(), web, less, learned(id="s3", score=0.3))] == ["s3", "s1", "s2"]


@given(
    st.lists(
        st.tuples(st.sampled_from("rs"), st.sampled_from("abc"), shares), max_size=8, unique_by=lambda one: one[:2]
    )
)
def test_what_is_left_without_repeats_is_still_best_first(drawn):
    """L5, L10: the floor looks at the first."""
    hits = [
        hit(name, id=f"{kind}{name}", lane=Lane.EPISODIC, score=value)
        if kind == "r"
        else hit(name, id=f"{kind}{name}", score=value, sources=(f"r{name}",))
        for kind, name, value in drawn
    ]
    scores = [item.score for item in replace_sources(best_first(hits))]
    assert scores == sorted(scores, reverse=True)
