"""Which hits of a turn become lines, in which order, and when there is none."""

from dataclasses import replace

import pytest

from afterturn.recall.relevance import (
    JudgedQuestion,
    group_exchanges,
    judge,
    lines_of,
    with_partners,
    worth_showing,
)
from afterturn.recall.what_holds import may_replace, put_newer_first
from afterturn.testing.entries import DAY, NOW, hit
from afterturn.text import terms
from afterturn.types import Hit, Lane, Origin


def said(text: str, id: str, *, turn: str, origin: Origin = Origin.USER, **fields: object) -> Hit:
    return hit(text, id=id, lane=Lane.EPISODIC, turn=turn, origin=origin, **fields)


def exchange(message: str, answer: str) -> list[Hit]:
    return with_partners([said(message, "r001", turn="t1"), said(answer, "r002", turn="t1", origin=Origin.AGENT)])


def shown_ids(line: Hit) -> tuple[str, str | None]:
    return line.entry.id, line.answer.id if line.answer is not None else None


def chances(*values: float) -> list[Hit]:
    return [hit(f"Fact {at}", id=f"m{at}", score=value) for at, value in enumerate(values)]


def scores(hits: list[Hit]) -> list[float]:
    return [one.score for one in hits]


def test_a_fact_that_begins_like_an_order_is_judged():
    """L9: "book" is a noun here, and no order."""
    fact = said("book club meets the first monday of the month at Sanne's", "r001", turn="t1")
    assert scores(judge("When is the book club?", [fact], now=NOW, weights={"book": 3.0, "club": 3.0}))[0] > 0


def test_nothing_is_shown_if_the_best_is_below_the_floor():
    """L13, L5: however many come close to it."""
    assert worth_showing(chances(0.24, 0.24, 0.23), 0.25) == []
    assert scores(worth_showing(chances(0.25, 0.24), 0.25)) == [0.25, 0.24]
    assert worth_showing([], 0.25) == []


def test_lines_after_the_best_need_half_of_the_floor():
    """L13: as many lines as are worth their tokens, not a fixed number."""
    assert scores(worth_showing(chances(0.3, 0.13, 0.12), 0.25)) == [0.3, 0.13]


def test_lines_after_the_best_need_a_share_of_its_chance():
    """L13: next to a certain answer, a fair one is noise."""
    assert scores(worth_showing(chances(0.96, 0.25, 0.23), 0.25)) == [0.96, 0.25]


ADVICE = (
    "Write the main points down first, and leave some time for surprises. A simple plan is easier to adjust.",
    "Many people find small steps useful. Check after each of them whether the direction is still right.",
    "If you like, compare two or three options, with what speaks for each of them, before anything is decided. " * 2,
)


@pytest.mark.parametrize("place", range(len(ADVICE) + 1))
def test_a_long_answer_is_judged_by_the_passage_that_bears_on_the_question(place):
    """L13: advice around it changes neither the chance nor whether there is a line."""
    question, told = "When does the vet open on Saturdays?", "The vet opens at nine on Saturdays."
    answers = (told, "\n\n".join([*ADVICE[:place], told, *ADVICE[place:]]))
    short, long = (
        judge(question, exchange("When is the vet open?", answer), now=NOW, weights={"vet": 3.0, "saturday": 3.0})
        for answer in answers
    )
    assert [one.score for one in long] == [one.score for one in short]
    [line] = lines_of(question, long)
    assert shown_ids(line) == ("r001", "r002")
    assert {"vet", "open", "saturday"} <= set(line.terms)


def test_a_question_is_shown_with_an_answer_that_names_more():
    """L11: a number, a name or a date that the question lacks, however little else the answer states."""
    [line] = lines_of("Which bus do I take?", exchange("Which bus was it again?", "Bus 74, please."))
    assert shown_ids(line) == ("r001", "r002")
    assert lines_of("Which bus do I take?", exchange("Which bus was it again? The 74?", "Hm, 74?")) == []


def test_without_a_floor_everything_is_shown():
    """L13: for somebody who wants to see what was found."""
    assert scores(worth_showing(chances(0.9, 0.01), 0.0)) == [0.9, 0.01]


def test_a_question_with_a_telling_answer_is_one_line():
    """L11: what was asked tells nothing by itself."""
    [line] = lines_of("When is the vet open?", exchange("When does the vet open?", "The vet opens at nine each day."))
    assert shown_ids(line) == ("r001", "r002")


@pytest.mark.parametrize("answer", ["You're welcome!", "Which one do you mean?", "Noted."])
@pytest.mark.parametrize(
    "asked", ["When does the vet open?", "When is the vet open?", "What food is my vet allergic to?"]
)
def test_a_question_without_a_telling_answer_is_no_line(asked: str, answer: str):
    """L11: asking again must not show what was asked before."""
    assert lines_of("When is the vet open?", exchange(asked, answer)) == []


def test_a_message_that_states_something_needs_no_answer():
    """L11, L10: the answer is added only if it has more words of the question."""
    [alone] = lines_of("Where is the vet?", exchange("My vet is in Leeds.", "Good to know, thanks for telling me."))
    [added] = lines_of("When is the vet open?", exchange("My vet is in Leeds.", "That vet is open from nine to five."))
    assert shown_ids(alone) == ("r001", None)
    assert shown_ids(added) == ("r001", "r002")


def order_of(question: str, hits: list[Hit], chances: list[float]) -> tuple[list[str], list[str]]:
    """The ids in the order in which they are shown, and those that are marked as earlier."""
    exchanges = group_exchanges(hits)
    read = JudgedQuestion.read(question, NOW, {"gym": 3.0, "go": 1.0})
    order, earlier = put_newer_first(read, exchanges, chances)
    ids = [one.hits[0].entry.id for one in exchanges]
    return [ids[at] for at in order], [ids[at] for at in sorted(earlier)]


