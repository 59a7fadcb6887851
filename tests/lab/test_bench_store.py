"""The form of the benchmark's report. Times are not asserted: they belong to the machine."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from lab.bench.bare import bare, prepare
from lab.bench.corpus import sentences
from lab.bench.report import Goal, Report, Rounds, percentile
from lab.bench.rounds import alternate
from lab.bench.store import measure_store

NAMES = {
    "durable add",
    "32 concurrent adders",
    "bulk import",
    "host's loop beside an import",
    "starting a turn",
    "heavy modules on import",
}


@pytest.fixture(scope="module")
def steps() -> list[str]:
    return []


@pytest.fixture(scope="module")
def report(steps: list[str]) -> Report:
    return measure_store(quick=True, progress=steps.append)


def test_one_run_gives_every_figure(report: Report):
    assert {figure.name for figure in report.figures} == NAMES


def test_every_ratio_is_ours_to_the_limit(report: Report):
    wrong = {f.name: f.ratio for f in report.figures if f.ratio != pytest.approx(f.ours / f.limit)}
    assert wrong == {}


def test_importing_the_package_loads_no_heavy_module_in_the_report(report: Report):
    figure = next(figure for figure in report.figures if figure.name == "heavy modules on import")
    assert figure.ours == 0


def test_a_run_tells_what_it_is_doing(report: Report, steps: list[str]):
    assert len(report.figures) <= len(steps)


def test_the_report_is_json(report: Report):
    document = json.loads(json.dumps(report.as_dict()))
    assert {"command", "machine", "versions", "figures", "passed"} == set(document)


@pytest.mark.parametrize("form", ["as_text", "as_markdown"])
def test_the_report_shows_each_figure_with_its_limit(report: Report, form: str):
    shown = getattr(report, form)()
    assert [f.name for f in report.figures if f.name not in shown or f.limit_name not in shown] == []


def test_a_report_passes_only_when_every_figure_does():
    good = Rounds("adding", "µs", [1.0], [1.0], "nothing").figure(Goal(1.3))
    assert Report("", {}, {}, (good,)).passed is True
    assert Report("", {}, {}, (good, replace(good, passed=False))).passed is False


def test_a_quick_run_is_not_judged_and_says_so(report: Report):
    """Figures of a handful of rounds mean nothing: they would fail, or pass, by chance."""
    text = report.as_text()
    assert text.startswith("quick: too little was measured to mean anything")
    assert (text.count("not judged"), "FAIL" in text) == (len(report.figures) + 1, False)
    assert (report.passed, report.as_dict()["passed"]) == (None, None)


def test_figures_are_medians_of_rounds():
    figure = Rounds("adding", "µs", [1.0, 2.0, 90.0], [1.0, 4.0, 70.0], "nothing").figure(Goal(1.3))
    assert (figure.ours, figure.limit, figure.ratio) == (2.0, 4.0, 0.5)


async def test_ours_and_the_limit_take_turns_and_the_first_round_does_not_count():
    order: list[str] = []
    told: list[str] = []

    async def ours(at: int) -> float:
        order.append(f"ours {at}")
        return at

    async def limit(at: int) -> float:
        order.append(f"limit {at}")
        return at * 10

    found = await alternate(2, ours, limit, told.append, "turns")
    assert list(found) == [[1.0, 2.0], [10.0, 20.0]]
    assert order == ["limit 0", "ours 0", "ours 1", "limit 1", "limit 2", "ours 2"]
    assert told == ["turns: round 0 of 2"]


def test_a_percentile_of_few_values_is_one_of_them():
    assert percentile([3.0, 1.0, 2.0], 0.99) == 3.0


def test_sentences_are_the_same_for_the_same_seed_and_differ_otherwise():
    assert sentences(50, seed=1) == sentences(50, seed=1)
    assert not set(sentences(50, seed=1)) & set(sentences(50, seed=2))


async def test_the_bare_script_fills_every_table_that_an_add_fills(tmp_path: Path):
    """The limit would mean nothing if it wrote less than ours does."""
    import afterturn

    texts = sentences(3, seed=1)
    with bare(tmp_path / "bare.db") as script:
        for ready in prepare(texts):
            await script.commit([ready])
    async with afterturn.open(tmp_path / "ours.db", {"embedder": "none"}, background=False) as memory:
        for text in texts:
            await memory.space("user:bench").add(text)
    assert contents(tmp_path / "bare.db") == contents(tmp_path / "ours.db")


async def test_a_bare_import_fills_the_same_tables_too(tmp_path: Path):
    import afterturn
    from afterturn.base.types import Draft

    texts = sentences(3, seed=1)
    with bare(tmp_path / "bare.db") as script:
        script.import_now(prepare(texts))
    async with afterturn.open(tmp_path / "ours.db", {"embedder": "none"}, background=False) as memory:
        await memory.space("user:bench").add_many([Draft(text) for text in texts])
    assert contents(tmp_path / "bare.db") == contents(tmp_path / "ours.db")


QUERIES = {
    "entries": "SELECT key, version, space_key, kind, status, text, target, origin, trust, content_hash FROM entry",
    "operations": "SELECT seq, space_key, verb, actor FROM operation",
    "steps": "SELECT * FROM step",
    "terms": "SELECT rowid, terms FROM entry_terms",
    "frequencies": "SELECT * FROM frequency",
    "changes": "SELECT * FROM change",
    "spaces": "SELECT key, name, seq, documents, terms_total FROM space",
    "jobs": "SELECT space_key, kind, payload, state FROM job",
}


def contents(path: Path) -> dict[str, list[tuple[object, ...]]]:
    import apsw

    connection = apsw.Connection(str(path))
    found = {name: connection.execute(query).fetchall() for name, query in QUERIES.items()}
    connection.close()
    return found
