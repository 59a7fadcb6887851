"""Trains the weights of scanners/instructions.py, and shows how they do on whole files left out of training.

    python -m lab.train_instructions FOLDER --chats FILE...            # figures with each file left out
    python -m lab.train_instructions FOLDER --chats FILE... --write    # writes instruction_weights.json

FOLDER has files of JSON lines with `text`, `label` (1: an attack), `source` and `license`. Rows whose licence is not
known to permit it are not trained on. Ordinary text is needed too, or the model learns the subjects of the attacks: the
chats (gzipped JSON lists of conversations with `items`) and the paragraphs of docs/. A long attack hides an instruction
among harmless sentences, so a first model is trained on short texts, and suspicious parts of long ones join them.
"""

from __future__ import annotations

import argparse
import gzip
import json
from array import array
from base64 import b85encode
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from zlib import compress

import numpy as np
from numpy.typing import NDArray

from afterturn.scanners import instructions
from afterturn.scanners.instructions import BUCKETS, PHRASES, features_of, split_parts
from afterturn.scanners.normal_form import views

PERMITTED = ("MIT", "MIT-0", "CC0-1.0", "Apache-2.0", "CC-BY-4.0")
UNVERIFIED = ("safeguard",)
# Files whose rows are not orders to a model: encodings, code for other machines, single goals that are harmless alone.
SKIPPED = (
    *("unicode_smuggling", "secrets", "xss", "sqli", "ssrf_urls", "json_parsing", "naughty_strings", "path_traversal"),
    "asb_attack_goals",
)
# Attacks whose harmless part is longer than the attack, which a model would learn instead: they are only measured.
MEASURED = ("indirect_document_injection",)
FALSE_ALARMS_MAX = 0.02
ROUNDS, RATE = 200, 0.05
WORD_PENALTY, PHRASE_PENALTY = 2e-5, 5e-6
FOLDS = 3
PARAGRAPH_CHARS_MIN = 40
_NAMES = list(PHRASES)

Floats = NDArray[np.float64]


class Part(NamedTuple):
    """The features of a part: phrases come before the buckets of words."""

    phrases: list[int]
    buckets: list[int]


class Row(NamedTuple):
    file: str
    label: int
    parts: tuple[Part, ...]
    trains: bool
    text: str


def read_rows(folder: Path) -> list[Row]:
    rows = []
    for path in sorted(folder.glob("*.jsonl")):
        if path.stem in SKIPPED:
            continue
        for line in path.read_text(encoding="utf-8").splitlines():
            found = json.loads(line)
            permitted = found.get("license") in PERMITTED and not found.get("source", "").startswith(UNVERIFIED)
            permitted = permitted and path.stem not in MEASURED
            rows.append(Row(path.stem, int(found["label"]), parts_of(found["text"]), permitted, found["text"]))
    return rows


def read_ordinary(chats: Iterable[Path]) -> list[Row]:
    """Every third message of the chats, and the paragraphs of the documentation."""
    texts: list[tuple[str, str]] = []
    for path in chats:
        with gzip.open(path, "rt", encoding="utf-8") as stream:
            items = [item["text"] for conversation in json.load(stream) for item in conversation["items"]]
        texts += [("chats", text) for text in items[::3]]
    for page in sorted(Path("docs").glob("*.md")):
        texts += [
            ("docs", text) for text in page.read_text(encoding="utf-8").split("\n\n") if len(text) > PARAGRAPH_CHARS_MIN
        ]
    return [Row(name, 0, parts_of(text), True, text) for name, text in texts]


def parts_of(text: str) -> tuple[Part, ...]:
    parts = []
    for view in views(text):
        for piece in split_parts(view.text):
            phrases, buckets = features_of(piece)
            parts.append(Part([_NAMES.index(name) for name in phrases], sorted(buckets)))
    return tuple(parts)


class Model:
    """Logistic regression. Phrases count fully, words by the square root of how many there are."""

    def __init__(self) -> None:
        self.bias = 0.0
        self.phrases: Floats = np.zeros(len(_NAMES))
        self.words: Floats = np.zeros(BUCKETS)

    def score(self, part: Part) -> float:
        words = self.words[part.buckets].sum() / np.sqrt(max(len(part.buckets), 1))
        return float(self.bias + self.phrases[part.phrases].sum() + words)

    def suspicion(self, row: Row) -> float:
        return max(self.score(part) for part in row.parts)

    def fit(self, parts: Sequence[Part], labels: Floats, weights: Floats) -> None:
        count = len(parts)
        lengths = np.array([len(part.buckets) for part in parts])
        words = np.concatenate([part.buckets for part in parts]).astype(np.int64)
        owners = np.repeat(np.arange(count), lengths)
        values = (1 / np.sqrt(np.maximum(lengths, 1)))[owners]
        phrases: Floats = np.zeros((count, len(_NAMES)))
        for at, part in enumerate(parts):
            phrases[at, part.phrases] = 1.0
        weights = weights / weights.sum()
        state = np.zeros(1 + len(_NAMES) + BUCKETS)
        mean, square = np.zeros_like(state), np.zeros_like(state)
        penalty = np.concatenate([[0.0], np.full(len(_NAMES), PHRASE_PENALTY), np.full(BUCKETS, WORD_PENALTY)])
        split = 1 + len(_NAMES)
        for step in range(1, ROUNDS + 1):
            scores = state[0] + phrases @ state[1:split]
            scores += np.bincount(owners, state[split:][words] * values, minlength=count)
            error = (1 / (1 + np.exp(-scores)) - labels) * weights
            gradient = np.concatenate(
                [[error.sum()], error @ phrases, np.bincount(words, error[owners] * values, minlength=BUCKETS)]
            )
            gradient += penalty * state
            mean = 0.9 * mean + 0.1 * gradient
            square = 0.999 * square + 0.001 * gradient * gradient
            state -= RATE * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.999**step)) + 1e-9)
        self.bias, self.phrases, self.words = float(state[0]), state[1:split], state[split:]


