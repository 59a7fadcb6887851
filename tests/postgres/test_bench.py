"""The benchmark on PostgreSQL runs and reports. Times are not asserted: they depend on the machine."""

import pytest

from lab.bench.postgres import SECTIONS, measure_postgres

pytestmark = pytest.mark.postgres


@pytest.mark.parametrize("section", SECTIONS)
def test_a_quick_run_of_each_section_reports_figures_and_loses_nothing(section: str):
    steps: list[str] = []
    report = measure_postgres(quick=True, only=[section], progress=steps.append)
    assert report.figures
    assert all(figure.ours >= 0 for figure in report.figures)
    assert {step.partition(":")[0] for step in steps} == {section}
    counted = {figure.name.rpartition(", ")[2]: figure.ours for figure in report.figures}
    assert counted.get("errors", 0) == 0
    assert counted.get("recorded", 100) == 100
