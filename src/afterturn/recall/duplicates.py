"""Duplicates: the normal form of a statement, hits that say the same or contradict each other, and statements that
replace the records they were learned from. Pure.

Word order, prepositions, tense, negations, numbers and signs stay: a lost fact is worse than one that is shown twice.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from afterturn.recall.query import COMMON_TERMS
from afterturn.recall.scoring import SIMILARITY_ASSUMED
from afterturn.text import STOP_WORDS, terms, words
from afterturn.types import Entry, Hit, Kind, Origin

# Longer texts are not single statements; two of them are alike only when they are equal.
STATEMENT_CHARS_MAX = 400
_TURNED_STEPS_MAX = 8

SPEAKER = "(speaker)"
AGENT = "(agent)"
_DENIED = "(not)"
_OTHERS = frozenset(["(he)", "(she)", "(they)", "(we)", "(you)", AGENT])
_FIRST = frozenset("i im ive me my mine myself".split())
_SECOND = frozenset("you your yours yourself".split())
_PERSONS = {
    **dict.fromkeys("he him his himself".split(), "(he)"),
    **dict.fromkeys("she her hers herself".split(), "(she)"),
    **dict.fromkeys("they them their theirs themselves".split(), "(they)"),
    **dict.fromkeys("we us our ours ourselves".split(), "(we)"),
}
# "The user likes tea" is about the speaker, "the user table" is not: the next word decides.
_AFTER_USER = frozenset(
    """
    s is was has had does doesn did didn can cannot will would should wants needs likes loves hates dislikes enjoys
    prefers uses lives resides works speaks drinks eats plays owns drives writes knows thinks said says asked mentioned
    always never often usually really also currently
    """.split()
)
_UNTOLD = frozenset(
    """
    a an the is are am be being s re ve m do does has have having of in at on this that these those there here it its
    itself as also just very so now please and but because since really actually currently simply basically quite
    indeed definitely certainly personally nowadays still der die das den dem ein eine einen einem einer le la les un
    une el los las il lo gli
    """.split()
)
_JOINS_CLAUSES = frozenset("and but because since so".split())
_CONTRACTED = frozenset(
    "aren can couldn didn doesn don hadn hasn haven isn mustn needn shan shouldn wasn weren won wouldn".split()
)
_NOT = frozenset("not no nor cannot dont doesnt didnt cant wont isnt arent wasnt".split())
DENIALS = frozenset(
    """
    (not) never none nothing nobody neither without except unless only false wrong untrue longer nicht kein keine
    keinen nie niemals ohne pas jamais sans aucun sin nunca jamas non mai senza nao sem niet geen nooit не нет ни без
    никогда
    """.split()
)
_CONDITIONS = frozenset("if when while unless until before after".split())
_QUALIFIES = (
    DENIALS
    | _CONDITIONS
    | frozenset(
        """
    or would could should might may was were had did used hope guess think maybe
    perhaps probably supposedly allegedly
    """.split()
    )
)
_SAME = {
    word: group.split()[0]
    for group in (
        "called named name names",
        "dislike dislikes hate hates detest detests",
        "like likes enjoy enjoys",
        "live lives reside resides",
        "with using via",
        "start starts begin begins",
        "buy buys purchase purchases",
        "film films movie movies",
        "holiday holidays vacation vacations",
        "mother mum mom",
        "father dad",
        "child kid",
        "children kids",
        "bicycle bike",
        "picture photo",
        "pictures photos",
        "color colour",
        "colors colours",
        "favorite favourite",
        "gray grey",
        "center centre",
        "behavior behaviour",
        "neighbor neighbour",
        "repository repo",
        "database db",
        "documentation docs",
        "configuration config",
        "application app",
        "postgresql postgres",
        "kubernetes k8s",
        "javascript js",
        *(
            f"{number} {word}"
            for number, word in enumerate("zero one two three four five six seven eight nine ten eleven twelve".split())
        ),
    )
    for word in group.split()
}
_AS_THEY_ARE = _SAME.keys() | _NOT | STOP_WORDS
_SAME_RUN = (("用户", "我"), ("用戶", "我"), ("使用者", "我"), ("ユーザー", "私"), ("ユーザ", "私"))
_POLITE_END = re.compile(r"(?:です|だ|である)[よね]?$")
_CLAUSE_END = re.compile(r"[,;:!?…–—()\[\]、。，；：！？]|\.(?=\s|$)")
# Signs that are not punctuation: they distinguish C from C++, and < from >.
_SIGN = re.compile(r"[#$%&*+/<=>@\\^|~€£¥°±×÷]|(?<![\w-])-+(?=\w)")
_WRITTEN_WORD = re.compile(r"\b[^\W\d_]\w*")
_PLAIN_CAPITAL = re.compile(r"\b[A-Z]\w*")
# In the middle of a sentence: gate A, the WHO, "I work in IT". They would fold to words without meaning.
_CAPITALS = re.compile(r"(?<=[\w,;:)/-] )(?!I\b)[A-Z]{1,4}\b(?!['’])")
_CAPITALS_WORD = "caps0x"
_BREAK = "clausebreak"
_SIGN_WORD = "sign0x"
_ASKS = re.compile(r"[?？؟]")


@dataclass(frozen=True, slots=True)
class NormalForm:
    """`steps` in the order of the text; `breaks` are the numbers of steps at which a clause ends.

    `names` are the steps that were written with a capital; `voice` is the name of who says "I", or whose
    space it is; blank if unknown.
    """

    steps: tuple[str, ...]
    breaks: tuple[int, ...]
    names: frozenset[str]
    voice: str
    asks: bool

    @property
    def impersonal(self) -> tuple[str, ...]:
        """Without the speaker, whom notes often omit: "likes tea"."""
        return tuple(step for step in self.steps if step != SPEAKER)

    @property
    def turned(self) -> tuple[str, ...] | None:
        """The same for "Miso is my cat" and "My cat is Miso". None where the order changes the meaning."""
        if self.breaks or len(self.steps) > _TURNED_STEPS_MAX or len(self.names) > 1:
            return None
        if not all(map(_is_free, self.steps)):
            return None
        return min(self.steps[at:] + self.steps[:at] for at in range(len(self.steps)))

    def openings(self) -> list[tuple[str, ...]]:
        """The steps up to the end of a clause."""
        return [self.steps[:at] for at in self.breaks]

    def only_adds(self, opening: tuple[str, ...]) -> bool:
        """Whether the rest neither denies nor limits the opening, and adds no name and no number."""
        rest = self.steps[len(opening) :]
        if not _CONDITIONS.isdisjoint(opening):
            # "If it rains" is not the same condition as "if it rains and I am late".
            return False
        new_names = self.names.intersection(rest).difference(opening)
        return not new_names and not any(step in _QUALIFIES or _has_digit(step) for step in rest)


def normal_form(entry: Entry) -> NormalForm | None:
    """None for a text that is too long for one statement, or empty of meaning."""
    if len(entry.text) > STATEMENT_CHARS_MAX:
        return None
    content, breaks = _content_words(_tokens(entry.text), entry.origin)
    if not content:
        return None
    steps = _canonical(content)
    capitals = set(words(" ".join(_capitalised(entry.text))))
    return NormalForm(
        steps=steps,
        breaks=tuple(at for at in breaks if 0 < at < len(steps)),
        names=frozenset(step for step, token in zip(steps, content, strict=True) if token in capitals),
        voice=_voice(entry),
        asks=_ASKS.search(entry.text) is not None,
    )


def _voice(entry: Entry) -> str:
    named = "" if entry.speaker in ("user", "assistant") else entry.speaker or ""
    owner = entry.space.removeprefix("user:") if entry.space.startswith("user:") else ""
    return (named or owner).casefold()


def _tokens(text: str) -> list[str]:
    marked = text if text.isupper() else _CAPITALS.sub(_kept_capitals, text)
    marked = _CLAUSE_END.sub(f" {_BREAK} ", marked)
    marked = _SIGN.sub(lambda sign: " " + "".join(map(_sign_word, sign.group())) + " ", marked)
    if not marked.isascii():
        marked = "".join(_sign_word(mark) if _is_symbol(mark) else mark for mark in marked)
    return words(marked)


def _kept_capitals(found: re.Match[str]) -> str:
    folded = found.group().lower()
    return f"{_CAPITALS_WORD}{folded}" if folded in STOP_WORDS or folded in _UNTOLD else found.group()


def _sign_word(mark: str) -> str:
    return f" {_SIGN_WORD}{ord(mark):x} "


def _is_symbol(character: str) -> bool:
    return not character.isascii() and unicodedata.category(character) in ("So", "Sm", "Sc")


def _content_words(tokens: list[str], origin: Origin) -> tuple[list[str], list[int]]:
    """The words that carry meaning, with persons and negations normalized, and where clauses end."""
    content: list[str] = []
    breaks: list[int] = []
    for at, token in enumerate(tokens):
        if token == _BREAK or token in _JOINS_CLAUSES:
            breaks.append(len(content))
        elif token == "t" and at and tokens[at - 1] in _CONTRACTED:
            content[-1:] = [_DENIED] if content and content[-1] == tokens[at - 1] else [*content[-1:], _DENIED]
        elif (person := _person(tokens, at, origin)) is not None:
            content.append(person)
        elif token not in _UNTOLD:
            content.append(token)
    return content, breaks


def _person(tokens: list[str], at: int, origin: Origin) -> str | None:
    token = tokens[at]
    if token in _FIRST:
        return AGENT if origin is Origin.AGENT else SPEAKER
    if token in _SECOND:
        return {Origin.USER: AGENT, Origin.AGENT: SPEAKER}.get(origin, "(you)")
    if token == "user" and at + 1 < len(tokens) and tokens[at + 1] in _AFTER_USER:
        return SPEAKER
    return _PERSONS.get(token)


def _canonical(content: list[str]) -> tuple[str, ...]:
    named = {token: _SAME.get(token) or (_DENIED if token in _NOT else token) for token in content}
    stemmed = [token for token in named if token not in _AS_THEY_ARE and token.isascii() and token.isalnum()]
    # One call for all words: a call costs more than a stem.
    stems = zip(stemmed, terms(" ".join(stemmed)), strict=True)
    named.update({token: _uninflected(token, stem) for token, stem in stems})
    return tuple(named[token] if named[token].isascii() else _plain_run(named[token]) for token in content)


def _uninflected(token: str, stem: str) -> str:
    """Plurals and persons of a verb become equal; "lived" and "live", "drink" and "drinker" do not."""
    if stem.endswith("i") and token == stem[:-1] + "y":
        return stem
    ending = token[len(stem) :] if token.startswith(stem) else None
    if ending in ("", "s", "e", "es"):
        return stem
    return f"{stem}+ed" if ending in ("d", "ed") else token


def _plain_run(step: str) -> str:
    for written, plain in _SAME_RUN:
        step = step.replace(written, plain)
    return _POLITE_END.sub("", step) or step


def _capitalised(text: str) -> list[str]:
    if text.isascii():
        return _PLAIN_CAPITAL.findall(text)
    return [found for found in _WRITTEN_WORD.findall(text) if found[0].isupper()]


def _is_free(step: str) -> bool:
    """A preposition or an auxiliary belongs to the word next to it, so the sentence cannot be reversed around it."""
    return step not in STOP_WORDS and step not in DENIALS and step not in _OTHERS and step.isascii()


def _has_digit(step: str) -> bool:
    return any(character.isdigit() for character in step)


# Two statements are about the same thing when they share this much of the shorter one.
_SHARED_MIN = 0.6
_SHARED_OF_ONE_SUBJECT_MIN = 0.5
_SELVES = frozenset([SPEAKER, AGENT])


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A hit that is left out because the one with the reference `by_ref` says the same."""

    hit: Hit
    by_ref: str


