"""docs/frameworks.md has the programs of examples/frameworks, which run in the environments of the frameworks."""

import ast
import re

import pytest

from lab.frameworks.environments import ENVIRONMENTS, ROOT
from lab.frameworks.page import EXAMPLES, PAGE, make_table, with_examples

LINES_MAX = 15
PROGRAMS = sorted(path.name for path in EXAMPLES.glob("*.py"))
# Programs that are shown on a page of their own.
ELSEWHERE = {"mem0_app.py": "mem0.md"}


def test_the_page_has_every_program_as_it_is():
    """`make test-frameworks ARGS=--page` writes them."""
    page = PAGE.read_text(encoding="utf-8")
    assert with_examples(page) == page
    shown = re.findall(r"<!-- example: (\w+\.py) -->", page)
    assert sorted([*shown, *ELSEWHERE]) == PROGRAMS


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_short_and_a_test_runs_it(name: str):
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    code = [line for line in text.split('"""', 2)[2].splitlines() if line.strip() and not line.lstrip().startswith("#")]
    assert len(code) <= LINES_MAX
    assert ast.get_docstring(ast.parse(text))
    tests = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    assert any(f'"{name}"' in test for test in tests if "run_example" in test or "EXAMPLES" in test)


def test_the_page_names_the_versions_that_are_locked():
    page, table = PAGE.read_text(encoding="utf-8"), make_table()
    assert table.splitlines()[0] in page


@pytest.mark.parametrize("environment", ENVIRONMENTS.values(), ids=lambda one: one.name)
def test_every_environment_has_a_lock_and_tests(environment):
    assert environment.version
    assert [path for path in environment.test_files if not path.is_file()] == []


def test_every_test_of_a_framework_runs_in_some_environment():
    named = {path.name for environment in ENVIRONMENTS.values() for path in environment.test_files}
    assert {path.name for path in (ROOT / "tests" / "real_frameworks").glob("test_*.py")} == named
