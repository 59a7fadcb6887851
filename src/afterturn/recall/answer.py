"""Answers a turn's question: searches, judges what is found, and composes the block. Checks earlier answers again.

Runs on a reader's thread. Imports neither asyncio nor numpy, so that `recall_block_once` can use it too.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from afterturn.config import Config
from afterturn.guard.output_filter import OutputFilter, neutralise
from afterturn.recall.block import Block, Budget, bullet, choose, frame_of, render
from afterturn.recall.broad_questions import read_broad_question
from afterturn.recall.duplicates import collapse, contradicting
from afterturn.recall.features import features_of
from afterturn.recall.query import COMMON_TERMS, RecallRequest, is_learned_from_seen
from afterturn.recall.relevance import judge, lines_of, replaced_by_lines, worth_showing
from afterturn.recall.scoring import ScoreKind
from afterturn.recall.search import search
from afterturn.recall.what_holds import leave_out_replaced
from afterturn.text import terms
from afterturn.types import Hit, Kind, Lane, RecallCause, SearchResults

if TYPE_CHECKING:
    from afterturn.conversation.scope import ConversationScope
    from afterturn.ports import Unit
    from afterturn.recall.index.cache import IndexCache
    from afterturn.types import BlockRow, Candidate, Scope, StandingRow

# How many lines of the profile answer a broad question.
PROFILE_LINES = 12


class ForgetEffects(NamedTuple):
    """The effects of a forget, in any process, on a turn: the number of the forget, our blocks as they are stored now,
    and the references of recalled memories that are gone."""

    forgets: int
    blocks: tuple[BlockRow, ...]
    gone: frozenset[str]


class RecallAnswer(NamedTuple):
    """The result of a recall. `hits` are worth handing over, best first; `found` is everything that was weighed.
    `is_cut`: more was found, too far behind to be weighed.

    `restated` are left out because another says the same: that one's reference, by reference; `standing` because the
    standing block does. `exhausted`: only what was shown before is relevant, so that is offered again. `withheld` must
    not be shown: the reason, by reference. `score_kind` says what the scores are.
    """

    found: SearchResults
    hits: tuple[Hit, ...]
    restated: Mapping[str, str]
    score_kind: ScoreKind
    is_cut: bool = False
    exhausted: bool = False
    forgotten: ForgetEffects | None = None
    standing: tuple[Hit, ...] = ()
    withheld: Mapping[str, str] = {}


class EarlierRecalls(NamedTuple):
    """The earlier recalls of a turn, and the number of the newest forget that it knows of."""

    scope: ConversationScope
    forgets: int
    hits: tuple[Hit, ...]


def answer_question(
    unit: Unit,
    request: RecallRequest,
    cache: IndexCache | None,
    *,
    config: Config,
    waiting: Sequence[Hit] = (),
    visible_bytes: int = 0,
    earlier: EarlierRecalls | None = None,
) -> tuple[RecallAnswer, Block | None]:
    """Recalls what is relevant and new to the model, and composes one block of it and the hits that are `waiting`.

    Exclusions apply inside the query, before any limit. With `earlier`, also finds what was forgotten since.
    """
    answer = _answer_broad(unit, request, config) or _select(unit, request, cache, config)
    is_empty = not answer.hits and not answer.standing and not set(answer.found.missing) & set(Lane)
    if is_empty and request.repeatable_refs:
        excluded = request.admitted.excluded_refs - request.repeatable_refs
        again = request._replace(admitted=request.admitted._replace(excluded_refs=excluded))
        answer = _select(unit, again, cache, config)._replace(exhausted=True)
    forgotten = None
    if earlier is not None:
        recalled = (*waiting, *earlier.hits)
        forgotten = find_forget_effects(unit, earlier.scope, earlier.forgets, recalled)
    screen = OutputFilter(scanning=config.scan_policy, projects=request.admitted.projects)
    hits = (*waiting, *answer.hits)
    block = compose(hits, config, visible_bytes=visible_bytes, now=request.now, screen=screen)
    return answer._replace(forgotten=forgotten, withheld=screen.withheld), block


def _answer_broad(unit: Unit, request: RecallRequest, config: Config) -> RecallAnswer | None:
    """Answers "what do you know about me?" from the profile. None for any other question, or with an empty profile."""
    broad = read_broad_question(request.text)
    if broad is None:
        return None
    from afterturn.recall.profile import profile_hits  # few questions are broad, and a hook feels its 2 ms

    hits = profile_hits(unit, request, broad, limit=min(PROFILE_LINES, config.recall_entries_max))
    found = SearchResults(request.text, tuple(hits), correlation=request.correlation)
    stands = request.standing
    standing = tuple(hit for hit in hits if stands is not None and is_standing(hit, stands))
    others = tuple(hit for hit in hits if hit not in standing)
    return RecallAnswer(found, others, {}, ScoreKind.PROFILE, standing=standing) if hits else None


def _select(unit: Unit, request: RecallRequest, cache: IndexCache | None, config: Config) -> RecallAnswer:
    """The lines that are likely to help."""
    searched = search(unit, request, cache)
    judged = judge(
        request.text,
        searched.hits,
        now=request.now,
        weights=searched.weights,
        names=searched.names,
        # Nothing else can be shown or selected, and a conversation keeps what it weighed until its next turn.
        keep_all=bool(config.refined) or not config.recall_score_min,
    )
    found = replace(searched, hits=tuple(judged))
    lines = lines_of(request.text, worth_showing(found.hits, config.recall_score_min))
    lines = _leave_out_learned_from_shown(unit, request, lines)
    stands = request.standing
    stated = unit.memories.versions(request.scope, stands.refs) if lines and stands is not None else {}
    current, outdated = leave_out_replaced(unit, request.scope.tenant, lines, list(stated.values()))
    # Only now: next to a standing line that answers the question, a fair one is noise.
    standing = tuple(line for line in current if stands is not None and is_standing(line, stands))
    hits, restated = collapse([line for line in current if line not in standing])
    left_out = replaced_by_lines(lines, found.hits) | outdated | {item.hit.entry.ref: item.by_ref for item in restated}
    is_cut = len(judged) < len(searched.hits)
    return RecallAnswer(found, tuple(hits), left_out, ScoreKind.CHANCE, is_cut=is_cut, standing=standing)


def _leave_out_learned_from_shown(unit: Unit, request: RecallRequest, lines: list[Hit]) -> list[Hit]:
    """Without statements that say no more than a message in an earlier block, from which they were learned since."""
    learned = {source for line in lines if line.entry.kind is Kind.STATEMENT for source in line.entry.sources}
    refs = [ref for ref in request.admitted.excluded_refs if ref.partition(".")[0] in learned]
    if not refs:
        return lines
    shown = {entry.id: features_of(entry) for entry in unit.memories.versions(request.scope, refs).values()}
    return [
        line
        for line in lines
        if not any(
            features_of(line.entry).content_terms <= shown[source].content_terms
            for source in shown.keys() & set(line.entry.sources)
        )
    ]


def is_standing(line: Hit, standing: StandingRow) -> bool:
    """Whether the standing block says all that the line would."""
    entry = line.entry
    if line.answer is not None:
        return False
    if entry.ref not in standing.refs:
        # The user may have said the same more than once.
        return f"\n- {neutralise(entry.text)}\n" in standing.text
    if entry.kind is Kind.STATEMENT:
        return True
    from afterturn.lasting_facts import FactKind, rate_sentences  # here: a hook shows no standing lines

    # A line may be worded as a statement that was learned from the message, and have a date for "tomorrow".
    known = frozenset(terms(standing.text)) | COMMON_TERMS
    sentences = rate_sentences(entry.text)
    lasting = [one.text for one in sentences if one.kind is not FactKind.PASSING]
    # "Whitby's off. Dev's mum broke her hip": only the second lasts, and the first answers a question about Whitby.
    passing = [one.text for one in sentences if one.kind is FactKind.PASSING]
    asked = frozenset(line.terms) - COMMON_TERMS
    adds = lasting and any(asked.intersection(terms(text)) for text in passing)
    return not adds and all(known.issuperset(terms(text)) for text in lasting or [entry.text])


def compose(
    hits: Iterable[Hit], config: Config, *, visible_bytes: int, now: float, screen: OutputFilter
) -> Block | None:
    """One block of the hits that fit, earlier ones first. None when nothing is left to show.

    `screen` reports afterwards what it withheld.
    """
    once = list({hit.entry.ref: hit for hit in hits}.values())
    budget = Budget.of(config, visible_bytes=visible_bytes)
    while True:
        shown = [hit for hit in once if hit.entry.ref not in screen.withheld]
        dated = contradicting(shown)
        line = functools.partial(bullet, now=now, dated=dated)
        excerpts = choose(shown, budget, frame=frame_of(shown), line=line, screen=screen)
        # A withheld memory must not influence the others: a replay renders the block without it.
        if all(hit.entry.ref not in screen.withheld for hit in shown):
            return render(excerpts, now=now, dated=dated) if excerpts else None


def mark_late(hits: Iterable[Hit], asked: str, cause: RecallCause) -> list[Hit]:
    """The hits of a recall whose message is over. The text of a cue is not the user's, so it is not quoted."""
    asked = asked if cause in (RecallCause.MESSAGE, RecallCause.INTERJECTION) else " "
    return [replace(hit, late_for=asked) for hit in hits]


