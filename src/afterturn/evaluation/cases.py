"""Cases that tell which memories belong into a block and which do not, as their files hold them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from afterturn.errors import InvalidFile

# The scope of what holds wherever a user is.
UNIVERSAL = "user:universal"
_BELIEFS = "beliefs.seed.json"
_CASES = ("retrieval.cases.json", "session-retrieval.cases.json")
_USER = "test-user"
_GONE = "superseded"


@dataclass(frozen=True, slots=True)
class Belief:
    """One statement. `standing`: it is in the standing context anyway, so a block is neither blamed nor praised."""

    id: str
    user: str
    scope: str
    name: str
    content: str
    aliases: tuple[str, ...]
    pinned: bool
    gone: bool
    at: float

    @property
    def standing(self) -> bool:
        return self.pinned or self.scope == UNIVERSAL

    @property
    def text(self) -> str:
        """With its names: whoever keeps a list of other words for a thing has them where they can be found."""
        also = f" (also: {', '.join(self.aliases)})" if self.aliases else ""
        return f"{self.name.replace('_', ' ')}: {self.content}{also}"


@dataclass(frozen=True, slots=True)
class Case:
    """`allowed` is what belongs into the block, all of it; None: anything but what is `excluded`.

    `entries_max` is the budget that it is about, if any. After it was asked, `learned` is remembered, and the belief
    `renamed` has some more aliases.
    """

    id: str
    user: str
    scopes: tuple[str, ...]
    question: str
    allowed: frozenset[str] | None
    excluded: frozenset[str]
    entries_max: int | None = None
    learned: Belief | None = None
    renamed: tuple[str, tuple[str, ...]] | None = None


@dataclass(frozen=True, slots=True)
class Collection:
    name: str
    beliefs: tuple[Belief, ...]
    cases: tuple[Case, ...]


def holds_cases(folder: Path) -> bool:
    return (folder / _BELIEFS).exists()


def read_cases(folder: Path) -> Collection:
    """InvalidFile when it holds no beliefs, or no cases about them."""
    files = [folder / name for name in _CASES if (folder / name).exists()]
    try:
        seeds = tuple(_belief(value) for value in json.loads((folder / _BELIEFS).read_text(encoding="utf-8")))
        values = [value for path in files for value in json.loads(path.read_text(encoding="utf-8"))]
        cases = tuple(case for value in values for case in _cases(value))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError) as error:
        raise InvalidFile(f"{folder} holds no cases with beliefs: {error!r}. See docs/evaluation.md.") from error
    if not seeds or not cases:
        raise InvalidFile(f"{folder} holds no beliefs, or no cases about them.")
    return Collection(folder.absolute().name, seeds, cases)


def _belief(value: Mapping[str, Any]) -> Belief:
    return Belief(
        id=value["_id"],
        user=value["user_id"],
        scope=value["scope"][0],
        name=value["canonical_name"],
        content=value["content"],
        aliases=tuple(value["aliases"]),
        pinned=value["pinned"],
        gone=value["epistemic_status"] == _GONE or value["resolved_at"] is not None,
        at=datetime.fromisoformat(value["created_at"]).timestamp(),
    )


def _cases(value: Mapping[str, Any]) -> Iterator[Case]:
    """Of a session, one for each thing that the user says in it."""
    if "turns" in value:
        for turn in value["turns"]:
            yield _case(f"{value['caseId']} {turn['turnIndex']}", turn["userMessage"], turn)
    else:
        yield _case(value["caseId"], value["query"], value)


def _case(name: str, question: str, value: Mapping[str, Any]) -> Case:
    expected = value["expect"]
    wanted = expected.get("relevantBeliefs", {})
    allowed = wanted.get("shouldOnlyInclude")
    unwanted = (*wanted.get("mustExclude", ()), *expected.get("noiseCheck", {}).get("mustNotSurface", ()))
    created, changed = value.get("createBeliefAtTurn"), value.get("updateBeliefAtTurn")
    return Case(
        id=name,
        user=value.get("userId", _USER),
        scopes=tuple(value["scope"]),
        question=question,
        allowed=None if allowed is None else frozenset((*allowed, *wanted.get("mustInclude", ()))),
        excluded=frozenset(unwanted),
        entries_max=value.get("budget", {}).get("maxBeliefs"),
        learned=_belief(created) if created else None,
        renamed=(changed["beliefId"], tuple(changed["addAliases"])) if changed else None,
    )
