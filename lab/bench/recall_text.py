"""What is remembered and asked in the recall benchmark: generated, or real text that is recombined to any amount."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from afterturn.base.errors import InvalidInput
from afterturn.base.terms import STOP_WORDS, words
from afterturn.base.types import Draft, Kind
from lab.bench.corpus import sentences

_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_SENTENCE_CHARS_MAX = 400
_SENTENCES_MAX = 8
_ITEM_CHARS_MAX = 2000
_ASKED_WORDS = (3, 6)
_BATCH = 10_000
_STATEMENT_EVERY = 5
_CONVERSATION = 40
_SPEAKERS = ("Ada", "assistant")
_SECONDS_APART = 60.0
# A fixed day: the same store can be made again, and nothing in it is from the future.
_LAST = 1_780_000_000.0


@dataclass(frozen=True, slots=True)
class Corpus:
    """`items` and `asked` are those of a file, empty for generated text. `name` tells two corpora apart."""

    name: str
    items: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()

    @property
    def is_real(self) -> bool:
        return bool(self.items)

    def texts(self, count: int, seed: int) -> Iterator[str]:
        """All different. Of real text: the items first, then as many sentences of several items as one has."""
        if not self.is_real:
            for start in range(0, count, _BATCH):
                yield from sentences(min(_BATCH, count - start), seed=seed * 1_000 + start // _BATCH)
            return
        seen: set[str] = set()
        for text in self._recombined(Random(seed)):
            if len(seen) == count:
                return
            if text not in seen:
                seen.add(text)
                yield text

    def questions(self, count: int, texts: list[str], seed: int) -> list[str]:
        """Those of the file; without any, some telling words of one of `texts` each, so that there is an answer."""
        random = Random(seed)
        if self.asked:
            return [random.choice(self.asked) for _ in range(count)]
        return [_question(random.choice(texts), random) for _ in range(count)]

    def _recombined(self, random: Random) -> Iterator[str]:
        yield from random.sample(self.items, len(self.items))
        pool = [_split(item) for item in self.items]
        flat = [sentence for found in pool for sentence in found]
        while True:
            size = max(2, min(_SENTENCES_MAX, len(random.choice(pool))))
            yield " ".join(random.choices(flat, k=size))[:_ITEM_CHARS_MAX]


def load_corpus(path: Path | None) -> Corpus:
    """A conversation file (JSON, also gzipped), lines of JSON with a "text", or plain text by lines. InvalidInput."""
    if path is None:
        return Corpus("generated")
    try:
        items, asked = _read(path)
    except (ValueError, KeyError, TypeError, EOFError, zlib.error, RecursionError) as error:
        raise InvalidInput(f"{path} can not be read as text: {error}. See `python -m lab.bench --help`.") from error
    cut = tuple(dict.fromkeys(text[:_ITEM_CHARS_MAX].strip() for text in items if text.strip()))
    if not cut:
        raise InvalidInput(f"{path} holds no text. Name a file that does.")
    return Corpus(path.name, cut, tuple(dict.fromkeys(asked)))


def drafts(texts: Iterator[str], count: int) -> Iterator[Draft]:
    """As conversations leave them: messages of two speakers, and a statement for every few of them."""
    for at, text in enumerate(texts):
        said_at = _LAST - (count - at) * _SECONDS_APART
        if at % _STATEMENT_EVERY == 0:
            yield Draft(text, occurred_at=said_at)
            continue
        yield Draft(
            text,
            kind=Kind.RECORD,
            conversation=f"c{at // _CONVERSATION}",
            position=at % _CONVERSATION,
            speaker=_SPEAKERS[at % 2],
            occurred_at=said_at,
        )


def _read(path: Path) -> tuple[list[str], list[str]]:
    data = path.read_bytes()
    content = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8")
    return _conversations(content) if content.lstrip().startswith("[") else _lines(content)


def _conversations(content: str) -> tuple[list[str], list[str]]:
    found: list[dict[str, Any]] = json.loads(content)
    items = [item["text"] for conversation in found for item in conversation["items"]]
    return items, [asked["question"] for conversation in found for asked in conversation.get("questions", ())]


def _lines(content: str) -> tuple[list[str], list[str]]:
    lines = content.splitlines()
    if lines[:1] and lines[0].lstrip().startswith("{"):
        return [json.loads(line)["text"] for line in lines if line.strip()], []
    return lines, []


def _split(text: str) -> list[str]:
    return [part[:_SENTENCE_CHARS_MAX] for part in _SENTENCE.split(text) if part.strip()]


def _question(text: str, random: Random) -> str:
    telling = [word for word in words(text) if word not in STOP_WORDS] or [text]
    size = min(len(telling), random.randint(*_ASKED_WORDS))
    chosen = sorted(random.sample(range(len(telling)), size))
    return f"What about {' '.join(telling[at] for at in chosen)}?"
