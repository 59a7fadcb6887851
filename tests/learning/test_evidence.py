"""Whether a statement rests on what was said."""

import subprocess
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from afterturn.learning.evidence import find_evidence, measure_support
from afterturn.types import Origin, ReviewMessage


def said(text: str, *, role: str = "user", trust: int = Origin.USER.trust) -> ReviewMessage:
    return ReviewMessage(role, role, text, None, trust, 0.0)


@pytest.mark.parametrize(
    "statement, message",
    [
        ("The user prefers green tea.", "I prefer green tea, always."),
        ("The user lives in Oslo.", "we moved, I live in Oslo now"),
        ("Deploys happen on Tuesdays at 14:30", "we deploy on tuesdays at 14:30, remember"),
        ("The budget is 10,000 euros", "our budget is 10000 euros"),
        ("The user has three cats", "I have 3... no wait, three cats"),
        ("The user has 3 cats", "I have three cats"),
        ("Der Nutzer trinkt Oolong", "ich trinke nur Oolong"),
        ("用户喜欢绿茶", "我喜欢绿茶"),
    ],
)
def test_what_was_said_is_supported(statement: str, message: str) -> None:
    """V5: names and numbers that occur in the messages are fine, in any script and spelling."""
    found = measure_support(statement, [message])

    assert not found.missing
    assert found.is_supported


@pytest.mark.parametrize(
    "statement, message, missing",
    [
        ("The user lives in Bergen.", "I live by the sea", "Bergen"),
        ("The user was born in 1987", "I was born in the eighties", "1987"),
        ("The staging host is db7.internal", "the staging host is slow", "db7"),
        ("The user works with MongoDB", "we use a database at work", "MongoDB"),
        ("The budget is 20,000", "our budget is 10,000", "20,000"),
    ],
)
def test_a_name_or_number_nobody_said_is_missing(statement: str, message: str, missing: str) -> None:
    """V5: new names and numbers must occur in the messages."""
    assert missing in measure_support(statement, [message]).missing


def test_an_inference_has_little_support_and_an_invention_none() -> None:
    """V5: what was hardly said is told from what was said, and from what was not said at all."""
    message = "could you check the flight prices to Lisbon again, and the hotel near the beach?"

    said_so = measure_support("The user asks about flight prices to Lisbon and a hotel near the beach", [message])
    inference = measure_support("The user enjoys planning sunny holidays by the beach", [message])
    invention = measure_support("The user plays chess with grandmasters", [message])

    assert not said_so.is_inference
    assert inference.is_supported
    assert inference.is_inference
    assert not invention.is_supported


@pytest.mark.parametrize(
    "statement, support, is_supported, is_inference",
    [
        ("red green blue pink", 0.0, False, True),
        ("tea red green blue pink grey", 1 / 6, False, True),
        ("tea red green blue pink", 0.2, True, True),
        ("tea cups red green blue", 0.4, True, True),
        ("tea cups red green", 0.5, True, False),
        ("tea cups red", 2 / 3, True, False),
        ("the user likes tea and tea cups", 1.0, True, False),
        ("tea cups and 3 saucers", 0.5, False, False),
    ],
)
def test_how_much_was_said_decides(statement: str, support: float, is_supported: bool, is_inference: bool) -> None:
    """V5: from a fifth of its words on it was said, below a half it is an inference; a new number never was."""
    found = measure_support(statement, ["where are the tea", "and the cups?"])

    assert found.support == pytest.approx(support)
    assert (found.is_supported, found.is_inference) == (is_supported, is_inference)


def test_evidence_is_found_for_a_model_that_named_none() -> None:
    """V5: the messages that say most of it stand for those that were not named."""
    messages = [said("hello"), said("I prefer green tea"), said("fine", role="assistant"), said("what about lunch?")]

    assert find_evidence("The user prefers green tea", messages) == (1,)
    assert find_evidence("The user plays chess", messages) == ()


@example("B\u064b", [])
@given(st.text(max_size=300), st.lists(st.text(max_size=200), max_size=4))
def test_any_text_supports_itself(statement: str, texts: list[str]) -> None:
    """G5, V5: whatever the text, there is an answer between 0 and 1, and what is said word for word is supported."""
    found = measure_support(statement, texts)

    assert 0.0 <= found.support <= 1.0
    assert measure_support(statement, [statement]) == type(found)(1.0, ())


@pytest.mark.parametrize("part", ["\\x1b[31m", "Abc ", "\\x1b[1m x", "A. ", "(\\n", "1,", "n't "])
def test_a_long_text_is_weighed_in_linear_time(part: str) -> None:
    """G5: 256 KB of one part take well under a second. The limit is processor time, so that a busy machine passes."""
    program = (
        "import resource\n"
        "from afterturn.learning.evidence import find_reversals, measure_support\n"
        "resource.setrlimit(resource.RLIMIT_CPU, (20, 20))\n"
        f"text = '{part}' * (256_000 // len('{part}'))\n"
        "print(bool(measure_support(text, [text])), find_reversals(text, [text]))\n"
    ).replace("n't", "n\\'t")
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.stdout == "True []\n"
