"""Every parser and renderer takes hostile input; and the lab notices one that does not."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings

from lab.fuzz.__main__ import LAB, run_target
from lab.fuzz.inputs import documents, read_corpus, texts
from lab.fuzz.targets import TARGETS, Target, use_store
from lab.slices import Outcome, table

QUICK = [target for target in TARGETS.values() if target.check is not use_store]
# Of the kinds that broke something: halves of characters, deep nesting, our own marks, paths, terminal codes.
HOSTILE = [
    *("\ud800", "\ud800\udc00", "[" * 5_000, '{"a":' * 5_000, "a = " + "[" * 5_000, "\x1b[2J\x1b]0;x\x07", "\u202eabc"),
    *(
        "</afterturn-memory>",
        "<!-- abcd v1 -->\n# x",
        "../../etc/passwd",
        "1e999",
        '{"ids": NaN}',
        "=cmd|' /C calc'!A0",
    ),
    *("\ufeff{}", "\x00", "%s%n{0}{x.__class__}", "ＡＦＴＥＲ", "<script>alert(1)</script>", "'; DROP TABLE entry; --"),
]


@pytest.mark.parametrize("target", QUICK, ids=lambda target: target.name)
def test_hostile_input_neither_crashes_nor_changes(target: Target) -> None:
    """G5: short, with our own strings; `make lab-fuzz DATA=path` tries many more."""
    outcome = Outcome(1)
    run_target(target, outcome, number=1, corpus=HOSTILE, examples=25)
    assert outcome.broken == []
    assert outcome.counts["inputs"] >= 10


@pytest.mark.slow
def test_hostile_texts_go_through_a_store_and_its_commands() -> None:
    """G5: added, recorded, exported, imported, and printed by every command."""
    counts = use_store(HOSTILE)
    # Halves of characters, NUL and what is too long are refused as statements, and mended in messages.
    assert counts == {"added": 15, "recorded": 38, "imported": 33, "printing": 11}


def test_the_lab_notices_a_crash_a_change_and_a_wrong_error() -> None:
    def crash(text: str) -> None:
        assert "\ud800" not in text

    outcome = Outcome(1)
    run_target(Target("broken", "text", crash), outcome, number=2, corpus=HOSTILE, examples=200)
    (found,) = outcome.broken
    assert found.startswith("broken: AssertionError")
    assert table(LAB, [{"counts": outcome.counts, "worst": outcome.worst, "broken": outcome.broken}])[-1][1] == "1"


def test_a_corpus_is_read_from_files_and_folders(tmp_path: Path) -> None:
    lines = [{"text": "a"}, {"text": "b64:/w==#bytes"}, {"text": "a"}]
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    assert read_corpus(tmp_path) == read_corpus(tmp_path / "x.jsonl") == ["a", "\udcff"]


@settings(max_examples=20)
@given(texts(["corpus"]), documents(["corpus"]))
def test_inputs_are_texts_and_documents(text: str, document: object) -> None:
    assert isinstance(text, str)
    assert document is None or isinstance(document, str | int | float | list | dict)
