"""Trains the weights of scanners/instructions.py, and shows how they do on whole files left out of training.

    python -m lab.train_instructions FOLDER --chats FILE... --write     # writes instruction_weights.json
    python -m lab.train_instructions FOLDER --chats FILE... --measure FILE... [--page]   # the table of docs/guard.md

FOLDER has files of JSON lines with `text`, `label` (1: an attack), `source` and `license`. Rows whose licence is not
known to permit it are not trained on. Ordinary text is needed too, or the model learns the subjects of the attacks:
what people and assistants say in chats, Python's own documentation, and the READMEs of the packages that
requirements-dev.lock pins. The written file lists what it was trained on with a digest of each source; the same sources
give the same file.

The threshold is the score that 2 % of the harmless rows exceed under models that know no row of their file. A long
attack hides an instruction among harmless sentences, so a first model is trained on short texts, and suspicious parts
of long ones join them.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from afterturn.scanners import instructions
from afterturn.scanners.instructions import PHRASES, WORDS_MIN, features_of, split_parts, weight_of_words
from afterturn.scanners.normal_form import views

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "guard.md"
BEGIN, END = "<!-- instructions table: begin -->", "<!-- instructions table: end -->"
PERMITTED = ("MIT", "MIT-0", "CC0-1.0", "Apache-2.0", "CC-BY-4.0")
UNVERIFIED = ("safeguard",)
# Files whose rows are not orders to a model: encodings, code for other machines.
SKIPPED = (
    *("unicode_smuggling", "secrets", "xss", "sqli", "ssrf_urls", "json_parsing", "naughty_strings", "path_traversal"),
    "benign_unicode",
)
# Attacks whose harmless part is longer than the attack, or that are harmless alone: they are only measured.
MEASURED = ("indirect_document_injection", "asb_attack_goals")
FALSE_ALARMS_MAX = 0.02
ROUNDS, RATE = 120, 0.1
WORD_PENALTY, PHRASE_PENALTY = 4e-5, 8e-5
# A word counts if it is in that many parts and files, and only this many of the words with the most effect are kept.
PARTS_MIN, FILES_MIN, WORDS_KEPT = 6, 3, 4_000
FOLDS = 3
PARAGRAPH_CHARS_MIN, PARAGRAPH_CHARS_MAX, PARAGRAPHS_MAX = 60, 1_200, 60
_NAMES = list(PHRASES)

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Row(NamedTuple):
    """A text by its parts: the phrases and the words of each. `trains` is false for what is only measured."""

    file: str
    label: int
    parts: tuple[tuple[list[str], list[str]], ...]
    trains: bool
    text: str


def make_row(file: str, label: int, text: str, *, trains: bool = True) -> Row:
    pieces = [piece for view in views(text) for piece in split_parts(view.text)]
    parts = tuple((phrases, sorted(words)) for phrases, words in map(features_of, pieces) if len(words) >= WORDS_MIN)
    return Row(file, label, parts, trains, text)


# Reading


def read_rows(folder: Path) -> Iterator[Row]:
    for path in sorted(folder.glob("*.jsonl")):
        for found in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
            if path.stem not in SKIPPED and found["label"] in (0, 1):
                permitted = found.get("license") in PERMITTED and not found.get("source", "").startswith(UNVERIFIED)
                trains = permitted and path.stem not in MEASURED
                yield make_row(path.stem, int(found["label"]), found["text"], trains=trains)


def read_chats(path: Path, *, trains: bool) -> Iterator[Row]:
    """Every third message of a file of chats. What a user says to an assistant is an order to a model: it is left out.

    For files that are only measured nothing is left out.
    """
    name = path.name.split(".")[0].removesuffix("_dev")
    content = json.loads(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes())
    if isinstance(content, dict):
        exchanges = [one for user in content["users"] for session in user["sessions"] for one in session["exchanges"]]
        texts = [text for one in exchanges for text in (one["user"], one["assistant"])]
        texts += [str(call["result"]) for one in exchanges for call in one.get("tools", ())]
    else:
        items = [item for conversation in content for item in conversation["items"]]
        texts = [item["text"] for item in items if not (trains and item["speaker"].lower() == "user")][::3]
    yield from (make_row(name, 0, text, trains=trains) for text in texts if text.strip())


def read_labelled(path: Path) -> Iterator[Row]:
    for found in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
        yield make_row(path.parent.name, int(found["label"]), found["text"], trains=False)


def read_documentation() -> Iterator[Row]:
    """Paragraphs of Python's reference, and of the READMEs of the pinned packages, which follow the fields there."""
    for _, text in sorted(topics.items()):
        yield from (make_row("Python's documentation", 0, paragraph) for paragraph in _paragraphs(text)[::3])
    for name in re.findall(r"^([\w.-]+)==", (ROOT / "requirements-dev.lock").read_text(encoding="utf-8"), re.MULTILINE):
        try:
            text = distribution(name).read_text("METADATA") or ""
        except PackageNotFoundError:
            continue
        yield from (make_row("READMEs of packages", 0, paragraph) for paragraph in _paragraphs(text)[1:PARAGRAPHS_MAX])