def train(rows: Iterable[Row]) -> Model:
    rows = [row for row in rows if row.trains]
    short = [(part, row) for row in rows for part in row.parts if row.label == 0 or len(row.parts) <= 2]
    long = [row for row in rows if row.label == 1 and len(row.parts) > 2]
    model = Model()
    chosen: list[tuple[Part, Row]] = []
    for _ in range(2):
        examples = [*short, *chosen]
        labels = np.array([float(row.label) for _, row in examples])
        # Each file of one label counts as the square root of its rows, so that no source decides alone.
        sizes: dict[tuple[str, int], int] = {}
        for _, row in examples:
            sizes[row.file, row.label] = sizes.get((row.file, row.label), 0) + 1
        weights = np.array([1 / np.sqrt(sizes[row.file, row.label]) for _, row in examples])
        weights[labels == 1] *= weights[labels == 0].sum() / weights[labels == 1].sum()
        model.fit([part for part, _ in examples], labels, weights)
        chosen = [
            (part, row)
            for row in long
            for part in sorted(row.parts, key=model.score, reverse=True)[: 1 + len(row.parts) // 6]
        ]
    return model


def threshold_for(scores: Sequence[float]) -> float:
    """The score that only `FALSE_ALARMS_MAX` of harmless texts reach."""
    return sorted(scores)[min(len(scores) - 1, int(len(scores) * (1 - FALSE_ALARMS_MAX)))]


def held_out_scores(rows: Sequence[Row]) -> list[float]:
    """The scores of harmless rows under models that were not trained on them."""
    scores = []
    for fold in range(FOLDS):
        model = train(row for at, row in enumerate(rows) if at % FOLDS != fold)
        scores += [model.suspicion(row) for at, row in enumerate(rows) if at % FOLDS == fold and row.label == 0]
    return scores


def in_sample(rows: Sequence[Row], threshold: float) -> dict[str, tuple[int, int]]:
    """By file: how many rows of each label are found under models that know other rows of their file."""
    found: dict[str, list[bool]] = {}
    for fold in range(FOLDS):
        model = train(row for at, row in enumerate(rows) if at % FOLDS != fold)
        for at, row in enumerate(rows):
            if at % FOLDS == fold:
                found.setdefault(f"{row.file} {row.label}", []).append(model.suspicion(row) > threshold)
    return {name: (sum(hits), len(hits)) for name, hits in found.items()}


def left_out(rows: Sequence[Row], threshold: float) -> dict[str, tuple[int, int]]:
    """By file: how many rows of each label are found by a model that knows no row of the file."""
    found = {}
    for file in sorted({row.file for row in rows}):
        model = train(row for row in rows if row.file != file)
        for label in (0, 1):
            hits = [model.suspicion(row) > threshold for row in rows if row.file == file and row.label == label]
            if hits:
                found[f"{file} {label}"] = (sum(hits), len(hits))
    return found


def exported(model: Model, threshold: float) -> dict[str, Any]:
    """Words as one byte each: their sign and size matter, not their fifth digit."""
    scale = float(np.abs(model.words).max()) / 127
    words = array("b", [round(float(weight) / scale) for weight in model.words])
    return {
        "bias": round(model.bias, 4),
        "threshold": round(threshold, 4),
        "phrases": {name: round(float(weight), 3) for name, weight in zip(_NAMES, model.phrases, strict=True)},
        "scale": scale,
        "words": b85encode(compress(words.tobytes(), 9)).decode(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", action="store_true", help="write instruction_weights.json")
    parser.add_argument("--chats", type=Path, nargs="*", default=(), help="gzipped conversations without attacks")
    options = parser.parse_args()
    rows = [*read_rows(options.folder), *read_ordinary(options.chats)]
    threshold = threshold_for(held_out_scores(rows))
    if options.write:
        path = Path(instructions.__file__).with_name("instruction_weights.json")
        path.write_text(json.dumps(exported(train(rows), threshold), indent=1) + "\n", encoding="utf-8")
        print(f"{path}: {path.stat().st_size:,} bytes, threshold {threshold:.2f}")
        return
    known, unknown = in_sample(rows, threshold), left_out(rows, threshold)
    print(f"{'file and label':<36} {'rows':>6} {'rows left out':>14} {'file left out':>14}")
    for name, (hits, count) in sorted(known.items()):
        print(f"{name:<36} {count:>6} {hits / count:>14.1%} {unknown[name][0] / count:>14.1%}")


if __name__ == "__main__":
    main()
