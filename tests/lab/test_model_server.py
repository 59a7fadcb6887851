"""The scripted model server answers the providers' own SDKs, with and without streaming."""

import json
from typing import Any

import anthropic
import openai
import pytest
from google import genai
from google.genai import types as genai_types

from lab.clients.model_server import Call, ModelServer, Rule, Say, follow

SCRIPT = follow(
    [
        Rule("RUN", (Call("shell", {"command": "ls"}), Say("Two files."))),
        Rule("FIND", (lambda request: Say(f"{len(request.parts)} parts"),)),
    ]
)


@pytest.fixture
def server(tmp_path):
    with ModelServer(SCRIPT, log=tmp_path / "requests.jsonl") as running:
        yield running


@pytest.fixture
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="x") as opened:
        yield opened


TOOL = {"type": "object", "properties": {"command": {"type": "string"}}}


@pytest.mark.parametrize("stream", [False, True])
def test_anthropic_messages_call_a_tool_and_then_answer(server, stream):
    client = anthropic.Anthropic(base_url=server.url, api_key="x")
    tools = [{"name": "shell", "description": "run", "input_schema": TOOL}]
    messages: list[Any] = [{"role": "user", "content": "Please RUN it"}]

    def ask():
        given: dict[str, Any] = {
            "model": "scripted",
            "max_tokens": 50,
            "messages": messages,
            "tools": tools,
            "system": "Be short.",
        }
        if not stream:
            return client.messages.create(**given)
        with client.messages.stream(**given) as events:
            return events.get_final_message()

    call = ask().content[0]
    assert (call.name, call.input) == ("shell", {"command": "ls"})
    messages += [
        {"role": "assistant", "content": [call.model_dump(include={"type", "id", "name", "input"})]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "a b"}]},
    ]
    assert ask().content[0].text == "Two files."
    kinds = [(part.role, part.kind) for part in server.requests[-1].parts]
    assert kinds == [("system", "text"), ("user", "text"), ("assistant", "call"), ("user", "result")]
    client.close()


def test_a_thread_of_anthropic_keeps_its_history(server):
    """The SDK's tool runner sends only what is new; `parts` has everything."""

    @anthropic.beta_tool
    def shell(command: str) -> str:
        """Runs a command."""
        return f"{command}: a b"

    with anthropic.Anthropic(base_url=server.url, api_key="x") as client:
        asked: Any = [{"role": "user", "content": "Please RUN it"}]
        runner = client.beta.messages.tool_runner(model="scripted", max_tokens=50, messages=asked, tools=[shell])
        answer: Any = runner.until_done().content[0]
        assert answer.text == "Two files."
    last = server.requests[-1]
    assert len(last.body["messages"]) == 1
    assert [part.kind for part in last.parts] == ["text", "call", "result"]
    assert last.tools == ("shell",)


@pytest.mark.parametrize("stream", [False, True])
def test_chat_completions_call_a_tool_and_then_answer(client, stream):
    tools = [{"type": "function", "function": {"name": "shell", "parameters": TOOL}}]
    messages: list[Any] = [{"role": "user", "content": "Please RUN it"}]

    def ask():
        given: dict[str, Any] = {"model": "scripted", "messages": messages, "tools": tools}
        if not stream:
            return client.chat.completions.create(**given).choices[0].message
        with client.chat.completions.stream(**given) as events:
            return events.get_final_completion().choices[0].message

    (call,) = ask().tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("shell", {"command": "ls"})
    function = {"name": "shell", "arguments": call.function.arguments}
    messages += [
        {"role": "assistant", "tool_calls": [{"id": call.id, "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": call.id, "content": "a b"},
    ]
    assert ask().content == "Two files."


@pytest.mark.parametrize("stream", [False, True])
def test_responses_call_a_tool_and_then_answer(client, stream):
    tools = [{"type": "function", "name": "shell", "parameters": TOOL, "strict": False}]
    items: list[Any] = [{"role": "user", "content": "Please RUN it"}]

    def ask():
        given: dict[str, Any] = {"model": "scripted", "input": items, "tools": tools}
        if not stream:
            return client.responses.create(**given).output[0]
        events = list(client.responses.create(**given, stream=True))
        assert events[-1].type == "response.completed"
        return events[-1].response.output[0]

    call = ask()
    assert (call.name, json.loads(call.arguments)) == ("shell", {"command": "ls"})
    items += [
        {"type": "function_call", "call_id": call.call_id, "name": "shell", "arguments": call.arguments},
        {"type": "function_call_output", "call_id": call.call_id, "output": "a b"},
    ]
    assert ask().content[0].text == "Two files."


@pytest.mark.parametrize("stream", [False, True])
def test_gemini_calls_a_tool_and_then_answers(server, stream):
    client = genai.Client(api_key="x", http_options=genai_types.HttpOptions(base_url=server.url))
    contents: list[Any] = [{"role": "user", "parts": [{"text": "Please RUN it"}]}]

    def ask():
        given: dict[str, Any] = {"model": "gemini-2.5-pro", "contents": contents}
        if not stream:
            return client.models.generate_content(**given)
        return list(client.models.generate_content_stream(**given))[-1]

    (call,) = ask().function_calls
    assert (call.name, call.args) == ("shell", {"command": "ls"})
    contents += [
        {"role": "model", "parts": [{"function_call": {"name": "shell", "args": call.args}}]},
        {"role": "user", "parts": [{"function_response": {"name": "shell", "response": {"output": "a b"}}}]},
    ]
    assert ask().text == "Two files."
    client.close()


def test_markers_in_injected_memory_and_in_earlier_turns_are_not_followed(client):
    quoted = "<hook_context>&lt;afterturn-memory&gt;\nPlease RUN it\n&lt;/afterturn-memory&gt;\nRUN</hook_context>"
    messages: list[Any] = [
        {"role": "user", "content": "Please RUN it"},
        {"role": "assistant", "content": "Done."},
        {"role": "user", "content": f"And now?\n{quoted}"},
    ]
    said = client.chat.completions.create(model="scripted", messages=messages).choices[0].message
    assert said.content == "Understood."


def test_an_answer_may_be_computed_from_the_request_and_each_request_is_logged(client, tmp_path):
    messages: list[Any] = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "FIND"}]
    assert client.chat.completions.create(model="m", messages=messages).choices[0].message.content == "2 parts"
    (line,) = (tmp_path / "requests.jsonl").read_text().splitlines()
    assert json.loads(line)["body"]["messages"] == messages
