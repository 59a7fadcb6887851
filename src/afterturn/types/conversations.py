"""Conversations: the states of turns and recalls, and messages."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class TurnStatus(StrEnum):
    """The state of a turn. `abandoned`: it was left open and not continued for a day."""

    OPEN = "open"
    COMPLETED = "completed"
    ABORTED = "aborted"
    ABANDONED = "abandoned"


class Taint(StrEnum):
    """How text of others reached the assistant in a turn. `memory`: a recalled memory that is not trusted. `earlier`:
    in an earlier turn. `unknown`: the turn could not be read, or was recorded by an older version."""

    TOOL = "tool"
    MEMORY = "memory"
    SUBAGENT = "subagent"
    EARLIER = "earlier"
    UNKNOWN = "unknown"


class HandoverPoint(StrEnum):
    """Where a block is added: after a user message, after a tool result, or as text for a prompt. `STANDING` is the
    standing block in a host's list, in front of any other block of its element."""

    USER_MESSAGE = "user_message"
    TOOL_RESULT = "tool_result"
    PROMPT = "prompt"
    STANDING = "standing"


class RecallCause(StrEnum):
    """Why a recall was started."""

    MESSAGE = "message"
    INTERJECTION = "interjection"
    CUE = "cue"
    COMPACTION = "compaction"


class Phase(StrEnum):
    """The two results of a recall: the fast one, and the one that a model refined."""

    FAST = "fast"
    REFINED = "refined"


class Outcome(StrEnum):
    """How a phase of a recall ended. Each phase ends in exactly one outcome, with a reason."""

    DELIVERED = "delivered"
    EMPTY = "empty"
    DEGRADED = "degraded"
    SUPERSEDED = "superseded"
    CANCELLED = "cancelled"
    UNDELIVERED = "undelivered"


class NoRecallReason(StrEnum):
    """Why a turn has no recall.

    `not_begun`: the turn was over, or has not reached that point. `gone`: the recall is no longer stored. `unknown`:
    the reason is no longer stored.
    """

    OFF = "off"
    NOTHING_TO_ASK = "nothing_to_ask"
    OVERLOAD = "overload"
    NOT_BEGUN = "not_begun"
    GONE = "gone"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Message:
    """One message, in no particular format. `speaker` is a role or a name; `text` may be empty."""

    role: str
    text: str
    speaker: str
    hash: str
