"""Whose words each part of a message is, in every format: the user's, the assistant's or a tool's."""

import typing
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import typing_extensions
from client_libraries import as_objects, types
from converse_types import ContentBlock as ConverseBlock
from pydantic import BaseModel

from afterturn.dialects import get_dialect
from afterturn.dialects.history import read_exchange

WORDS = "My name is Smith."


class Shape(NamedTuple):
    """A message that contains `WORDS` once or not at all, and who is expected to have said them.

    `said_by` is the role of the words, "" if they are not read. `untrusted`: something else than the user's and the
    assistant's words is in the message.
    """

    dialect: str
    message: dict[str, Any]
    said_by: str
    untrusted: bool


def chat(role: str, *parts: dict[str, Any], said_by: str, untrusted: bool, **fields: Any) -> Shape:
    return Shape("openai_chat", {"role": role, "content": list(parts), **fields}, said_by, untrusted)


def responses(role: str, *parts: dict[str, Any], said_by: str, untrusted: bool) -> Shape:
    return Shape("openai_responses", {"type": "message", "role": role, "content": list(parts)}, said_by, untrusted)


def item(kind: str, said_by: str = "", *, untrusted: bool = True, **fields: Any) -> Shape:
    return Shape("openai_responses", {"type": kind, **fields}, said_by, untrusted)


def anthropic(role: str, *blocks: dict[str, Any], said_by: str, untrusted: bool) -> Shape:
    return Shape("anthropic", {"role": role, "content": list(blocks)}, said_by, untrusted)


def gemini(role: str | None, *parts: dict[str, Any], said_by: str, untrusted: bool) -> Shape:
    return Shape("gemini", {"parts": list(parts), **({} if role is None else {"role": role})}, said_by, untrusted)


def human(*parts: dict[str, Any], said_by: str, untrusted: bool, **fields: Any) -> Shape:
    return Shape("langchain", {"type": "human", "content": list(parts), **fields}, said_by, untrusted)


def ai(*parts: dict[str, Any], said_by: str, untrusted: bool, **fields: Any) -> Shape:
    return Shape("langchain", {"type": "ai", "content": list(parts), **fields}, said_by, untrusted)


def bedrock(role: str, *blocks: dict[str, Any], said_by: str, untrusted: bool) -> Shape:
    return Shape("bedrock", {"role": role, "content": list(blocks)}, said_by, untrusted)


def guarded(*qualifiers: str) -> dict[str, Any]:
    return {"guardContent": {"text": {"text": WORDS, **({"qualifiers": list(qualifiers)} if qualifiers else {})}}}


def tool_result(*content: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"toolResult": {"toolUseId": "a", "content": list(content), **fields}}


def result(kind: str, content: object) -> dict[str, Any]:
    return {"type": kind, "tool_use_id": "a", "content": content}


TEXT = {"type": "text", "text": WORDS}
PAGE = {"type": "web_search_result", "title": WORDS, "url": "https://example.org", "encrypted_content": "x"}
CITATION = {"type": "web_search_result_location", "cited_text": WORDS, "url": "https://example.org"}
CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": WORDS}}
PICTURE = {"mime_type": "image/png", "data": "aGk="}