OLD = hit("I go to the gym on Mondays", id="old", occurred_at=NOW - 30 * DAY)
NEW = hit("I no longer go to the gym on Mondays, I moved it to Thursdays", id="new", occurred_at=NOW - DAY)
OTHER = hit("My bike is blue", id="other", occurred_at=NOW - DAY / 2)


@pytest.mark.parametrize(
    "question, content",
    [
        ("Wo kaufe ich denn die Bretter?", "bretter"),
        ("Dónde compro yo los tornillos", "tornillo"),
        ("Waar is mijn fiets", "fiet"),
    ],
)
def test_words_of_grammar_do_not_make_a_line_more_likely(question: str, content: str):
    """L11: in no language. "Ich" and "die" are in messages about anything."""
    read = JudgedQuestion.read(question, NOW, dict.fromkeys(terms(question), 2.0))
    assert content in read.terms
    assert read.terms.isdisjoint({"ich", "die", "yo", "los", "mijn"})


def test_what_holds_now_comes_before_what_it_replaces():
    """L12: though the older one is more like the question; what is about something else keeps its place."""
    assert order_of("When do I go to the gym?", [OLD, NEW, OTHER], [0.8, 0.6, 0.3]) == (
        ["new", "old", "other"],
        ["old"],
    )


def test_a_question_about_the_past_finds_what_was_so_then():
    """L12: neither the order nor a mark is changed."""
    for question in ("When did I go to the gym before?", "When did I go to the gym in October?"):
        assert order_of(question, [OLD, NEW, OTHER], [0.8, 0.6, 0.3]) == (["old", "new", "other"], [])


def test_what_holds_now_comes_first_of_what_was_said_in_the_range():
    """L12, L14: a range about the past excludes only what was said later, and one that is ahead excludes nothing."""
    for question in ("When did I go to the gym this week?", "When do I go to the gym next month?"):
        assert order_of(question, [OLD, NEW], [0.8, 0.6])[0] == ["new", "old"]


def test_an_order_marks_nothing_as_earlier():
    """L12: it may come first, but what was stated still holds."""
    stated = hit("When you book the gym for my mother: she is allergic to dust", id="old", occurred_at=NOW - 30 * DAY)
    order = said("Now book the gym for my mother on Thursday instead", "new", turn="t1", occurred_at=NOW - DAY)
    assert order_of("Book the gym for my mother", [stated, order], [0.8, 0.6])[1] == []


def test_messages_of_the_same_moment_do_not_replace_each_other():
    """L12: somebody who says two things at once means both."""
    at_once = replace(OLD, entry=replace(OLD.entry, occurred_at=NEW.entry.occurred_at - 30))
    assert order_of("When do I go to the gym?", [at_once, NEW], [0.8, 0.6]) == (["old", "new"], [])


def test_a_time_in_a_question_weighs_and_does_not_filter():
    """L14: of two that match alike, what was said then comes first; the other one is still judged."""
    near = said("We had dinner at the harbour", "near", turn="t1", occurred_at=NOW - 2 * DAY)
    far = said("We had dinner at the station", "far", turn="t2", occurred_at=NOW - 40 * DAY)
    weights = {"dinner": 3.0}

    def judged(question: str) -> dict[str, float]:
        return {one.entry.id: one.score for one in judge(question, [far, near], now=NOW, weights=weights)}

    anytime, then = judged("Where did we have dinner?"), judged("Where did we have dinner six weeks ago?")
    assert then["far"] > anytime["far"]
    assert then["far"] > then["near"] > 0


@pytest.mark.parametrize(
    "fact, remark, answer",
    [
        ("Aldo keeps bees", "What a day", "Filed under household."),
        ("Wir kaufen das Brot nur bei Aldo", "Das war ein Tag", "Das habe ich mir für dich notiert."),
        ("Compro el pan solo en Aldo", "Que día, el tren no llegó", "Lo he apuntado en el cuaderno."),
    ],
)
def test_an_answer_that_is_always_the_same_does_not_make_a_remark_newer(fact: str, remark: str, answer: str):
    """L12: an agent often says the same, which tells nothing about what holds now; neither do articles and pronouns."""
    told = [
        said(fact, "r001", turn="t1", occurred_at=NOW - 9 * DAY),
        said(answer, "r002", turn="t1", origin=Origin.AGENT, occurred_at=NOW - 9 * DAY),
        said(remark, "r003", turn="t2", occurred_at=NOW - DAY),
        said(answer, "r004", turn="t2", origin=Origin.AGENT, occurred_at=NOW - DAY),
    ]
    older, newer = group_exchanges(with_partners(told))
    assert not older.content.isdisjoint(newer.content)
    assert not may_replace(older, newer)
    assert may_replace(older, replace(newer, said=told[0].entry))


def test_many_lines_of_a_conversation_leave_room_for_the_best_of_another():
    """L13: ten turns of scratch have high chances, and the one lasting line has a fair one."""
    scratch = [hit(f"Draft {at}", id=f"s{at}", lane=Lane.SHORT_TERM, score=0.9) for at in range(10)]
    lasting, weak = (hit("I never drink coffee", id=id, score=score) for id, score in (("m1", 0.21), ("m2", 0.19)))
    assert worth_showing([*scratch, lasting, weak], 0.2) == [*scratch, lasting]
    assert worth_showing([*scratch, weak], 0.2) == scratch
