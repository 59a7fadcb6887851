"""The word table: an invented one whose values can be computed by hand, damaged ones, and the installed one."""

import shutil
from array import array
from pathlib import Path

import numpy as np
import pytest

from afterturn.errors import EmbedderUnavailable
from afterturn.recall.word_table import WEIGHTS, TextWords, WordMatch, WordTable
from child_process import run_program

# Each with its score and the first two numbers of its vector. A word with the score -7 weighs 2.
PIECES: dict[str, tuple[float, int, int]] = {
    "<unk>": (0, 0, 0),
    " te": (-6, 7, 7),
    "a": (-6, 7, 7),
    " tea": (-7, 2, 0),
    " cup": (-6, 0, 1),
    "s": (-6, 0, 2),
    " anti": (-7, -1, 0),
    "猫": (-7, 3, 4),
}
TEA, CUP, S, ANTI, CAT = (list(PIECES).index(piece) for piece in (" tea", " cup", "s", " anti", "猫"))
ROOT_HALF = 0.5**0.5


def write_table(folder: Path, pieces: dict[str, tuple[float, int, int]]) -> None:
    """Writes the four files. Number n stands for n - 8."""
    (folder / "pieces.txt").write_bytes("\n".join(pieces).encode())
    (folder / "scores.bin").write_bytes(array("f", [score for score, _, _ in pieces.values()]).tobytes())
    (folder / "levels.bin").write_bytes(array("f", range(-8, 8)).tobytes())
    table = np.zeros(len(pieces), dtype=[("numbers", "u1", 256), ("unit", "<f2")])
    table["numbers"] = 8
    table["numbers"][:, :2] = [(8 + first, 8 + second) for _, first, second in pieces.values()]
    table["unit"] = 1
    (folder / "table.bin").write_bytes(table.tobytes())


@pytest.fixture
def table(tmp_path) -> WordTable:
    write_table(tmp_path, PIECES)
    made = WordTable(tmp_path)
    made.load()
    return made


def listed(words: TextWords) -> tuple[list[int], list[int]]:
    return words.rows.tolist(), words.starts.tolist()


@pytest.mark.parametrize(
    "text, rows, starts",
    [
        ("tea cup", [TEA, CUP], [0, 1]),
        ("TEA, cup!", [TEA, CUP], [0, 1]),
        ("teas cups", [TEA, S, CUP, S], [0, 2]),
        ("cup xyz tea", [CUP, TEA], [0, 1]),
        ("teaxs", [TEA, S], [0]),
        ("猫s", [CAT, S], [0, 1]),
        ("", [], []),
        ("\x00 \ud800 ?!", [], []),
    ],
)
def test_words_are_split_into_pieces(table, text, rows, starts):
    """A character without a piece is skipped, and a word without pieces is left out. Where words have no spaces between
    them, each piece is one."""
    assert listed(table.read(text)) == (rows, starts)


def test_only_the_beginning_of_a_text_counts(table):
    """1,000 characters and 150 words, so that no text makes recall slow."""
    assert table.read("tea " * 1_000_000).starts.size == 150
    assert table.read("s" * 1_000_000).rows.size == 1_000
    assert listed(table.read(" " * 1_000 + "tea")) == ([], [])


def matched(table: WordTable, question: str, *candidates: tuple[str | None, str | None]) -> list[WordMatch]:
    read = [tuple(None if text is None else table.read(text) for text in candidate) for candidate in candidates]
    return table.match(table.read(question), read)


@pytest.mark.parametrize(
    "candidate, pair, soft",
    [
        (("tea", "cup"), 1, 1),
        (("cup", "tea"), 1, 1),
        (("cup", None), 1 / 3, 1 / 3),
        ((None, "cup"), 1 / 3, 1 / 3),
        (("xyz", "cup cup"), 1 / 3, 1 / 3),
        (("teas", None), ROOT_HALF, (ROOT_HALF - 0.35) / 0.65),
        (("猫", ""), (2 * 0.6 + 0.8) / 3, (2 * 0.25 + 0.45) / 0.65 / 3),
        (("anti", None), -2 / 3, 0),
        (("xyz", ""), 0, 0),
        ((None, None), 0, 0),
    ],
)
def test_each_word_of_a_question_counts_by_its_weight(table, candidate, pair, soft):
    """R1: the question is "tea cup", with the weights 2 and 1. Other candidates of the same call change nothing."""
    alone = matched(table, "tea cup", candidate)
    among = matched(table, "tea cup", ("teas cups", "猫 tea"), candidate, (None, "anti"), (None, None))
    assert alone == [pytest.approx((pair, soft), abs=1e-5)]
    assert among[1] == pytest.approx((pair, soft), abs=1e-5)
    assert len(among) == 4