SHAPES = [
    # OpenAI chat
    Shape("openai_chat", {"role": "user", "content": WORDS}, "user", False),
    Shape("openai_chat", {"role": "user", "content": [WORDS]}, "user", False),
    Shape("openai_chat", {"role": "assistant", "content": WORDS}, "assistant", False),
    Shape("openai_chat", {"role": "tool", "tool_call_id": "a", "content": WORDS}, "tool", True),
    Shape("openai_chat", {"role": "function", "name": "f", "content": WORDS}, "tool", True),
    Shape("openai_chat", {"role": "assistant", "content": None, "tool_calls": [CALL]}, "", False),
    Shape("openai_chat", {"role": "assistant", "content": None, "refusal": WORDS}, "assistant", False),
    Shape("openai_chat", {"role": "assistant", "audio": {"transcript": WORDS}}, "assistant", False),
    Shape("openai_chat", {"role": "system", "content": WORDS}, "system", False),
    Shape("openai_chat", {"role": "developer", "content": [TEXT]}, "system", False),
    chat("user", TEXT, said_by="user", untrusted=False),
    chat("user", {"text": WORDS}, said_by="user", untrusted=False),
    chat("user", {"text": WORDS, "title": "Mail"}, said_by="tool", untrusted=True),
    chat("user", {"type": "document", "text": WORDS}, said_by="tool", untrusted=True),
    chat("user", {"type": "file", "text": WORDS, "file": {"file_data": "x"}}, said_by="tool", untrusted=True),
    chat("user", {"type": "tool_result", "text": WORDS}, said_by="tool", untrusted=True),
    chat("user", {"type": "refusal", "refusal": WORDS}, said_by="", untrusted=True),
    chat("user", {"type": "hologram", "text": WORDS}, said_by="tool", untrusted=True),
    chat("user", {"type": "image_url", "image_url": {"url": "u"}}, TEXT, said_by="user", untrusted=True),
    chat("user", {"type": "input_audio", "input_audio": {"data": "x"}}, said_by="", untrusted=True),
    chat("assistant", TEXT, said_by="assistant", untrusted=False),
    chat("assistant", {"type": "refusal", "refusal": WORDS}, said_by="assistant", untrusted=False),
    chat("assistant", {"type": "document", "text": WORDS}, said_by="", untrusted=True),
    chat("assistant", TEXT, annotations=[{"type": "url_citation"}], said_by="assistant", untrusted=True),
    chat("assistant", TEXT, executed_tools=[{"type": "search"}], said_by="assistant", untrusted=True),
    chat("tool", TEXT, tool_call_id="a", said_by="tool", untrusted=True),
    chat("tool", {"type": "document", "text": WORDS}, tool_call_id="a", said_by="tool", untrusted=True),
    # OpenAI Responses
    Shape("openai_responses", {"role": "user", "content": WORDS}, "user", False),
    Shape("openai_responses", {"role": "assistant", "content": WORDS}, "assistant", False),
    responses("user", {"type": "input_text", "text": WORDS}, said_by="user", untrusted=False),
    responses("user", {"type": "input_file", "filename": "a", "text": WORDS}, said_by="tool", untrusted=True),
    responses("user", {"type": "input_image", "text": WORDS}, said_by="tool", untrusted=True),
    responses("user", {"type": "input_audio", "text": WORDS}, said_by="tool", untrusted=True),
    responses("user", {"type": "output_text", "text": WORDS}, said_by="tool", untrusted=True),
    responses("assistant", {"type": "output_text", "text": WORDS}, said_by="assistant", untrusted=False),
    responses("assistant", {"type": "refusal", "refusal": WORDS}, said_by="assistant", untrusted=False),
    responses("assistant", {"type": "reasoning_text", "text": WORDS}, said_by="", untrusted=True),
    responses(
        "assistant",
        {"type": "output_text", "text": WORDS, "annotations": [{"type": "url_citation"}]},
        said_by="assistant",
        untrusted=True,
    ),
    responses("developer", {"type": "input_text", "text": WORDS}, said_by="system", untrusted=False),
    item("function_call", call_id="a", name="f", arguments=WORDS, untrusted=False),
    item("custom_tool_call", call_id="a", name="f", input=WORDS, untrusted=False),
    item("computer_call", call_id="a", action={"type": "type", "text": WORDS}, untrusted=False),
    item("shell_call", call_id="a", action={"commands": [WORDS]}, untrusted=False),
    item("local_shell_call", call_id="a", action={"command": [WORDS]}, untrusted=False),
    item("apply_patch_call", call_id="a", operation={"diff": WORDS}, untrusted=False),
    item("mcp_approval_request", id="a", arguments=WORDS, untrusted=False),
    item("function_call_output", "tool", call_id="a", output=WORDS),
    item("function_call_output", "tool", call_id="a", output=[{"type": "input_text", "text": WORDS}]),
    item("function_call_output", call_id="a", output=[{"type": "input_file", "file_data": "x"}]),
    item("custom_tool_call_output", "tool", call_id="a", output=WORDS),
    item("computer_call_output", call_id="a", output={"type": "computer_screenshot", "image_url": "x"}),
    item("shell_call_output", "tool", call_id="a", output=[{"stdout": WORDS, "stderr": ""}]),
    item("local_shell_call_output", "tool", id="a", output=WORDS),
    item("apply_patch_call_output", "tool", call_id="a", output=WORDS),
    item("mcp_approval_response", approval_request_id="a", approve=True, reason=WORDS),
    item("mcp_call", id="a", name="f", arguments="{}", output=WORDS),
    item("mcp_list_tools", tools=[{"name": "f", "description": WORDS}]),
    item("web_search_call", id="a", action={"type": "search", "query": WORDS}),
    item("file_search_call", id="a", results=[{"text": WORDS}]),
    item("code_interpreter_call", id="a", outputs=[{"type": "logs", "logs": WORDS}]),
    item("image_generation_call", id="a", result="aGk="),
    item("program", id="a", code=WORDS),
    item("program_output", id="a", result=WORDS),
    item("compaction", encrypted_content="x"),
    item("tool_search_call", execution="server", arguments=WORDS),
    item("tool_search_output", execution="server", tools=[{"description": WORDS}]),
    item("tool_search_call", execution="client", call_id="a", untrusted=False),
    item("tool_search_output", execution="client", call_id="a"),
    item("reasoning", summary=[{"type": "summary_text", "text": WORDS}], untrusted=False),
    item("additional_tools", tools=[{"description": WORDS}], untrusted=False),
    item("configuration_update", instructions=WORDS, untrusted=False),
    item("compaction_trigger", untrusted=False),
    item("item_reference", id="a"),
    item("hologram", text=WORDS),
    # Anthropic
    Shape("anthropic", {"role": "user", "content": WORDS}, "user", False),
    Shape("anthropic", {"role": "assistant", "content": WORDS}, "assistant", False),
    anthropic("user", TEXT, said_by="user", untrusted=False),
    anthropic("user", result("tool_result", WORDS), said_by="tool", untrusted=True),
    anthropic("user", result("tool_result", [TEXT]), said_by="tool", untrusted=True),
    anthropic("user", {"type": "document", "source": {"data": WORDS}}, said_by="", untrusted=True),
    anthropic("user", {"type": "document", "text": WORDS}, said_by="tool", untrusted=True),
    anthropic("user", {"type": "search_result", "content": [TEXT]}, said_by="", untrusted=True),
    anthropic("user", {"type": "container_upload", "file_id": "f"}, TEXT, said_by="user", untrusted=True),
    anthropic("user", {"type": "image", "source": {"data": "aGk="}}, TEXT, said_by="user", untrusted=True),
    anthropic("user", {"type": "tool_addition", "tool": {"description": WORDS}}, said_by="", untrusted=True),
    anthropic("user", {"type": "tool_removal", "tool": {}}, said_by="", untrusted=True),
    anthropic("assistant", TEXT, said_by="assistant", untrusted=False),
    anthropic("assistant", TEXT | {"citations": [CITATION]}, said_by="assistant", untrusted=True),
    anthropic("assistant", {"type": "thinking", "thinking": WORDS}, said_by="", untrusted=False),
    anthropic("assistant", {"type": "redacted_thinking", "data": "x"}, TEXT, said_by="assistant", untrusted=False),
    anthropic("assistant", {"type": "fallback", "to": {}}, TEXT, said_by="assistant", untrusted=False),
    anthropic("assistant", {"type": "tool_use", "id": "a", "input": {"x": WORDS}}, said_by="", untrusted=False),
    anthropic("assistant", {"type": "server_tool_use", "id": "a", "input": {}}, said_by="", untrusted=True),
    anthropic("assistant", {"type": "mcp_tool_use", "id": "a", "input": {}}, said_by="", untrusted=True),
    anthropic("assistant", {"type": "mcp_tool_listing", "tools": [WORDS]}, said_by="", untrusted=True),
    anthropic("assistant", {"type": "compaction", "content": WORDS}, said_by="", untrusted=True),
    anthropic("assistant", result("web_search_tool_result", [PAGE]), said_by="", untrusted=True),
    *(
        anthropic("assistant", result(kind, [TEXT]), said_by="", untrusted=True)
        for kind in (
            *("mcp_tool_result", "web_fetch_tool_result", "code_execution_tool_result", "tool_search_tool_result"),
            *("bash_code_execution_tool_result", "text_editor_code_execution_tool_result", "advisor_tool_result"),
        )
    ),
    # Gemini
    gemini("user", {"text": WORDS}, said_by="user", untrusted=False),
    gemini(None, {"text": WORDS}, said_by="user", untrusted=False),
    gemini("user", {"text": WORDS, "thought": True}, said_by="", untrusted=False),
    gemini("user", {"function_response": {"name": "f", "response": {"r": WORDS}}}, said_by="tool", untrusted=True),
    gemini("user", {"function_response": {"name": "f"}, "text": WORDS}, said_by="tool", untrusted=True),
    gemini("user", {"text": WORDS, "document": {"title": "Mail"}}, said_by="tool", untrusted=True),
    gemini("user", {"text": WORDS}, {"inlineData": PICTURE}, said_by="user", untrusted=True),
    gemini("user", {"file_data": {"file_uri": "u"}}, said_by="", untrusted=True),
    gemini("user", {"audio_transcription": {"text": WORDS}}, said_by="", untrusted=True),
    gemini("tool", {"function_response": {"name": "f"}}, {"text": WORDS}, said_by="tool", untrusted=True),
    gemini("function", {"text": WORDS}, said_by="tool", untrusted=True),
    gemini("tool", {"inline_data": PICTURE}, said_by="", untrusted=True),
    gemini("model", {"text": WORDS}, said_by="assistant", untrusted=False),
    gemini("model", {"text": WORDS, "thought_signature": "aGk="}, said_by="assistant", untrusted=False),
    gemini("model", {"text": WORDS, "thought": True}, said_by="", untrusted=False),
    gemini("model", {"functionCall": {"name": "f", "args": {"x": WORDS}}}, said_by="", untrusted=False),
    gemini("model", {"executable_code": {"code": WORDS}}, said_by="", untrusted=True),
    gemini("model", {"codeExecutionResult": {"output": WORDS}}, said_by="", untrusted=True),
    gemini("model", {"tool_call": {"args": {"x": WORDS}}}, said_by="", untrusted=True),
    gemini("model", {"tool_response": {"response": {"r": WORDS}}}, said_by="", untrusted=True),
    gemini("model", {"inline_data": PICTURE}, said_by="", untrusted=True),
    # LangChain
    Shape("langchain", {"type": "human", "content": WORDS}, "user", False),
    Shape("langchain", {"type": "HumanMessageChunk", "content": WORDS}, "user", False),
    Shape("langchain", {"type": "human", "content": [WORDS]}, "user", False),
    Shape("langchain", {"role": "user", "content": WORDS}, "user", False),
    Shape("langchain", {"role": "human", "content": WORDS}, "user", False),
    Shape("langchain", {"role": "tool", "tool_call_id": "a", "content": WORDS}, "tool", True),
    Shape("langchain", {"type": "chat", "role": "user", "content": WORDS}, "user", False),
    Shape("langchain", {"type": "chat", "role": "assistant", "content": WORDS}, "assistant", False),
    Shape("langchain", {"type": "chat", "role": "critic", "content": WORDS}, "", True),
    Shape("langchain", {"type": "ai", "content": WORDS}, "assistant", False),
    Shape("langchain", {"type": "AIMessageChunk", "content": WORDS}, "assistant", False),
    Shape("langchain", {"type": "system", "content": WORDS}, "system", False),
    Shape("langchain", {"type": "system", "content": [TEXT]}, "system", False),
    Shape("langchain", {"type": "tool", "tool_call_id": "a", "content": WORDS}, "tool", True),
    Shape("langchain", {"type": "tool", "tool_call_id": "a", "content": [TEXT]}, "tool", True),
    Shape("langchain", {"type": "tool", "tool_call_id": "a", "content": WORDS, "status": "error"}, "tool", True),
    Shape("langchain", {"type": "tool", "tool_call_id": "a", "content": "x", "artifact": WORDS}, "", True),
    Shape("langchain", {"type": "tool", "tool_call_id": "a", "content": [{"type": "image", "url": "u"}]}, "", True),
    Shape("langchain", {"type": "function", "name": "f", "content": WORDS}, "tool", True),
    Shape("langchain", {"type": "remove", "id": "a", "content": ""}, "", False),
    *(
        Shape("langchain", {"type": "human", "content": said, "additional_kwargs": {"lc_source": source}}, role, True)
        for source, role in (("summarization", "system"), ("async_subagent", "system"), (7, "system"))
        for said in (WORDS, [TEXT])
    ),
    human(TEXT, said_by="user", untrusted=False),
    human(TEXT, {"cachePoint": {"type": "default"}}, said_by="user", untrusted=False),
    human({"type": "text-plain", "text": WORDS, "mime_type": "text/plain"}, said_by="tool", untrusted=True),
    human({"type": "document", "text": WORDS}, said_by="tool", untrusted=True),
    human({"type": "tool_result", "tool_use_id": "a", "content": WORDS}, said_by="", untrusted=True),
    human({"type": "non_standard", "value": {"text": WORDS}}, said_by="", untrusted=True),
    human({"type": "image", "url": "u"}, TEXT, said_by="user", untrusted=True),
    human({"type": "image_url", "image_url": {"url": "u"}}, TEXT, said_by="user", untrusted=True),
    human({"type": "audio", "base64": "aGk="}, said_by="", untrusted=True),
    human({"type": "video", "url": "u"}, said_by="", untrusted=True),
    human({"type": "file", "url": "u"}, said_by="", untrusted=True),
    human({"document": {"name": WORDS, "source": {"text": WORDS}}}, said_by="", untrusted=True),
    ai(TEXT, said_by="assistant", untrusted=False),
    ai({"type": "output_text", "text": WORDS}, said_by="assistant", untrusted=False),
    ai({"type": "refusal", "refusal": WORDS}, said_by="assistant", untrusted=False),
    ai(additional_kwargs={"refusal": WORDS}, said_by="assistant", untrusted=False),
    ai(additional_kwargs={"audio": {"transcript": WORDS}}, said_by="assistant", untrusted=False),
    ai({"type": "reasoning", "reasoning": WORDS}, said_by="", untrusted=False),
    ai({"type": "thinking", "thinking": WORDS}, TEXT | {"text": "x"}, said_by="", untrusted=False),
    ai({"type": "tool_call", "id": "a", "name": "f", "args": {"x": WORDS}}, said_by="", untrusted=False),
    ai({"type": "tool_call_chunk", "id": "a", "name": "f", "args": WORDS}, said_by="", untrusted=False),
    ai({"type": "invalid_tool_call", "id": "a", "name": "f", "args": WORDS}, said_by="", untrusted=False),
    ai({"type": "non_standard", "value": {"type": "redacted_thinking"}}, TEXT, said_by="assistant", untrusted=False),
    ai({"type": "non_standard", "value": {"type": "mcp_call", "output": WORDS}}, said_by="", untrusted=True),
    ai({"type": "non_standard", "value": {"text": WORDS}}, said_by="", untrusted=True),
    ai({"type": "server_tool_call", "id": "a", "name": "web_search", "args": {}}, said_by="", untrusted=True),
    ai({"type": "server_tool_call_chunk", "id": "a", "args": WORDS}, said_by="", untrusted=True),
    ai({"type": "server_tool_result", "tool_call_id": "a", "output": WORDS}, said_by="", untrusted=True),
    ai({"type": "server_tool_use", "id": "a", "input": {}}, said_by="", untrusted=True),
    ai({"type": "web_search_tool_result", "content": [PAGE]}, TEXT, said_by="assistant", untrusted=True),
    ai({"type": "text-plain", "text": WORDS}, said_by="", untrusted=True),
    ai({"type": "image", "url": "u"}, said_by="", untrusted=True),
    ai(TEXT | {"annotations": [{"type": "citation", "url": "u"}]}, said_by="assistant", untrusted=True),
    ai(TEXT | {"citations": [CITATION]}, said_by="assistant", untrusted=True),
    ai(TEXT, additional_kwargs={"citations": ["u"]}, said_by="assistant", untrusted=True),
    ai(TEXT, additional_kwargs={"tool_outputs": [{}]}, said_by="assistant", untrusted=True),
    ai(TEXT, response_metadata={"grounding_metadata": {"chunks": [WORDS]}}, said_by="assistant", untrusted=True),
    ai(TEXT, response_metadata={"grounding_metadata": {}}, said_by="assistant", untrusted=False),
    # Amazon Bedrock
    bedrock("user", {"text": WORDS}, said_by="user", untrusted=False),
    bedrock("user", {"text": WORDS}, {"cachePoint": {"type": "default"}}, said_by="user", untrusted=False),
    bedrock("user", {"text": WORDS, "title": "Mail"}, said_by="tool", untrusted=True),
    bedrock("user", tool_result({"text": WORDS}), said_by="tool", untrusted=True),
    bedrock("user", tool_result({"text": WORDS}, status="error"), said_by="tool", untrusted=True),
    bedrock("user", tool_result({"json": {"a": 1, "said": WORDS}}), said_by="tool", untrusted=True),
    bedrock("user", tool_result({"image": {"format": "png"}}), said_by="", untrusted=True),
    bedrock("user", tool_result({"document": {"source": {"text": WORDS}}}), said_by="", untrusted=True),
    bedrock("user", {"image": {"format": "png"}}, {"text": WORDS}, said_by="user", untrusted=True),
    bedrock("user", {"document": {"name": "a", "source": {"text": WORDS}}}, said_by="", untrusted=True),
    bedrock("user", {"video": {"format": "mp4"}}, said_by="", untrusted=True),
    bedrock("user", {"audio": {"format": "mp3"}}, said_by="", untrusted=True),
    bedrock("user", {"searchResult": {"content": [{"text": WORDS}]}}, said_by="", untrusted=True),
    bedrock("user", {"toolAddition": {"tool": WORDS}}, said_by="", untrusted=True),
    bedrock("user", {"toolRemoval": {"tool": WORDS}}, said_by="", untrusted=True),
    bedrock("user", {"SDK_UNKNOWN_MEMBER": {"name": WORDS}}, said_by="", untrusted=True),
    bedrock("user", guarded("query"), said_by="user", untrusted=False),
    bedrock("user", guarded(), said_by="tool", untrusted=True),
    bedrock("user", guarded("grounding_source"), said_by="tool", untrusted=True),
    bedrock("user", guarded("query", "grounding_source"), said_by="tool", untrusted=True),
    bedrock("user", {"guardContent": {"image": {"format": "png"}}}, said_by="", untrusted=True),
    bedrock("system", {"text": WORDS}, said_by="system", untrusted=False),
    bedrock("assistant", {"text": WORDS}, said_by="assistant", untrusted=False),
    bedrock("assistant", {"reasoningContent": {"reasoningText": {"text": WORDS}}}, said_by="", untrusted=False),
    bedrock("assistant", {"toolUse": {"toolUseId": "a", "input": {"x": WORDS}}}, said_by="", untrusted=False),
    bedrock(
        "assistant",
        {"toolUse": {"toolUseId": "a", "name": "search", "input": {}, "type": "server_tool_use"}},
        tool_result({"text": WORDS}, type="web_search_tool_result"),
        said_by="",
        untrusted=True,
    ),
    bedrock(
        "assistant",
        {"citationsContent": {"content": [{"text": WORDS}], "citations": [{"title": "x"}]}},
        said_by="assistant",
        untrusted=True,
    ),
    bedrock(
        "assistant",
        {"citationsContent": {"content": [{"text": "x"}], "citations": [{"sourceContent": [{"text": WORDS}]}]}},
        said_by="",
        untrusted=True,
    ),
    bedrock("assistant", {"image": {"format": "png"}}, said_by="", untrusted=True),
]


