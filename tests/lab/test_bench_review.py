"""The form of the review benchmark's report. Times are not asserted: they belong to the machine."""

import pytest

from lab.bench.report import Report
from lab.bench.review import CASES, measure_review


@pytest.fixture(scope="module")
def report() -> Report:
    return measure_review(quick=True)


def test_one_run_compares_turns_with_and_without_reviews(report: Report) -> None:
    """V2: beside a model that answers, one that hangs, and rules, each against the same turns alone."""
    assert [figure.name for figure in report.figures] == [case.name for case in CASES]
    assert all(figure.ours > 0 and figure.limit > 0 for figure in report.figures)
    assert report.passed is None


def test_what_is_compared_really_reviews_and_writes(report: Report) -> None:
    """V1, V11: otherwise a small difference would mean nothing."""
    answering, hanging, rules = (figure.notes[0] for figure in report.figures)

    assert "2 reviews by a model" in answering
    assert "wrote 2 memories" in answering
    assert "2 reviews by a model" in hanging
    assert "wrote 0 memories" in hanging
    assert "6 by rules" in rules
    assert "wrote 4 memories" in rules


def test_the_page_names_its_command(report: Report) -> None:
    assert report.as_markdown().startswith("## Reviews")
    assert 'make bench-review ARGS="--quick"' in report.as_markdown()
