"""The token estimate beside counts that were measured with cl100k."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterturn.text import estimate_tokens

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
    """H9: a longer line can not fit where a shorter one did not."""
    assert estimate_tokens(f"{one}\n{other}") >= max(estimate_tokens(one), estimate_tokens(other))


@given(st.text(alphabet="aAbZ09  \t\n!-_\x00\x7fäЖ中🙂²", max_size=60), st.integers(1, 4))
def test_the_same_words_cost_the_same_each_time(text, times):
    """H9: what is said twice is counted twice."""
    assert estimate_tokens("\n\n".join([text.strip()] * times)) >= times * estimate_tokens(text.strip())
