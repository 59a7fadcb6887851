"""Memory for Google's Agent Development Kit: a plugin for turns, and a memory service for ADK's own memory tools.

ADK builds the list of contents again for every model call. The plugin puts the same blocks back into the same places,
so the session has only what was said, and the beginning of the next request is the same.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Unpack

from afterturn.conversation.turn import Turn, wait_read
from afterturn.dialects.dialect import Element, Utterance
from afterturn.dialects.gemini import Gemini
from afterturn.dialects.history import register_dialect
from afterturn.errors import InvalidName, NotFound
from afterturn.frameworks.core import (
    BoundedDict,
    FrameworkMemory,
    IdChoice,
    MemoryTarget,
    RunIds,
    RunOptions,
    with_rules_in,
)
from afterturn.frameworks.requirements import check_framework
from afterturn.guard.pasted import has_pasted
from afterturn.memory import Space
from afterturn.recall.block import describe_author
from afterturn.runtime.clock import derive_id
from afterturn.tool_rules.advice import NO_ADVICE, ToolAdvice
from afterturn.types import PASTED, Draft, Entry, Filter, Kind, Origin, Target

check_framework("google-adk")

from google.adk.agents.callback_context import CallbackContext  # noqa: E402
from google.adk.agents.invocation_context import InvocationContext  # noqa: E402
from google.adk.events.event import Event  # noqa: E402
from google.adk.memory.base_memory_service import BaseMemoryService, SearchMemoryResponse  # noqa: E402
from google.adk.memory.memory_entry import MemoryEntry  # noqa: E402
from google.adk.models.llm_request import LlmRequest  # noqa: E402
from google.adk.plugins.base_plugin import BasePlugin  # noqa: E402
from google.adk.sessions.session import Session  # noqa: E402
from google.adk.tools.base_tool import BaseTool  # noqa: E402
from google.adk.tools.tool_context import ToolContext  # noqa: E402
from google.genai import types  # noqa: E402

_DIALECT = "google_adk"
_USER = "user"
# How long the first call of the model in a turn may wait until earlier blocks can be put back.
_READ_WITHIN = 2.0
# In the path of a node that another one runs: an agent of a workflow, or one that was given a task.
_NODE_OF_NODE = "/"
# The invocations whose tools are running here: a runner that is started inside one of them runs a sub-agent.
_outer: ContextVar[tuple[str, ...]] = ContextVar("afterturn_google_adk_outer", default=())


class AfterturnPlugin(BasePlugin):
    """Recalls once for each message of the user, and records each finished invocation: `App(..., plugins=[...])`.

    The memory is that of ADK's user id, in all apps that use the same store. The conversation is the session, and the
    app is its project. `user` and `conversation` change that: an id, or a function that takes the `InvocationContext`.
    `user=lambda run: f"{run.app_name}.{run.user_id}"` keeps apps apart.
    """

    def __init__(
        self,
        memory: MemoryTarget,
        *,
        name: str = "afterturn",
        **options: Unpack[RunOptions],
    ) -> None:
        super().__init__(name)
        self.memory = FrameworkMemory(memory, messages={"dialect": _DIALECT}, needs_user=False, **options)
        # ADK does not report the end of every call.
        self._advice: BoundedDict[tuple[str, str], ToolAdvice] = BoundedDict()

    async def close(self) -> None:
        """Waits until everything is recorded, and closes a store that this plugin has opened."""
        await asyncio.to_thread(self.memory.close)

    # The callbacks of ADK.

    async def on_user_message_callback(
        self, *, invocation_context: InvocationContext, user_message: types.Content
    ) -> None:
        if text := _text(user_message):
            self.memory.expect(self._ids(invocation_context), text)

    async def before_model_callback(self, *, callback_context: CallbackContext, llm_request: LlmRequest) -> None:
        run = callback_context.get_invocation_context()
        if _NODE_OF_NODE in callback_context.node_path and not _shows_user(run, llm_request.contents):
            return
        turn = self._find_turn(run, llm_request.contents)
        if turn is None:
            return
        standing = await self.memory.system_prompt(run.invocation_id, "")
        if standing.strip():
            llm_request.append_instructions([standing.strip()])
        # ADK's list never has our blocks. Which ones to put back is known when the turn's list was read; on a busy
        # machine that may take longer than the grace.
        await wait_read(turn, within=_READ_WITHIN)
        await turn.inject(llm_request.contents)

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext
    ) -> dict[str, Any] | None:
        turn = self.memory.find(tool_context.invocation_id)
        advice = await turn.before_tool(tool.name, tool_args) if turn is not None else NO_ADVICE
        if advice.refusal:
            return {"error": advice.refusal}
        self._advice[_call(tool_context)] = advice
        _outer.set((*_outer.get(), tool_context.invocation_id))
        return None

    async def after_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext, result: Any
    ) -> Any:
        """ADK passes on what a tool returned, which need not be a mapping."""
        advice = self._leave_tool(tool_context)
        return None if not advice.rules else with_rules_in(result, advice)

    async def on_tool_error_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext, error: Exception
    ) -> None:
        self._leave_tool(tool_context)

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        said = _said(invocation_context)
        # Without an answer, it waits for a person or a long-running tool, and goes on in another run.
        if said and said[-1].author != _USER and _text(said[-1].content) and not said[-1].get_function_calls():
            contents = [event.content for event in said]
            self._find_turn(invocation_context, contents)
            self.memory.finish(invocation_context.invocation_id, contents)

    async def on_run_error_callback(self, *, invocation_context: InvocationContext, error: Exception) -> None:
        self.memory.abort(invocation_context.invocation_id, type(error).__name__)

    def _find_turn(self, run: InvocationContext, contents: Sequence[object]) -> Turn | None:
        """The turn has the id of the invocation, so that one which goes on after its end is recorded once."""
        key = run.invocation_id
        return self.memory.find_or_begin(key, self._ids(run), contents, turn_id=key)

    def _ids(self, run: InvocationContext) -> RunIds:
        outer = (invocation for invocation in _outer.get() if invocation != run.invocation_id)
        return RunIds(
            run,
            conversation=_conversation(run.app_name, run.session.id),
            user=run.user_id,
            project=run.app_name,
            # One that has ended is none: ADK does not report the end of a tool call if another plugin has failed.
            is_subagent=any(self.memory.find(invocation) is not None for invocation in outer),
        )

    def _leave_tool(self, tool_context: ToolContext) -> ToolAdvice:
        advice = self._advice.pop(_call(tool_context), None)
        if advice is not None:
            _outer.set(_outer.get()[:-1])
        return advice or NO_ADVICE


def _shows_user(run: InvocationContext, contents: Sequence[types.Content]) -> bool:
    """Whether an agent reads what the user said. Others get a task, or what a node before them wrote, as the user's."""
    own = (event for event in reversed(run.session.events) if event.invocation_id == run.invocation_id)
    prompts = (event.content for event in own if event.author == _USER and not event.get_function_responses())
    message = next(prompts, None)
    return message is None or any(content.role == _USER and content.parts == message.parts for content in contents)


