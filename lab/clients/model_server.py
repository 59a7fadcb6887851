"""A scripted model server on loopback: it speaks the four model APIs that clients use, and keeps every request.

OpenAI chat completions, OpenAI Responses, Anthropic messages and Gemini generateContent, with and without streaming. A
list of rules decides the answers. No model is involved.

    python -m lab.clients.model_server --port 8123 --log requests.jsonl
"""

from __future__ import annotations

import argparse
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any, Literal, TypeAlias

Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Say:
    """The model answers with a text, and the turn ends. `input_tokens` is the usage that the server reports."""

    text: str
    input_tokens: int = 100


@dataclass(frozen=True, slots=True)
class Call:
    """The model calls a tool. `input_tokens` is the usage that the server reports."""

    tool: str
    arguments: Mapping[str, Any]
    input_tokens: int = 100


Answer: TypeAlias = Say | Call


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of a request's history, the same for every API."""

    role: str
    kind: Literal["text", "call", "result"]
    text: str


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A request as a client sent it. `parts` is its history with system texts first; `tools` has the declared names.

    Both include what the server keeps of a thread. `raw` are the bytes of the body, `headers` have names in lower case.
    """

    api: str
    path: str
    body: Json
    parts: tuple[Part, ...]
    tools: tuple[str, ...]
    raw: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Everything that the model can read, without the declarations of tools."""
        return "\n".join(part.text for part in self.parts)

    def count(self, words: str) -> int:
        return self.text.count(words)


Script: TypeAlias = Callable[[ModelRequest], Answer]


@dataclass(frozen=True, slots=True)
class Rule:
    """If a user message of the current turn has the marker, the model gives the answers, one after each tool result.

    An answer that needs something from a request, such as the id in a result, is a function of it.
    """

    marker: str
    answers: tuple[Answer | Script, ...]


# Injected memory quotes earlier prompts, and with them their markers. Clients put hook text into tags.
_INJECTED = re.compile(
    r"(?:<|&lt;)(afterturn-[a-z]+|hook_context|qwen:[a-z-]+|system_reminder)(?:>|&gt;).*?(?:<|&lt;)/\1(?:>|&gt;)",
    re.DOTALL,
)


def follow(rules: Sequence[Rule], otherwise: str = "Understood.") -> Script:
    """The script that the rules describe. A turn without a marker gets `otherwise`."""

    def answer(request: ModelRequest) -> Answer:
        results = 0
        for part in reversed(request.parts):
            if part.kind == "text" and part.role == "assistant" and part.text.strip():
                break
            if part.kind == "result":
                results += 1
            elif part.kind == "text" and part.role == "user":
                said = _INJECTED.sub("", part.text)
                found = max(((said.rfind(rule.marker), rule) for rule in rules), key=lambda one: one[0], default=None)
                if found is not None and found[0] >= 0:
                    answers = found[1].answers
                    chosen = answers[results] if results < len(answers) else Say(otherwise)
                    return chosen if isinstance(chosen, Say | Call) else chosen(request)
        return Say(otherwise)

    return answer


