"""The frame of the labs: seeds, results that add up over runs, and tables in a page."""

import argparse
import json
from collections import Counter
from pathlib import Path

import apsw
import pytest

from lab.slices import (
    Lab,
    Outcome,
    Row,
    SqliteTarget,
    StoreTarget,
    main,
    open_target,
    parse_seeds,
    read_results,
    summary,
    table,
    write_table,
)


def run(seed: int, target: StoreTarget, options: argparse.Namespace) -> Outcome:
    broken = ["it broke"] if seed == 3 else []
    return Outcome(seed, Counter(rounds=10 * seed), broken, {"slope": float(seed)})


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--parts", nargs="+", default=["all"])


LAB = Lab(
    "sample",
    "counts.",
    "1-2",
    run,
    (Row("rounds", "rounds", full=1_000), Row("slope", "slope", most=9.0, unit="%")),
    "broken promises",
    add_options,
)


@pytest.mark.parametrize("text,seeds", [("7", [7]), ("2-4", [2, 3, 4]), ("1-2,9", [1, 2, 9])])
def test_seeds_are_numbers_and_ranges(text: str, seeds: list[int]):
    assert parse_seeds(text) == seeds


def test_counts_of_several_runs_add_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    results = tmp_path / "folder" / "results.jsonl"
    for seeds in ("1-2", "4"):
        assert main(LAB, ["--seeds", seeds, "--results", str(results)]) == 0
    capsys.readouterr()
    assert main(LAB, ["--add-up", "--results", str(results)]) == 0
    shown = capsys.readouterr()
    assert "70  ≥ 1,000 (7 % reached)" in shown.out
    assert "4 %" in shown.out
    assert shown.err == ""


def test_a_seed_that_ran_twice_counts_once(tmp_path: Path):
    results = tmp_path / "results.jsonl"
    for _ in range(2):
        main(LAB, ["--seeds", "2", "--results", str(results)])
    assert [result["counts"] for result in read_results(results, "sample")] == [{"rounds": 20}]


def test_a_broken_promise_is_shown_and_is_the_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    results = tmp_path / "results.jsonl"
    assert main(LAB, ["--seeds", "1-3", "--results", str(results)]) == 1
    shown = capsys.readouterr()
    assert "[3/3] seed 3: BROKEN" in shown.err
    assert "it broke" in shown.out


def test_a_table_replaces_the_text_between_its_marks(tmp_path: Path):
    page, results = tmp_path / "trust.md", tmp_path / "results.jsonl"
    main(LAB, ["--seeds", "1-2", "--results", str(results)])
    main(LAB, ["--seeds", "4", "--results", str(results), "--parts", "some", "more"])
    page.write_text("Before.\n\n<!-- lab-sample -->\nold\n<!-- end of lab-sample -->\n\nAfter.\n", encoding="utf-8")
    for _ in range(2):
        write_table(page, LAB, read_results(results, "sample"))
    text = page.read_text(encoding="utf-8")
    assert "old" not in text
    assert text.startswith("Before.\n\n<!-- lab-sample -->")
    assert text.endswith("<!-- end of lab-sample -->\n\nAfter.\n")
    assert text.count("| rounds | 70 | ≥ 1,000 (7 % reached) |") == 1
    commands = '`make lab-sample SEEDS=1-2`, `make lab-sample SEEDS=4 ARGS="--parts some more"`'
    assert f"{commands}: 3 seeds on sqlite" in text


def test_a_page_without_the_marks_is_refused(tmp_path: Path):
    page = tmp_path / "trust.md"
    page.write_text("Nothing.", encoding="utf-8")
    main(LAB, ["--seeds", "1", "--results", str(tmp_path / "results.jsonl")])
    with pytest.raises(LookupError, match="lab-sample"):
        write_table(page, LAB, read_results(tmp_path / "results.jsonl", "sample"))


def test_counts_of_one_kind_are_one_line() -> None:
    """How many there are, and the least of them."""
    lab = Lab("x", "", "1", run, (Row("paths", "path ", each=True),), "broken")
    results = [{"counts": {"path a": 3, "path b": 2, "other": 1}, "worst": {}, "broken": []}] * 2
    assert table(lab, results)[0] == ("paths", "2, each ≥ 4", "")
    assert table(lab, [])[0] == ("paths", "0", "")


def test_no_results_say_so():
    assert summary(LAB, []) == ["lab-sample: no results yet."]


def test_another_kind_of_store_is_refused():
    with pytest.raises(ValueError, match="sqlite"), open_target("oracle:here"):
        pass


def test_a_store_target_gives_a_new_place_and_lists_its_files(tmp_path: Path):
    with open_target(f"sqlite:{tmp_path / 'stores'}") as target, target.fresh() as store:
        assert store.parent.parent == tmp_path / "stores"
        store.write_bytes(b"x")
        Path(f"{store}-wal").write_bytes(b"y")
        assert [path.name for path in target.files(store)] == ["memory.db-wal", "memory.db"]
    assert not store.parent.exists()


def test_a_store_target_sees_the_statements_of_stores_that_are_opened_inside(tmp_path: Path):
    with SqliteTarget().statements() as seen:
        connection = apsw.Connection(str(tmp_path / "a.db"))
        connection.execute("CREATE TABLE t (x)")
        connection.execute("SELECT x FROM t WHERE x = ?", (1,)).fetchall()
    assert seen == ["CREATE TABLE t (x)", "SELECT x FROM t WHERE x = ?"]
    connection.close()


def test_results_are_lines_of_json(tmp_path: Path):
    results = tmp_path / "results.jsonl"
    main(LAB, ["--seeds", "1", "--results", str(results)])
    (line,) = results.read_text(encoding="utf-8").splitlines()
    assert (json.loads(line)["lab"], json.loads(line)["seed"], json.loads(line)["store"]) == ("sample", 1, "sqlite")
