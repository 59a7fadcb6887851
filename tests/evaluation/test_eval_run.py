"""`afterturn eval` on short conversations: a real store, real turns, and all baselines."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from afterturn.evaluation.datasets import Dataset, Item, Question, Talk, Utterances
from afterturn.evaluation.everyday import EvalOptions
from afterturn.evaluation.examination import (
    DAY,
    CachedEmbedder,
    Examination,
    MissingParts,
    Subject,
    block_of,
    examine,
    open_subject,
    spaces_of,
)
from afterturn.evaluation.report import as_markdown, as_text
from afterturn.evaluation.run import Evaluation, SilenceCounts, count_silence, evaluate
from afterturn.hosts.cli.app import run
from afterturn.testing.hashing import HashingEmbedder
from afterturn.types import Event

LINES = (
    ("s1", "Ann", "My sister Clara moved to Lisbon in spring and works at an aquarium."),
    ("s1", "Ben", "How wonderful. I have never been to Portugal."),
    ("s2", "Ann", "I sold the old piano yesterday, a neighbour's daughter plays it now."),
    ("s2", "Ben", "My dentist says that I grind my teeth at night."),
    ("s3", "Ann", "We adopted a greyhound called Pepper from the shelter."),
    ("s3", "Ben", "Pepper is a lovely name for a greyhound."),
)
QUESTIONS = (
    ("Where does Ann's sister Clara live?", "single", ["0"]),
    ("What did Ann do with the piano?", "single", ["2"]),
    ("What did they say about Pepper the greyhound?", "multi", ["4", "5"]),
    ("Which volcano did Ann climb?", "abstention", []),
)


def conversations() -> list[dict[str, Any]]:
    items = [
        {"id": str(at), "session": session, "date": f"{at + 1} May, 2023", "speaker": speaker, "text": text}
        for at, (session, speaker, text) in enumerate(LINES)
    ]
    questions = [
        {"qid": f"q{at}", "question": text, "answer": "Lisbon", "category": category, "evidence": evidence}
        for at, (text, category, evidence) in enumerate(QUESTIONS)
    ]
    return [{"conv_id": name, "items": items, "questions": questions} for name in ("one", "two")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("eval")
    (folder / "tiny.json").write_text(json.dumps(conversations()), encoding="utf-8")
    (folder / "unrelated.json").write_text("{}", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def evaluation(folder: Path) -> Evaluation:
    return evaluate([folder], EvalOptions())


@pytest.fixture(scope="module")
def subject() -> Any:
    with open_subject() as opened:
        yield opened


def talk(*questions: Question, name: str = "one") -> Talk:
    items = (Item(str(at), session, who, text, 1e9 + at * DAY) for at, (session, who, text) in enumerate(LINES))
    return Talk(name, tuple(items), questions)


def question(text: str, *evidence: str, known: int = len(LINES), by_session: bool = False) -> Question:
    return Question("q", text, "all", "", evidence, known, by_session)


def test_every_system_is_asked_every_question_with_evidence(evaluation: Evaluation):
    assert {name: found["n"] for name, found in evaluation.results["tiny"].items()} == {
        "afterturn": 6,
        "bm25": 6,
        "dense": 6,
    }


def test_every_figure_is_there_with_its_interval_and_for_each_category(evaluation: Evaluation):
    figures = {"delivered", "delivered_whole", "block_tokens", "recall@1", "recall@10", "all@3", "ndcg@10", "mrr"}
    for found in evaluation.results["tiny"].values():
        assert figures <= set(found)
        assert figures <= set(found["intervals"])
        assert {name: part["n"] for name, part in found["categories"].items()} == {"single": 4, "multi": 2}


def test_the_answer_to_a_plain_question_is_found_and_delivered(evaluation: Evaluation):
    ours = evaluation.results["tiny"]["afterturn"]
    assert (ours["recall@3"], ours["delivered"], ours["delivered_whole"]) == (1.0, 1.0, 1.0)
    assert ours["block_tokens"] > 20


def test_the_margin_over_each_baseline_is_the_difference_of_the_means(evaluation: Evaluation):
    found = evaluation.results["tiny"]
    for name in ("bm25", "dense"):
        margin = found["afterturn"]["margins"][name]
        assert margin["recall@1"] == pytest.approx(found["afterturn"]["recall@1"] - found[name]["recall@1"])
        low, high = margin["intervals"]["recall@1"]
        assert low <= margin["recall@1"] <= high


def test_questions_without_an_answer_count_for_silence_alone(evaluation: Evaluation):
    assert {found["unanswerable"]["n"] for found in evaluation.results["tiny"].values()} == {2}


def test_files_that_are_of_no_use_are_named(evaluation: Evaluation):
    assert [path.name for path in evaluation.skipped] == ["unrelated.json"]


@pytest.mark.parametrize("form", [as_text, as_markdown])
def test_the_report_shows_every_system_and_every_category(evaluation: Evaluation, form: Any):
    shown = form(evaluation)
    assert all(word in shown for word in ("tiny", "afterturn", "bm25", "dense", "single", "multi", "small_talk"))


def test_the_text_fits_a_terminal(evaluation: Evaluation):
    table = [line for line in as_text(evaluation).splitlines() if "no block for" not in line]
    assert max(map(len, table)) <= 100


def test_adversarial_questions_are_counted_separately(folder: Path, tmp_path: Path):
    (first, _) = conversations()
    first["questions"][1]["category"] = "adversarial"
    (tmp_path / "tricky.json").write_text(json.dumps([first]), encoding="utf-8")
    found = evaluate([tmp_path], EvalOptions(alone=True)).results["tricky"]["afterturn"]
    assert (found["n"], found["without_adversarial"]["n"], found["categories"]["adversarial"]["n"]) == (3, 2, 1)


def test_an_early_question_sees_only_earlier_messages(subject: Subject):
    asked = "Which greyhound called Pepper was adopted?"
    early, late = question(asked, "s1", known=2, by_session=True), question(asked, "s3", by_session=True)
    examination = Examination(subject, "user:early", talk(late, early))
    answers = {each.known: found for each, found in examination.answers()}
    assert all("s3" not in answer.ranked for answer in answers[2].values())
    assert all(answer.ranked[0] == "s3" for answer in answers[len(LINES)].values())


def test_sessions_are_ranked_by_their_best_message_each_once(subject: Subject):
    asked = question("What did they say about Pepper the greyhound?", "s3", by_session=True)
    ((_, answers),) = Examination(subject, "user:sessions", talk(asked)).answers()
    assert all(len(set(answer.ranked)) == len(answer.ranked) for answer in answers.values())
    assert answers["afterturn"].ranked[0] == "s3"


def test_a_long_message_that_is_shown_in_part_is_delivered_but_not_whole(subject: Subject):
    long = "The lighthouse keeper counts gulls. " + "Waves break on grey stones all day long. " * 40
    told = Talk(
        "long",
        (Item("0", "s1", "user", long, 1e9),),
        (question("What does the lighthouse keeper count, gulls?", "0", known=1),),
    )
    examination = Examination(subject, "user:long", told)
    ((asked, answers),) = examination.answers()
    for answer in answers.values():
        assert examination.delivered(asked, answer.block) == {"delivered": 1.0, "delivered_whole": 0.0}


def test_text_inside_another_memory_counts_as_delivered_unless_it_is_short(subject: Subject):
    long, short = "The ferry to Lund leaves at a quarter past nine.", "Sure, thanks!"
    told = Talk("within", (Item("0", "s", "user", long, 1e9), Item("1", "s", "user", short, 1e9)), ())
    examination = Examination(subject, "user:within", told)
    shown = block_of(f"- [0000000000000000] just now, user: {long} {short}")
    assert examination.delivered(question("?", "0", known=2), shown)["delivered"] == 1
    assert examination.delivered(question("?", "1", known=2), shown)["delivered"] == 0


def test_asking_again_gives_the_same_figures(subject: Subject):
    """L6: the same input gives the same output."""
    asked = [question(text, *evidence) for text, _, evidence in QUESTIONS]
    first, again = (
        examine(subject, Dataset(name, (talk(*asked),)), lambda: None).outcomes for name in ("first", "again")
    )
    # Ids are different, and with them how they are cut into tokens.
    assert [_without_tokens(outcome) for outcome in first["afterturn"]] == [
        _without_tokens(outcome) for outcome in again["afterturn"]
    ]


def _without_tokens(outcome: Any) -> Any:
    return replace(outcome, figures={name: value for name, value in outcome.figures.items() if name != "block_tokens"})


def test_silence_is_measured_in_the_memories_of_the_data_set(subject: Subject):
    """L5: small talk recalls nothing, what is remembered does; whether it was asked for at all is told."""
    dataset = Dataset("quiet", (talk(question("?")), talk(question("?"), name="two")))
    examine(subject, dataset, lambda: None)
    said = Utterances("said", ("ok", "thanks a lot", "Quux zyxel?", "Pepper the greyhound"))
    spoken = count_silence(subject, spaces_of(dataset), said, lambda: None)
    assert spoken == SilenceCounts(count=4, not_asked=2, heard=["Pepper the greyhound"])
    assert spoken.shares() == {"silence": 0.75, "not_asked": 0.5, "below_floor": 0.25}


def test_the_standing_block_is_no_answer(subject: Subject):
    """What lasts stands in every conversation, so it says nothing about recall."""
    told = Talk("lasting", (Item("0", "s", "user", "I am allergic to hazelnuts.", 1e9),), ())
    examine(subject, Dataset("standing", (told,)), lambda: None)
    ((space, _),) = spaces_of(Dataset("standing", (told,)))
    assert "hazelnuts" in subject.memory.conversation("new", owner=space).standing().block()
    assert subject.handed_over(space, "thanks a lot").text == ""


def test_questions_that_nothing_answers_can_be_asked_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (first, _) = conversations()
    first["questions"] = first["questions"][3:]
    (tmp_path / "none.json").write_text(json.dumps([first]), encoding="utf-8")
    for form in ((), ("--markdown",)):
        assert run(["eval", str(tmp_path / "none.json"), *form]) == 0
    assert "no block for questions without an answer (1)" in capsys.readouterr().out


def test_the_cache_has_the_ports_of_its_embedder():
    """M3: one that holds on to connections is closed, and gets as many texts at a time as it wants."""

    class Connected(HashingEmbedder):
        batch_texts = 7
        closed = False

        def close(self) -> None:
            self.closed = True

    inner = Connected()
    cached = CachedEmbedder(inner)
    cached.close()
    assert (cached.batch_texts, inner.closed) == (7, True)
    plain = CachedEmbedder(HashingEmbedder())
    plain.close()
    assert plain.batch_texts > 0


def test_recalls_that_had_to_do_without_something_are_counted(evaluation: Evaluation):
    """L1: what was missing is told, not hidden in a figure."""
    assert evaluation.faults == {}
    faults = MissingParts()
    faults.hear(Event("recall_settled", 0.0, data={"missing": "vectors"}))
    faults.hear(Event("recall_settled", 0.0, data={"missing": ""}))
    faults.hear(Event("recall_ended", 0.0, data={"outcome": "degraded", "reason": "timeout"}))
    faults.hear(Event("recall_ended", 0.0, data={"outcome": "empty", "reason": "no_relevant_results"}))
    assert faults.counts == {"vectors": 1, "timeout": 1}


def test_progress_is_reported_to_the_end(folder: Path):
    told: list[tuple[int, int]] = []
    evaluate([folder / "tiny.json"], EvalOptions(limit=1, alone=True), lambda done, total: told.append((done, total)))
    assert told[-1][0] == told[-1][1] == len(told)


def test_the_command_prints_json_by_data_set_and_system(folder: Path, capsys: pytest.CaptureFixture[str]):
    code = run(["eval", str(folder), "--limit", "2", "--json"])
    printed = capsys.readouterr()
    assert code == 0
    assert 0 <= json.loads(printed.out)["tiny"]["afterturn"]["recall@10"] <= 1
    assert "unrelated.json" in printed.err


def test_missed_questions_are_shown_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (first, _) = conversations()
    first["questions"] = [{**first["questions"][0], "question": "Quux zyxel?"}]
    (tmp_path / "hard.json").write_text(json.dumps([first]), encoding="utf-8")
    asked = ["eval", str(tmp_path / "hard.json"), "--alone", "--misses", "5"]
    assert run(asked) == 0
    told = capsys.readouterr().out
    assert "0% delivered, single, one: Quux zyxel?" in told
    assert re.search(
        r"evidence, place \d, score 0\.\d\d, below the minimum score: Ann: .*\n    instead: no block", told
    )
    assert "95% of afterturn: unknown with one conversation" in told
    assert run([*asked, "--json"]) == 0
    (missed,) = json.loads(capsys.readouterr().out)["hard"]["afterturn"]["missed"]
    assert missed["evidence"][0]["text"] == f"Ann: {LINES[0][2]}"


def test_without_an_embedder_there_is_no_dense_baseline(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert run(["eval", str(folder / "tiny.json"), "--limit", "1", "--json", "--embedder", "none"]) == 0
    assert set(json.loads(capsys.readouterr().out)["tiny"]) == {"afterturn", "bm25"}


def test_nothing_to_examine_ends_with_exit_code_2(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert run(["eval", str(folder / "unrelated.json")]) == 2
    assert "docs/evaluation.md" in capsys.readouterr().err


def test_dates_of_a_file_may_be_in_any_order(tmp_path: Path):
    """Questions between sessions, with evidence by session; the session that is read last happened first."""
    items = [
        {"id": f"s{at}:{n}", "session": f"s{at}", "date": date, "speaker": speaker, "text": f"{text} ({at})"}
        for at, date in enumerate(("2025-12-20 (Saturday)", "2025-12-24 (Wednesday)", "2025-12-15 (Monday)"))
        for n, (speaker, text) in enumerate(
            (("User", "My loop trip begins in Auckland"), ("Assistant", "A loop trip!"))
        )
    ]
    questions: list[dict[str, Any]] = [
        {"qid": f"q{at}", "question": "Where does my loop trip begin?", "answer": "Auckland", "category": "trip"}
        | {"evidence_sessions": ["s0"], "before_session": f"s{at}" if at < 3 else None}
        for at in (1, 2, 3)
    ]
    path = tmp_path / "trips.json"
    path.write_text(json.dumps([{"conv_id": "ann", "items": items, "questions": questions}]), encoding="utf-8")
    found = evaluate([path], EvalOptions("none")).results["trips"]
    assert {name: figures["n"] for name, figures in found.items()} == {"afterturn": 3, "bm25": 3}
    assert found["bm25"]["delivered"] == 1.0
