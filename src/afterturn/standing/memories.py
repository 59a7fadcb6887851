"""Selects what stands in every prompt: firm and pinned memories, conventions, and lasting facts and wishes of the user.
Only what the user typed or a person approved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from afterturn.guard.output_filter import neutralise
from afterturn.guard.pasted import has_pasted, typed_text
from afterturn.guard.scanning import ScannerGroup, is_suspected, scanner, suspicion_reason
from afterturn.guard.trust import STANDING_KINDS
from afterturn.lasting_facts import REFERS_BACK, FactKind, RatedSentence, rate_sentences
from afterturn.learning.rules.clauses import begins_play, is_temporary
from afterturn.learning.rules.extraction import own_sentences
from afterturn.ports import Unit
from afterturn.recall.block import describe_day
from afterturn.recall.duplicates import collapse
from afterturn.recall.features import features_of, is_request
from afterturn.recall.times import resolve_times, time_asked
from afterturn.recall.what_holds import (
    RatedEntry,
    StoredSimilarity,
    begins_unreal,
    find_changes,
    find_replaced,
    states_health,
)
from afterturn.scanners.detection import Scanning
from afterturn.standing.lineage import StandingLineage, is_hidden
from afterturn.text import WORDS_CUT, HashCache, content_hash, cut, load_patterns, regex, terms
from afterturn.types import ANYTHING, Entry, Filter, Hit, Kind, Lane, Origin, Scope, Status, Target
from afterturn.utterance import is_about_speaker, read_utterance

ENTRIES_MAX = 200
_PAGE = 200
_PAGES_MAX = 10

_FIRM = Filter(kind=Kind.STATEMENT, firm=True)
_PINNED = Filter(kind=Kind.STATEMENT, pinned=True)
_CONVENTIONS = Filter(kind=Kind.STATEMENT, target=Target.ENVIRONMENT, metadata={"kind": "convention"})
_PREFERENCES = Filter(kind=Kind.STATEMENT, target=Target.USER, metadata={"kind": "preference"})
_STATEMENTS = Filter(kind=Kind.STATEMENT)

_READ_MAX = 300
# The best so many facts are compared with each other, some three times what fits.
_COMPARED_MAX = 200
# From these chances on something lasts: statements, which a review or a person found worth storing, and what states an
# allergy or an illness; and other sentences.
_STATEMENT_MIN, _SENTENCE_MIN = 0.5, 0.6
# From this chance on a statement can also be understood alone; of a sentence, the product of both chances counts.
# `python -m lab.train_lasting_facts` shows what a threshold costs.
_WHOLE_MIN, _BOTH_MIN = 0.42, 0.38
# The least chance of what somebody decided to store, and of a stored preference or convention.
_STORED_CHANCE, _STANDING_CHANCE = 0.6, 0.9
# From these chances on that a later sentence made a fact untrue, the fact is left out, or shown with it, if both are
# about the same by the cosine of their vectors. `python -m lab.train_changes` shows how often that is wrong.
_CHANGED, _MAY_HAVE_CHANGED, SAME_SUBJECT = 0.7, 0.4, 0.25
# The kinds that come first from a chance on, and how much of the room they may take before the others have their turn.
BINDING = (FactKind.REFUSAL, FactKind.MANNER)
_BINDING_SHARE = 0.75
_BINDING_CHANCE = 0.8
_YEAR = 366 * 86_400.0
# How much less a kind counts than the one before it.
_KIND_STEP = 0.06
# A longer line takes the place of several, so it counts less in proportion. A sentence that is twice as long is none.
_LINE_CHARS = 240
_SENTENCE_CHARS_MAX = 2 * _LINE_CHARS
_LINE_BYTES_MAX = 512
_FRAGMENT = "a fragment or a request"
_WORD = regex(r"\w")
_PATTERNS = load_patterns(__file__)
_KINDS = tuple(FactKind)
_LINE_FRAME = len("- \n")
# The share of the words of the shorter one from which on a sentence and a statement learned from it say the same.
_SAME_FACT = 0.5
# The share of the words of a learned fact that the user must have typed, apart from those that name the user.
_TYPED_SHARE = 0.7
_USER_TERMS = frozenset(terms("user user's"))
_ORDERS = _SUPPOSES = 0.5
# A sentence with fewer words that are not common says nothing without those before it.
_CONTENT_MIN = 2
# A sentence with this many times the words of a statement says more than it: the statement is one clause of it.
_WHOLE_SHARE = 1.5


class StandingReader(NamedTuple):
    """The reader of the memories: the spaces that a conversation can read, its agent and project, and the time.

    Only what is in the space `owner` is shown about the user; if it is None, that of all spaces. `chars_max` limits the
    facts together. They are taken from messages too if `reads_messages`. What the model reads in messages that are
    `visible`, and what was learned only from these, is left out.
    """

    scope: Scope
    now: float
    agent: str | None = None
    project: str | None = None
    owner: str | None = None
    chars_max: int = 2_560
    reads_messages: bool = True
    scanning: Scanning = True
    visible: Callable[[Entry], bool] = lambda message: False

    def is_owner(self, speaker: str | None) -> bool:
        return (speaker or "user").casefold() in ("user", (self.owner or "user").rpartition(":")[2].casefold())


class StandingFact(NamedTuple):
    """A line about the user or the project: a statement, or a sentence that the user typed.

    `entry` is the statement, or the message with this sentence as its text; `refs` names it and what it was learned
    from. `whole` is the chance that it lasts and says so without its conversation. `text` is the line. `left_out` says
    why it is not shown, and is blank if it is. `later` may have changed it.
    """

    entry: Entry
    kind: FactKind
    chance: float
    refs: tuple[str, ...]
    whole: float = 1.0
    mentions: int = 1
    text: str = ""
    left_out: str = ""
    later: Entry | None = None


class StandingMemories(NamedTuple):
    """Each entry once, the most important first: firm, pinned, then more trusted, then newer ones.

    `earlier` are the references of those that a newer one replaces. `facts` are in order of worth, also those that are
    left out; preferences are among them if they are not pinned.
    """

    conventions: tuple[Entry, ...] = ()
    pinned: tuple[Entry, ...] = ()
    preferences: tuple[Entry, ...] = ()
    earlier: frozenset[str] = frozenset()
    facts: tuple[StandingFact, ...] = ()


NO_STANDING_MEMORIES = StandingMemories()


def find_standing_memories(unit: Unit, reader: StandingReader) -> StandingMemories:
    """Memories that are active and valid now, for this reader's agent and project or for all."""
    lineage = StandingLineage(unit, reader.scope)
    found: dict[str, Entry] = {}
    for wanted in (_FIRM, _PINNED, _CONVENTIONS, _PREFERENCES):
        found.update((entry.ref, entry) for entry in _trusted(unit, reader, wanted, lineage))
    entries = _stated_once(found.values())
    conventions = tuple(entry for entry in entries if entry.target is Target.ENVIRONMENT)
    preferences = tuple(entry for entry in entries if _is_preference(entry))
    others = tuple(entry for entry in entries if entry.target is Target.USER and not _is_preference(entry))
    return StandingMemories(conventions, others, preferences, frozenset(find_replaced(entries)))


