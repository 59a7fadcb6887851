"""Invented lives: what people type to an assistant over weeks, as training data. One file per person.

`# name language setting` is the first line, `@ date` begins a day, a blank line ends a message. One sentence is a line
`label id >old | text`: `label` is the letter of a kind of fact (see LABELS), `-` for what passes; `id` names a fact
that changes later, and `>old` the facts that this sentence makes untrue.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from afterturn.lasting_facts import FactKind

FOLDER = Path(__file__).parent
LABELS = dict(zip("rmplhon-", FactKind, strict=True))
_SENTENCE = re.compile(r"([rmplhon-])(?: (\w+))?(?: >([\w,]+))? \| (.+)")


class LifeSentence(NamedTuple):
    """`message` numbers the messages of a life; `changes` are the names of the facts that it makes untrue."""

    message: int
    said_at: float
    kind: FactKind
    name: str
    changes: frozenset[str]
    text: str


class Life(NamedTuple):
    name: str
    language: str
    sentences: tuple[LifeSentence, ...]


def read_lives(folder: Path = FOLDER) -> Iterator[Life]:
    for path in sorted(folder.glob("*.txt")):
        head, *lines = path.read_text(encoding="utf-8").splitlines()
        _, name, language, *_ = head.split()
        said_at, message, sentences = 0.0, 0, []
        for line in lines:
            message += not line.strip() or line.startswith("@")
            if line.startswith("@"):
                said_at = datetime.fromisoformat(line[1:].strip()).replace(tzinfo=UTC).timestamp()
            elif line.strip():
                match = _SENTENCE.fullmatch(line.rstrip())
                if match is None:
                    raise ValueError(f"{path.name}: cannot read {line!r}")
                label, own, changed, text = match.groups()
                changes = frozenset((changed or "").split(",")) - {""}
                # Messages of one day are minutes apart.
                sentence = LifeSentence(message, said_at + 60 * message, LABELS[label], own or "", changes, text)
                sentences.append(sentence)
        yield Life(name, language, tuple(sentences))