def _paragraphs(text: str) -> list[str]:
    found, current = [], ""
    for paragraph in filter(None, map(str.strip, re.split(r"\n\s*\n", text))):
        current = f"{current}\n\n{paragraph}" if current else paragraph
        if len(current) >= PARAGRAPH_CHARS_MIN:
            found.append(current[:PARAGRAPH_CHARS_MAX])
            current = ""
    return found


def without_repeats(rows: Iterable[Row]) -> list[Row]:
    """Each text once. Rows that train come first: what is only measured changes neither them nor their order."""
    kept: dict[str, Row] = {}
    for row in sorted(rows, key=lambda row: not row.trains):
        if row.parts:
            kept.setdefault(row.text, row)
    return list(kept.values())


# Training


class Examples:
    """The parts of all rows as numbers: the features of part `i` are `features[starts[i]:starts[i + 1]]`."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows
        parts = [(at, part) for at, row in enumerate(rows) for part in row.parts]
        counts: Counter[str] = Counter()
        files: dict[str, set[str]] = {}
        for at, (_, words) in parts:
            if rows[at].trains:
                counts.update(words)
                for word in words:
                    files.setdefault(word, set()).add(rows[at].file)
        self.words = sorted(word for word in counts if counts[word] >= PARTS_MIN and len(files[word]) >= FILES_MIN)
        numbers = {word: len(_NAMES) + number for number, word in enumerate(self.words)}
        self.owners = np.array([at for at, _ in parts])
        features: list[int] = []
        values: list[float] = []
        starts = [0]
        for _, (phrases, words) in parts:
            known = [numbers[word] for word in words if word in numbers]
            features += [_NAMES.index(name) for name in phrases] + known
            values += [1.0] * len(phrases) + [weight_of_words(len(words))] * len(known)
            starts.append(len(features))
        self.features, self.values, self.starts = np.array(features), np.array(values), np.array(starts)
        self.lengths = np.diff(self.starts)
        self.size = len(_NAMES) + len(self.words)
        self.labels = np.array([row.label for row in rows])[self.owners]
        self.groups = np.array([f"{row.file} {row.label}" for row in rows])[self.owners]
        self.part_counts = np.bincount(self.owners, minlength=len(rows))
        self.trains = np.array([row.trains for row in rows])
        places = np.repeat(self.trains[self.owners], self.lengths)
        self.feature_counts = np.bincount(self.features[places], minlength=self.size)

    def scores(self, model: Model) -> Floats:
        """By row: the score of its most suspicious part."""
        found = np.full(len(self.rows), -np.inf)
        np.maximum.at(found, self.owners, self.part_scores(model))
        return found

    def part_scores(self, model: Model) -> Floats:
        at = np.repeat(np.arange(len(self.lengths)), self.lengths)
        sums = np.bincount(at, model.weights[self.features] * self.values, minlength=len(self.lengths))
        return np.asarray(sums + model.bias, dtype=np.float64)


class Model(NamedTuple):
    bias: float
    weights: Floats


def train(examples: Examples, chosen: NDArray[np.bool_]) -> Model:
    """Trains on the chosen rows, apart from those that are only measured."""
    chosen = chosen & examples.trains
    known = chosen[examples.owners]
    is_short = (examples.labels == 0) | (examples.part_counts[examples.owners] <= 2)
    short = np.flatnonzero(known & is_short)
    model = fit(examples, short)
    scores = examples.part_scores(model)
    suspicious: list[int] = []
    ends = np.cumsum(examples.part_counts)
    for at in np.flatnonzero(chosen & (examples.part_counts > 2)).tolist():
        if examples.rows[at].label == 1:
            parts = range(ends[at] - examples.part_counts[at], ends[at])
            suspicious += sorted(parts, key=scores.__getitem__, reverse=True)[: 1 + len(parts) // 6]
    return pruned(examples, fit(examples, np.concatenate([short, np.array(suspicious, dtype=np.int64)])))


def fit(examples: Examples, parts: Integers) -> Model:
    """Logistic regression. Each file of one label counts as the square root of its parts: no source decides alone."""
    lengths = examples.lengths[parts]
    places = np.concatenate([np.arange(examples.starts[part], examples.starts[part + 1]) for part in parts])
    features, values = examples.features[places], examples.values[places]
    owners = np.repeat(np.arange(len(parts)), lengths)
    labels = examples.labels[parts]
    _, group, sizes = np.unique(examples.groups[parts], return_inverse=True, return_counts=True)
    weights = 1 / np.sqrt(sizes[group])
    weights[labels == 1] *= weights[labels == 0].sum() / weights[labels == 1].sum()
    weights /= weights.sum()
    state = np.zeros(1 + examples.size)
    mean, square = np.zeros_like(state), np.zeros_like(state)
    penalty = np.concatenate([[0.0], np.full(len(_NAMES), PHRASE_PENALTY), np.full(len(examples.words), WORD_PENALTY)])
    for step in range(1, ROUNDS + 1):
        scores = state[0] + np.bincount(owners, state[1 + features] * values, minlength=len(parts))
        error = (1 / (1 + np.exp(-scores)) - labels) * weights
        gradient = np.concatenate(
            [[error.sum()], np.bincount(features, error[owners] * values, minlength=examples.size)]
        )
        gradient += penalty * state
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.999 * square + 0.001 * gradient * gradient
        state -= (
            RATE * (1 - step / (ROUNDS + 1)) * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.999**step)) + 1e-9)
        )
    return Model(float(state[0]), state[1:])


def pruned(examples: Examples, model: Model) -> Model:
    """Keeps the words that change the most scores by the most."""
    effect = np.abs(model.weights) * np.sqrt(examples.feature_counts)
    effect[: len(_NAMES)] = np.inf
    kept = np.argsort(-effect, kind="stable")[: len(_NAMES) + WORDS_KEPT]
    weights = np.zeros_like(model.weights)
    weights[kept] = np.round(model.weights[kept], 2)
    return Model(round(model.bias, 2), weights)


# Measuring


class LeftOut(NamedTuple):
    """By row: the score under a model that knows other rows of its file, and under one that knows none of them."""

    rows: Floats
    files: Floats


def leave_out(examples: Examples) -> LeftOut:
    files = np.array([row.file for row in examples.rows])
    every = examples.scores(train(examples, examples.trains))
    by_row, by_file = every.copy(), every.copy()
    for fold in range(FOLDS):
        is_out = np.arange(len(files)) % FOLDS == fold
        by_row[is_out] = examples.scores(train(examples, ~is_out))[is_out]
    for file in np.unique(files[examples.trains]):
        is_out = files == file
        by_file[is_out] = examples.scores(train(examples, ~is_out))[is_out]
    return LeftOut(by_row, by_file)


def threshold_for(scores: Floats) -> float:
    """The score that only `FALSE_ALARMS_MAX` of harmless texts exceed."""
    return float(np.sort(scores)[min(len(scores) - 1, int(len(scores) * (1 - FALSE_ALARMS_MAX)))])


def threshold_of(examples: Examples, scores: LeftOut) -> float:
    """By the harmless rows of the files that are trained on, each file left out."""
    chosen = np.array([row.trains and row.label == 0 for row in examples.rows])
    return round(threshold_for(scores.files[chosen]), 2)


def exported(examples: Examples, model: Model, threshold: float) -> dict[str, Any]:
    """What the scanner reads, and what it was trained on: by file the rows and a digest of their texts."""
    digests: dict[str, Any] = {}
    sizes: Counter[str] = Counter()
    for row in examples.rows:
        if row.trains:
            sizes[row.file] += 1
            digests.setdefault(row.file, hashlib.sha256()).update(f"{row.label}{row.text}\0".encode())
    words = zip(examples.words, model.weights[len(_NAMES) :], strict=True)
    return {
        "trained_on": {name: f"{sizes[name]} rows, sha256 {digests[name].hexdigest()[:16]}" for name in sorted(sizes)},
        "bias": model.bias,
        "threshold": threshold,
        "phrases": {name: float(weight) for name, weight in zip(_NAMES, model.weights, strict=False)},
        "words": {word: float(weight) for word, weight in words if weight},
    }


def table(examples: Examples, scores: LeftOut, known: Floats, threshold: float) -> Iterator[str]:
    yield f"Measured on {datetime.now(UTC):%-d %B %Y}. Shares of rows that are found:"
    yield ""
    yield "| texts | rows | file left out | rows left out | known rows |"
    yield "|---|---:|---:|---:|---:|"
    for label, title in ((1, ""), (0, "false alarms: ")):
        for file in sorted({row.file for row in examples.rows if row.label == label}):
            chosen = np.array([row.file == file and row.label == label for row in examples.rows])
            trains = any(row.trains for row in examples.rows if row.file == file and row.label == label)
            columns = (scores.files, scores.rows, known) if trains else (known,)
            found = [f"{(one[chosen] > threshold).mean():.1%}".replace("%", " %") for one in columns]
            shares = " | ".join(found if trains else [*found, "–", "–"])
            name = f"{title}{file.replace('_', ' ')}{'' if trains else ' (never trained on)'}"
            yield f"| {name} | {chosen.sum():,} | {shares} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--chats", type=Path, nargs="*", default=(), help="conversations without attacks, trained on")
    parser.add_argument("--measure", type=Path, nargs="*", default=(), help="chats and JSON lines, not trained on")
    parser.add_argument("--write", action="store_true", help="write instruction_weights.json")
    parser.add_argument("--page", action="store_true", help="write the table into docs/guard.md")
    options = parser.parse_args()
    rows = [*read_rows(options.folder), *read_documentation()]
    rows += [row for path in options.chats for row in read_chats(path, trains=True)]
    for path in options.measure:
        rows += read_labelled(path) if path.suffix == ".jsonl" else read_chats(path, trains=False)
    examples = Examples(without_repeats(rows))
    scores = leave_out(examples)
    threshold = threshold_of(examples, scores)
    model = train(examples, np.ones(len(examples.rows), dtype=bool))
    if options.write:
        path = Path(instructions.__file__).with_name("instruction_weights.json")
        content = json.dumps(exported(examples, model, threshold), indent=0, ensure_ascii=False) + "\n"
        path.write_text(content, encoding="utf-8")
        print(f"{path}: {path.stat().st_size:,} bytes, threshold {threshold}")
    lines = "\n".join(table(examples, scores, examples.scores(model), threshold))
    print(lines)
    if options.page:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        PAGE.write_text(f"{before}{BEGIN}\n{lines}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
