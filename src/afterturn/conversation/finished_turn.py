"""What becomes of a turn that its host has left: its own messages, stripped of our blocks, go to the recorder (C1)."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace

from afterturn.config import Config
from afterturn.conversation.recording import Recording, is_exchange
from afterturn.conversation.tools import holds_answer
from afterturn.conversation.turn_state import TurnState
from afterturn.dialects.detection import find_dialect
from afterturn.dialects.dialect import Dialect, Strip
from afterturn.dialects.history import Exchange, exchange, exchange_from, latest_user
from afterturn.guard.secrets import MARGIN_CHARS, redact, scanner
from afterturn.recall.block import strip_blocks
from afterturn.text import content_hash
from afterturn.types import BlockRow, Message

SWITCHED_OFF = "switched_off"
NO_FINAL_ANSWER = "no_final_answer"


def recording_of(
    state: TurnState,
    messages: list[object],
    blocks: Mapping[str, BlockRow],
    config: Config,
    *,
    ended_at: float,
    completed: bool,
) -> tuple[Recording | None, str]:
    """What is to be recorded, or nothing and the reason; `switched_off` only for what would have been."""
    place = state.place
    # In its middle a list tells more of its format than at its beginning.
    dialect = find_dialect(messages, place.dialect) or state.dialect
    if dialect is None:
        return None, "unknown_dialect"
    strip = functools.partial(strip_blocks, known_hashes={**blocks, **{row.hash: row for row in state.blocks}})
    start = _place_of_user(state, dialect, messages, strip)
    found = exchange_from(dialect, messages, start, strip) if start is not None else None
    if found is None or not found.messages:
        found = _exchange(dialect, messages, state.user_hash, strip)
    if not found.messages:
        return None, "no_exchange"
    if not completed and not found.ends_complete:
        return None, NO_FINAL_ANSWER
    if not is_exchange(found.messages):
        return None, "no_exchange"
    if not config.recording:
        return None, SWITCHED_OFF
    said = [_spoken_by(message, state.speaker) for message in found.messages if not _is_ours(message)]
    redacted = [_redacted(message, config) for message in said]
    recording = Recording(
        tenant=place.tenant,
        space=place.writes,
        conversation=place.id,
        turn=state.id,
        owner=place.owner,
        started_at=state.started_at,
        forgets=state.forgets_before,
        user_hash=state.user_hash,
        messages=tuple(message for message, _ in redacted),
        agent=place.agent,
        project=place.project,
        # Their texts are in the store by now or never: a file that waits must hold no memory that is forgotten.
        blocks=tuple(replace(row, text="") for row in state.blocks),
        ended_at=ended_at,
        reads=place.reads,
        subagent=place.subagent,
        redacted=tuple(kinds for _, kinds in redacted) if any(kinds for _, kinds in redacted) else (),
    )
    return recording, ""


def _place_of_user(state: TurnState, dialect: Dialect, messages: list[object], strip: Strip) -> int | None:
    """Where the turn begins, if that is known for sure: the same words may be said again in it."""
    if state.trimmed:
        return 0
    at = state.user_index
    element = dialect.read(messages[at]) if at is not None and at < len(messages) else None
    if element is None or content_hash(strip(element.text_of("user"))) != state.user_hash:
        return None
    return at


def _exchange(dialect: Dialect, messages: list[object], user_hash: str, strip: Strip) -> Exchange:
    """From the turn's user message on; from the latest one when the host has rewritten it since the turn began."""
    if user_hash and (found := exchange(dialect, messages, user_hash, strip)).messages:
        return found
    latest = latest_user(dialect, messages, strip)
    return exchange(dialect, messages, content_hash(latest[1]), strip) if latest else Exchange((), ends_complete=False)


def _redacted(message: Message, config: Config) -> tuple[Message, tuple[str, ...]]:
    """Before it waits anywhere, in memory or in a file. The host's own message stays as it is (H3)."""
    limit, scan = config.record_bytes_max, scanner(scanning=config.scanning)
    found, speaker = redact(message.text[: limit + MARGIN_CHARS], scan), redact(message.speaker, scan)
    kinds = (*found.kinds, *speaker.kinds)
    if not kinds and len(message.text) <= limit + MARGIN_CHARS:
        return message, ()
    # What is not scanned is not kept; one character too many tells the guard that it was cut.
    kept = found.text[: limit + 1]
    return replace(message, text=kept, speaker=speaker.text, hash=content_hash(kept)), kinds


def _is_ours(message: Message) -> bool:
    return message.role == "tool" and holds_answer(message.text)


def _spoken_by(message: Message, speaker: str | None) -> Message:
    return replace(message, speaker=speaker) if speaker is not None and message.role == "user" else message
