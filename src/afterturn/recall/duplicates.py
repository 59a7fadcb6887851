"""Duplicates: hits that say the same or contradict each other, and statements that replace the records they were
learned from. Pure.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations
from typing import NamedTuple

from afterturn.recall.features import AGENT, DENIALS, SPEAKER, NormalForm, features_of, normal_form, voice_of
from afterturn.recall.query import COMMON_TERMS
from afterturn.recall.scoring import SIMILARITY_ASSUMED
from afterturn.text import HashCache
from afterturn.types import Entry, Hit, Kind, Origin

# Two statements are about the same thing when they share this much of the shorter one.
_SHARED_MIN = 0.6
_SHARED_OF_ONE_SUBJECT_MIN = 0.5
_SELVES = frozenset([SPEAKER, AGENT])


class Duplicate(NamedTuple):
    """A hit that is left out because the one with the reference `by_ref` says the same."""

    hit: Hit
    by_ref: str


def collapse(hits: Sequence[Hit]) -> tuple[list[Hit], list[Duplicate]]:
    """Of hits that say the same, keeps the newest of the most trusted, at the rank of the best.

    Every dropped line is covered by one that stays. A statement with more in it takes the place of a shorter one only
    when it is the newer and as trusted.
    """
    groups = _Groups()
    keys = [_hashes_of(hit.entry) for hit in hits]
    counts = Counter(chain.from_iterable(keys))
    for hit, own in zip(hits, keys, strict=True):
        groups.add(hit, features_of(hit.entry).form if any(counts[key] > 1 for key in own) else None)
    groups.absorb_openings()
    kept = [group.shown for group in groups.standing()]
    restated = [Duplicate(hit, group.shown.entry.ref) for group in groups.standing() for hit in group.left_out()]
    return kept, restated


# Most texts are like no other, and each standing block compares the same ones again. Without these a block of 200 facts
# takes 9 ms more, for their normal forms.
_hashes = HashCache[frozenset[int]](16_384)


def _hashes_of(entry: Entry) -> frozenset[int]:
    """Two entries without a common one neither say the same, nor does one begin with the other."""

    def compute() -> frozenset[int]:
        form = features_of(entry).form
        steps = [] if form is None else [form.steps, form.impersonal, form.turned, *form.openings()]
        return frozenset(map(hash, filter(None, [entry.content_hash, *steps])))

    return _hashes.get((hash(entry.text), entry.origin, hash(voice_of(entry))), compute)


def contradicting(hits: Sequence[Hit]) -> frozenset[str]:
    """References of hits that say something else about the same thing, to be shown with their dates.

    Errs on the side of too many: a date does no harm.
    """
    forms = ((hit, features_of(hit.entry).form) for hit in hits)
    claims = [_Claim.of(hit, form) for hit, form in forms if form is not None and not form.asks]
    bits = {step: 1 << at for at, step in enumerate(dict.fromkeys(step for one in claims for step in one.content))}
    masks = [sum(bits[step] for step in one.content) for one in claims]
    found: set[int] = set()
    for (at, one), (other_at, other) in combinations(enumerate(claims), 2):
        # Two hundred hits are twenty thousand pairs; counting bits rules most of them out quickly.
        common = (masks[at] & masks[other_at]).bit_count()
        if common and not (at in found and other_at in found) and one.is_other_value(other, common):
            found.update((at, other_at))
    return frozenset(claims[at].ref for at in found)


def is_restated(entry: Entry, text: str, origin: Origin) -> bool:
    """Whether a text of this origin says the same as the entry: the same words in the same order, or nearly so."""
    known, form = features_of(entry).form, normal_form(text, origin, voice_of(entry))
    return known is not None and form is not None and _is_alike(known, form)


def has_all_words(text: str, origin: Origin, entry: Entry) -> bool:
    """Whether a text of this origin has every content word of the entry, so that nothing is lost if it takes its
    place."""
    known, form = features_of(entry).form, normal_form(text, origin, voice_of(entry))
    return known is not None and form is not None and {*known.content} - {SPEAKER} <= {*form.content}


class _Claim(NamedTuple):
    """The parts of a statement that are compared for contradictions; `head` is its beginning, mostly the subject."""

    ref: str
    form: NormalForm
    content: frozenset[str]
    head: str

    @classmethod
    def of(cls, hit: Hit, form: NormalForm) -> _Claim:
        return cls(hit.entry.ref, form, frozenset(form.content), form.content[0])

    def is_other_value(self, other: _Claim, common: int) -> bool:
        shortest = min(len(self.content), len(other.content))
        same_subject = self.head == other.head != SPEAKER
        if common < shortest * (_SHARED_OF_ONE_SUBJECT_MIN if same_subject else _SHARED_MIN):
            return False
        if _is_alike(self.form, other.form):
            return False
        here, there = self.content - other.content, other.content - self.content
        return bool(here) == bool(there) or not DENIALS.isdisjoint(here | there)


@dataclass(slots=True)
class _Group:
    """Hits that say the same in different words; `place` is the rank of the best."""

    place: int
    shown: Hit
    form: NormalForm | None
    members: list[Hit]
    forms: list[NormalForm | None]

    def left_out(self) -> list[Hit]:
        return [hit for hit in self.members if hit is not self.shown]

    def says(self, hit: Hit, form: NormalForm | None) -> bool:
        """Whether it is like each of them: two speakers may both be like a note that names neither."""
        if form is None:
            return self.form is None and self.shown.entry.content_hash == hit.entry.content_hash
        return all(known is not None and _is_alike(known, form) for known in self.forms)

    def join(self, hit: Hit, form: NormalForm | None) -> None:
        self.members.append(hit)
        if form not in self.forms:
            self.forms.append(form)
        if _standing(hit) > _standing(self.shown):
            self.shown, self.form = hit, form

    def absorb(self, shorter: _Group) -> None:
        self.members.extend(shorter.members)
        self.place = min(self.place, shorter.place)
        shorter.members = []

    def includes(self, shorter: _Group) -> bool:
        """Whether nothing is lost when this replaces `shorter`, whose steps it begins with."""
        one, other = self.form, shorter.form
        if one is None or other is None or one.asks or other.asks:
            return False
        is_newer = _standing(self.shown) >= _standing(shorter.shown)
        return is_newer and _same_speaker(one, other) and one.only_adds(other.steps)


class _Groups:
    def __init__(self) -> None:
        self._groups: list[_Group] = []
        self._known: defaultdict[Hashable, list[_Group]] = defaultdict(list)

    def add(self, hit: Hit, form: NormalForm | None) -> None:
        keys = _keys(hit, form)
        found = next((group for key in keys for group in self._known[key] if group.says(hit, form)), None)
        if found is None:
            found = _Group(len(self._groups), hit, form, [], [])
            self._groups.append(found)
        found.join(hit, form)
        for key in keys:
            if not any(group is found for group in self._known[key]):
                self._known[key].append(found)

    def absorb_openings(self) -> None:
        """Merges a group into a newer one, as trusted, that begins with the same fact."""
        with_form = [(group, group.form) for group in self._groups if group.form is not None]
        by_steps: defaultdict[Hashable, list[_Group]] = defaultdict(list)
        for group, form in with_form:
            by_steps[form.steps].append(group)
        for group, form in sorted(with_form, key=lambda pair: -len(pair[1].steps)):
            for shorter in [short for opening in form.openings() for short in by_steps.get(opening, ())]:
                if group.members and shorter.members and group.includes(shorter):
                    group.absorb(shorter)

    def standing(self) -> list[_Group]:
        return sorted((group for group in self._groups if group.members), key=lambda group: group.place)


def _standing(hit: Hit) -> tuple[int, float]:
    return hit.entry.trust, hit.entry.occurred_at


def _keys(hit: Hit, form: NormalForm | None) -> list[Hashable]:
    if form is None:
        return [hit.entry.content_hash]
    turned = form.turned
    return [form.impersonal] if turned is None else [form.impersonal, ("turned", *turned)]


def _is_alike(one: NormalForm, other: NormalForm) -> bool:
    if one.asks != other.asks or not _same_speaker(one, other):
        return False
    if one.steps == other.steps or (one.turned is not None and one.turned == other.turned):
        return True
    # The person may be omitted, but not in another position: "I trust Ada", "Ada trusts me".
    return one.impersonal == other.impersonal and (SPEAKER in one.steps) != (SPEAKER in other.steps)


def _same_speaker(one: NormalForm, other: NormalForm) -> bool:
    """Two people who say "I like tea" state two facts; a note "likes tea" is about the owner of its space."""
    if not one.voice or not other.voice or one.voice == other.voice:
        return True
    return _SELVES.isdisjoint(one.steps) and _SELVES.isdisjoint(other.steps)


# To replace a record, a statement needs this share of its lexical score and similarity; small cosines differ by chance.
_AS_WELL, _AS_CLOSE = 0.8, 0.1
# The share of a record's words that a quotation which replaces it may leave out.
_LEFT_OUT_MAX = 1 / 5
# A record this many times as long says more; it is not compared.
_LONGER_MAX = 8


def replace_sources(hits: Iterable[Hit]) -> list[Hit]:
    """Replaces records by a statement that was learned from them, with the score of the best of them, if the statement
    says most of what they say. A statement that quotes a smaller part of a record is replaced by that record. `hits`
    are best first, and so is the result."""
    ordered = list(hits)
    statements: dict[str, list[Hit]] = {}
    for hit in ordered:
        if hit.entry.kind is Kind.STATEMENT:
            for source in hit.entry.sources:
                statements.setdefault(source, []).append(hit)
    shown = {
        hit.entry.ref: _replacement(hit, statements.get(hit.entry.id, ()))
        for hit in ordered
        if hit.entry.kind is not Kind.STATEMENT
    }
    whole = {hit.entry.id: hit for hit in shown.values() if hit.entry.ref in shown}
    chosen: dict[str, Hit] = {}
    for hit in ordered:
        # Instead of a statement, the record that it quotes, if that is shown anyway.
        quoted = next((whole[one] for one in hit.entry.sources if one in whole), None) if hit.entry.is_quote else None
        better = hit if quoted is None else replace(quoted, score=max(quoted.score, hit.score))
        best = shown.get(hit.entry.ref) or better
        chosen.setdefault(best.entry.ref, best)
    return list(chosen.values())


def can_replace(statement: Hit, record: Hit) -> bool:
    """Whether a statement that was learned from a record answers the question about as well, and says most of it.

    Scores are not compared: being stated or recent adds the same to every score. A statement replaces only records that
    are trusted no more than itself: naming a record as a source must not hide it.
    """
    # A statement of a review may replace the user's own words; one of a tool or a page may not.
    if statement.entry.trust < min(record.entry.trust, Origin.BACKGROUND_REVIEW.trust):
        return False
    return _answers_as_well(statement, record) and _says_most(statement.entry, record.entry)


def _answers_as_well(statement: Hit, record: Hit) -> bool:
    """It has every word that the record was found by, and nearly its lexical score and similarity."""
    lacking = frozenset(record.terms).difference(statement.terms, COMMON_TERMS)
    if lacking or statement.lexical < _AS_WELL * record.lexical:
        return False
    if record.similarity is None:
        return True
    similarity = SIMILARITY_ASSUMED if statement.similarity is None else statement.similarity
    return similarity >= min(_AS_WELL * record.similarity, record.similarity - _AS_CLOSE)


def _says_most(statement: Entry, record: Entry) -> bool:
    """The question may be about the rest of the message."""
    if len(record.text) > _LONGER_MAX * len(statement.text):
        return False
    said = features_of(record).terms - COMMON_TERMS
    # A quotation leaves out what is said beside it; another statement says the same in fewer words.
    left_out_max = _LEFT_OUT_MAX if statement.is_quote else 1 / 2
    return len(said - features_of(statement).terms) <= len(said) * left_out_max


def _replacement(record: Hit, statements: Iterable[Hit]) -> Hit:
    chosen = next((hit for hit in statements if can_replace(hit, record)), record)
    return chosen if chosen.score >= record.score else replace(chosen, score=record.score)
