"""The reports of the benchmarks, and how figures are computed. Times are not asserted: they depend on the machine."""

import gzip
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from afterturn.config import Config
from afterturn.errors import InvalidInput
from afterturn.guard.output_filter import TAG
from lab.bench import __main__ as command
from lab.bench import cost, hooks, load, proxy, review, server, turn
from lab.bench.host import NoMemory, SlowModel, run_turn
from lab.bench.recall import BruteForce, Options, measure_recall
from lab.bench.report import Figure, Goal, Report, judge, make_report, percentile, write_section
from lab.bench.store import alternate, measure_store
from lab.bench.texts import TOPICS, Corpus, drafts, load_corpus, memories, questions, sentences
from lab.bench.turn import OURS, PER_CALL, PER_TURN, ConversationPlan, DeliveredTurn, Delivery, Prompts, Waits

BLOCK = f"<{TAG}>\n## Relevant Memory\n- [{{}}] today, user: Tea is kept in the kitchen.\n</{TAG}>"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stores")


class Reports(dict[str, Report]):
    """Measures a part when it is first asked for, so that no process runs what only the tests of another need."""

    def __init__(self, kept: Path) -> None:
        self.kept = kept
        self.steps: dict[str, list[str]] = {}

    def __missing__(self, part: str) -> Report:
        add_step = self.steps.setdefault(part, []).append
        match part:
            case "store":
                self[part] = measure_store(quick=True, progress=add_step)
            case "turn":
                self[part] = turn.measure_turn(quick=True, progress=add_step)
            case "recall":
                self[part] = measure_recall(Options(quick=True, keep=self.kept), progress=add_step)
            case "review":
                self[part] = review.measure_review(quick=True, progress=add_step)
            case "load":
                self[part] = load.measure_load(quick=True, progress=add_step)
            case "hooks":
                self[part] = hooks.measure_hooks(quick=True, progress=add_step)
            case "proxy":
                self[part] = proxy.measure_proxy(quick=True, progress=add_step)
            case "server":
                self[part] = server.measure_server(quick=True, progress=add_step)
        return self[part]


@pytest.fixture(scope="module")
def reports(kept: Path) -> Reports:
    return Reports(kept)


PARTS = pytest.mark.parametrize("part", ["store", "turn", "recall", "review", "load", "hooks", "proxy", "server"])


@pytest.mark.slow
@PARTS
def test_a_quick_run_is_not_judged_and_says_so(reports: dict[str, Report], part: str):
    """Figures of a handful of rounds mean nothing: they would fail, or pass, by chance."""
    text = reports[part].as_text()
    assert text.startswith("quick: too few rounds for valid figures")
    assert (reports[part].passed, "FAIL" in text) == (None, False)


@pytest.mark.slow
@PARTS
def test_every_figure_is_in_every_form_of_the_report(reports: dict[str, Report], part: str):
    report = reports[part]
    shown = [" ".join(form.split()) for form in (report.as_text(), report.as_markdown())]
    wanted = [text for figure in report.figures for text in (figure.name, figure.target, *figure.notes)]
    assert [text for text in wanted for form in shown if text not in form] == []
    assert json.loads(json.dumps(report.as_dict()))["command"] == f'make bench-{part} ARGS="--quick"'


@pytest.mark.slow
@PARTS
def test_a_run_prints_its_progress(reports: Reports, part: str):
    assert len(reports[part].figures) <= len(reports.steps[part])


@pytest.mark.slow
def test_the_benchmarks_measure_what_people_feel(reports: dict[str, Report]):
    names = {part: [figure.name for figure in reports[part].figures] for part in ("store", "recall", "review")}
    assert names["store"] == [
        "durable add",
        "bulk import",
        "lag of the host's loop during an import, p99",
        "import afterturn",
    ]
    assert [table.title for table in reports["turn"].tables] == [
        "Memory in prompts",
        "Time added to a turn",
        "Delivery in the same turn",
        "Cost of a warm turn",
    ]
    of_size = ["{} memories, p50", "{} memories, a search until the index is in memory, p50"]
    assert [name for name in names["recall"] if name.endswith("p50")] == [
        name.format(size) for size in (100, 600) for name in of_size
    ]
    assert names["review"] == [case.name for case in review.CASES]


def test_model_calls_of_a_full_run_take_half_a_second():
    assert (turn.FULL.call_seconds, review.FULL.call_seconds) == (0.5, 0.5)


