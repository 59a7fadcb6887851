"""Finds what holds now: whether the newer of two texts about the same thing replaces the older one.

For two sentences, words of change and the values around their common subject decide; `what_holds_words.json` has the
words. Linear models judge two exchanges that answer a question, and lasting facts and what was said after them.
`what_holds_weights.json` has their weights, which `lab/train_relevance.py` and `lab/train_changes.py` compute.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise, repeat
from math import exp, hypot, log
from operator import mul
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from afterturn.guard.trust import TRUST_MIN
from afterturn.recall.features import features_of, is_request
from afterturn.recall.query import admits, is_decidable
from afterturn.text import HashCache, fold, regex, terms
from afterturn.types import Entry, Hit, Kind, Lane, LaneQuery, Scope, Status
from afterturn.utterance import UtteranceChances, is_about_speaker, read_utterance

if TYPE_CHECKING:
    from afterturn.lasting_facts import FactKind
    from afterturn.ports import Unit
    from afterturn.recall.relevance import JudgedQuestion, RecalledExchange

WEIGHTS_PATH = Path(__file__).with_name("what_holds_weights.json")
# How many of the best are compared with each other: whether one holds instead of another.
_COMPARED_MAX = 20
# The log odds above which the newer of two counts as what holds now. Low, because an outdated line misleads, and one
# in the second place does not; lower still if the newer one has a word of change next to a word that both have.
_HOLDS_NOW, _HOLDS_NOW_CHANGED = -1.8, -2.3
# The log odds above which the older one is also marked as earlier: an order may be wrong, a mark should not.
_REPLACED = 0.5
# Next to a standing block, so is one that a newer entry has made untrue with this chance, if their cosine is this high.
_MARKED, _ALIKE = 0.7, 0.5
# Messages this close in time belong to the same moment; neither replaces the other, except by a correction.
_MOMENT, _DAY = 60.0, 86_400.0
_CHANCE_MIN = 1e-4
_NOTHING = UtteranceChances(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)

Features: TypeAlias = dict[str, float]
Weights: TypeAlias = Mapping[str, float]


def put_newer_first(
    question: JudgedQuestion,
    exchanges: Sequence[RecalledExchange],
    chances: Sequence[float],
    weights: Weights | None = None,
) -> tuple[list[int], frozenset[int]]:
    """The order of the exchanges by their chances, except that what holds now comes before what it replaces; and which
    of them are replaced."""
    order = sorted(range(len(exchanges)), key=lambda at: -chances[at])
    if question.time is not None and question.time.is_past:
        return order, frozenset()
    best = [at for at in order[:_COMPARED_MAX] if chances[at] > _CHANCE_MIN]
    others = [at for at in order if question.asks_for_time_of(exchanges[at].occurred_at) is not False]
    weights = weights or _weights()["exchanges"]
    newer: dict[int, list[int]] = {}
    replaced: set[int] = set()
    for at in best:
        for other in others:
            pair = exchanges[at], exchanges[other], chances[at], chances[other]
            is_newer, is_replaced = _judge_pair(question, *pair, weights)
            if is_newer:
                newer.setdefault(at, []).append(other)
            if is_replaced:
                replaced.add(at)
    placed: dict[int, None] = {}

    def place_after_newer(at: int, depth: int = 0) -> None:
        if at not in placed and depth <= _COMPARED_MAX:
            for other in newer.get(at, ()):
                place_after_newer(other, depth + 1)
            placed[at] = None

    for at in order:
        place_after_newer(at)
    return list(placed), frozenset(replaced)


def _judge_pair(
    question: JudgedQuestion,
    older: RecalledExchange,
    newer: RecalledExchange,
    older_chance: float,
    newer_chance: float,
    weights: Weights,
) -> tuple[bool, bool]:
    """Whether the second comes first, and whether the first is marked as earlier."""
    if older.said is not None and newer.said is not None and replaced_share(older.said, newer.said):
        return True, True
    if newer_chance <= _CHANCE_MIN or not may_replace(older, newer):
        return False, False
    features = pair_features(question, older, newer, older_chance, newer_chance)
    odds = weigh(features, weights)
    is_change = features["strong change"] or features["weak change"]
    is_newer = odds > (_HOLDS_NOW_CHANGED if is_change else _HOLDS_NOW)
    # "Book the dinner for my mother" does not make what was said of her earlier untrue.
    only_requests = newer.said is not None and newer.said.kind is Kind.RECORD and is_request(newer.said)
    return is_newer, odds > _REPLACED and not only_requests


def may_replace(older: RecalledExchange, newer: RecalledExchange) -> bool:
    """Whether the second was said later, and both share a word. A report does not replace what is trusted."""
    if newer.occurred_at <= older.occurred_at + _MOMENT:
        return False
    if newer.hits[0].entry.trust < TRUST_MIN <= older.hits[0].entry.trust:
        return False
    # Not one that is in both answers only: an agent often says the same. Nor words such as "ich" and "das".
    shared = _content(older.said) & newer.content | _content(newer.said) & older.content
    return bool(shared) and not shared <= grammar_terms()


def pair_features(
    question: JudgedQuestion, older: RecalledExchange, newer: RecalledExchange, older_chance: float, newer_chance: float
) -> Features:
    """The features of two exchanges that share a word."""
    one, other = older.content, newer.content
    shared = one & other
    if older.answer is not None and newer.answer is not None and older.answer.text == newer.answer.text:
        shared &= _content(older.said) | _content(newer.said)
    beyond = min(len(one - question.terms), len(other - question.terms))
    before = features_of(older.said).utterance if older.said is not None else _NOTHING
    after = features_of(newer.said).utterance if newer.said is not None else _NOTHING
    return {
        "bias": 1.0,
        "shared": len(shared) / (min(len(one), len(other)) or 1),
        "shared with question": len(shared & question.terms) / (len(question.terms) or 1),
        "shared beyond question": len(shared - question.terms) / (beyond or 1),
        "newer chance": log_odds(newer_chance),
        "more likely": log_odds(newer_chance) - log_odds(older_chance),
        "newer asks": after.asks,
        "newer states": after.states,
        "newer changes": after.changes,
        "newer supposes": after.supposes,
        "older asks": before.asks,
        "older changes": before.changes,
        **_change_features(older, newer),
    }


def _change_features(older: RecalledExchange, newer: RecalledExchange) -> Features:
    """Whether the newer message has words of change in a clause that shares a word with the older exchange, and whether
    both have a number or a day, and not the same."""
    if older.said is None or newer.said is None:
        return {"shared with change": 0.0, "other value": 0.0, "strong change": 0.0, "weak change": 0.0}
    before, after = claims_of(older.said), claims_of(newer.said)
    known = before.beginnings | claims_of(older.answer).beginnings if older.answer is not None else before.beginnings
    changes = [claim for claim in after.changes if not claim.beginnings.isdisjoint(known)]
    values, others = before.values, after.values
    is_other = values.isdisjoint(others) and not {kind for kind, _ in values}.isdisjoint(kind for kind, _ in others)
    return {
        "shared with change": float(min(3, max((len(claim.beginnings & known) for claim in changes), default=0))),
        "other value": float(is_other and not before.beginnings.isdisjoint(after.beginnings)),
        "strong change": float(any("strong" in claim.cues for claim in changes)),
        "weak change": float(any("weak" in claim.cues for claim in changes)),
    }


def _content(entry: Entry | None) -> frozenset[str]:
    return features_of(entry).content_terms if entry is not None else frozenset()


def weigh(features: Features, weights: Weights) -> float:
    weighed: float = sum(map(mul, map(weights.get, features, repeat(0.0)), features.values()))
    return weighed


def log_odds(chance: float) -> float:
    bounded = max(0.001, min(0.999, chance))
    return log(bounded / (1 - bounded))


# Values: two sentences with the same subject, of which the newer one has another value.

_WORDS_PATH = Path(__file__).with_name("what_holds_words.json")
# Of a longer message, only the beginning is compared.
_READ_CHARS_MAX, _SENTENCES_MAX = 1_000, 8
_SENTENCE_END = regex(r"(?<=[^\W\d_]{3}[.!…])\s+|(?<=[?。！？؟।])\s*|\n+")
_CLAUSE_END = regex(r"[,;:–—、，،]\s*| - ")
_TOKEN = regex(r"\d+(?:[.,:/]\d+)*|[^\W\d_]+(?:['’][^\W\d_]+)*(?:\d+(?:[.,:]\d+)*)?(?:-[^\W_]+)*")
_UNSPACED = regex(r"[\u3041-\u30ff\u3400-\u9fff]")
# Without hiragana, which is mostly grammar.
_UNSPACED_TOKEN = regex(r"[A-Za-z][A-Za-z0-9.-]*|\d+|[\u30a1-\u30fa\u30fc]+|[\u3400-\u9fff]+")
_DIGITS = regex(r"\d+")
_WORD = regex(r"\w+")
_LETTERS = str.maketrans("ıłø", "ilo")
_CUES = ("strong", "weak", "corrects", "denial", "again", "also", "past", "longer")
_NO_CUES: frozenset[str] = frozenset()
# An older sentence with more words of its own may be about something else.
_OTHER_WORDS_MAX = 2
_STATES_MIN = 0.3
# The share of the words of a message that a statement learned from it leaves out, if it says nearly all of it.
_LEFT_OUT_MAX = 1 / 3
SHARE_MIN = 0.5
"""How much of a text must be replaced, so that it says nothing else that is worth showing."""


class _Item(NamedTuple):
    """A word of a sentence that is not grammar, or several of one name. `before` is the class of the word before it."""

    form: str
    kind: str
    before: str
    at: int

    @property
    def is_value(self) -> bool:
        return self.kind in ("number", "day")


class Claim(NamedTuple):
    """A sentence or a part of one: its items, and which words of change, denial or time it has."""

    sentence: str
    items: tuple[_Item, ...]
    cues: frozenset[str]
    cues_at: tuple[int, ...]
    opening: str
    beginnings: frozenset[str]
    """Of its words: two forms of a word begin alike."""


class Claims(NamedTuple):
    """For each sentence of a text that is not a question: its claim, and one for each of its clauses. `changes` are
    those that may replace others, `beginnings` those of all their words, `values` their numbers and days."""

    sentences: tuple[tuple[Claim, ...], ...]
    changes: tuple[Claim, ...]
    beginnings: frozenset[str]
    values: frozenset[tuple[str, str]]

    @property
    def keys(self) -> frozenset[str]:
        return self.beginnings | {f"{kind} {form}" for kind, form in self.values}


class _ClaimHashes(NamedTuple):
    """Of the claims of a text: the hashes of its words' beginnings, of those of its changes, and of its keys; whether a
    change is a correction."""

    beginnings: frozenset[int]
    changes: frozenset[int]
    keys: frozenset[int]
    corrects: bool


# Each conversation compares the same facts again to make its standing block. One of 300 facts compares some 1,500
# pairs, which takes 100 ms without these.
_hashes = HashCache[_ClaimHashes](16_384)
_shares = HashCache[float](65_536)
_scores = HashCache[float | None](65_536)
_ratings: HashCache[tuple[FactKind, float] | None] = HashCache(16_384)


def _hashes_of(entry: Entry) -> _ClaimHashes:
    def compute() -> _ClaimHashes:
        claims = claims_of(entry)
        changes = {beginning for claim in claims.changes for beginning in claim.beginnings}
        beginnings, changed, keys = (frozenset(map(hash, some)) for some in (claims.beginnings, changes, claims.keys))
        return _ClaimHashes(beginnings, changed, keys, any("corrects" in claim.cues for claim in claims.changes))

    return _hashes.get(hash(entry.text), compute)


def claims_of(entry: Entry) -> Claims:
    features = features_of(entry)
    if features.claims is None:
        parts = _SENTENCE_END.split(entry.text[:_READ_CHARS_MAX])[:_SENTENCES_MAX]
        read = (_read_sentence(one) for one in parts if not one.rstrip().endswith(("?", "？", "؟")))
        sentences = tuple(claims for claims in read if claims[0].items)
        changes = tuple(claim for claims in sentences for claim in claims if _may_change(claim))
        beginnings = frozenset[str]().union(*(claims[0].beginnings for claims in sentences))
        items = (item for claims in sentences for item in claims[0].items)
        values = frozenset((item.kind, item.form) for item in items if item.is_value)
        features.claims = Claims(sentences, changes, beginnings, values)
    return features.claims


def _may_change(claim: Claim) -> bool:
    """Whether it has a word of change, or a subject that has one value. Not a wish or a dream."""
    if _has_word(claim.sentence, "unreal"):
        return False
    is_single = not _words()["single"].isdisjoint([item.form for item in claim.items])
    return "also" not in claim.cues and (is_single or bool(claim.cues & {"strong", "weak", "denial", "again"}))


def _beginnings(items: Sequence[_Item]) -> frozenset[str]:
    words = (word for item in items if not item.is_value for word in item.form.split())
    return frozenset([word[:2] if _is_dense(word) else word[:4].rstrip("s") for word in words])


def _read_sentence(sentence: str) -> tuple[Claim, ...]:
    whole = _read_claim(sentence)
    clauses = [clause for clause in _CLAUSE_END.split(sentence) if clause.strip()]
    shared = whole.cues & {"also", "past"}
    parts: list[Claim] = []
    for clause in clauses if len(clauses) > 1 else ():
        part = _read_claim(clause)
        # "No, wait: I live in Hamburg" corrects with its first words.
        opening = whole.cues & {"weak"} if not parts else frozenset()
        if part.items:
            parts.append(part._replace(sentence=sentence, cues=part.cues | shared | opening))
    return (whole, *parts)


def _read_claim(text: str) -> Claim:
    # The pattern takes a millisecond to compile, which a hook feels.
    if not text or (not text.isascii() and 4 * len(_UNSPACED.findall(text)) >= len(text)):
        return _read_unspaced(text)
    words, tokens = _words(), _TOKEN.findall(text)
    items: list[_Item] = []
    cues: set[str] = set()
    cues_at, before, opening = [], "", ""
    for at, token in enumerate(tokens):
        word = _folded(token)
        if at > _OTHER_WORDS_MAX and word in words["reason"]:
            break
        is_inner = at > 0
        found = _cues().get(word, _NO_CUES)
        if token.endswith(("n't", "n’t")):
            found = found | {"denial"}
        # In Portuguese, "no Porto" is "in Porto".
        elif word == "no" and is_inner and not "".join(tokens[at + 1 : at + 2])[:1].islower():
            found = found - {"denial"}
        cues |= found
        cues_at += [at] if found & {"strong", "weak"} else []
        opening = opening or word
        kind = _kind(word, token, is_inner=is_inner)
        if kind in ("number", "day"):
            items.append(_Item(word[:3] if _is_dense(word) else word.rstrip("s"), kind, before, at))
            before = "item"
        elif found & {"strong", "weak"}:
            before = "the" if before == "the" and "strong" not in found else "cue"
        elif found & {"denial", "also"}:
            continue
        elif len(word) == 1 or (word in words["function"] and not (token[0].isupper() and is_inner)):
            inherited = before if before in ("the", "from") else "other"
            before = "the" if word in words["determiner"] else "from" if word in words["from"] else inherited
        else:
            if kind == "name" and items and items[-1].kind == "name" and items[-1].at == at - 1:
                items[-1] = items[-1]._replace(form=f"{items[-1].form} {word}", at=at)
            else:
                items.append(_Item(word, kind, before, at))
            before = "item"
    if cues >= {"longer", "denial"}:
        cues.add("strong")
    return Claim(text, tuple(items), frozenset(cues), tuple(cues_at), opening, _beginnings(items))


def _read_unspaced(text: str) -> Claim:
    """Of Chinese and Japanese, where grammar and words of change stand between the items."""
    patterns = _unspaced_patterns()
    cues = frozenset(name for name in ("strong", "also", "past") if patterns[name].search(text))
    bare = patterns["function"].sub(" ", patterns["strong"].sub(" ", text))
    items = []
    for at, token in enumerate(_UNSPACED_TOKEN.findall(bare)):
        kind = "number" if token.isdigit() else "day" if patterns["day"].fullmatch(token) else "word"
        items.append(_Item(fold(token), kind, "", at))
    return Claim(text, tuple(items), cues, (), "", _beginnings(items))


def _folded(token: str) -> str:
    """Without what is contracted: "I'm", "Ruth's", "l'appartement"."""
    if token.isascii() and "'" not in token:
        return token.lower()
    first, *rest = re.split("['’]", fold(token).translate(_LETTERS))
    return rest[0] if rest and len(first) <= 2 < len(rest[0]) else first


def _kind(word: str, token: str, *, is_inner: bool) -> str:
    words = _words()
    if token[0].isdigit() or word in words["numbers"]:
        return "number"
    if word in words["days"] or (_is_dense(word) and word[:3] in words["days"]):
        return "day"
    return "name" if (token[0].isupper() and is_inner) or any(map(str.isdigit, token)) else "word"


def _is_dense(word: str) -> bool:
    """Whether two of its characters are as good as a word: Korean, Chinese and Japanese."""
    return "\u3041" <= word[:1] <= "\u9fff" or "가" <= word[:1] <= "힣"


def _is_same(one: str, other: str) -> bool:
    """Whether two forms are the same word, perhaps inflected. "Hermano" and "hermana" are two."""
    if one.rstrip("s") == other.rstrip("s"):
        return True
    if " " in one or " " in other:
        return set(one.split()) <= set(other.split()) or set(other.split()) <= set(one.split())
    if (
        one[:2] != other[:2]
        or any(map(str.isdigit, one + other))
        or (one[:-1] == other[:-1] and {one[-1], other[-1]} == {"a", "o"})
    ):
        return False
    shortest, longest = sorted((len(one), len(other)))
    common = next((at for at, (here, there) in enumerate(zip(one, other, strict=False)) if here != there), shortest)
    least = 2 if _is_dense(one) else max(4, 0.75 * shortest)
    return common >= least and longest - common <= 4 and shortest - common <= 2


def replaces(newer: Claim, older: Claim) -> bool:
    """Whether the newer claim is about the same subject as the older one and has another value in its place."""
    words = _words()
    if newer.beginnings.isdisjoint(older.beginnings) or "past" in older.cues or "also" in newer.cues:
        return False
    if _is_about_another(newer, older) or _are_two_relatives(newer, older) or newer.opening in words["asking"]:
        return False
    left, pairs, lost = list(newer.items), [], []
    for item in older.items:
        match = next((one for one in left if _is_same(item.form, one.form)), None)
        if match is None:
            lost.append(item)
        else:
            left.remove(match)
            pairs.append((item, match))
    lost, added = ([one for one in some if one.form not in words["unit"]] for some in (lost, left))
    # "I am no longer allergic to nuts", of the same person. "Allergic to bees now" is one more allergy.
    is_same = newer.opening == older.opening or {newer.opening, older.opening} <= words["first"] - {"my"}
    is_revoked = is_same and not lost and len(added) <= 1 and "denial" in newer.cues - older.cues
    if states_health(older.sentence) and not is_revoked:
        return False
    subject = [pair for pair in pairs if not pair[0].is_value and pair[0].form not in words["unit"]]
    kinds = {one.kind for one in added if one.is_value}
    if subject and "denial" in newer.cues and any(old.is_value and old.kind in kinds for old, _ in pairs):
        return True  # "The gate is 82, not 85."
    if (
        not subject
        or _is_other_subject(subject, older, lost)
        or _is_other_subject([(b, a) for a, b in subject], newer, added)
    ):
        return False
    if "denial" in older.cues:
        is_again = "again" in newer.cues and "denial" not in newer.cues
        return is_again and len(added) <= 1 and not any(one.kind == "name" for one in added)
    if not added or (len(added) == 1 and not lost and newer.cues >= {"longer", "denial"}):
        is_strong, is_denied = "strong" in newer.cues, "denial" in newer.cues
        return (is_denied and (is_strong or not lost)) or (is_strong and len(subject) > 1)
    is_one = len(lost) == len(added) == 1 and lost[0].is_value == added[0].is_value
    if is_one and any(item.form in words["single"] for item, _ in subject):
        return True
    return _has_other_value(newer, older, pairs, subject, lost, added, is_one=is_one)


def states_health(text: str) -> bool:
    """Whether it has a word for an allergy, an illness, a diet or a pregnancy: its loss could do harm."""
    folded = fold(text).translate(_LETTERS)
    return any(beginning in folded for beginning in _words()["health"])


def _is_about_another(newer: Claim, older: Claim) -> bool:
    """Whether the older claim is about the speaker and the newer one about somebody else: "Joe is no longer allergic".

    The person who changes a value may come first: "the doctor raised it to 100".
    """
    words = _words()
    if older.opening not in words["first"] or not newer.items:
        return False
    if newer.opening in words["third"] or not words["kin"].isdisjoint(_forms(newer) - _forms(older)):
        return True
    if newer.opening in words["first"]:
        return False
    first, kinds = newer.items[0], {one.kind for one in newer.items if one.is_value}
    has_value = any(one.is_value and one.kind in kinds for one in older.items)
    is_known = any(_is_same(one.form, first.form) for one in older.items) or _has_word(newer.sentence, "self")
    return first.at == 0 and not is_known and not (has_value and "strong" in newer.cues)


def _are_two_relatives(newer: Claim, older: Claim) -> bool:
    """Whether both name a relative of the same kind, and not the same one: "my aunt Ines", "my aunt Ruth"."""
    named, others = (
        {
            (kin.form, one.form)
            for kin, one in pairwise(claim.items)
            if kin.form in _words()["kin"] and one.kind == "name" and one.at - one.form.count(" ") == kin.at + 1
        }
        for claim in (newer, older)
    )
    return named.isdisjoint(others) and not {kin for kin, _ in named}.isdisjoint(kin for kin, _ in others)


def begins_unreal(text: str) -> bool:
    """ "Imagine I could fly", "if I moved", "maybe we move"."""
    first = _WORD.search(fold(text))
    return first is not None and first[0].translate(_LETTERS) in _words()["unreal"]


def _has_word(sentence: str, listed: str) -> bool:
    return not _words()[listed].isdisjoint(_WORD.findall(fold(sentence)))


def _forms(claim: Claim) -> set[str]:
    return {item.form for item in claim.items}


def _is_other_subject(subject: Sequence[tuple[_Item, _Item]], claim: Claim, own: Sequence[_Item]) -> bool:
    """Whether an item that only this claim has makes its subject another one: "my sister", "the physio appointment"."""
    named = {item.at - item.form.count(" ") for item, _ in subject if item.kind == "name"}
    # In many languages a verb follows its object.
    plain = {item.at for item, _ in subject if item.kind == "word" and item.form not in _words()["single"]}
    kin = _words()["kin"]
    return any(
        (one.form in kin and one.at + 1 not in named) or (not one.is_value and one.at + 1 in plain) for one in own
    )


def _has_other_value(
    newer: Claim,
    older: Claim,
    pairs: Sequence[tuple[_Item, _Item]],
    subject: Sequence[tuple[_Item, _Item]],
    lost: Sequence[_Item],
    added: Sequence[_Item],
    *,
    is_one: bool,
) -> bool:
    """Whether words of change say so. `lost` and `added` are the items that only one of the claims has."""
    is_strong = "strong" in newer.cues
    values, others = [one for one in added if one.is_value], [one for one in added if not one.is_value]
    kinds = {one.kind for one in values}
    # "Not on Friday, on Monday."
    if (is_strong or "denial" in newer.cues) and len(others) <= 1 and any(old.kind in kinds for old, _ in pairs):
        return True
    if not newer.cues & {"strong", "weak"}:
        return False
    if is_strong and len(lost) <= _OTHER_WORDS_MAX and any(_is_given_up(newer, older, *pair) for pair in subject):
        return True
    if any(one.kind in kinds for one in lost):
        # "My doctor raised my dose to 100": who changed it comes first.
        is_agent = (
            is_strong
            and len(others) == 1
            and any(one.before in ("the", "cue") and one.at > others[0].at for _, one in subject)
        )
        return not others or is_agent
    if is_one or len(added) > 1 or values:
        # "release-1" and "release-2" are two things.
        return is_one and (is_strong or _DIGITS.sub("", lost[0].form) != _DIGITS.sub("", added[0].form) or values != [])
    has_name = any(item.kind == "name" for item, _ in subject)
    if not lost:
        return is_strong or (added[0].kind == "name" and has_name)
    is_about = any(new is newer.items[0] and (old is older.items[0] or old.kind == "name") for old, new in subject)
    return (is_about and len(lost) <= _OTHER_WORDS_MAX) or (
        is_strong and has_name and len(lost) <= _OTHER_WORDS_MAX + 1
    )


def _is_given_up(newer: Claim, older: Claim, old: _Item, new: _Item) -> bool:
    """Whether the newer claim names the old value to say that it no longer holds: "from npm", "sold the Polo"."""
    if old is older.items[0] and older.opening not in _words()["first"]:
        return False
    is_left = new.kind == "name" and new.at + 1 in newer.cues_at
    return new.before == "from" or is_left or any(0 < new.at - at <= 2 for at in newer.cues_at)


def replaced_share(older: Entry, newer: Entry) -> float:
    """How much of `older` a sentence of `newer`, which was said later, replaces: from 0 to 1, by its words."""
    # The fast tests first: a turn compares some 600 pairs.
    if newer.occurred_at < older.occurred_at or _hashes_of(newer).changes.isdisjoint(_hashes_of(older).beginnings):
        return 0.0
    key = (hash(older.text), older.kind, hash(newer.text), newer.kind)
    return _shares.get(key, lambda: _compute_share(older, newer)) if _may_be_compared(older, newer) else 0.0


def _compute_share(older: Entry, newer: Entry) -> float:
    before, after = claims_of(older), claims_of(newer)
    sentences = before.sentences
    later = [claim for claim in after.changes if not claim.beginnings.isdisjoint(before.beginnings)]
    is_stated, found = newer.kind is Kind.STATEMENT, 0
    for claims in sentences:
        replaced = (one for one in claims if any(replaces(new, one) and (is_stated or _states(new)) for new in later))
        stated = [one for one in replaced if older.kind is Kind.STATEMENT or _states(one)]
        found += max((_count_replaced(one, later) for one in stated), default=0)
    return found / sum(len(claims[0].items) for claims in sentences)


def _count_replaced(older: Claim, later: Sequence[Claim]) -> int:
    """Without the words of the claim that no newer one has, except for those of its value."""
    known = [item.form for claim in later for item in claim.items]
    rest = [one for one in older.items if not one.is_value and not any(_is_same(one.form, form) for form in known)]
    return len(older.items) - max(0, len(rest) - _OTHER_WORDS_MAX)


def _may_be_compared(older: Entry, newer: Entry) -> bool:
    """Said by the same person in the same place, and the newer one later and trusted."""
    # A message is about nothing in particular, and what was learned from the user has no speaker.
    targets = {entry.target for entry in (older, newer) if entry.kind is Kind.STATEMENT}
    one, other = ((entry.space, entry.speaker or "user", entry.agent, entry.project) for entry in (older, newer))
    is_trusted = newer.trust >= TRUST_MIN or older.trust < TRUST_MIN
    # Sentences of one turn belong together, except for a correction; the next turn may change it.
    is_apart = (newer.conversation, newer.turn) != (older.conversation, older.turn) or _hashes_of(newer).corrects
    # Ids are in order of time.
    is_later = (newer.occurred_at, newer.id) > (older.occurred_at + (0 if is_apart else _MOMENT), older.id)
    return one == other and len(targets) < 2 and is_trusted and is_later


def _states(claim: Claim) -> bool:
    """Not if it asks, orders or supposes: "Shall we move to Hamburg"."""
    read = read_utterance(claim.sentence)
    orders = 0.0 if claim.opening in _words()["first"] else read.orders
    return max(read.asks, orders, read.supposes) < max(_STATES_MIN, read.states)


def find_replaced(entries: Sequence[Entry]) -> dict[str, Entry]:
    """The entries that a newer one replaces whatever is asked, by reference, each with the newest that does.

    Statements, messages or sentences of messages. Only those of the same speaker, target, agent and project are
    compared, and half of the words of a longer text must be replaced.
    """
    ordered = sorted(entries, key=lambda entry: (entry.occurred_at, entry.id))
    # By the beginnings of their words: comparing all pairs of 500 entries would take seconds.
    places: defaultdict[int, list[int]] = defaultdict(list)
    for at, entry in enumerate(ordered):
        for beginning in _hashes_of(entry).changes:
            places[beginning].append(at)
    replaced: dict[str, Entry] = {}
    for at, older in enumerate(ordered):
        later = {other for beginning in _hashes_of(older).beginnings for other in places[beginning] if other > at}
        newer = (ordered[other] for other in sorted(later, reverse=True))
        newest = next((one for one in newer if replaced_share(older, one) >= SHARE_MIN), None)
        if newest is not None:
            replaced[older.ref] = newest
    return replaced


class RatedEntry(NamedTuple):
    """A sentence or statement, with its rating by `lasting_facts`."""

    entry: Entry
    kind: FactKind
    chance: float


class FactChange(NamedTuple):
    """The sentence that may have made another untrue, and the chance that it did."""

    newer: Entry
    chance: float


# A word in more messages than this is not what one of them is about, and pairs that share only such words are many.
_RARE_MAX = 6
# A word of two messages is not more common because there are no others yet.
_MESSAGES_MIN = 100


def find_changes(facts: Sequence[RatedEntry], sentences: Sequence[RatedEntry]) -> dict[int, FactChange]:
    """By identity of a fact's entry: the later sentence that most likely made it untrue.

    Much is changed without a word of change: "weight's 84". A linear model judges what two sentences that share a word
    or a number have in common, and where they differ. One in four of the changes that it reports is wrong.
    """
    found: dict[int, FactChange] = {}
    weights = _weights()["changes"]
    for fact, newer, rarity in find_pairs(facts, sentences):
        score = _score_texts(fact, newer)
        if score is None:
            continue
        # The rest of the score does not depend on the other facts, and is known from earlier conversations.
        score += weigh(rarity_features(rarity), weights)
        chance = 1 / (1 + exp(-max(-30.0, score)))
        if id(fact.entry) not in found or chance > found[id(fact.entry)].chance:
            found[id(fact.entry)] = FactChange(newer.entry, chance)
    return found


def find_pairs(
    facts: Sequence[RatedEntry], sentences: Sequence[RatedEntry]
) -> Iterator[tuple[RatedEntry, RatedEntry, list[float]]]:
    """Facts with the later sentences that share a rare word or number, and how rare each of these is, from 0 to 1."""
    places: defaultdict[int, list[int]] = defaultdict(list)
    for at, one in enumerate(sentences):
        for key in _hashes_of(one.entry).keys:
            places[key].append(at)
    counts = {key: len({sentences[at].entry.id for at in found}) for key, found in places.items()}
    messages = max(_MESSAGES_MIN, len({one.entry.id for one in sentences}))
    for fact in facts:
        shared = [key for key in _hashes_of(fact.entry).keys if 0 < counts.get(key, 0) <= _RARE_MAX]
        for at in sorted({place for key in shared for place in places[key]}):
            if _may_change_fact(fact.entry, sentences[at].entry):
                rarity = [1 - log(counts[key]) / log(messages + 1) for key in shared if at in places[key]]
                yield fact, sentences[at], rarity


def _score_texts(fact: RatedEntry, newer: RatedEntry) -> float | None:
    """The score without that of the rarity. None if the newer one is not about the same, or changes nothing."""
    older, later = fact.entry, newer.entry

    def compute() -> float | None:
        return weigh(change_features(fact, newer), _weights()["changes"]) if is_about_same(older, later) else None

    texts = (hash(older.text), fact.kind, fact.chance, hash(later.text), newer.kind, newer.chance)
    return _scores.get((*texts, later.origin, later.kind, later.occurred_at - older.occurred_at < _DAY), compute)


def _may_change_fact(older: Entry, newer: Entry) -> bool:
    """True if the same person said it later, in another turn, in the same project or, about themselves, in none."""
    is_apart = (newer.conversation, newer.turn) != (older.conversation, older.turn) or newer.id != older.id
    is_here = newer.project == older.project or (
        None in (newer.project, older.project) and is_about_speaker(newer.text)
    )
    is_later = is_apart and newer.occurred_at > older.occurred_at and newer.trust >= TRUST_MIN
    return is_later and is_here and (newer.space, newer.agent) == (older.space, older.agent)


def is_about_same(older: Entry, newer: Entry) -> bool:
    """Not what is asked, wished or ordered, said of somebody else, or only repeated."""
    before, said = _whole_claim(older), features_of(newer).utterance
    if is_request(newer) or max(said.asks, said.orders, said.supposes) > max(_STATES_MIN, said.states):
        return False
    clauses = [claim for claims in claims_of(newer).sentences for claim in (claims[1:] or claims)]
    nearest = max(clauses, key=lambda claim: len(claim.beginnings & before.beginnings))
    after = _whole_claim(newer)
    # "Do not deploy" is an order.
    is_unreal = not _words()["asking"].isdisjoint((before.opening, nearest.opening)) or _has_word(newer.text, "unreal")
    is_repeated = not after.cues and all(
        any(_is_same(one.form, old.form) for old in before.items) for one in after.items
    )
    is_relatives = not _words()["kin"].isdisjoint(_forms(after) - _forms(before))
    is_another = _are_two_relatives(after, before) or _is_about_another(nearest, before)
    return not (is_unreal or is_repeated or is_relatives or is_another)


def rarity_features(rarity: Sequence[float]) -> Features:
    return {"rarest": max(rarity, default=0.0), "rarity": min(3.0, sum(rarity))}


def change_features(older: RatedEntry, newer: RatedEntry) -> Features:
    """The features of two sentences, without those of the words that they share."""
    before, after = _whole_claim(older.entry), _whole_claim(newer.entry)
    left, starts = list(after.items), {one.form[:2] for one in after.items if " " not in one.form}
    has_long = any(" " in one.form for one in left)
    shared: list[_Item] = []
    lost: list[_Item] = []
    for item in before.items:
        # Two words that are the same begin alike, and most do not.
        may_match = has_long or " " in item.form or item.form[:2] in starts
        match = next((one for one in left if _is_same(item.form, one.form)), None) if may_match else None
        (lost if match is None else shared).append(item)
        if match is not None:
            left.remove(match)
    said, units = features_of(newer.entry).utterance, _words()["unit"]
    features = {f"newer {cue}": float(cue in after.cues) for cue in _CUES}
    for kind in ("number", "day", "name"):
        has, gets = (any(one.kind == kind for one in some) for some in (lost, left))
        features |= {f"other {kind}": float(has and gets), f"{kind} added": float(gets and not has)}
        features[f"{kind} lost"] = float(has and not gets)
    return features | {
        "bias": 1.0,
        "shared": float(min(3, sum(not one.is_value and one.form not in units for one in shared))),
        "shared name": float(any(one.kind == "name" for one in shared)),
        "shared value": float(any(one.is_value for one in shared)),
        "shared unit": float(any(one.form in units for one in shared)),
        "other relative": float(any(one.form in _words()["kin"] for one in left)),
        "older past": float("past" in before.cues),
        "older denial": float("denial" in before.cues),
        "both denial": float("denial" in before.cues & after.cues),
        "older length": min(3.0, len(before.items) / 8),
        "newer length": min(3.0, len(after.items) / 8),
        "same day": float(newer.entry.occurred_at - older.entry.occurred_at < _DAY),
        "same kind": float(older.kind is newer.kind),
        "older chance": older.chance,
        "newer chance": newer.chance,
        "newer asks": said.asks,
        "newer orders": said.orders,
        "newer supposes": said.supposes,
        "newer changes": said.changes,
    }


def _whole_claim(entry: Entry) -> Claim:
    """The items and cues of all its sentences."""
    first, *others = (claims[0] for claims in claims_of(entry).sentences)
    if not others:
        return first
    items = tuple(item for claim in (first, *others) for item in claim.items)
    beginnings = first.beginnings.union(*(claim.beginnings for claim in others))
    return first._replace(items=items, cues=first.cues.union(*(claim.cues for claim in others)), beginnings=beginnings)


class StoredSimilarity:
    """The stored vectors of some entries. Plain Python, since hooks load no numpy."""

    def __init__(self, unit: Unit, tenant: str, entries: Iterable[Entry]) -> None:
        self._vectors: dict[str, tuple[float, ...]] = {}
        ids: dict[str, set[str]] = {}
        for entry in entries:
            ids.setdefault(entry.space, set()).add(entry.id)
        embedder = unit.index.adopted() if ids else None
        if embedder is None:
            return
        numbers = Struct(f"<{embedder.dimensions}e")
        for space, some in ids.items():
            keys = unit.index.keys_of(tenant, space, sorted(some))
            vectors = unit.index.vectors(tenant, space, embedder, list(keys.values()))
            self._vectors |= {one: numbers.unpack(vectors[key]) for one, key in keys.items() if key in vectors}

    def cosine(self, one: Entry, other: Entry) -> float:
        """0 for entries without a vector."""
        left, right = self._vectors.get(one.id, ()), self._vectors.get(other.id, ())
        norms = hypot(*left) * hypot(*right)
        return sum(map(mul, left, right)) / norms if norms else 0.0


def show_what_holds(unit: Unit, query: LaneQuery, hits: Sequence[Hit]) -> list[Hit]:
    """Leaves out what a newer version of a statement has made untrue, or marks it and puts the newer one in front.

    That is done for messages that an older version was learned from, and their answers: they are left out if they say
    little else. Of the best hits, those that a newer one replaces come after it.
    """
    shown = _replace_sources(unit, query, hits)
    replaced = find_replaced([hit.entry for hit in shown[:_COMPARED_MAX]])
    if not replaced:
        return shown
    by_ref = {hit.entry.ref: hit for hit in shown}
    placed: dict[str, Hit] = {}
    for hit in shown:
        newer = replaced.get(hit.entry.ref)
        if newer is not None:
            first = by_ref[newer.ref]
            placed.setdefault(newer.ref, replace(first, score=max(first.score, hit.score)))
        placed.setdefault(hit.entry.ref, replace(hit, is_earlier=True) if newer is not None else hit)
    return list(placed.values())


def _replace_sources(unit: Unit, query: LaneQuery, hits: Sequence[Hit]) -> list[Hit]:
    entries = [one for hit in hits for one in (hit.entry, hit.partner) if one is not None]
    outdated = find_outdated_sources(unit, query.scope, entries)
    seen = {hit.entry.ref for hit in hits} | query.excluded_refs
    shown: list[Hit] = []
    for hit in hits:
        partner = hit.partner.id if hit.partner is not None else ""
        current, says_all = outdated.get(hit.entry.id) or outdated.get(partner) or (None, False)
        # Only the store applies filters.
        is_admitted = current is not None and is_decidable(query) and admits(query, current) is not False
        if current is not None and is_admitted and current.ref not in seen:
            seen |= {current.ref}
            shown.append(Hit(current, Lane.LONG_TERM, hit.score, hit.lexical, hit.similarity, hit.terms))
        if not says_all:
            shown.append(hit if current is None else replace(hit, is_earlier=True))
    return shown


def find_outdated_sources(unit: Unit, scope: Scope, entries: Iterable[Entry]) -> dict[str, tuple[Entry, bool]]:
    """By id of a record: the current version of a statement whose older version was learned from it and said something
    that the current one does not; and whether the record says little else."""
    records = {entry.id: entry for entry in entries if entry.kind is Kind.RECORD}
    found: dict[str, tuple[Entry, bool]] = {}
    for old in unit.memories.learned_from(scope, records.keys(), [Status.SUPERSEDED]) if records else ():
        current = unit.memories.get(Scope(scope.tenant, (old.space,)), old.id)
        known, holds = features_of(old).content_terms, features_of(current).content_terms
        if current.status is not Status.ACTIVE or known <= holds:
            continue
        for source in records.keys() & set(old.sources):
            said = features_of(records[source]).content_terms
            # "I moved from Lyon to Nantes" is a source of both.
            if not holds - known <= said:
                found[source] = current, len(said - known) <= _LEFT_OUT_MAX * len(said)
    return found


def leave_out_replaced(
    unit: Unit, tenant: str, lines: Sequence[Hit], standing: Sequence[Entry]
) -> tuple[list[Hit], dict[str, str]]:
    """The lines without those marked as earlier that say nothing else than what a newer line replaces; and the newer
    line's reference for each that is left out. One that an entry of the standing block replaces, or has most likely
    made untrue, is marked."""
    refs = {line.entry.ref for line in lines if line.is_earlier}
    entries = {entry.ref: entry for entry in (*(line.entry for line in lines), *standing)}
    found = find_replaced(list(entries.values())) if refs or standing else {}
    replaced = {ref: newer.ref for ref, newer in found.items() if ref in refs}
    earlier = found.keys() | (_find_changed(unit, tenant, list(entries.values()), standing) if standing else set())
    left = (line for line in lines if line.entry.ref not in replaced)
    return [replace(line, is_earlier=True) if line.entry.ref in earlier else line for line in left], replaced


def _find_changed(unit: Unit, tenant: str, entries: Sequence[Entry], standing: Sequence[Entry]) -> set[str]:
    from afterturn.lasting_facts import rate_sentences  # here: a hook shows no standing lines

    def rate(text: str) -> tuple[FactKind, float] | None:
        best = max(rate_sentences(text), key=lambda one: one.chance, default=None)
        return None if best is None or states_health(text) else (best.kind, best.chance)

    ratings = [(one, _ratings.get(hash(one.text), partial(rate, one.text))) for one in entries]
    rated = [RatedEntry(one, *rating) for one, rating in ratings if rating is not None]
    changes = find_changes(rated, [one for one in rated if any(one.entry is stated for stated in standing)])
    similar = StoredSimilarity(unit, tenant, entries if changes else ())
    likely = [(one.entry, changes[id(one.entry)]) for one in rated if id(one.entry) in changes]
    return {
        one.ref for one, change in likely if change.chance >= _MARKED and similar.cosine(one, change.newer) >= _ALIKE
    }


@cache
def _weights() -> dict[str, Weights]:
    stored: dict[str, Weights] = json.loads(WEIGHTS_PATH.read_text(encoding="utf-8"))
    return stored


@cache
def _words() -> dict[str, frozenset[str]]:
    stored: dict[str, str] = json.loads(_WORDS_PATH.read_text(encoding="utf-8"))["words"]
    return {name: frozenset(listed.split()) for name, listed in stored.items()}


@cache
def grammar_terms() -> frozenset[str]:
    """Index terms that are in sentences about anything, in all languages. "Name" and "door" may be a subject."""
    short = [word for word in _words()["function"] if len(word) <= 3]
    lists = ("determiner", "first", "third", "self", "denial")
    return frozenset(terms(" ".join([*short, *(word for name in lists for word in _words()[name])])))


@cache
def _cues() -> dict[str, frozenset[str]]:
    """The cues that each word is."""
    listed = frozenset[str]().union(*(_words()[name] for name in _CUES))
    return {word: frozenset(name for name in _CUES if word in _words()[name]) for word in listed}


@cache
def _unspaced_patterns() -> dict[str, re.Pattern[str]]:
    stored: dict[str, str] = json.loads(_WORDS_PATH.read_text(encoding="utf-8"))["unspaced"]
    return {name: regex(pattern) for name, pattern in stored.items()}
