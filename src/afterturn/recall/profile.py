"""The profile of a space: what it knows now, by subject, newest first. Broad questions are answered from it.

It is made from statements that hold and are trusted; while there are few of them, also from what the user has said.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from afterturn.guard.trust import TRUST_MIN
from afterturn.ports import Unit
from afterturn.recall.broad_questions import BroadQuestion, family_words, first_person_words, owner_words
from afterturn.recall.duplicates import collapse
from afterturn.recall.features import features_of
from afterturn.recall.query import COMMON_TERMS, RecallRequest, admits, is_learned_from_seen, lane_of
from afterturn.recall.what_holds import find_outdated_sources, find_replaced
from afterturn.text import STOP_WORDS, regex, terms, words
from afterturn.types import Entry, Hit, Kind, Lane, LaneQuery, Target
from afterturn.utterance import states_about_speaker


@dataclass(frozen=True, slots=True)
class ProfileSubject:
    """The entries of a space about one subject, newest first. `name` is a name or thing, "user" or "environment"."""

    name: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Profile:
    """A space's current knowledge, by subject. Entries are statements, and messages of the user while there are few."""

    space: str
    subjects: tuple[ProfileSubject, ...]


STATEMENTS_READ_MAX = 500
RECORDS_READ_MAX = 500
# From this number of statements on, messages are not read.
STATEMENTS_ENOUGH = 40
SUBJECTS_MAX = 12
USER = "user"
ENVIRONMENT = "environment"
# Of a longer entry, no more is read.
_READ_CHARS_MAX = 2_000
_TOLD_SHARE = 0.5
_STATED_WORTH, _PINNED_WORTH = 1.2, 1.6
_LENGTH_FREE, _LENGTH_MAX = 6, 40
_WINDOW_TERMS = 8
_COMPARED_SHARE = 2
# A word in more of the entries than this names their common subject, which distinguishes none of them.
_COMMON_SHARE = 0.4
_UNRELATED_WORTH = 0.25
_RELATED_INDIRECTLY = 0.6
_SCORE_BEST = 0.9
_UNSPACED = regex(r"[\u0e01-\u0e4e\u3041-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_WORD = regex(
    r"[\u30a1-\u30fa\u30fc]{2,}|[\u4e00-\u9fff]{2,}|(?:(?![\u0e01-\u0e4e\u3041-\u9fff\uac00-\ud7af])"
    r"[\w'’-])+"
)
_SENTENCE_END = regex(r"[.!?。！？:;\n]\s*$")


class _Candidate(NamedTuple):
    """An entry that may be in the profile, and how informative it is, on any subject."""

    entry: Entry
    terms: frozenset[str]
    worth: float
    is_earlier: bool = False


def find_candidates(unit: Unit, query: LaneQuery) -> list[_Candidate]:
    """The current trusted statements that the query admits, newest first; if they are few, also what the user said."""
    statements = replace(query.filter, kind=Kind.STATEMENT)
    stated = [
        entry
        for entry in unit.memories.page(query.scope, statements, limit=STATEMENTS_READ_MAX)
        if entry.trust >= TRUST_MIN and _is_admitted(unit, query, entry)
    ]
    found = [
        _Candidate(entry, features_of(entry).terms, _PINNED_WORTH if entry.pinned else _STATED_WORTH)
        for entry in stated
    ]
    if len(stated) >= STATEMENTS_ENOUGH:
        return found
    learned: defaultdict[str, set[str]] = defaultdict(set)
    for one in found:
        for source in one.entry.sources:
            learned[source] |= one.terms
    records = unit.records.most_telling(query.scope, query.filter, limit=RECORDS_READ_MAX)
    outdated = find_outdated_sources(unit, query.scope, records)
    for entry in records:
        _, says_all = outdated.get(entry.id, (None, False))
        if says_all or admits(query, entry) is False:
            continue
        worth, said = states_about_speaker(entry.text), features_of(entry).terms
        # A message counts for what no statement that was learned from it says.
        untold = said - learned[entry.id] if entry.id in learned else said
        if len(untold) > _TOLD_SHARE * len(said):
            found.append(_Candidate(entry, untold, worth, entry.id in outdated))
    return found


def _is_admitted(unit: Unit, query: LaneQuery, entry: Entry) -> bool:
    decided = admits(query, entry)
    if decided is not None:
        return decided

    def is_seen(record: Entry) -> bool:
        is_hidden = query.seen_since is not None and lane_of(record, query) is Lane.SHORT_TERM
        return record.content_hash in query.visible_hashes or (
            is_hidden and record.recorded_at > (query.seen_since or 0)
        )

    return not is_learned_from_seen(unit, query.scope.tenant, entry, is_seen)