# Checking again what was recalled before.


def find_forget_effects(
    unit: Unit, scope: ConversationScope, since: int, recalled: Iterable[Hit]
) -> ForgetEffects | None:
    """None when nothing was forgotten since the forget with the number `since`."""
    forgets = unit.conversations.forgets(scope.tenant)
    if forgets <= since:
        return None
    refs = frozenset(hit.entry.ref for hit in recalled)
    gone = refs.difference(unit.memories.versions(scope.readable, refs))
    return ForgetEffects(forgets, tuple(unit.conversations.known_blocks(scope.key)), gone)


def all_readable(unit: Unit, scope: ConversationScope, refs: Collection[str]) -> bool:
    """Whether all of these exist, in spaces that the host may read this time."""
    return unit.memories.versions(scope.readable, refs).keys() >= set(refs)


def all_valid(unit: Unit, scope: Scope, hits: Iterable[Hit], now: float) -> bool:
    """Whether what was recalled a while ago may still be shown: not forgotten, changed or expired since."""
    refs = {hit.entry.ref for hit in hits}
    found = unit.memories.versions(scope, refs)
    return all(ref in found and found[ref].holds(now) for ref in refs)


def any_learned_from_visible(unit: Unit, question: RecallRequest, hits: Iterable[Hit]) -> bool:
    """Whether one of these was learned only from messages that the model sees."""
    visible, tenant = question.admitted.visible_hashes, question.scope.tenant
    return any(
        is_learned_from_seen(unit, tenant, hit.entry, lambda source: source.content_hash in visible) for hit in hits
    )


def load_hits(unit: Unit, scope: Scope, asked: Iterable[str], candidates: Sequence[Candidate]) -> tuple[Hit, ...]:
    """Stored candidates as hits again: those that still exist and may be read. Long ones are cut by the terms that
    were `asked`."""
    wanted = frozenset(asked)
    named = {ref for candidate in candidates for ref in (candidate.ref, candidate.answer) if ref}
    found = unit.memories.versions(scope, named)
    hits = []
    for candidate in candidates:
        entry = found.get(candidate.ref)
        if entry is None:
            continue
        answer = found.get(candidate.answer) if candidate.answer else None
        shared = wanted.intersection(terms(entry.text))
        if answer is not None:
            shared |= wanted & features_of(answer).content_terms
        scores = (candidate.score, candidate.lexical, candidate.similarity)
        hit = Hit(entry, candidate.lane, *scores, tuple(sorted(shared)), is_earlier=candidate.is_earlier, answer=answer)
        hits.append(hit)
    return tuple(hits)
