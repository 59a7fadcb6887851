"""The verbs of a turn over HTTP. Each may be repeated: a block is neither lost nor added twice, and a turn is recorded
once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

from fastapi import APIRouter

from afterturn.conversation.conversation import Conversation
from afterturn.conversation.trace import TracedTurn
from afterturn.conversation.turn import Turn
from afterturn.errors import Conflict, NotFound
from afterturn.hosts.server.api_context import Context, RequestContext, TurnId
from afterturn.hosts.server.api_models import (
    WITHIN_MAX,
    BlockAnswer,
    ConversationWhere,
    Injected,
    Inserted,
    ToolAdviceJson,
    ToolCallJson,
    TurnAbort,
    TurnBlock,
    TurnFinish,
    TurnInject,
    TurnStart,
    TurnState,
    TurnText,
    TurnWait,
)
from afterturn.hosts.server.open_turns import OpenTurn, TurnKey
from afterturn.types.conversations import Outcome, TurnStatus

RECORDED_WITHIN = 5.0
STORED_WITHIN = 2.0

router = APIRouter(tags=["turns"])


@router.post("/turns")
async def start_turn(context: Context, body: TurnStart) -> TurnState:
    """Starts a turn and its recall. With an id of yours, a repeated request gets the same turn.

    Then `inject` before each call of the model, and `finish` with the answer. A turn that was started may be continued
    after the server was restarted, for a day.
    """
    conversation = await context.conversation(body.conversation)
    id = body.turn or uuid4().hex
    async with _use(context, conversation, id, body.conversation) as slot:
        if slot.ended is not None:
            raise Conflict(f"Turn {id!r} has ended. Start a new one with another id.")
        if slot.turn is None:
            slot.turn = await conversation.start_turn(
                body.messages, id=id, speaker=body.speaker, incognito=body.incognito
            )
            slot.where = body.conversation
        return TurnState(turn=slot.turn.id, status=TurnStatus.OPEN, recorded=False)


@router.post("/turns/{turn:name}/inject")
async def inject(context: Context, turn: TurnId, body: TurnInject) -> Injected:
    """Says what to add to the messages before the model is called: blocks of this turn, the standing block, and blocks
    that you dropped while you rebuilt the list.

    Waits up to 0.2 seconds, once for each thing that the user says. Send the whole list, with what was inserted before.
    If an answer was lost, send the same request again.
    """
    conversation = await context.conversation(body.conversation)
    async with _use(context, conversation, turn, body.conversation) as slot:
        current = await _continue(slot, conversation, turn, body.conversation, messages=body.messages)
        messages = list[Any](body.messages)
        await current.inject(messages, within=_within(body.within, body.phase), phase=body.phase)
        inserted = _find_inserted(body.messages, messages)
        if inserted:
            # The client may get the answer and the server be killed: then the block must be known as ours.
            await conversation.wait_stored(STORED_WITHIN)
        return Injected(turn=turn, inserted=inserted)


@router.post("/turns/{turn:name}/block")
async def block(context: Context, turn: TurnId, body: TurnBlock) -> BlockAnswer:
    """The blocks of this turn as text, for clients that write their prompt again at every step."""
    conversation = await context.conversation(body.conversation)
    async with _use(context, conversation, turn, body.conversation) as slot:
        current = await _continue(slot, conversation, turn, body.conversation)
        text = await current.block(within=_within(body.within, body.phase), phase=body.phase)
        if text:
            await conversation.wait_stored(STORED_WITHIN)
        return BlockAnswer(turn=turn, text=text)


@router.post("/turns/{turn:name}/interject")
async def interject(context: Context, turn: TurnId, body: TurnText) -> TurnState:
    """The user said more during the turn, and you have appended it to the messages: starts a new recall.

    The same text counts once in a turn.
    """
    return await _add_text(context, turn, body, Turn.interject)


@router.post("/turns/{turn:name}/cue")
async def cue(context: Context, turn: TurnId, body: TurnText) -> TurnState:
    """The turn has a new focus, in your words: starts a new recall. At most four times in a turn; the same text counts
    once."""
    return await _add_text(context, turn, body, Turn.cue)


@router.post("/turns/{turn:name}/before_tool")
async def before_tool(context: Context, turn: TurnId, body: ToolCallJson) -> ToolAdviceJson:
    """Call it before a tool runs: the user's rules that concern this very call, each once in a turn."""
    conversation = await context.conversation(body.conversation)
    async with _use(context, conversation, turn, body.conversation) as slot:
        current = await _continue(slot, conversation, turn, body.conversation)
        return ToolAdviceJson.model_validate(await current.before_tool(body.name, body.arguments))


@router.post("/turns/{turn:name}/finish")
async def finish(context: Context, turn: TurnId, body: TurnFinish) -> TurnState:
    """The agent has answered: ends the turn, and waits until its messages are durably stored.

    A turn is recorded once, however often this is sent. `recorded` is false after `within` seconds (default: 5), and
    for a turn without an answer.
    """
    conversation = await context.conversation(body.conversation)
    within = RECORDED_WITHIN if body.within is None else body.within
    async with _use(context, conversation, turn, body.conversation) as slot:
        if slot.ended is None:
            try:
                current = await _continue(slot, conversation, turn, body.conversation)
            except Conflict:
                return await _state(conversation, turn)
            current.finish(body.messages)
            slot.ended = TurnStatus.COMPLETED
        return await _wait(slot, conversation, turn, within)


