"""What a compaction is about to take away is reviewed first (V9). Nobody waits for it."""

from __future__ import annotations

import functools
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from afterturn.base.config import Config
from afterturn.base.errors import AfterturnError
from afterturn.base.events import Events
from afterturn.base.ports import Clock, Ids, Store, Unit
from afterturn.base.reviews import ReviewKind, ReviewRow, Snapped
from afterturn.base.turns import Message
from afterturn.base.types import Scope
from afterturn.context.block import strip_blocks
from afterturn.context.snapshot import TAG as SNAPSHOT_TAG
from afterturn.dialects.detection import find_dialect
from afterturn.dialects.history import exchange_from
from afterturn.dialects.views import curated
from afterturn.guard.secrets import redact
from afterturn.learn.scheduling import Scheduled, join_or_schedule
from afterturn.learn.snapshot import MESSAGES_MAX, of_messages, with_sources
from afterturn.turn.place import Place
from afterturn.turn.tools import holds_answer

logger = logging.getLogger("afterturn")


@dataclass(frozen=True, slots=True)
class Compacting:
    """Lives on memory's loop. Does nothing unless it is switched on, and for a sub-agent never (V1)."""

    store: Store
    config: Config
    clock: Clock
    ids: Ids
    events: Events

    async def review(self, place: Place, messages: Sequence[object], blocks: Collection[str]) -> None:
        """Schedules a review of `messages`. What can not be read or stored is logged, and the compaction goes on."""
        if not self.config.review_compaction or place.subagent:
            return
        dialect = find_dialect(messages, place.dialect)
        if dialect is None:
            logger.warning("conversation %r: what is compacted is in no format that memory reads", place.id)
            return
        strip = functools.partial(strip_blocks, known_hashes=blocks)
        said = exchange_from(dialect, curated(dialect, messages), 0, strip).messages
        at = self.clock.now()
        snapped = of_messages([self._clean(one) for one in said if not _is_ours(one)], at)
        review_id = self.ids.new()
        try:
            done = await self.store.write(lambda unit: _schedule(unit, place, snapped, review_id, at))
        except AfterturnError as error:
            logger.warning("conversation %r: what is compacted is not reviewed: %r", place.id, error)
            return
        if done is not None:
            self.events.emit(
                "review_scheduled",
                space=place.owner,
                conversation=place.id,
                review=done.review,
                kind=done.kind.value,
                messages=done.messages,
            )

    def _clean(self, message: Message) -> Message:
        """No secret waits in a review (G1)."""
        if not self.config.scanning:
            return message
        return replace(message, text=redact(message.text).text, speaker=redact(message.speaker).text)


def _schedule(unit: Unit, place: Place, snapped: Sequence[Snapped], review_id: str, at: float) -> Scheduled | None:
    forgets = unit.operations.forgets(place.tenant, place.owner)
    _, since = unit.reviews.unreviewed(place.key)
    read = _read_before(unit, place, since)
    messages = [
        replace(message, fresh=message.source not in read)
        for message in with_sources(unit, place.key, place.writes, snapped)
    ]
    if not any(message.fresh for message in messages):
        return None
    review = ReviewRow(
        id=review_id,
        kind=ReviewKind.COMPACTION,
        tenant=place.tenant,
        space=place.owner,
        writes=place.writes,
        created_at=at,
        conversation=place.id,
        reads=place.reads,
        agent=place.agent,
        project=place.project,
        forgets=forgets,
    )
    return join_or_schedule(unit, review, messages)


def _read_before(unit: Unit, place: Place, since: int) -> set[str | None]:
    """The records that a review has read already."""
    records = unit.records.of_conversation(Scope(place.tenant, (place.writes,)), place.id, limit=MESSAGES_MAX)
    return {record.id for record in records if (record.position or 0) < since}


def _is_ours(message: Message) -> bool:
    """What memory answered a tool, and summaries of earlier compactions, which a model wrote in a user's place."""
    return (message.role == "tool" and holds_answer(message.text)) or f"<{SNAPSHOT_TAG}>" in message.text