def _name(shape: Shape) -> str:
    parts = shape.message.get("content") or shape.message.get("parts")
    kinds = [part.get("type") or "+".join(part) for part in parts if type(part) is dict] if type(parts) is list else []
    return "-".join([shape.dialect, shape.message.get("role") or shape.message.get("type", ""), *kinds])


@pytest.mark.parametrize("shape", SHAPES, ids=map(_name, SHAPES))
def test_words_belong_to_the_one_who_is_known_to_have_said_them(shape: Shape) -> None:
    """G2: what is not known to be typed by the user is not the user's."""
    element = get_dialect(shape.dialect).read(shape.message)
    said = [one for one in element.utterances if WORDS in one.text] if element is not None else []

    assert [one.role for one in said] == ([shape.said_by] if shape.said_by else [])
    assert (element is None or element.is_untrusted) == shape.untrusted


@pytest.mark.parametrize("shape", SHAPES, ids=map(_name, SHAPES))
def test_a_turn_knows_that_something_untrusted_entered_it(shape: Shape) -> None:
    """G2: also if it has no text, or cannot be read."""
    dialect = get_dialect(shape.dialect)
    question, answer = dialect.make_message("user", "Hello?"), dialect.make_message("assistant", "Hi.")

    assert read_exchange(dialect, [question, shape.message, answer], 0, str).is_untrusted == shape.untrusted
    assert not read_exchange(dialect, [shape.message, question, answer], 1, str).is_untrusted


