"""The official clients of OpenAI and Anthropic behind the proxy, each with one way to ask, streaming or not."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from provider_loops import anthropic, openai

Json = dict[str, Any]
TOOL = "look_up"
PARAMETERS: Json = {"type": "object", "properties": {"what": {"type": "string"}}}
SYSTEM = "You are terse. Never repeat yourself."


class Reply(NamedTuple):
    """What the model said, the elements to send back, and the ids of its calls."""

    text: str
    elements: list[Json]
    calls: list[str]


class SdkClient(Protocol):
    path: str
    field: str

    def __init__(self, url: str, headers: dict[str, str]) -> None: ...

    def ask(self, messages: Sequence[Json], *, stream: bool) -> Reply: ...

    def results(self, calls: Sequence[str]) -> list[Json]: ...


class OpenAIClient:
    def __init__(self, url: str, headers: dict[str, str]) -> None:
        self._known: Json = {
            "base_url": f"{url}/v1",
            "api_key": "sk-client",
            "default_headers": headers,
            "max_retries": 0,
        }


class ChatClient(OpenAIClient):
    path, field = "/v1/chat/completions", "messages"

    def ask(self, messages: Sequence[Json], *, stream: bool) -> Reply:
        tools = [{"type": "function", "function": {"name": TOOL, "parameters": PARAMETERS}}]
        given: Any = [{"role": "system", "content": SYSTEM}, *messages]
        with openai.OpenAI(**self._known) as client:
            if stream:
                with client.chat.completions.stream(model="gpt-5", messages=given, tools=tools) as events:
                    message = events.get_final_completion().choices[0].message
            else:
                made: Any = client.chat.completions.create(model="gpt-5", messages=given, tools=tools)
                message = made.choices[0].message
        sent = {"role": "assistant", "content": message.content}
        calls = [call.id for call in message.tool_calls or ()]
        if message.tool_calls:
            sent["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.function.name, "arguments": call.function.arguments},
                }
                for call in message.tool_calls
            ]
        return Reply(message.content or "", [sent], calls)

    def results(self, calls: Sequence[str]) -> list[Json]:
        return [{"role": "tool", "tool_call_id": call, "content": f"Nothing for {call}."} for call in calls]


class ResponsesClient(OpenAIClient):
    path, field = "/v1/responses", "input"

    def ask(self, messages: Any, *, stream: bool, **more: Any) -> Reply:
        tools: Any = [{"type": "function", "name": TOOL, "parameters": PARAMETERS, "strict": False}]
        known = {"model": "gpt-5", "input": messages, "tools": tools, "instructions": SYSTEM, **more}
        with openai.OpenAI(**self._known) as client:
            if stream:
                with client.responses.stream(**known) as events:
                    response: Any = events.get_final_response()
            else:
                response = client.responses.create(**known)
        output = [item.model_dump(exclude_none=True) for item in response.output]
        for item in output:
            item.pop("parsed_arguments", None)
        self.id = response.id
        calls = [item["call_id"] for item in output if item["type"] == "function_call"]
        return Reply(response.output_text, output, calls)

    def results(self, calls: Sequence[str]) -> list[Json]:
        return [{"type": "function_call_output", "call_id": call, "output": f"Nothing for {call}."} for call in calls]


class MessagesClient:
    path, field = "/v1/messages", "messages"

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        self._known: Json = {"base_url": url, "api_key": "sk-ant-client", "default_headers": headers, "max_retries": 0}

    def ask(self, messages: Sequence[Json], *, stream: bool) -> Reply:
        tools: Any = [{"name": TOOL, "input_schema": PARAMETERS}]
        known: Any = {
            "model": "claude",
            "max_tokens": 100,
            "messages": list(messages),
            "tools": tools,
            "system": SYSTEM,
        }
        with anthropic.Anthropic(**self._known) as client:
            if stream:
                with client.messages.stream(**known) as events:
                    message: Any = events.get_final_message()
            else:
                message = client.messages.create(**known)
        content = [json.loads(block.model_dump_json(exclude_none=True)) for block in message.content]
        text = "".join(block["text"] for block in content if block["type"] == "text")
        calls = [block["id"] for block in content if block["type"] == "tool_use"]
        return Reply(text, [{"role": "assistant", "content": content}], calls)

    def results(self, calls: Sequence[str]) -> list[Json]:
        parts = [{"type": "tool_result", "tool_use_id": call, "content": f"Nothing for {call}."} for call in calls]
        return [{"role": "user", "content": parts}]


CLIENTS: dict[str, type[Any]] = {"chat": ChatClient, "responses": ResponsesClient, "messages": MessagesClient}
