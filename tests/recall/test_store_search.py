"""Search by words on a real store, entry by entry."""

import pytest
from asking import by_words

from afterturn.recall.query import QUERY_TERMS_MAX, Query, read_query, weigh_terms
from afterturn.recall.store_search import (
    CANDIDATES_MAX,
    TERMS_READ_MAX,
    LexicalScorer,
    Neighbours,
    find_by_words,
    indexed_entry,
    known_terms,
    rarest_terms,
)
from afterturn.testing.entries import entry
from afterturn.text import read_words, terms
from afterturn.types import Hit, Lane, LaneQuery, Scope, SpaceStats

ADA = Scope("default", ("user:ada",))
HERE = LaneQuery(ADA, 0.0)


def search(library, text: str, lane: Lane = Lane.LONG_TERM, **query) -> tuple[Hit, ...]:
    """All that is found, however weak it is."""
    return by_words(library, text, lanes=(lane,), score_min=0.0, limit=1000, **query).hits


def texts(found: tuple[Hit, ...]) -> list[str]:
    return [item.entry.text for item in found]


def test_rare_words_weigh_more_than_common_ones(library):
    """L6: the space's own frequencies decide what a word is worth."""
    library.add_all([f"The garden has a tree number {number}" for number in range(20)])
    library.add("Saffron is in the cupboard")
    library.add("The garden has a tree at last")
    assert texts(search(library, "tree with saffron"))[0] == "Saffron is in the cupboard"


def test_another_space_never_reorders_results(library):
    """L6: what Bob stores changes neither the order nor the scores that Ada gets."""
    library.add_all(["The garden gate is green", "The kitchen is green and new", "A green gate needs oil"])
    before = [(item.entry.id, item.score) for item in search(library, "green gate kitchen")]
    library.add_all([f"gate {number}" for number in range(50)], space="user:bob")
    both = search(library, "green gate kitchen", scope=Scope("default", ("user:ada", "user:bob")))
    assert [(item.entry.id, item.score) for item in both if item.entry.space == "user:ada"] == before
    assert len(before) == 3


def test_scores_and_shares_stay_between_zero_and_one(library):
    """L5: a floor has a meaning only when scores have one."""
    library.add_all(["cat cat cat cat cat cat", "cat", "cat and dog and horse"])
    found = search(library, "cat dog horse")
    assert len(found) == 3
    assert all(0 < value < 1 for item in found for value in (item.score, item.lexical))


def test_words_that_the_space_does_not_know_lower_the_share(library):
    """L5: one word in common out of five is a weak match."""
    library.add("I like tea")
    [whole] = search(library, "tea")
    [part] = search(library, "tea weather umbrella mountain forecast")
    assert part.lexical < whole.lexical / 3
    assert part.score < whole.score


def test_every_script_is_searched(library):
    """L5: words of any script find what holds them."""
    for text, query in [
        ("我的猫叫味噌", "猫叫什么"),
        ("Мою кошку зовут Мисо", "кошку"),
        ("Mon café préféré est fermé", "cafe prefere"),
        ("मेरी बिल्ली का नाम मिसो है", "बिल्ली"),
        ("고양이 이름은 미소", "고양이"),
    ]:
        library.add(text)
        assert texts(search(library, query)) == [text]


def test_what_is_excluded_makes_room_for_the_next(library):
    """L3: excluded versions do not count among the candidates."""
    entries = library.add_all([f"tea number {number}" for number in range(3)])
    found = search(library, "tea", excluded_refs=frozenset([entries[0].ref]))
    assert {item.entry.id for item in found} == {entry.id for entry in entries[1:]}


def test_terms_of_the_question_are_told_in_its_order(library):
    """L6: each hit says which words it was found by."""
    library.add("A green gate needs oil")
    [found] = search(library, "Does oil help the old gate?")
    assert found.terms == ("oil", "gate")


class Frequencies:
    """An index that only counts, and notes what it was asked to match."""

    def __init__(self, counts: dict[str, int]) -> None:
        self.counts = counts
        self.asked: tuple[str, ...] = ()
        self.asked_together: tuple[str, ...] = ()

    def speakers(self, scope, *, limit):
        return []

    def stats(self, scope):
        return {"user:ada": SpaceStats(100_000, 1_000_000, 1)}

    def frequencies(self, scope, wanted):
        return {"user:ada": {term: self.counts[term] for term in wanted if term in self.counts}}

    def matches(self, query, wanted, *, limit, terms_max, at_least=1):
        if at_least == 1:
            self.asked = tuple(wanted)
        else:
            assert at_least == 2
            self.asked_together = tuple(wanted)
        assert (limit, terms_max) == (CANDIDATES_MAX, TERMS_READ_MAX)
        return []


def ask(counts: dict[str, int], *wanted: str) -> tuple[str, ...]:
    return search_counted(counts, *wanted).asked