def find_agent_memories(unit: Unit, reader: StandingReader, agent: str) -> tuple[Entry, ...]:
    """Statements for this agent that the user typed or a person approved, the most important first."""
    wanted = Filter(kind=Kind.STATEMENT, agent=agent)
    return _stated_once(_trusted(unit, reader._replace(agent=agent), wanted, StandingLineage(unit, reader.scope)))


def _trusted(unit: Unit, reader: StandingReader, wanted: Filter, lineage: StandingLineage) -> list[Entry]:
    found: list[Entry] = []
    before: str | None = None
    for _ in range(_PAGES_MAX):
        page = unit.memories.page(reader.scope, wanted, limit=_PAGE, before=before)
        found.extend(entry for entry in page if _is_for_reader(entry, reader) and lineage.is_trusted(entry))
        if len(page) < _PAGE or len(found) >= ENTRIES_MAX:
            break
        before = page[-1].id
        unit.check()
    return found[:ENTRIES_MAX]


def _is_for_reader(entry: Entry, reader: StandingReader) -> bool:
    mine = entry.agent in (None, reader.agent) and entry.project in (None, reader.project)
    mine = mine and not (_is_preference(entry) and reader.owner not in (None, entry.space))
    return entry.holds(reader.now) and mine


def _is_convention(entry: Entry) -> bool:
    return entry.target is Target.ENVIRONMENT and entry.metadata.get("kind") == "convention"


