"""The graph that is built for onnxruntime, beside a BERT written out in numpy."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from tiny_bert import HEADS, encode_tensors, make_tensors

from afterturn.embedders.minilm_install import build_bert
from afterturn.embedders.sentence_encoder import map_tensors
from bert_reference import reference

TEXTS = ([2, 4, 5, 6, 7, 8, 3], [2, 13, 6, 14, 5, 7, 15, 3], [2, 3], [2, *range(4, 16), *range(4, 16), 3])


def run(graph: bytes, texts: list[list[int]]) -> np.ndarray:
    """Unit vectors of a padded batch."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    ids = np.zeros((len(texts), max(map(len, texts))), dtype=np.int64)
    mask = np.zeros(ids.shape, dtype=np.float32)
    for at, text in enumerate(texts):
        ids[at, : len(text)], mask[at, : len(text)] = text, 1
    sums = session.run(["sums"], {"ids": ids, "mask": mask})[0]
    return sums / np.linalg.norm(sums, axis=1, keepdims=True)


@pytest.mark.parametrize("seed,width,heads", [(1, 384, 12), (2, 24, 4), (3, 16, 1)])
def test_the_graph_computes_what_bert_does(seed: int, width: int, heads: int):
    """M3: the vectors are the published model's, not merely vectors."""
    tensors = make_tensors(seed=seed, width=width)
    vectors = run(build_bert(tensors, heads=heads, quantised=False), list(TEXTS))
    expected = [reference(tensors, text, heads=heads) for text in TEXTS]
    assert np.abs(vectors - expected).max() < 1e-5


def test_eight_bits_point_where_the_whole_numbers_do():
    """M3: quantising costs precision, not direction."""
    tensors = make_tensors()
    vectors = run(build_bert(tensors, heads=HEADS, quantised=True), list(TEXTS))
    cosines = [vector @ reference(tensors, text, heads=HEADS) for vector, text in zip(vectors, TEXTS, strict=True)]
    assert min(cosines) > 0.99


def test_eight_bits_take_a_quarter_of_the_room():
    tensors = make_tensors(inner=1536)
    whole, small = (len(build_bert(tensors, heads=HEADS, quantised=quantised)) for quantised in (False, True))
    assert small < 0.4 * whole


@pytest.mark.parametrize("quantised", [False, True])
def test_a_texts_vector_does_not_depend_on_its_neighbours(quantised: bool):
    """M3: one text has one vector, in whichever batch it was."""
    graph = build_bert(make_tensors(), heads=HEADS, quantised=quantised)
    together = run(graph, list(TEXTS))
    alone = np.concatenate([run(graph, [text]) for text in TEXTS])
    assert np.abs(together - alone).max() < (2e-3 if quantised else 1e-5)


def test_the_same_tensors_give_the_same_bytes():
    """M3: so a version names one graph, wherever it was built."""
    first, second = (build_bert(make_tensors(), heads=HEADS, quantised=True) for _ in range(2))
    assert first == second


def test_a_model_with_a_silent_layer_has_no_vector_of_nonsense():
    """Nothing but zeros can not be scaled."""
    tensors = make_tensors()
    for part in ("weight", "bias"):
        tensors[f"encoder.layer.0.intermediate.dense.{part}"][:] = 0
    assert np.isfinite(run(build_bert(tensors, heads=HEADS, quantised=True), list(TEXTS))).all()


def test_a_missing_tensor_is_named():
    tensors = make_tensors()
    del tensors["encoder.layer.1.attention.self.key.weight"]
    with pytest.raises(KeyError, match=r"encoder\.layer\.1\.attention\.self\.key\.weight"):
        build_bert(tensors, heads=HEADS, quantised=False)


def test_a_file_of_tensors_is_read_as_it_was_written(tmp_path: Path):
    tensors = make_tensors()
    (tmp_path / "model.safetensors").write_bytes(encode_tensors(tensors))
    found = map_tensors(tmp_path / "model.safetensors")
    assert list(found) == list(tensors)
    assert all(np.array_equal(found[name], tensors[name]) for name in tensors)


@pytest.mark.parametrize(
    "data,complaint",
    [
        (b"", "Expecting value"),
        (b"\xff" * 16, "claims"),
        (b"\x02" + bytes(7) + b"[]", "not a table"),
        (encode_tensors(make_tensors())[:-8], "not as announced"),
        (encode_tensors(make_tensors()).replace(b'"F32"', b'"Q99"'), "not as announced"),
    ],
)
def test_a_file_that_holds_no_tensors_is_refused(tmp_path: Path, data: bytes, complaint: str):
    (tmp_path / "model.safetensors").write_bytes(data)
    with pytest.raises(ValueError, match=complaint):
        map_tensors(tmp_path / "model.safetensors")
