"""Trains the model that finds which lasting facts a later sentence made untrue (recall/what_holds.py), and judges it.

    python -m lab.train_changes                judge: the lives of each of six groups of people left out once
    python -m lab.train_changes --write        train on all lives and write the weights into the package

The lives are in `lab/lives`. Many of their sentences share a word with an older fact and do not change it.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from afterturn.embedders.sentence_encoder import SentenceEncoder
from afterturn.lasting_facts import FactKind, rate_sentences
from afterturn.recall import what_holds
from afterturn.recall.what_holds import Features, RatedEntry, Weights
from afterturn.standing.memories import SAME_SUBJECT
from afterturn.testing.entries import entry
from afterturn.types import Kind
from lab.lives import Life, LifeSentence, read_lives

GROUPS = 6
STEPS = 60
DECAY = 2.0
# How much more a change counts than a pair without one: there are ten times as many of those.
CHANGE_WEIGHT = 6.0
THRESHOLDS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)

Floats = NDArray[np.float64]


class Pair(NamedTuple):
    life: int
    fact: str
    is_change: bool
    features: Features
    is_same_subject: bool


def gather(lives: Sequence[Life]) -> list[Pair]:
    """The pairs that the model is asked about. Of the sentences of a message that changes a fact, only those that say
    so: its other sentences are no evidence."""
    found: list[Pair] = []
    encoder = SentenceEncoder(words_max=10_000)
    for number, life in enumerate(lives):
        messages: defaultdict[int, list[str]] = defaultdict(list)
        for one in life.sentences:
            messages[one.message].append(one.text)
        vectors = dict(zip(messages, encoder.embed([" ".join(texts) for texts in messages.values()]), strict=True))
        rated = [_rate(at, one) for at, one in enumerate(life.sentences)]
        said = {id(one.entry): sentence for one, sentence in zip(rated, life.sentences, strict=True)}
        facts = [one for one, sentence in zip(rated, life.sentences, strict=True) if _is_fact(sentence)]
        for fact, newer, rarity in what_holds.find_pairs(facts, rated):
            if not what_holds.is_about_same(fact.entry, newer.entry):
                continue
            features = what_holds.change_features(fact, newer) | what_holds.rarity_features(rarity)
            older, sentence = said[id(fact.entry)], said[id(newer.entry)]
            is_change = bool(older.name) and older.name in sentence.changes
            changing = {one.message for one in life.sentences if older.name and older.name in one.changes}
            if is_change or sentence.message not in changing:
                cosine = float(vectors[older.message] @ vectors[sentence.message])
                found.append(Pair(number, older.text, is_change, features, cosine >= SAME_SUBJECT))
    return found


def _rate(at: int, sentence: LifeSentence) -> RatedEntry:
    stored = entry(
        sentence.text,
        id=f"m{sentence.message:04}",
        kind=Kind.RECORD,
        occurred_at=sentence.said_at + at / 1000,
        turn=f"t{sentence.message}",
    )
    best = max(rate_sentences(sentence.text), key=lambda one: one.chance, default=None)
    return RatedEntry(stored, *(best[1:3] if best is not None else (FactKind.PASSING, 0.0)))


def _is_fact(sentence: LifeSentence) -> bool:
    return bool(sentence.name) or sentence.kind is not FactKind.PASSING


def train(pairs: Sequence[Pair]) -> Weights:
    """Logistic regression by Newton's method."""
    names = sorted(pairs[0].features)
    rows = np.array([[pair.features[name] for name in names] for pair in pairs])
    wanted = np.array([float(pair.is_change) for pair in pairs])
    counts = np.where(wanted > 0, CHANGE_WEIGHT, 1.0)
    decay = DECAY * np.array([name != "bias" for name in names])
    weights: Floats = np.zeros(len(names))
    for _ in range(STEPS):
        chances = 1 / (1 + np.exp(-rows @ weights))
        slope = rows.T @ (counts * (chances - wanted)) + decay * weights
        curve = (rows * (counts * chances * (1 - chances))[:, None]).T @ rows + np.diag(decay + 1e-9)
        weights = weights - np.linalg.solve(curve, slope)
    return {name: round(float(weight), 4) for name, weight in zip(names, weights, strict=True)}


def judge(lives: Sequence[Life], pairs: Sequence[Pair]) -> None:
    """For each threshold: how many of the changed facts are found, how many of the others are taken for changed, and
    the share of those taken that did change. Only pairs whose messages are about the same count."""
    highest: defaultdict[tuple[int, str], float] = defaultdict(float)
    for group in range(GROUPS):
        weights = train([pair for pair in pairs if pair.life % GROUPS != group])
        for pair in (pair for pair in pairs if pair.life % GROUPS == group and pair.is_same_subject):
            chance = float(1 / (1 + np.exp(-what_holds.weigh(pair.features, weights))))
            highest[pair.life, pair.fact] = max(highest[pair.life, pair.fact], chance)
    for title, is_english in (("English", True), ("other languages", False)):
        judged: list[tuple[float, bool]] = []
        for number, life in enumerate(lives):
            changed = {name for sentence in life.sentences for name in sentence.changes}
            if (life.language == "en") is is_english:
                judged += [(highest[number, one.text], one.name in changed) for one in life.sentences if _is_fact(one)]
        true = sum(is_changed for _, is_changed in judged)
        print(f"{title}: {len(judged)} facts, {true} of them change")
        for threshold in THRESHOLDS:
            taken = [is_changed for chance, is_changed in judged if chance >= threshold]
            false = len(taken) - sum(taken)
            shares = f"found {sum(taken) / true:.0%}, falsely {false / (len(judged) - true):.1%}"
            print(f"  {threshold}: {shares}, right {sum(taken) / len(taken):.0%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write weights that were trained on all lives")
    chosen = parser.parse_args()
    lives = list(read_lives())
    pairs = gather(lives)
    judge(lives, pairs)
    if chosen.write:
        path = what_holds.WEIGHTS_PATH
        stored = json.loads(path.read_text(encoding="utf-8")) | {"changes": train(pairs)}
        path.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
