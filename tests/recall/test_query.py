"""What a question asks for: its telling terms, whom it names, and whether it asks for anything."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterturn.recall.query import (
    COMMON_TERMS,
    QUERY_TERMS_MAX,
    WEIGHED_TERMS_MAX,
    Query,
    choose_terms,
    named_in,
    needs_recall,
    read_query,
    weigh_terms,
    without_names,
)
from afterturn.text import read_words, terms, words
from afterturn.types import Scope, SpaceStats

ADA = Scope("default", ("user:ada",))


def asked(library, text: str, scope: Scope = ADA) -> Query:
    return library.read(lambda unit: read_query(unit.index, scope, *read_words(text)))


def test_terms_are_asked_once_and_in_order(library):
    """L6: the same question asks the same way."""
    library.add("red apples and pears")
    assert asked(library, "Apples, pears and more apples").terms == ("appl", "pear")


def test_every_space_weighs_by_its_own_frequencies(library):
    """L6: what is common here may be rare there, and only the spaces that were named count."""
    library.add_all([f"tea number {number}" for number in range(20)])
    library.add("coffee, no tea", space="team:a")
    library.add("tea", space="user:bob")
    both = asked(library, "tea", Scope("default", ("user:ada", "team:a"))).spaces
    assert sorted(both) == ["team:a", "user:ada"]
    assert [both[name].documents["tea"] for name in ("user:ada", "team:a")] == [20, 1]
    assert both["user:ada"].by_term["tea"] < both["team:a"].by_term["tea"]


def test_a_space_without_entries_weighs_nothing(library):
    """L2: there is nothing to find in it."""
    assert asked(library, "tea").spaces == {}


@given(st.integers(0, 50), st.integers(0, 50), st.integers(50, 10_000))
def test_a_rarer_term_weighs_more(one, other, documents):
    """L6: and every term weighs something, be it in every entry or in none."""
    rare, common = sorted((one, other))
    weights = weigh_terms(("zebra", "horse"), {"zebra": rare, "horse": common}, documents).by_term
    assert weights["zebra"] >= weights["horse"] > 0


def test_a_light_word_weighs_less_than_another_of_its_rarity():
    """L5: everybody says "really", however seldom in this space."""
    weights = weigh_terms(("realli", "otter"), {"realli": 3, "otter": 3}, 100).by_term
    assert 0 < weights["realli"] < weights["otter"]


def test_a_long_question_needs_less_than_a_long_remark():
    """L5: light words, and names of those who speak, make no question long."""
    long = tuple(f"word{number}" for number in range(12))
    light = tuple(sorted(COMMON_TERMS))[:12]
    assert weigh_terms(long, {}, 100).midpoint < weigh_terms(long[:7], {}, 100).midpoint
    assert weigh_terms((*long[:7], *light), {}, 100).midpoint == weigh_terms(long[:7], {}, 100).midpoint
    assert weigh_terms(long, {}, 100, frozenset(long[7:])).midpoint == weigh_terms(long[:7], {}, 100).midpoint


@given(st.lists(st.sampled_from("abcdefghijklmnopqrstuvwxyz"), max_size=60))
def test_the_weights_add_up(chosen):
    """L6: the total is what a share is a share of."""
    weights = weigh_terms(tuple(dict.fromkeys(chosen)), {"a": 4, "b": 1}, 9)
    assert weights.total == pytest.approx(sum(weights.by_term.values()))


def test_a_long_question_asks_for_its_rarest_words():
    """L6: a pasted page asks for what is rare in it, wherever in the page that stands."""
    page = [f"common{number}" for number in range(100)] + ["miso"]
    chosen = choose_terms(page, [dict.fromkeys(page, 400) | {"miso": 3}])
    assert len(chosen) == QUERY_TERMS_MAX
    assert "miso" in chosen


def test_what_no_space_knows_gives_way_to_what_one_does():
    """L6: a term that is nowhere finds nothing."""
    known = [f"known{number}" for number in range(QUERY_TERMS_MAX)]
    page = [f"unknown{number}" for number in range(20)] + known
    assert choose_terms(page, [dict.fromkeys(known[:30], 5), dict.fromkeys(known[30:], 900)]) == tuple(known)


def test_a_page_is_weighed_from_its_beginning():
    """L6: what a question costs is bounded, however much is pasted into it."""
    page = [f"word{number}" for number in range(WEIGHED_TERMS_MAX + 50)]
    assert set(choose_terms(page, [{page[-1]: 1}])) <= set(page[:WEIGHED_TERMS_MAX])


@given(st.lists(st.sampled_from("abcde"), max_size=30))
def test_a_short_question_keeps_every_term(page):
    """L6: each once, in the question's order."""
    assert choose_terms(page, []) == tuple(dict.fromkeys(page))


def said_by(library, *speakers: str) -> None:
    for position, speaker in enumerate(speakers):
        library.add("I went hiking", conversation="then", position=position, speaker=speaker)


