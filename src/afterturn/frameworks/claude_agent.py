"""Memory for the Claude Agent SDK: hooks for `ClaudeAgentOptions`.

The SDK does not show what the model sees: turns are made from what its hooks report, and blocks go into their answers.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, Unpack, cast

from afterturn.conversation.conversation import Conversation
from afterturn.conversation.turn import Turn
from afterturn.errors import AfterturnError, NotFound
from afterturn.frameworks.core import BoundedDict, FrameworkMemory, MemoryTarget, RunIds, RunOptions
from afterturn.frameworks.requirements import check_framework
from afterturn.log import logger
from afterturn.tool_rules.advice import ToolAdvice

check_framework("claude-agent-sdk")

from claude_agent_sdk import ClaudeAgentOptions, HookMatcher  # noqa: E402
from claude_agent_sdk.types import HookContext, HookEvent, HookInput, HookJSONOutput  # noqa: E402

Payload: TypeAlias = Mapping[str, Any]
Messages: TypeAlias = list[dict[str, Any]]

# The SDK's types do not have the last three. Its client reports the first of them only after a compaction.
_EVENTS = (
    "UserPromptSubmit",
    "PreToolUse",
    "PostToolUse",
    "PostToolUseFailure",
    "SubagentStop",
    "PreCompact",
    "Stop",
    "SessionStart",
    "StopFailure",
    "SessionEnd",
)
# Seconds after which the client continues without an answer. Memory itself waits for the grace at most.
_TIMEOUT = 10.0
# Results are evidence for reviews; the beginning of each, and of the calls of one turn, is enough.
_RESULT_CHARS_MAX = 20_000
_ARGUMENTS_CHARS_MAX = 4_000
_CALLS_MAX = 500
_UNSEEN = "(not reported)"
# The client submits such a prompt itself when a task in the background has ended.
_NOTIFICATION = "<task-notification>"
# The client reports so much of a prompt that the agent has scheduled.
_SCHEDULED_CHARS = 900
# The first answer is near the beginning of a transcript.
_LINES_READ_MAX = 200


@dataclass
class ReportedSession:
    """One session as reported: the messages of its open turn, and whether it was given the standing context.

    `between` is what the agent has read of others since the last turn, `scheduled` what it will ask itself.
    `takes_more`: a call has ended, which is when the client adds prompts that came meanwhile.
    """

    messages: Messages = field(default_factory=list)
    open_calls: dict[str, str] = field(default_factory=dict)
    calls: int = 0
    has_standing: bool = False
    between: Messages = field(default_factory=list)
    scheduled: list[str] = field(default_factory=list)
    takes_more: bool = False


class AfterturnHooks:
    """Recalls once for each prompt, and records each finished turn. `hooks()` is for `ClaudeAgentOptions`.

    `user` says whose memory it is: an id, or a function that takes the input of a hook. The conversation is the SDK's
    session unless `conversation` says another. The default model reads the text of hooks as a system message, so it
    has only lines that are trusted; `trusted_only=False` allows others.
    """

    def __init__(self, memory: MemoryTarget, **options: Unpack[RunOptions]) -> None:
        options.setdefault("trusted_only", True)
        self.memory = FrameworkMemory(memory, messages={"dialect": "openai_chat", "history": "reported"}, **options)
        self._sessions: BoundedDict[str, ReportedSession] = BoundedDict()

    def hooks(self) -> dict[HookEvent, list[HookMatcher]]:
        """For `ClaudeAgentOptions(hooks=...)`. `with_memory` also keeps hooks that are there already."""
        return {cast(HookEvent, event): [HookMatcher(hooks=[self.answer], timeout=_TIMEOUT)] for event in _EVENTS}

    async def answer(self, event: HookInput, tool_use_id: str | None, context: HookContext) -> HookJSONOutput:
        """The callback for every event. Never raises: a failing hook would be shown to the user."""
        payload = cast(Payload, event)
        try:
            return await self._handle(str(payload["hook_event_name"]), payload)
        except AfterturnError as error:
            logger.warning("the run continues without memory: %s", error)
        except Exception:  # the boundary: functions of the user choose the ids, and may raise anything
            logger.exception("memory failed; the run continues without it")
        return {}

    async def _handle(self, name: str, payload: Payload) -> HookJSONOutput:
        if payload.get("agent_id"):
            return await self._handle_subagent(name, payload)
        match name:
            case "UserPromptSubmit":
                return _with_context(name, await self._begin(payload))
            case "PreToolUse":
                return await self._call(name, payload)
            case "PostToolUse" | "PostToolUseFailure":
                return _with_context(name, await self._take_result(payload))
            case "PreCompact":
                # The only event of a compaction that the SDK documents. If it fails, a block may be repeated.
                self.memory.conversation(_ids(payload)).compacted()
                self._session(payload).has_standing = False
            case "SessionStart" if payload.get("source") == "compact":
                return _with_context(name, await self._after_compaction(payload))
            case "Stop":
                self._finish(payload)
            case "StopFailure" | "SessionEnd":
                self.memory.abort(_key(payload), name)
        return {}

    async def _handle_subagent(self, name: str, payload: Payload) -> HookJSONOutput:
        """Firm rules hold in sub-agents. Their calls are not part of the user's turn, but what they say reaches it."""
        if name == "PreToolUse":
            return _refusing(name, (await self._advise(payload)).refusal)
        text = str(payload.get("last_assistant_message") or "")
        # A compaction ends with this event too, and names no type.
        if name == "SubagentStop" and payload.get("agent_type") and text:
            self._note_others(payload, text)
        return {}

    def _note_others(self, payload: Payload, text: str) -> None:
        """The agent reads this text, so its turn counts as tainted, or the next one if none is open."""
        session = self._session(payload)
        session.calls += 1
        call = f"others-{session.calls}"
        read = [_called(call, "background", {}), _result(call, text)]
        if self.memory.find(_key(payload)) is not None:
            session.messages += read
        else:
            session.between = read

    def _session(self, payload: Payload) -> ReportedSession:
        session = self._sessions.setdefault(_key(payload), ReportedSession())
        self._sessions.move_to_end(_key(payload))
        return session

    # The turn.

    async def _begin(self, payload: Payload) -> str:
        prompt = str(payload.get("prompt") or "")
        if not prompt.strip():
            return ""
        scheduled = self._session(payload).scheduled if _key(payload) in self._sessions else []
        if prompt.lstrip().startswith(_NOTIFICATION) or any(map(prompt.startswith, scheduled)):
            # Nobody has said it: the client or the agent itself has.
            self._note_others(payload, prompt)
            return ""
        is_new, session = _key(payload) not in self._sessions, self._session(payload)
        if is_new and await _has_turns(self.memory.conversation(_ids(payload))):
            # A session that is resumed still has it.
            session.has_standing = True
        elif is_new and await asyncio.to_thread(_has_answers, str(payload.get("transcript_path") or "")):
            # It began without memory: nobody knows what the agent has read there.
            self._note_others(payload, _UNSEEN)
        said, open_turn = {"role": "user", "content": prompt}, self.memory.find(_key(payload))
        if open_turn is not None and session.takes_more:
            session.messages.append(said)
            open_turn.interject(prompt)
            return await _recalled(open_turn, session.messages)
        session.messages, session.takes_more = [*session.between, said], False
        session.between, session.open_calls, session.calls = [], {}, 0
        turn = self.memory.begin(_key(payload), _ids(payload), session.messages)
        standing = await self._standing(payload, session)
        return _joined(standing, await _recalled(turn, session.messages))

    async def _standing(self, payload: Payload, session: ReportedSession) -> str:
        if session.has_standing:
            return ""
        session.has_standing = True
        return (await self.memory.system_prompt(_key(payload), "")).strip()

    async def _after_compaction(self, payload: Payload) -> str:
        """Returns the context that the compaction removed, also in the middle of a turn."""
        session, turn = self._session(payload), self.memory.find(_key(payload))
        if turn is None:
            # The next prompt brings it.
            return ""
        standing = await self._standing(payload, session)
        return _joined(standing, await _recalled(turn, session.messages))

    def _finish(self, payload: Payload) -> None:
        session, answer = self._session(payload), str(payload.get("last_assistant_message") or "")
        crons = payload.get("session_crons") or ()
        session.scheduled = [str(one.get("prompt"))[:_SCHEDULED_CHARS] for one in crons if one.get("prompt")]
        if not answer.strip():
            self.memory.abort(_key(payload), "no_answer")
            return
        unanswered = [_result(call, _UNSEEN) for call in session.open_calls]
        self.memory.finish(_key(payload), [*session.messages, *unanswered, {"role": "assistant", "content": answer}])
        session.messages, session.open_calls = [], {}

    # Tools.

    async def _advise(self, payload: Payload) -> ToolAdvice:
        name, arguments = str(payload.get("tool_name")), payload.get("tool_input")
        # Agents also work without a prompt, for example when a task in the background has ended.
        adviser = self.memory.find(_key(payload)) or self.memory.conversation(_ids(payload))
        return await adviser.before_tool(name, arguments)

    async def _call(self, name: str, payload: Payload) -> HookJSONOutput:
        advice = await self._advise(payload)
        if advice.refusal:
            return _refusing(name, advice.refusal)
        session = self._session(payload)
        session.calls, session.takes_more = session.calls + 1, False
        if self.memory.find(_key(payload)) is not None and session.calls <= _CALLS_MAX:
            call = str(payload.get("tool_use_id") or f"call-{session.calls}")
            session.open_calls[call] = str(payload.get("tool_name"))
            session.messages.append(_called(call, session.open_calls[call], payload.get("tool_input")))
        # The client puts it behind the call's result.
        return _with_context(name, advice.text)

    async def _take_result(self, payload: Payload) -> str:
        session, turn = self._session(payload), self.memory.find(_key(payload))
        call, given = str(payload.get("tool_use_id") or ""), payload.get("tool_response", payload.get("error"))
        text = given if isinstance(given, str) else json.dumps(given, default=str)
        if turn is None or session.open_calls.pop(call, None) is None:
            self._note_others(payload, text)
            return ""
        session.messages.append(_result(call, text))
        session.takes_more = not session.open_calls and not payload.get("is_interrupt")
        return await _recalled(turn, session.messages)


