"""The client libraries' own types, and how they parse a history."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from converse_types import ConverseMessage, ConverseTool
from pydantic import BaseModel, TypeAdapter

with warnings.catch_warnings():
    # Their own sources warn when they are compiled for the first time.
    warnings.simplefilter("ignore")
    from anthropic.types import ContentBlock, Message, MessageParam, ToolParam
    from google.genai import types
    from langchain_core.messages import AnyMessage
    from openai.types.chat import ChatCompletionMessage, ChatCompletionMessageParam, ChatCompletionToolParam
    from openai.types.responses import FunctionToolParam, ResponseInputItemParam, ResponseOutputItem

_LISTS: Mapping[str, TypeAdapter[Any]] = {
    "openai_chat": TypeAdapter(list[ChatCompletionMessageParam]),
    "openai_responses": TypeAdapter(list[ResponseInputItemParam]),
    "anthropic": TypeAdapter(list[MessageParam]),
    "gemini": TypeAdapter(list[types.Content]),
    "langchain": TypeAdapter(list[AnyMessage]),
    "bedrock": TypeAdapter(list[ConverseMessage]),
}
TOOLS: Mapping[str, TypeAdapter[Any]] = {
    "openai_chat": TypeAdapter(ChatCompletionToolParam),
    "openai_responses": TypeAdapter(FunctionToolParam),
    "anthropic": TypeAdapter(ToolParam),
    "gemini": TypeAdapter(types.Tool),
    "langchain": TypeAdapter(ChatCompletionToolParam),
    "bedrock": TypeAdapter(ConverseTool),
}
_OUTPUT_ITEM: TypeAdapter[Any] = TypeAdapter(ResponseOutputItem)
_CONTENT_BLOCK: TypeAdapter[Any] = TypeAdapter(ContentBlock)
_LANGCHAIN_MESSAGE: TypeAdapter[Any] = TypeAdapter(AnyMessage)


def parsed(name: str, messages: Sequence[Any]) -> Any:
    """Raises where the library's types do not fit."""
    return _exhausted(_LISTS[name].validate_python(list(messages)))


def _exhausted(value: Any) -> Any:
    """Pydantic checks what is typed as an iterable when it is read."""
    if isinstance(value, Mapping):
        return {name: _exhausted(item) for name, item in value.items()}
    if isinstance(value, str | bytes | BaseModel) or not isinstance(value, Iterable):
        return value
    return [_exhausted(item) for item in value]


def as_objects(name: str, messages: Sequence[dict[str, Any]]) -> list[Any]:
    """As a host has them that appends what its client gave it."""
    return [_as_object(name, message) for message in messages]


def anthropic_message(blocks: Sequence[dict[str, Any]]) -> Message:
    """A response as the client gives it."""
    usage = {"input_tokens": 1, "output_tokens": 1}
    given = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": blocks, "usage": usage}
    return TypeAdapter(Message).validate_python({**given, "stop_reason": "tool_use", "stop_sequence": None})


def _as_object(name: str, message: dict[str, Any]) -> Any:
    if name == "langchain":
        return _LANGCHAIN_MESSAGE.validate_python(message)
    if name == "gemini":
        return types.Content.model_validate(message)
    if name == "openai_chat" and message["role"] == "assistant":
        return ChatCompletionMessage.model_validate(message)
    if name == "openai_responses" and message.get("type") in ("function_call", "reasoning", "message"):
        return _OUTPUT_ITEM.validate_python(message) if message.get("role") != "user" else message
    if name == "anthropic" and message["role"] == "assistant":
        return {**message, "content": [_CONTENT_BLOCK.validate_python(block) for block in message["content"]]}
    return message