# Subjects: the names in the entries, and what the user calls theirs.


class _Subjects:
    """The words that name something in some texts, by index term: names, and what somebody calls theirs."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._written: defaultdict[str, Counter[str]] = defaultdict(Counter)
        capitals: Counter[str] = Counter()
        surely: set[str] = set()
        small: set[str] = set()
        for text in texts:
            for word, before, opens in _words_in_place(text[:_READ_CHARS_MAX]):
                key = _term(word)
                if not key:
                    continue
                self._written[key][word] += 1
                is_capital = word[0].isupper()
                capitals[key] += is_capital
                if _UNSPACED.match(word) or (is_capital and not opens) or _is_owner(before):
                    surely.add(key)
                elif not is_capital:
                    small.add(key)
        # At the beginning of a sentence every word has a capital.
        names = {key for key, count in capitals.items() if count > 1 and key not in small}
        self.keys = frozenset(surely | names) - COMMON_TERMS

    def name(self, key: str) -> str:
        return self._written[key].most_common(1)[0][0]


def _words_in_place(text: str) -> Iterator[tuple[str, str, bool]]:
    """Each word without "'s", the word before it, and whether it begins a sentence."""
    before, end = "", 0
    for match in _WORD.finditer(text):
        opens = not end or _SENTENCE_END.search(text, end, match.start()) is not None
        yield match.group().removesuffix("'s").removesuffix("’s"), before, opens
        before, end = match.group(), match.end()


def _is_owner(word: str) -> bool:
    """ "My", "notre", "Ada's"; not "it's"."""
    folded = words(word)
    if len(folded) == 2 and folded[1] == "s":
        return folded[0] not in STOP_WORDS
    return len(folded) == 1 and folded[0] in owner_words()


def _term(word: str) -> str:
    """The index term of one word; blank for a word that names nothing."""
    folded = words(word)
    if not folded or len(folded[0]) < 2 or folded[0].isdigit():
        return ""
    if folded[0] in STOP_WORDS or folded[0] in first_person_words():
        return ""
    found = terms(folded[0])
    return found[0] if found else ""


class _Chosen(NamedTuple):
    """An entry, its worth, and its weightiest terms."""

    entry: Entry
    worth: float
    terms: tuple[str, ...] = ()
    is_earlier: bool = False


def _choose(candidates: Sequence[_Candidate], related: Mapping[str, float], limit: int) -> list[_Chosen]:
    """The most informative entries, best first; of equal ones the newer first. Nothing is said twice.

    A word is worth more if several conversations mention it and few entries contain it.
    """
    weights = _weigh(candidates)
    chosen = []
    for one in candidates:
        # fsum: a set has no order, and a sum that depends on it would differ between processes.
        told = math.fsum(weights[term] for term in one.terms) / (_LENGTH_FREE + min(len(one.terms), _LENGTH_MAX))
        weightiest = sorted(one.terms, key=lambda term: (-weights[term], term))[:_WINDOW_TERMS]
        worth = one.worth * told * related.get(one.entry.ref, 1.0)
        chosen.append(_Chosen(one.entry, worth, tuple(weightiest), one.is_earlier))
    chosen.sort(key=lambda one: (-one.worth, -one.entry.occurred_at, one.entry.id))
    # Comparing takes long, and few of the best say the same.
    best = chosen[: _COMPARED_SHARE * limit]
    replaced = find_replaced([one.entry for one in best])
    current = [one.entry for one in best if one.entry.ref not in replaced]
    kept, _ = collapse([Hit(entry, Lane.LONG_TERM, 1.0, 0.0, None, ()) for entry in current])
    stays = {hit.entry.ref for hit in kept[:limit]}
    return [one for one in best if one.entry.ref in stays]


def _weigh(candidates: Sequence[_Candidate]) -> dict[str, float]:
    """The weight of each term."""
    documents: Counter[str] = Counter()
    mentions: defaultdict[str, set[str]] = defaultdict(set)
    for one in candidates:
        documents.update(one.terms)
        for term in one.terms:
            mentions[term].add(one.entry.conversation or one.entry.id)
    rarities = {term: math.log((len(candidates) + 2) / (count + 1)) for term, count in documents.items()}
    return {
        term: 0.0 if term in COMMON_TERMS else math.log1p(len(mentions[term])) * max(0.0, rarity)
        for term, rarity in rarities.items()
    }


def make_profile(unit: Unit, query: LaneQuery, *, limit: int) -> Profile:
    """The profile of one space: at most `limit` entries. The subject with the newest entry comes first."""
    (space,) = query.scope.spaces
    chosen = _choose(find_candidates(unit, query), {}, limit)
    return Profile(space, group_by_subject([one.entry for one in chosen]))


def group_by_subject(entries: Sequence[Entry]) -> tuple[ProfileSubject, ...]:
    """Groups entries by the names and things that several of them mention, the rest by user, project or environment."""
    newest = sorted(entries, key=lambda entry: (-entry.occurred_at, entry.id))
    subjects = _Subjects(entry.text for entry in newest)
    mentioned = {entry.ref: features_of(entry).terms & subjects.keys for entry in newest}
    groups: dict[str, list[Entry]] = {}
    left = {entry.ref: entry for entry in newest}
    counts = Counter(key for keys in mentioned.values() for key in keys)
    # The user's own name, and the project's, are in most entries.
    for key in [key for key, count in counts.items() if count > max(2, _COMMON_SHARE * len(newest))]:
        del counts[key]
    while left and len(groups) < SUBJECTS_MAX:
        counts = Counter({key: sum(key in mentioned[ref] for ref in left) for key in counts})
        shared = [(count, key) for key, count in counts.items() if count > 1]
        if not shared:
            break
        key = max(shared)[1]
        groups[subjects.name(key)] = [left.pop(ref) for ref in list(left) if key in mentioned[ref]]
    for entry in left.values():
        about = USER if entry.target is Target.USER else entry.project or ENVIRONMENT
        groups.setdefault(about, []).append(entry)
    ordered = sorted(groups.items(), key=lambda group: (-group[1][0].occurred_at, group[0]))
    return tuple(ProfileSubject(name, tuple(found)) for name, found in ordered)


# Broad questions.


def profile_hits(unit: Unit, request: RecallRequest, question: BroadQuestion, *, limit: int = 16) -> list[Hit]:
    """The answer to a broad question, in order of worth: the most informative lines about its subject.

    Respects everything that `request` admits and excludes. Scores only express the order; the best has 0.9.
    """
    lanes, admitted = request.searched_lanes, request.admitted
    found = find_candidates(unit, admitted)
    candidates = [one for one in found if lane_of(one.entry, admitted) in lanes]
    if not candidates:
        return []
    chosen = _choose(candidates, _relations(question, candidates), limit)
    most = max(one.worth for one in chosen) or 1.0
    scores = [_SCORE_BEST * math.sqrt(one.worth / most) for one in chosen]
    return [
        Hit(one.entry, lane_of(one.entry, admitted), score, 0.0, None, one.terms, is_earlier=one.is_earlier)
        for one, score in zip(chosen, scores, strict=True)
    ]


def _relations(question: BroadQuestion, candidates: Sequence[_Candidate]) -> dict[str, float]:
    """How much an entry has to do with the question's subject: a factor for its worth, by reference."""
    if not question.subject:
        return {}
    wanted = frozenset(terms(question.subject))
    parts = [question.subject] if _UNSPACED.search(question.subject) else []
    family, kin, unspaced_kin = family_words()
    if not family.isdisjoint(question.subject.split()):
        # Otherwise "my family" finds no message that says "my sister".
        wanted, parts = wanted.union(terms(" ".join(kin))), [*parts, *unspaced_kin]
    related: dict[str, float] = {}
    for one in candidates:
        is_named = not wanted.isdisjoint(one.terms) or any(part in one.entry.text for part in parts)
        is_work = question.is_project and (one.entry.target is Target.ENVIRONMENT or one.entry.project is not None)
        related[one.entry.ref] = 1.0 if is_named else _RELATED_INDIRECTLY * is_work
    # "My husband Dev" makes "Dev works at night" a part of the family.
    named = [one for one in candidates if related[one.entry.ref] == 1.0]
    names = _Subjects(one.entry.text for one in named).keys - wanted
    told = {term for one in named for term in one.terms & names}
    rare = {term for term in told if sum(term in one.terms for one in candidates) <= _COMMON_SHARE * len(candidates)}
    for one in candidates:
        if not rare.isdisjoint(one.terms):
            related[one.entry.ref] = max(related[one.entry.ref], _RELATED_INDIRECTLY)
    return {ref: _UNRELATED_WORTH + share for ref, share in related.items()}