def search_counted(counts: dict[str, int], *wanted: str) -> Frequencies:
    index = Frequencies(counts)
    asked = read_query(index, ADA, *read_words(" ".join(wanted)))  # type: ignore[arg-type]
    assert find_by_words(index, LaneQuery(ADA, 0.0), asked) == []  # type: ignore[arg-type]
    return index


def test_common_words_are_not_searched_by_beside_rare_ones():
    """L6: a long query reads no more candidates than a short one."""
    asked = ask({"cat": 30_000, "miso": 3, "soup": CANDIDATES_MAX - 3}, "cat", "miso", "soup", "gold")
    assert asked == ("miso", "soup")


def test_a_query_of_common_words_is_searched_by_the_rarest():
    """L6: something is always searched when the space knows a word of the query."""
    assert ask({"cat": 30_000, "dog": 20_000}, "cat", "dog") == ("dog",)


def test_words_that_no_space_knows_are_not_searched_by():
    """L5: and when none is known, the store is not asked."""
    assert ask({"cat": 30}, "gold", "cat") == ("cat",)
    assert ask({}, "gold", "silver") == ()


def test_how_common_a_word_is_counts_over_all_spaces():
    """L6: candidates of all of them have to be read."""
    spaces = {name: weigh_terms(("cat", "dog"), {"cat": 300, "dog": 200}, 1000) for name in ("user:ada", "team:a")}
    assert rarest_terms(known_terms(Query(("cat", "dog"), frozenset(), spaces))) == ("dog",)


def test_where_words_are_common_entries_with_two_of_the_rarest_are_searched_too():
    """L6: the newest entries with the rarest word need not have another."""
    counts = {"cat": 30_000, "dog": 20_000, "miso": 3, "soup": 900, "bowl": 800, "tea": 0}
    index = search_counted(counts, *counts)
    assert (index.asked, index.asked_together) == (("miso",), ("miso", "bowl", "soup", "dog"))


@pytest.mark.parametrize("counts", [{"miso": 3, "soup": CANDIDATES_MAX - 3}, {"cat": 30_000}])
def test_pairs_are_not_searched_where_they_find_nothing_else(counts):
    """L6: all entries with a word of the query are candidates already, or it has one word only."""
    assert search_counted(counts, *counts, "gold").asked_together == ()


class Looked(tuple[str, ...]):
    """A candidate's terms that count how many of them are looked at."""

    looks = 0

    def __iter__(self):
        Looked.looks += len(self)
        return super().__iter__()

    def count(self, value):
        Looked.looks += len(self)
        return super().count(value)


def test_scoring_does_not_look_at_a_term_for_every_word_that_is_asked(monkeypatch):
    """L6: the time grows with the candidates' words, however many words the query has."""
    monkeypatch.setattr(Looked, "looks", 0)
    wanted = [f"word{number}" for number in range(200)]
    asked = read_query(Frequencies(dict.fromkeys(wanted, 2)), ADA, *read_words(" ".join(wanted)))  # type: ignore[arg-type]
    held = Looked(wanted * 40)
    weighed = LexicalScorer(HERE, asked, {}).score(indexed_entry(1, entry("x"), held), Neighbours())
    assert weighed.share > 0
    assert Looked.looks <= 2 * len(held)
    assert len(weighed.terms) == QUERY_TERMS_MAX


def test_scoring_looks_up_now_and_then():
    """L1: whoever waits no longer is noticed before all candidates are weighed."""
    asked = Query(("tea",), frozenset(), {"user:ada": weigh_terms(("tea",), {"tea": 3}, 3)})
    looked: list[None] = []
    entries = [indexed_entry(key, entry("tea", id=f"e{key}"), ("tea",)) for key in range(200)]
    weighed = list(LexicalScorer(HERE, asked, {}).score_all(entries, Neighbours(), lambda: looked.append(None)))
    assert len(weighed) == 200
    assert len(looked) >= 3


def test_an_entry_of_a_space_that_was_not_weighed_has_no_share():
    """L2: what is not known of a space is not guessed from another."""
    asked = Query(("tea",), frozenset(), {"team:a": weigh_terms(("tea",), {"tea": 3}, 3)})
    weighed = LexicalScorer(HERE, asked, {}).score(indexed_entry(1, entry("tea"), ("tea",)), Neighbours())
    assert (weighed.share, weighed.terms) == (0.0, ("tea",))


def test_a_giant_corpus_is_scored_within_bounds(library):
    """L6: of the longest candidates only as many are read as there is time for."""
    body = "tea " * 8192
    for number in range(40):
        library.add(f"{body} {number}", conversation=f"old{number}")
    library.add("tea in short", conversation="short")
    found = search(library, "tea", lane=Lane.EPISODIC)
    assert TERMS_READ_MAX - 8192 < sum(len(terms(item.entry.text)) for item in found) <= TERMS_READ_MAX
    assert "tea in short" in texts(found)
