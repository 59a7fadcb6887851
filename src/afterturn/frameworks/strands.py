"""Memory for Strands Agents: a plugin for turns, and a store for Strands' own `MemoryManager`. Use one of them.

The plugin adds blocks to `agent.messages`, so sessions keep them. The store is searched when Strands asks it to be.
"""

from __future__ import annotations

import hashlib
import json
from contextvars import ContextVar
from typing import Any, TypeAlias, Unpack, cast
from uuid import uuid4

from afterturn.errors import StoreError
from afterturn.frameworks.core import FrameworkMemory, MemoryTarget, RunIds, RunOptions, with_rules
from afterturn.frameworks.requirements import check_framework
from afterturn.types import Scalar

check_framework("strands")

from strands import Agent  # noqa: E402
from strands.hooks import (  # noqa: E402
    AfterInvocationEvent,
    AfterMultiAgentInvocationEvent,
    AfterToolCallEvent,
    BeforeInvocationEvent,
    BeforeModelCallEvent,
    BeforeNodeCallEvent,
    BeforeToolCallEvent,
)
from strands.memory import (  # noqa: E402
    AddMessagesContext,
    ExtractionConfig,
    InvocationTrigger,
    MemoryEntry,
    MemoryMessageFilter,
    MemoryStore,
    SearchOptions,
)
from strands.middleware import InvokeModelStage  # noqa: E402
from strands.middleware.stages import InvokeModelContext  # noqa: E402
from strands.multiagent import MultiAgentBase, Swarm  # noqa: E402
from strands.multiagent.graph import Graph  # noqa: E402
from strands.plugins import MultiAgentPlugin, Plugin  # noqa: E402
from strands.types.content import Message, Messages  # noqa: E402

State: TypeAlias = dict[str, Any]

# Keys in Strands' `invocation_state`, which the hooks of one invocation share.
_RULES, _ORCHESTRATOR = "afterturn_rules", "afterturn_orchestrator"
_DEFAULT_AGENT = "default"
_ANSWERED = frozenset(["end_turn", "stop_sequence", "max_tokens"])
RECORDED_WITHIN = 10.0

# The agent and the conversation whose tool runs now: an agent that is invoked inside of it is a sub-agent.
_caller: ContextVar[tuple[int, str] | None] = ContextVar("afterturn_strands_caller", default=None)


