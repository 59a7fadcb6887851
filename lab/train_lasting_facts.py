"""Trains the weights of `afterturn.lasting_facts`, and judges them.

    python -m lab.train_lasting_facts                    judge: each quarter of the templates left out once
    python -m lab.train_lasting_facts --write            train on everything and write the weights into the package
    python -m lab.train_lasting_facts --judge FILE…      judge the weights in the package on everyday conversations
                                                         (`users`) or preferences (`topics` and `filler`)

`lab/lasting_facts` has our sentences, one file for each language. A line `$name a|b` gives the words of a slot; a line
`[kind]` begins the templates of one kind. A template has slots, `{name}`, and choices, `(a|b)`. Variants of one
template are never in both training and test.

The second classifier also learns from `lab/whole_sentences`, which go on from these files: their `[fragment]` are
replies, errands and remarks, which say nothing lasting without their conversation. And from `lab/lives`: each person's
sentences are all in training or all in test.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from struct import pack
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from afterturn.lasting_facts import (
    BUCKETS,
    KINDS,
    REFERS_BACK,
    WEIGHTS_PATH,
    WORTHS,
    FactKind,
    feature_buckets,
    rate_sentences,
)
from afterturn.standing.memories import BINDING
from lab.lives import read_lives

FOLDER = Path(__file__).with_name("lasting_facts")
WHOLE_FOLDER = Path(__file__).with_name("whole_sentences")
UTTERANCES = Path(__file__).with_name("utterance_sentences.tsv")
VARIANTS = 8
FOLDS = 4
STEPS = 100
RATE = 0.1
DECAY = 1e-5
DROPPED = 0.4
# The share of each kind in training, in the order of the kinds.
SHARES = (0.12, 0.05, 0.08, 0.12, 0.05, 0.03, 0.06, 0.49)
# The second classifier: its sources, the share of each in training, and those that are whole and last.
FACT, REMARK, FRAGMENT, LIFE_FACT, LIFE_REMARK = SOURCES = range(5)
SOURCE_SHARES = (0.2, 0.1, 0.2, 0.25, 0.25)
WHOLE = (FACT, LIFE_FACT)
# A word or part of a word that fewer templates have gets no weight: most buckets stay empty, for words never seen.
TEMPLATES_MIN = 3
STANDING_CHARS_MAX = 2_560
PASSING = KINDS.index(FactKind.PASSING)

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


class Example(NamedTuple):
    text: str
    kind: int
    language: str
    template: str
    weight: float
    source: int
    is_for_both: bool = True


def read_examples() -> list[Example]:
    found: list[Example] = []
    for path in sorted(FOLDER.glob("*.txt")):
        slots: dict[str, list[str]] = {"lead": []}
        found += _read_language(path, slots)
        found += [one._replace(is_for_both=False) for one in _read_language(WHOLE_FOLDER / path.name, slots)]
    for line in UTTERANCES.read_text(encoding="utf-8").splitlines():
        language, labels, text = line.split("\t")
        if not set(labels) & set("sm"):
            found.append(Example(text, PASSING, language, text, 1.0, REMARK))
    for life in read_lives():
        for one in life.sentences:
            source = LIFE_REMARK if one.kind is FactKind.PASSING else LIFE_FACT
            found.append(Example(one.text, KINDS.index(one.kind), life.language, life.name, 1.0, source, False))
    return found


def _read_language(path: Path, slots: dict[str, list[str]]) -> Iterator[Example]:
    kind, source = PASSING, REMARK
    made: list[Example] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("$"):
            name, _, listed = line[1:].partition(" ")
            slots[name] = listed.split("|")
        elif line.startswith("["):
            is_fragment = line.strip("[]") == "fragment"
            kind = PASSING if is_fragment else KINDS.index(FactKind(line.strip("[]")))
            source = FRAGMENT if is_fragment else REMARK if kind == PASSING else FACT
        elif line.strip() and not line.startswith("#"):
            made += _expand(line.strip(), kind, source, path.stem, slots)
    yield from made
    yield from _joined(made, path.stem)


_SLOT = re.compile(r"\{(\w+)\}|\(([^()]*\|[^()]*)\)")


def _expand(template: str, kind: int, source: int, language: str, slots: dict[str, list[str]]) -> Iterator[Example]:
    pick = random.Random(crc32(template.encode()))
    variants = VARIANTS if _SLOT.search(template) else 2
    texts: dict[str, None] = {}
    for _ in range(variants):
        text = template
        while match := _SLOT.search(text):
            chosen = pick.choice(slots[match[1]] if match[1] else match[2].split("|"))
            text = text[: match.start()] + chosen + text[match.end() :]
        text = " ".join(text.split())
        if slots["lead"] and pick.random() < 0.12:
            text = f"{pick.choice(slots['lead'])} {text}"
        elif pick.random() < 0.7:
            text = text[:1].upper() + text[1:]
        if pick.random() < 0.35:
            text = text.rstrip(".。।").lower() if pick.random() < 0.6 else text.rstrip(".。।")
        texts[text] = None
    for text in texts:
        yield Example(text, kind, language, template, len(texts) ** -0.5, source)


def _joined(made: Sequence[Example], language: str) -> Iterator[Example]:
    """Long sentences: something passing joined to something else, which decides the kind."""
    pick = random.Random(language)
    passing = [one for one in made if one.source == REMARK]
    comma = {"ja": "、", "zh": "，", "ar": "، "}.get(language, ", ")
    for one in made:
        if passing and one.source != FRAGMENT and pick.random() < 0.12:
            other = pick.choice(passing)
            parts = [one.text.rstrip(".。।!"), other.text]
            if "?" not in other.text and pick.random() < 0.5:
                parts = [other.text.rstrip(".。।!"), one.text]
            yield one._replace(text=comma.join(parts))


class Design:
    """Sentences as a sparse matrix. For the second classifier, two buckets are one column; classes are 0 and 1, and
    each source has its share in training."""

    def __init__(self, examples: Sequence[Example], *, is_second: bool = False) -> None:
        rows, columns, values = [], [], []
        for row, one in enumerate(examples):
            flags, buckets = feature_buckets(one.text)
            columns += flags + ([bucket >> 1 for bucket in buckets] if is_second else buckets)
            values += [1.0] * len(flags) + [len(buckets) ** -0.5] * len(buckets)
            rows += [row] * (len(flags) + len(buckets))
        self.rows, self.columns = np.array(rows), np.array(columns)
        self.values = np.array(values, np.float32)
        self.groups = np.array([one.source if is_second else one.kind for one in examples])
        self.kinds = np.isin(self.groups, WHOLE).astype(np.int64) if is_second else self.groups
        self.shares = SOURCE_SHARES if is_second else SHARES
        self.size = BUCKETS // 2 if is_second else BUCKETS
        self.weights = np.array([one.weight for one in examples], np.float32)
        self.count = len(examples)
        numbers = {one.template: at for at, one in enumerate(examples)}
        self.templates = np.array([numbers[one.template] for one in examples])

    def logits(self, weights: Floats) -> Floats:
        return _sums(self.rows, self.columns, self.values, weights, self.count)

    def select(self, chosen: NDArray[np.bool_]) -> Design:
        picked = Design([])
        numbers = np.cumsum(chosen) - 1
        inside = chosen[self.rows]
        picked.rows, picked.columns, picked.values = (
            numbers[self.rows[inside]], self.columns[inside], self.values[inside],
        )  # fmt: skip
        picked.kinds, picked.weights, picked.count = self.kinds[chosen], self.weights[chosen], int(chosen.sum())
        picked.templates, picked.groups = self.templates[chosen], self.groups[chosen]
        picked.shares, picked.size = self.shares, self.size
        return picked


def _sums(into: Ints, source: Ints, values: Floats, table: Floats, count: int) -> Floats:
    """Adds rows of `table` for each entry of a sparse matrix."""
    return np.stack(
        [
            np.bincount(into, weights=values * table[source, kind], minlength=count).astype(np.float32)
            for kind in range(table.shape[1])
        ],
        axis=1,
    )


def softmax(logits: Floats) -> Floats:
    raised: Floats = np.exp(logits - logits.max(1, keepdims=True))
    raised /= raised.sum(1, keepdims=True)
    return raised


def train(design: Design) -> Floats:
    """Multinomial logistic regression by Adam, over all sentences at each step."""
    pairs = np.unique(np.stack([design.columns, design.templates[design.rows]]), axis=1)
    is_kept = np.bincount(pairs[0], minlength=design.size) >= TEMPLATES_MIN
    inside = is_kept[design.columns]
    design.rows, design.columns, design.values = design.rows[inside], design.columns[inside], design.values[inside]
    weights: Floats = np.zeros((design.size, int(design.kinds.max()) + 1), np.float32)
    mean: Floats = np.zeros_like(weights)
    spread: Floats = np.zeros_like(weights)
    chance = np.random.default_rng(1)
    wanted = np.eye(weights.shape[1], dtype=np.float32)[design.kinds]
    totals = np.bincount(design.groups, weights=design.weights, minlength=len(design.shares))
    share = (design.weights * (np.array(design.shares) / totals)[design.groups])[:, None].astype(np.float32)
    for step in range(1, STEPS + 1):
        # Dropout: no single word decides.
        kept: Floats = design.values * (chance.random(len(design.values), np.float32) > DROPPED) / (1 - DROPPED)
        error = (softmax(_sums(design.rows, design.columns, kept, weights, design.count)) - wanted) * share
        slope = _sums(design.columns, design.rows, kept, error, design.size) + DECAY * weights
        mean = (0.9 * mean + 0.1 * slope).astype(np.float32)
        spread = (0.99 * spread + 0.01 * slope**2).astype(np.float32)
        rate = RATE * min(1.0, 2 * (1 - step / (STEPS + 1)))
        weights -= rate * (mean / (1 - 0.9**step)) / (np.sqrt(spread / (1 - 0.99**step)) + 1e-7)
    return weights


def whole_examples(examples: Sequence[Example]) -> list[Example]:
    """A fact about "she" or "it" is a fragment; a refusal or wish for the manner is not used, because it may stand."""
    found = []
    for one in examples:
        refers_back = one.source in WHOLE and REFERS_BACK.match(one.text)
        if not refers_back or KINDS[one.kind] not in BINDING:
            found.append(one._replace(source=FRAGMENT) if refers_back else one)
    return found


def pack_weights(weights: Floats) -> bytes:
    scale = float(np.abs(weights).max()) / 127
    stored = np.round(weights / scale).astype(np.int16) + 128
    return pack("<d", scale) + stored.astype(np.uint8).tobytes()


def train_whole(examples: Sequence[Example]) -> bytes:
    weights = train(Design(whole_examples(examples), is_second=True))
    return pack_weights(weights[:, 1] - weights[:, 0])


def write(examples: Sequence[Example]) -> None:
    WEIGHTS_PATH.write_bytes(
        pack_weights(train(Design([one for one in examples if one.is_for_both]))) + train_whole(examples)
    )


def cross_validate(examples: Sequence[Example]) -> None:
    examples = [one for one in examples if one.is_for_both]
    design = Design(examples)
    folds = np.array([crc32(one.template.encode()) // 7 % FOLDS for one in examples])
    chances = np.zeros((len(examples), len(KINDS)), np.float32)
    for fold in range(FOLDS):
        chances[folds == fold] = softmax(design.select(folds == fold).logits(train(design.select(folds != fold))))
    by_language: defaultdict[str, list[int]] = defaultdict(list)
    for at, one in enumerate(examples):
        by_language[one.language].append(at)
    lasting = design.kinds != PASSING
    rated = chances[:, PASSING] < 0.5
    print("left out: language, sentences, lasting found, passing taken for lasting, right kind of those found")
    for language, chosen in [*by_language.items(), ("all", range(len(examples)))]:
        rows = np.array(chosen)
        found, taken = rated[rows][lasting[rows]].mean(), rated[rows][~lasting[rows]].mean()
        both = rows[lasting[rows] & rated[rows]]
        kind = (chances[both, :PASSING].argmax(1) == design.kinds[both]).mean()
        print(f"{language:4} {len(rows):6} {found:6.3f} {taken:6.3f} {kind:6.3f}")


def judge_whole(examples: Sequence[Example]) -> None:
    """The second classifier, on templates and people left out: of what the first one rates as lasting, the share that
    is whole above a threshold, and the share of the whole sentences that is above it."""
    texts = whole_examples(examples)
    design = Design(texts, is_second=True)
    folds = np.array([crc32(one.template.encode()) // 7 % FOLDS for one in texts])
    scores = np.zeros(len(texts), np.float32)
    for fold in range(FOLDS):
        logits = design.select(folds == fold).logits(train(design.select(folds != fold)))
        scores[folds == fold] = 1 / (1 + np.exp(logits[:, 0] - logits[:, 1]))
    best = [max(rate_sentences(one.text), key=lambda rating: rating.chance, default=None) for one in texts]
    rated = np.array([one is not None and one.chance >= 0.7 for one in best])
    is_binding = np.array([one is not None and one.kind in BINDING for one in best])
    lives = {life.name for life in read_lives()}
    is_life = np.array([one.template in lives for one in texts])
    print("left out: sentences rated as lasting; at a threshold, share that is whole, whole ones found")
    for name, rows in (
        ("templates", rated & ~is_life),
        ("lives, refusals and manners", rated & is_life & is_binding),
        ("lives, other kinds", rated & is_life & ~is_binding),
    ):
        whole, found = design.kinds[rows] == 1, scores[rows]
        print(f"{name}: {rows.sum()}, whole {whole.mean():.3f}", end="")
        for least in (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9):
            chosen = found >= least
            print(f"; {least}: {whole[chosen].mean():.3f} {chosen[whole].mean():.3f}", end="")
        print()
    print("lives: the same for the product of both chances, of all that the first one does not rate below 0.6", end="")
    chances = np.array([one.chance if one is not None else 0.0 for one in best])
    rows = is_life & (chances >= 0.6)
    whole, found = design.kinds[rows] == 1, (chances * scores)[rows]
    for least in (0.38, 0.45, 0.5, 0.6):
        chosen = found >= least
        print(f"; {least}: {whole[chosen].mean():.3f} {chosen[whole].mean():.3f}", end="")
    print()


def judge(path: Path, fillers: int) -> None:
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if "topics" in data:
        _judge_preferences(data)
        return
    small_talk = _small_talk(path, fillers)
    total: Counter[str] = Counter()
    for user in data["users"]:
        said = [exchange["user"] for session in user["sessions"] for exchange in session["exchanges"]]
        patterns = [question["right"] for question in user["questions"] if question["right"]]
        figures = {"alone": _reached(said, patterns)}
        if small_talk:
            figures["filled"] = _reached(_mixed(said, small_talk), patterns)
        total.update(figures, questions=len(patterns))
        print(f"{user['user']:10} {user['language']} of {len(patterns)}: {figures}")
    print({name: f"{total[name] / total['questions']:.3f}" for name in total if name != "questions"})


def _small_talk(path: Path, count: int) -> list[str]:
    """Of `filler.py` in a folder `tools` above the file, if there is one."""
    for folder in path.resolve().parents:
        tool = folder / "tools" / "filler.py"
        if count and tool.exists():
            names: dict[str, Any] = {}
            exec(tool.read_text(encoding="utf-8"), names)
            return [exchange["user"] for exchange in names["filler_exchanges"](count)]
    return []


def _mixed(said: list[str], small_talk: list[str]) -> list[str]:
    """Small talk spread evenly over the messages."""
    found = [(at / len(said), 0, text) for at, text in enumerate(said)]
    found += [(at / len(small_talk), 1, text) for at, text in enumerate(small_talk)]
    return [text for _, _, text in sorted(found)]


def _reached(said: Sequence[str], wanted: Sequence[Sequence[str]]) -> int:
    """How many questions have all their patterns in the lines of most worth."""
    rated = [(at, one) for at, text in enumerate(said) for one in rate_sentences(text)]
    rated.sort(key=lambda pair: (-WORTHS[pair[1].kind] * pair[1].chance, -pair[0]))
    lines: list[str] = []
    room = STANDING_CHARS_MAX
    for _, one in rated:
        if one.kind is not FactKind.PASSING and len(one.text) + 3 <= room and one.text not in lines:
            lines.append(one.text)
            room -= len(one.text) + 3
    return sum(all(any(re.search(part, line, re.I) for line in lines) for part in parts) for parts in wanted)


def _judge_preferences(data: dict[str, Any]) -> None:
    stated = [one["preference"] for topic in data["topics"].values() for one in topic]
    kinds: Counter[str] = Counter()
    for text in stated:
        kinds[min((one.kind for one in rate_sentences(text)), key=KINDS.index)] += 1
    print("preferences", {kind: f"{count / len(stated):.3f}" for kind, count in kinds.most_common()})
    asked = [rate_sentences(ask) for ask, _ in data["filler"]]
    lasting = [[one for one in rated if one.kind is not FactKind.PASSING] for rated in asked]
    sentences = sum(map(len, asked))
    print(f"filler messages with a lasting sentence {np.mean([bool(one) for one in lasting]):.3f};", end=" ")
    print(f"of their {sentences} sentences {sum(map(len, lasting)) / sentences:.3f}")
    asked = [rate_sentences(one["question"]) for topic in data["topics"].values() for one in topic]
    lasting = [[one for one in rated if one.kind is not FactKind.PASSING] for rated in asked]
    print(f"questions with a lasting sentence {np.mean([bool(one) for one in lasting]):.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--judge", type=Path, nargs="+", default=[])
    parser.add_argument("--filler", type=int, default=400, help="messages of small talk beside everyday conversations")
    asked = parser.parse_args()
    for path in asked.judge:
        judge(path, asked.filler)
    if asked.judge:
        return
    examples = read_examples()
    print(len(examples), "sentences", dict(Counter(KINDS[one.kind].value for one in examples)))
    if asked.write:
        write(examples)
    else:
        cross_validate(examples)
        judge_whole(examples)


if __name__ == "__main__":
    main()
