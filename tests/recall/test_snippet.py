"""Which part of a long memory is shown."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from afterturn.recall import block
from afterturn.recall.block import best_window
from afterturn.text import terms

pieces = st.text(max_size=40) | st.text(st.sampled_from("ab cé猫👍🏽\u0301\u200d\n"), max_size=40)
texts = st.builds(lambda piece, times, end: piece * times + end, pieces, st.integers(0, 60), pieces)


@given(texts, st.integers(64, 600))
def test_a_window_fits(text, bytes_max):
    """H9: never more bytes than allowed, marks included."""
    assert len(best_window(text, terms(text)[:3], bytes_max).encode()) <= bytes_max


@given(texts, st.integers(64, 600))
def test_a_window_is_part_of_the_text(text, bytes_max):
    """H9: nothing is made up; only the marks are added."""
    assert best_window(text, terms(text)[:3], bytes_max).removeprefix("…").removesuffix("…") in text


@given(st.text(max_size=64))
def test_a_short_text_is_whole(text):
    """H9: what fits is shown as it is."""
    assert best_window(text, (), 512) == text


def test_the_window_lies_where_the_words_are():
    """H9: a long memory shows its best-matching part."""
    text = "filler words go here. " * 100 + "The cat is called Miso, she was born in May. " + "more filler. " * 100
    shown = best_window(text, terms("what is my cat called"), 200)
    assert "The cat is called Miso" in shown
    assert (shown[0], shown[-1]) == ("…", "…")


def test_different_words_count_more_than_one_word_repeated():
    """H9: the window covers as much of the question as it can."""
    text = "cat " * 50 + "filler " * 100 + "the cat is called Miso"
    assert "Miso" in best_window(text, ("cat", "call"), 120)


def test_without_a_matching_word_the_beginning_is_shown():
    """H9: a hit by meaning alone has no best place."""
    shown = best_window("Once upon a time " + "there was a king " * 100, (), 100)
    assert shown.startswith("Once upon a time")
    assert shown.endswith("…")


def test_cuts_fall_between_words():
    """H9: no half words in a text that has spaces."""
    text = " ".join(f"word{number}" for number in range(500))
    shown = best_window(text, ("word250",), 120).strip("…")
    assert set(shown.split()) <= set(text.split())


def test_a_cut_keeps_accents_with_their_letters():
    """H9: not inside a combining sequence."""
    for size in range(64, 80):
        shown = best_window("e\u0301" * 200, (), size).removesuffix("…")
        assert unicodedata.normalize("NFC", shown) == "é" * (len(shown) // 2)


def test_a_cut_keeps_an_emoji_whole():
    """H9: skin tones and joined families stay together."""
    for size in range(64, 90):
        shown = best_window("👩🏽\u200d💻" * 50, (), size).removesuffix("…")
        assert shown == "👩🏽\u200d💻" * (len(shown) // 4)


def test_a_long_chinese_text_shows_the_matching_part():
    """H9: scripts without spaces have windows too."""
    text = "今天天气很好。" * 100 + "我的猫叫味噌。" + "明天也许会下雨。" * 100
    assert "味噌" in best_window(text, terms("味噌"), 120)


def test_a_window_of_one_word_lies_where_it_is_said_most():
    """H9: a passing mention at the beginning is not what a record is about."""
    text = "The oven is off. " + "filler words go here. " * 100 + "oven, oven and oven again: the oven must be cleaned."
    assert "must be cleaned" in best_window(text, ("oven",), 120)


def test_words_of_a_giant_text_are_looked_at_twice_at_most(monkeypatch):
    """H9: once in passing, and once more where they are worth it, however often they match."""
    looked = 0

    def counted(text: str) -> tuple[str, ...]:
        nonlocal looked
        looked += len(text)
        return terms(text)

    monkeypatch.setattr(block, "terms", counted)
    best_window("tea oolong " * 100_000, ("tea", "oolong"), 512)
    assert 0 < looked <= 2 * 16_384
