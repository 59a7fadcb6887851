"""The state of a conversation, in place of its beginning: five sections in tags that no content can forge (K1)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Self

from afterturn.base.terms import terms, words
from afterturn.context.neutral import neutralise, neutralise_lines

TAG = "state_snapshot"
NOTICE = "The conversation up to here, summarised. It records what was said and done, and asks for nothing new."

# A model that repeats itself must not fill the window it was asked to free.
_SECTION_CHARS_MAX = 40_000
_REPORTED = "according to "
_DENIALS = frozenset("not no nor never none without cannot t dont doesnt".split())
_AUTHOR = re.compile(r"^(?:according to )?(?:user|assistant|background review|subagent|tool|web|import)\b[^:]{0,60}: ")


class SnapshotMalformed(ValueError):
    """What a model wrote is no snapshot; the message says what is wrong with it, for the model to mend."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Each section is text of one or more lines, clean of tags. Plan steps begin with [DONE], [IN PROGRESS], [TODO]."""

    overall_goal: str
    key_knowledge: str
    file_system_state: str
    recent_actions: str
    current_plan: str

    @property
    def text(self) -> str:
        sections = (f"<{name}>\n{getattr(self, name)}\n</{name}>" for name in SECTIONS)
        return "\n".join([NOTICE, f"<{TAG}>", *sections, f"</{TAG}>"])


SECTIONS = tuple(item.name for item in fields(Snapshot))
_TAGS = re.compile(rf"[<＜﹤‹〈](?=\s*[/／]?\s*(?:{'|'.join([TAG, *SECTIONS])})\b)", re.IGNORECASE)


def parse_snapshot(answer: str) -> Snapshot:
    """The last snapshot in a model's answer, whatever stands around it. Raises SnapshotMalformed."""
    end = answer.rfind(f"</{TAG}>")
    start = answer.rfind(f"<{TAG}>", 0, max(0, end))
    if start < 0:
        raise SnapshotMalformed(f"there is no <{TAG}>…</{TAG}> in it")
    body = answer[start + len(TAG) + 2 : end]
    found = {name: _section(body, name) for name in SECTIONS}
    missing = [name for name, text in found.items() if text is None]
    if missing:
        raise SnapshotMalformed(f"there is no {' and no '.join(f'<{name}>…</{name}>' for name in missing)} in it")
    snapshot = Snapshot(**{name: disarm(text or "") for name, text in found.items()})
    if not (snapshot.overall_goal and (snapshot.key_knowledge or snapshot.recent_actions or snapshot.current_plan)):
        raise SnapshotMalformed("its sections are empty")
    return snapshot


def find_snapshot(text: str) -> Snapshot | None:
    """The snapshot that `text` is, if it has exactly the form that we write: forged tags within a text are none."""
    if not text.startswith(f"{NOTICE}\n<{TAG}>\n"):
        return None
    try:
        snapshot = parse_snapshot(text)
    except SnapshotMalformed:
        return None
    return snapshot if snapshot.text == text else None


def disarm(text: str) -> str:
    """Lines as they are, without what is invisible, unable to open or close a tag of ours or of a snapshot."""
    return _TAGS.sub("(", neutralise_lines(text[:_SECTION_CHARS_MAX])).strip()


def with_facts(snapshot: Snapshot, facts: Sequence[str]) -> Snapshot:
    """Those that `key_knowledge` does not tell are added to it, one line each."""
    lines = snapshot.key_knowledge.splitlines()
    told = [_Claim.of(line) for line in lines]
    clean = dict.fromkeys(_TAGS.sub("(", neutralise(fact)) for fact in facts)
    wanted = {fact: _Claim.of(fact) for fact in clean if fact}
    added = [f"- {fact}" for fact, claim in wanted.items() if not any(line.tells(claim) for line in told)]
    return replace(snapshot, key_knowledge="\n".join([*lines, *added])) if added else snapshot


@dataclass(frozen=True, slots=True)
class _Claim:
    """A line by its terms. What a tool or a page claims is a report, and stays one."""

    terms: frozenset[str]
    denials: frozenset[str]
    is_report: bool

    @classmethod
    def of(cls, line: str) -> Self:
        claim = _AUTHOR.sub("", line)
        return cls(frozenset(terms(claim)), _DENIALS.intersection(words(claim)), _REPORTED in line.casefold())

    def tells(self, fact: Self) -> bool:
        """Rather "no" than "yes" in doubt: a fact that stands there twice is not lost."""
        if not fact.terms <= self.terms or self.denials != fact.denials:
            return False
        return bool(fact.terms) and (self.is_report or not fact.is_report)


def _section(body: str, name: str) -> str | None:
    start, end = body.find(f"<{name}>"), body.rfind(f"</{name}>")
    return body[start + len(name) + 2 : end] if 0 <= start < end else None
