"""The figures of rankings, compared with values computed by hand, and properties of every ranking."""

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterturn.evaluation.datasets import Item, Question, Talk
from afterturn.evaluation.examination import (
    CUTS,
    Bm25,
    Dense,
    Miss,
    Position,
    QuestionScore,
    chosen_of,
    differences,
    intervals,
    make_miss,
    means,
    rank_figures,
    worst,
)
from afterturn.evaluation.run import BUILT_IN, sampled
from afterturn.testing.hashing import HashingEmbedder

names = st.lists(st.sampled_from("abcdefghijklmnopqrstuvwxyz"), unique=True)


def test_figures_of_a_ranking_are_those_worked_out_by_hand():
    figures = rank_figures(["x", "a", "y", "b"], ["a", "b", "c"])
    assert (figures["recall@1"], figures["recall@3"], figures["recall@5"]) == (0, 1 / 3, 2 / 3)
    assert (figures["all@20"], figures["mrr"]) == (0, 1 / 2)
    ideal = 1 + 1 / math.log2(3) + 1 / math.log2(4)
    assert figures["ndcg@10"] == pytest.approx((1 / math.log2(3) + 1 / math.log2(5)) / ideal)


@given(ranked=names, evidence=names.filter(bool))
def test_figures_are_shares_and_more_places_never_find_less(ranked: list[str], evidence: list[str]):
    figures = rank_figures(ranked, evidence)
    assert all(0 <= value <= 1 + 1e-9 for value in figures.values())
    by_cut = [figures[f"recall@{cut}"] for cut in CUTS]
    assert by_cut == sorted(by_cut)
    assert all(figures[f"all@{cut}"] == (figures[f"recall@{cut}"] == 1) for cut in CUTS)


@given(evidence=names.filter(bool))
def test_evidence_first_is_a_perfect_ranking(evidence: list[str]):
    figures = rank_figures(evidence, evidence)
    assert (figures["mrr"], figures["all@20"]) == (1, float(len(evidence) <= 20))
    assert figures["ndcg@10"] == pytest.approx(1)


def test_a_mean_is_over_the_questions_that_have_the_figure():
    outcomes = [QuestionScore("t", "c", {"a": 1.0}), QuestionScore("t", "c", {"a": 0.0, "b": 1.0})]
    assert means(outcomes) == {"a": 0.5, "b": 1.0}


def test_intervals_draw_conversations_and_are_the_same_each_time():
    outcomes = [QuestionScore("good", "c", {"a": 1.0})] * 3 + [QuestionScore("bad", "c", {"a": 0.0})]
    assert intervals(outcomes) == intervals(outcomes) == {"a": [0.0, 1.0]}


def test_one_conversation_has_no_interval():
    """An interval of no width would say that others go the same."""
    assert intervals([QuestionScore("only", "c", {"a": 1.0}), QuestionScore("only", "c", {"a": 0.5})]) == {}


def test_differences_are_taken_question_by_question():
    ours = [QuestionScore("t", "c", {"a": 1.0}), QuestionScore("t", "c", {"a": 0.25})]
    theirs = [QuestionScore("t", "c", {"a": 0.0}), QuestionScore("t", "c", {"a": 0.75})]
    assert [outcome.figures["a"] for outcome in differences(ours, theirs)] == [1.0, -0.5]


def test_nothing_asked_has_no_intervals():
    assert intervals([]) == {}


def test_bm25_is_the_textbook_formula():
    search = Bm25()
    search.add_all(["red kite", "red red fox fox", "blue whale"])
    assert search.rank("a red kite", 10) == [0, 1]
    assert search.rank("red", 10) == [1, 0]
    assert search.rank("purple", 10) == []


def test_bm25_takes_a_rare_word_for_more_than_a_common_one():
    search = Bm25()
    search.add_all(["tea with milk", "tea with lemon", "tea alone", "milk alone please today"])
    assert search.rank("tea lemon", 1) == [1]


def test_dense_search_looks_only_at_what_was_said_by_then():
    search = Dense(HashingEmbedder(), ["a red kite over the fields", "something else entirely", "red kite"])
    assert search.rank("red kite", 1, known=3) == [2]
    assert search.rank("red kite", 1, known=2) == [0]


@given(count=st.integers(0, 40), limit=st.integers(1, 50))
def test_a_sample_is_the_same_each_time_and_never_repeats(count: int, limit: int):
    questions = tuple(Question(str(number), "?", "all", "", (), 0) for number in range(count))
    chosen = chosen_of(Talk("t", (), questions), limit)
    assert len(chosen) == min(count, limit) == len(set(chosen))
    assert list(chosen) == list(chosen_of(Talk("t", (), questions), limit))
    assert sampled([question.id for question in questions], limit)[:1] == [question.id for question in questions[:1]]


def test_every_conversation_gives_other_questions():
    questions = tuple(Question(str(number), "?", "all", "", (), 0) for number in range(100))
    samples = {tuple(each.id for each in chosen_of(Talk(name, (), questions), 5)) for name in "abcdefgh"}
    assert len(samples) == 8


def miss(category: str, delivered: float, *, shown: Sequence[str] = ()) -> Miss:
    lines = ("The ferry leaves at nine.", "Why? " * 40, "It rains.", "Bring a coat.")
    items = tuple(Item(str(number), "s", "Ann", text, 0.0) for number, text in enumerate(lines))
    asked = Question("q", "When does the ferry leave?", category, "", ("0", "1", "2"), 4)
    positions = {
        "1": Position(1, 0.45, is_low=True),
        "2": Position(2, 0.44, is_low=False),
        "3": Position(3, 0.2, is_low=False),
    }
    return make_miss(Talk("talk", items, ()), asked, delivered, positions, shown)


def test_a_miss_shows_the_evidence_its_place_and_why_it_was_left_out():
    told = miss("plain", 0.5).lines()
    assert told[0] == "50% delivered, plain, talk: When does the ferry leave?"
    assert told[1] == "    evidence, not ranked: Ann: The ferry leaves at nine."
    assert told[2].startswith("    evidence, place 1, score 0.45, below the minimum score: Ann: Why? Why?")
    assert told[2].endswith("…")
    assert told[3:] == ["    evidence, place 2, score 0.44, left out: Ann: It rains.", "    instead: no block"]


def test_a_miss_lists_the_other_texts_of_the_block():
    told = miss("plain", 0.5, shown=["3", "2"]).lines()
    assert told[3:] == [
        "    evidence, place 2, score 0.44, in the block: Ann: It rains.",
        "    instead: Ann: Bring a coat.",
    ]


def test_misses_are_taken_from_each_category_in_turn():
    misses = [miss("a", 0.5), miss("a", 0.0), miss("a", 0.2), miss("b", 0.7)]
    assert [(each.category, each.delivered) for each in worst(misses, 3)] == [("a", 0.0), ("b", 0.7), ("a", 0.2)]
    assert worst([], 3) == []


def test_small_talk_is_many_lines_in_many_scripts():
    """L5: what people say without wanting anything is the same in every script."""
    assert len(set(BUILT_IN.texts)) == len(BUILT_IN.texts) >= 120
    blocks = {ord(character) >> 8 for line in BUILT_IN.texts for character in line if character.isalpha()}
    assert len(blocks) >= 10


def test_dense_order_of_equals_is_that_of_the_texts():
    search = Dense(HashingEmbedder(), ["same words"] * 3)
    assert search.rank("same words", 3, known=3) == [0, 1, 2]
