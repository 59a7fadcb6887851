"""Memory for agents and crews of CrewAI, by its hooks around model calls and tool calls.

CrewAI's storage backends are asked with a vector and no words, so this is not one of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Unpack

from afterturn.conversation.tool_advice import ToolAdvice
from afterturn.frameworks.core import FrameworkMemory, IdChoice, MemoryTarget, RunIds, RunOptions, with_rules
from afterturn.frameworks.requirements import check_framework

check_framework("crewai")

from crewai import hooks  # noqa: E402
from crewai.hooks import LLMCallHookContext, ToolCallHookContext  # noqa: E402

# CrewAI writes this line before what an agent is asked.
_HEADING = re.compile(r"\s*Current Task:\s*")
# A step of an agent whose model has no tool calls: it names the tool in its text.
_STEP = re.compile(r"^\s*Action\s*:", re.MULTILINE)


class AfterturnCrewHooks:
    """Recalls for each task of a crew and for each `agent.kickoff`, and records what was answered.

    `user` is an id, or a function that takes CrewAI's `LLMCallHookContext`. CrewAI calls hooks for every agent of the
    process. A task is the words of a program, so it is recorded as a sub-agent's; a text for `agent.kickoff` is the
    user's.
    """

    def __init__(
        self,
        memory: MemoryTarget,
        *,
        user: IdChoice = None,
        conversation: IdChoice = None,
        **options: Unpack[RunOptions],
    ) -> None:
        self.memory = FrameworkMemory(
            memory,
            user=user,
            conversation=conversation,
            messages={"dialect": "openai_chat", "history": "hidden"},
            **options,
        )

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
        key, asked = _key(context), _asked(context)
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
        self.memory.finish(_key(context), [*_asked(context), answer])

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
        turn = self.memory.find_blocking(_key(context))
        return None if turn is None else turn.before_tool(context.tool_name, dict(context.tool_input))


def _key(context: LLMCallHookContext | ToolCallHookContext) -> str:
    """An agent does one thing at a time; the two kinds of context have no other object in common."""
    return f"{id(context.agent)}/{context.task.id if context.task is not None else ''}"


def _ids(context: LLMCallHookContext) -> RunIds:
    crew, role = context.crew, getattr(context.agent, "role", None)
    conversation = f"crew-{crew.id}" if crew is not None else None
    return RunIds(context, conversation=conversation, agent=role, is_subagent=context.task is not None)


def _asked(context: LLMCallHookContext) -> list[Mapping[str, Any]]:
    """The messages from the newest text of the user on, without what CrewAI writes around it."""
    for at in range(len(context.messages) - 1, -1, -1):
        text = context.messages[at].get("content")
        if context.messages[at].get("role") == "user" and isinstance(text, str) and _HEADING.match(text):
            said = context.task.description if context.task is not None else _HEADING.sub("", text, count=1)
            return [{"role": "user", "content": said.strip()}, *context.messages[at + 1 :]]
    return []
