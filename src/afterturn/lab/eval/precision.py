"""Cases that tell which memories belong into a block and which do not: what is recalled, and what it drags along."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from afterturn.base.errors import InvalidFile
from afterturn.base.types import Entry
from afterturn.lab.eval.baselines import Bm25, Dense
from afterturn.lab.eval.examining import OURS
from afterturn.lab.eval.sources import case_files
from afterturn.lab.eval.subject import DAY, Subject
from afterturn.turn.preparing import weighed_max

_UNIVERSAL = "user:universal"
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
        return self.pinned or self.scope == _UNIVERSAL

    @property
    def text(self) -> str:
        """With its names: whoever keeps a list of other words for a thing has them where they can be found."""
        also = f" (also: {', '.join(self.aliases)})" if self.aliases else ""
        return f"{self.name.replace('_', ' ')}: {self.content}{also}"


@dataclass(frozen=True, slots=True)
class Case:
    """`allowed` is what belongs into the block, all of it; None: anything but what is `excluded`.

    After it was asked, `learned` is remembered, and the belief `renamed` has some more aliases.
    """

    id: str
    user: str
    scopes: tuple[str, ...]
    question: str
    allowed: frozenset[str] | None
    excluded: frozenset[str]
    learned: Belief | None = None
    renamed: tuple[str, tuple[str, ...]] | None = None


@dataclass(frozen=True, slots=True)
class Collection:
    name: str
    beliefs: tuple[Belief, ...]
    cases: tuple[Case, ...]


def read_cases(folder: Path, *, entries_max: int) -> Collection:
    """Without cases that need a budget below `entries_max`. InvalidFile when it can not be read."""
    beliefs, *files = case_files(folder)
    try:
        seeds = tuple(_belief(value) for value in json.loads(beliefs.read_text(encoding="utf-8")))
        values = [value for path in files for value in json.loads(path.read_text(encoding="utf-8"))]
        cases = tuple(case for value in values for case in _cases(value, entries_max))
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise InvalidFile(f"{folder} holds no cases with beliefs: {error!r}. See docs/evaluation.md.") from error
    return Collection(folder.name, seeds, cases)


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


def _cases(value: Mapping[str, Any], entries_max: int) -> Iterator[Case]:
    if "turns" in value:
        for turn in value["turns"]:
            yield _case(f"{value['caseId']} {turn['turnIndex']}", turn["userMessage"], turn)
    elif value.get("budget", {}).get("maxBeliefs", entries_max) >= entries_max:
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
        learned=_belief(created) if created else None,
        renamed=(changed["beliefId"], tuple(changed["addAliases"])) if changed else None,
    )


class Precision:
    """One collection in one store: each scope of a user is a space, which cases are granted."""

    def __init__(self, subject: Subject, collection: Collection) -> None:
        self._subject = subject
        self._collection = collection
        self._beliefs: dict[str, Belief] = {}
        self._entries: dict[str, Entry] = {}

    def examine(self, asked: Callable[[], None]) -> dict[str, dict[str, Any]]:
        """Figures by system."""
        self._subject.clock.set(max(belief.at for belief in self._collection.beliefs) + DAY)
        for belief in self._collection.beliefs:
            self._learn(belief)
        self._subject.settle()
        verdicts: dict[str, list[Verdict]] = {}
        for case in self._collection.cases:
            for system, found in self._found(case).items():
                verdicts.setdefault(system, []).append(judge(case, found, self._beliefs))
            self._go_on(case)
            asked()
        return {system: summary(found) for system, found in verdicts.items()}

    def _learn(self, belief: Belief) -> None:
        """What was superseded or resolved was known once, and was taken back."""
        space = self._subject.memory.space(_space(belief.user, belief.scope, self._collection.name))
        entry = space.add(belief.text, occurred_at=belief.at, pinned=belief.pinned).entry
        self._beliefs[belief.id] = belief
        self._entries[belief.id] = entry
        if belief.gone:
            space.delete(entry.id)

    def _go_on(self, case: Case) -> None:
        if case.learned is not None:
            self._learn(case.learned)
        if case.renamed is not None:
            name, aliases = case.renamed
            belief = replace(self._beliefs[name], aliases=(*self._beliefs[name].aliases, *aliases))
            space = self._subject.memory.space(_space(belief.user, belief.scope, self._collection.name))
            self._beliefs[name] = belief
            self._entries[name] = space.update(self._entries[name].id, belief.text).entry
        if case.learned is not None or case.renamed is not None:
            self._subject.settle()

    def _found(self, case: Case) -> dict[str, list[str]]:
        """Names of the beliefs in each system's block."""
        names = {entry.id: name for name, entry in self._entries.items()}
        home = _space(case.user, _UNIVERSAL, self._collection.name)
        reads = [_space(case.user, scope, self._collection.name) for scope in case.scopes]
        blocks = {OURS: self._subject.handed_over(home, case.question, reads=reads)}
        entries = [self._entries[name] for name in self._reachable(case)]
        for system, places in self._baselines(entries, case.question).items():
            blocks[system] = self._subject.rendered([entries[place] for place in places], case.question)
        return {system: [names[entry_id] for entry_id in block.ids] for system, block in blocks.items()}

    def _reachable(self, case: Case) -> list[str]:
        return [
            name
            for name, belief in self._beliefs.items()
            if belief.user == case.user and belief.scope in (*case.scopes, _UNIVERSAL) and not belief.gone
        ]

    def _baselines(self, entries: Sequence[Entry], question: str) -> dict[str, list[int]]:
        limit = weighed_max(self._subject.config)
        bm25 = Bm25()
        bm25.add_all(entry.text for entry in entries)
        places = {"bm25": bm25.rank(question, limit)}
        if self._subject.embedder is not None:
            known = len(entries)
            texts = [entry.text for entry in entries]
            places["dense"] = Dense(self._subject.embedder, texts).rank(question, limit, known=known) if known else []
        return places


def _space(user: str, scope: str, collection: str) -> str:
    """A user's own for what holds everywhere; else the scope's, which is another one for each user."""
    return f"user:{collection}/{user}" if scope == _UNIVERSAL else f"{scope}/{collection}/{user}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`wanted` of them belong there, `found` of these do stand there; of `counted` that do, `allowed` may."""

    wanted: int
    found: int
    counted: int
    allowed: int

    @property
    def right(self) -> bool:
        return self.found == self.wanted and self.allowed == self.counted


def judge(case: Case, found: Sequence[str], beliefs: Mapping[str, Belief]) -> Verdict:
    """What stands in the standing context anyway counts only where a case names it."""
    named = (case.allowed or frozenset()) | case.excluded
    counted = {name for name in found if name in named or not beliefs[name].standing}
    wanted = case.allowed or frozenset()
    wrong = counted & case.excluded if case.allowed is None else counted - wanted
    return Verdict(len(wanted), len(wanted & counted), len(counted), len(counted - wrong))


def summary(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Shares: of what belongs there, of what stands there, of cases with nothing wrong, with nothing to say."""
    quiet = [verdict for verdict in verdicts if not verdict.wanted]
    return {
        "n": len(verdicts),
        "must_include": _share(sum(v.found for v in verdicts), sum(v.wanted for v in verdicts)),
        "precision": _share(sum(v.allowed for v in verdicts), sum(v.counted for v in verdicts)),
        "cases_right": _share(sum(v.right for v in verdicts), len(verdicts)),
        "silence": _share(sum(not v.counted for v in quiet), len(quiet)),
    }


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 1.0
