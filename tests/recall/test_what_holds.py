"""Which of two texts about the same thing the newer one replaces."""

import pytest

from afterturn.lasting_facts import rate_sentences
from afterturn.recall import what_holds
from afterturn.recall.what_holds import RatedEntry, find_changes, find_replaced, replaced_share
from afterturn.testing.entries import DAY, NOW, entry
from afterturn.types import Entry, Kind, Origin
from lab.changed_values import read_pairs
from lab.lives import read_lives
from lab.train_changes import gather, train


def told(text: str, *, id: str = "r001", days_ago: float = 1, **fields: object) -> Entry:
    occurred_at = NOW - days_ago * DAY
    return entry(text, id=id, kind=Kind.RECORD, occurred_at=occurred_at, **fields)  # type: ignore[arg-type]


def share(older: str, newer: str, **fields: object) -> float:
    return replaced_share(told(older, days_ago=9), told(newer, id="r002", **fields))  # type: ignore[arg-type]


def test_changes_are_found_and_other_subjects_are_left_alone():
    """L12: of 200 pairs that were written before the code, at most two of the hundred about different things."""
    pairs = list(read_pairs())
    changed = [pair for pair in pairs if pair.is_change]
    others = [pair for pair in pairs if not pair.is_change]

    assert (len(changed), len(others)) == (100, 100)
    assert sum(pair.is_found for pair in others) <= 2
    assert sum(pair.is_found for pair in changed) >= 85


@pytest.mark.parametrize(
    "older, newer",
    [
        ("I take 75 micrograms of levothyroxine.", "My doctor raised my levothyroxine to 100."),
        ("My running group is on Tuesdays.", "The running group moved to Wednesdays."),
        ("I don't eat meat.", "I eat chicken again."),
        ("The staging host is called otter.", "Staging is now called heron."),
        ("We use npm here.", "We switched from npm to pnpm."),
        ("I live in Berlin.", "No, wait: I live in Hamburg."),
        ("My flight is on Monday.", "Actually my flight is on Tuesday."),
    ],
)
def test_a_newer_value_of_the_same_thing_replaces_the_older_one(older: str, newer: str):
    """L12."""
    assert share(older, newer) == 1.0


@pytest.mark.parametrize(
    "newer",
    [
        "My sister lives in Hamburg now.",
        "Should I move to Hamburg?",
        "Maybe I'll live in Hamburg one day.",
        "I also live in Hamburg now, at weekends.",
    ],
)
def test_what_is_said_of_others_asked_supposed_or_added_replaces_nothing(newer: str):
    """L12."""
    assert share("I live in Berlin.", newer) == 0.0


def test_a_courtesy_is_no_value():
    """L12: "please" does not replace a name."""
    assert share("I signed up for the Pentland Skyline", "new sign please, the shop is closed on Mondays now") == 0.0
    assert share("Mein Anwalt heißt Kranz", "neuer Anwalt bitte, der alte antwortet nicht") == 0.0


@pytest.mark.parametrize(
    "newer",
    [
        "Joe is no longer allergic to penicillin",
        "My cousin isn't allergic to penicillin any more",
        "I wish I was no longer allergic to penicillin",
        "I dreamt that I was no longer allergic to penicillin",
        "is it true that people can be no longer allergic to penicillin",
        "translate 'I am no longer allergic to penicillin' into French",
    ],
)
def test_an_allergy_of_the_user_ends_only_by_their_own_words(newer: str):
    """L12."""
    assert share("I'm allergic to penicillin", newer) == 0.0
    assert share("I'm allergic to penicillin", "I'm no longer allergic to penicillin") == 1.0


def test_a_message_with_other_facts_is_replaced_in_part():
    """L12: it is still shown, for its other facts."""
    message = "I live in Berlin. My cat Minka hates thunder and hides in the wardrobe for hours."

    assert 0 < share(message, "I live in Hamburg now.") < 0.5


def test_only_a_correction_replaces_what_was_said_a_moment_ago():
    """L12: somebody who says two things at once means both, unless the second takes the first back."""
    assert share("I live in Berlin.", "I live in Hamburg now.", days_ago=9 - 1e-4) == 0.0
    assert share("I live in Berlin.", "No, wait: I live in Hamburg.", days_ago=9 - 1e-4) == 1.0


def test_a_report_and_another_speaker_replace_nothing():
    """L12, G2."""
    newer = "I live in Hamburg now."

    assert share("I live in Berlin.", newer, origin=Origin.TOOL) == 0.0
    assert share("I live in Berlin.", newer, speaker="Ben") == 0.0
    assert share("I live in Berlin.", newer, project="other") == 0.0


def test_the_newest_of_several_replaces_all_older_ones():
    """L12."""
    told_cities = [
        told(f"I live in {city} now.", id=f"r00{at}", days_ago=9 - at)
        for at, city in enumerate(["Berlin", "Hamburg", "Bremen"])
    ]

    found = find_replaced(told_cities)

    assert {ref: one.id for ref, one in found.items()} == {
        told_cities[0].ref: "r002",
        told_cities[1].ref: "r002",
    }


def rated(text: str, **fields: object) -> RatedEntry:
    best = max(rate_sentences(text), key=lambda one: one.chance)
    return RatedEntry(told(text, **fields), best.kind, best.chance)  # type: ignore[arg-type]


def change_chance(older: RatedEntry, newer: RatedEntry) -> float:
    found = find_changes([older], [older, newer])
    return found[id(older.entry)].chance if found else 0.0


@pytest.mark.parametrize(
    "older, newer",
    [
        ("I weigh 88 kilos.", "weight's 84 these days"),
        ("My stipend ends in September 2027.", "good news, the stipend runs until March 2028"),
        ("Unser Büro ist in der Lindenstraße.", "das Büro ist jetzt am Hafen"),
        ("Mon bureau est rue Crébillon.", "on a déménagé le bureau, 18 quai de la Fosse"),
    ],
)
def test_a_change_without_a_word_for_it_is_likely(older: str, newer: str):
    """L12: more likely than not, and less likely if it was asked, or said before."""
    before, after = rated(older, days_ago=20), rated(newer, id="r002")
    assert change_chance(before, after) >= 0.5
    assert change_chance(before, rated(f"{newer}, or not?", id="r002")) < change_chance(before, after)
    assert change_chance(before, rated(newer, id="r002", days_ago=30)) == 0.0


def test_other_projects_and_untrusted_text_change_no_fact():
    """L12, P1, G2b."""
    older = rated("The staging host is called otter.", days_ago=20, project="api")
    newer = "the staging host is called heron these days"
    assert change_chance(older, rated(newer, id="r002", project="api")) >= 0.5
    assert change_chance(older, rated(newer, id="r002", project="web")) == 0.0
    assert change_chance(older, rated(newer, id="r002", project="api", origin=Origin.WEB)) == 0.0


def test_the_weights_of_changes_are_those_of_the_training():
    """The lives in lab/ can be read, and give the weights of the package."""
    computed = train(gather(list(read_lives())))
    assert computed == pytest.approx(what_holds._weights()["changes"], abs=0.01)
