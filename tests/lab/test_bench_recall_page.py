"""docs/benchmarks.md is made of what the benchmarks print, part by part."""

import re

import pytest

import benchmarks

WHOLE = "# Benchmarks\n\nOf the store.\n\n## Store\n\n1\n\n## Turns\n\n2\n\n## Recall\n\n### Growth\n\n3\n"


def test_a_page_is_put_together_as_it_was_taken_apart():
    assert benchmarks.page_of(benchmarks.sections_of(WHOLE)) == WHOLE


def test_a_part_that_was_measured_anew_takes_the_place_of_the_old_one():
    sections = benchmarks.sections_of(WHOLE) | {"turn": "## Turns\n\n9"}
    assert benchmarks.page_of(sections) == WHOLE.replace("## Turns\n\n2", "## Turns\n\n9")


def test_a_part_that_was_not_there_comes_to_its_place():
    sections = benchmarks.sections_of(WHOLE.split("## Turns")[0]) | {"recall": "## Recall\n\n3"}
    sections |= {"turn": "## Turns\n\n2"}
    assert benchmarks.page_of(sections) == WHOLE.replace("### Growth\n\n", "")


def test_a_command_that_prints_no_figures_leaves_the_page_alone():
    before = benchmarks.PAGE.read_bytes()
    with pytest.raises(SystemExit, match="stays as it is"):
        benchmarks.measured("nothing", [])
    assert benchmarks.PAGE.read_bytes() == before


def test_every_picture_of_the_page_is_there():
    page = benchmarks.PAGE.read_text(encoding="utf-8")
    assert "store" in benchmarks.sections_of(page)
    assert [name for name in re.findall(r"!\[[^]]*\]\(([^)]+)\)", page) if not (benchmarks.DOCS / name).is_file()] == []
