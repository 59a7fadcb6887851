"""Which of the files that somebody names can be examined, and as what. What is not understood is named."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count
from pathlib import Path

from afterturn.errors import InvalidFile
from afterturn.evaluation.cases import Collection, holds_cases, read_cases
from afterturn.evaluation.conversations import Dataset, read_dataset, stem

_DEPTH = 2
_UTTERANCE = "utterance"


@dataclass(frozen=True, slots=True)
class Utterances:
    """Things that people say without wanting to know anything of the past."""

    name: str
    texts: tuple[str, ...]


@dataclass(slots=True)
class Sources:
    """`passed_over` are files that are of no use here."""

    datasets: list[Dataset] = field(default_factory=list)
    utterances: list[Utterances] = field(default_factory=list)
    cases: list[Collection] = field(default_factory=list)
    passed_over: list[Path] = field(default_factory=list)


def find_sources(paths: Sequence[Path]) -> Sources:
    """InvalidFile when there is nothing to examine in any of them."""
    sources = Sources()
    for path in paths:
        if not path.exists():
            raise InvalidFile(f"There is no file or folder {path}. Name one that holds conversations with questions.")
        for found in _walk(path) if path.is_dir() else [path]:
            _take(sources, found, named=found == path)
    if not (sources.datasets or sources.cases):
        raise InvalidFile(
            f"Nothing in {', '.join(str(path) for path in paths)} can be examined. docs/evaluation.md tells what can."
        )
    return sources


def _walk(folder: Path, depth: int = 0) -> Iterator[Path]:
    """Files, and folders of precision cases as one, in the order of their names."""
    if holds_cases(folder):
        yield folder
        return
    for path in sorted(folder.iterdir()):
        if path.is_dir() and depth < _DEPTH:
            yield from _walk(path, depth + 1)
        elif path.is_file() and path.suffix in (".json", ".gz", ".jsonl"):
            yield path


def _take(sources: Sources, path: Path, *, named: bool) -> None:
    try:
        if path.is_dir():
            sources.cases.append(read_cases(path))
        elif path.suffix == ".jsonl":
            sources.utterances.append(read_utterances(path, named=named))
        else:
            sources.datasets.append(_named_apart(read_dataset(path), path, sources.datasets))
    except InvalidFile:
        sources.passed_over.append(path)


def _named_apart(dataset: Dataset, path: Path, others: Sequence[Dataset]) -> Dataset:
    """Files of one name in several folders are told apart by the folder's, then by a number."""
    taken = {other.name for other in others}
    spellings = chain(
        (dataset.name, f"{path.absolute().parent.name}/{dataset.name}"),
        (f"{dataset.name} {number}" for number in count(2)),
    )
    return replace(dataset, name=next(name for name in spellings if name not in taken))


def read_utterances(path: Path, *, named: bool = True) -> Utterances:
    """Those labelled 0, as {"text", "label"}, one a line. InvalidFile when there are none.

    Of a file that nobody named, only what says of itself that it is an utterance: other texts may well have to do with
    what is remembered.
    """
    try:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        texts = tuple(row["text"] for row in rows if row["label"] == 0 and (named or row.get("category") == _UTTERANCE))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InvalidFile(f"{path} holds no utterances: {error!r}. See docs/evaluation.md.") from error
    if not texts or not all(isinstance(text, str) for text in texts):
        raise InvalidFile(f"{path} holds no utterances.")
    return Utterances(stem(path), texts)