def collapse(hits: Sequence[Hit]) -> tuple[list[Hit], list[Duplicate]]:
    """Of hits that say the same, keeps the newest of the most trusted, at the rank of the best.

    Nothing is lost: what is left out says nothing that is not said by what stays. A statement with more in it takes the
    place of a shorter one only when it is the newer and as trusted.
    """
    groups = _Groups()
    for hit in hits:
        groups.add(hit)
    groups.absorb_openings()
    kept = [group.shown for group in groups.standing()]
    restated = [Duplicate(hit, group.shown.entry.ref) for group in groups.standing() for hit in group.left_out()]
    return kept, restated


def contradicting(hits: Sequence[Hit]) -> frozenset[str]:
    """References of hits that say something else about the same thing, to be shown with their dates.

    Errs on the side of too many: a date does no harm.
    """
    claims = [_Claim.of(hit, form) for hit in hits if (form := normal_form(hit.entry)) is not None and not form.asks]
    bits = {step: 1 << at for at, step in enumerate(dict.fromkeys(step for one in claims for step in one.content))}
    masks = [sum(bits[step] for step in one.content) for one in claims]
    found: set[int] = set()
    for (at, one), (other_at, other) in combinations(enumerate(claims), 2):
        # Two hundred hits are twenty thousand pairs; counting bits rules most of them out quickly.
        common = (masks[at] & masks[other_at]).bit_count()
        if common and not (at in found and other_at in found) and one.is_other_value(other, common):
            found.update((at, other_at))
    return frozenset(claims[at].ref for at in found)


