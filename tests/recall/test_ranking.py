"""How words and meaning become one score."""

from hypothesis import given
from hypothesis import strategies as st

from afterturn.base.config import Config
from afterturn.base.types import Lane, Origin
from afterturn.recall.ranking import SIMILARITY_MIN, fuse, in_order, without_repeats
from afterturn.testing.entries import hit

shares = st.floats(0, 1)
cosines = st.floats(-1, 1)


@given(shares, cosines | st.none())
def test_a_score_is_between_zero_and_one(lexical, similarity):
    """L5: whatever the parts say."""
    assert 0 <= fuse(lexical, similarity) <= 1


@given(shares, shares, cosines)
def test_more_words_never_score_less(one, other, similarity):
    """L6: the score grows with each of its parts."""
    assert fuse(min(one, other), similarity) <= fuse(max(one, other), similarity)


@given(shares, cosines, cosines)
def test_more_likeness_never_scores_less(lexical, one, other):
    """L6: the score grows with each of its parts."""
    assert fuse(lexical, min(one, other)) <= fuse(lexical, max(one, other))


def test_likeness_alone_reaches_the_floor_only_when_it_is_great():
    """L5: what merely sounds alike is not recalled."""
    floor = Config().recall_score_min
    assert fuse(0.0, SIMILARITY_MIN) >= floor > fuse(0.0, SIMILARITY_MIN - 0.01)


def test_equal_scores_go_by_recency_and_then_by_id():
    """L6: ties are broken the same way every time."""
    hits = [hit("x", id="b", occurred_at=1.0), hit("y", id="a", occurred_at=1.0), hit("z", id="c", occurred_at=2.0)]
    assert [item.entry.id for item in in_order(hits)] == ["c", "a", "b"]


def test_a_statement_takes_the_place_of_its_best_record():
    """L10: the record was the better match; the statement is what is shown, in its place."""
    record = hit("said at length", id="r1", lane=Lane.EPISODIC, score=0.9)
    other = hit("something else", id="s2", score=0.5)
    statement = hit("said in short", id="s1", score=0.3, sources=("r1", "r2"))
    assert [item.entry.id for item in without_repeats([record, other, statement])] == ["s1", "s2"]


def test_a_less_trusted_statement_does_not_silence_a_record():
    """L10, G2: what the web says about a user's words stands beside them, not in their place."""
    record = hit("my account is 111", id="r1", lane=Lane.EPISODIC, score=0.9)
    claimed = hit("the account is 666", id="s1", score=0.5, origin=Origin.WEB, sources=("r1",))
    assert [item.entry.id for item in without_repeats([record, claimed])] == ["r1", "s1"]


def test_the_best_statement_that_is_trusted_enough_stands_in():
    """L10: a better-ranked but less trusted one does not keep another from doing so."""
    record = hit("said at length", id="r1", lane=Lane.EPISODIC, score=0.9)
    web = hit("said by the web", id="s1", score=0.5, origin=Origin.WEB, sources=("r1",))
    user = hit("said in short", id="s2", score=0.3, sources=("r1",))
    assert [item.entry.id for item in without_repeats([record, web, user])] == ["s2", "s1"]