def test_a_speaker_who_is_named_weighs_little_as_a_word(library):
    """L6: whoever asks about Bob wants what Bob said, which does not hold his name."""
    said_by(library, "Bob Miller", "Ada")
    question = asked(library, "Where did Bob go hiking?")
    assert (question.names, question.terms) == (frozenset({"bob"}), ("bob", "go", "hike"))
    assert [question.names_speaker(name) for name in ("Bob Miller", "BOB", "Ada", "Bobby", "", None)] == [
        *(True, True, False, False, False, False)
    ]


def test_a_name_of_nobody_who_spoke_is_a_word_like_any_other(library):
    """L6: Carol is only talked about."""
    said_by(library, "Bob")
    question = asked(library, "Where does Carol live?")
    assert (question.names, question.terms) == (frozenset(), ("carol", "live"))


def test_a_speaker_of_another_space_is_not_known(library):
    """L2: who spoke elsewhere changes nothing here."""
    library.add("I went hiking", space="user:eve", conversation="then", speaker="Bob")
    said_by(library, "Ada")
    assert asked(library, "Where did Bob go?").names == frozenset()


def test_a_question_of_a_name_alone_asks_who_is_mentioned(library):
    """L6: something has to be searched for."""
    said_by(library, "Bob Miller", "Ada Byron")
    assert asked(library, "Bob and Ada?").terms == ("bob", "ada")


@pytest.mark.parametrize("role", ["user", "Assistant", "agent", "speaker 1"])
def test_a_part_in_the_conversation_names_nobody(role):
    """L6: "user" is what hosts call everybody."""
    assert named_in("Which user told the assistant about the agent of speaker 1?", [role]) == frozenset()


def test_a_single_letter_names_nobody():
    """L6: speakers called A and B would be named in every other question."""
    assert named_in("Is plan B a good one?", ["A", "B"]) == frozenset()


@pytest.mark.parametrize(
    "text, names, kept",
    [
        ("Where did Bob's sister go?", {"bob"}, "Where did sister go?"),
        ("Where did Bob, or Ada, go?", {"bob", "ada"}, "Where did or go?"),
        ("Bob?", {"bob"}, "Bob?"),
        ("Wohin ging Jürgen gestern?", {"jurgen"}, "Wohin ging gestern?"),
        ("Where did Bobby go?", {"bob"}, "Where did Bobby go?"),
        ("spaces  stay\nas they are", set(), "spaces  stay\nas they are"),
    ],
)
def test_names_are_left_out_of_what_is_embedded(text, names, kept):
    """L6: a vector is of what is asked, not of whom; a name alone is all there is."""
    assert without_names(text, names) == kept


@given(st.text(max_size=60), st.lists(st.text(max_size=12), max_size=3))
def test_no_name_is_left_unless_there_is_nothing_else(text, speakers):
    """L6: whatever the script."""
    names = named_in(text, speakers)
    kept = without_names(text, names)
    assert names.isdisjoint(words(kept)) or kept == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "  \n", "?!", "ok", "Thanks a lot!", "it is what it is", "Sounds good to me, thanks", "Will do"),
        *("That makes sense, go ahead", "Really? Wow, that's great", "Good, let's keep going", "👍"),
    ],
)
def test_light_words_alone_ask_for_nothing(text):
    """L5, R6: they would only find what sounds like them."""
    assert not needs_recall(text)


@pytest.mark.parametrize(
    "text",
    ["my cat", "What do I like best?", "Thanks! And the deploy script?", "猫", "кошка", "42", "ok, then the peanuts"],
)
def test_a_word_that_says_something_asks(text):
    """L5, R6: however much else is said around it; and so does a question about oneself, of whatever words."""
    assert needs_recall(text)


def test_light_words_are_terms():
    """L5: they are compared with terms, so they have to be ones."""
    assert COMMON_TERMS.issuperset(terms("thanks, that really sounds great"))
    assert COMMON_TERMS.isdisjoint(terms("peanuts deploy otter cat"))


class Frequencies:
    """An index of one space that only counts."""

    def __init__(self, counts: dict[str, int]) -> None:
        self.counts = counts

    def speakers(self, scope, *, limit):
        return []

    def stats(self, scope):
        return {"user:ada": SpaceStats(100_000, 1_000_000, 1)}

    def frequencies(self, scope, wanted):
        return {"user:ada": {term: self.counts[term] for term in wanted if term in self.counts}}


def test_a_pasted_page_is_weighed_by_its_telling_terms_alone():
    """L6: what it says beside them costs nothing at every candidate."""
    page = {f"common{number}": 400 for number in range(100)} | {"miso": 3}
    question = read_query(Frequencies(page), ADA, *read_words(" ".join(page)))  # type: ignore[arg-type]
    assert len(question.terms) == QUERY_TERMS_MAX
    assert set(question.spaces["user:ada"].by_term) == set(question.terms) == question.term_set


@pytest.mark.parametrize(
    "text",
    [
        "What happened in May?",
        "Who is coming tomorrow?",
        "What did she say last time?",
        "What do they like?",
        "LA",
        "EST",
    ],
)
def test_a_question_of_light_words_is_a_question(text):
    """L5, R6: "sounds good" is a remark; who asks what somebody likes wants to know."""
    assert needs_recall(text)
