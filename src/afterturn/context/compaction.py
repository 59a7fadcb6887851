"""Compaction for hosts that have none (K1): what is old is summarised by a model, the rest stays as it is.

Planning and rebuilding are pure; one model call stands between them. Nothing raises into the host.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from typing import Any, TypeAlias

from afterturn.base.answers import answer_text
from afterturn.base.ports import ChatModel
from afterturn.context.block import find_blocks
from afterturn.context.contents import element_tokens, text_tokens
from afterturn.context.snapshot import Snapshot, SnapshotMalformed, find_snapshot, parse_snapshot, with_facts
from afterturn.context.summarising import ask_again, ask_for_snapshot
from afterturn.context.transcript import is_block, transcribe
from afterturn.dialects.dialect import Dialect, Element
from afterturn.dialects.views import curated, safe_cuts

logger = logging.getLogger(__name__)

COMPACT_ABOVE = 0.5
KEEP_SHARE = 0.3
ACKNOWLEDGEMENT = "Understood. I go on from this state."

# Of the model's limit, what a request may take: the answer needs room, and estimates are estimates.
_READ_SHARE = 0.7
# A turn is better kept whole; but not when that leaves less than this of what could be kept.
_WHOLE_TURN_SHARE = 0.5

_Elements: TypeAlias = Sequence[Element | None]
FactsOf: TypeAlias = Callable[[Sequence[object]], Sequence[str]]
"""What memory had shown in a part of a history."""


def _no_facts(part: Sequence[object]) -> Sequence[str]:
    return ()


class Reason(StrEnum):
    """How a compaction ended. All but the first leave the history untouched."""

    COMPACTED = "compacted"
    BELOW_THRESHOLD = "below_threshold"
    NOTHING_TO_CUT = "nothing_to_cut"
    TIMEOUT = "timeout"
    MODEL_FAILED = "model_failed"
    EMPTY = "empty"
    MALFORMED = "malformed"
    LONGER = "longer"


@dataclass(frozen=True, slots=True)
class Plan:
    """Elements from `start` up to `cut` are summarised, with `older` as their base; instructions among them stay.

    `kept` are the places of what the user said in the turn that the cut goes through, with the blocks that follow it.
    """

    start: int
    cut: int
    kept: tuple[int, ...]
    older: Snapshot | None
    tokens: int
    tokens_summarised: int


@dataclass(frozen=True, slots=True)
class Compacted:
    """`messages` are the host's own but for the summary and its acknowledgement; all of them when nothing changed.

    `summarised` counts the elements that the summary stands for.
    """

    messages: list[object]
    changed: bool
    reason: Reason
    tokens_before: int
    tokens_after: int
    summarised: int


def plan(dialect: Dialect, messages: Sequence[object], *, limit_tokens: int) -> Plan | None:
    """None when the history takes at most half of the limit, or can not be cut anywhere. Reads all of it."""
    weights = _weights(dialect, messages)
    return _plan(dialect, messages, weights) if sum(weights) > COMPACT_ABOVE * limit_tokens else None


async def compact(
    model: ChatModel,
    dialect: Dialect,
    messages: Sequence[object],
    *,
    limit_tokens: int,
    facts: FactsOf = _no_facts,
    within: float = 30.0,
) -> Compacted:
    """Over half of `limit_tokens`: the last 30 % stay, the rest becomes a summary that tells the `facts` of that rest.

    At most two calls of the model, within `within` seconds together. Whatever fails leaves the history untouched.
    """
    asked = ask(dialect, messages, limit_tokens=limit_tokens, facts=facts)
    if isinstance(asked, Compacted):
        return asked
    return answer(dialect, messages, asked, await summarise(model, asked.request, within=within))


@dataclass(frozen=True, slots=True)
class Asked:
    """What a model is asked for, and what its answer will be put together with."""

    plan: Plan
    request: list[Mapping[str, Any]]
    facts: Sequence[str]


def ask(
    dialect: Dialect, messages: Sequence[object], *, limit_tokens: int, facts: FactsOf = _no_facts
) -> Asked | Compacted:
    """The first half of `compact`, before the model: for a worker's thread, since a long history takes a while."""
    weights = _weights(dialect, messages)
    tokens = sum(weights)
    if tokens <= COMPACT_ABOVE * limit_tokens:
        return untouched(messages, Reason.BELOW_THRESHOLD, tokens)
    planned = _plan(dialect, messages, weights)
    if planned is None:
        return untouched(messages, Reason.NOTHING_TO_CUT, tokens)
    known = facts(messages[planned.start : planned.cut])
    return Asked(planned, write_request(dialect, messages, planned, limit_tokens=limit_tokens, facts=known), known)


