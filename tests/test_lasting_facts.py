"""Lasting facts: which sentences still matter in weeks, and their kinds."""

import pytest

from afterturn.lasting_facts import KINDS, WORTHS, FactKind, RatedSentence, rate_sentences, rate_telling

# By language: something lasting, something that passes. None of them is in lab/lasting_facts.
SAID = {
    "en": ("My brother-in-law Casper is allergic to cashews.", "I had a burger at the fair yesterday."),
    "de": ("Meine Schwester Grete ist allergisch gegen Haselnüsse.", "Ich habe gestern Abend einen Krimi gesehen."),
    "fr": ("Ma sœur Colette habite à Annecy.", "J'ai mangé une tarte hier soir, bof."),
    "es": ("Mi hermana Lucía vive en Cádiz.", "Ayer comí una hamburguesa."),
    "it": ("Mia sorella Bianca vive a Siena.", "Ieri sera ho mangiato un panino."),
    "pt": ("Minha irmã Joana mora em Faro.", "Ontem comi um hambúrguer."),
    "nl": ("Mijn zus Lotte woont in Delft.", "Gisteren heb ik een hamburger gegeten."),
    "sv": ("Min syster Astrid bor i Lund.", "Igår åt jag en hamburgare."),
    "pl": ("Moja siostra Ewa mieszka w Sopocie.", "Wczoraj zjadłam kotleta."),
    "tr": ("Kız kardeşim Ayşe Bolu'da yaşıyor.", "Dün hamburger yedim."),
    "ru": ("Моя сестра Анна живёт в Твери.", "Вчера съела бургер."),
    "ar": ("أختي سلمى تسكن في فاس.", "أكلت برغر أمس."),
    "hi": ("मेरी बहन नेहा भोपाल में रहती है।", "कल मैंने बर्गर खाया।"),
    "ja": ("妹の葵は長野に住んでいます。", "昨日ハンバーガーを食べた。"),
    "zh": ("我姐姐小芳住在杭州。", "昨天吃了汉堡。"),
    "ko": ("동생 지민이는 울산에 살아요.", "어제 햄버거 먹었어."),
}


@pytest.mark.parametrize("language", SAID)
def test_a_fact_lasts_and_a_meal_passes(language: str) -> None:
    """S1: in every language of the word lists."""
    lasting, passing = SAID[language]
    assert rate_telling(lasting) > 0 == rate_telling(passing), (rate_sentences(lasting), rate_sentences(passing))


@pytest.mark.parametrize(
    "text, kind",
    [
        ("I'm allergic to walnuts.", FactKind.REFUSAL),
        ("I have a strong dislike of guided bus tours, so I only travel on my own.", FactKind.REFUSAL),
        ("Always answer in Italian.", FactKind.MANNER),
        ("Call me Gus.", FactKind.MANNER),
        ("My aunt Philippa is a dentist.", FactKind.PERSON),
        ("We use Yarn here, not npm.", FactKind.LIFE),
        ("The backup server is called osprey.", FactKind.LIFE),
        ("I go to pottery class every Monday.", FactKind.HABIT),
        ("What is the tallest building in Chile?", FactKind.PASSING),
        ("Write a haiku about snow.", FactKind.PASSING),
        ("Thanks, that helps!", FactKind.PASSING),
        ("I'm sleepy today.", FactKind.PASSING),
    ],
)
def test_a_sentence_has_a_kind(text: str, kind: FactKind) -> None:
    """S1: in order of worth, rules and allergies first."""
    assert [one.kind for one in rate_sentences(text)] == [kind]


@pytest.mark.parametrize(
    "text, stated",
    [
        ("we live at quay street 14. which bin goes out when?", "we live at quay street 14"),
        ("My neighbour is allergic to wasps so what can I plant?", "My neighbour is allergic to wasps"),
        ("Mein Bruder ist Diabetiker aber was kann er trinken?", "Mein Bruder ist Diabetiker"),
        ("Ma tante est végétarienne donc que puis-je cuisiner ?", "Ma tante est végétarienne"),
    ],
)
def test_what_a_question_states_before_it_asks_is_a_fact(text: str, stated: str) -> None:
    """S1: also without a comma, and after a number, whose dot may be that of "the 24. Oktober"."""
    assert [one.text for one in rate_sentences(text) if one.kind is not FactKind.PASSING] == [stated]
    (asked,) = rate_sentences("Wann ist die Prüfung am 24. Oktober?")
    assert asked.kind is FactKind.PASSING


def test_each_sentence_of_a_message_is_rated() -> None:
    """S1: a fact among small talk is found, and only it."""
    rated = rate_sentences("Good morning! The bus was late. I'm allergic to peanuts. What's 3 times 4?")
    assert [one.text for one in rated if one.kind is not FactKind.PASSING] == ["I'm allergic to peanuts."]
    assert len(rated) == 4


@pytest.mark.parametrize(
    "text, sentences",
    [
        ("Dr. Roth moved us to node 3.20 today. See https://example.org/?page=2 for it.", 2),
        ("今日は雨だ。妹は京都に住んでいる！本当？", 3),
        ("release 2.0.1 is due on the 5. of May", 1),
        ("", 0),
        ("...", 0),
    ],
)
def test_sentences_are_split_at_their_ends_only(text: str, sentences: int) -> None:
    """S1: not in abbreviations, versions, numbers and addresses."""
    assert len(rate_sentences(text)) == sentences


def test_a_sentence_about_the_one_before_is_joined_to_it() -> None:
    """S1: a standing line is a whole thought."""
    (rated,) = rate_sentences("My aunt Philippa visits on Sundays. She is allergic to shellfish.")
    assert rated.text == "My aunt Philippa visits on Sundays. She is allergic to shellfish."
    assert rated.kind is not FactKind.PASSING


def test_a_pasted_text_has_no_lasting_facts() -> None:
    """S1: a very long text is not what the user says about themselves."""
    assert rate_telling("I'm allergic to peanuts. " * 100) == 0


@pytest.mark.parametrize("text", ["x" * 5_000, "\ud800 I live in Rome", "\x00", "👍👍", "I " * 700, "كل يوم" * 50])
def test_any_text_is_rated_the_same_each_time_and_within_bounds(text: str) -> None:
    """S1: deterministic."""
    rated = rate_sentences(text)
    assert rated == rate_sentences(text)
    assert all(isinstance(one, RatedSentence) and 0 <= one.chance <= 1 for one in rated)
    assert 0 <= rate_telling(text) <= WORTHS[FactKind.REFUSAL]


def test_kinds_are_in_falling_order_of_worth() -> None:
    """S1: never-rules first, plans last; what passes is worth nothing."""
    worths = [WORTHS[kind] for kind in KINDS]
    assert worths == sorted(worths, reverse=True)
    assert worths[-1] == 0


@pytest.mark.parametrize("text", ["Clara and I broke up last night", "finally sold the Skoda!"])
def test_a_remark_that_tells_a_change_is_read_with_the_facts(text: str) -> None:
    """L12: it passes, but may make a lasting fact untrue."""
    assert rate_telling(text) == 1
    assert rate_telling("I had noodles at lunch, nothing special.") == 0