def _is_preference(entry: Entry) -> bool:
    return entry.target is Target.USER and entry.metadata.get("kind") == "preference"


def _stated_once(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    ordered = sorted(entries, key=lambda entry: (entry.id, entry.version, entry.space), reverse=True)
    ordered.sort(key=lambda entry: (not entry.firm, not entry.pinned, -entry.trust))
    chosen: dict[str, Entry] = {}
    for entry in ordered:
        chosen.setdefault(entry.content_hash, entry)
    return tuple(chosen.values())


# Facts: what holds now about the user, their people and things, and the project.


def find_standing(unit: Unit, reader: StandingReader) -> StandingMemories:
    """What stands in a prompt: pinned and firm memories, and the facts that fit. Conventions among the facts are listed
    with the pinned ones."""
    found = find_standing_memories(unit, reader)
    pinned = [entry for entry in (*found.pinned, *found.preferences) if entry.pinned or entry.firm]
    conventions = [entry for entry in found.conventions if entry.pinned or entry.firm]
    facts = _choose(unit, reader, _find_facts(unit, reader), [*conventions, *pinned])
    learned = [fact.entry for fact in facts if not fact.left_out and _is_convention(fact.entry)]
    return StandingMemories((*conventions, *learned), tuple(pinned), (), found.earlier, tuple(facts))


def _find_facts(unit: Unit, reader: StandingReader) -> list[StandingFact]:
    """In no order. Of a statement and the sentence that it was learned from, one."""
    lineage = StandingLineage(unit, reader.scope)
    stated: dict[str, Entry] = {}
    elsewhere: list[Entry] = []
    for wanted in (_CONVENTIONS, _PREFERENCES, _STATEMENTS):
        for entry in unit.memories.page(reader.scope, wanted, limit=_READ_MAX):
            is_owners = reader.owner in (None, entry.space) and reader.is_owner(entry.speaker)
            is_shared = entry.target is Target.ENVIRONMENT and entry.space != reader.owner
            is_ours = (is_owners or is_shared) and _is_for_reader(entry, reader)
            if is_ours and not entry.pinned and not entry.firm:
                stated[entry.ref] = entry
            elif entry.project not in (None, reader.project):
                elsewhere.append(entry)
    said = _read_messages(unit, reader)
    for entry in elsewhere:
        for source in (source for source in entry.sources if source in said):
            said[source] = [fact for fact in said[source] if not _says_same(entry, fact.entry)]
    _withdraw(unit, reader, said, {entry.content_hash for entry in stated.values()})
    facts: dict[str, StandingFact] = {}
    told: set[StandingFact] = set()
    scan = scanner(scanning=reader.scanning)
    for entry in filter(lineage.is_trusted, stated.values()):
        sources = [source for source in map(lineage.find, entry.sources) if source is not None]
        if sources and all(map(reader.visible, sources)):
            continue
        if not _is_owners(entry, sources, reader.owner) and not lineage.is_approved(entry):
            continue
        same = [fact for source in sources for fact in said.get(source.id, ()) if _says_same(entry, fact.entry)]
        told.update(same)
        refs = (entry.ref, *(source.ref for source in sources))
        fact = _state(entry, same)._replace(refs=refs, mentions=max(1, len(sources)))
        if len(same) == 1 and not lineage.is_approved(entry) and _is_better(same[0], fact, scan):
            fact = fact._replace(entry=same[0].entry, refs=tuple(dict.fromkeys((same[0].entry.ref, *refs))))
        # Several statements may have been learned from one sentence.
        known = facts.get(fact.entry.text)
        facts[fact.entry.text] = fact if known is None else known._replace(refs=(*known.refs, *refs))
    return [*facts.values(), *(fact for found in said.values() for fact in found if fact not in told)]


def _is_owners(entry: Entry, sources: Sequence[Entry], owner: str | None) -> bool:
    """Whether a statement is what the owner typed, in a conversation of their own, and did not delete."""
    if any(source.status is Status.DELETED for source in sources):
        return False
    if entry.space == owner and any(source.owner not in (None, owner) for source in sources):
        return False
    if entry.origin is Origin.USER or entry.metadata.get("kind") in STANDING_KINDS:
        return True
    # The words of a learned fact must be the user's, not those of the answer that it was learned from as well.
    typed = frozenset(terms(" ".join(typed_text(source.text) for source in sources if source.origin is Origin.USER)))
    stated = features_of(entry).terms - _USER_TERMS
    return len(stated & typed) >= _TYPED_SHARE * len(stated)


def _read_messages(unit: Unit, reader: StandingReader) -> dict[str, list[StandingFact]]:
    """The sentences of messages that the owner typed, by message. Of other projects, only what is about the user."""
    said: dict[str, list[StandingFact]] = {}
    scope = reader.scope if reader.owner is None else replace(reader.scope, spaces=(reader.owner,))
    for record in unit.records.most_telling(scope, ANYTHING, limit=_READ_MAX) if reader.reads_messages else ():
        is_owners = record.owner in (None, reader.owner) and reader.is_owner(record.speaker)
        is_typed = record.origin is Origin.USER and is_owners and not record.is_report
        is_elsewhere = record.project not in (None, reader.project)
        if is_typed and _is_for_reader(replace(record, project=None), reader) and not reader.visible(record):
            said[record.id] = [
                StandingFact(
                    replace(record, text=text, content_hash=content_hash(text)), kind, chance, (record.ref,), whole
                )
                for sentence, kind, chance, whole in _rate(record.text)
                if (text := neutralise(sentence)) and not (is_elsewhere and not is_about_speaker(text))
            ]
    return said


# The ratings of messages, by the hash of the message: each conversation reads the same ones again. No texts are kept.
_known: dict[int, list[tuple[int, int, tuple[FactKind, float, float]]]] = {}
_KNOWN_MAX = 16_384
_rated_statements = HashCache[list[tuple[float, FactKind, float]]](_KNOWN_MAX)


def _rate(text: str) -> list[RatedSentence]:
    """The sentences that the user typed."""
    if (known := _known.get(hash(text))) is not None:
        return [RatedSentence(text[start:end], *rating) for start, end, rating in known]
    typed = typed_text(text)
    rated = rate_sentences(typed)
    if len(rated) > 1 or ":" in typed or "：" in typed:
        # Not what follows "The mail reads:", a role play, or a text to work on.
        own = [] if begins_play(typed) else [sentence.text for sentence in own_sentences(typed)]
        rated = tuple(one for one in rated if _is_made_of(one.text, own))
    starts = [text.find(one.text) for one in rated]
    if -1 not in starts:
        if len(_known) >= _KNOWN_MAX:
            _known.clear()
        _known[hash(text)] = [(start, start + len(one.text), one[1:]) for start, one in zip(starts, rated, strict=True)]
    return list(rated)


def _is_made_of(text: str, sentences: Sequence[str]) -> bool:
    """Whether these sentences are most of what the text says, or one of them says it."""
    left = text
    for sentence in sorted(sentences, key=len, reverse=True):
        left = left.replace(sentence, " ")
    is_in_one = any(text in sentence for sentence in sentences)
    return is_in_one or 2 * len(_WORD.findall(left)) <= len(_WORD.findall(text))


def _withdraw(unit: Unit, reader: StandingReader, said: dict[str, list[StandingFact]], current: set[str]) -> None:
    """Marks the sentences from which a statement was learned that was deleted, rejected, undone or superseded, waits or
    is no longer valid. All of a message, if it is not clear which."""
    for gone in unit.memories.learned_from(reader.scope, said.keys(), tuple(Status)) if said else ():
        if gone.holds(reader.now) or gone.content_hash in current:
            continue
        for source in (source for source in gone.sources if source in said):
            same = [fact for fact in said[source] if _says_same(gone, fact.entry)] or said[source]
            said[source] = [fact._replace(left_out="withdrawn") if fact in same else fact for fact in said[source]]


def _says_same(statement: Entry, sentence: Entry) -> bool:
    one, other = features_of(statement).terms, features_of(sentence).terms
    return len(one & other) >= _SAME_FACT * min(len(one), len(other)) > 0


def _state(entry: Entry, same: Sequence[StandingFact]) -> StandingFact:
    """The fact that a statement states, rated by its own words and those of the sentences that it was learned from."""
    own = _rated_statements.get(
        hash(entry.text), lambda: [(one.chance, one.kind, one.whole) for one in rate_sentences(entry.text)]
    )
    rated = [*own, *((one.chance, one.kind, one.whole) for one in same)]
    chance, kind, _ = max(rated, key=lambda one: (one[0], -_KINDS.index(one[1])), default=(0.0, FactKind.PASSING, 0.0))
    # What a review kept of a message as it is may need its conversation; a wish or a convention does not.
    is_kept = entry.is_quote and entry.target is Target.USER and not _is_preference(entry)
    whole = max((one[2] for one in rated), default=0.0) if is_kept else 1.0
    least = _STORED_CHANCE if entry.origin is Origin.USER else 0.0
    if entry.metadata.get("kind") in STANDING_KINDS:
        least = _STANDING_CHANCE
        if _is_preference(entry) and kind is not FactKind.REFUSAL:
            kind = FactKind.MANNER
    if kind is FactKind.PASSING and least:
        kind = FactKind.LIFE
    return StandingFact(entry, kind, max(chance, least), (entry.ref,), whole)


def _is_better(sentence: StandingFact, fact: StandingFact, scan: ScannerGroup) -> bool:
    """Whether the user's own sentence is shown instead of a statement that a review wrote: a rewrite may be wrong."""
    entry, text = fact.entry, sentence.entry.text
    if entry.origin is not Origin.BACKGROUND_REVIEW or _is_convention(entry):
        return False
    if entry.is_quote and len(features_of(sentence.entry).terms) < _WHOLE_SHARE * len(features_of(entry).terms):
        return False  # it is all that the sentence says, without its introduction
    if sentence.left_out or len(text) > _LINE_CHARS or not _is_clean(text, scan) or not _is_whole(sentence):
        return False
    # "Remember that …" is an order to the assistant; the statement says what it is about.
    return fact.kind in BINDING or read_utterance(text).orders <= _ORDERS


def _order(fact: StandingFact) -> tuple[object, ...]:
    """Best first: refusals and manners, then by chance, kind and length; of equals what was said more often or last."""
    entry, place = fact.entry, _KINDS.index(fact.kind)
    worth = fact.chance * (1 - _KIND_STEP * place) * min(1.0, _LINE_CHARS / len(entry.text))
    is_binding = fact.kind in BINDING and fact.chance >= _BINDING_CHANCE
    return (
        place if is_binding else len(BINDING),
        -round(worth, 2),
        -fact.mentions,
        -entry.occurred_at,
        entry.id,
        entry.text,
    )


def _choose(
    unit: Unit, reader: StandingReader, facts: Sequence[StandingFact], pinned: Sequence[Entry]
) -> list[StandingFact]:
    """All facts, best first, each with its line. Those that do not stand have a reason."""
    scan = scanner(scanning=reader.scanning)
    compared = _compare(unit, reader, scan, facts, pinned)
    chosen: list[StandingFact] = []
    later: list[StandingFact] = []
    left = reader.chars_max

    def add(fact: StandingFact, least: float) -> None:
        nonlocal left
        why = fact.left_out or ("" if _is_lasting(fact) else "passing")
        text = fact.entry.text if why else _line(fact, reader.project)
        if not why and left - len(text) - _LINE_FRAME < least and fact.kind in BINDING and least:
            later.append(fact)
            return
        if not why:
            why = "no room" if len(text) + _LINE_FRAME > left else _find_objection(unit, reader, scan, fact)
        left -= 0 if why else len(text) + _LINE_FRAME
        chosen.append(fact._replace(text=text, left_out=why))

    for fact in _judge_changes(unit, reader, scan, compared):
        add(fact, (1 - _BINDING_SHARE) * reader.chars_max)
    for fact in later:
        add(fact, 0.0)
    return chosen


def _compare(
    unit: Unit, reader: StandingReader, scan: ScannerGroup, facts: Sequence[StandingFact], pinned: Sequence[Entry]
) -> list[StandingFact]:
    """The same facts, best first. Those that another one or a pinned memory replaces or states have a reason."""
    ordered = sorted((fact for fact in facts if not fact.left_out), key=_order)
    lasting = [fact for fact in ordered if _is_lasting(fact)]
    passing = [fact for fact in ordered if not _is_lasting(fact)]
    compared = {id(fact.entry) for fact in (*lasting[:_COMPARED_MAX], *passing[:_COMPARED_MAX])}
    more = {id(fact.entry) for fact in lasting[_COMPARED_MAX:]}
    others = [
        fact._replace(left_out="no room") if id(fact.entry) in more else fact
        for fact in facts
        if id(fact.entry) not in compared
    ]
    given = [StandingFact(entry, FactKind.LIFE, 1.0, (entry.ref,)) for entry in pinned]
    given += [fact for fact in facts if id(fact.entry) in compared]
    given.sort(key=lambda fact: (fact.entry.occurred_at, fact.entry.id))
    # Sentences of one message have one reference, so each gets its own, in order of time.
    known = {f"{number:04}": fact for number, fact in enumerate(given)}
    texts = {key: replace(fact.entry, id=key, version=1) for key, fact in known.items()}
    are_pinned = {key for key, fact in known.items() if id(fact.entry) not in compared}
    for key, replacing in find_replaced(list(texts.values())).items():
        older, newer = known[key], known[replacing.id]
        # A fragment does not stand, but may say that something changed. A refusal needs more than that.
        accepted = ("",) if older.kind in BINDING else ("", _FRAGMENT)
        may_replace = replacing.id in are_pinned or _find_objection(unit, reader, scan, newer) in accepted
        if key in are_pinned or not _is_lasting(older) or not may_replace:
            continue
        known[key] = older._replace(left_out=f"replaced by {newer.entry.ref}")
        if not _is_lasting(newer):
            # It takes the place of what it replaces: "the new boss is Ada" may not look lasting by itself.
            known[replacing.id] = newer._replace(kind=older.kind, chance=older.chance, whole=older.whole)
    standing = [key for key, fact in known.items() if not fact.left_out and (key in are_pinned or _is_lasting(fact))]
    for duplicate in collapse([Hit(texts[key], Lane.LONG_TERM, 1.0, 0.0, None, ()) for key in standing])[1]:
        key, by = duplicate.hit.entry.id, duplicate.by_ref
        key, by = (by, key) if key in are_pinned else (key, by)
        known[key] = known[key]._replace(left_out=f"said by {known[by].entry.ref}")
    return sorted([*others, *(fact for key, fact in known.items() if key not in are_pinned)], key=_order)


def _judge_changes(
    unit: Unit, reader: StandingReader, scan: ScannerGroup, facts: Sequence[StandingFact]
) -> list[StandingFact]:
    """The same facts, in the same order. One that a later sentence of the user has most likely made untrue is left out,
    also if that sentence does not stand itself. Where that is less certain, and of refusals, manners and orders, one
    line has both. What is said of health stays as it is."""
    # One that was replaced itself has changed what was before it.
    current = [fact for fact in facts if not fact.left_out or fact.left_out.startswith("replaced by ")]
    stated = {id(fact.entry): fact for fact in current if not _is_convention(fact.entry)}
    rated = {key: RatedEntry(fact.entry, fact.kind, fact.chance) for key, fact in stated.items()}
    standing = (fact for fact in stated.values() if _is_lasting(fact) and not fact.left_out)
    changeable = [rated[id(fact.entry)] for fact in standing if not states_health(fact.entry.text)]
    changes = find_changes(changeable, list(rated.values()))
    entries = [entry for key, change in changes.items() for entry in (rated[key].entry, change.newer)]
    similar, joined = StoredSimilarity(unit, reader.scope.tenant, entries), dict[int, str]()

    def judge(fact: StandingFact) -> StandingFact:
        change = changes.get(id(fact.entry))
        if change is None or similar.cosine(fact.entry, change.newer) < SAME_SUBJECT:
            return fact
        newer, has_both = stated[id(change.newer)], change.chance >= _MAY_HAVE_CHANGED
        if not has_both or _find_objection(unit, reader, scan, newer) not in ("", _FRAGMENT):
            return fact
        if change.chance >= _CHANGED and fact.kind not in BINDING and read_utterance(fact.entry.text).orders <= _ORDERS:
            return fact._replace(left_out=f"probably changed by {change.newer.ref}")
        if newer.kind not in BINDING and not _find_objection(unit, reader, scan, fact):
            joined[id(newer.entry)] = f"said by {fact.entry.ref}"
        return fact._replace(later=newer.entry, refs=(*fact.refs, newer.entry.ref))

    judged = [judge(fact) for fact in facts]
    own = (fact.left_out or fact.later for fact in judged)
    return [
        fact if is_own else fact._replace(left_out=joined.get(id(fact.entry), ""))
        for fact, is_own in zip(judged, own, strict=True)
    ]


def _line(fact: StandingFact, project: str | None) -> str:
    """Its text on one line, with dates for relative times. A plan without a date has the day on which it was said, and
    what was said in another project names it."""
    said_at, text = fact.entry.occurred_at, cut(neutralise(fact.entry.text), _LINE_BYTES_MAX, WORDS_CUT)
    dated, day = resolve_times(text, said_at), describe_day(said_at)
    if dated == text and fact.kind is FactKind.PLAN and day:
        dated = f"{text} (said {day})"
    if fact.later is not None:
        newer = _line(StandingFact(fact.later, FactKind.LIFE, 1.0, ()), project)
        dated += f" (later, {describe_day(fact.later.occurred_at)}: {newer})"
    return dated if fact.entry.project in (None, project) else f"{dated} (said in {fact.entry.project})"


def _find_objection(unit: Unit, reader: StandingReader, scan: ScannerGroup, fact: StandingFact) -> str:
    """Why a fact that would fit does not stand, or blank."""
    entry = fact.entry
    if fact.kind is FactKind.PLAN:
        planned = time_asked(entry.text, entry.occurred_at, is_query=True)
        until = reader.now + 1 if planned is None or planned.until is None else planned.until
        # "In May" is the next one, whatever the tense.
        if (until if until > entry.occurred_at else until + _YEAR) <= reader.now:
            return "its date has passed"
    if entry.kind is Kind.RECORD and len(entry.text) > _SENTENCE_CHARS_MAX:
        return "too long"
    is_doubtful = not _is_clean(entry.text, scan) or has_pasted(entry.text)
    if is_doubtful and not StandingLineage(unit, reader.scope).is_approved(entry):
        return "looks like an instruction, is pasted, or has a secret"
    if any(is_hidden(unit, reader.scope, name) for name in {ref.partition(".")[0] for ref in fact.refs}):
        return "hidden"
    return _FRAGMENT if entry.kind is Kind.RECORD and not _is_whole(fact) else ""


def _is_lasting(fact: StandingFact) -> bool:
    if fact.entry.kind is Kind.STATEMENT:
        return fact.chance >= _STATEMENT_MIN and fact.whole >= _WHOLE_MIN
    if states_health(fact.entry.text):
        return fact.chance >= _STATEMENT_MIN
    return fact.chance >= _SENTENCE_MIN and fact.chance * fact.whole >= _BOTH_MIN


def _is_whole(fact: StandingFact) -> bool:
    """Whether a sentence says something by itself: not "mine is fine", "she is fine now", nor "have a look around"."""
    content, said = features_of(fact.entry).content_terms, features_of(fact.entry).utterance
    if said.supposes > _SUPPOSES or begins_unreal(fact.entry.text) or _PATTERNS["UNTRUE"].match(fact.entry.text):
        return False
    if fact.kind is FactKind.REFUSAL and fact.entry.text.rstrip().endswith(("?", "？", "؟")):
        return False
    if said.orders > _ORDERS and is_temporary(fact.entry.text.lower()):
        return False  # "Answer this one in English."
    if REFERS_BACK.match(fact.entry.text) and fact.kind not in BINDING:
        return False
    if is_request(fact.entry):
        return fact.kind in BINDING and (said.orders >= said.asks or said.asks < _ORDERS)
    return fact.kind in BINDING or len(content) >= _CONTENT_MIN


def _is_clean(text: str, scan: ScannerGroup) -> bool:
    return not scan.find(text) and not is_suspected(text, suspicion_reason(scan.suspect(text)))