def _text_of(content: object) -> str:
    """The text in a content that is a string, a list of blocks, or a tree of them."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(filter(None, (_text_of(item) for item in content)))
    if isinstance(content, dict):
        for key in ("text", "content", "output", "parts"):
            if key in content:
                return _text_of(content[key])
    return "" if content is None else json.dumps(content, ensure_ascii=False)


class AnthropicMessages:
    name = "anthropic"

    def read(self, body: Json) -> tuple[list[Part], list[str]]:
        parts = [Part("system", "text", _text_of(body["system"]))] if body.get("system") else []
        for message in body.get("messages", ()):
            content = message["content"]
            for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
                if block["type"] == "tool_use":
                    parts.append(Part(message["role"], "call", f"{block['name']} {json.dumps(block['input'])}"))
                elif block["type"] == "tool_result":
                    parts.append(Part(message["role"], "result", _text_of(block.get("content"))))
                else:
                    parts.append(Part(message["role"], "text", _text_of(block)))
        return parts, [tool["name"] for tool in body.get("tools", ())]

    def whole(self, body: Json, answer: Answer, id: str) -> Json:
        if isinstance(answer, Say):
            content: Json = {"type": "text", "text": answer.text}
        else:
            content = {"type": "tool_use", "id": f"toolu_{id}", "name": answer.tool, "input": dict(answer.arguments)}
        return {
            "id": f"msg_{id}",
            "type": "message",
            "role": "assistant",
            "model": body.get("model", "scripted"),
            "content": [content],
            "stop_reason": "end_turn" if isinstance(answer, Say) else "tool_use",
            "stop_sequence": None,
            "usage": {"input_tokens": answer.input_tokens, "output_tokens": 10},
        }

    def events(self, body: Json, answer: Answer, id: str) -> Iterator[tuple[str | None, Json]]:
        whole = self.whole(body, answer, id)
        (content,) = whole["content"]
        start = {**whole, "content": [], "stop_reason": None}
        if isinstance(answer, Say):
            opened: Json = {"type": "text", "text": ""}
            delta: Json = {"type": "text_delta", "text": answer.text}
        else:
            opened = {**content, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(content["input"])}
        yield "message_start", {"type": "message_start", "message": start}
        yield "content_block_start", {"type": "content_block_start", "index": 0, "content_block": opened}
        yield "content_block_delta", {"type": "content_block_delta", "index": 0, "delta": delta}
        yield "content_block_stop", {"type": "content_block_stop", "index": 0}
        ended = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
        yield "message_delta", {"type": "message_delta", "delta": ended, "usage": whole["usage"]}
        yield "message_stop", {"type": "message_stop"}


class OpenAIChat:
    name = "openai-chat"

    def read(self, body: Json) -> tuple[list[Part], list[str]]:
        parts = []
        for message in body.get("messages", ()):
            kind: Literal["text", "result"] = "result" if message["role"] == "tool" else "text"
            if message.get("content"):
                parts.append(Part(message["role"], kind, _text_of(message["content"])))
            for call in message.get("tool_calls") or ():
                function = call["function"]
                parts.append(Part(message["role"], "call", f"{function['name']} {function['arguments']}"))
        return parts, [tool["function"]["name"] for tool in body.get("tools") or ()]

    def whole(self, body: Json, answer: Answer, id: str) -> Json:
        message, reason = self._message(answer, id)
        choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason}
        return {**self._head(body, id, "chat.completion"), "choices": [choice], "usage": self._usage(answer)}

    def events(self, body: Json, answer: Answer, id: str) -> Iterator[tuple[str | None, Json]]:
        message, reason = self._message(answer, id)
        head = self._head(body, id, "chat.completion.chunk")
        for call in message.get("tool_calls") or ():
            call["index"] = 0
        delta = {"role": "assistant", **message}
        yield None, {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        yield None, {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
        yield None, {**head, "choices": [], "usage": self._usage(answer)}

    def _message(self, answer: Answer, id: str) -> tuple[Json, str]:
        if isinstance(answer, Say):
            return {"content": answer.text}, "stop"
        function = {"name": answer.tool, "arguments": json.dumps(dict(answer.arguments))}
        return {"content": None, "tool_calls": [{"id": f"call_{id}", "type": "function", "function": function}]}, (
            "tool_calls"
        )

    def _head(self, body: Json, id: str, kind: str) -> Json:
        return {"id": f"chatcmpl-{id}", "object": kind, "created": 0, "model": body.get("model", "scripted")}

    def _usage(self, answer: Answer) -> Json:
        return {
            "prompt_tokens": answer.input_tokens,
            "completion_tokens": 10,
            "total_tokens": answer.input_tokens + 10,
        }


class OpenAIResponses:
    name = "openai-responses"

    def read(self, body: Json) -> tuple[list[Part], list[str]]:
        parts = [Part("system", "text", body["instructions"])] if body.get("instructions") else []
        given = body.get("input", ())
        for item in [{"role": "user", "content": given}] if isinstance(given, str) else given:
            kind = item.get("type", "message")
            if kind == "message":
                parts.append(Part(item["role"], "text", _text_of(item["content"])))
            elif kind.endswith("_call"):
                arguments = item.get("arguments") or item.get("input") or item.get("action")
                parts.append(Part("assistant", "call", f"{item.get('name', kind)} {_text_of(arguments)}"))
            elif kind.endswith("_output"):
                parts.append(Part("user", "result", _text_of(item.get("output"))))
            else:
                parts.append(Part("assistant", "text", _text_of(item)))
        tools = [tool.get("name", tool["type"]) for tool in body.get("tools") or ()]
        return parts, tools

    def whole(self, body: Json, answer: Answer, id: str) -> Json:
        return {
            "id": f"resp_{id}",
            "object": "response",
            "created_at": 0,
            "status": "completed",
            "model": body.get("model", "scripted"),
            "output": [self._item(answer, id)],
            "usage": {
                "input_tokens": answer.input_tokens,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": 10,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": answer.input_tokens + 10,
            },
        }

    def events(self, body: Json, answer: Answer, id: str) -> Iterator[tuple[str | None, Json]]:
        whole = self.whole(body, answer, id)
        (item,) = whole["output"]
        started = {**whole, "status": "in_progress", "output": [], "usage": None}
        numbers = count()

        def event(kind: str, **values: object) -> tuple[str, Json]:
            return kind, {"type": kind, "sequence_number": next(numbers), **values}

        yield event("response.created", response=started)
        opened = {**item, "status": "in_progress"}
        empty: Json = {"content": []} if isinstance(answer, Say) else {"arguments": ""}
        opened |= empty
        yield event("response.output_item.added", output_index=0, item=opened)
        place = {"item_id": item["id"], "output_index": 0}
        if isinstance(answer, Say):
            part = {"type": "output_text", "text": "", "annotations": []}
            yield event("response.content_part.added", **place, content_index=0, part=part)
            yield event("response.output_text.delta", **place, content_index=0, delta=answer.text)
            yield event("response.output_text.done", **place, content_index=0, text=answer.text)
            yield event("response.content_part.done", **place, content_index=0, part=item["content"][0])
        else:
            named = {"name": item["name"], "arguments": item["arguments"]}
            yield event("response.function_call_arguments.delta", **place, delta=item["arguments"])
            yield event("response.function_call_arguments.done", **place, **named)
        yield event("response.output_item.done", output_index=0, item=item)
        yield event("response.completed", response=whole)

    def _item(self, answer: Answer, id: str) -> Json:
        if isinstance(answer, Say):
            content = [{"type": "output_text", "text": answer.text, "annotations": []}]
            return {
                "type": "message",
                "id": f"msg_{id}",
                "role": "assistant",
                "status": "completed",
                "content": content,
            }
        namespace, _, tool = answer.tool.rpartition("/")
        called: Json = {"name": tool, "arguments": json.dumps(dict(answer.arguments))}
        if namespace:
            called["namespace"] = namespace
        return {"type": "function_call", "id": f"fc_{id}", "call_id": f"call_{id}", "status": "completed", **called}


class Gemini:
    name = "gemini"

    def read(self, body: Json) -> tuple[list[Part], list[str]]:
        system = body.get("systemInstruction") or body.get("system_instruction")
        parts = [Part("system", "text", _text_of(system))] if system else []
        for content in body.get("contents", ()):
            role = {"model": "assistant"}.get(content.get("role"), content.get("role", "user"))
            for part in content.get("parts", ()):
                if "functionCall" in part:
                    call = part["functionCall"]
                    parts.append(Part(role, "call", f"{call['name']} {json.dumps(call.get('args', {}))}"))
                elif "functionResponse" in part:
                    parts.append(Part(role, "result", _text_of(part["functionResponse"].get("response"))))
                elif "text" in part:
                    parts.append(Part(role, "text", part["text"]))
        tools = [one["name"] for tool in body.get("tools") or () for one in tool.get("functionDeclarations", ())]
        return parts, tools

    def whole(self, body: Json, answer: Answer, id: str) -> Json:
        if isinstance(answer, Say):
            part: Json = {"text": answer.text}
        else:
            part = {"functionCall": {"id": f"call_{id}", "name": answer.tool, "args": dict(answer.arguments)}}
        content = {"role": "model", "parts": [part]}
        return {
            "candidates": [{"index": 0, "content": content, "finishReason": "STOP"}],
            "usageMetadata": {
                "promptTokenCount": answer.input_tokens,
                "candidatesTokenCount": 10,
                "totalTokenCount": answer.input_tokens + 10,
            },
            "modelVersion": "scripted",
            "responseId": f"resp_{id}",
        }

    def events(self, body: Json, answer: Answer, id: str) -> Iterator[tuple[str | None, Json]]:
        yield None, self.whole(body, answer, id)


def _answer_without_script(path: str, body: Json) -> Json | None:
    """Counting and compacting are not requests for the model's words."""
    if path.endswith(("/count_tokens", ":countTokens")):
        return {"input_tokens": 100, "totalTokens": 100}
    return _compacted(body) if path.endswith("/responses/compact") else None


