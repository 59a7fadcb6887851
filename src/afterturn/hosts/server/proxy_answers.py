"""The formats of the proxied APIs: where a request has its messages, and what its answer says, also from a stream."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from afterturn.log import logger

# Of what is kept to record it. More than that is passed on, and not recorded.
ANSWER_BYTES_MAX = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """The model's elements, as the client will send them back. `is_final`: it is not cut off, to be continued."""

    elements: list[Any]
    is_final: bool = True


class ApiFormat(Protocol):
    """One of the proxied APIs. `messages` is the field of a request, `upstream` the name of the default upstream."""

    path: str
    messages: str
    dialect: str
    upstream: str

    def read_document(self, document: Mapping[str, Any]) -> ModelAnswer | None: ...

    def start_stream(self) -> AnswerStream: ...


class AnswerStream(Protocol):
    def add(self, event: Mapping[str, Any]) -> ModelAnswer | None:
        """Takes the next event. The answer, once it is complete. Raises LookupError, TypeError or ValueError."""


class ChatCompletions:
    path = "/v1/chat/completions"
    messages = "messages"
    dialect = "openai_chat"
    upstream = "openai"

    def read_document(self, document: Mapping[str, Any]) -> ModelAnswer | None:
        choice = document["choices"][0]
        return ModelAnswer([choice["message"]], is_final=choice.get("finish_reason") not in _CHAT_CALLS)

    def start_stream(self) -> AnswerStream:
        return ChatStream()


_CHAT_CALLS = ("tool_calls", "function_call")


class ChatStream:
    """Joins the deltas of the first choice."""

    def __init__(self) -> None:
        self._message: dict[str, Any] = {"role": "assistant", "content": ""}
        self._calls: dict[int, dict[str, Any]] = {}

    def add(self, event: Mapping[str, Any]) -> ModelAnswer | None:
        choice = next((one for one in event.get("choices") or () if one.get("index", 0) == 0), None)
        if choice is None:
            return None
        delta = choice.get("delta") or {}
        self._message["content"] += delta.get("content") or ""
        if delta.get("refusal"):
            self._message["refusal"] = self._message.get("refusal", "") + delta["refusal"]
        for part in delta.get("tool_calls") or ():
            call = self._calls.setdefault(
                part.get("index", len(self._calls)), {"type": "function", "function": {"name": "", "arguments": ""}}
            )
            call["id"] = part.get("id") or call.get("id", "")
            for name in ("name", "arguments"):
                call["function"][name] += (part.get("function") or {}).get(name) or ""
        if (reason := choice.get("finish_reason")) is None:
            return None
        calls = {"tool_calls": [call for _, call in sorted(self._calls.items())]} if self._calls else {}
        return ModelAnswer([{**self._message, **calls}], is_final=reason not in _CHAT_CALLS)


class Responses:
    path = "/v1/responses"
    messages = "input"
    dialect = "openai_responses"
    upstream = "openai"

    def read_document(self, document: Mapping[str, Any]) -> ModelAnswer | None:
        # A response in the background is only queued.
        return ModelAnswer(list(document["output"])) if document.get("status") in _RESPONSE_ENDS else None

    def start_stream(self) -> AnswerStream:
        return ResponseStream()


_RESPONSE_ENDS = ("completed", "incomplete")


class ResponseStream:
    """The last event has the whole response. Some servers leave its output empty, and send each item before."""

    def __init__(self) -> None:
        self._items: list[Any] = []

    def add(self, event: Mapping[str, Any]) -> ModelAnswer | None:
        kind = event.get("type")
        if kind == "response.output_item.done":
            self._items.append(event["item"])
        if kind not in ("response.completed", "response.incomplete"):
            return None
        return ModelAnswer(list(event["response"].get("output") or self._items))


