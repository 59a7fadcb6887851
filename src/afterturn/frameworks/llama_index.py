"""Memory for agents of LlamaIndex: its `Memory`, which keeps the messages of a session, with recall and recording.

LlamaIndex asks its memory blocks at each step and never passes them the answer, so this is not a memory block.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from afterturn.dialects.dialect import (
    Element,
    ToolDefinition,
    Utterance,
    field,
    join_lines,
    list_field,
    read_user,
    text_field,
)
from afterturn.dialects.history import register_dialect
from afterturn.dialects.openai_chat import OpenAIChat
from afterturn.frameworks.core import FrameworkMemory, IdChoice, MemoryTarget, MessageFormat, RunIds, RunOptions
from afterturn.frameworks.requirements import check_framework

check_framework("llama-index")

from llama_index.core.base.llms.types import ChatMessage, MessageRole, TextBlock  # noqa: E402
from llama_index.core.bridge.pydantic import PrivateAttr  # noqa: E402
from llama_index.core.memory import Memory as LlamaIndexMemory  # noqa: E402
from llama_index.core.storage.chat_store.base_db import MessageStatus  # noqa: E402

_ROLES = {
    MessageRole.SYSTEM: "system",
    MessageRole.DEVELOPER: "system",
    MessageRole.USER: "user",
    MessageRole.ASSISTANT: "assistant",
    MessageRole.CHATBOT: "assistant",
    MessageRole.MODEL: "assistant",
    MessageRole.TOOL: "tool",
    MessageRole.FUNCTION: "tool",
}
_CALL, _THINKING = "tool_call", "thinking"
# An agent without tool calls of the API keeps the results of its tools in its own message, below such lines.
_OBSERVATION = re.compile(r"^Observation:", re.MULTILINE)


class LlamaIndexMessages:
    """LlamaIndex's `ChatMessage`: blocks with a `block_type`; calls are blocks or additional arguments."""

    name = "llama_index"
    alternates = False

    def recognises(self, message: object) -> bool | None:
        return isinstance(message, ChatMessage)

    def read(self, message: object) -> Element | None:
        if not isinstance(message, ChatMessage) or (role := _ROLES.get(message.role)) is None:
            return None
        blocks = [{"type": block.block_type, "text": text_field(block, "text")} for block in message.blocks]
        text = join_lines(text_field(block, "text") for block in blocks if block["type"] == "text")
        if role == "user":
            return read_user(blocks, ("text",))
        if role == "assistant":
            return _assistant(message, text)
        if role == "system":
            return Element((Utterance("system", text),))
        answered = text_field(message.additional_kwargs, "tool_call_id") or ""
        return Element((Utterance("tool", text),), answers=(answered,))

    def make_message(self, role: str, text: str) -> object:
        return ChatMessage(role=role, blocks=[TextBlock(text=text)])

    def merged(self, message: object, text: str) -> object | None:
        if not isinstance(message, ChatMessage) or message.role != MessageRole.USER:
            return None
        return message.model_copy(update={"blocks": [*message.blocks, TextBlock(text=text)]})

    def tool(self, definition: ToolDefinition) -> Mapping[str, Any]:
        return OpenAIChat().tool(definition)


def _assistant(message: ChatMessage, text: str) -> Element:
    calls = [text_field(block, "tool_call_id") for block in message.blocks if block.block_type == _CALL]
    calls = calls or [text_field(call, "id") for call in list_field(message.additional_kwargs, "tool_calls")]
    kinds = {block.block_type for block in message.blocks}
    quotes = field(message.additional_kwargs, "annotations") is not None or _OBSERVATION.search(text) is not None
    outside = bool(kinds - {"text", _CALL, _THINKING}) or quotes
    is_silent = not text and (bool(calls) or bool(kinds - {"text"}))
    spoken = () if is_silent else (Utterance("assistant", text),)
    return Element(spoken, calls=tuple(call or "" for call in calls), outside=outside)


register_dialect(LlamaIndexMessages())


class AfterturnChatMemory(LlamaIndexMemory):
    """LlamaIndex's own memory of a session, with what afterturn recalls: pass it as `agent.run(..., memory=memory)`.

    A block becomes a message after the user's. A recall that is later than the first step is offered in the next turn:
    LlamaIndex adds the messages of a tool loop only when the loop has ended.
    """

    _framework_memory: FrameworkMemory = PrivateAttr()

    @classmethod
    def open(
        cls,
        memory: MemoryTarget,
        *,
        user: IdChoice = None,
        session_id: str | None = None,
        options: RunOptions | None = None,
        **arguments: Any,
    ) -> AfterturnChatMemory:
        """A session's memory, which is the conversation. `user` is an id, or a function that takes this object.

        `options` are those of a conversation. `arguments` are those of LlamaIndex's `Memory.from_defaults`.
        """
        made = cls.from_defaults(session_id=session_id, **arguments)
        assert isinstance(made, AfterturnChatMemory)
        chosen: RunOptions = {**(options or {}), "user": user}
        messages: MessageFormat = {"dialect": "llama_index"}
        made._framework_memory = FrameworkMemory(memory, messages=messages, standing="inject", **chosen)
        return made

    async def aget(self, input: str | ChatMessage | None = None, **block_kwargs: Any) -> list[ChatMessage]:
        messages: list[ChatMessage] = await super().aget(input, **block_kwargs)
        history = await self.aget_all(MessageStatus.ACTIVE)
        if self._framework_memory.find(self.session_id) is None and history and history[-1].role == MessageRole.USER:
            turn = self._framework_memory.begin(self.session_id, RunIds(self, conversation=self.session_id), history)
            if turn is not None and (block := await turn.inject(messages)) is not None:
                await super().aput(block)
        return messages

    async def aput(self, message: ChatMessage) -> None:
        await super().aput(message)
        await self._finish([message])

    async def aput_messages(self, messages: list[ChatMessage]) -> None:
        await super().aput_messages(messages)
        await self._finish(messages)

    async def _finish(self, added: Sequence[ChatMessage]) -> None:
        """The turn ends with an answer without calls."""
        newest = LlamaIndexMessages().read(added[-1]) if added else None
        if newest is None:
            return
        if newest.role == "user":
            self._framework_memory.abort(self.session_id, "the user wrote again")
        elif newest.role == "assistant" and not newest.calls:
            self._framework_memory.finish(self.session_id, await self.aget_all(MessageStatus.ACTIVE))
