"""The embedder that tests use."""

import subprocess
import sys

import numpy as np

from afterturn.testing.hashing import HashingEmbedder


def test_shared_words_bring_texts_close():
    """Enough likeness for tests to have neighbours."""
    one, near, far = HashingEmbedder().embed(["red apple pie", "red apple", "stormy weather tomorrow"])
    assert one @ near > 0.7 > 0.5 > one @ far


def test_every_process_gives_the_same_vectors():
    """No salt of the process gets in."""
    program = "from afterturn.testing.hashing import HashingEmbedder as H; print(H(8).embed(['red apple'])[0].tolist())"
    outputs = {
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60).stdout
        for _ in range(2)
    }
    assert outputs == {f"{HashingEmbedder(8).embed(['red apple'])[0].tolist()}\n"}


def test_rows_have_unit_length_or_none():
    """As the port promises."""
    vectors = HashingEmbedder(32).embed(["red apple", "", "the of and"])
    assert np.allclose(np.linalg.norm(vectors, axis=1), [1, 0, 0])
