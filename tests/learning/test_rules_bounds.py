"""No message makes the rules slow, large or wrong about themselves."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterturn.learning.rules import extraction, find_lessons, may_teach
from afterturn.learning.rules.clauses import CLAUSES_MAX, split_clauses
from afterturn.learning.rules.extraction import LESSON_CHARACTERS_MAX, LESSONS_MAX
from afterturn.learning.rules.sentences import SENTENCE_CHARACTERS_MAX, SENTENCES_MAX, split_sentences
from lab.rules_eval import read_cases

FOLDER = Path(__file__).parent / "rule_cases"
WORDS = """
    I I'm my me we our you it never always don't ever from now on remember that keep in mind prefer like over than call
    name is not but and so if when , . ! ? : ; " ' ` ``` > - ( ) Max Oslo tea coffee use push allergic to live in ich
    bin heiße je suis soy nunca jamais nie 😂 \n \t
    """.split(" ")
LIKELY = st.lists(st.sampled_from([word for word in WORDS if word]), max_size=60).map(" ".join)
MESSAGES = st.one_of(st.text(max_size=400), LIKELY)
REPEATED = (
    *("I prefer ", "never ", "remember that ", "from now on, ", ", I live in ", "it's not a, it's ", "whenever you "),
    *("no, ", "my name is ", "please ", "ich bin ", "I'm a very ", "'a", '"', "`", "<", "-", ". ", "a", " ", "\n"),
)
ROLES = st.sampled_from(["user", "assistant", "tool"])


@given(text=MESSAGES)
def test_what_may_not_teach_teaches_nothing(text: str):
    """V11: the cheap look never hides a lesson."""
    if not may_teach(text):
        assert extraction.find_lessons_in(text, "The default branch is master.") == []


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.jsonl")), ids=lambda path: path.stem)
def test_what_people_say_is_not_passed_over(path: Path):
    """V11: no message of ours teaches something that the cheap look would hide."""
    hidden = [
        case.text
        for case in read_cases(path)
        if not may_teach(case.text) and extraction.find_lessons_in(case.text, case.before[-1][1] if case.before else "")
    ]
    assert hidden == []


@given(talk=st.lists(st.tuples(ROLES, MESSAGES), max_size=6))
def test_any_conversation_teaches_little_and_only_of_its_users(talk: list[tuple[str, str]]):
    """V11, G5: whatever is said, lessons are few, short, and rest on a message of a user."""
    for lesson in find_lessons(talk):
        assert talk[lesson.message][0] == "user"
        assert 0 < len(lesson.text) <= LESSON_CHARACTERS_MAX
    assert len(find_lessons(talk)) <= LESSONS_MAX * len(talk)


@given(text=MESSAGES)
def test_numbers_in_a_lesson_were_said(text: str):
    """V11: nothing is invented."""
    for lesson in find_lessons([("user", text)]):
        assert set(re.findall(r"\d+", lesson.text)) <= set(re.findall(r"\d+", text))


@given(text=MESSAGES)
def test_sentences_and_clauses_are_bounded(text: str):
    """G5: however a message is cut up, there is an end to it."""
    sentences = split_sentences(text * 20)
    assert len(sentences) <= SENTENCES_MAX
    for sentence in sentences:
        assert len(sentence.plain) == len(sentence.text) <= SENTENCE_CHARACTERS_MAX
        assert len(list(split_clauses(sentence))) <= CLAUSES_MAX


@pytest.mark.parametrize("repeated", REPEATED)
def test_repetition_is_read_in_bounded_work(repeated: str):
    """G5: what rules look at does not grow with the message."""
    looked_at = sum(
        len(clause.plain) for sentence in split_sentences(repeated * 100_000) for clause in split_clauses(sentence)
    )
    assert looked_at <= SENTENCES_MAX * CLAUSES_MAX * SENTENCE_CHARACTERS_MAX
    assert len(find_lessons([("assistant", repeated * 100_000), ("user", repeated * 100_000)])) <= LESSONS_MAX


@pytest.mark.parametrize("filling", [" ", ",", ", ", "-", "a, ", "please ", "very ", "i ", "'"])
@pytest.mark.parametrize(
    "start", ["I prefer tea over coffee", "Never push to main", "Remember that my x is y", "From now on use a"]
)
def test_a_sentence_is_not_read_again_and_again(start: str, filling: str):
    """G5: no filling makes a pattern try every way to cut it; one once did."""
    sentence = f"{start} {filling * SENTENCE_CHARACTERS_MAX}"[: SENTENCE_CHARACTERS_MAX - 5]
    lessons = find_lessons([("assistant", sentence), ("user", f"{sentence} x. {sentence} x, not y.")])
    assert len(lessons) <= 2


def test_a_megabyte_after_a_wish_changes_nothing():
    """V11, G5: what is beyond the first pages is not read."""
    assert find_lessons([("user", "Look at this.\n```\n" + "x = 1\n" * 200_000 + "```\nCall me Max.")]) == []
