"""A block states a fact once (L10): which hits say the same in other words, and which contradict one another. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import combinations

from afterturn.base.terms import terms
from afterturn.base.types import Hit
from afterturn.recall.wording import AGENT, DENIALS, SPEAKER, Wording, word

# Two statements are about the same thing when they share this much of the shorter one.
_SHARED_MIN = 0.6
_SHARED_OF_ONE_SUBJECT_MIN = 0.5
_SELVES = frozenset([SPEAKER, AGENT])


@dataclass(frozen=True, slots=True)
class Restated:
    """A hit that is left out, since the one named by `by_ref` says what it says."""

    hit: Hit
    by_ref: str


def collapse(hits: Sequence[Hit]) -> tuple[list[Hit], list[Restated]]:
    """Of hits that say the same, the newest of the most trusted, in the place of the best.

    Nothing is lost: what is left out says nothing that is not said by what stays. A statement with more in it takes the
    place of a shorter one only when it is the newer and as trusted.
    """
    groups = _Groups()
    for hit in hits:
        groups.add(hit)
    groups.absorb_openings()
    kept = [group.shown for group in groups.standing()]
    restated = [Restated(hit, group.shown.entry.ref) for group in groups.standing() for hit in group.left_out()]
    return kept, restated


def contradicting(hits: Sequence[Hit]) -> frozenset[str]:
    """References of hits that say something else about the same thing, to be shown with their dates.

    Rather too many than too few: a date more does no harm.
    """
    told = [_Told.of(hit, wording) for hit in hits if (wording := word(hit.entry)) is not None and not wording.asks]
    bits = {step: 1 << at for at, step in enumerate(dict.fromkeys(step for one in told for step in one.telling))}
    masks = [sum(bits[step] for step in one.telling) for one in told]
    found: set[int] = set()
    for (at, one), (other_at, other) in combinations(enumerate(told), 2):
        # Two hundred hits are twenty thousand pairs; counting bits tells most of them apart in a moment.
        common = (masks[at] & masks[other_at]).bit_count()
        if common and not (at in found and other_at in found) and one.is_other_value(other, common):
            found.update((at, other_at))
    return frozenset(told[at].ref for at in found)


@dataclass(frozen=True, slots=True)
class _Told:
    """What is compared to find contradictions; `head` is what the statement begins with, mostly its subject."""

    ref: str
    wording: Wording
    telling: frozenset[str]
    head: str

    @classmethod
    def of(cls, hit: Hit, wording: Wording) -> _Told:
        # A run without spaces is one step; its pairs tell how much of it another one shares.
        pairs = [part for step in wording.steps for part in ((step,) if step.isascii() else terms(step) or (step,))]
        return cls(hit.entry.ref, wording, frozenset(pairs), pairs[0])

    def is_other_value(self, other: _Told, common: int) -> bool:
        shortest = min(len(self.telling), len(other.telling))
        same_subject = self.head == other.head != SPEAKER
        if common < shortest * (_SHARED_OF_ONE_SUBJECT_MIN if same_subject else _SHARED_MIN):
            return False
        if _is_alike(self.wording, other.wording):
            return False
        here, there = self.telling - other.telling, other.telling - self.telling
        return bool(here) == bool(there) or not DENIALS.isdisjoint(here | there)


@dataclass(slots=True)
class _Group:
    """Hits that say the same, in as many wordings; `place` is that of the best of them."""

    place: int
    shown: Hit
    wording: Wording | None
    members: list[Hit]
    wordings: list[Wording | None]

    def left_out(self) -> list[Hit]:
        return [hit for hit in self.members if hit is not self.shown]

    def says(self, hit: Hit, wording: Wording | None) -> bool:
        """Like each of them: two speakers may both be like a note that names neither."""
        if wording is None:
            return self.wording is None and self.shown.entry.content_hash == hit.entry.content_hash
        return all(known is not None and _is_alike(known, wording) for known in self.wordings)

    def join(self, hit: Hit, wording: Wording | None) -> None:
        self.members.append(hit)
        if wording not in self.wordings:
            self.wordings.append(wording)
        if _standing(hit) > _standing(self.shown):
            self.shown, self.wording = hit, wording

    def absorb(self, shorter: _Group) -> None:
        self.members.extend(shorter.members)
        self.place = min(self.place, shorter.place)
        shorter.members = []

    def tells(self, shorter: _Group) -> bool:
        """Whether nothing is lost when this stands for `shorter`, whose steps it begins with."""
        one, other = self.wording, shorter.wording
        if one is None or other is None or one.asks or other.asks:
            return False
        is_newer = _standing(self.shown) >= _standing(shorter.shown)
        return is_newer and _same_speaker(one, other) and one.only_adds(other.steps)


class _Groups:
    def __init__(self) -> None:
        self._groups: list[_Group] = []
        self._known: defaultdict[Hashable, list[_Group]] = defaultdict(list)

    def add(self, hit: Hit) -> None:
        wording = word(hit.entry)
        keys = _keys(hit, wording)
        found = next((group for key in keys for group in self._known[key] if group.says(hit, wording)), None)
        if found is None:
            found = _Group(len(self._groups), hit, wording, [], [])
            self._groups.append(found)
        found.join(hit, wording)
        for key in keys:
            if not any(group is found for group in self._known[key]):
                self._known[key].append(found)

    def absorb_openings(self) -> None:
        """A group whose fact a newer and as trusted one tells at its beginning goes into that one."""
        worded = [(group, group.wording) for group in self._groups if group.wording is not None]
        by_steps: defaultdict[Hashable, list[_Group]] = defaultdict(list)
        for group, wording in worded:
            by_steps[wording.steps].append(group)
        for group, wording in sorted(worded, key=lambda pair: -len(pair[1].steps)):
            for shorter in [short for opening in wording.openings() for short in by_steps.get(opening, ())]:
                if group.members and shorter.members and group.tells(shorter):
                    group.absorb(shorter)

    def standing(self) -> list[_Group]:
        return sorted((group for group in self._groups if group.members), key=lambda group: group.place)


def _standing(hit: Hit) -> tuple[int, float]:
    return hit.entry.trust, hit.entry.occurred_at


def _keys(hit: Hit, wording: Wording | None) -> list[Hashable]:
    if wording is None:
        return [hit.entry.content_hash]
    turned = wording.turned
    return [wording.impersonal] if turned is None else [wording.impersonal, ("turned", *turned)]


def _is_alike(one: Wording, other: Wording) -> bool:
    if one.asks != other.asks or not _same_speaker(one, other):
        return False
    if one.steps == other.steps or (one.turned is not None and one.turned == other.turned):
        return True
    # Who is spoken of may be left out, but not stand elsewhere: "I trust Ada", "Ada trusts me".
    return one.impersonal == other.impersonal and (SPEAKER in one.steps) != (SPEAKER in other.steps)


def _same_speaker(one: Wording, other: Wording) -> bool:
    """Two people who both say "I like tea" say two things, and a note "likes tea" is about the one it is kept for."""
    if not one.voice or not other.voice or one.voice == other.voice:
        return True
    return _SELVES.isdisjoint(one.steps) and _SELVES.isdisjoint(other.steps)
