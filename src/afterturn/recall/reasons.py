"""The words for what becomes of memories and of recalls: one name each for programs, one sentence each for people."""

from __future__ import annotations

from afterturn.base.turns import Cause, Outcome, Point, RecallRow, Why

_SENTENCES = {
    Why.SHOWN: "it was handed over",
    Why.FLOOR: "it matches less than the {floor:.2f} that recall_score_min asks for, or much less than the best",
    Why.BUDGET: "the block had no room left for it ({entries} entries, {size} bytes, {tokens} tokens at most)",
    Why.VISIBLE: "the model sees it, or all that it was learned from, in the conversation already",
    Why.STALE: "it changed or came into sight before what was carried could be handed over",
    Why.EXCLUDED: "an earlier block shows it already, or was about to",
    Why.DELETED: "it was deleted",
    Why.EXPIRED: "it was not valid then: expired, or not yet in force",
    Why.PROPOSED: "it waited for approval",
    Why.QUARANTINED: "the guard held it back",
    Why.UNDONE: "it was taken back",
    Why.RANK: "others match better, and only the best {weighed} are weighed",
    Why.LATER: "it was not remembered yet",
    Why.MISSING: "its lane could not be searched",
    Why.UNRELATED: "it shares no word with the question",
    Why.UNFOUND: "it matches now, but was not among what was found then",
}
_FATES = {
    (Outcome.EMPTY, "no_relevant_results"): "nothing relevant was found",
    (Outcome.EMPTY, "already_visible"): "all of it was in sight already",
    (Outcome.EMPTY, "budget"): "no room was left for it",
    (Outcome.SUPERSEDED, "new_query"): "something newer was said before it could be handed over",
    (Outcome.SUPERSEDED, "compaction"): "the context was compacted, and it was asked anew",
    (Outcome.CANCELLED, "abort"): "the turn was given up",
    (Outcome.CANCELLED, "reset"): "the conversation was reset",
    (Outcome.CANCELLED, "shutdown"): "memory was closed",
    (Outcome.CANCELLED, "forgotten"): "something was forgotten meanwhile",
    (Outcome.UNDELIVERED, "no_safe_point"): "there was no place for it before the turn and the next one ended",
    (Outcome.UNDELIVERED, "compaction"): "the context was compacted before it could be handed over",
    (Outcome.UNDELIVERED, "reset"): "the conversation was reset before it could be handed over",
    (Outcome.UNDELIVERED, "abort"): "the turn was given up",
    (Outcome.UNDELIVERED, "forgotten"): "something was forgotten before it could be handed over",
    (Outcome.UNDELIVERED, "already_visible"): "all of it had come into sight meanwhile",
    (Outcome.UNDELIVERED, "budget"): "no room was left for it",
    (Outcome.UNDELIVERED, "stale"): "all of it had changed meanwhile",
    (Outcome.UNDELIVERED, "shutdown"): "memory was closed",
    (Outcome.DEGRADED, "no_relevant_results"): "nothing was found, and a part could not be searched",
    (Outcome.DEGRADED, "timeout"): "it took too long",
}
_POINTS = {
    Point.USER_MESSAGE: "after the user's message",
    Point.TOOL_RESULT: "after a tool's result",
    Point.PROMPT: "as text for the host's prompt",
}
_CAUSES = {
    Cause.MESSAGE: "the user's message",
    Cause.INTERJECTION: "said midway by the user",
    Cause.CUE: "a new focus that the host named",
    Cause.COMPACTION: "asked anew after a compaction",
}


def say(why: Why, row: RecallRow, *, by: str = "") -> str:
    """The sentence, without its full stop. `by` is the reference or the space that it speaks of."""
    if why is Why.SUPERSEDED:
        return f"a newer version took its place: {by}" if by else "another version took its place"
    if why is Why.RESTATED:
        return f"another says the same: {by}" if by else "another says the same"
    if why is Why.SCOPE and not by:
        return "it is a tool's output, which is kept as evidence and not recalled"
    if why is Why.SCOPE:
        return f"it is in {by}, which this conversation could not read (only {', '.join(row.reads)})"
    if why is Why.NOT_HANDED_OVER:
        return f"nothing was handed over: {fate(row)}"
    return _SENTENCES[why].format(
        floor=float(row.settings.get("recall_score_min") or 0.0),
        entries=row.settings.get("recall_entries_max"),
        size=row.settings.get("block_bytes_max"),
        tokens=row.settings.get("block_tokens_max"),
        weighed=len(row.candidates),
    )


def fate(row: RecallRow) -> str:
    """How a recall ended, as the second half of a sentence."""
    if row.outcome is Outcome.DELIVERED:
        return place(row.point)
    return _FATES.get((row.outcome, row.reason), f"{row.outcome} ({row.reason})" if row.reason else str(row.outcome))


def place(point: str) -> str:
    return _POINTS[Point(point)] if point in list(Point) else point


def occasion(cause: Cause) -> str:
    return _CAUSES[cause]
