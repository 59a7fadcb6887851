"""Text as the lexical index sees it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterturn.text import TERM_CHARS_MAX, TERMS_MAX, content_hash, is_acknowledgement, read_words, terms, words


@pytest.mark.parametrize(
    "one, other",
    [
        ("running shoes", "run shoe"),
        ("CAFÉ", "cafe"),
        ("Straße", "STRASSE"),
        ("ｆｕｌｌ　ｗｉｄｔｈ", "full width"),
        ("user_id", "user id"),
        ("Ёлка", "елка"),
        ("𝐀da", "ada"),
    ],
)
def test_words_that_people_take_for_the_same_are_the_same(one: str, other: str) -> None:
    """L5: case, accents, width and English endings are folded."""
    assert terms(one) == terms(other) != ()


@pytest.mark.parametrize(
    "text, part",
    [
        ("東京タワーに行きました", "東京"),
        ("나는 고양이를 좋아한다", "고양이"),
        ("ฉันชอบแมว", "แมว"),
        ("मुझे चाय पसंद है", "चाय"),
        ("أحب القطط كثيرا", "القطط"),
        ("я люблю чай", "чай"),
        ("μου αρέσει ο καφές", "καφές"),
    ],
)
def test_every_script_can_be_searched(text: str, part: str) -> None:
    """L5: a word of a text is found by its terms, also where a script has no spaces."""
    assert set(terms(part)) <= set(terms(text))
    assert terms(part)


def test_stop_words_match_nothing() -> None:
    """L5: what every text contains says nothing about any."""
    assert terms("what is it that you are about to do?") == ()


@pytest.mark.parametrize("text", ["ok", "OK!", "thanks a lot", "Hi there", "yes please", "great, thank you"])
def test_acknowledgements_are_known(text: str) -> None:
    """R6: said to the agent, and nothing to recall by."""
    assert is_acknowledgement(text)


@pytest.mark.parametrize("text", ["ok, book the table", "thanks for the fish recipe", "ok" + "!" * 300])
def test_an_acknowledgement_with_content_is_a_question(text: str) -> None:
    """R6: one word of content is worth a recall, and what goes on for long was meant to say something."""
    assert not is_acknowledgement(text)
    assert read_words(text) == (words(text), terms(text))


@pytest.mark.parametrize("text", ["ok", "thanks a lot", "what is it that you are about to do?"])
def test_what_asks_for_nothing_has_words_and_no_terms(text: str) -> None:
    """L5, R6: for who reads both at once."""
    assert read_words(text) == (words(text), ())


@given(st.text())
def test_terms_are_bounded_and_stable(text: str) -> None:
    """G5: no input makes them many, long or different the second time."""
    found = terms(text)
    assert found == terms(text)
    assert len(found) <= TERMS_MAX
    assert all(0 < len(term) <= TERM_CHARS_MAX for term in found)


@given(st.text())
def test_the_hash_ignores_case_and_white_space_only_in_looks(text: str) -> None:
    """G6: the same statement, however it is typed, is the same statement."""
    assert content_hash(f"  {text}\n") == content_hash(text)
    assert len(content_hash(text)) == 32


def test_different_statements_have_different_hashes() -> None:
    """G6: one letter makes another statement."""
    assert content_hash("Ada likes tea") != content_hash("Ada likes tee")