class AfterturnStrandsPlugin(Plugin, MultiAgentPlugin):
    """Recalls once for each message of the user, and records each finished run: `Agent(..., plugins=[...])`.

    `user` says whose memory it is: an id, or a function that takes Strands' event, such as
    `lambda event: event.invocation_state["user_id"]`. The conversation is Strands' session unless `conversation` says
    another. Give the plugin to a `Swarm` or `Graph` too: then the request and the last answer are the turn, and
    messages between its agents count as sub-agents' words.
    """

    name = "afterturn"

    def __init__(self, memory: MemoryTarget, **options: Unpack[RunOptions]) -> None:
        super().__init__()
        self.memory = FrameworkMemory(memory, messages={"dialect": "bedrock"}, **options)

    def init_agent(self, agent: Agent) -> None:
        agent.add_hook(self._begin, BeforeInvocationEvent)
        agent.add_hook(self._inject, BeforeModelCallEvent)
        agent.add_hook(self._before_tool, BeforeToolCallEvent)
        agent.add_hook(self._after_tool, AfterToolCallEvent)
        agent.add_hook(self._finish, AfterInvocationEvent)
        agent.add_middleware(InvokeModelStage.Input, self._with_standing)

    def init_multi_agent(self, orchestrator: MultiAgentBase) -> None:
        registry = cast(Swarm | Graph, orchestrator).hooks
        registry.add_callback(BeforeNodeCallEvent, self._begin_orchestration)
        registry.add_callback(AfterMultiAgentInvocationEvent, self._finish_orchestration)

    # The hooks of an agent. Strands runs them on an event loop for `agent(...)` too.

    async def _begin(self, event: BeforeInvocationEvent) -> None:
        ids, said = _ids(event), event.messages or []
        event.invocation_state[_state_key(event.agent, "caller")] = _caller.get()
        # A run that was interrupted for a person continues without a message.
        key = (None if said else self.memory.continue_paused(ids)) or uuid4().hex
        event.invocation_state[_state_key(event.agent)] = key
        if self.memory.find(key) is None:
            self.memory.begin(key, ids, [*event.agent.messages, *said])

    async def _inject(self, event: BeforeModelCallEvent) -> None:
        turn = self.memory.find(self._key(event.agent, event.invocation_state))
        if turn is not None:
            await turn.inject(event.agent.messages)
            # A conversation manager may shorten the list before the run is reported as ended.
            event.invocation_state[_state_key(event.agent, "sent")] = list(event.agent.messages)

    async def _with_standing(self, context: InvokeModelContext) -> InvokeModelContext:
        key, prompt = self._key(context.agent, context.invocation_state), context.system_prompt
        if prompt is None or isinstance(prompt, str):
            whole = await self.memory.system_prompt(key, prompt or "")
            return context if whole == (prompt or "") else context.replace(system_prompt=whole)
        standing = (await self.memory.system_prompt(key, "")).strip()
        return context.replace(system_prompt=[*prompt, {"text": standing}]) if standing else context

    async def _before_tool(self, event: BeforeToolCallEvent) -> None:
        turn = self.memory.find(self._key(event.agent, event.invocation_state))
        _caller.set((id(event.agent), _conversation(event.agent)))
        if turn is None:
            return
        advice = await turn.before_tool(event.tool_use["name"], event.tool_use["input"])
        if advice.refusal:
            event.cancel_tool = advice.refusal
        elif advice.rules:
            event.invocation_state.setdefault(_RULES, {})[event.tool_use["toolUseId"]] = advice

    async def _after_tool(self, event: AfterToolCallEvent) -> None:
        # Tools may run in the context in which the agent was invoked, which may be that of another agent's tool.
        _caller.set(event.invocation_state.get(_state_key(event.agent, "caller")))
        advice = event.invocation_state.get(_RULES, {}).pop(event.tool_use["toolUseId"], None)
        if advice is None:
            return
        content = list(event.result["content"])
        text = content.pop().get("text", "") if content and "text" in content[-1] else ""
        event.result = {**event.result, "content": [*content, {"text": with_rules(text, advice).lstrip("\n")}]}

    async def _finish(self, event: AfterInvocationEvent) -> None:
        key, result = self._key(event.agent, event.invocation_state), event.result
        # A tool that was interrupted is not reported as ended.
        _caller.set(event.invocation_state.pop(_state_key(event.agent, "caller"), None))
        if result is not None and result.stop_reason == "interrupt":
            self.memory.pause(key)
            return
        sent = event.invocation_state.pop(_state_key(event.agent, "sent"), None)
        if result is None or result.stop_reason not in _ANSWERED or sent is None:
            self.memory.abort(key, "no answer" if result is None else str(result.stop_reason))
        else:
            self.memory.finish(key, [*sent, result.message])

    def _key(self, agent: object, state: State) -> str:
        return str(state.get(_state_key(agent), ""))

    # Swarms and graphs.

    async def _begin_orchestration(self, event: BeforeNodeCallEvent) -> None:
        state, task = event.invocation_state, getattr(getattr(event.source, "state", None), "task", None)
        if state is None or _ORCHESTRATOR in state:
            return
        state[_ORCHESTRATOR] = key = uuid4().hex
        if task:
            session = getattr(getattr(event.source, "session_manager", None), "session_id", None)
            self.memory.begin(key, RunIds(event, conversation=session), [_asked(task)])

    async def _finish_orchestration(self, event: AfterMultiAgentInvocationEvent) -> None:
        state = cast(Swarm | Graph, event.source).state
        key = str((event.invocation_state or {}).pop(_ORCHESTRATOR, ""))
        last = _last_message(state)
        if last is None or not getattr(state, "task", None):
            self.memory.abort(key, "no answer")
        else:
            self.memory.finish(key, [_asked(state.task), last])


def _state_key(agent: object, what: str = "turn") -> str:
    """A swarm passes one state to all its agents."""
    return f"afterturn_{what}_{id(agent)}"


def _ids(event: BeforeInvocationEvent) -> RunIds:
    name, caller = _conversation(event.agent), _caller.get()
    if caller is not None and caller[0] != id(event.agent):
        return RunIds(event, conversation=f"{caller[1]}/{event.agent.name}", is_subagent=True)
    return RunIds(event, conversation=name, is_subagent=_ORCHESTRATOR in event.invocation_state)


def _conversation(agent: Any) -> str:
    """Strands' session. Several agents of one session have lists of their own."""
    return f"{agent.session_id}" if agent.agent_id == _DEFAULT_AGENT else f"{agent.session_id}/{agent.agent_id}"


