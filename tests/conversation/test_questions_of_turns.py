"""What a turn asks for: follow-ups with their subject, and broad questions of the profile."""

from pathlib import Path

import pytest

from afterturn import blocking
from afterturn.config import Config
from afterturn.conversation.read_turn import Ledger, make_question
from afterturn.conversation.scope import make_scope
from afterturn.recall.answer import PROFILE_LINES

BEFORE = "My sister Ruth moved to Leeds."


def asked(text: str, previous: str = BEFORE) -> str:
    scope = make_scope("default", "c", {"owner": "user:ada"})
    question = make_question(text, scope, Ledger(), Config(), previous=previous)
    return question.text if question is not None else ""


@pytest.mark.parametrize(
    "text", ["What does she eat?", "And which bus goes there?", "Was isst sie dort?", "どこでそれを買った"]
)
def test_a_follow_up_is_asked_with_the_message_before_it(text):
    """L14: by itself it does not say what it is about."""
    assert asked(text) == f"{BEFORE}\n{text}"
    assert asked(text, previous="") == text


def test_a_question_that_names_its_subject_is_asked_alone():
    """L14: the message before it would find other things."""
    assert asked("Which flour does Ruth bake bread with?") == "Which flour does Ruth bake bread with?"


def test_a_broad_question_gets_lines_of_the_profile(tmp_path: Path) -> None:
    """L14: none of which share a word with it, and not all that is known."""
    things = ("cello", "bread", "chess", "tennis", "rowing", "pottery", "sailing", "opera", "poker", "yoga")
    texts = [f"Ada likes {thing}" for thing in things] + [f"Ada owns a {thing}" for thing in ("kayak", "loom", "drum")]
    with blocking.open(tmp_path / "memory.db", {"embedder": "none", "grace": 30.0}) as memory:
        for text in texts:
            memory.space("user:ada").add(text)
        messages: list[object] = [{"role": "user", "content": "What do you know about me?"}]
        with memory.conversation("c", user="ada").turn(messages) as turn:
            element = turn.inject(messages)
    lines = [line for line in str(element).split("\\n") if line.startswith("- [")]
    assert len(texts) > len(lines) == PROFILE_LINES
