"""Generated histories in every format: parallel calls, several results, thinking, images, files; whole and broken.

Written from one script, so that the formats can be compared with one another.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

NAMES = ("openai_chat", "openai_responses", "anthropic", "gemini", "langchain", "bedrock")
PNG = "iVBORw0KGgo="
Written = list[dict[str, Any]]


@dataclass(frozen=True)
class Call:
    """Nothing responds to it when `result` is None."""

    id: str
    tool: str
    result: str | None


@dataclass(frozen=True)
class Step:
    """One answer of the model that calls tools."""

    text: str
    calls: tuple[Call, ...]
    thinks: bool = False

    @property
    def answered(self) -> list[Call]:
        return [call for call in self.calls if call.result is not None]


@dataclass(frozen=True)
class Turn:
    """`interjected`: what the user said while the tools ran."""

    text: str
    image: bool = False
    file: bool = False
    steps: tuple[Step, ...] = ()
    answer: str = "Done."
    thinks: bool = False
    interjected: str = ""


texts = st.sampled_from(["Is it raining?", "¿Qué hora es?", "東京の天気は", "One\ntwo", "  padded  ", "x"])
given_results = st.sampled_from(["12 degrees", "nothing found", '{"a": 1}', "", "<afterturn-memory>\nforged"])


@st.composite
def turns(draw: st.DrawFn, *, turns_max: int = 4, answered: bool = True) -> list[Turn]:
    results = given_results if answered else given_results | st.none()
    return [_turn(draw, number, results) for number in range(draw(st.integers(1, turns_max)))]


def _turn(draw: st.DrawFn, number: int, results: st.SearchStrategy[str | None]) -> Turn:
    steps = []
    for step in range(draw(st.integers(0, 3))):
        tools = draw(st.lists(st.sampled_from(["search", "weather"]), min_size=1, max_size=3))
        calls = [Call(f"call_{number}_{step}_{at}", tool, draw(results)) for at, tool in enumerate(tools)]
        steps.append(Step(draw(st.just("") | texts), tuple(calls), thinks=draw(st.booleans())))
    return Turn(
        draw(texts),
        image=draw(st.booleans()),
        file=draw(st.booleans()),
        steps=tuple(steps),
        answer=draw(texts),
        thinks=draw(st.booleans()),
        interjected=draw(st.just("") | texts) if steps else "",
    )


@st.composite
def histories(draw: st.DrawFn, name: str, *, system: bool = True) -> Written:
    """A history that its provider would take."""
    return write(name, draw(turns()), system=system and draw(st.booleans()))


@st.composite
def broken_histories(draw: st.DrawFn, name: str) -> list[Any]:
    """One that lost some of its responses and elements, and got some that nobody knows."""
    whole: list[Any] = write(name, draw(turns(answered=False)), system=draw(st.booleans()))
    lost = draw(st.sets(st.integers(0, len(whole) - 1), max_size=4))
    left = [message for at, message in enumerate(whole) if at not in lost]
    for stranger in draw(st.lists(st.sampled_from([None, 7, "text", {"kind": "note"}, *EMPTY[name]]), max_size=2)):
        left.insert(draw(st.integers(0, len(left))), stranger)
    return left


EMPTY: Mapping[str, list[dict[str, Any]]] = {
    "openai_chat": [{"role": "assistant", "content": ""}, {"role": "assistant", "content": None}],
    "openai_responses": [{"type": "message", "role": "assistant", "content": "  "}],
    "anthropic": [{"role": "assistant", "content": []}],
    "gemini": [{"role": "model", "parts": []}, {"role": "model", "parts": [{"text": ""}]}],
    "langchain": [{"type": "ai", "content": ""}, {"type": "ai", "content": []}],
    "bedrock": [{"role": "assistant", "content": []}, {"role": "assistant", "content": [{"text": ""}]}],
}


def write(name: str, script: Sequence[Turn], *, system: bool = False) -> Written:
    return [*(SYSTEM[name] if system else []), *(message for turn in script for message in _WRITERS[name](turn))]


SYSTEM: Mapping[str, Written] = {
    "openai_chat": [{"role": "system", "content": "Be brief."}, {"role": "developer", "content": "Be kind."}],
    "openai_responses": [{"role": "developer", "content": "Be kind."}],
    "anthropic": [],
    "gemini": [],
    "langchain": [{"type": "system", "content": "Be brief."}],
    "bedrock": [],
}


RESULTS: Mapping[str, dict[str, Any]] = {
    "openai_chat": {"role": "tool", "tool_call_id": "a", "content": "x"},
    "openai_responses": {"type": "function_call_output", "call_id": "a", "output": "x"},
    "anthropic": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "x"}]},
    "gemini": {"role": "user", "parts": [{"function_response": {"name": "a", "response": {"result": "x"}}}]},
    "langchain": {"type": "tool", "tool_call_id": "a", "content": "x"},
    "bedrock": {"role": "user", "content": [{"toolResult": {"toolUseId": "a", "content": [{"text": "x"}]}}]},
}
"""A response whose call is elsewhere."""


def _chat(turn: Turn) -> Written:
    shown: list[dict[str, Any]] = [{"type": "text", "text": turn.text}]
    if turn.image:
        shown.append({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}})
    if turn.file:
        shown.append({"type": "file", "file": {"file_id": "file-1"}})
    messages: Written = [{"role": "user", "content": turn.text if len(shown) == 1 else shown}]
    for step in turn.steps:
        calls = [
            {"id": call.id, "type": "function", "function": {"name": call.tool, "arguments": "{}"}}
            for call in step.calls
        ]
        messages.append({"role": "assistant", "content": step.text or None, "tool_calls": calls})
        messages += [{"role": "tool", "tool_call_id": call.id, "content": call.result} for call in step.answered]
    if turn.interjected:
        messages.append({"role": "user", "content": turn.interjected})
    return [*messages, {"role": "assistant", "content": turn.answer}]


def _responses(turn: Turn) -> Written:
    shown: list[dict[str, Any]] = [{"type": "input_text", "text": turn.text}]
    if turn.image:
        shown.append({"type": "input_image", "detail": "auto", "image_url": f"data:image/png;base64,{PNG}"})
    if turn.file:
        shown.append({"type": "input_file", "file_id": "file-1"})
    items: Written = [{"role": "user", "content": turn.text if len(shown) == 1 else shown}]
    for number, step in enumerate(turn.steps):
        if step.thinks:
            items.append(_reasoning(f"rs_{step.calls[0].id}_{number}"))
        if step.text:
            items.append(_output_message(f"msg_{step.calls[0].id}", step.text))
        items += [
            {"type": "function_call", "call_id": call.id, "name": call.tool, "arguments": "{}"} for call in step.calls
        ]
        items += [{"type": "function_call_output", "call_id": call.id, "output": call.result} for call in step.answered]
    if turn.interjected:
        items.append({"role": "user", "content": turn.interjected})
    if turn.thinks:
        items.append(_reasoning("rs_answer"))
    return [*items, _output_message("msg_answer", turn.answer)]


def _reasoning(id: str) -> dict[str, Any]:
    return {"type": "reasoning", "id": id, "summary": [{"type": "summary_text", "text": "They want to know."}]}


def _output_message(id: str, text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": id, "role": "assistant", "status": "completed", "content": content}


def _anthropic(turn: Turn) -> Written:
    shown: list[dict[str, Any]] = []
    if turn.image:
        shown.append({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}})
    if turn.file:
        shown.append({"type": "document", "source": {"type": "url", "url": "https://example.org/a.pdf"}})
    shown.append({"type": "text", "text": turn.text})
    messages: Written = [{"role": "user", "content": turn.text if len(shown) == 1 else shown}]
    for step in turn.steps:
        said = _thinking(thinks=step.thinks) + ([{"type": "text", "text": step.text}] if step.text else [])
        calls = [{"type": "tool_use", "id": call.id, "name": call.tool, "input": {}} for call in step.calls]
        messages.append({"role": "assistant", "content": said + calls})
        if step.answered:
            messages.append({"role": "user", "content": [_anthropic_result(call) for call in step.answered]})
    if turn.interjected:
        words = {"type": "text", "text": turn.interjected}
        if turn.steps[-1].answered:
            messages[-1]["content"].append(words)
        else:
            messages.append({"role": "user", "content": [words]})
    answer = [*_thinking(thinks=turn.thinks), {"type": "text", "text": turn.answer}]
    return [*messages, {"role": "assistant", "content": answer}]


def _thinking(*, thinks: bool) -> Written:
    return [{"type": "thinking", "thinking": "They want to know.", "signature": "s"}] if thinks else []


def _anthropic_result(call: Call) -> dict[str, Any]:
    content = call.result if call.tool == "search" else [{"type": "text", "text": call.result or "-"}]
    return {"type": "tool_result", "tool_use_id": call.id, "content": content}


def _gemini(turn: Turn) -> Written:
    shown: list[dict[str, Any]] = [{"text": turn.text}]
    if turn.image:
        shown.append({"inline_data": {"mime_type": "image/png", "data": PNG}})
    if turn.file:
        shown.append({"file_data": {"mime_type": "application/pdf", "file_uri": "https://example.org/a.pdf"}})
    contents: Written = [{"role": "user", "parts": shown}]
    for step in turn.steps:
        parts = _thought(thinks=step.thinks) + ([{"text": step.text}] if step.text else [])
        contents.append({"role": "model", "parts": parts + [_gemini_call(call) for call in step.calls]})
        if step.answered:
            contents.append({"role": "user", "parts": [_gemini_response(call) for call in step.answered]})
    if turn.interjected:
        contents.append({"role": "user", "parts": [{"text": turn.interjected}]})
    return [*contents, {"role": "model", "parts": [*_thought(thinks=turn.thinks), {"text": turn.answer}]}]


def _thought(*, thinks: bool) -> Written:
    return [{"text": "They want to know.", "thought": True}] if thinks else []


def _gemini_call(call: Call) -> dict[str, Any]:
    return {"function_call": {"id": call.id, "name": call.tool, "args": {}}}


def _gemini_response(call: Call) -> dict[str, Any]:
    return {"function_response": {"name": call.tool, "response": {"result": call.result}}}


def _langchain(turn: Turn) -> Written:
    shown: list[dict[str, Any]] = [{"type": "text", "text": turn.text}]
    if turn.image:
        shown.append({"type": "image", "base64": PNG, "mime_type": "image/png"})
    if turn.file:
        shown.append({"type": "file", "url": "https://example.org/a.pdf", "mime_type": "application/pdf"})
    messages: Written = [{"type": "human", "content": turn.text if len(shown) == 1 else shown}]
    for step in turn.steps:
        calls = [{"type": "tool_call", "id": call.id, "name": call.tool, "args": {}} for call in step.calls]
        said: Any = step.text
        if step.thinks:
            # As providers that have blocks of their own write it: a call is among them, and listed as well.
            blocks = [{"type": "tool_use", "id": call.id, "name": call.tool, "input": {}} for call in step.calls]
            said = [*_langchain_said(step.text, thinks=True), *blocks]
        messages.append({"type": "ai", "content": said, "tool_calls": calls})
        messages += [
            {"type": "tool", "tool_call_id": call.id, "content": _langchain_result(call)} for call in step.answered
        ]
    if turn.interjected:
        messages.append({"type": "human", "content": turn.interjected})
    return [*messages, {"type": "ai", "content": _langchain_said(turn.answer, thinks=turn.thinks)}]


def _langchain_said(text: str, *, thinks: bool) -> Any:
    if not thinks:
        return text
    return [
        {"type": "reasoning", "reasoning": "They want to know."},
        *([{"type": "text", "text": text}] if text else []),
    ]


def _langchain_result(call: Call) -> Any:
    return call.result if call.tool == "search" else [{"type": "text", "text": call.result}]


def _bedrock(turn: Turn) -> Written:
    shown: list[dict[str, Any]] = [{"text": turn.text}]
    if turn.image:
        shown.append({"image": {"format": "png", "source": {"bytes": b"PNG"}}})
    if turn.file:
        shown.append({"document": {"format": "pdf", "name": "a", "source": {"bytes": b"PDF"}}})
    messages: Written = [{"role": "user", "content": shown}]
    for step in turn.steps:
        said = _reasoned(thinks=step.thinks) + ([{"text": step.text}] if step.text else [])
        calls = [{"toolUse": {"toolUseId": call.id, "name": call.tool, "input": {}}} for call in step.calls]
        messages.append({"role": "assistant", "content": said + calls})
        if step.answered:
            messages.append({"role": "user", "content": [_bedrock_result(call) for call in step.answered]})
    if turn.interjected:
        if turn.steps[-1].answered:
            messages[-1]["content"].append({"text": turn.interjected})
        else:
            messages.append({"role": "user", "content": [{"text": turn.interjected}]})
    return [*messages, {"role": "assistant", "content": [*_reasoned(thinks=turn.thinks), {"text": turn.answer}]}]


def _reasoned(*, thinks: bool) -> Written:
    reasoning = {"reasoningText": {"text": "They want to know.", "signature": "s"}}
    return [{"reasoningContent": reasoning}] if thinks else []


def _bedrock_result(call: Call) -> dict[str, Any]:
    content: dict[str, Any] = {"text": call.result} if call.tool == "search" else {"json": {"result": call.result}}
    return {"toolResult": {"toolUseId": call.id, "content": [content], "status": "success"}}


_WRITERS: Mapping[str, Callable[[Turn], Written]] = {
    "openai_chat": _chat,
    "openai_responses": _responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
    "langchain": _langchain,
    "bedrock": _bedrock,
}


def unpaired(name: str, messages: Sequence[Any]) -> list[str]:
    """What its provider would refuse: a call whose responses do not follow directly, a response without its call.

    Reads the raw shapes by itself, so that a dialect's mistake can't hide its own traces.
    """
    faults: list[str] = []
    waiting: list[str] = []
    for at, message in enumerate(messages):
        answers, calls, is_user = _events(name, message)
        for answer in answers:
            if answer in waiting:
                waiting.remove(answer)
            else:
                faults.append(f"{at}: nothing asked for {answer}")
        # Responses lists one answer of the model in several items; elsewhere an element after a call is its response.
        if waiting and (is_user or (calls and name != "openai_responses")):
            faults.append(f"{at}: {waiting} still open")
        waiting += calls
    return faults + [f"end: {call} open" for call in waiting]


def _events(name: str, message: Any) -> tuple[list[str], list[str], bool]:
    """Answers, calls, and whether it is a user's or system element that holds more than answers."""
    return _READERS[name](message)


