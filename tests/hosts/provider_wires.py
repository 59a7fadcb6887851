"""The providers' wire formats: how each writes a reply, and where calls and results are."""

import itertools
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Json = dict[str, Any]


@dataclass(frozen=True)
class Call:
    id: str
    name: str
    arguments: Mapping[str, str]


@dataclass(frozen=True)
class Reply:
    """What a model says, before it calls tools if there are any."""

    text: str
    calls: tuple[Call, ...] = ()


class Wire(Protocol):
    """`prompt` names the list of elements in a request. `in_one_element`: results of parallel calls come together."""

    path: str
    prompt: str
    in_one_element: bool

    def document(self, reply: Reply) -> Json: ...

    def user(self, text: str) -> Json:
        """As a host writes it."""

    def block(self, text: str) -> Json:
        """A block after tool results, where a list is in this format for certain."""

    def tools(self, name: str, parameters: Json) -> list[Json]:
        """As a host writes them."""

    def calls(self, element: Json) -> list[str]: ...

    def results(self, element: Json) -> list[str]: ...


class ChatWire:
    path = "/v1/chat/completions"
    prompt = "messages"
    in_one_element = False

    def document(self, reply: Reply) -> Json:
        message: Json = {"role": "assistant", "content": reply.text, "refusal": None, "annotations": []}
        if reply.calls:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": _function(call)} for call in reply.calls
            ]
        reason = "tool_calls" if reply.calls else "stop"
        choice = {"index": 0, "finish_reason": reason, "message": message, "logprobs": None}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        kind = "chat.completion"
        return {"id": "c", "object": kind, "created": 1, "model": "gpt-5", "choices": [choice], "usage": usage}

    def chunks(self, reply: Reply) -> list[Json]:
        """The same as a stream, a word at a time."""
        deltas: list[Json] = [{"role": "assistant", "content": ""}]
        deltas += [{"content": word} for word in _words(reply.text)]
        deltas += [
            {"tool_calls": [{"index": at, "id": call.id, "type": "function", "function": _function(call)}]}
            for at, call in enumerate(reply.calls)
        ]
        return [self._chunk(delta, None) for delta in deltas] + [self._chunk({}, "stop")]

    def _chunk(self, delta: Json, reason: str | None) -> Json:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "gpt-5", "choices": [choice]}

    def user(self, text: str) -> Json:
        return {"role": "user", "content": text}

    def block(self, text: str) -> Json:
        return self.user(text)

    def tools(self, name: str, parameters: Json) -> list[Json]:
        return [{"type": "function", "function": {"name": name, "parameters": parameters}}]

    def calls(self, element: Json) -> list[str]:
        return [call["id"] for call in element.get("tool_calls") or ()]

    def results(self, element: Json) -> list[str]:
        return [element["tool_call_id"]] if element["role"] == "tool" else []


class ResponsesWire:
    path = "/v1/responses"
    prompt = "input"
    in_one_element = False

    def document(self, reply: Reply) -> Json:
        text = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
        said = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [text]}
        output: list[Json] = [{"type": "reasoning", "id": "r", "summary": []}, said]
        output += [
            {
                "type": "function_call",
                "id": f"f_{call.id}",
                "call_id": call.id,
                "status": "completed",
                **_function(call),
            }
            for call in reply.calls
        ]
        always = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "status": "completed"}
        return {"id": "r", "object": "response", "created_at": 1, "model": "gpt-5", "output": output, **always}

    def user(self, text: str) -> Json:
        return {"role": "user", "content": text}

    def block(self, text: str) -> Json:
        return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}

    def tools(self, name: str, parameters: Json) -> list[Json]:
        return [{"type": "function", "name": name, "parameters": parameters, "strict": False}]

    def calls(self, element: Json) -> list[str]:
        return [element["call_id"]] if element.get("type") == "function_call" else []

    def results(self, element: Json) -> list[str]:
        return [element["call_id"]] if element.get("type") == "function_call_output" else []


