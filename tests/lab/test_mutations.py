"""`make mutations`: its faults still apply to the source, and it reports whether a test catches one."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from lab.mutations import FAULTS, ROOT, SOURCE, Fault, as_table, find_unsound, main, try_fault

NUMBERED = [pytest.param(fault, id=f"{number}-{fault.file}") for number, fault in enumerate(FAULTS, 1)]


@pytest.mark.parametrize("fault", NUMBERED)
def test_every_fault_changes_one_place_and_still_compiles(fault: Fault):
    """A fault whose text is gone, or that cannot be imported, would show nothing about the tests."""
    assert fault.apply(SOURCE) != (SOURCE / "afterturn" / fault.file).read_text(encoding="utf-8")
    fault.check(SOURCE)


@pytest.mark.parametrize(
    "file, text, replacement",
    [
        ("types/entries.py", "class Status(", "class Status(("),
        ("scanners/secret_formats.json", '["ghp_", ', '["ghp_" '),
        ("stores/sql/memories.sql", "-- name: like\n", "-- name: alike\n"),
        ("stores/sql/memories.sql", "e.space_key = ? AND e.id", "e.id"),
    ],
)
def test_a_fault_that_cannot_be_loaded_is_refused(file: str, text: str, replacement: str):
    with pytest.raises((SyntaxError, ValueError)):
        Fault("store", file, text, replacement, "", ()).check(SOURCE)


def test_no_fault_uses_a_name_that_does_not_exist(tmp_path: Path):
    """A test would fail with a NameError, and the fault would look as if it had been caught."""
    for number, fault in enumerate(FAULTS, 1):
        if fault.file.endswith(".py"):
            (tmp_path / f"fault_{number}.py").write_text(fault.apply(SOURCE), encoding="utf-8")
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--select", "F821", str(tmp_path)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("fault", NUMBERED)
def test_every_fault_names_test_files_that_exist(fault: Fault):
    assert fault.tests
    for test in fault.tests:
        assert (ROOT / test.partition("::")[0]).is_file()


def test_every_area_has_several_faults():
    areas = [fault.area for fault in FAULTS]
    assert {area for area in areas if areas.count(area) >= 4} == {"recall", "delivery", "recording", "guard", "store"}


def test_a_fault_is_reported_with_the_test_that_catches_it(capsys: pytest.CaptureFixture[str]):
    """The cheapest fault, for real: its test fails on the copy and passes on the unchanged source."""
    number = next(at for at, fault in enumerate(FAULTS, 1) if fault.tests == ("tests/recall/test_budget.py",))
    assert main(["--only", str(number)]) == 0
    output = capsys.readouterr().out
    assert "tests/recall/test_budget.py::test_" in output
    assert "1 of 1 faults were caught" in output


def test_a_fault_that_no_test_notices_is_reported():
    fault = next(fault for fault in FAULTS if fault.tests == ("tests/recall/test_budget.py",))
    result = try_fault(1, replace(fault, replacement=fault.text))
    assert (result.caught_by, result.problem) == ("", "SURVIVED")
    assert "**SURVIVED**" in as_table([result])


def test_a_text_that_is_gone_or_a_missing_test_is_not_taken_for_a_catch():
    fault = FAULTS[0]
    assert "NOT APPLIED" in try_fault(1, replace(fault, text="this text is nowhere")).problem
    assert "NOT APPLIED" in try_fault(1, replace(fault, text="\n")).problem
    assert "NOT TESTED" in try_fault(1, replace(fault, tests=("tests/no_such_file.py",))).problem


def test_a_test_that_fails_without_the_fault_shows_nothing():
    missing = "tests/recall/test_budget.py::test_that_does_not_exist"
    assert find_unsound([missing]) == {missing}


def test_the_list_starts_no_tests(capsys: pytest.CaptureFixture[str]):
    assert main(["--list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(FAULTS)