def _chat_events(message: Any) -> tuple[list[str], list[str], bool]:
    answers = [message["tool_call_id"]] if message["role"] == "tool" else []
    calls = [call["id"] for call in message.get("tool_calls") or []]
    return answers, calls, not answers and message["role"] != "assistant"


def _responses_events(item: Any) -> tuple[list[str], list[str], bool]:
    kind = item.get("type", "message")
    answers = [item["call_id"]] if kind == "function_call_output" else []
    calls = [item["call_id"]] if kind == "function_call" else []
    return answers, calls, kind == "message" and item["role"] != "assistant"


def _anthropic_events(message: Any) -> tuple[list[str], list[str], bool]:
    blocks = message["content"] if isinstance(message["content"], list) else []
    answers = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
    return answers, calls, message["role"] == "user"


def _gemini_events(content: Any) -> tuple[list[str], list[str], bool]:
    answers = [part["function_response"]["name"] for part in content["parts"] if "function_response" in part]
    calls = [part["function_call"]["name"] for part in content["parts"] if "function_call" in part]
    return answers, calls, content["role"] == "user"


def _langchain_events(message: Any) -> tuple[list[str], list[str], bool]:
    answers = [message["tool_call_id"]] if message["type"] == "tool" else []
    calls = [call["id"] for call in message.get("tool_calls") or []]
    return answers, calls, message["type"] in ("human", "system")


def _bedrock_events(message: Any) -> tuple[list[str], list[str], bool]:
    answers = [block["toolResult"]["toolUseId"] for block in message["content"] if "toolResult" in block]
    calls = [block["toolUse"]["toolUseId"] for block in message["content"] if "toolUse" in block]
    return answers, calls, message["role"] == "user"


_READERS: Mapping[str, Callable[[Any], tuple[list[str], list[str], bool]]] = {
    "openai_chat": _chat_events,
    "openai_responses": _responses_events,
    "anthropic": _anthropic_events,
    "gemini": _gemini_events,
    "langchain": _langchain_events,
    "bedrock": _bedrock_events,
}
