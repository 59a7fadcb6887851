"""The tables of docs/evaluation.md, as `make eval-everyday` writes them."""

import re
from pathlib import Path

import pytest

import everyday_table
from afterturn.evaluation.everyday import EverydayMiss, WantedLine
from afterturn.types import Decision

FILE = """{"users": [{"user": "ines", "language": "en",
  "sessions": [{"id": "s1", "at": "2026-04-01T10:00:00+00:00",
                "exchanges": [{"user": "My parrot Kiwi is allergic to avocado.", "assistant": "Noted."}]}],
  "questions": [{"id": "q1", "kind": "plain", "at": "2026-05-20T09:00:00+00:00",
                 "turns": ["What is my parrot Kiwi allergic to?"], "right": ["avocado"], "bears": "avocado"},
                {"id": "q2", "kind": "plain", "at": "2026-05-20T10:00:00+00:00",
                 "turns": ["What must my parrot Kiwi not eat?"], "right": ["avocado"], "bears": "avocado"}]}]}"""
LIKES = """{"topics": {"food": [{"preference": "I strictly avoid gluten.", "question": "Where to eat in Rome?"}]}}"""


def test_the_page_gets_a_row_for_each_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    page, file = tmp_path / "evaluation.md", tmp_path / "days.json"
    page.write_text(f"before\n{everyday_table.BEGIN}\nold\n{everyday_table.END}\nafter\n", encoding="utf-8")
    file.write_text(FILE, encoding="utf-8")
    monkeypatch.setattr(everyday_table, "PAGE", page)
    monkeypatch.setattr(everyday_table, "PEOPLE", 1)
    monkeypatch.setattr(everyday_table, "SMALL_TALK", 3)
    likes = tmp_path / "likes.json"
    likes.write_text(LIKES, encoding="utf-8")
    everyday_table.main([str(file), "--page", "--filler", "3", "--preferences", str(likes)])
    written = page.read_text(encoding="utf-8")
    assert re.fullmatch(r"before\n<!--.*-->\nafter\n", written, re.DOTALL)
    assert "old" not in written
    assert capsys.readouterr().out.strip() in written
    names = ("afterturn", "afterturn, 3 pieces of small talk", "afterturn, long answers", "BM25, ten lines")
    assert all(f"| {name} | 2/2 (100 %) | 0/0 |" in written for name in (*names, everyday_table.PERFECT))
    assert "| afterturn, every second question | 1/1 (100 %) |" in written
    assert "| plain | 2 | 2 |" in written
    assert "| bm25, 10 lines | 0 % | 0 % |" in written


def test_the_markers_are_on_the_page():
    page = everyday_table.PAGE.read_text(encoding="utf-8")
    assert page.count(everyday_table.BEGIN) == page.count(everyday_table.END) == 1


def test_losses_count_the_best_memory_of_each_missed_pattern():
    low = WantedLine("a", "- user: x", 7, Decision.FLOOR, "")
    full = WantedLine("b", "- user: y", 3, Decision.BUDGET, "")
    far = WantedLine("c", "- user: z", None, Decision.UNRELATED, "")
    misses = [
        EverydayMiss("ines", "q1", "plain", "?", "not right", {"x": (low, full), "z": (far,)}, ()),
        EverydayMiss("ines", "q2", "time", "?", "not right", {"n": ()}, ()),
        EverydayMiss("ines", "q3", "update", "?", "an outdated line leads", {"x": (low,)}, ()),
    ]
    titles, _, *rows = [re.findall(r"[^|]+", line) for line in everyday_table.losses(misses)]
    assert [cell.strip() for cell in titles] == [
        "questions",
        "no room in the block",
        "not a candidate",
        "nothing recorded matches",
    ]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["plain", "1", "1", "0"],
        ["time", "0", "0", "1"],
        ["all", "1", "1", "1"],
    ]