@pytest.mark.slow
def test_a_run_of_ours_recalls_once_for_each_user_message(reports: dict[str, Report]):
    """R1: the others of the same run show what is saved."""
    table = reports["turn"].tables[0]
    assert {row[1]: row[3] for row in table.rows} == {PER_CALL: "6", PER_TURN: "3", OURS: "3"}


@pytest.mark.slow
def test_every_prompt_of_ours_begins_with_the_one_before_it(reports: dict[str, Report]):
    """H3: a block that is shown for one call only breaks each prompt."""
    table = reports["turn"].tables[0]
    stable = {row[1]: row[6] for row in table.rows}
    assert (stable[OURS], stable[PER_CALL]) == ("100%", "0%")


@pytest.mark.slow
def test_every_turn_of_the_run_had_something_to_deliver(reports: dict[str, Report]):
    relevant = [row[3].split(" of ") for row in reports["turn"].tables[2].rows]
    assert relevant
    assert [pair for pair in relevant if pair[0] != pair[1]] == []


@pytest.mark.slow
def test_one_run_compares_turns_with_and_without_reviews(reports: dict[str, Report]):
    """V2: during reviews by a model that answers, by one that hangs, and by rules."""
    assert all(figure.ours > 0 and figure.baseline for figure in reports["review"].figures)


@pytest.mark.slow
def test_the_measured_reviews_really_write(reports: dict[str, Report]):
    """V1, V11: otherwise a small difference would mean nothing."""
    answering, hanging, rules = (figure.notes[0] for figure in reports["review"].figures)
    assert "2 reviews by a model" in answering
    assert "wrote 2 memories" in answering
    assert "2 reviews by a model" in hanging
    assert "wrote 0 memories" in hanging
    assert "6 by rules" in rules
    assert "wrote 4 memories" in rules


@pytest.mark.slow
def test_kept_stores_are_found_again_by_the_next_run(reports: dict[str, Report], kept: Path):
    assert reports["recall"].figures
    before = {path: path.stat().st_mtime_ns for path in kept.glob("*.done")}
    measure_recall(Options(quick=True, sizes=(100,), keep=kept))
    assert len(before) == 2
    assert {path: path.stat().st_mtime_ns for path in kept.glob("*.done")} == before


# Reports.


def test_a_report_passes_only_when_every_figure_does():
    good = judge("adding", "µs", 1.3, Goal(1.3), baseline=1.0)
    reported = judge("growing", "MB", 9.0)
    assert make_report("store", [], "", [good, reported]).passed is True
    failed = make_report("store", [], "", [good, judge("adding", "µs", 1.4, Goal(1.3), baseline=1.0)])
    assert failed.passed is False
    assert "FAIL" in failed.as_text()


@pytest.mark.parametrize(
    "goal,value,met,text",
    [
        (Goal(0.4), 0.4, True, "≤ 0.4 ×"),
        (Goal(0, ""), 0.1, False, "≤ 0"),
        (Goal(99, "%", at_least=True), 99.0, True, "≥ 99 %"),
        (Goal(0.97, "", at_least=True), 0.969, False, "≥ 0.97"),
    ],
)
def test_a_goal_says_which_side_is_good(goal: Goal, value: float, met: bool, text: str):
    assert (goal.is_met(value), str(goal)) == (met, text)


def test_a_goal_in_a_unit_judges_the_figure_and_not_its_ratio():
    assert judge("search", "ms", 4.0, Goal(5, "ms"), baseline=1.0).passed
    assert not judge("search", "ms", 4.0, Goal(3), baseline=1.0).passed


def test_a_percentile_of_few_values_is_one_of_them():
    assert percentile([3.0, 1.0, 2.0], 0.99) == 3.0