def _said(run: InvocationContext) -> list[Event]:
    """The events of an invocation, without those of agents that were run as a tool: their answers are results."""
    own = [event for event in run.session.events if event.invocation_id == run.invocation_id and event.content]
    # The name of their branch ends with the id of the call.
    calls = tuple(f"@{call.id}" for event in own for call in event.get_function_calls())
    return [event for event in own if not any(call in (event.branch or "") for call in calls)]


def _call(tool_context: ToolContext) -> tuple[str, str]:
    return tool_context.invocation_id, tool_context.function_call_id or ""


def _conversation(app_name: str, session_id: str) -> str:
    """Ids of sessions are unique within an app."""
    return f"{app_name}/{session_id}"


def _text(content: types.Content | None) -> str:
    """What was said, without thoughts, calls and files."""
    parts = (content.parts if content is not None else None) or ()
    return "".join(part.text for part in parts if part.text and not part.thought)


# The message format.

# ADK gives these texts the role of the user. They are the beginnings of what it writes itself.
_OF_ADK = (
    "For context: below is a transcript of what another agent did",
    "<<<BEGIN_SYSTEM_INSTRUCTION>>>",
    "The following content is from your previous conversations with the user.",
)


# Functions of ADK by which an agent hands over to another, or a person approves a call. No tool says anything there.
_FUNCTIONS_OF_ADK = frozenset(["transfer_to_agent", "adk_request_confirmation", "adk_request_credential"])


class AdkContents(Gemini):
    """Gemini's contents, in which ADK also tells an agent what other agents did, and what its own memory tool found."""

    name = _DIALECT

    def read(self, message: object) -> Element | None:
        element = super().read(message)
        if element is None:
            return None
        calls = (*element.calls, *element.answers)
        if calls and _FUNCTIONS_OF_ADK.issuperset(calls) and not element.text_of("assistant"):
            return replace(element, utterances=(Utterance("system", ""),) * len(calls))
        if not calls and element.text_of("user").startswith(_OF_ADK):
            return Element((Utterance("system", element.text_of("user")),))
        return element