def test_objects_of_geminis_client_are_read_as_mappings_are() -> None:
    """G2: the table above has mappings only."""
    for shape in SHAPES:
        if shape.dialect != "gemini" or any("document" in part for part in shape.message["parts"]):
            continue
        element = get_dialect("gemini").read(types.Content.model_validate(shape.message))
        assert element == get_dialect("gemini").read(shape.message)


def test_objects_of_langchain_are_read_as_mappings_are() -> None:
    """G2: the table above has mappings only."""
    langchain = get_dialect("langchain")
    own = [shape.message for shape in SHAPES if shape.dialect == "langchain" and "type" in shape.message]
    assert len(own) > 50
    for message in own:
        kind = message["type"]
        if "Chunk" in kind or kind in ("chat", "remove") or not isinstance(message.get("content"), str | list):
            continue
        assert langchain.read(as_objects("langchain", [message])[0]) == langchain.read(message)


def test_a_response_to_an_earlier_call_is_untrusted_in_the_turn_that_it_comes_with() -> None:
    """G2: the model reads it with the user's words, although it is not recorded in this turn."""
    interrupted = {"role": "user", "content": [result("tool_result", WORDS), {"type": "text", "text": "Stop."}]}
    answer = {"role": "assistant", "content": "Stopped."}
    found = read_exchange(get_dialect("anthropic"), [interrupted, answer], 0, str)

    assert [message.text for message in found.messages] == ["Stop.", "Stopped."]
    assert found.is_untrusted


