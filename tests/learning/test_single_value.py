"""Which statements contradict each other by their form, and which only look like it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterturn.learning.single_value import contradict, single_value


def are_contrary(one: str, other: str) -> bool:
    first, second = single_value(one), single_value(other)
    return first is not None and second is not None and first[0] == second[0] and contradict(first[1], second[1])


@pytest.mark.parametrize(
    "one, other",
    [
        ("The user lives in Oslo.", "the user now lives in Lyon"),
        ("The user lives in Leipzig", "The user lives in Halle now"),
        ("The user lives in leipzig", "The user is based in Halle"),
        ("The user lives in Oslo", "The user no longer lives in Oslo"),
        ("The user lives in Oslo", "The user doesn't live in Oslo any more"),
        ("The user works at Acme", "The user works for Globex now"),
        ("The user's birthday is 3 May", "The user's birthday is 4 May"),
        ("The user's name is Max", "The user's name is Moritz"),
        ("The user's timezone is CET", "The user's timezone is PST now"),
        ("Call the user Max", "The user is called Maximilian"),
        ("Call the user Max", "Nenn mich Moritz"),
        ("Answer in German", "Answer in English"),
        ("Always answer in German", "Reply in English"),
        ("Answer in German", "Never answer in German"),
        ("Answer in English", "Antworte ab jetzt auf Deutsch"),
        ("Désormais, réponds en anglais", "Answer in French"),
        ("Always use tabs", "Never use tabs"),
        ("Use tabs", "Don't use tabs"),
        ("The user always flies at night", "The user never flies at night"),
        ("The user prefers tea over coffee", "The user now prefers coffee over tea"),
        ("The user prefers tea to coffee", "The user likes coffee more than tea"),
        ("Je préfère le thé au café", "Je préfère le café au thé"),
        ("The user is vegetarian", "The user is a vegan"),
        ("The user is vegetarian", "The user is not vegetarian any more"),
        ("Ich bin Vegetarierin", "The user is no longer vegetarian"),
        ("The health check is on port 8081", "The health check runs on port 9090"),
        ("Our database port is 5432", "The database port is now 5433"),
        ("The default branch is master", "Our default branch is called trunk"),
        ("Ich wohne in Halle", "The user lives in Leipzig"),
        ("Me llamo Ana", "The user's name is Eva"),
    ],
)
def test_what_there_is_one_of_is_known_by_its_form(one: str, other: str) -> None:
    """V10, V11: the same thing of the same person with another value."""
    assert are_contrary(one, other)
    assert are_contrary(other, one)


@pytest.mark.parametrize(
    "one, other",
    [
        ("The user lives in Oslo", "Bob lives in Lyon"),
        ("The user lives in Oslo", "The user's sister lives in Lyon"),
        ("The user lives in Oslo", "The user lives in a small flat"),
        ("The user lives in Oslo", "The user lives in peace"),
        ("The user lives in Oslo", "The user lives in Oslo and Bergen"),
        ("The user lives in Oslo", "The user lives in Lyon during winter"),
        ("The user lives in Oslo", "The user no longer lives in Lyon"),
        ("The user works at Acme", "The user works as a nurse"),
        ("The user works at Acme", "The user works at night"),
        ("The user works at Acme", "The user also works at Globex"),
        ("The user works at Globex", "The user no longer works at Acme"),
        ("CI works as expected", "CI works as documented"),
        ("The user's boss is Karl", "The user's boss is annoying"),
        ("The user's name is Ann", "The user's name is hard to spell"),
        ("The user's name is Max", "The user's name is Max Power"),
        ("The user lives in Halle", "The user lives in Halle, Germany"),
        ("The user's birthday is 3 May", "The user's birthday is coming up"),
        ("The user's email is a@example.com", "The user's email is down"),
        ("The user's cat is Miso", "The user's cat is Fermat"),
        ("Call the user Max", "Call the user back"),
        ("Call the user Max", "The user's name is Maximilian"),
        ("The user likes tea", "The user likes coffee"),
        ("The user prefers tea over coffee", "The user prefers coffee over water"),
        ("The user prefers tea over coffee", "The user prefers coffee over tea in the morning"),
        ("The user prefers to walk", "The user prefers to cycle"),
        ("Answer in German", "Answer in bullet points"),
        ("Answer in German", "Answer in English when asked about work"),
        ("Answer in German", "The user speaks English"),
        ("Answer in German", "Never answer in English"),
        ("Always use tabs", "Never use tabs in YAML"),
        ("Never push before lunch", "Always push after lunch"),
        ("Use tabs", "Use spaces"),
        ("The user is vegetarian", "The user's wife is vegan"),
        ("The user is vegetarian", "The user is not vegan any more"),
        ("The user is allergic to nuts", "The user is allergic to bees"),
        ("The health check is on port 8081", "The admin console is on port 9090"),
        ("The proxy listens on port 80", "The proxy listens on port 443"),
        ("The default branch is main", "The default branch is protected"),
        ("The default branch is main", "The default branch is green"),
        ("The user moved to Berlin last month", "The user lives in Leipzig"),
    ],
)
def test_what_may_both_be_so_is_left_alone(one: str, other: str) -> None:
    """V10, V11: rather two memories too many than one too few."""
    assert not are_contrary(one, other)
    assert not are_contrary(other, one)


def test_the_same_said_in_two_ways_is_no_contradiction() -> None:
    """V10: a value is compared without case, "now" and inflection."""
    assert single_value("The user lives in Halle") == single_value("the user now lives in halle now.")
    assert single_value("Answer in German") == single_value("Antworte künftig auf Deutsch")


@given(st.text(max_size=300))
def test_any_text_has_a_value_or_none(text: str) -> None:
    """G5, V10: nothing raises."""
    found = single_value(text)

    assert found is None or all(found)


@pytest.mark.parametrize("filling", [" ", "a ", "now ", "to ", "always ", "over ", "'s "])
@pytest.mark.parametrize("start", ["The user prefers ", "The ", "Never use ", "The user lives in "])
def test_no_filling_makes_a_form_slow(start: str, filling: str) -> None:
    """G5: read at most once along its length, however often it is asked."""
    said = (start + filling * 200)[:200]

    assert len({single_value(said) for _ in range(200)}) == 1
