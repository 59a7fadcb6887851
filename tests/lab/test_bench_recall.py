"""The form of the recall benchmark's report. Times are not asserted: they belong to the machine."""

import json
from pathlib import Path

import pytest

from lab.bench.__main__ import main
from lab.bench.recall import measure_recall
from lab.bench.recall_report import RecallReport, Row
from lab.bench.recall_scale import ROWS, Options
from lab.bench.report import Goal

TEXT_WIDTH = 100


@pytest.fixture(scope="module")
def steps() -> list[str]:
    return []


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recall")


@pytest.fixture(scope="module")
def report(steps: list[str], folder: Path) -> RecallReport:
    options = Options(quick=True, keep=folder / "stores", plots=folder / "plots")
    return measure_recall(options, progress=steps.append)


def test_one_run_gives_figures_of_every_row(report: RecallReport):
    assert list(dict.fromkeys(figure.row for figure in report.figures)) == list(ROWS)


def test_every_recall_ratio_is_ours_to_the_limit(report: RecallReport):
    found = [f for f in report.figures if f.limit is not None]
    assert found
    assert [f.name for f in found if f.ratio != pytest.approx(f.ours / f.limit)] == []


def test_every_figure_of_recall_has_a_target_but_what_generated_text_can_not_tell(report: RecallReport):
    assert [figure.target for figure in report.figures].count("") == 1


def test_a_quick_run_of_recall_is_not_judged_and_says_so(report: RecallReport):
    """Small spaces make ratios that mean nothing."""
    text = report.as_text()
    assert text.startswith("quick: too little was measured to mean anything")
    assert (report.passed, "FAIL" in text, text.count("  not judged")) == (None, False, len(report.figures) - 1)


def test_many_callers_beside_a_writer_meet_no_error_in_the_report(report: RecallReport):
    figure = next(figure for figure in report.figures if figure.name.endswith("errors"))
    assert figure.ours == 0


def test_the_recall_report_is_json(report: RecallReport):
    document = json.loads(json.dumps(report.as_dict()))
    assert {"command", "machine", "versions", "figures", "growth", "passed"} == set(document)
    assert {"row", "name", "unit", "ours", "limit", "ratio", "target", "passed", "notes"} == set(document["figures"][0])


def test_the_recall_report_fits_a_narrow_terminal(report: RecallReport):
    assert [line for line in report.as_text().splitlines() if len(line) > TEXT_WIDTH] == []


@pytest.mark.parametrize("form", ["as_text", "as_markdown"])
def test_the_recall_report_shows_the_result_of_each_figure(report: RecallReport, form: str):
    shown = " ".join(getattr(report, form)().split())
    assert [note for figure in report.figures for note in figure.notes if note not in shown] == []


def test_growth_is_drawn_where_the_command_was_told(report: RecallReport, folder: Path):
    assert [size for size, _, _ in report.growth] == [100, 300, 600]
    assert (folder / "plots" / "recall_growth.svg").read_text(encoding="utf-8").startswith("<svg")


def test_kept_stores_are_found_again_by_the_next_run(report: RecallReport, folder: Path):
    before = {path: path.stat().st_mtime_ns for path in (folder / "stores").glob("*.json")}
    measure_recall(Options(quick=True, only=("small",), keep=folder / "stores"))
    assert before
    assert {path: path.stat().st_mtime_ns for path in (folder / "stores").glob("*.json")} == before


def test_a_run_of_recall_tells_what_it_is_doing(report: RecallReport, steps: list[str]):
    assert len(steps) > len(report.figures)


@pytest.mark.parametrize(
    "options,command",
    [
        (Options(), "make bench-recall"),
        (Options(quick=True, only=("large",)), 'make bench-recall ARGS="--quick --only large"'),
        (Options(spaces=10, text=Path("a/b.json")), 'make bench-recall ARGS="--spaces 10 --text b.json"'),
    ],
)
def test_the_report_names_the_command_that_makes_it_again(options: Options, command: str):
    assert options.command() == command


@pytest.mark.parametrize(
    "goal,value,met",
    [
        (Goal(0.4), 0.4, True),
        (Goal(0.4), 0.41, False),
        (Goal(0.97, "", at_least=True), 0.97, True),
        (Goal(0.97, "", at_least=True), 0.969, False),
    ],
)
def test_a_goal_says_which_side_is_good(goal: Goal, value: float, met: bool):
    assert goal.is_met(value) is met


def test_a_goal_is_written_with_its_unit():
    assert [str(goal) for goal in (Goal(1.3), Goal(99, "%", at_least=True), Goal(0, ""))] == [
        "≤ 1.3 ×",
        "≥ 99 %",
        "≤ 0",
    ]


def test_a_recall_report_fails_with_one_figure_and_not_for_want_of_a_target(report: RecallReport):
    good = Row("small").beside("a", "ms", (1.0, 1.0), Goal(3.0))
    untold = Row("small").alone("b", "ms", 9.0, None)
    bad = Row("small").alone("c", "MB", 121.0, Goal(120.0, "MB"))
    assert RecallReport(report.surroundings, (good, untold)).passed
    assert not RecallReport(report.surroundings, (good, untold, bad)).passed


def test_a_row_that_can_not_be_measured_fails_and_leaves_the_others_alone(
    report: RecallReport, folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    """A folder stands where the first row's first store should be."""
    (store,) = (folder / "stores").glob("single-100-*.db")
    (tmp_path / store.name / "something").mkdir(parents=True)
    found = measure_recall(Options(quick=True, only=("small", "memory"), keep=tmp_path))
    assert [(figure.row, figure.passed) for figure in found.figures] == [("small", False), ("memory", None)]
    assert found.passed is False
    assert "Error" in capfd.readouterr().err


def test_an_unknown_row_is_refused_with_the_names_of_all(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="2"):
        main(["recall", "--quick", "--only", "medium"])
    assert "invalid choice: 'medium'" in capsys.readouterr().err