def with_memory(options: ClaudeAgentOptions, memory: MemoryTarget, **more: Unpack[RunOptions]) -> ClaudeAgentOptions:
    """A copy of the options with memory's hooks behind those that they have. The parameters are `AfterturnHooks`'."""
    hooks = dict(options.hooks or {})
    for event, matchers in AfterturnHooks(memory, **more).hooks().items():
        hooks[event] = [*hooks.get(event, ()), *matchers]
    return dataclasses.replace(options, hooks=hooks)


def _key(payload: Payload) -> str:
    return str(payload.get("session_id") or "")


def _ids(payload: Payload) -> RunIds:
    return RunIds(payload, conversation=_key(payload) or None)


async def _has_turns(conversation: Conversation) -> bool:
    try:
        return bool((await conversation.trace(limit=1)).turns)
    except NotFound:
        return False


def _has_answers(transcript: str) -> bool:
    """Whether the client's file of the session has an answer of the model. One that cannot be read has none."""
    try:
        with open(transcript, "rb") as file:
            return any(b'"type":"assistant"' in line for line in itertools.islice(file, _LINES_READ_MAX))
    except OSError:
        return False


def _called(call: str, tool: str, arguments: object) -> dict[str, Any]:
    function = {"name": tool, "arguments": json.dumps(arguments, default=str)[:_ARGUMENTS_CHARS_MAX]}
    return {"role": "assistant", "content": "", "tool_calls": [{"id": call, "type": "function", "function": function}]}


def _result(call: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call, "content": text[:_RESULT_CHARS_MAX] or _UNSEEN}


async def _recalled(turn: Turn | None, messages: Messages) -> str:
    """The block, which is in `messages` from now on as if the model's list were there."""
    block: dict[str, Any] | None = None
    if turn is not None:
        block = await turn.inject(messages)
    return "" if block is None else str(block["content"])


def _joined(*texts: str) -> str:
    return "\n\n".join(text for text in texts if text)


def _with_context(name: str, text: str) -> HookJSONOutput:
    return _output(hookEventName=name, additionalContext=text) if text else {}


def _refusing(name: str, refusal: str | None) -> HookJSONOutput:
    if not refusal:
        return {}
    return _output(hookEventName=name, permissionDecision="deny", permissionDecisionReason=refusal)


def _output(**fields: str) -> HookJSONOutput:
    return cast(HookJSONOutput, {"hookSpecificOutput": fields})
