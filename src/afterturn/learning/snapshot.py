"""The snapshot of a review: a bounded copy of a conversation's messages, made when the review is scheduled."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from afterturn.guard.pasted import typed_text
from afterturn.guard.trust import TRUST_MIN
from afterturn.ports import Unit
from afterturn.text import content_hash
from afterturn.types import ConversationKey, Entry, Message, Origin, ReviewMessage, Scope

MESSAGES_MAX = 200
# Earlier messages that are shown again with the new ones, so that words such as "that one" make sense.
CONTEXT_MAX = 10
BYTES_MAX = 49_152
SAID_CHARS_MAX = 6_000
TOOL_CHARS_MAX = 1_500
_CUT = " […]"
_ROLES = {Origin.USER: "user", Origin.AGENT: "assistant"}
ORIGINS = {"user": Origin.USER, "assistant": Origin.AGENT, "tool": Origin.TOOL}


def snapshot_records(
    unit: Unit, key: ConversationKey, writes: str, *, since: int, limit: int = MESSAGES_MAX
) -> list[ReviewMessage]:
    """The newest recorded messages of a conversation: those from position `since` on, and a few before them."""
    records = unit.records.of_conversation(
        Scope(key.tenant, (writes,)), key.id, limit=limit, owner=key.space if key.space != writes else None
    )
    own = [record for record in records if (record.owner or writes) == key.space]
    seen = [record for record in own if (record.position or 0) < since][-CONTEXT_MAX:]
    fresh = [record for record in own if (record.position or 0) >= since]
    return truncate_snapshot(
        [snapshot_record(record, fresh=False) for record in seen] + [snapshot_record(record) for record in fresh]
    )


def snapshot_messages(messages: Iterable[Message], at: float, *, is_tainted: bool) -> list[ReviewMessage]:
    """Messages that a host passed and that may not be recorded. If they are tainted, no assistant is trusted."""
    trust = {role: origin.trust for role, origin in ORIGINS.items()}
    if is_tainted:
        trust["assistant"] = Origin.TOOL.trust
    return truncate_snapshot(
        [
            ReviewMessage(message.role, message.speaker, message.text, None, trust[message.role], at)
            for message in messages
            if message.role in ORIGINS and message.text.strip()
        ]
    )


def with_sources(
    unit: Unit, key: ConversationKey, writes: str, messages: Sequence[ReviewMessage]
) -> list[ReviewMessage]:
    """The snapshot with the ids of records that were written since it was made. Equal texts are matched in order."""
    if all(message.source is not None for message in messages):
        return list(messages)
    records = unit.records.of_conversation(Scope(key.tenant, (writes,)), key.id, limit=MESSAGES_MAX)
    by_hash: defaultdict[str, deque[str]] = defaultdict(deque)
    for record in records:
        if (record.owner or writes) == key.space:
            by_hash[record.content_hash].append(record.id)
    return [
        replace(message, source=same.popleft())
        if message.source is None and (same := by_hash[content_hash(message.text)])
        else message
        for message in messages
    ]


def merge_snapshots(earlier: Sequence[ReviewMessage], later: Sequence[ReviewMessage]) -> list[ReviewMessage]:
    """Both snapshots in one, without repeating messages that are in both."""
    return truncate_snapshot([*earlier, *_without(later, earlier)])


def unread(messages: Sequence[ReviewMessage], read: Sequence[ReviewMessage]) -> list[ReviewMessage]:
    """The messages that are not in `read`, after a few that are, as context. Empty if all were read."""
    left = _without(messages, read)
    fresh = [message for message in left if message.fresh]
    # Not taken from `read`, which may still hold messages that were forgotten since.
    seen = [replace(message, fresh=False) for message in messages if message not in left]
    return [*seen[-CONTEXT_MAX:], *fresh] if fresh else []


def _without(messages: Sequence[ReviewMessage], others: Sequence[ReviewMessage]) -> list[ReviewMessage]:
    """The messages that are not in `others`, compared by record id, or by text for messages without a record.

    A text counts as often as it was said: people say "yes" more than once.
    """
    sources = {message.source for message in others if message.source is not None}
    words = Counter(_words(message) for message in others)
    some_unrecorded = any(message.source is None for message in others)
    left = []
    for message in messages:
        by_words = (message.source is None or some_unrecorded) and words[_words(message)] > 0
        if message.source in sources or by_words:
            words[_words(message)] -= 1
        else:
            left.append(message)
    return left


def truncate_snapshot(messages: Sequence[ReviewMessage]) -> list[ReviewMessage]:
    """Cuts long texts, then drops the oldest messages."""
    kept: list[ReviewMessage] = []
    room = BYTES_MAX
    for message in reversed([_cut(message) for message in messages][-MESSAGES_MAX:]):
        room -= len(message.text.encode("utf-8", "replace"))
        if room < 0 and kept:
            break
        kept.append(message)
    return kept[::-1]


def _cut(message: ReviewMessage) -> ReviewMessage:
    limit = TOOL_CHARS_MAX if message.role == "tool" else SAID_CHARS_MAX
    return message if len(message.text) <= limit else replace(message, text=message.text[:limit] + _CUT)


def snapshot_record(record: Entry, *, fresh: bool = True) -> ReviewMessage:
    """The copy of a recorded message."""
    role = _ROLES.get(record.origin, "tool")
    return ReviewMessage(role, record.speaker or role, record.text, record.id, record.trust, record.occurred_at, fresh)


class ReviewView(NamedTuple):
    """The messages that a reviewer is shown, with the indexes of the snapshot. A message that is not shown is blank.

    `is_tainted`: it has text of others in it. Whatever a reviewer makes of that may be what the text asked for.
    """

    messages: Sequence[ReviewMessage]
    related: Sequence[Entry]
    is_tainted: bool


def views_of(messages: Sequence[ReviewMessage], related: Sequence[Entry]) -> list[ReviewView]:
    """First what the user typed and what an assistant said in clean turns, with trusted memories alone. Then
    everything, if there is more. A view without a new message is left out."""
    clean = [
        replace(message, text="" if message.trust < TRUST_MIN else typed_text(message.text))
        if message.trust < TRUST_MIN or message.role == "user"
        else message
        for message in messages
    ]
    trusted = [entry for entry in related if entry.trust >= TRUST_MIN]
    views = [ReviewView(clean, trusted, is_tainted=False), ReviewView(messages, related, is_tainted=True)]
    if clean == list(messages):
        # Reports among the memories are not worth a second look at the same messages.
        views.pop()
    return [view for view in views if any(message.fresh and message.text for message in view.messages)]


def _words(message: ReviewMessage) -> tuple[str, str, str]:
    return (message.role, message.speaker, content_hash(message.text))