def answer(dialect: Dialect, messages: Sequence[object], asked: Asked, written: Snapshot | Reason) -> Compacted:
    """The second half, after it."""
    if isinstance(written, Reason):
        return untouched(messages, written, asked.plan.tokens)
    return rebuild(dialect, messages, asked.plan, with_facts(written, asked.facts))


def write_request(
    dialect: Dialect, messages: Sequence[object], planned: Plan, *, limit_tokens: int, facts: Sequence[str] = ()
) -> list[Mapping[str, Any]]:
    """What the model is asked, in OpenAI's chat format: bounded by a share of its limit, and read from the curated
    view (K2)."""
    known = text_tokens("\n".join(facts)) + (text_tokens(planned.older.text) if planned.older else 0)
    room = max(limit_tokens * _READ_SHARE / 4, limit_tokens * _READ_SHARE - known)
    history = curated(dialect, messages[planned.start : planned.cut])
    return ask_for_snapshot(transcribe(dialect, history, tokens_max=int(room)), planned.older, facts)


async def summarise(model: ChatModel, request: Sequence[Mapping[str, Any]], *, within: float) -> Snapshot | Reason:
    """One call, and a second when the answer is malformed: small models forget a tag and find it when they are told.

    The reason when there is no summary. Raises nothing but what cancels it.
    """
    try:
        async with asyncio.timeout(within):
            answer = answer_text(await model.complete(request))
            try:
                return parse_snapshot(answer)
            except SnapshotMalformed as error:
                answer = answer_text(await model.complete(ask_again(request, answer, str(error))))
    except TimeoutError:
        return Reason.TIMEOUT
    except Exception:  # the boundary: a model may fail in any way, and the host keeps the history that it has
        logger.exception("The model that summarises a history failed")
        return Reason.MODEL_FAILED
    try:
        return parse_snapshot(answer)
    except SnapshotMalformed as error:
        logger.warning("A summary could not be used: %s", error)
        return Reason.MALFORMED if answer.strip() else Reason.EMPTY


def rebuild(dialect: Dialect, messages: Sequence[object], planned: Plan, snapshot: Snapshot) -> Compacted:
    """Instructions, summary, acknowledgement, tail. Untouched when that would be no shorter."""
    tail = [*(messages[at] for at in planned.kept), *messages[planned.cut :]]
    made: list[object] = [dialect.said("user", snapshot.text)]
    # Gemini refuses a call that follows words of the model's own.
    if _role_of(dialect.read(tail[0])) != "assistant":
        made.append(dialect.said("assistant", ACKNOWLEDGEMENT))
    made_tokens = sum(element_tokens(dialect, element) for element in made)
    if made_tokens >= planned.tokens_summarised:
        return untouched(messages, Reason.LONGER, planned.tokens)
    instructions = [message for message in messages[: planned.cut] if _is_system(dialect.read(message))]
    return Compacted(
        messages=[*instructions, *made, *tail],
        changed=True,
        reason=Reason.COMPACTED,
        tokens_before=planned.tokens,
        tokens_after=planned.tokens - planned.tokens_summarised + made_tokens,
        summarised=planned.cut - len(instructions) - len(planned.kept),
    )


def block_facts(dialect: Dialect, messages: Sequence[object], known_hashes: Collection[str]) -> list[str]:
    """What our blocks in `messages` say, each once: the bullets without id and age. Forged blocks say nothing."""
    elements = (dialect.read(message) for message in messages)
    texts = [element.text_of("user") for element in elements if element is not None]
    ours = (
        text[found.start : found.end] for text in texts for found in find_blocks(text) if found.hash in known_hashes
    )
    bullets = (line for block in ours for line in block.splitlines() if line.startswith("- ["))
    return list(dict.fromkeys(bullet.partition("] ")[2].partition(", ")[2] for bullet in bullets))


