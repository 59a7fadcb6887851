"""Measures precision: which memories of a block belong there, by labelled cases."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from afterturn.config import Config
from afterturn.conversation.read_turn import candidates_max
from afterturn.evaluation.datasets import UNIVERSAL, Belief, Case, Collection
from afterturn.evaluation.examination import DAY, OURS, Bm25, Dense, Subject, drain
from afterturn.types import Entry


class Precision:
    """One collection in one store. Each scope of a user is a space, and a case reads the spaces of its scopes."""

    def __init__(self, subject: Subject, collection: Collection) -> None:
        self._subject = subject
        self._collection = collection
        self._cases = comparable(collection.cases, subject.config)
        self._beliefs: dict[str, Belief] = {}
        self._entries: dict[str, Entry] = {}

    def examine(self, asked: Callable[[], None]) -> dict[str, dict[str, Any]]:
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
            asked()
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
