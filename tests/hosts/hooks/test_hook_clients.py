"""Payloads of each client become one kind of event, and answers have the client's own form."""

import json
import shlex
import sys
from pathlib import Path

import pytest

from afterturn.hosts.hooks.clients import CLIENTS, HOOK_EVENTS, hook_command, opencode_plugin
from afterturn.hosts.hooks.events import EventKind, HookAnswer, HookEvent, InvalidPayload

COMMON = {"session_id": "s1", "transcript_path": "/t.jsonl", "cwd": "/work"}
ALL = HookAnswer(context="the block", refusal="", notice="")


def read(client: str, name: str, **fields: object) -> HookEvent:
    event = CLIENTS[client].read(name, {**COMMON, "sessionId": "s1", "hook_event_name": name, **fields})
    assert event is not None
    return event


def ignores(client: str, name: str, **fields: object) -> bool:
    return CLIENTS[client].read(name, {**COMMON, "hook_event_name": name, **fields}) is None


def written(client: str, name: str, answer: HookAnswer = ALL, **fields: object) -> dict[str, object]:
    return CLIENTS[client].write(read(client, name, **fields), answer)


def injected(client: str, name: str, **fields: object) -> bool:
    return "the block" in json.dumps(written(client, name, **fields))


def test_a_hooks_command_runs_this_python_and_the_script_of_this_package() -> None:
    program, *options, script, client, event, either, true = shlex.split(hook_command("codex", "Stop"))
    assert (either, true) == ("||", "true")
    assert (program, options, client, event) == (sys.executable, ["-I", "-S"], "codex", "Stop")
    assert Path(script).is_file()


@pytest.mark.parametrize("client", sorted(CLIENTS))
def test_every_registered_event_is_understood(client: str) -> None:
    """Each shell client reports at least a prompt, a call, a result and the end of a turn."""
    kinds = [read(client, one.name, prompt="hello", agent_type="explore").kind for one in HOOK_EVENTS[client]]
    wanted = {EventKind.PROMPT, EventKind.TOOL_CALL, EventKind.TOOL_RESULT, EventKind.TURN_END}
    # The result of a tool that fails has an event of its own.
    assert len(set(kinds)) == len([one for one in HOOK_EVENTS[client] if "Failure" not in one.name])
    assert wanted <= set(kinds) or client == "opencode"


def test_the_plugin_of_opencode_starts_the_same_script() -> None:
    plugin = opencode_plugin()
    command = plugin.split("const COMMAND = ", 1)[1].split("\n", 1)[0]
    assert json.loads(command) == shlex.split(hook_command("opencode", "EVENT"))[:-3]


def test_text_reaches_the_model_only_at_safe_places() -> None:
    """H1: never between a call and its output; never where a client loses or moves it."""
    table = {
        "claude-code": {"SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "compact"},
        "codex": {"SessionStart", "UserPromptSubmit", "compact"},
        "qwen-code": {"SessionStart", "UserPromptSubmit", "PostToolUse"},
        "opencode": {"UserPromptSubmit"},
    }
    for client, places in table.items():
        names = ("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SubagentStop", "SessionEnd")
        found = {name for name in names if injected(client, name, agent_type="x")}
        found |= {"compact"} if injected(client, "SessionStart", source="compact") else set()
        assert found == places, client


def test_gemini_gets_text_at_the_prompt_and_in_a_tools_output() -> None:
    names = [one.name for one in HOOK_EVENTS["gemini-cli"]]
    assert [name for name in names if injected("gemini-cli", name)] == ["BeforeAgent", "AfterTool"]


def test_trap_1_claude_gets_an_empty_answer_to_stop_and_session_end() -> None:
    assert written("claude-code", "Stop", HookAnswer("text", "no", "notice")) == {}
    assert written("claude-code", "SessionEnd", HookAnswer("text", "no", "notice")) == {}
    assert ignores("claude-code", "SubagentStop", agent_type="")


def test_trap_2_gemini_gets_an_empty_answer_to_session_start() -> None:
    assert written("gemini-cli", "SessionStart", HookAnswer("text", "", "notice"), source="resume") == {}


def test_trap_3_gemini_compression_is_not_a_signal() -> None:
    assert ignores("gemini-cli", "PreCompress")
    assert "PreCompress" not in [one.name for one in HOOK_EVENTS["gemini-cli"]]


def test_trap_5_gemini_model_calls_are_not_hooked() -> None:
    assert ignores("gemini-cli", "BeforeModel")
    assert "BeforeModel" not in [one.name for one in HOOK_EVENTS["gemini-cli"]]


def test_trap_6_qwen_reports_what_the_user_submitted_and_not_its_follow_ups() -> None:
    assert read("qwen-code", "UserPromptSubmit", prompt="", submitted_prompt="hello").text == ""
    assert read("qwen-code", "UserPromptSubmit", prompt="<x>hello", submitted_prompt="hello").text == "hello"


def test_each_client_has_its_own_form_of_a_refusal() -> None:
    no = HookAnswer(refusal="Never push to main.")
    nested = {"permissionDecision": "deny", "permissionDecisionReason": "Never push to main."}
    for client in ("claude-code", "codex", "qwen-code"):
        assert written(client, "PreToolUse", no) == {"hookSpecificOutput": {"hookEventName": "PreToolUse", **nested}}
    assert written("gemini-cli", "BeforeTool", no) == {"decision": "deny", "reason": "Never push to main."}
    assert written("opencode", "PreToolUse", no) == {"refusal": "Never push to main."}
    assert written("copilot", "preToolUse", no) == nested


def test_copilot_uses_camel_case_and_flat_answers() -> None:
    event = read("copilot", "userPromptSubmitted", prompt="hello")
    assert (event.session, event.text) == ("s1", "hello")
    assert written("copilot", "userPromptSubmitted", prompt="hello") == {"additionalContext": "the block"}
    assert read("copilot", "preToolUse", toolName="bash", toolArgs='{"command": "ls"}').arguments == {"command": "ls"}
    assert "a.txt" in read("copilot", "postToolUse", toolResult={"text": "a.txt"}).text


def test_a_visible_line_is_a_system_message() -> None:
    assert written("claude-code", "UserPromptSubmit", HookAnswer(notice="recalled 3 memories"), prompt="x") == {
        "systemMessage": "recalled 3 memories"
    }


@pytest.mark.parametrize(
    "fields", [{"session_id": 7}, {"session_id": ""}, {"session_id": "a\nb"}, {"prompt": ["x"]}, {"cwd": "x" * 5000}]
)
def test_a_payload_of_a_wrong_form_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(InvalidPayload):
        read("claude-code", "UserPromptSubmit", **{"prompt": "hello", **fields})