def _asked(task: Any) -> Message:
    return {"role": "user", "content": [{"text": task}] if isinstance(task, str) else list(task)}


def _last_message(state: Any) -> Message | None:
    """The answer of the agent that worked last, which is the answer of a swarm, and of a graph with one end."""
    order = getattr(state, "node_history", None) or getattr(state, "execution_order", None) or []
    results = getattr(state, "results", {})
    last = results.get(order[-1].node_id) if order else None
    return getattr(getattr(last, "result", None), "message", None)


class AfterturnMemoryStore(MemoryStore):
    """A store for `MemoryManager(stores=[AfterturnMemoryStore("memory.db", user="ada")])`.

    Each finished run is recorded. Make one store for each agent and each user, since Strands does not say in which
    session it searches. Text that the model adds by a tool is kept as an agent's report.
    """

    def __init__(
        self,
        memory: MemoryTarget,
        *,
        name: str = "afterturn",
        description: str | None = "What the user said in earlier conversations.",
        max_search_results: int | None = None,
        writable: bool = True,
        extraction: ExtractionConfig | bool | None = None,
        **options: Unpack[RunOptions],
    ) -> None:
        """`extraction`: when Strands passes messages on. The default is after each run, with the results of tools: they
        are not recorded, but an answer that was given after them is not trusted as one without."""
        self.name, self.description, self.max_search_results = name, description, max_search_results
        self.writable = writable
        every_run = ExtractionConfig(trigger=InvocationTrigger(), filter=MemoryMessageFilter(exclude=[]))
        self.extraction = every_run if extraction is None and writable else extraction
        self.memory = FrameworkMemory(memory, messages={"dialect": "bedrock", "history": "hidden"}, **options)
        # Strands counts messages from 0 in each manager, so numbers identify a message only together with the store.
        self._id = uuid4().hex

    async def search(self, query: str, options: SearchOptions | None = None) -> list[MemoryEntry]:
        limit = (options or {}).get("max_search_results") or self.max_search_results
        space = self.memory.space(self._ids())
        results = await (space.search(query) if limit is None else space.search(query, limit=limit))
        return [
            MemoryEntry(
                content=text, metadata={"id": hit.entry.id, "score": hit.score, "origin": str(hit.entry.origin)}
            )
            for hit, text in self.memory.readable(results.hits)
        ]

    async def add(self, content: str, metadata: dict[str, Any] | None = None) -> str:
        """Returns the memory's id. The same content is added once."""
        fields: dict[str, Scalar] = {
            key: value if isinstance(value, str | int | float | bool | None) else json.dumps(value, default=str)
            for key, value in (metadata or {}).items()
        }
        added = await self.memory.space(self._ids()).add(content, origin="agent", metadata=fields)
        return added.entry.id

    async def add_messages(self, messages: list[Message], context: AddMessagesContext | None = None) -> None:
        """Records each exchange once, also if Strands repeats it. Raises StoreError if it cannot be recorded now."""
        numbers = context.sequence_numbers if context is not None else None
        conversation = self.memory.conversation(self._ids())
        for start, exchange in _exchanges(messages):
            number = uuid4().hex if numbers is None else str(numbers[start])
            turn = conversation.turn(exchange[:1], id=self._turn_id(number, exchange))
            turn.finish(exchange)
            if not await turn.wait_recorded(within=RECORDED_WITHIN):
                raise StoreError("The messages are not recorded yet. Strands tries again with the next ones.")

    def _turn_id(self, number: str, exchange: Messages) -> str:
        said = json.dumps([[message["role"], message["content"]] for message in exchange], default=repr)
        named = f"{self._id}\n{number}\n{said}".encode("utf-8", "replace")
        return f"strands-{hashlib.blake2b(named, digest_size=12).hexdigest()}"

    def _ids(self) -> RunIds:
        return RunIds(self, conversation=self._id)


def _exchanges(messages: Messages) -> list[tuple[int, Messages]]:
    """Each message of the user with what follows it, and its index. Without an answer, the run has failed."""
    starts = [
        at
        for at, message in enumerate(messages)
        if message["role"] == "user" and not any("toolResult" in block for block in message["content"])
    ]
    found = ((start, messages[start:end]) for start, end in zip(starts, [*starts[1:], len(messages)], strict=True))
    return [(start, exchange) for start, exchange in found if exchange[-1]["role"] == "assistant"]
