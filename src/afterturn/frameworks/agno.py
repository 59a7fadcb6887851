"""Memory for agents of Agno: a learning store, and hooks for the end of a run and for tool calls.

Agno puts what a learning store recalls into the system prompt, so only trusted lines go there.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, Unpack

from afterturn.conversation.turn import Turn
from afterturn.errors import InvalidInput
from afterturn.frameworks.core import FrameworkMemory, MemoryTarget, MessageFormat, RunIds, RunOptions, with_rules_in
from afterturn.frameworks.requirements import check_framework

check_framework("agno")

from agno.agent import Agent  # noqa: E402
from agno.db.in_memory import InMemoryDb  # noqa: E402
from agno.learn import LearningMachine  # noqa: E402
from agno.run import RunContext  # noqa: E402
from agno.run.agent import RunOutput  # noqa: E402
from agno.team import Team  # noqa: E402

_NAME = "afterturn"
A = TypeVar("A", Agent, Team)


class AfterturnLearning:
    """Agno's `LearningStore` over memory. `add_to(agent)` connects it to an agent: recall, recording and rules.

    `user` and `conversation` are Agno's `user_id` and `session_id` unless they are given; functions take the
    `RunContext`. A run without a user id has no memory.
    """

    learning_type = _NAME
    schema = str
    was_updated = False

    def __init__(self, memory: MemoryTarget, **options: Unpack[RunOptions]) -> None:
        if options.setdefault("trusted_only", True) is False:
            raise InvalidInput(
                "Agno puts memory into the system prompt, so only trusted lines go there. Omit `trusted_only`."
            )
        hidden: MessageFormat = {"dialect": "openai_chat", "history": "hidden"}
        self.memory = FrameworkMemory(memory, messages=hidden, needs_user=False, **options)

    def add_to(self, agent: A) -> A:
        """Adds this store and its hooks to an agent or a team, next to those that it has, and returns it.

        Agno asks learning stores only if an agent has a database. One without gets Agno's in memory.
        """
        machine = agent.learning if isinstance(agent.learning, LearningMachine) else LearningMachine()
        machine.custom_stores = {**(machine.custom_stores or {}), _NAME: self}
        agent.learning = machine
        agent.db = agent.db or InMemoryDb()  # type: ignore[no-untyped-call]
        agent.add_learnings_to_context = True
        agent.post_hooks = [*(agent.post_hooks or []), self.record]
        agent.tool_hooks = [*(agent.tool_hooks or []), self.check_tool]
        return agent

    # The store: Agno asks once for each run, when it writes the system prompt.

    def recall(self, *, message: str | None = None, run_context: RunContext | None = None, **_: Any) -> str | None:
        if not message or run_context is None:
            return None
        turn = self.memory.begin_blocking(run_context.run_id, _ids(run_context), _asked(message))
        if turn is None:
            return None
        return _joined(self.memory.blocking_system_prompt(run_context.run_id, ""), turn.block())

    async def arecall(
        self, *, message: str | None = None, run_context: RunContext | None = None, **_: Any
    ) -> str | None:
        if not message or run_context is None:
            return None
        turn = self.memory.begin(run_context.run_id, _ids(run_context), _asked(message))
        if turn is None:
            return None
        return _joined(await self.memory.system_prompt(run_context.run_id, ""), await turn.block())

    def build_context(self, data: str | None) -> str:
        return data or ""

    def instructions(self) -> str:
        return ""

    def get_tools(self, **_: Any) -> list[Callable[..., Any]]:
        return []

    async def aget_tools(self, **_: Any) -> list[Callable[..., Any]]:
        return []

    def process(self, messages: Sequence[Any], **_: Any) -> None:
        """Agno calls it while the model is still answering; `record` is called after that."""

    async def aprocess(self, messages: Sequence[Any], **_: Any) -> None:
        """See `process`."""

    # The hooks.

    def record(self, run_output: RunOutput, run_context: RunContext, agent: Agent | None = None) -> None:
        """A post-hook: the run has ended, and its messages are recorded in the background.

        Nothing is recorded of a member of a team or a step of a workflow: its task is another agent's words.
        """
        if run_context.workflow_id is not None or (agent is not None and agent.team_id is not None):
            self.memory.abort(run_context.run_id, "the task is not the user's")
            return
        messages = [message for message in run_output.messages or () if not message.from_history]
        self.memory.finish(run_context.run_id, messages)

    def check_tool(
        self, name: str, func: Callable[..., Any], args: dict[str, Any], run_context: RunContext
    ) -> str | Any | Awaitable[Any]:
        """A tool hook: a firm rule refuses the call, other rules come with its result."""
        awaited, turn = self.memory.find(run_context.run_id), self.memory.find_blocking(run_context.run_id)
        if awaited is None or turn is None:
            return func(**args)
        if inspect.iscoroutinefunction(func):
            return _check_awaited(awaited, name, func, args)
        advice = turn.before_tool(name, args)
        if advice.refusal:
            return advice.refusal
        return with_rules_in(func(**args), advice)


async def _check_awaited(turn: Turn, name: str, func: Callable[..., Any], args: dict[str, Any]) -> Any:
    advice = await turn.before_tool(name, args)
    if advice.refusal:
        return advice.refusal
    return with_rules_in(await func(**args), advice)


def _joined(*texts: str) -> str | None:
    return "\n\n".join(text for text in texts if text) or None


def _ids(run_context: RunContext) -> RunIds:
    return RunIds(run_context, conversation=run_context.session_id, user=run_context.user_id)


def _asked(message: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": message}]
