"""Words and terms for the lexical index, and the token estimate."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterturn import text
from afterturn.text import (
    TERM_CHARS_MAX,
    TERMS_MAX,
    content_hash,
    estimate_tokens,
    is_acknowledgement,
    read_words,
    terms,
    words,
)


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
def test_spellings_of_one_word_have_the_same_terms(one: str, other: str) -> None:
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
def test_an_acknowledgement_has_words_and_no_terms(text: str) -> None:
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
def test_the_hash_ignores_case_and_white_space(text: str) -> None:
    """G6: the same statement, however it is typed, is the same statement."""
    assert content_hash(f"  {text}\n") == content_hash(text)
    assert len(content_hash(text)) == 32


def test_different_statements_have_different_hashes() -> None:
    """G6: one letter makes another statement."""
    assert content_hash("Ada likes tea") != content_hash("Ada likes tee")


@given(st.text(alphabet=st.characters(max_codepoint=127)))
def test_ascii_text_has_the_same_words_as_in_the_general_analysis(given_text: str):
    """L5: one analysis for all scripts."""
    assert text.words(given_text) == text._ANY_WORD.findall(given_text.lower())


MEASURED = [
    ("我的猫叫味噌。今天天气很好,我们去公园散步吧。明天也许会下雨。", 42),
    ("私の猫はみそという名前です。今日は天気がいいので公園に行きましょう。", 36),
    ("내 고양이 이름은 미소입니다. 오늘은 날씨가 좋아서 공원에 갑니다.", 36),
    ("Мою кошку зовут Мисо. Сегодня хорошая погода, пойдём в парк.", 35),
    ("اسم قطتي ميسو. الطقس جميل اليوم فلنذهب إلى الحديقة.", 36),
    ("मेरी बिल्ली का नाम मिसो है। आज मौसम अच्छा है, चलो पार्क चलते हैं।", 66),
    ("Η γάτα μου λέγεται Μίσο και ο καιρός είναι καλός", 37),
    ("החתולה שלי נקראת מיסו ומזג האוויר נעים", 38),
    ("የኔ ድመት ሚሶ ትባላለች", 35),
    ("😀🎉👩🏽\u200d💻❤️🔥🚀🐱👍🏽", 33),
    ("def f(x: int) -> list[str]:\n    return [str(i) for i in range(x) if i % 2 == 0]\n", 31),
    ('{"id": 123456, "name": "Ada", "tags": ["a", "b"]}', 22),
    ("Mon café préféré est fermé à l'été, où es-tu allé hier soir?", 22),
    ("Donaudampfschifffahrtsgesellschaftskapitän Straßenbahnhaltestelle", 24),
    ("- [0k3x9q7m2bz8f1aa] 3 days ago, user: My cat is called Miso\n", 31),
]


@pytest.mark.parametrize("text, measured", MEASURED)
def test_the_estimate_is_near_the_count_in_every_script(text, measured):
    """H9: never far below, so that a budget kept by it is kept; never wastefully above."""
    assert 0.9 * measured <= estimate_tokens(text) <= 1.5 * measured


@given(st.text(max_size=200), st.text(max_size=200))
def test_more_text_never_costs_less(one, other):
    """H9: a longer line cannot fit where a shorter one did not."""
    assert estimate_tokens(f"{one}\n{other}") >= max(estimate_tokens(one), estimate_tokens(other))


@given(st.text(alphabet="aAbZ09  \t\n!-_\x00\x7fäЖ中🙂²", max_size=60), st.integers(1, 4))
def test_the_same_words_cost_the_same_each_time(text, times):
    """H9: what is said twice is counted twice."""
    assert estimate_tokens("\n\n".join([text.strip()] * times)) >= times * estimate_tokens(text.strip())
