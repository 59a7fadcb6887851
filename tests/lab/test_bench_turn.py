"""The form of the turn benchmark's report, and how its figures are made. Times are not asserted: they belong to the
machine."""

import json
from dataclasses import replace
from typing import Any

import pytest

from afterturn.context.neutral import TAG
from lab.bench.turn import QUICK, TARGETS, checks, measure_turn
from lab.bench.turn_corpus import TOPICS, memories, questions
from lab.bench.turn_delivery import FIRST_AT_ONCE, FIRST_LATER, Delivery, Seen, tally
from lab.bench.turn_host import NoMemory, Paced, run_turn
from lab.bench.turn_prompts import OURS, PER_CALL, PER_TURN, Course, Prompts, shared_prefix, weigh
from lab.bench.turn_report import Check, TurnReport
from lab.bench.turn_waiting import Waits

BLOCK = f"<{TAG}>\n## Relevant Memory\n- [{{}}] today, user: Tea is kept in the kitchen.\n</{TAG}>"


@pytest.fixture(scope="module")
def steps() -> list[tuple[str, int, int]]:
    return []


@pytest.fixture(scope="module")
def report(steps: list[tuple[str, int, int]]) -> TurnReport:
    return measure_turn(quick=True, progress=lambda *step: steps.append(step))


def of(report: TurnReport, way: str) -> Prompts:
    return next(one for one in report.prompts if one.way == way)


def test_one_run_gives_a_figure_for_every_target(report: TurnReport):
    assert [check.name for check in report.checks] == list(TARGETS)


def test_a_run_of_ours_recalls_once_for_each_user_message(report: TurnReport):
    """R1: the others of the same run show what is saved."""
    assert (of(report, OURS).recalls, of(report, PER_TURN).recalls, of(report, PER_CALL).recalls) == (3, 3, 6)


def test_every_prompt_of_ours_begins_with_the_one_before_it(report: TurnReport):
    """H3: what is shown for one call only breaks each prompt."""
    assert (of(report, OURS).stability, of(report, PER_CALL).stability) == (1.0, 0.0)


def test_something_is_injected_in_every_way(report: TurnReport):
    assert min(one.injected for one in report.prompts) > 0


def test_every_turn_of_the_run_had_something_to_deliver(report: TurnReport):
    assert [one.relevant - one.turns for one in report.deliveries] == [0] * len(report.deliveries)


def test_waiting_is_measured_beside_a_turn_of_50_ms_calls(report: TurnReport):
    assert [one for one in report.waits if one.bare < 0.05 * one.steps] == []


def test_awaiting_naively_takes_as_long_as_it_may_when_nothing_ever_comes(report: TurnReport):
    naive = {one.case: one.verbs for one in report.waits if one.grace is None}
    assert naive["selector never answers"] >= 0.2 <= naive["store hangs"]


def test_a_run_tells_how_far_it_is(report: TurnReport, steps: list[tuple[str, int, int]]):
    assert [(done, total) for _, done, total in steps] == [(at + 1, QUICK.steps) for at in range(QUICK.steps)]


def test_the_turn_report_is_json(report: TurnReport):
    document = json.loads(json.dumps(report.as_dict()))
    assert set(document) == {"command", "machine", "versions", "checks", "prompts", "waits", "deliveries", "passed"}


@pytest.mark.parametrize("form", ["as_text", "as_markdown"])
def test_the_turn_report_shows_each_target_with_its_result(report: TurnReport, form: str):
    shown = getattr(report, form)()
    assert [check.name for check in report.checks if check.name not in shown or check.target not in shown] == []


def test_a_quick_run_of_turns_is_not_judged_and_says_so(report: TurnReport):
    text = report.as_text()
    assert text.startswith("quick: too little was measured to mean anything")
    assert (report.passed, "FAIL" in text, text.count("  not judged")) == (None, False, len(report.checks))


def test_a_target_that_was_missed_is_shown_as_failed(report: TurnReport):
    missed = replace(report, checks=(Check("added", 2.0, "%", "≤ 1 %", passed=False),))
    assert not missed.passed
    assert "FAIL" in missed.as_text()
    assert "| FAIL |" in missed.as_markdown()


# How figures are made.


