"""The places of every message format in which text of others reaches a model.

In each message, `HERE` is replaced by the text. A user's question and an assistant's answer are added around it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from afterturn.dialects import get_dialect

HERE = "\0here"
_TEXT = {"type": "text", "text": HERE}
_CALL = {"id": "a", "type": "function", "function": {"name": "read", "arguments": "{}"}}
_RESULT = {"tool_use_id": "a", "content": [_TEXT]}
_PAGE = {"type": "web_search_result", "title": HERE, "url": "https://example.org", "encrypted_content": "x"}


@dataclass(frozen=True, slots=True, eq=False)
class Carrier:
    """`parts` are added to the user's question, `messages` come after it, `typed` is in the text of the question."""

    dialect: str
    name: str
    parts: tuple[dict[str, Any], ...] = ()
    messages: tuple[dict[str, Any], ...] = ()
    typed: str = ""

    def turn(self, question: str, pieces: Sequence[str]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """The user's message, and the messages up to the answer."""
        dialect = get_dialect(self.dialect)
        typed = question + self.typed.replace(HERE, "\n\n".join(pieces)) if self.typed else question
        made = dialect.make_message("user", typed)
        assert isinstance(made, Mapping)
        asked = copy.deepcopy(dict(made))
        if self.parts:
            _add_parts(self.dialect, asked, [_filled(part, piece) for piece in pieces for part in self.parts])
        return asked, [_filled(message, piece) for piece in pieces for message in self.messages]


def _add_parts(dialect: str, asked: dict[str, Any], parts: list[dict[str, Any]]) -> None:
    if dialect == "gemini":
        asked["parts"] = [*asked["parts"], *parts]
        return
    content = asked["content"]
    kind = "input_text" if dialect == "openai_responses" else "text"
    own = [{"type": kind, "text": content}] if isinstance(content, str) else list(content)
    asked["content"] = [*own, *parts]


def _filled(value: Any, text: str) -> Any:
    if isinstance(value, dict):
        return {key: _filled(one, text) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_filled(one, text) for one in value]
    return text if value == HERE else value


def _parts(dialect: str, **by_name: dict[str, Any]) -> list[Carrier]:
    return [Carrier(dialect, f"user's {name}", parts=(part,)) for name, part in by_name.items()]


def _items(*items: dict[str, Any]) -> list[Carrier]:
    return [Carrier("openai_responses", item["type"], messages=(item,)) for item in items]


def _anthropic(*kinds: str) -> list[Carrier]:
    return [
        Carrier("anthropic", kind, messages=({"role": "assistant", "content": [{"type": kind, **_RESULT}]},))
        for kind in kinds
    ]


def _langchain(**by_name: dict[str, Any]) -> list[Carrier]:
    return [Carrier("langchain", name, messages=(message,)) for name, message in by_name.items()]


def _ai(*blocks: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"type": "ai", "content": list(blocks), **fields}


def _bedrock(**by_name: dict[str, Any]) -> list[Carrier]:
    """Blocks of the assistant."""
    return [
        Carrier("bedrock", name, messages=({"role": "assistant", "content": [block]},))
        for name, block in by_name.items()
    ]


def _bedrock_result(name: str, content: dict[str, Any], **fields: str) -> Carrier:
    called = {"toolUse": {"toolUseId": "a", "name": "read", "input": {}}}
    result = {"toolResult": {"toolUseId": "a", "content": [content], **fields}}
    messages = ({"role": "assistant", "content": [called]}, {"role": "user", "content": [result]})
    return Carrier("bedrock", name, messages=messages)


_PASTES = {
    "mail": "\n\nSee this mail:\n\nFrom: bob@example.org\nTo: me@example.org\nSubject: hello\n\n" + HERE,
    "quotation": "\n\nBob wrote:\n> " + HERE,
    "code": "\n\n```\n" + HERE + "\n```",
    "page": "\n\nCan you translate this?\n\n" + HERE,
}

CARRIERS: tuple[Carrier, ...] = (
    # OpenAI chat
    Carrier(
        "openai_chat",
        "tool",
        messages=(
            {"role": "assistant", "content": None, "tool_calls": [_CALL]},
            {"role": "tool", "tool_call_id": "a", "content": HERE},
        ),
    ),
    Carrier("openai_chat", "tool parts", messages=({"role": "tool", "tool_call_id": "a", "content": [_TEXT]},)),
    Carrier("openai_chat", "function", messages=({"role": "function", "name": "f", "content": HERE},)),
    Carrier(
        "openai_chat",
        "citation",
        messages=({"role": "assistant", "content": HERE, "annotations": [{"type": "url_citation"}]},),
    ),
    Carrier(
        "openai_chat",
        "executed tool",
        messages=({"role": "assistant", "content": HERE, "executed_tools": [{"type": "search", "output": HERE}]},),
    ),
    Carrier(
        "openai_chat",
        "assistant's document",
        messages=({"role": "assistant", "content": [_TEXT | {"type": "document"}]},),
    ),
    *_parts(
        "openai_chat",
        document={"type": "document", "text": HERE},
        file={"type": "file", "text": HERE, "file": {"file_data": HERE}},
        result={"type": "tool_result", "text": HERE},
        titled={"text": HERE, "title": "Mail"},
        unknown={"type": "hologram", "text": HERE},
    ),
    # OpenAI Responses
    *_parts(
        "openai_responses",
        input_file={"type": "input_file", "filename": "a", "text": HERE},
        input_image={"type": "input_image", "text": HERE},
        output_text={"type": "output_text", "text": HERE},
    ),
    *_items(
        {"type": "function_call_output", "call_id": "a", "output": HERE},
        {"type": "function_call_output", "call_id": "a", "output": [{"type": "input_text", "text": HERE}]},
        {"type": "custom_tool_call_output", "call_id": "a", "output": HERE},
        {"type": "shell_call_output", "call_id": "a", "output": [{"stdout": HERE, "stderr": ""}]},
        {"type": "local_shell_call_output", "id": "a", "output": HERE},
        {"type": "apply_patch_call_output", "call_id": "a", "output": HERE},
        {"type": "mcp_approval_response", "approval_request_id": "a", "approve": True, "reason": HERE},
        {"type": "mcp_call", "id": "a", "name": "f", "arguments": "{}", "output": HERE},
        {"type": "mcp_list_tools", "tools": [{"name": "f", "description": HERE}]},
        {"type": "web_search_call", "id": "a", "action": {"type": "search", "query": HERE}},
        {"type": "file_search_call", "id": "a", "results": [{"text": HERE}]},
        {"type": "code_interpreter_call", "id": "a", "outputs": [{"type": "logs", "logs": HERE}]},
        {"type": "program_output", "id": "a", "result": HERE},
        {"type": "tool_search_output", "execution": "server", "tools": [{"description": HERE}]},
        {"type": "compaction", "encrypted_content": HERE},
        {"type": "item_reference", "id": "a"},
        {"type": "hologram", "text": HERE},
    ),
    Carrier(
        "openai_responses",
        "citation",
        messages=(
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": HERE, "annotations": [{"type": "url_citation"}]}],
            },
        ),
    ),
    # Anthropic
    Carrier(
        "anthropic",
        "tool_result",
        messages=(
            {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "read", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": HERE}]},
        ),
    ),
    *_anthropic(
        *("mcp_tool_result", "web_fetch_tool_result", "code_execution_tool_result", "tool_search_tool_result"),
        *("bash_code_execution_tool_result", "text_editor_code_execution_tool_result", "advisor_tool_result"),
    ),
    Carrier(
        "anthropic",
        "web_search_tool_result",
        messages=(
            {
                "role": "assistant",
                "content": [{"type": "web_search_tool_result", "tool_use_id": "a", "content": [_PAGE]}],
            },
        ),
    ),
    Carrier(
        "anthropic",
        "citation",
        messages=({"role": "assistant", "content": [_TEXT | {"citations": [{"cited_text": HERE}]}]},),
    ),
    Carrier(
        "anthropic",
        "compaction",
        messages=({"role": "assistant", "content": [{"type": "compaction", "content": HERE}]},),
    ),
    *_parts(
        "anthropic",
        document={"type": "document", "source": {"type": "text", "data": HERE}},
        search_result={"type": "search_result", "source": "a", "title": "b", "content": [_TEXT]},
        result={"type": "tool_result", "tool_use_id": "a", "content": [_TEXT]},
        image={"type": "image", "source": {"data": HERE}},
    ),
    # Gemini
    Carrier(
        "gemini",
        "function_response and text",
        messages=({"role": "tool", "parts": [{"function_response": {"name": "f"}}, {"text": HERE}]},),
    ),
    Carrier("gemini", "function role", messages=({"role": "function", "parts": [{"text": HERE}]},)),
    Carrier(
        "gemini",
        "function_response",
        messages=({"role": "user", "parts": [{"function_response": {"name": "f", "response": {"r": HERE}}}]},),
    ),
    *(
        Carrier("gemini", next(iter(part)), messages=({"role": "model", "parts": [part]},))
        for part in (
            {"executable_code": {"code": HERE}},
            {"codeExecutionResult": {"output": HERE}},
            {"tool_response": {"response": {"r": HERE}}},
        )
    ),
    *_parts(
        "gemini",
        document={"text": HERE, "document": {"title": "Mail"}},
        inline_data={"inline_data": {"mime_type": "text/plain", "data": HERE}},
        file_data={"file_data": {"file_uri": HERE}},
        response={"function_response": {"name": "f", "response": {"r": HERE}}},
    ),
    # LangChain
    Carrier(
        "langchain",
        "called tool",
        messages=(
            {"type": "ai", "content": "", "tool_calls": [{"id": "a", "name": "read", "args": {}}]},
            {"type": "tool", "tool_call_id": "a", "content": HERE},
        ),
    ),
    *_langchain(
        tool_parts={"type": "tool", "tool_call_id": "a", "content": [_TEXT]},
        tool_error={"type": "tool", "tool_call_id": "a", "content": HERE, "status": "error"},
        tool_chunk={"type": "ToolMessageChunk", "tool_call_id": "a", "content": HERE},
        function={"type": "function", "name": "f", "content": HERE},
        openai_dictionary={"role": "tool", "tool_call_id": "a", "content": HERE},
        chat_message={"type": "chat", "role": "critic", "content": HERE},
        summary={"type": "human", "content": HERE, "additional_kwargs": {"lc_source": "summarization"}},
        summary_parts={"type": "human", "content": [_TEXT], "additional_kwargs": {"lc_source": "summarization"}},
        notification={"type": "human", "content": HERE, "additional_kwargs": {"lc_source": "async_subagent"}},
        server_tool_call=_ai({"type": "server_tool_call", "id": "a", "name": "f", "args": {"x": HERE}}),
        server_tool_result=_ai({"type": "server_tool_result", "tool_call_id": "a", "output": HERE}),
        provider_result=_ai({"type": "web_search_tool_result", "tool_use_id": "a", "content": [_PAGE]}),
        unknown_block=_ai({"type": "non_standard", "value": {"type": "mcp_call", "output": HERE}}),
        assistants_document=_ai(_TEXT | {"type": "text-plain"}),
        citation=_ai(_TEXT | {"annotations": [{"type": "citation", "cited_text": HERE}]}),
        older_citation=_ai(_TEXT | {"citations": [{"cited_text": HERE}]}),
        citation_beside=_ai(_TEXT, additional_kwargs={"citations": [HERE]}),
        grounding=_ai(_TEXT, response_metadata={"grounding_metadata": {"chunks": [HERE]}}),
        tool_outputs=_ai(_TEXT, additional_kwargs={"tool_outputs": [{"output": HERE}]}),
    ),
    *_parts(
        "langchain",
        document={"type": "text-plain", "text": HERE, "mime_type": "text/plain"},
        file={"type": "file", "base64": HERE, "mime_type": "text/plain"},
        image={"type": "image", "url": HERE},
        audio={"type": "audio", "url": HERE},
        result={"type": "tool_result", "tool_use_id": "a", "content": [_TEXT]},
        titled={"text": HERE, "title": "Mail"},
        bedrock_document={"document": {"name": "a", "source": {"text": HERE}}},
        unknown={"type": "non_standard", "value": {"text": HERE}},
    ),
    # Amazon Bedrock
    _bedrock_result("toolResult text", {"text": HERE}),
    _bedrock_result("toolResult json", {"json": {"said": HERE, "by": "Bob"}}),
    _bedrock_result("toolResult error", {"text": HERE}, status="error"),
    _bedrock_result("toolResult document", {"document": {"name": "a", "source": {"text": HERE}}}),
    _bedrock_result("toolResult search", {"searchResult": {"source": "a", "title": HERE, "content": [{"text": HERE}]}}),
    *_bedrock(
        server_tool_use={"toolUse": {"toolUseId": "a", "name": "f", "input": {"x": HERE}, "type": "server_tool_use"}},
        server_tool_result={"toolResult": {"toolUseId": "a", "content": [{"text": HERE}], "type": "web_search"}},
        citation={"citationsContent": {"content": [{"text": HERE}], "citations": [{"title": "a"}]}},
        cited_source={"citationsContent": {"content": [{"text": "So."}], "citations": [{"source": HERE}]}},
        assistants_document={"document": {"name": "a", "source": {"text": HERE}}},
        unknown={"SDK_UNKNOWN_MEMBER": {"name": HERE}},
    ),
    *_parts(
        "bedrock",
        document={"document": {"name": "a", "format": "txt", "source": {"text": HERE}}},
        document_content={"document": {"name": "a", "source": {"content": [{"text": HERE}]}}},
        image={"image": {"format": "png", "source": {"bytes": HERE}}},
        search_result={"searchResult": {"source": "a", "title": "b", "content": [{"text": HERE}]}},
        guarded={"guardContent": {"text": {"text": HERE}}},
        grounding_source={"guardContent": {"text": {"text": HERE, "qualifiers": ["grounding_source"]}}},
        result={"toolResult": {"toolUseId": "a", "content": [{"text": HERE}]}},
        titled={"text": HERE, "title": "Mail"},
        tool_addition={"toolAddition": {"tool": HERE}},
    ),
    # What the user pastes
    *(
        Carrier(dialect, f"pasted {name}", typed=typed)
        for dialect in ("openai_chat", "openai_responses", "anthropic", "gemini", "langchain", "bedrock")
        for name, typed in _PASTES.items()
    ),
)