def test_a_document_of_the_users_message_is_recorded_as_a_tools_text() -> None:
    """G2, T1: it is not lost, and it is not the user's."""
    asked = {"role": "user", "content": [{"type": "text", "text": "Whose?"}, {"type": "document", "text": WORDS}]}
    answer = {"role": "assistant", "content": "Smith's."}
    found = read_exchange(get_dialect("openai_chat"), [asked, answer], 0, str)

    said = [(message.role, message.text) for message in found.messages]
    assert said == [("tool", WORDS), ("user", "Whose?"), ("assistant", "Smith's.")]


def _kinds_in(annotation: Any) -> Iterator[str]:
    """The types of all members of a union of the client's types."""
    if typing.get_origin(annotation) is typing.Literal:
        return
    if members := typing.get_args(annotation):
        for member in members:
            yield from _kinds_in(member)
        return
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield from _literals(annotation.model_fields["type"].annotation)
    elif typing_extensions.is_typeddict(annotation):
        yield from _literals(typing_extensions.get_type_hints(annotation).get("type"))


def _literals(annotation: Any) -> Iterator[str]:
    for member in typing.get_args(annotation):
        if isinstance(member, str):
            yield member
        else:
            yield from _literals(member)


def _covered(dialect: str) -> set[str]:
    messages = [shape.message for shape in SHAPES if shape.dialect == dialect]
    parts = [part for message in messages for part in (message.get("content"), message.get("parts")) if part]
    inner = [part for several in parts if type(several) is list for part in several if type(part) is dict]
    return {name for part in inner for name in part} | {part["type"] for part in [*messages, *inner] if "type" in part}


def test_the_table_has_every_type_that_the_clients_know() -> None:
    """G2: a new type of a new client version must be given an origin."""
    from anthropic.types.beta import BetaContentBlockParam
    from langchain_core.messages import ContentBlock as LangChainBlock
    from openai.types.chat import ChatCompletionContentPartParam
    from openai.types.responses import ResponseInputContentParam, ResponseInputItemParam

    for dialect, union in (
        ("openai_chat", ChatCompletionContentPartParam),
        ("openai_responses", ResponseInputItemParam),
        ("openai_responses", ResponseInputContentParam),
        ("anthropic", BetaContentBlockParam),
        ("langchain", LangChainBlock),
    ):
        known = set(_kinds_in(union))
        assert len(known) >= 3
        assert known - _covered(dialect) == set()
    assert set(typing_extensions.get_type_hints(ConverseBlock)) - _covered("bedrock") == set()
    assert issubclass(types.Part, BaseModel)
    of_text = {"video_metadata", "media_resolution", "part_metadata", "media_processing", "speech_metadata"}
    given = _covered("gemini")
    assert {one for one in types.Part.model_fields if one not in given and _capital(one) not in given} == of_text


def _capital(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