class AnthropicWire:
    path = "/v1/messages"
    prompt = "messages"
    in_one_element = True

    def document(self, reply: Reply) -> Json:
        content: list[Json] = [
            {"type": "thinking", "thinking": "They want to know.", "signature": "s"},
            {"type": "text", "text": reply.text},
        ]
        content += [
            {"type": "tool_use", "id": call.id, "name": call.name, "input": dict(call.arguments)}
            for call in reply.calls
        ]
        ended = {"stop_reason": "tool_use" if reply.calls else "end_turn", "stop_sequence": None}
        usage = {"input_tokens": 1, "output_tokens": 1}
        message = {"id": "m", "type": "message", "role": "assistant", "model": "claude"}
        return {**message, "content": content, "usage": usage, **ended}

    def user(self, text: str) -> Json:
        return {"role": "user", "content": text}

    def block(self, text: str) -> Json:
        return {"role": "user", "content": [{"type": "text", "text": text}]}

    def tools(self, name: str, parameters: Json) -> list[Json]:
        return [{"name": name, "input_schema": parameters}]

    def calls(self, element: Json) -> list[str]:
        return [block["id"] for block in _blocks(element) if block["type"] == "tool_use"]

    def results(self, element: Json) -> list[str]:
        """Those that stand in front: behind anything else the API does not take them for results."""
        first = itertools.takewhile(lambda block: block["type"] == "tool_result", _blocks(element))
        return [block["tool_use_id"] for block in first]


class GeminiWire:
    """Written with the wire's own names; the client writes and reads the others. Older models give calls no ids."""

    path = "/v1/models/gemini-2.5-pro:generateContent"
    prompt = "contents"
    in_one_element = True

    def __init__(self, *, has_ids: bool = True) -> None:
        self._has_ids = has_ids

    def document(self, reply: Reply) -> Json:
        parts: list[Json] = [{"text": "They want to know.", "thought": True}, {"text": reply.text}]
        parts += [
            {
                "functionCall": {**self._id(call), "name": call.name, "args": dict(call.arguments)},
                "thoughtSignature": "c2lnbmVk",
            }
            for call in reply.calls
        ]
        candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
        return {"candidates": [candidate], "modelVersion": "gemini", "responseId": "r"}

    def user(self, text: str) -> Json:
        return {"role": "user", "parts": [{"text": text}]}

    def block(self, text: str) -> Json:
        return self.user(text)

    def tools(self, name: str, parameters: Json) -> list[Json]:
        return [{"function_declarations": [{"name": name, "parameters_json_schema": parameters}]}]

    def calls(self, element: Json) -> list[str]:
        return [self._named(part["functionCall"]) for part in element["parts"] if "functionCall" in part]

    def results(self, element: Json) -> list[str]:
        return [self._named(part["functionResponse"]) for part in element["parts"] if "functionResponse" in part]

    def _id(self, call: Call) -> Json:
        return {"id": call.id} if self._has_ids else {}

    def _named(self, function: Json) -> str:
        return str(function["id"] if self._has_ids else function["name"])


def refusal(wire: Wire, prompt: Sequence[Json]) -> str | None:
    """Why a provider would not take this prompt: calls and results are not paired, or something stands between."""
    waiting: Counter[str] = Counter()
    for at, element in enumerate(prompt):
        calls, results = Counter(wire.calls(element)), Counter(wire.results(element))
        if waiting and not results and not calls:
            return f"element {at} stands between a call and its result"
        if results - waiting:
            return f"element {at} answers what was not asked"
        waiting = waiting - results
        if results and waiting and wire.in_one_element:
            return f"element {at} does not answer all calls"
        waiting += calls
    return f"no result for {', '.join(waiting)}" if waiting else None


def _function(call: Call) -> Json:
    return {"name": call.name, "arguments": json.dumps(dict(call.arguments))}


def _words(text: str) -> list[str]:
    return [f"{word} " for word in text.split()]


def _blocks(element: Json) -> list[Json]:
    content = element["content"]
    return [] if isinstance(content, str) else content