@dataclass(frozen=True, slots=True)
class _Claim:
    """The parts of a statement that are compared for contradictions; `head` is its beginning, mostly the subject."""

    ref: str
    form: NormalForm
    content: frozenset[str]
    head: str

    @classmethod
    def of(cls, hit: Hit, form: NormalForm) -> _Claim:
        # A run without spaces is one step; its character pairs show how much another one shares.
        pairs = [part for step in form.steps for part in ((step,) if step.isascii() else terms(step) or (step,))]
        return cls(hit.entry.ref, form, frozenset(pairs), pairs[0])

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

    def add(self, hit: Hit) -> None:
        form = normal_form(hit.entry)
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
# A record this many times as long says more; it is not compared.
_LONGER_MAX = 8


def replace_sources(hits: Iterable[Hit]) -> list[Hit]:
    """Replaces records by a statement that was learned from them, with the score of the best of them, if the statement
    says most of what they say. `hits` are best first, and so is the result.
    """
    ordered = list(hits)
    statements: dict[str, list[Hit]] = {}
    for hit in ordered:
        if hit.entry.kind is Kind.STATEMENT:
            for source in hit.entry.sources:
                statements.setdefault(source, []).append(hit)
    chosen: dict[str, Hit] = {}
    for hit in ordered:
        shown = hit if hit.entry.kind is Kind.STATEMENT else _replacement(hit, statements.get(hit.entry.id, ()))
        chosen.setdefault(shown.entry.ref, shown)
    return list(chosen.values())