def message(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def test_tokens_are_injected_once_and_carried_by_every_later_prompt():
    block, other = message(BLOCK.format("a")), message(BLOCK.format("b"))
    prompts = [[message("one"), block], [message("one"), block, message("two"), other]]
    found = weigh(Course("two", (1, 1)), OURS, 2, prompts)
    assert found.injected > 0
    assert found.carried == found.injected * 1.5
    assert (found.stability, found.repeats, found.most_often) == (1.0, 0, 1)


def test_a_memory_that_is_put_in_again_is_a_repeat_even_beside_new_ones():
    block = message(BLOCK.format("a"))
    found = weigh(Course("two", (1, 1)), PER_TURN, 2, [[block], [block, message("two"), block]])
    assert (found.repeats, found.most_often) == (1, 2)


def test_a_block_that_moves_is_injected_anew_and_breaks_the_prefix():
    block = message(BLOCK.format("a"))
    found = weigh(Course("one", (2,)), PER_CALL, 2, [[message("one"), block], [message("one"), message("two"), block]])
    assert (found.stability, found.injected, found.repeats) == (0.0, found.carried, 0)


@pytest.mark.parametrize("before,prompt,shared", [("", "abc", 0), ("ab", "abc", 2), ("abc", "abd", 2), ("ab", "a", 1)])
def test_prompts_share_what_is_the_same_from_the_beginning_on(before: str, prompt: str, shared: int):
    assert shared_prefix(before, prompt) == shared


def test_turns_whose_recall_had_nothing_do_not_count_for_delivery():
    seen = [Seen(True, True, 0.01), Seen(True, False, 0.05), Seen(False, False, 0.03)]
    found = tally("turns", 0.05, 1, seen)
    assert (found.turns, found.relevant, found.delivered, found.share) == (3, 2, 1, 0.5)
    assert (found.waited, found.waited_max) == (0.03, 0.05)


def test_each_target_is_held_to_the_worst_case():
    prompts = [
        Prompts("course", way, 2, 4, 2, injected, 100, 1.0, 0, 1)
        for way, injected in ((PER_CALL, 40), (PER_TURN, 20), (OURS, 10))
    ]
    waits = [
        Waits("calm", "ours", 0.0, 1, 5, 0.05, 0.0001, 0.0002),
        Waits("slow", "ours", 0.0, 1, 5, 0.05, 0.0004, 0.001),
        Waits("slow", "ours", 0.05, 1, 5, 0.05, 0.0503, 0.0504),
        Waits("slow", "awaiting naively", None, 1, 5, 0.05, 9.0, 9.0),
    ]
    deliveries = [
        Delivery("no selector", 0.0, 1, 9, 9, 0, 0.0, 0.0),
        Delivery("no selector", 0.05, 14, 9, 9, 0, 0.0, 0.0),
        Delivery("no selector", 0.05, 1, 196, 196, 196, 0.0, 0.0),
        Delivery(FIRST_AT_ONCE, 0.05, 1, 2, 2, 1, 0.0, 0.0),
        Delivery(FIRST_LATER, 0.05, 1, 2, 2, 2, 0.0, 0.0),
    ]
    found = {
        check.name: (round(check.figure, 3), check.passed, check.where) for check in checks(prompts, waits, deliveries)
    }
    assert found == {
        "recalls per user message": (1.0, True, "course"),
        "prompts that begin with the one before": (100.0, True, "course"),
        "memories shown again while still in sight": (0.0, True, "course"),
        "tokens injected beside recall per turn": (0.5, True, "course"),
        "tokens injected beside recall per call, × calls per turn": (0.5, True, "course"),
        "added at grace 0, in verbs": (0.8, True, "slow, 1 steps"),
        "added at grace 0, on the wall": (2.0, False, "slow, 1 steps"),
        "added at the default grace beyond the grace, in verbs": (0.6, True, "slow, 1 steps"),
        "added at the default grace beyond the grace, on the wall": (0.8, True, "slow, 1 steps"),
        "tool-free turns delivered, first turns included": (99.5, True, "199 of 200"),
        "first turns of processes delivered": (75.0, False, "3 of 4"),
    }


@pytest.mark.parametrize("count", [1, 2, 5])
async def test_a_turn_of_so_many_steps_calls_the_model_so_often_and_pairs_its_tools(count: int):
    messages = [message("earlier")]
    assert await run_turn(NoMemory(), Paced(count, 0.0), messages, "and now?") == count
    calls = [call["id"] for one in messages for call in one.get("tool_calls") or ()]
    assert calls == [one["tool_call_id"] for one in messages if one["role"] == "tool"]
    assert len(calls) == count - 1


def test_questions_come_back_to_every_topic():
    asked = questions(2 * len(TOPICS))
    assert [sum(question in topic.questions for question in asked) for topic in TOPICS] == [2] * len(TOPICS)


def test_no_two_memories_are_the_same():
    known = memories(1000)
    assert len(set(known)) == len(known)
