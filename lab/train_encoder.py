"""Makes embedders/projection.npy, which the sentence encoder applies to the vectors of its model.

    python -m lab.train_encoder            # writes it again, from the sentences of this repository alone

Its rows after the first are a matrix that removes the direction from statements to
questions, keeps the 256 strongest components and evens them out a little: without it, the model puts a question closer
to another question than to its answer. The first row is the product of the sentences' mean with it.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from afterturn.embedders.sentence_encoder import BEGIN, DIMENSIONS, END, PROJECTION, encode_tokens, read_weights

ROOT = Path(__file__).parent.parent
# 0 keeps the strengths of components, 0.5 makes them equal. Chosen on everyday conversations: 0.1 to 0.25 are alike.
EVENNESS = 0.15
SMALLEST = 1e-4


def read_sentences() -> list[str]:
    """What people say to an assistant, in some 16 languages: cases of learning rules, and training data of the lab."""
    found = [
        json.loads(line)["text"]
        for path in sorted((ROOT / "tests" / "learning" / "rule_cases").glob("*.jsonl"))
        for line in path.read_text().splitlines()
    ]
    for name in ("utterance_sentences.tsv", "impersonal_questions.tsv"):
        found += [line.split("\t")[-1] for line in (ROOT / "lab" / name).read_text().splitlines() if line[:1] != "#"]
    return list(dict.fromkeys(filter(None, found)))


def fit(sentences: list[str], vectors: NDArray[np.float32]) -> NDArray[np.float16]:
    asks = np.array([sentence.rstrip().endswith(("?", "？")) for sentence in sentences])
    questions, statements = vectors[asks].mean(axis=0), vectors[~asks].mean(axis=0)
    direction = (questions - statements) / np.linalg.norm(questions - statements)
    centred = vectors - np.where(asks[:, None], questions, statements)
    strengths, components = np.linalg.eigh(np.cov(centred.T))
    kept = components[:, -DIMENSIONS:] * (strengths[-DIMENSIONS:] + SMALLEST) ** -EVENNESS
    matrix = kept - np.outer(direction, direction @ kept)
    return np.concatenate(((vectors.mean(axis=0) @ matrix)[None], matrix)).astype(np.float16)


def main() -> None:
    sentences, weights = read_sentences(), read_weights()
    tokens = [[BEGIN, *weights.pieces.tokens(sentence, {}), END] for sentence in sentences]
    np.save(PROJECTION, fit(sentences, encode_tokens(weights, tokens)))
    print(f"{PROJECTION.name}: made of {len(sentences):,} sentences")


if __name__ == "__main__":
    main()