def can_replace(statement: Hit, record: Hit) -> bool:
    """Whether a statement that was learned from a record answers the question about as well, and says most of it.

    Scores are not compared: being stated or recent adds the same to every score. A statement replaces only records that
    are trusted no more than itself: naming a record as a source must not hide it.
    """
    # A statement of a review may replace the user's own words; one of a tool or a page may not.
    if statement.entry.trust < min(record.entry.trust, Origin.BACKGROUND_REVIEW.trust):
        return False
    return _answers_as_well(statement, record) and _says_most(statement.entry.text, record.entry.text)


def _answers_as_well(statement: Hit, record: Hit) -> bool:
    """It has every word that the record was found by, and nearly its lexical score and similarity."""
    lacking = frozenset(record.terms).difference(statement.terms, COMMON_TERMS)
    if lacking or statement.lexical < _AS_WELL * record.lexical:
        return False
    if record.similarity is None:
        return True
    similarity = SIMILARITY_ASSUMED if statement.similarity is None else statement.similarity
    return similarity >= min(_AS_WELL * record.similarity, record.similarity - _AS_CLOSE)


def _says_most(statement: str, record: str) -> bool:
    """The question may be about the rest of the message."""
    if len(record) > _LONGER_MAX * len(statement):
        return False
    said = frozenset(terms(record)).difference(COMMON_TERMS)
    return len(said.difference(terms(statement))) <= len(said) / 2


def _replacement(record: Hit, statements: Iterable[Hit]) -> Hit:
    chosen = next((hit for hit in statements if can_replace(hit, record)), record)
    return chosen if chosen.score >= record.score else replace(chosen, score=record.score)