register_dialect(AdkContents())


# The memory service.

_HITS_MAX = 10


@dataclass(frozen=True, slots=True)
class MemoryScope:
    """Whose memory ADK asks for. It has the names of an `InvocationContext`, so that one function can take both."""

    app_name: str
    user_id: str


class AfterturnMemoryService(BaseMemoryService):
    """ADK's memory service: `Runner(..., memory_service=...)`, for the tools `load_memory` and `preload_memory`.

    Each app sees only what was added for it and for the same user, by this service or by the plugin. `user` must be the
    same as the plugin's. Events are stored as records, once for each event; they are found, and nothing else is
    learned from them, so add no session that the plugin has recorded.
    """

    def __init__(self, memory: MemoryTarget, *, user: IdChoice = None) -> None:
        self.memory = FrameworkMemory(memory, user=user, needs_user=False)

    async def add_session_to_memory(self, session: Session) -> None:
        await self.add_events_to_memory(
            app_name=session.app_name, user_id=session.user_id, events=session.events, session_id=session.id
        )

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Event],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        conversation = None if session_id is None else _conversation(app_name, session_id)
        drafts = _records(events, MemoryScope(app_name, user_id), conversation, custom_metadata or {})
        await self._space(app_name, user_id).add_many(list(drafts))

    async def add_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memories: Sequence[MemoryEntry],
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """What the user says is the user's; what any other author says, or nobody, is kept as a report."""
        space = self._space(app_name, user_id)
        for memory in memories:
            metadata: dict[str, Any] = {**(custom_metadata or {}), **memory.custom_metadata}
            await space.add(
                _text(memory.content),
                origin=Origin.USER if memory.author == _USER else Origin.AGENT,
                speaker=memory.author,
                project=app_name,
                metadata=metadata,
                occurred_at=_moment(memory.timestamp),
            )

    async def search_memory(self, *, app_name: str, user_id: str, query: str) -> SearchMemoryResponse:
        if not query.strip():
            return SearchMemoryResponse()
        space = self._space(app_name, user_id)
        found = await space.search(query, limit=_HITS_MAX, filter=Filter(project=app_name))
        memories = [_found(hit.entry, text) for hit, text in self.memory.readable(found.hits)]
        return SearchMemoryResponse(memories=memories)

    async def delete_memory(self, *, app_name: str, user_id: str, memory_id: str | None = None) -> None:
        """Hides it from every search. Like ADK's own services, it ignores an id that is not known."""
        if not memory_id:
            return
        space = self._space(app_name, user_id)
        try:
            if (await space.get(memory_id)).project == app_name:
                await space.delete(memory_id)
        except (NotFound, InvalidName):
            return

    def _space(self, app_name: str, user_id: str) -> Space:
        return self.memory.space(RunIds(MemoryScope(app_name, user_id), user=user_id))


def _records(
    events: Iterable[Event], scope: MemoryScope, conversation: str | None, metadata: Mapping[str, Any]
) -> Iterable[Draft]:
    positions: Counter[str] = Counter()
    for event in events:
        text = _text(event.content)
        if event.partial or not text.strip():
            continue
        is_user = event.author == _USER
        pasted = {PASTED: True} if is_user and has_pasted(text) else {}
        yield Draft(
            text=text,
            kind=Kind.RECORD,
            id=derive_id(event.timestamp, f"{scope.app_name}\0{scope.user_id}\0{event.id}"),
            origin=Origin.USER if is_user else Origin.AGENT,
            target=Target.USER if is_user else Target.ENVIRONMENT,
            speaker=_USER if is_user else "assistant",
            agent=None if is_user else event.author,
            project=scope.app_name,
            conversation=conversation,
            turn=event.invocation_id or None,
            position=positions[event.invocation_id],
            occurred_at=event.timestamp,
            metadata={**metadata, **pasted},
        )
        positions[event.invocation_id] += 1


def _found(entry: Entry, text: str) -> MemoryEntry:
    """A result in ADK's form."""
    role = _USER if entry.origin is Origin.USER else "model"
    return MemoryEntry(
        id=entry.id,
        content=types.Content(role=role, parts=[types.Part(text=text)]),
        author=describe_author(entry),
        timestamp=datetime.fromtimestamp(entry.occurred_at, UTC).isoformat(),
        custom_metadata=dict(entry.metadata),
    )


def _moment(timestamp: str | None) -> datetime | None:
    """ADK's own services write local times without a zone."""
    return None if timestamp is None else datetime.fromisoformat(timestamp).astimezone()