def _compacted(body: Json) -> Json:
    """What OpenAI's compaction returns: the messages of the user, and one opaque item for everything else."""
    said = [item for item in body.get("input") or () if item.get("role") == "user"]
    kept = [
        {"type": "message", "id": f"msg_kept_{at}", "role": "user", "status": "completed", "content": item["content"]}
        for at, item in enumerate(said)
    ]
    summary = {"type": "compaction", "id": "cmp_1", "encrypted_content": "everything else"}
    usage = OpenAIResponses().whole(body, Say(""), "")["usage"]
    output = [*kept, summary]
    return {"id": "resp_compacted", "object": "response.compaction", "created_at": 0, "output": output, "usage": usage}


Api: TypeAlias = AnthropicMessages | OpenAIChat | OpenAIResponses | Gemini

_ROUTES: tuple[tuple[re.Pattern[str], Api], ...] = (
    (re.compile(r"/messages$"), AnthropicMessages()),
    (re.compile(r"/chat/completions$"), OpenAIChat()),
    (re.compile(r"/responses$"), OpenAIResponses()),
    (re.compile(r":(?:stream)?[gG]enerateContent$"), Gemini()),
)


@dataclass
class ModelServer:
    """Serves on a free port of 127.0.0.1 while it is entered. `requests` has every model request so far, in order."""

    script: Script = field(default_factory=lambda: follow(()))
    log: Path | None = None
    port: int = 0
    requests: list[ModelRequest] = field(default_factory=list)

    def __enter__(self) -> ModelServer:
        self._ids, self._lock = count(1), threading.Lock()
        self._threads: dict[str, Json] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), _handler(self))
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, name="model-server", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def whole_history(self, body: Json) -> Json:
        """The request with what the server keeps of its thread: Anthropic's SDK then sends only what is new."""
        kept = self._threads.get((body.get("thread") or {}).get("previous_message_id", ""), {})
        return {**kept, **body, "messages": [*kept["messages"], *body["messages"]]} if kept else body

    def keep_thread(self, body: Json, reply: Json) -> None:
        if body.get("thread"):
            answered = {"role": "assistant", "content": reply["content"]}
            self._threads[reply["id"]] = {**body, "messages": [*body["messages"], answered]}

    def answer(self, request: ModelRequest) -> tuple[Answer, str]:
        with self._lock:
            self.requests.append(request)
            id = f"{next(self._ids):06}"
            answer = self.script(request)
            if self.log is not None:
                line = {"api": request.api, "path": request.path, "body": request.body, "answer": str(answer)}
                with self.log.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line, ensure_ascii=False) + "\n")
        return answer, id


