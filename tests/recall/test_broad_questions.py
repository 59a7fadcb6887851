"""Which questions ask for everything that is known, and about what."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterturn.recall.broad_questions import BroadQuestion, is_broad_question, read_broad_question


@pytest.mark.parametrize(
    "text, subject",
    [
        ("What do you know about me?", ""),
        ("tell me everything you remember about me", ""),
        ("what's stored about us", ""),
        ("Who am I?", ""),
        ("do you remember anything about my garden?", "garden"),
        ("What have I told you about my brother", "brother"),
        ("Was weißt du alles über mich?", ""),
        ("was hast du über meine Gesundheit gespeichert", "gesundheit"),
        ("Erzähl mir, was du über unsere Kinder weißt", "kinder"),
        ("Que sais-tu de moi ?", ""),
        ("qu'est-ce que tu sais sur mes voyages ?", "voyages"),
        ("¿Qué sabes de mí?", ""),
        ("¿Qué recuerdas sobre mi hermana?", "hermana"),
        ("Cosa sai di me?", ""),
        ("Che cosa ricordi della mia casa?", "casa"),
        ("O que você sabe sobre mim?", ""),
        ("Wat weet je over mij?", ""),
        ("私について何を知っていますか", ""),
        ("僕の家族のことを覚えてる？", "家族"),
        ("关于我你知道什么？", ""),
    ],
)
def test_what_is_known_about_the_user_or_a_thing_of_theirs(text: str, subject: str) -> None:
    """L14: in several languages, by its structure."""
    found = read_broad_question(text)
    assert found is not None
    assert found.subject == subject


@pytest.mark.parametrize(
    "text",
    [
        "summarise this project",
        "Give a new colleague an overview of our repo",
        "Fass dieses Projekt zusammen",
        "Ich hätte gern einen Überblick über unser Projekt",
        "Résume ce projet",
        "Resume este proyecto",
        "Riassumi questo progetto",
        "このプロジェクトを要約して",
    ],
)
def test_a_summary_of_the_project(text: str) -> None:
    """L14: the work is a subject too."""
    found = read_broad_question(text)
    assert found is not None
    assert found.is_project


@pytest.mark.parametrize(
    "text",
    [
        "",
        "thanks",
        "Where do I live?",
        "What do you know about black holes?",
        "What do you think about my plan?",
        "What do you remember about my flight on Friday?",
        "What do you know about my sister's allergy?",
        "Tell me about Vienna",
        "Tell me a joke about my dog",
        "Tell my team about the outage",
        "Summarise this article",
        "Summarise our conversation",
        "My boss knows a lot about me",
        "Add lodash to the project",
        "Was weißt du über Quantenphysik?",
        "Fass den Text zusammen",
        "Parle-moi de Paris",
        "¿Qué sabes de Madrid?",
        "Cosa sai di Roma?",
        "東京について教えて",
        "この記事を要約して",
        "what do you know about me? " + "It is a long story. " * 30,
    ],
)
def test_other_questions_are_not_broad(text: str) -> None:
    """L14: they name what they ask for, or it is not the user's."""
    assert not is_broad_question(text)


@given(st.text(max_size=300))
def test_any_text_can_be_read(text: str) -> None:
    """L14, G5: whatever is asked."""
    found = read_broad_question(text)
    assert found is None or isinstance(found, BroadQuestion)
