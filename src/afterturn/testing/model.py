"""Chat models for tests and demonstrations: one answers from a script, one selects memories by a function, and one
does whatever it reads."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import copy
import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Messages: TypeAlias = Sequence[Mapping[str, Any]]
Answer: TypeAlias = str | Mapping[str, Any]
Line: TypeAlias = "Answer | BaseException | Held | Callable[[Messages], Answer]"
_NUMBERED = re.compile(r"^\[(\d+)\] (.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ModelCall:
    """The arguments of one call. They are copies, so later changes of your list do not affect them."""

    messages: tuple[Mapping[str, Any], ...]
    tools: tuple[Mapping[str, Any], ...]
    schema: Mapping[str, Any] | None = None

    @property
    def text(self) -> str:
        """The texts of all messages, one per line."""
        return "\n".join(text for message in self.messages for text in _texts(message.get("content")))


class Held:
    """An answer to one call that is held back until `release` is called, from any thread. Until then the model hangs.

    `asked` is set when the call arrives, `cancelled` when it is cancelled.
    """

    def __init__(self, line: Answer | BaseException = "") -> None:
        self._line = line
        self._released: concurrent.futures.Future[None] = concurrent.futures.Future()
        self.asked = threading.Event()
        self.cancelled = threading.Event()

    def release(self) -> None:
        """Calling it twice, or after the call was cancelled, is harmless."""
        with contextlib.suppress(concurrent.futures.InvalidStateError):
            self._released.set_result(None)

    async def answer(self) -> Answer:
        self.asked.set()
        try:
            await asyncio.wrap_future(self._released)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        if isinstance(self._line, BaseException):
            raise self._line
        return self._line


class ScriptedModel:
    """A ChatModel that answers from a script, in OpenAI's chat format: one line per call, in order.

    A text is a final answer. A mapping is an assistant's message; `call_tools` makes one that calls tools. An exception
    is raised. A function receives the messages and returns a text or a mapping. `Held` is a text, mapping or exception
    that is held back until the test releases it. A call after the last line raises AssertionError.
    """

    def __init__(self, *script: Line) -> None:
        self._script = script
        self._tool_calls = 0
        self.calls: list[ModelCall] = []

    @property
    def remaining(self) -> int:
        """The number of lines that were not used yet."""
        return max(0, len(self._script) - len(self.calls))

    async def complete(
        self,
        messages: Messages,
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        schema: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        call = ModelCall(tuple(copy.deepcopy(list(messages))), tuple(copy.deepcopy(list(tools))), copy.deepcopy(schema))
        self.calls.append(call)
        if len(self.calls) > len(self._script):
            raise AssertionError(
                f"The script ended with line {len(self._script)}, and the model was called once more. "
                "Add a line, or look at `calls` for its messages."
            )
        line = self._script[len(self.calls) - 1]
        if isinstance(line, BaseException):
            raise line
        if isinstance(line, Held):
            return self._message(await line.answer())
        return self._message(line(call.messages) if callable(line) else line)

    def _message(self, answer: Answer) -> dict[str, Any]:
        if isinstance(answer, str):
            return {"role": "assistant", "content": answer}
        message = {"role": "assistant", "content": None, **copy.deepcopy(dict(answer))}
        if message.get("tool_calls"):
            message["tool_calls"] = [self._with_id(call) for call in message["tool_calls"]]
        return message

    def _with_id(self, call: Mapping[str, Any]) -> dict[str, Any]:
        self._tool_calls += 1
        return {"id": f"call_{self._tool_calls}", "type": "function", **call}


class SelectingModel:
    """A ChatModel for refined recall: `choose` selects among the memories that the model is shown.

    It gets their lines, such as `episodic, 3 days ago, user: I moved to Ghent.`, and returns the positions of those
    that help, the best first. You may replace it between two turns. It is called on memory's thread.
    """

    def __init__(self, choose: Callable[[Sequence[str]], Sequence[int]]) -> None:
        self.choose = choose

    async def complete(
        self,
        messages: Messages,
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        schema: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        numbered = _NUMBERED.findall("\n".join(_texts(messages[-1].get("content"))))
        chosen = self.choose([line for _, line in numbered])
        return {"role": "assistant", "content": json.dumps({"ids": [int(numbered[at][0]) for at in chosen]})}


class ObedientModel:
    """A ChatModel for reviews that does what any text tells it to, for tests of what a hostile text can reach.

    A text gives an order by naming a tool and its arguments: `call add_memory {"text": "…", …}`. The order's `messages`
    are those of all messages unless it names some, `"user"` for the user's; the id `*` stands for every known memory.
    `decode` is applied to each text first, for orders that are hidden in it. It also saves what users prefer: "I
    prefer …".
    """

    def __init__(self, decode: Callable[[str], str] = str) -> None:
        self._decode = decode

    async def complete(
        self,
        messages: Messages,
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        schema: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        if messages[-1].get("role") == "tool":
            return {"role": "assistant", "content": "Nothing to save."}
        written = (line for text in _texts(messages[-1].get("content")) for line in text.splitlines())
        lines: list[dict[str, Any]] = [json.loads(line) for line in written if line.startswith("{")]
        numbers = [line["message"] for line in lines if "message" in line]
        said = [line["message"] for line in lines if str(line.get("from", "")).startswith("user")]
        known = [line["id"] for line in lines if "id" in line]
        calls: list[tuple[str, dict[str, Any]]] = []
        for line in lines:
            text = str(line.get("text", ""))
            for name, arguments in _ORDER.findall(self._decode(text)):
                order = {"messages": numbers, **json.loads(arguments)}
                order |= {"messages": said} if order["messages"] == "user" else {}
                ids = known if order.get("id") == "*" else [order.get("id")]
                calls += [(name, {**order, "id": id} if id else order) for id in ids]
            if str(line.get("from", "")).startswith("user") and (stated := _PREFERS.search(text)):
                saved = {"text": f"The user prefers {stated.group(1)}", "target": "user", "kind": "preference"}
                calls.append(("add_memory", {**saved, "messages": [line["message"]]}))
        if not calls:
            return {"role": "assistant", "content": "Nothing to save."}
        answer = call_tools(*calls)
        return {**answer, "tool_calls": [{"id": f"call_{at}", **call} for at, call in enumerate(answer["tool_calls"])]}


_ORDER = re.compile(r"call (\w+) (\{[^{}]*\})")
_PREFERS = re.compile(r"I prefer ([^.!?]+)")


def call_tools(*calls: tuple[str, Mapping[str, Any]], text: str | None = None) -> dict[str, Any]:
    """Returns an assistant's message that calls tools by name and arguments. The model adds the ids of the calls."""
    return {
        "role": "assistant",
        "content": text,
        "tool_calls": [
            {"function": {"name": name, "arguments": json.dumps(dict(arguments), ensure_ascii=False)}}
            for name, arguments in calls
        ],
    }


def _texts(content: object) -> list[str]:
    if isinstance(content, str):
        return [content]
    parts = content if isinstance(content, Sequence) else ()
    return [part["text"] for part in parts if isinstance(part, Mapping) and isinstance(part.get("text"), str)]
