"""Search by words on a real store."""

from afterturn.base.terms import terms
from afterturn.base.types import Extent, Lane, LaneQuery, Match, Scope
from afterturn.recall.lexical import CANDIDATES_MAX, QUERY_TERMS_MAX, TERMS_READ_MAX, Lexical, Scored, weigh_terms
from afterturn.testing.entries import entry

ADA = Scope("default", ("user:ada",))


def search(library, text: str, scope: Scope = ADA, **query) -> list[Scored]:
    def work(unit):
        lexical = weigh_terms(unit.index, scope, terms(text))
        return lexical.search(unit.index, LaneQuery(scope, 1000.0, Lane.LONG_TERM, **query))

    return library.read(work)


def texts(found: list[Scored]) -> list[str]:
    return [item.match.entry.text for item in found]


def test_rare_words_weigh_more_than_common_ones(library):
    """L6: the space's own frequencies decide what a word is worth."""
    library.add_all([f"The garden has a tree number {number}" for number in range(20)])
    library.add("Saffron is in the cupboard")
    assert texts(search(library, "tree with saffron"))[0] == "Saffron is in the cupboard"


def test_another_space_never_reorders_results(library):
    """L6: what Bob stores changes neither the order nor the scores that Ada gets."""
    library.add_all(["The garden gate is green", "The kitchen is green and new", "A green gate needs oil"])
    before = [(item.match.entry.id, item.score) for item in search(library, "green gate kitchen")]
    library.add_all([f"gate {number}" for number in range(50)], space="user:bob")
    both = search(library, "green gate kitchen", Scope("default", ("user:ada", "user:bob")))
    assert [(item.match.entry.id, item.score) for item in both if item.match.entry.space == "user:ada"] == before


def test_scores_stay_between_zero_and_one(library):
    """L5: a floor has a meaning only when scores have one."""
    library.add_all(["cat cat cat cat cat cat", "cat", "cat and dog and horse"])
    scores = [item.score for item in search(library, "cat dog horse")]
    assert all(0 < score < 1 for score in scores)


def test_words_that_the_space_does_not_know_lower_the_score(library):
    """L5: one word in common out of five is a weak match."""
    library.add("I like tea")
    [whole] = search(library, "tea")
    [part] = search(library, "tea weather tomorrow mountain forecast")
    assert part.score < whole.score / 3


def test_equal_scores_go_by_recency_and_then_by_id(library):
    """L6: the same input gives the same order."""
    library.add("Tea is fine", id="b001", occurred_at=50.0)
    library.add("tea: fine!", id="a001", occurred_at=50.0, project="x")
    library.add("Fine tea", id="c001", occurred_at=90.0)
    assert [item.match.entry.id for item in search(library, "fine tea")] == ["c001", "a001", "b001"]


def test_stop_words_match_nothing(library):
    """L5: a query of stop words has no terms."""
    library.add("What is this and that about")
    assert search(library, "what is this about") == []


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
    assert {item.match.entry.id for item in found} == {entry.id for entry in entries[1:]}


class Frequencies:
    """An index that only counts, and notes what it was asked to match."""

    def __init__(self, counts: dict[str, int]) -> None:
        self.counts = counts
        self.asked: tuple[str, ...] = ()

    def extents(self, scope):
        return {"user:ada": Extent(100_000, 1_000_000, 1)}

    def frequencies(self, scope, wanted):
        return {"user:ada": {term: self.counts[term] for term in wanted if term in self.counts}}

    def matches(self, query, wanted, *, limit, terms_max):
        self.asked = tuple(wanted)
        return []


def ask(counts: dict[str, int], *wanted: str) -> tuple[str, ...]:
    index = Frequencies(counts)
    lexical: Lexical = weigh_terms(index, ADA, wanted)  # type: ignore[arg-type]
    lexical.search(index, LaneQuery(ADA, 0.0))  # type: ignore[arg-type]
    return index.asked


def test_common_words_are_not_searched_by_beside_rare_ones():
    """L6: a long query reads no more candidates than a short one."""
    asked = ask({"cat": 30_000, "miso": 3, "soup": CANDIDATES_MAX - 3}, "cat", "miso", "soup", "nothing")
    assert asked == ("miso", "soup")


def test_a_query_of_common_words_is_searched_by_the_rarest():
    """L6: something is always searched when the space knows a word of the query."""
    assert ask({"cat": 30_000, "dog": 20_000}, "cat", "dog") == ("dog",)


def test_a_long_query_is_scored_by_its_rarest_words():
    """L6: a pasted page asks for what is rare in it, wherever in the page that stands."""
    counts = {f"common{number}": 400 for number in range(100)} | {"miso": 3}
    lexical = weigh_terms(Frequencies(counts), ADA, list(counts))  # type: ignore[arg-type]
    assert len(lexical.terms) == QUERY_TERMS_MAX
    assert "miso" in lexical.terms


class Looked(tuple[str, ...]):
    """A candidate's terms that count how many of them are looked at."""

    looks = 0

    def __iter__(self):
        Looked.looks += len(self)
        return super().__iter__()

    def count(self, value):
        Looked.looks += len(self)
        return super().count(value)


def test_scoring_looks_at_each_term_once(monkeypatch):
    """L6: the time grows with the candidates' words, however many words the query has."""
    monkeypatch.setattr(Looked, "looks", 0)
    wanted = [f"word{number}" for number in range(200)]
    lexical = weigh_terms(Frequencies(dict.fromkeys(wanted, 2)), ADA, wanted)  # type: ignore[arg-type]
    held = Looked(wanted * 40)
    [scored] = lexical.scores([Match(1, entry("x"), held)])
    assert scored.score > 0
    assert Looked.looks == len(held)


def test_a_giant_corpus_is_scored_within_bounds(library):
    """L6: of the longest candidates only as many are read as there is time for."""
    body = "tea " * 8192
    for number in range(40):
        library.add(f"{body} {number}", conversation=f"old{number}")
    library.add("tea in short", conversation="short")
    found = library.read(
        lambda unit: weigh_terms(unit.index, ADA, ["tea"]).search(unit.index, LaneQuery(ADA, 1000.0, Lane.EPISODIC))
    )
    assert TERMS_READ_MAX - 8192 < sum(len(item.match.terms) for item in found) <= TERMS_READ_MAX
    assert "tea in short" in texts(found)
