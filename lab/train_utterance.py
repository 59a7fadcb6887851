"""Trains the weights of `afterturn.utterance`, and judges them by leaving out people and languages.

    python -m lab.train_utterance LABELS.jsonl            judge: each person and each language left out once
    python -m lab.train_utterance LABELS.jsonl --write    train on everything and write the weights into the package

`lab/utterance_sentences.tsv` has our own sentences: language, labels, text. LABELS.jsonl has one object a line with
`text`, `labels`, `group` (the person) and `lang`. The labels of a message are letters: s states something, m states
something of general knowledge (counts half), q asks, r puts an order as a question (counts half as asking), o orders,
t social, h supposes, c changes, - not judged for h and c.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from afterturn import utterance
from afterturn.utterance import FEATURES, sentence_bits, split_bits

SENTENCES = Path(__file__).with_name("utterance_sentences.tsv")
NAMES = ("states", "asks", "orders", "social", "supposes", "changes")
LETTERS = "sqothc"
UNJUDGED = "hc"
KINDS = 5  # the first five names are kinds, the sixth is not
SOCIAL = NAMES.index("social")
# A feature that is seen less often in training is left out.
SEEN_MIN = 3
STEPS = 300
RATE = 0.1
DECAY = 3e-4
# Our own sentences are few, and speak for the languages that the other data lacks.
OWN_WEIGHT = 2.0

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Example:
    text: str
    labels: str
    group: str
    language: str
    weight: float = 1.0

    @property
    def importance(self) -> list[float]:
        return [0.0 if "-" in self.labels and letter in UNJUDGED else self.weight for letter in LETTERS]

    @property
    def wanted(self) -> list[float]:
        found = [float(letter in self.labels) for letter in LETTERS]
        if "m" in self.labels:
            found[0] = 0.5
        if "r" in self.labels:
            found[1] = 0.5
        return found


def read_examples(path: Path) -> list[Example]:
    own = (line.split("\t") for line in SENTENCES.read_text(encoding="utf-8").splitlines())
    examples = [Example(text, labels, f"own {language}", language, OWN_WEIGHT) for language, labels, text in own]
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        examples.append(Example(row["text"], row["labels"], row["group"], row["lang"]))
    return examples


class Design:
    """The examples with the features of their sentences."""

    def __init__(self, examples: Sequence[Example]) -> None:
        self.examples = examples
        self.sentences = [
            [[FEATURES[bit.bit_length() - 1] for bit in split_bits(bits)] for bits in sentence_bits(example.text)]
            for example in examples
        ]
        self.wanted = np.array([example.wanted for example in examples])
        self.weights = np.array([example.importance for example in examples])

    def train(self, rows: Iterable[int]) -> dict[str, Floats]:
        """Gradient descent (Adam) on the log loss of messages, whose chance is that of their strongest sentence."""
        kept = sorted(row for row in rows if self.sentences[row])
        seen = Counter(feature for row in kept for feature in {name for found in self.sentences[row] for name in found})
        index = {feature: at for at, feature in enumerate(sorted(name for name in seen if seen[name] >= SEEN_MIN))}
        sentences = [features for row in kept for features in self.sentences[row]]
        matrix = np.zeros((len(sentences), len(index)))
        for at, features in enumerate(sentences):
            matrix[at, [index[feature] for feature in features if feature in index]] = 1.0
        counts = [len(self.sentences[row]) for row in kept]
        starts = np.cumsum([0, *counts[:-1]])
        wanted, importance = self.wanted[kept], self.weights[kept]
        # Social is a property of every sentence, so its opposite is trained: that a sentence has substance.
        wanted[:, SOCIAL] = 1.0 - wanted[:, SOCIAL]
        weights = np.zeros((len(index), len(NAMES)))
        first, second = np.zeros_like(weights), np.zeros_like(weights)
        for step in range(1, STEPS + 1):
            chance = 1.0 / (1.0 + np.exp(-(matrix @ weights)))
            strongest = np.maximum.reduceat(chance, starts)
            slope = importance * (strongest - wanted)
            slope = np.repeat(slope, counts, axis=0) * (chance == np.repeat(strongest, counts, axis=0))
            gradient = matrix.T @ slope / len(kept) + DECAY * weights
            first = 0.9 * first + 0.1 * gradient
            second = 0.99 * second + 0.01 * gradient**2
            weights -= RATE * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.99**step)) + 1e-8)
        weights[:, SOCIAL] *= -1.0
        return {feature: weights[at] for feature, at in index.items()}

    def predict(self, row: int, weights: dict[str, Floats]) -> Floats:
        chances = []
        for features in self.sentences[row]:
            score = np.zeros(len(NAMES))
            for feature in features:
                if feature in weights:
                    score += weights[feature]
            chances.append(1.0 / (1.0 + np.exp(-score)))
        if not chances:
            return np.array([0.0, 0.0, 0.0, 1.0, 0.0, 0.0])
        found = np.max(chances, axis=0)
        found[SOCIAL] = np.min(chances, axis=0)[SOCIAL]
        return np.asarray(found)


def by_rules(features: Sequence[Sequence[str]]) -> Floats:
    """The baseline: the same word lists and a question mark, without weights."""
    found = np.zeros(len(NAMES))
    found[SOCIAL] = 1.0
    for sentence in features:
        asks = "end ?" in sentence or "question first" in sentence or "inverted first" in sentence
        orders = not asks and ("order first" in sentence or "please" in sentence)
        supposes = "suppose" in sentence or "offer first" in sentence
        social = "all social" in sentence or ("half social" in sentence and not asks)
        states = not (asks or orders or social or supposes)
        found = np.maximum(found, [states, asks, orders, found[SOCIAL], supposes, "change" in sentence])
        found[SOCIAL] = min(found[SOCIAL], social)
    return found


def report(title: str, design: Design, predicted: dict[int, Floats], group: Callable[[Example], str]) -> None:
    print(f"\n{title}\n{'':16}{'n':>6}{'kind':>7}  " + "".join(f"{name:>15}" for name in NAMES))
    groups: dict[str, list[int]] = {}
    for row in predicted:
        groups.setdefault(group(design.examples[row]), []).append(row)
    for name, rows in [*sorted(groups.items()), ("all", list(predicted))]:
        chances = np.array([predicted[row] for row in rows])
        wanted = design.wanted[rows]
        right = np.mean([wanted[at, chances[at, :KINDS].argmax()] > 0 for at in range(len(rows))])
        judged = design.weights[rows] > 0
        columns = [_scores(wanted[judged[:, at], at] >= 0.5, chances[judged[:, at], at]) for at in range(len(NAMES))]
        print(f"{name:16}{len(rows):6}{right:7.1%}  " + "".join(f"{column:>15}" for column in columns))


def _scores(wanted: NDArray[np.bool_], chances: Floats) -> str:
    """Area under the curve (a property against all others), and F1 at a half."""
    positive, negative = chances[wanted], chances[~wanted]
    if not len(positive) or not len(negative):
        return "-"
    above = (positive[:, None] > negative).mean() + 0.5 * (positive[:, None] == negative).mean()
    hits = (positive >= 0.5).sum()
    f1 = 2 * hits / (len(positive) + (chances >= 0.5).sum())
    return f"{above:.3f} {f1:.2f}"


def leave_out(design: Design, group: Callable[[Example], str]) -> dict[int, Floats]:
    predicted: dict[int, Floats] = {}
    every = range(len(design.examples))
    for name in sorted({group(example) for example in design.examples}):
        held = [row for row in every if group(design.examples[row]) == name]
        weights = design.train(set(every) - set(held))
        predicted |= {row: design.predict(row, weights) for row in held}
    return predicted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("labels", type=Path)
    parser.add_argument("--write", action="store_true", help="train on everything and write the weights")
    chosen = parser.parse_args()
    design = Design(read_examples(chosen.labels))
    if chosen.write:
        weights = design.train(range(len(design.examples)))
        rows = {feature: [round(100 * float(weight)) for weight in row] for feature, row in sorted(weights.items())}
        lines = ",\n".join(f"{json.dumps(name, ensure_ascii=False)}: {json.dumps(row)}" for name, row in rows.items())
        utterance.WEIGHTS_PATH.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
        print(f"{len(rows)} features, {utterance.WEIGHTS_PATH.stat().st_size:,} bytes")
        return
    by_language = lambda example: example.language  # noqa: E731
    rules = {row: by_rules(design.sentences[row]) for row in range(len(design.examples))}
    report("Rules", design, rules, by_language)
    report("Trained, each person left out", design, leave_out(design, lambda example: example.group), by_language)
    report("Trained, each language left out", design, leave_out(design, by_language), by_language)


if __name__ == "__main__":
    main()
