"""What a review reads: a copy of a conversation's messages, bounded, made when the review is scheduled (V2)."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import replace

from afterturn.ports import Unit
from afterturn.text import content_hash
from afterturn.types import ConversationKey, Entry, Message, Origin, ReviewMessage, Scope

MESSAGES_MAX = 200
# Read again with what is new, so that "that one" still means something.
CONTEXT_MAX = 10
BYTES_MAX = 49_152
SAID_CHARS_MAX = 6_000
TOOL_CHARS_MAX = 1_500
_CUT = " […]"
_ROLES = {Origin.USER: "user", Origin.AGENT: "assistant"}
ORIGINS = {"user": Origin.USER, "assistant": Origin.AGENT, "tool": Origin.TOOL}


def of_records(
    unit: Unit, key: ConversationKey, writes: str, *, since: int, limit: int = MESSAGES_MAX
) -> list[ReviewMessage]:
    """The conversation's newest recorded messages: those from position `since` on, and a few before them."""
    records = unit.records.of_conversation(
        Scope(key.tenant, (writes,)), key.id, limit=limit, owner=key.space if key.space != writes else None
    )
    own = [record for record in records if (record.owner or writes) == key.space]
    seen = [record for record in own if (record.position or 0) < since][-CONTEXT_MAX:]
    fresh = [record for record in own if (record.position or 0) >= since]
    return bounded([of_entry(record, fresh=False) for record in seen] + [of_entry(record) for record in fresh])


def of_messages(messages: Iterable[Message], at: float, *, subagent: bool = False) -> list[ReviewMessage]:
    """Of what a host shows, of which no more is known than the role."""
    return bounded(
        [
            ReviewMessage(message.role, message.speaker, message.text, None, _trust(message, subagent=subagent), at)
            for message in messages
            if message.role in ORIGINS and message.text.strip()
        ]
    )


def with_sources(
    unit: Unit, key: ConversationKey, writes: str, messages: Sequence[ReviewMessage]
) -> list[ReviewMessage]:
    """What was recorded since the snapshot was made is named by its record now; equal words in their order."""
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


def joined(earlier: Sequence[ReviewMessage], later: Sequence[ReviewMessage]) -> list[ReviewMessage]:
    """One snapshot of two: what both have stands once, where it was first said."""
    return bounded([*earlier, *_beyond(later, earlier)])


def unread(messages: Sequence[ReviewMessage], read: Sequence[ReviewMessage]) -> list[ReviewMessage]:
    """Those of `messages` that are not among `read`, with a few that are as context; empty when there are none."""
    left = _beyond(messages, read)
    fresh = [message for message in left if message.fresh]
    # Not from `read`: what was forgotten meanwhile is in that one still.
    seen = [replace(message, fresh=False) for message in messages if message not in left]
    return [*seen[-CONTEXT_MAX:], *fresh] if fresh else []


def _beyond(messages: Sequence[ReviewMessage], known: Sequence[ReviewMessage]) -> list[ReviewMessage]:
    """By their records; what has none by its words, as often as they were said: people say "yes" more than once."""
    sources = {message.source for message in known if message.source is not None}
    words = Counter(_words(message) for message in known)
    some_unrecorded = any(message.source is None for message in known)
    left = []
    for message in messages:
        by_words = (message.source is None or some_unrecorded) and words[_words(message)] > 0
        if message.source in sources or by_words:
            words[_words(message)] -= 1
        else:
            left.append(message)
    return left


def bounded(messages: Sequence[ReviewMessage]) -> list[ReviewMessage]:
    """Long texts are cut, then the oldest messages go."""
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


def of_entry(record: Entry, *, fresh: bool = True) -> ReviewMessage:
    """A recorded message."""
    role = _ROLES.get(record.origin, "tool")
    return ReviewMessage(role, record.speaker or role, record.text, record.id, record.trust, record.occurred_at, fresh)


def _trust(message: Message, *, subagent: bool) -> int:
    return Origin.SUBAGENT.trust if subagent else ORIGINS[message.role].trust


def _words(message: ReviewMessage) -> tuple[str, str, str]:
    return (message.role, message.speaker, content_hash(message.text))
