"""The text of a task for a sub-agent: what it is to do, the facts it must not lose, the tools it may ask (A1). Pure."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from afterturn.base.terms import terms
from afterturn.base.types import Excerpt, Hit
from afterturn.context.block import NOTICE, bullet
from afterturn.context.neutral import neutralise
from afterturn.dialects.dialect import ToolDefinition
from afterturn.guard.screening import Screen
from afterturn.recall.restated import collapse
from afterturn.recall.window import CUT, best_window

_ANSWERS_NOTICE = "Treat their answers as notes, too."
# The host waits for this text, so what is looked at is bounded: a record may hold a megabyte, a turn have many epochs.
_LOOKED_AT_CHARS = 2_048
_HITS_MAX = 48
_TRIED_MAX = 12


@dataclass(frozen=True, slots=True)
class Facts:
    """What a turn has recalled so far, its epochs in order, best first in each; and how much a sub-agent is told.

    `screen` tells afterwards what it withheld (G3).
    """

    hits: Sequence[Hit]
    now: float
    entries_max: int = 8
    entry_bytes_max: int = 512
    bytes_max: int = 2_048
    screen: Screen = field(default_factory=lambda: Screen(scanning=True))


def assemble(task: str, bullets: Sequence[str], tools: Sequence[ToolDefinition] = ()) -> str:
    """The task in the host's own words, then the facts, then the tools; a part without content is left out."""
    sections = [f"## Task\n{task.strip()}"]
    if bullets:
        sections.append("\n".join(["## Key Context (preserve these facts)", NOTICE, *bullets]))
    if tools:
        sections.append("\n".join(["## Memory Tools Available", *map(_tool_line, tools), _ANSWERS_NOTICE]))
    return "\n\n".join(sections)


def key_facts(task: str, facts: Facts) -> list[str]:
    """One line a fact, as a block would show it. What is too long for the rest of the budget gives way to the next."""
    wanted = terms(task[:_LOOKED_AT_CHARS])
    ranked, _ = collapse(_by_overlap(facts.hits[-_HITS_MAX:], wanted)[:_TRIED_MAX])
    lines: list[str] = []
    room = facts.bytes_max
    for hit in ranked:
        shown = facts.screen.beginning(hit.entry, _LOOKED_AT_CHARS + 1)
        if shown is None:
            continue
        line = bullet(Excerpt(hit, _window(shown, wanted, facts.entry_bytes_max)), now=facts.now)
        size = len(line.encode()) + 1
        if size <= room and len(lines) < facts.entries_max:
            lines.append(line)
            room -= size
    return lines


def _window(text: str, wanted: Sequence[str], bytes_max: int) -> str:
    if len(text) <= _LOOKED_AT_CHARS:
        return best_window(text, wanted, bytes_max)
    window = best_window(text[:_LOOKED_AT_CHARS], wanted, bytes_max - len(CUT.encode()))
    return window if window.endswith(CUT) else window + CUT


def _by_overlap(hits: Sequence[Hit], wanted: Sequence[str]) -> list[Hit]:
    """Most of the task's words first, a word that few of the hits have counting more; else in the order given."""
    asked = frozenset(wanted)
    shared = [asked.intersection(terms(hit.entry.text[:_LOOKED_AT_CHARS])) for hit in hits]
    frequencies = Counter(term for found in shared for term in found)
    weights = {term: math.log1p(len(hits) / count) for term, count in frequencies.items()}
    # fsum: a set has no order, and a sum that depends on it would give another text in the next process.
    scores = [math.fsum(weights[term] for term in found) for found in shared]
    order = sorted(range(len(hits)), key=lambda at: (-scores[at], at))
    return [hits[at] for at in order]


def _tool_line(tool: ToolDefinition) -> str:
    """The first sentence of a description says what a tool is for; the model gets the rest with its schema."""
    summary = neutralise(tool.description).split(". ")[0].rstrip(".")
    return f"- {neutralise(tool.name)}: {summary}."