def _weights(dialect: Dialect, messages: Sequence[object]) -> list[int]:
    return [element_tokens(dialect, message) for message in messages]


def _plan(dialect: Dialect, messages: Sequence[object], weights: Sequence[int]) -> Plan | None:
    elements = [dialect.read(message) for message in messages]
    leading = next((at for at, element in enumerate(elements) if not _is_system(element)), len(elements))
    older = _snapshot_at(elements, leading)
    start = leading if older is None else _after_snapshot(elements, leading)
    allowed = [cut for cut in safe_cuts(dialect, messages) if cut > start and _may_begin_at(elements, cut)]
    if not allowed:
        return None
    cut = _choose_cut(elements, allowed, weights, leading)
    kept = _running_turn(elements, start, cut)
    staying = {*kept, *(at for at in range(cut) if _is_system(elements[at]))}
    summarised = sum(weights[at] for at in range(leading, cut) if at not in staying)
    return Plan(start, cut, kept, older, sum(weights), summarised)


def _choose_cut(elements: _Elements, allowed: Sequence[int], weights: Sequence[int], leading: int) -> int:
    """The earliest that keeps no more than its share, rather at a user's message; else the one that keeps least."""
    tails = list(accumulate(reversed(weights), initial=0))[::-1]
    fitting = [cut for cut in allowed if tails[cut] <= KEEP_SHARE * tails[leading]]
    if not fitting:
        return allowed[-1]
    users = (cut for cut in fitting if _role_of(elements[cut]) == "user")
    whole = next((cut for cut in users if tails[cut] >= _WHOLE_TURN_SHARE * tails[fitting[0]]), None)
    return fitting[0] if whole is None else whole


def _may_begin_at(elements: _Elements, cut: int) -> bool:
    """With what a user says, or with what the assistant does once all its calls are answered; never with our block."""
    element = elements[cut]
    if element is None or _is_system(element) or is_block(element):
        return False
    if element.role == "user":
        return True
    before = (elements[at] for at in range(cut - 1, -1, -1))
    answered = next((earlier for earlier in before if earlier is None or not _stands_between(earlier)), None)
    return answered is not None and bool(answered.answers)


def _stands_between(element: Element) -> bool:
    return _is_system(element) or is_block(element)


def _running_turn(elements: _Elements, start: int, cut: int) -> tuple[int, ...]:
    """What the user asks for is not left to a summary; nor is a turn recorded whose question is gone (C1)."""
    if _role_of(elements[cut]) == "user":
        return ()
    first = next((at + 1 for at in range(cut - 1, start - 1, -1) if _is_final(elements, at)), start)
    kept: list[int] = []
    for at in range(first, cut):
        element = elements[at]
        if element is None or element.role != "user" or element.answers:
            continue
        if not is_block(element) or at - 1 in kept:
            kept.append(at)
    return tuple(kept)


def _is_final(elements: _Elements, at: int) -> bool:
    """An answer that ends a turn: words without a call, and nothing more of the assistant's after them."""
    element = elements[at]
    if element is None or element.role != "assistant" or element.calls or not element.said:
        return False
    return _role_of(elements[at + 1]) != "assistant"


def _snapshot_at(elements: _Elements, at: int) -> Snapshot | None:
    element = elements[at] if at < len(elements) else None
    return find_snapshot(element.text_of("user")) if element is not None else None


def _after_snapshot(elements: _Elements, at: int) -> int:
    after = elements[at + 1] if at + 1 < len(elements) else None
    is_acknowledged = after is not None and after.text_of("assistant") == ACKNOWLEDGEMENT
    return at + 2 if is_acknowledged else at + 1


def _role_of(element: Element | None) -> str:
    return "" if element is None else element.role


def _is_system(element: Element | None) -> bool:
    return _role_of(element) == "system"


def untouched(messages: Sequence[object], reason: Reason, tokens: int = 0) -> Compacted:
    return Compacted(list(messages), False, reason, tokens, tokens, 0)