class Messages:
    path = "/v1/messages"
    messages = "messages"
    dialect = "anthropic"
    upstream = "anthropic"

    def read_document(self, document: Mapping[str, Any]) -> ModelAnswer | None:
        message = {name: document[name] for name in ("role", "content", "context_management") if document.get(name)}
        return ModelAnswer([message], is_final=document.get("stop_reason") not in _ANTHROPIC_PAUSES)

    def start_stream(self) -> AnswerStream:
        return MessageStream()


# The client sends the answer back, and the model continues it.
_ANTHROPIC_PAUSES = ("tool_use", "pause_turn")
_TEXT_DELTAS = {"text_delta": "text", "thinking_delta": "thinking", "compaction_delta": "content"}


class MessageStream:
    """Joins the deltas of each content block."""

    def __init__(self) -> None:
        self._blocks: dict[int, dict[str, Any]] = {}

    def add(self, event: Mapping[str, Any]) -> ModelAnswer | None:
        kind = event.get("type")
        if kind == "content_block_start":
            self._blocks[event["index"]] = dict(event["content_block"])
        elif kind == "content_block_delta":
            block, delta = self._blocks[event["index"]], event["delta"]
            if (name := _TEXT_DELTAS.get(delta["type"])) is not None:
                block[name] = (block.get(name) or "") + (delta.get(name) or "")
            elif delta["type"] == "citations_delta":
                block["citations"] = [*(block.get("citations") or ()), delta["citation"]]
        elif kind == "message_delta" and (reason := event["delta"].get("stop_reason")) is not None:
            message = {"role": "assistant", "content": [block for _, block in sorted(self._blocks.items())]}
            if managed := event.get("context_management"):
                message["context_management"] = managed
            return ModelAnswer([message], is_final=reason not in _ANTHROPIC_PAUSES)
        return None


FORMATS: Sequence[ApiFormat] = (ChatCompletions(), Responses(), Messages())


@dataclass(slots=True)
class AnswerReader:
    """Reads an answer while it is passed on. `add` and `end` return it once it is complete."""

    format: ApiFormat
    is_stream: bool = False
    _stream: AnswerStream = field(init=False)
    _waiting: bytearray = field(default_factory=bytearray)
    _size_bytes: int = 0
    _is_done: bool = False
    # Of a response of OpenAI, which the next request may continue.
    id: str = ""

    def __post_init__(self) -> None:
        self._stream = self.format.start_stream()

    def add(self, chunk: bytes) -> ModelAnswer | None:
        self._size_bytes += len(chunk)
        if self._is_done or self._size_bytes > ANSWER_BYTES_MAX:
            return None
        self._waiting += chunk
        if not self.is_stream or b"\n" not in chunk:
            return None
        lines = self._waiting.split(b"\n")
        self._waiting = lines.pop()
        return self._guarded(lines)

    def end(self) -> ModelAnswer | None:
        """There is no more of it."""
        if self._is_done or self._size_bytes > ANSWER_BYTES_MAX:
            return None
        return self._guarded([bytes(self._waiting)] if self.is_stream else None)

    def _guarded(self, lines: Sequence[bytes | bytearray] | None) -> ModelAnswer | None:
        """`lines` of a stream, or None for a whole document. An answer in another form is passed on, not recorded."""
        try:
            found = self._read_document() if lines is None else self._read_lines(lines)
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            logger.warning("the proxy cannot read an answer, so it is not recorded: %r", type(error).__name__)
            self._is_done = True
            return None
        self._is_done = self._is_done or found is not None
        return found

    def _read_document(self) -> ModelAnswer | None:
        document = json.loads(self._waiting)
        self.id = str(document.get("id", "")) if document.get("object") == "response" else ""
        return self.format.read_document(document)

    def _read_lines(self, lines: Sequence[bytes | bytearray]) -> ModelAnswer | None:
        """Each event of these APIs is one line of JSON."""
        for line in lines:
            if not line.startswith(b"data:") or (text := line[5:].strip()) == b"[DONE]" or not text:
                continue
            event = json.loads(text)
            if isinstance(response := event.get("response"), dict):
                self.id = str(response.get("id", ""))
            if (found := self._stream.add(event)) is not None:
                return found
        return None