def _handler(server: ModelServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            """Keeps the terminal quiet: requests are in the log file."""

        def do_HEAD(self) -> None:
            self._send({})

        def do_GET(self) -> None:
            model = {"id": "scripted", "object": "model", "type": "model", "display_name": "scripted", "created": 0}
            self._send({"object": "list", "data": [model], "models": [], "has_more": False})

        def do_POST(self) -> None:
            body = self._body()
            path, _, query = self.path.partition("?")
            if (unscripted := _answer_without_script(path, body)) is not None:
                self._send(unscripted)
                return
            api = next((api for pattern, api in _ROUTES if pattern.search(path)), None)
            if api is None:
                self._send({"error": {"type": "not_found", "message": path}}, status=404)
                return
            whole = server.whole_history(body)
            parts, tools = api.read(whole)
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = ModelRequest(api.name, path, body, tuple(parts), tuple(tools), self.raw, headers)
            answer, id = server.answer(request)
            server.keep_thread(whole, api.whole(body, answer, id))
            if body.get("stream") or "alt=sse" in query:
                self._stream(api.events(body, answer, id), done=api.name == "openai-chat")
            else:
                self._send(api.whole(body, answer, id))

        def _body(self) -> Json:
            self.raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            try:
                body = json.loads(self.raw or b"{}")
            except ValueError:
                return {}
            return body if isinstance(body, dict) else {}

        def _send(self, value: Json, *, status: int = 200) -> None:
            data = b"" if self.command == "HEAD" else json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _stream(self, events: Iterator[tuple[str | None, Json]], *, done: bool) -> None:
            lines = [(f"event: {name}\n" if name else "") + f"data: {json.dumps(value)}\n\n" for name, value in events]
            data = "".join([*lines, "data: [DONE]\n\n"] if done else lines).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    return Handler


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--log", type=Path, help="a file that gets one line of JSON per request")
    given = parser.parse_args()
    with ModelServer(port=given.port, log=given.log) as server:
        print(server.url, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
