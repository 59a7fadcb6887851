"""Schedules a review of the messages that a compaction is about to remove, in the background."""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from afterturn.conversation.scope import ConversationScope
from afterturn.conversation.tools import holds_answer
from afterturn.dialects.detection import find_dialect
from afterturn.dialects.dialect import Dialect
from afterturn.dialects.history import any_untrusted, curated, read_exchange
from afterturn.errors import AfterturnError
from afterturn.guard.gate import Gate
from afterturn.guard.output_filter import SNAPSHOT_TAG
from afterturn.guard.pasted import has_pasted
from afterturn.learning.scheduling import ScheduledReview, join_or_schedule
from afterturn.learning.snapshot import MESSAGES_MAX, snapshot_messages, with_sources
from afterturn.log import logger
from afterturn.ports import Unit
from afterturn.recall.block import spoken_words
from afterturn.types import Message, Origin, ReviewKind, ReviewMessage, ReviewRow, Scope

if TYPE_CHECKING:
    from afterturn.services import Services


async def review_compaction(
    services: Services,
    scope: ConversationScope,
    messages: Sequence[object],
    dialect: Dialect | None,
    blocks: Collection[str],
    *,
    is_tainted: bool,
) -> None:
    """Schedules a review of `messages`, never for a sub-agent. A failure is logged and does not stop the compaction.

    `blocks` are the hashes of our own blocks. Without `dialect` the format is detected. `is_tainted`: the turn that is
    open now is tainted.
    """
    if scope.subagent:
        return
    dialect = dialect or find_dialect(messages, scope.dialect)
    if dialect is None:
        logger.warning("conversation %r: the format of the compacted messages is unknown", scope.id)
        return
    strip = functools.partial(spoken_words, known_hashes=blocks)
    exchanged = read_exchange(dialect, curated(dialect, messages), 0, strip).messages
    at = services.clock.now()
    to_review = snapshot_messages(
        [_redacted(message, services.gate) for message in exchanged if not _is_ours(message)],
        at,
        is_tainted=is_tainted
        or any_untrusted(map(dialect.read, messages))
        or any(message.role == "user" and has_pasted(message.text) for message in exchanged),
    )
    review_id = services.ids.new()
    try:
        scheduled = await services.store.write(
            lambda unit: _schedule(unit, scope, to_review, review_id, at), at=Scope(scope.tenant, (scope.owner,))
        )
    except AfterturnError as error:
        logger.warning("conversation %r: the compacted messages are not reviewed: %r", scope.id, error)
        return
    if scheduled is not None:
        services.events.emit(
            "review_scheduled",
            space=scope.owner,
            conversation=scope.id,
            review=scheduled.review,
            kind=scheduled.kind.value,
            messages=scheduled.messages,
        )


def _schedule(
    unit: Unit, scope: ConversationScope, to_review: Sequence[ReviewMessage], review_id: str, at: float
) -> ScheduledReview | None:
    """None when earlier reviews have read all of the messages, or some of them may be of an incognito turn."""
    state = unit.conversations.state(scope.key)
    if state.incognito or state.had_incognito:
        return None
    if unit.conversations.is_tainted(scope.key):
        to_review = [_as_report(message) for message in to_review]
    _, since = unit.reviews.unreviewed(scope.key)
    records = unit.records.of_conversation(Scope(scope.tenant, (scope.writes,)), scope.id, limit=MESSAGES_MAX)
    reviewed = {record.id for record in records if (record.position or 0) < since}
    messages = [
        replace(message, fresh=message.source not in reviewed)
        for message in with_sources(unit, scope.key, scope.writes, to_review)
    ]
    if not any(message.fresh for message in messages):
        return None
    review = ReviewRow(
        id=review_id,
        kind=ReviewKind.COMPACTION,
        tenant=scope.tenant,
        space=scope.owner,
        writes=scope.writes,
        created_at=at,
        conversation=scope.id,
        reads=scope.reads,
        agent=scope.agent,
        project=scope.project,
        environment=scope.environment,
        forgets=unit.conversations.forgets(scope.tenant, scope.owner),
    )
    return join_or_schedule(unit, review, messages)


def _as_report(message: ReviewMessage) -> ReviewMessage:
    return replace(message, trust=min(message.trust, Origin.TOOL.trust)) if message.role == "assistant" else message


def _redacted(message: Message, gate: Gate) -> Message:
    return replace(message, text=gate.redact(message.text).text, speaker=gate.redact(message.speaker).text)


def _is_ours(message: Message) -> bool:
    """Answers of memory's tools, and summaries of earlier compactions, which a model wrote as the user."""
    return (message.role == "tool" and holds_answer(message.text)) or f"<{SNAPSHOT_TAG}>" in message.text