def test_a_section_of_the_page_is_replaced_where_it_is_or_appended(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text("# Benchmarks\n\nHello.\n\n## Store\n\n### Old\n\n1\n\n## Recall\n\n2\n", encoding="utf-8")
    report = make_report("store", [], "New.", [Figure("adding", "µs", 1.0)])
    write_section(page, report)
    write_section(page, replace(report, title="Reviews"))
    text = page.read_text(encoding="utf-8")
    assert re.findall(r"(?m)^#+ .*", text) == ["# Benchmarks", "## Store", "## Recall", "## Reviews"]
    assert "\n\n## Reviews\n" in text
    assert "Old" not in text


def test_an_unknown_part_is_refused_with_the_names_of_all(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="2"):
        command.main(["everything"])
    said = capsys.readouterr().err
    assert [part for part in command.PARTS if part not in said] == []


# How figures are made.


def message(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


async def test_ours_and_the_baseline_alternate_and_the_first_round_does_not_count():
    order: list[str] = []

    async def ours(at: int) -> float:
        order.append(f"ours {at}")
        return at

    async def baseline(at: int) -> float:
        order.append(f"baseline {at}")
        return at * 10

    assert await alternate(2, ours, baseline) == (1.5, 15.0)
    assert order == ["baseline 0", "ours 0", "ours 1", "baseline 1", "baseline 2", "ours 2"]


def test_tokens_are_injected_once_and_carried_by_every_later_prompt():
    block, other = message(BLOCK.format("a")), message(BLOCK.format("b"))
    prompts = [[message("one"), block], [message("one"), block, message("two"), other]]
    found = turn.weigh(ConversationPlan("two", (1, 1)), OURS, 2, prompts)
    assert found.injected > 0
    assert found.carried == found.injected * 1.5
    assert (found.stability, found.repeats, found.most_often) == (1.0, 0, 1)


def test_a_memory_that_is_put_in_again_is_a_repeat():
    block = message(BLOCK.format("a"))
    found = turn.weigh(ConversationPlan("two", (1, 1)), PER_TURN, 2, [[block], [block, message("two"), block]])
    assert (found.repeats, found.most_often) == (1, 2)


def test_a_block_that_moves_is_injected_again_and_breaks_the_prefix():
    block = message(BLOCK.format("a"))
    prompts = [[message("one"), block], [message("one"), message("two"), block]]
    found = turn.weigh(ConversationPlan("one", (2,)), PER_CALL, 2, prompts)
    assert (found.stability, found.injected, found.repeats) == (0.0, found.carried, 0)


def test_turns_whose_recall_found_nothing_do_not_count_for_delivery():
    seen = [DeliveredTurn(True, True, 0.01), DeliveredTurn(True, False, 0.05), DeliveredTurn(False, False, 0.03)]
    found = turn.tally("turns", 0.05, 1, seen)
    assert (found.turns, found.relevant, found.delivered) == (3, 2, 1)
    assert (found.waited, found.waited_max) == (0.03, 0.05)


def test_each_target_is_held_to_the_worst_case():
    default = Config().grace
    prompts = [
        Prompts("course", way, 2, 4, 2, injected, 100, 1.0, 0, 1)
        for way, injected in ((PER_CALL, 40), (PER_TURN, 20), (OURS, 10))
    ]
    waits = [
        Waits("calm", "ours", 0.0, 1, 5, 0.5, 0.001, 0.002),
        Waits("slow", "ours", 0.0, 1, 5, 0.5, 0.004, 0.01),
        Waits("slow", "ours", default, 1, 5, 0.5, default + 0.003, default + 0.004),
        Waits("slow", "awaiting everything", None, 1, 5, 0.5, 9.0, 9.0),
    ]
    deliveries = [
        Delivery("no selector", 0.0, 1, 9, 9, 0, 0.0, 0.0),
        Delivery("no selector", default, 14, 9, 9, 0, 0.0, 0.0),
        Delivery("no selector", default, 1, 196, 196, 196, 0.0, 0.0),
        Delivery(turn.FIRST_AT_ONCE, default, 1, 2, 2, 1, 0.0, 0.0),
        Delivery(turn.FIRST_LATER, default, 1, 2, 2, 2, 0.0, 0.0),
    ]
    figures = [*turn.prompt_figures(prompts), *turn.wait_figures(waits), *turn.delivery_figures(deliveries)]
    assert [(figure.name, round(figure.ours, 3), figure.passed, figure.notes[0]) for figure in figures] == [
        ("recalls per user message", 1.0, True, "course"),
        ("prompts that begin with the one before", 100.0, True, "course"),
        ("memories shown again while visible", 0.0, True, "course"),
        ("tokens injected, compared with recall per turn", 0.5, True, "course"),
        ("tokens injected, compared with recall per call", 0.25, True, "course"),
        ("added to a turn at grace 0", 2.0, False, "slow, 1 steps"),
        ("added to a turn beyond the default grace", 0.8, True, "slow, 1 steps"),
        ("turns without tools delivered, first turns included", 99.5, True, "199 of 200"),
        ("first turns of processes delivered", 75.0, False, "3 of 4"),
    ]


@pytest.mark.parametrize("count", [1, 5])
async def test_a_turn_calls_the_model_once_a_step_and_pairs_its_tools(count: int):
    messages = [message("earlier")]
    assert await run_turn(NoMemory(), SlowModel(count, 0.0), messages, "and now?") == count
    calls = [call["id"] for one in messages for call in one.get("tool_calls") or ()]
    assert calls == [one["tool_call_id"] for one in messages if one["role"] == "tool"]
    assert len(calls) == count - 1


def test_brute_force_gives_the_nearest_with_their_texts(tmp_path: Path):
    with BruteForce(tmp_path / "brute.db", 50) as brute:
        vector = brute._matrix[7] / np.linalg.norm(brute._matrix[7])
        found = brute.nearest(vector)
    assert found[0][0] == "Memory 7 of the baseline."
    assert [score for _, score in found] == sorted((score for _, score in found), reverse=True)
    assert len(found) == 10


# Texts.


def test_sentences_are_the_same_for_the_same_seed_and_differ_otherwise():
    assert sentences(50, seed=1) == sentences(50, seed=1)
    assert not set(sentences(50, seed=1)) & set(sentences(50, seed=2))


def test_questions_come_back_to_every_topic_and_no_two_memories_are_the_same():
    asked = questions(2 * len(TOPICS))
    assert [sum(question in topic.questions for question in asked) for topic in TOPICS] == [2] * len(TOPICS)
    assert len(set(memories(1000))) == len(memories(1000))


def test_real_text_is_recombined_without_repeats_to_any_amount(tmp_path: Path):
    items = [{"text": f"Item {at} is about the lighthouse. It has {at} steps! Nobody counts them."} for at in range(20)]
    document = [{"conv_id": "c", "items": items, "questions": [{"question": "How many steps?"}]}]
    path = tmp_path / "talk.json.gz"
    path.write_bytes(gzip.compress(json.dumps(document).encode()))
    corpus = load_corpus(path)
    texts = list(corpus.texts(200, seed=1))
    assert len(set(texts)) == 200
    assert set(texts[:20]) == set(corpus.items)
    assert corpus.questions(2, [], seed=1) == ["How many steps?"] * 2


@pytest.mark.parametrize("content", ['{"text": "One."}\n{"text": "Two."}\n', "One.\n\nTwo.\n"])
def test_lines_of_json_or_plain_text_are_read(tmp_path: Path, content: str):
    path = tmp_path / "lines"
    path.write_text(content, encoding="utf-8")
    assert load_corpus(path) == Corpus("lines", ("One.", "Two."))


@pytest.mark.parametrize("content,said", [(b"\n", "holds no text"), (b'[{"no": 1}]', "read"), (b"\xff", "utf-8")])
def test_a_file_without_text_is_refused(tmp_path: Path, content: bytes, said: str):
    path = tmp_path / "wrong"
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match=said):
        load_corpus(path)


def test_generated_questions_ask_for_words_of_a_memory():
    corpus = load_corpus(None)
    texts = list(corpus.texts(5, seed=1))
    words = {word for text in texts for word in text.lower().strip(".").split()}
    asked = corpus.questions(10, texts, seed=1)
    assert all(set(one.removeprefix("What about ").strip("?").split()) <= words for one in asked)


def test_the_memories_are_messages_with_statements_among_them():
    found = list(drafts(iter("abcdef"), 6))
    assert [draft.kind for draft in found] == ["statement", *["record"] * 4, "statement"]
    assert [draft.occurred_at for draft in found] == sorted(draft.occurred_at or 0 for draft in found)


async def test_the_cost_of_a_turn_is_measured_for_each_kind_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """One run has both, in the same process and with the same embedder."""
    searched: list[int] = []

    class Collection:
        def query(self, query_embeddings: Any, n_results: int) -> dict[str, Any]:
            searched.append(len(query_embeddings))
            return {"documents": [["Tea is kept in the kitchen."]]}

    monkeypatch.setattr(cost, "open_chroma", lambda folder, texts, embedder: Collection())
    monkeypatch.setattr(cost, "WARM_UP", 1)
    costs, growth = await cost.measure_cost(tmp_path / "store.db", [], 1, lambda step: None)
    assert {one.way for one in costs} == {cost.CHROMA, cost.PLAIN, cost.OURS, cost.LATER}
    assert searched == [1, 1]
    assert [figure.target for figure in growth if figure.target] == ["≤ 5", "≤ 0.06 ms", "≤ 1.5 ms", "≤ 0.4 ms"]
    figures = cost.cost_figures(costs)
    assert [figure.target for figure in figures] == ["≤ 6 ms", "≤ 11 ms"]
    assert all(figure.baseline is not None for figure in figures)
    [alone, _] = cost.cost_figures([one for one in costs if one.way != cost.CHROMA])
    assert (alone.baseline, "chromadb is not installed" in alone.notes[0]) == (None, True)
