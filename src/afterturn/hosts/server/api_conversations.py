"""The verbs of a conversation over HTTP: standing context, compaction, and what its turns were given and why."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Query

from afterturn.conversation.conversation import Conversation
from afterturn.conversation.trace import Trace as ConversationTrace
from afterturn.conversation.trace import TracedBlock as Block
from afterturn.conversation.trace import TracedRecall as Recall
from afterturn.conversation.trace import TracedTurn as Turn
from afterturn.errors import InvalidInput, NotAllowed, NotFound
from afterturn.hosts.server import api_models as models
from afterturn.hosts.server.api_context import Context, ConversationId, Limit, Owner, RequestContext
from afterturn.recall.explain import Explained

router = APIRouter(prefix="/conversations/{conversation:name}", tags=["conversations"])

TurnName = Annotated[str | None, Query(min_length=1, max_length=200, description="An id, a number from 1 on, or last.")]
MemoryRef = Annotated[str, Query(max_length=60, description="A memory's id, or id.version.")]


async def _take_part(context: RequestContext, id: str, where: models.ConversationWhere) -> Conversation:
    if where.id not in (None, id):
        raise InvalidInput("`conversation.id` is not the conversation of the path. Leave it out.")
    return await context.conversation(where.model_copy(update={"id": id}))


@router.post("/standing")
async def standing(context: Context, conversation: ConversationId, body: models.StandingBody) -> models.TextAnswer:
    """The standing block for the system prompt: what lasts. It is frozen for the conversation."""
    found = (await _take_part(context, conversation, body.conversation)).standing(instructions=body.instructions)
    return models.TextAnswer(text=await (found.refresh() if body.refresh else found.block()))


@router.post("/compacted")
async def compacted(context: Context, conversation: ConversationId, body: models.CompactedBody) -> models.Done:
    """The context was compacted: what was removed may be recalled again."""
    (await _take_part(context, conversation, body.conversation)).compacted(body.messages)
    return models.Done()


@router.post("/compacting")
async def compacting(context: Context, conversation: ConversationId, body: models.MessagesBody) -> models.Done:
    """These messages are about to be compacted. With the setting `review_compaction`, what they teach is learned."""
    (await _take_part(context, conversation, body.conversation)).compacting(body.messages)
    return models.Done()


@router.post("/reset")
async def reset(context: Context, conversation: ConversationId, body: models.PlainBody) -> models.Done:
    """The conversation starts again: nothing counts as shown any more. Memories are kept."""
    (await _take_part(context, conversation, body.conversation)).reset()
    return models.Done()


@router.post("/expect")
async def expect(context: Context, conversation: ConversationId, body: models.TextBody) -> models.Done:
    """Starts a recall for what the user is typing. It is used if the final message is close to it."""
    (await _take_part(context, conversation, body.conversation)).expect(body.text)
    return models.Done()


@router.post("/briefing")
async def briefing(context: Context, conversation: ConversationId, body: models.PlainBody) -> models.TextAnswer:
    """How the last other conversation in the same project ended, and what was to come next; else nothing."""
    text = await (await _take_part(context, conversation, body.conversation)).briefing()
    return models.TextAnswer(text=text)


@router.post("/before_tool")
async def before_tool_outside(
    context: Context, conversation: ConversationId, body: models.ConversationToolCall
) -> models.ToolAdviceJson:
    """As the verb of a turn, for a call outside of any turn: all rules that concern it."""
    found = await _take_part(context, conversation, body.conversation)
    return models.ToolAdviceJson.model_validate(await found.before_tool(body.name, body.arguments))


@router.put("/incognito")
async def set_incognito(
    context: Context, conversation: ConversationId, body: models.IncognitoBody
) -> models.IncognitoAnswer:
    """Keeps in the store that the turns of this conversation are incognito from now on, or switches that off."""
    await (await _take_part(context, conversation, body.conversation)).set_incognito(body.on)
    return models.IncognitoAnswer(on=body.on)


@router.get("/incognito")
async def is_incognito(context: Context, conversation: ConversationId, owner: Owner = None) -> models.IncognitoAnswer:
    """Whether `set_incognito` is on."""
    found = await context.past_conversation(conversation, owner)
    return models.IncognitoAnswer(on=await found.is_incognito())


@router.get("/trace")
async def trace(
    context: Context, conversation: ConversationId, owner: Owner = None, turn: TurnName = None, limit: Limit = 20
) -> models.TraceJson:
    """What the newest turns recalled, what was delivered, what was left out and why.

    Texts of spaces that the token may not read are left out.
    """
    found = await context.past_conversation(conversation, owner)
    traced = await found.trace(turn, limit=limit)
    readable = await readable_refs(context, found, traced)
    return models.TraceJson(
        space=traced.space,
        conversation=traced.conversation,
        turns_total=traced.turns_total,
        turns=[_turn(context, one, readable) for one in traced.turns],
    )


@router.get("/why")
async def why(
    context: Context,
    conversation: ConversationId,
    memory: MemoryRef,
    owner: Owner = None,
    turn: TurnName = None,
    look_in: Annotated[list[str] | None, Query(max_length=20)] = None,
) -> models.WhyAnswers:
    """Why a memory was, or was not, in the recalls of a turn, by default the last one."""
    for space in look_in or ():
        context.check_read(space)
    found = await context.past_conversation(conversation, owner)
    answers = await found.why(memory, turn=turn, look_in=look_in or ())
    allowed = [one for one in answers if context.caller.grant.may_read(one.explained.space)]
    if not allowed:
        raise NotFound(f"There is no memory {memory!r} in the spaces of this token.")
    return models.WhyAnswers(answers=[models.WhyAnswer.model_validate(one) for one in allowed])


@router.post("/replay")
async def replay(context: Context, conversation: ConversationId, body: models.ReplayBody) -> models.ReplayJson:
    """Renders the blocks of a turn again and compares them with what was injected; with `changes`, also under other
    settings. Reads only."""
    found = await context.past_conversation(conversation, body.owner)
    traced = await found.trace(body.turn, limit=1)
    readable = await readable_refs(context, found, traced)
    for turn in traced.turns:
        spaces = [space for one in turn.recalls for space in one.row.reads]
        if not (context.may_read_all(spaces) and all(map(readable.shows, turn.blocks))):
            raise NotAllowed("This turn recalled from spaces that this token may not read.")
    return models.ReplayJson.model_validate(await found.replay(body.turn, changes=body.changes))


class ReadableRefs:
    """The references of memories that the caller may read. `everything`: whatever they are."""

    def __init__(self, known: Collection[str], *, everything: bool) -> None:
        self.known = frozenset(known)
        self.everything = everything

    def shows(self, block: Block) -> bool:
        return self.shows_all(block.refs)

    def shows_all(self, refs: Iterable[str]) -> bool:
        return self.everything or self.known.issuperset(refs)


async def readable_refs(context: RequestContext, found: Conversation, traced: ConversationTrace) -> ReadableRefs:
    """A block names its memories and not their spaces, so they are looked up in the spaces that the caller may read."""
    if context.may_read_all(("*",)):
        return ReadableRefs((), everything=True)
    wanted = {ref for turn in traced.turns for block in turn.blocks for ref in block.refs}
    wanted.update(rule.ref for turn in traced.turns for rule in turn.rules)
    spaces = {found.owner, *(space for turn in traced.turns for one in turn.recalls for space in one.row.reads)}
    spaces.update(space for space in context.caller.grant.reads if not space.endswith("*"))
    known = {
        one.ref
        for turn in traced.turns
        for recall in turn.recalls
        for one in (*recall.shown, *recall.left_out)
        if context.caller.grant.may_read(one.space)
    }
    memory = await context.memory("inspect")
    for space in sorted(filter(context.caller.grant.may_read, spaces)):
        for ref in sorted(wanted - known):
            entry_id, _, version = ref.partition(".")
            try:
                await memory.space(space).get(entry_id, version=int(version or 1))
            except NotFound:
                continue
            known.add(ref)
    return ReadableRefs(known, everything=False)


def _turn(context: RequestContext, traced: Turn, readable: ReadableRefs) -> models.TracedTurnJson:
    row = traced.turn
    return models.TracedTurnJson(
        number=traced.number,
        id=row.id,
        status=row.status,
        started_at=row.started_at,
        ended_at=row.ended_at,
        recorded_at=row.recorded_at,
        incognito=row.incognito,
        no_recall=traced.no_recall,
        not_recorded=traced.not_recorded,
        blocks=[
            models.TracedBlockJson.model_validate(one if readable.shows(one) else replace(one, text=""))
            for one in traced.blocks
        ],
        recalls=[_recall(context, one) for one in traced.recalls],
        rules=[models.TracedRuleJson.model_validate(one) for one in traced.rules if readable.shows_all([one.ref])],
    )


def _recall(context: RequestContext, traced: Recall) -> models.TracedRecallJson:
    def allowed(found: Iterable[Explained]) -> list[models.ExplainedJson]:
        may_read = context.caller.grant.may_read
        return [models.ExplainedJson.model_validate(one) for one in found if may_read(one.space)]

    row = traced.row
    return models.TracedRecallJson(
        correlation=row.correlation,
        cause=row.cause,
        phase=row.phase,
        epoch=row.epoch,
        question=row.question,
        asked_at=row.asked_at,
        milliseconds=traced.milliseconds,
        outcome=row.outcome,
        reason=row.reason,
        fate=traced.fate,
        reads=tuple(filter(context.caller.grant.may_read, row.reads)),
        missing=row.missing,
        block=row.block,
        shown=allowed(traced.shown),
        left_out=allowed(traced.left_out),
    )
