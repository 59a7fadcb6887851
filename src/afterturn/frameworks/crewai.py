"""Memory for agents and crews of CrewAI, by its hooks around model calls and tool calls.

CrewAI's storage backends are asked with a vector and no words, so this is not one of them.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Unpack
from uuid import uuid4

from afterturn.frameworks.core import (
    BoundedDict,
    FrameworkMemory,
    MemoryTarget,
    MessageFormat,
    RunIds,
    RunOptions,
    with_rules,
)
from afterturn.frameworks.requirements import check_framework
from afterturn.tool_rules.advice import ToolAdvice

check_framework("crewai")

from crewai import hooks  # noqa: E402
from crewai.hooks import LLMCallHookContext, ToolCallHookContext  # noqa: E402

# CrewAI writes this line before what an agent is asked, and more after it: what its own memory has, and instructions.
_HEADING = re.compile(r"\s*Current Task:\s*")
_ENDING = re.compile(
    r"\n\s*(# Memories from past conversations:|Begin! This is VERY important|Provide your complete response:\s*\Z).*",
    re.DOTALL,
)
# A step of an agent whose model has no tool calls: it names the tool in its text.
_STEP = re.compile(r"^\s*Action\s*:", re.MULTILINE)


class AfterturnCrewHooks:
    """Recalls for each task of a crew and for each `agent.kickoff`, and records what was answered.

    `user` is an id, or a function that takes CrewAI's `LLMCallHookContext`. CrewAI calls hooks for every agent of the
    process. A task is the words of a program, so it is recorded as a sub-agent's; a text for `agent.kickoff` is the
    user's.
    """

    def __init__(self, memory: MemoryTarget, **options: Unpack[RunOptions]) -> None:
        hidden: MessageFormat = {"dialect": "openai_chat", "history": "hidden"}
        self.memory = FrameworkMemory(memory, messages=hidden, standing="inject", **options)
        self._lock = threading.Lock()
        self._open: BoundedDict[tuple[int, str], _OpenExecution] = BoundedDict()

    def install(self) -> AfterturnCrewHooks:
        """Registers the hooks with CrewAI, until `remove` is called."""
        hooks.register_before_llm_call_hook(self.before_model)
        hooks.register_after_llm_call_hook(self.after_model)
        hooks.register_before_tool_call_hook(self.before_tool)
        hooks.register_after_tool_call_hook(self.after_tool)
        return self

    def remove(self) -> None:
        hooks.unregister_before_llm_call_hook(self.before_model)
        hooks.unregister_after_llm_call_hook(self.after_model)
        hooks.unregister_before_tool_call_hook(self.before_tool)
        hooks.unregister_after_tool_call_hook(self.after_tool)

    # The hooks.

    def before_model(self, context: LLMCallHookContext) -> None:
        if context.executor is None:
            return
        key, asked = self._key(context), _asked(context)
        turn = self.memory.find_blocking(key) if context.iterations else None
        if turn is None and asked:
            turn = self.memory.begin_blocking(key, _ids(context), asked[:1])
        if turn is not None:
            turn.inject(context.messages)

    def after_model(self, context: LLMCallHookContext) -> None:
        """CrewAI calls it for answers in words, which are the last unless they name a tool."""
        if context.executor is None or not context.response or _STEP.search(context.response):
            return
        answer = {"role": "assistant", "content": context.response}
        self.memory.finish(self._key(context), [*_asked(context), answer])
        with self._lock:
            self._open.pop((id(context.executor), _task_id(context)), None)

    def before_tool(self, context: ToolCallHookContext) -> bool | None:
        """False keeps CrewAI from running the tool; `after_tool` then says why."""
        advice = self._advise(context)
        return False if advice is not None and advice.refusal else None

    def after_tool(self, context: ToolCallHookContext) -> str | None:
        """Gets the same rules again: CrewAI has no object that lasts from one hook to the other."""
        advice = self._advise(context)
        if advice is None or not isinstance(context.tool_result, str):
            return None
        return advice.refusal or with_rules(context.tool_result, advice)

    def _advise(self, context: ToolCallHookContext) -> ToolAdvice | None:
        turn = self.memory.find_blocking(self._key_of_tool(context))
        return None if turn is None else turn.before_tool(context.tool_name, dict(context.tool_input))

    # Executions. One agent may be asked by several threads at once, each time with an executor of its own.

    def _key(self, context: LLMCallHookContext) -> str:
        name = (id(context.executor), _task_id(context))
        with self._lock:
            if name not in self._open:
                self._open[name] = _OpenExecution(uuid4().hex, context.executor, context.agent)
            return self._open[name].key

    def _key_of_tool(self, context: ToolCallHookContext) -> str:
        """The hooks of tools are not given the executor, but the tool is one of those that it has."""
        with self._lock:
            running = [one for (_, task), one in self._open.items() if task == _task_id(context)]
        running = [one for one in running if one.agent is context.agent]
        owning = [one for one in running if any(tool is context.tool for tool in getattr(one.executor, "tools", ()))]
        found = owning or running
        return found[0].key if len(found) == 1 else ""


@dataclass(frozen=True, slots=True)
class _OpenExecution:
    """An executor that has asked the model. It is kept, so that no other object gets its id."""

    key: str
    executor: object
    agent: object


def _task_id(context: LLMCallHookContext | ToolCallHookContext) -> str:
    return str(context.task.id) if context.task is not None else ""


def _ids(context: LLMCallHookContext) -> RunIds:
    crew, role = context.crew, getattr(context.agent, "role", None)
    conversation = f"crew-{crew.id}" if crew is not None else None
    return RunIds(context, conversation=conversation, agent=role, is_subagent=context.task is not None)


def _asked(context: LLMCallHookContext) -> list[Mapping[str, Any]]:
    """The messages from the newest text of the user on, without what CrewAI writes around it."""
    for at in range(len(context.messages) - 1, -1, -1):
        text = context.messages[at].get("content")
        if context.messages[at].get("role") == "user" and isinstance(text, str) and _HEADING.match(text):
            said = _ENDING.sub("", _HEADING.sub("", text, count=1))
            said = context.task.description if context.task is not None else said
            return [{"role": "user", "content": said.strip()}, *context.messages[at + 1 :]]
    return []
