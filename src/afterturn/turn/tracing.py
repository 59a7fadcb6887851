"""What a recall leaves behind, so that a person can see later why each memory came when it came. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from afterturn.base.config import Config
from afterturn.base.turns import BlockRow, Candidate, Outcome, Phase, RecallRow
from afterturn.base.types import Hit, Scalar
from afterturn.turn.handover import Offer
from afterturn.turn.prefetch import PhaseRun

SHOWN, FLOOR, BUDGET, RESTATED, VISIBLE = "shown", "floor", "budget", "restated", "visible"
# What shapes a block, so that `afterturn replay` can make it again, or make another.
SHAPING = (
    "recall_entries_max",
    "recall_score_min",
    "entry_bytes_max",
    "block_bytes_max",
    "block_tokens_max",
    "visible_bytes_max",
)


@dataclass(frozen=True, slots=True)
class Delivery:
    """How a phase reached the model: in which block, of which offer, and as which of the results in it."""

    row: BlockRow
    offer: Offer
    order: int


def candidates_of(hits: Iterable[Hit]) -> tuple[Candidate, ...]:
    return tuple(
        Candidate(hit.entry.ref, hit.entry.space, hit.lane, hit.score, hit.lexical, hit.similarity) for hit in hits
    )


def recall_row(run: PhaseRun, config: Config, delivery: Delivery | None) -> RecallRow:
    """Of a phase that has ended. `made_at` and `order` among the settings say how its block was put together."""
    prefetch, question, prepared = run.prefetch, run.prefetch.question, run.prefetch.prepared
    assert question is not None
    assert prefetch.asked_at is not None
    assert run.outcome is not None
    settings: dict[str, Scalar] = {name: getattr(config, name) for name in SHAPING}
    if prefetch.speculated:
        settings["speculated"] = True
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
        candidates=_judged(run, config, delivery),
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


def _judged(run: PhaseRun, config: Config, delivery: Delivery | None) -> tuple[Candidate, ...]:
    prepared = run.prefetch.prepared
    weighed = prepared.found.hits if prepared is not None and run.phase is Phase.FAST else run.hits
    restated = prepared.restated if prepared is not None else {}

    def decision(hit: Hit) -> str:
        ref = hit.entry.ref
        if ref in restated:
            return RESTATED
        if run.phase is Phase.FAST and hit.score < config.recall_score_min:
            return FLOOR
        if delivery is None:
            return BUDGET if run.outcome is Outcome.EMPTY and run.reason == BUDGET else ""
        if ref in delivery.row.refs:
            return SHOWN
        return VISIBLE if ref in delivery.offer.shown else BUDGET

    return tuple(
        replace(candidate, decision=decision(hit))
        for candidate, hit in zip(candidates_of(weighed), weighed, strict=True)
    )