@router.post("/turns/{turn:name}/abort")
async def abort(context: Context, turn: TurnId, body: TurnAbort) -> TurnState:
    """Gives the turn up: nothing more is delivered, and nothing is recorded. A turn that has ended stays as it is."""
    conversation = await context.conversation(body.conversation)
    async with _use(context, conversation, turn, body.conversation) as slot:
        if slot.ended is None:
            try:
                current = await _continue(slot, conversation, turn, body.conversation)
            except Conflict:
                return await _state(conversation, turn)
            current.abort(body.reason)
            slot.ended = TurnStatus.ABORTED
            # Until the store knows it: the same request must not find an open turn, also after a restart.
            await current.wait_recorded(within=STORED_WITHIN)
            return TurnState(turn=turn, status=TurnStatus.ABORTED, recorded=False, reason=body.reason)
        return await _state(conversation, turn)


@router.post("/turns/{turn:name}/wait")
async def wait(context: Context, turn: TurnId, body: TurnWait) -> TurnState:
    """Waits until the turn is durably stored, at most `within` seconds (default: 5), and says how it stands."""
    conversation = await context.conversation(body.conversation)
    async with _use(context, conversation, turn, body.conversation) as slot:
        return await _wait(slot, conversation, turn, RECORDED_WITHIN if body.within is None else body.within)


@asynccontextmanager
async def _use(
    context: RequestContext, conversation: Conversation, turn: str, where: ConversationWhere
) -> AsyncIterator[OpenTurn]:
    """The turn's place among the open ones. Raises NotAllowed if it reaches more than the caller may."""
    key = TurnKey(context.caller.grant.tenant, conversation.owner, conversation.id, turn)
    async with context.service.turns.use(key, context.size_bytes) as slot:
        if slot.where is not None and slot.where is not where:
            context.check_where(slot.where)
        yield slot


async def _continue(
    slot: OpenTurn,
    conversation: Conversation,
    id: str,
    where: ConversationWhere,
    *,
    messages: Sequence[dict[str, Any]] | None = None,
) -> Turn:
    """The open turn, from the store if it is not open here. Raises NotFound, or Conflict if it has ended."""
    if slot.ended is not None:
        raise Conflict(f"Turn {id!r} has ended. Start a new one with another id.")
    if slot.turn is None:
        if messages is not None and not await _was_recalled(conversation, id):
            # The process that had started it ended before it had recalled anything.
            slot.turn = await conversation.start_turn(messages, id=id)
        else:
            slot.turn = await conversation.resume_turn(id)
        slot.where = where
    return slot.turn


async def _was_recalled(conversation: Conversation, id: str) -> bool:
    """Whether the recall of a stored turn has ended, and what it delivered is known. Raises NotFound."""
    turn = await _find_turn(conversation, id)
    known = {block.hash for block in turn.blocks}
    return any(one.row.outcome is not Outcome.DELIVERED or one.row.block in known for one in turn.recalls)


async def _find_turn(conversation: Conversation, id: str) -> TracedTurn:
    """Raises NotFound. A number is an id here."""
    (turn,) = (await conversation.trace(id)).turns
    if turn.turn.id != id:
        raise NotFound(f"Conversation {conversation.id!r} has no turn {id!r}. Start it first.")
    return turn


async def _wait(slot: OpenTurn, conversation: Conversation, turn: str, within: float) -> TurnState:
    if slot.turn is None or slot.ended is None:
        return await _state(conversation, turn)
    if slot.ended is TurnStatus.COMPLETED and await slot.turn.wait_recorded(within=within):
        return TurnState(turn=turn, status=TurnStatus.COMPLETED, recorded=True)
    try:
        state = await _state(conversation, turn)
    except NotFound:
        return TurnState(turn=turn, status=slot.ended, recorded=False)
    # Its end, or the turn itself, may not be stored yet.
    return state if state.status is not TurnStatus.OPEN else state.model_copy(update={"status": slot.ended})


async def _state(conversation: Conversation, id: str) -> TurnState:
    """How the turn stands in the store."""
    turn = await _find_turn(conversation, id)
    reason = "" if turn.not_recorded == "unknown" else turn.not_recorded
    return TurnState(turn=id, status=turn.turn.status, recorded=turn.turn.recorded_at is not None, reason=reason)


async def _add_text(context: RequestContext, turn: str, body: TurnText, add: Callable[[Turn, str], None]) -> TurnState:
    conversation = await context.conversation(body.conversation)
    async with _use(context, conversation, turn, body.conversation) as slot:
        current = await _continue(slot, conversation, turn, body.conversation)
        said = f"{add.__name__}:{body.text.strip()}"
        if said not in slot.texts:
            slot.texts.add(said)
            add(current, body.text)
        return TurnState(turn=turn, status=TurnStatus.OPEN, recorded=False)


def _within(within: float | None, phase: str) -> float | None:
    """The default of the refined phase is longer than a request may take."""
    return WITHIN_MAX if within is None and phase == "refined" else within


def _find_inserted(given: Sequence[object], changed: Sequence[Any]) -> list[Inserted]:
    """What turns the list that was sent into the one with blocks. Elements that stayed are the same objects."""
    kept, inserted, position = {id(one) for one in changed}, list[Inserted](), 0
    for index, element in enumerate(changed):
        if position < len(given) and element is given[position]:
            position += 1
            continue
        replaces = position < len(given) and id(given[position]) not in kept
        position += replaces
        inserted.append(Inserted(index=index, element=element, replaces=replaces))
    return inserted
