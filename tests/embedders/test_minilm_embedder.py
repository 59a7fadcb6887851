"""minilm on a model of random numbers: what holds for any weights. `make embedders` looks at the published ones."""

import json
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from tiny_bert import HEADS, make_tensors, make_wheel, recipe, tokenizer_document

from afterturn.embedders.minilm import GRAPH, NAME, VERSION, MiniLmEmbedder
from afterturn.embedders.minilm_install import get_minilm
from afterturn.embedders.model_files import ModelFiles, put_files
from afterturn.errors import EmbedderUnavailable
from bert_reference import reference


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("models")
    get_minilm(place, source=make_wheel(place.parent), report=lambda step: None, recipe=recipe())
    return place


@pytest.fixture(scope="module")
def embedder(folder: Path) -> MiniLmEmbedder:
    return MiniLmEmbedder(folder)


def test_a_texts_vector_is_the_mean_of_what_the_model_says(embedder: MiniLmEmbedder):
    """M3: mean pooling, unit length, whole words from the tokenizer."""
    (vector,) = embedder.embed(["The cat is called MISO"])
    assert vector @ reference(make_tensors(), [2, 4, 5, 6, 7, 8, 3], heads=HEADS) > 0.99


def test_rows_have_unit_length_or_none(embedder: MiniLmEmbedder):
    """As the port promises."""
    vectors = embedder.embed(["my cat", "", "  \n", "\u732b", "a lone \ud800 surrogate"])
    assert vectors.shape == (5, embedder.identity.dimensions)
    assert np.allclose(np.linalg.norm(vectors, axis=1), [1, 0, 0, 1, 1], atol=1e-5)


def test_no_texts_give_no_rows(embedder: MiniLmEmbedder):
    assert embedder.embed([]).shape == (0, 384)


def test_only_the_first_256_tokens_count(embedder: MiniLmEmbedder):
    """As the model is published: two of them are its own signs."""
    same, longer, other = embedder.embed(["tea " * 254, "tea " * 254 + "train late", "tea " * 253 + "late"])
    assert np.array_equal(same, longer)
    assert not np.array_equal(same, other)


def test_threads_may_share_it(folder: Path):
    embedder, texts = MiniLmEmbedder(folder), ["the cat", "my tea", "train late"]
    found: list[np.ndarray] = []
    threads = [threading.Thread(target=lambda: found.append(embedder.embed(texts))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(vectors, found[0]) for vectors in found)
    assert len(found) == 4


def test_missing_files_name_the_command_that_brings_them(tmp_path: Path):
    with pytest.raises(EmbedderUnavailable, match="`afterturn models get minilm`"):
        MiniLmEmbedder(tmp_path).load()


def test_a_graph_that_can_not_be_run_is_said(tmp_path: Path):
    """The checksum is right, and still the runtime does not know what to do with it."""
    put_files(ModelFiles(tmp_path, NAME, VERSION), {GRAPH: b"\x00", "tokenizer.json": tokenizer_document()})
    with pytest.raises(EmbedderUnavailable, match=r"cannot run minilm.*pip install --upgrade onnxruntime"):
        MiniLmEmbedder(tmp_path).load()


def test_without_onnxruntime_the_extra_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(EmbedderUnavailable, match=r"pip install 'afterturn\[minilm\]'"):
        MiniLmEmbedder(folder).load()


def test_neither_torch_nor_the_wheels_own_package_is_ever_imported(folder: Path):
    program = (
        "import json, sys\nfrom pathlib import Path\n"
        "from afterturn.embedders.minilm import MiniLmEmbedder\n"
        f"MiniLmEmbedder(Path({str(folder)!r})).embed(['the cat'])\n"
        "print(json.dumps(list(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert {"torch", "onnx", "transformers", "sentence_transformers"} & set(json.loads(done.stdout)) == set()
