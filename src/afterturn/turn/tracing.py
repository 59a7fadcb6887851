"""What a recall leaves behind, so that a person can see later why each memory came when it came. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from afterturn.base.config import SHAPING, Config
from afterturn.base.turns import BlockRow, Candidate, Outcome, Phase, RecallRow, Why
from afterturn.base.types import Hit, Scalar
from afterturn.recall.lanes import worth_telling
from afterturn.turn.handover import Offer
from afterturn.turn.prefetch import PhaseRun
from afterturn.turn.preparing import weighed_max

# Of what was carried: changed, deleted or come into sight before it could be handed over.
STALE = Why.STALE


@dataclass(frozen=True, slots=True)
class Delivery:
    """What a phase was handed over with: which block, of which offer, and as which of the results in it."""

    row: BlockRow
    offer: Offer
    order: int


def candidates_of(hits: Iterable[Hit]) -> tuple[Candidate, ...]:
    return tuple(
        Candidate(hit.entry.ref, hit.entry.space, hit.lane, hit.score, hit.lexical, hit.similarity) for hit in hits
    )


def recall_row(run: PhaseRun, config: Config, delivery: Delivery | None) -> RecallRow:
    """Of a phase that has ended. `made_at` and `order` among the settings say how its block was put together.

    One that was weighed for a block and has nothing in it names that block too: it may have shaped it.
    """
    prefetch, question, prepared = run.prefetch, run.prefetch.question, run.prefetch.prepared
    assert question is not None
    assert prefetch.asked_at is not None
    assert run.outcome is not None
    settings: dict[str, Scalar] = {name: getattr(config, name) for name in SHAPING}
    settings["candidates_max"] = weighed_max(config)
    if prefetch.speculated:
        settings["speculated"] = True
    if prepared is not None and prepared.exhausted:
        settings["exhausted"] = True
    if question.ledger.seen_since is not None:
        settings["seen_since"] = question.ledger.seen_since
    weighed = _weighed(run)
    row = RecallRow(
        correlation=prefetch.correlation,
        turn=prefetch.turn,
        epoch=prefetch.epoch,
        cause=prefetch.cause,
        phase=run.phase,
        question=question.text,
        asked_at=prefetch.asked_at,
        settled_at=run.settled_at,
        outcome=run.outcome,
        reason=run.reason,
        reads=question.place.reads,
        missing=prepared.found.missing if prepared else (),
        excluded=tuple(sorted(question.ledger.refs)),
        visible=tuple(sorted(question.ledger.message_hashes)),
        visible_bytes=question.ledger.size_bytes,
        terms=tuple(sorted({term for hit in weighed for term in hit.terms})),
        candidates=_judged(run, weighed, config, delivery),
        settings=settings,
    )
    return row if delivery is None else _delivered(row, delivery)


def _delivered(row: RecallRow, delivery: Delivery) -> RecallRow:
    block, offer = delivery.row, delivery.offer
    return replace(
        row,
        visible_bytes=offer.visible_bytes,
        settings={**row.settings, "made_at": offer.made_at, "order": delivery.order},
        point=block.point,
        block=block.hash,
        delivered_in=block.turn,
        delivered_at=block.injected_at,
    )


def _weighed(run: PhaseRun) -> tuple[Hit, ...]:
    """What was to be handed over, in its order; then what was left out before."""
    prepared = run.prefetch.prepared
    found = prepared.found.hits if prepared is not None and run.phase is Phase.FAST else ()
    offered = {hit.entry.ref for hit in run.hits}
    return (*run.hits, *(hit for hit in found if hit.entry.ref not in offered))


def _judged(
    run: PhaseRun, weighed: tuple[Hit, ...], config: Config, delivery: Delivery | None
) -> tuple[Candidate, ...]:
    offered = len(run.hits)
    worthy = _worthy(run, config)
    decisions = [
        _handed_over(run, hit, delivery) if place < offered else _left_out(run, hit, worthy)
        for place, hit in enumerate(weighed)
    ]
    return tuple(
        replace(candidate, decision=decision)
        for candidate, decision in zip(candidates_of(weighed), decisions, strict=True)
    )


def _worthy(run: PhaseRun, config: Config) -> frozenset[str]:
    """The references of what was found and is not below the floor."""
    prepared = run.prefetch.prepared
    found = prepared.found.hits if prepared is not None else ()
    return frozenset(hit.entry.ref for hit in worth_telling(found, config.recall_score_min))


def _left_out(run: PhaseRun, hit: Hit, worthy: frozenset[str]) -> Why:
    """Why it was not among what was to be handed over."""
    prepared = run.prefetch.prepared
    if prepared is not None and hit.entry.ref in prepared.restated:
        return Why.RESTATED
    if prepared is not None and hit.entry.ref not in worthy:
        return Why.FLOOR
    return STALE


def _handed_over(run: PhaseRun, hit: Hit, delivery: Delivery | None) -> Why | None:
    if hit.entry.ref in run.prefetch.withheld:
        return Why.QUARANTINED
    if delivery is not None:
        if hit.entry.ref in delivery.offer.block.refs:
            return Why.SHOWN
        return Why.VISIBLE if hit.entry.ref in delivery.offer.shown else Why.BUDGET
    if run.outcome is not Outcome.DELIVERED and run.reason in (Why.BUDGET, "already_visible"):
        return Why.BUDGET if run.reason == Why.BUDGET else Why.VISIBLE
    return None