def test_nothing_matches_nothing(table):
    """Neither a question without words nor a call without candidates fails."""
    assert matched(table, "?", ("tea", "cup")) == [(0, 0)]
    assert matched(table, "tea") == []


@pytest.mark.parametrize("name", ["pieces.txt", "scores.bin", "levels.bin", "table.bin"])
def test_a_damaged_or_missing_file_says_what_to_do(tmp_path, name):
    """EmbedderUnavailable, with the reason."""
    write_table(tmp_path, PIECES)
    content = (tmp_path / name).read_bytes()
    for damaged in (None, content[: len(content) // 2]):
        (tmp_path / name).unlink()
        if damaged is not None:
            (tmp_path / name).write_bytes(damaged)
        table = WordTable(tmp_path)
        with pytest.raises(EmbedderUnavailable, match="pip install"):
            table.load()
        assert not table.is_loaded
        (tmp_path / name).write_bytes(content)
    table.load()
    assert table.is_loaded


def test_loading_pauses_often(tmp_path):
    """R2: a turn that begins meanwhile gets Python's lock."""
    write_table(tmp_path, {f" piece{number}": (-9, number % 7, 1) for number in range(20_000)})
    pauses: list[None] = []
    table = WordTable(tmp_path)
    table.load(lambda: pauses.append(None))
    assert table.is_loaded
    assert len(pauses) > 10
    assert listed(table.read("piece19999 piece1")) == ([19_999, 1], [0, 1])


INSTALLED = WordTable()


@pytest.mark.parametrize(
    "question, answer, others",
    [
        (
            "Which car does my brother drive?",
            "My sibling bought a used automobile",
            ["The train was late again", "I had soup for lunch", "My brother-in-law sings"],
        ),
        (
            "Wo wohnt meine Schwester?",
            "Meine Schwester ist in eine Wohnung in Köln gezogen",
            ["Der Zug hatte wieder Verspätung", "Zum Mittag gab es Suppe", "Meine Katze heißt Miso"],
        ),
        (
            "Quel est le métier de ma mère ?",
            "Maman travaille comme infirmière",
            ["Le train était encore en retard", "Il y avait de la soupe à midi", "Le chat dort toute la journée"],
        ),
        (
            "妹 の 誕生日 は いつ",
            "妹は五月に生まれた",
            ["電車がまた遅れた", "昼にスープを食べた", "新しい靴を買った"],
        ),
    ],
)
def test_a_paraphrase_matches_better_than_other_texts(question, answer, others):
    """R1: in English, German, French and Japanese, without one significant word in common."""
    INSTALLED.load()
    answered, *rest = matched(INSTALLED, question, (answer, None), *((other, None) for other in others))
    assert answered.pair > max(match.pair for match in rest)


def test_words_are_compared_across_languages():
    """The same thing in another language is nearer than another thing in the same."""
    INSTALLED.load()
    same, other = matched(INSTALLED, "dog", ("Hund", None), ("table", None))
    assert same.soft > other.soft


def test_constructing_loads_nothing_and_a_child_may_fork_after_use():
    program = """
import os, sys
from afterturn.recall.word_table import WordTable
table = WordTable()
assert "numpy" not in sys.modules, "loaded too early"
table.load()
child = os.fork()
if child == 0:
    words = table.read("in the child")
    os._exit(0 if table.match(words, [(words, None)])[0].pair > 0.99 else 1)
assert os.waitpid(child, 0)[1] == 0
"""
    assert run_program(program) == ""


def test_the_installed_table_is_opened_once_in_a_process(tmp_path):
    """Its pieces take 17 MB."""
    first, second, other = WordTable(), WordTable(), WordTable(tmp_path)
    shutil.copytree(WEIGHTS, tmp_path, dirs_exist_ok=True)
    for table in (first, second, other):
        table.load()
    assert first._pieces is second._pieces
    assert first._pieces is not other._pieces
