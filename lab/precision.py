"""Measures precision on the folder of precisionMemBench: which memories of a block belong there, by labelled cases.

    python -m lab.precision FOLDER

A folder of cases (`beliefs.seed.json` with `retrieval.cases.json`, `session-retrieval.cases.json`) defines which
memories belong in a block. Each scope of a user is a space, and a case may read the spaces of its scopes. Beliefs are
statements with their names and aliases; superseded or resolved ones were added and deleted. Pinned beliefs and those of
the scope `user:universal` are standing context and count only where a case names them. Cases about budgets below
`recall_entries_max`, and what cases expect of standing context, are left out.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from afterturn.config import Config
from afterturn.conversation.read_turn import candidates_max
from afterturn.errors import InvalidFile
from afterturn.evaluation.examination import DAY, OURS, Bm25, Dense, Subject, drain, open_subject
from afterturn.types import Entry

# The scope of beliefs that are valid everywhere.
UNIVERSAL = "user:universal"
_BELIEFS = "beliefs.seed.json"
_CASES = ("retrieval.cases.json", "session-retrieval.cases.json")
_USER = "test-user"
_GONE = "superseded"


@dataclass(frozen=True, slots=True)
class Belief:
    """One statement. `standing`: it is in the standing context anyway, so it does not count in a block."""

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
        """The content with its name and aliases, so that a search finds them."""
        also = f" (also: {', '.join(self.aliases)})" if self.aliases else ""
        return f"{self.name.replace('_', ' ')}: {self.content}{also}"


@dataclass(frozen=True, slots=True)
class Case:
    """`allowed` are the beliefs that belong in the block, all of them; None: any except those `excluded`.

    `entries_max` is the budget that the case tests, if any. After the question, `learned` is added and the belief
    `renamed` gets more aliases.
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


def read_cases(folder: Path) -> Collection:
    """Raises InvalidFile if the folder has no beliefs, or no cases about them."""
    files = [folder / name for name in _CASES if (folder / name).exists()]
    try:
        seeds = tuple(_belief(value) for value in json.loads((folder / _BELIEFS).read_text(encoding="utf-8")))
        values = [value for path in files for value in json.loads(path.read_text(encoding="utf-8"))]
        cases = tuple(case for value in values for case in _cases(value))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError) as error:
        raise InvalidFile(f"{folder} has no cases with beliefs: {error!r}.") from error
    if not seeds or not cases:
        raise InvalidFile(f"{folder} has no beliefs, or no cases about them.")
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
    """One case, or one for each user message of a session."""
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


class Precision:
    """One collection in one store. Each scope of a user is a space, and a case reads the spaces of its scopes."""

    def __init__(self, subject: Subject, collection: Collection) -> None:
        self._subject = subject
        self._collection = collection
        self._cases = comparable(collection.cases, subject.config)
        self._beliefs: dict[str, Belief] = {}
        self._entries: dict[str, Entry] = {}

    def examine(self) -> dict[str, dict[str, Any]]:
        """Figures by system."""
        self._subject.clock.set(max(belief.at for belief in self._collection.beliefs) + DAY)
        for belief in self._collection.beliefs:
            self._learn(belief)
        drain(self._subject.memory)
        verdicts: dict[str, list[PrecisionVerdict]] = {}
        for case in self._cases:
            for system, found in self._found(case).items():
                verdicts.setdefault(system, []).append(judge(case, found, self._beliefs))
            self._go_on(case)
        return {system: summary(found) for system, found in verdicts.items()}

    def _learn(self, belief: Belief) -> None:
        """Adds a belief; a superseded or resolved one is deleted again."""
        space = self._subject.memory.space(self._space(belief.user, belief.scope))
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
            space = self._subject.memory.space(self._space(belief.user, belief.scope))
            self._beliefs[name] = belief
            self._entries[name] = space.update(self._entries[name].id, belief.text).entry
        if case.learned is not None or case.renamed is not None:
            drain(self._subject.memory)

    def _found(self, case: Case) -> dict[str, list[str]]:
        """The names of the beliefs in each system's block."""
        names = {entry.id: name for name, entry in self._entries.items()}
        home = self._space(case.user, UNIVERSAL)
        reads = [self._space(case.user, scope) for scope in case.scopes]
        blocks = {OURS: self._subject.handed_over(home, case.question, reads=reads)}
        entries = [
            self._entries[name]
            for name, belief in self._beliefs.items()
            if belief.user == case.user and belief.scope in (*case.scopes, UNIVERSAL) and not belief.gone
        ]
        for system, places in self._baselines(entries, case.question).items():
            blocks[system] = self._subject.rendered([entries[place] for place in places], case.question)
        return {system: [names[entry_id] for entry_id in block.ids] for system, block in blocks.items()}

    def _space(self, user: str, scope: str) -> str:
        """The user's own space for universal beliefs, or else a space for this scope and user."""
        name = self._collection.name
        return f"user:{name}/{user}" if scope == UNIVERSAL else f"{scope}/{name}/{user}"

    def _baselines(self, entries: Sequence[Entry], question: str) -> dict[str, list[int]]:
        limit = candidates_max(self._subject.config)
        bm25 = Bm25()
        bm25.add_all(entry.text for entry in entries)
        places = {"bm25": bm25.rank(question, limit)}
        if self._subject.embedder is not None:
            known = len(entries)
            texts = [entry.text for entry in entries]
            places["dense"] = Dense(self._subject.embedder, texts).rank(question, limit, known=known) if known else []
        return places


def comparable(cases: Sequence[Case], config: Config) -> list[Case]:
    """The cases without those that need a smaller budget than blocks have."""
    least = config.recall_entries_max
    return [case for case in cases if case.entries_max is None or case.entries_max >= least]


@dataclass(frozen=True, slots=True)
class PrecisionVerdict:
    """`found` of the `wanted` memories are in the block, and `allowed` of the `counted` memories there belong in it."""

    wanted: int
    found: int
    counted: int
    allowed: int

    @property
    def right(self) -> bool:
        return self.found == self.wanted and self.allowed == self.counted


def judge(case: Case, found: Sequence[str], beliefs: Mapping[str, Belief]) -> PrecisionVerdict:
    """Beliefs of the standing context count only if a case names them."""
    named = (case.allowed or frozenset()) | case.excluded
    counted = {name for name in found if name in named or not beliefs[name].standing}
    wanted = case.allowed or frozenset()
    wrong = counted & case.excluded if case.allowed is None else counted - wanted
    return PrecisionVerdict(len(wanted), len(wanted & counted), len(counted), len(counted - wrong))


def summary(verdicts: Sequence[PrecisionVerdict]) -> dict[str, Any]:
    """Recall, precision, the share of cases without a fault, and of quiet cases without a block."""
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the folder with the cases")
    collection = read_cases(parser.parse_args().folder)
    with open_subject() as subject:
        for system, figures in Precision(subject, collection).examine().items():
            print(system, *(f"{name} {value:.3g}" for name, value in figures.items()))


if __name__ == "__main__":
    main()
