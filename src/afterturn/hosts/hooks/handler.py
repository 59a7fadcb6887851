"""What each event of a client does to its conversation: recall, recording, rules, standing memories.

Where a recall goes that was not ready at the prompt, and what was shown before a compaction:

| client | late recall | after a compaction |
|---|---|---|
| claude-code | behind the tool's result | in the answer to the event, also in the middle of a turn |
| codex | carried to the next prompt: a tool's events would put it before the call's output | as claude-code |
| gemini-cli | in the tool's output | seen in the transcript: at the next tool result or prompt |
| qwen-code | in the tool's text | at the next tool result or prompt |
| opencode | carried to the next prompt | at the next prompt |
| copilot | carried to the next prompt | no event: repeated when nothing else is relevant |
"""

from __future__ import annotations

import asyncio
import os
import re
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO
from weakref import WeakValueDictionary

from afterturn.config import Config
from afterturn.conversation.conversation import Conversation, Standing
from afterturn.conversation.scope import ConversationOptions
from afterturn.conversation.turn import Turn
from afterturn.errors import AfterturnError, Conflict, NotFound
from afterturn.guard.output_filter import STANDING_TAG
from afterturn.hosts.hooks.clients import HookClient, SessionText
from afterturn.hosts.hooks.events import NOTHING, EventKind, HookAnswer, HookEvent
from afterturn.hosts.hooks.typed import find_typed_statement
from afterturn.hosts.projects import current_user_space, find_project, is_paused, note_project
from afterturn.hosts.server.typed_statements import find_writing_tool, leave_statement
from afterturn.hosts.transcripts.coding_agents import LINE_TRANSCRIPTS
from afterturn.hosts.transcripts.transcript import open_file, parse_objects
from afterturn.learning.review_jobs import describe_changes
from afterturn.log import logger
from afterturn.memory import Memory
from afterturn.recall.block import block_hash
from afterturn.recall.times import resolve_times
from afterturn.runtime.clock import SystemClock
from afterturn.text import content_hash
from afterturn.types import TurnStatus

# How long the user waits for a recall at most.
RECALL_WITHIN = 1.0
RECORDED_WITHIN = 1.0
SESSIONS_MAX = 500
# Of one turn; the beginning of each is kept as evidence for reviews.
_CALLS_MAX = 500
_TURNS_READ = 20
# How often a transcript is read for an answer that is late: once a second, and at the next prompt.
_LOOKS_MAX = 10
_ARGUMENTS_CHARS_MAX = 4_000
# A sub-agent's prompt contains what its tool call says.
_TASK_CHARS_MIN = 8
# Claude Code submits the report of a background task like a prompt of the user, and says so in newer versions.
_TASK_REPORT = "<task-notification>"
_MACHINES = ("system", "loop_wakeup", "schedule_wakeup", "poll_event")
_UNSEEN = "(not reported)"
_INCOGNITO = "This turn is private, so nothing of it is stored. Go on without it."

_BLOCK = re.compile(r"(?:<|&lt;)afterturn-memory(?:>|&gt;).*?(?:<|&lt;)/afterturn-memory(?:>|&gt;)", re.DOTALL)
_BULLET = re.compile(r"^- (\[[^\]\s]+\])", re.MULTILINE)
_EMPTY_WRAPPER = re.compile(r"<hook_context>\s*</hook_context>")


@dataclass
class OpenCall:
    id: str
    tool: str
    arguments: Any


@dataclass
class ClientSession:
    """One session of a client, which belongs to the `folder` of its first event. `messages` are those of the turn that
    is open, with our blocks, `user_message` is the user's among them, if it is known, and `prompt` is what was typed of
    it. `briefed` is the same conversation, for the briefing."""

    client: HookClient
    folder: str
    conversation: Conversation
    standing: Standing
    briefed: Conversation
    turn: Turn | None = None
    turn_id: str = ""
    user_message: dict[str, Any] | None = None
    prompt: str = ""
    # Whether the prompt may be the text of a command, until the transcript has said what was typed.
    is_unsure: bool = False
    messages: list[dict[str, Any]] = field(default_factory=list)
    open_calls: list[OpenCall] = field(default_factory=list)
    calls: int = 0
    # How many sub-agents are at work whose events look like those of the user's agent.
    nested: int = 0
    has_session_text: bool = False
    is_briefed: bool = False
    # The source of a start that was answered, until the next prompt.
    started: str | None = None
    # Rules for a call, which the client takes only behind the call's result.
    rules_due: str = ""
    session_texts: set[str] = field(default_factory=set)
    known_blocks: set[str] = field(default_factory=set)
    # The ids in the blocks since the last compaction, in brackets, and the tag of the standing block.
    shown: set[str] = field(default_factory=set)
    # The id of a turn that an earlier helper began and did not end, and the hash of its user message.
    left_open: str = ""
    user_hash: str = ""


@dataclass
class LateTurn:
    """A turn that has ended, but whose answer is not in the client's transcript yet."""

    session: ClientSession
    turn: Turn
    prompt: str
    messages: list[dict[str, Any]]
    transcript: str
    looks: int = 0


class HookHandler:
    """Used on one event loop. The events of one session are handled one after the other, in the order of the calls."""

    def __init__(self, memory: Memory, config: Config, reviewed: Counter[str]) -> None:
        """`reviewed` counts what reviews have saved, changed and removed since the user was told."""
        self._memory = memory
        self._config = config
        self._owner = current_user_space(config)
        self._sessions: OrderedDict[str, ClientSession] = OrderedDict()
        # By the session's name: an answer must not overtake a prompt whose session is still being opened.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._late_turns: list[LateTurn] = []
        self._reviewed = reviewed

    async def handle(
        self, client: HookClient, event: HookEvent, *, was_answered: bool = False, was_shown: bool = False
    ) -> HookAnswer:
        """The answer to an event. `was_answered`: the client does not wait for it any more. `was_shown`: the script has
        answered a prompt with memories that it found itself."""
        name = f"{client.name}:{event.session}"
        async with self._locks.setdefault(name, asyncio.Lock()):
            known = self._sessions.get(name)
            if await asyncio.to_thread(is_paused, event.cwd if known is None else known.folder):
                if known is not None:
                    self._abort_turn(known, "paused")
                return NOTHING
            session = await self._open_session(client, name, event.cwd)
            match event.kind:
                case EventKind.SESSION_START:
                    return await self._start_session(session, event, was_answered=was_answered)
                case EventKind.PROMPT:
                    return await self._start_turn(session, event, was_answered=was_answered, was_shown=was_shown)
                case EventKind.TOOL_CALL:
                    return await self._call_tool(session, event)
                case EventKind.TOOL_RESULT:
                    return await self._take_result(session, event, was_answered=was_answered)
                case EventKind.COMPACTION:
                    return await self._compact(session, was_answered=was_answered)
                case EventKind.TURN_END:
                    return await self._end_turn(session, event)
                case EventKind.SUBAGENT_STOP if event.text:
                    self._note_report(session, event.text)
                case EventKind.SESSION_END:
                    self._end_session(session, event)
        # A sub-agent that starts asks memory by its tools. It gets no block of its own.
        return NOTHING

    # Sessions.

    async def _open_session(self, client: HookClient, name: str, folder: str) -> ClientSession:
        session = self._sessions.get(name)
        if session is None:
            session = self._sessions[name] = await self._new_session(client, name, folder)
        self._sessions.move_to_end(name)
        while len(self._sessions) > SESSIONS_MAX:
            self._sessions.popitem(last=False)
        return session

    async def _new_session(self, client: HookClient, name: str, folder: str) -> ClientSession:
        project = await asyncio.to_thread(find_project, folder)
        try:
            await asyncio.to_thread(note_project, folder)
        except (AfterturnError, OSError) as error:
            logger.warning("the project of %s is not listed: %s", name, error)
        options = ConversationOptions(
            owner=self._owner,
            reads=(project.space, *project.merged),
            environment=project.space,
            project=project.name,
            history="reported" if client.reports_compactions else "hidden",
            dialect="openai_chat",
            trusted_only=client.trusted_only,
            standing="system",
        )
        trusted: ConversationOptions = {**options, "trusted_only": True}
        conversation = self._memory.conversation(name, **options)
        # A report in the briefing would taint the session, and nearly every session of a coding agent ends with one.
        briefed = self._memory.conversation(name, **trusted)
        session = ClientSession(client, folder, conversation, conversation.standing(), briefed)
        try:
            earlier = (await conversation.trace(limit=_TURNS_READ)).turns
        except NotFound:
            return session
        blocks = [block for turn in earlier for block in turn.blocks]
        session.known_blocks.update(block.hash for block in blocks)
        session.shown.update(id for block in blocks if block.in_sight for id in _BULLET.findall(block.text))
        session.has_session_text = bool(earlier) and client.session_text is not SessionText.ALWAYS
        if session.has_session_text and not session.shown:
            # Nothing else of ours would show that the client has compacted its history.
            session.shown.add(STANDING_TAG)
        newest = max(earlier, key=lambda turn: turn.number, default=None)
        if newest is not None and newest.turn.status is TurnStatus.OPEN:
            session.left_open, session.user_hash = newest.turn.id, newest.turn.user_hash
        return session

    async def _start_session(self, session: ClientSession, event: HookEvent, *, was_answered: bool) -> HookAnswer:
        if event.agent or event.source == session.started:
            # Hooks may be installed twice, for the user and for the project.
            return NOTHING
        session.started = None if was_answered else event.source
        if event.source == "clear":
            session.conversation.reset()
        goes_with_prompt = session.client.session_text is SessionText.WITH_PROMPT
        is_kept = session.has_session_text if goes_with_prompt else session.client.session_text is SessionText.ONCE
        session.has_session_text = event.source == "resume" and is_kept
        if was_answered or goes_with_prompt:
            return NOTHING
        return HookAnswer(await self._session_text(session, is_start=True))

    async def _session_text(self, session: ClientSession, *, is_start: bool = False) -> str:
        """Standing memories and the briefing, once for each session, and the former again after a compaction.

        Context files are the client's own business.
        """
        standing = briefing = ""
        is_wanted, session.has_session_text = not session.has_session_text, True
        if is_wanted:
            try:
                standing = await session.standing.block()
            except AfterturnError as error:
                logger.warning("a session starts without standing memories: %s", error)
        if standing:
            session.shown.add(STANDING_TAG)
        if session.client.session_text is SessionText.ALWAYS:
            # The next start would write the client's system prompt again without it: the first prompt brings it.
            is_wanted = not is_start and not session.is_briefed
        if is_wanted:
            session.is_briefed = True
            briefing = await session.briefed.briefing()
        texts = (standing, briefing)
        session.session_texts.update(filter(None, texts))
        return _joined(*texts)

    def _end_session(self, session: ClientSession, event: HookEvent) -> None:
        if event.agent:
            return
        self._abort_turn(session, "session_ended")
        self._sessions.pop(session.conversation.id, None)

    def _abort_turn(self, session: ClientSession, reason: str) -> None:
        turn, session.turn = session.turn, None
        if turn is not None:
            turn.abort(reason)

    # Turns.

    async def _start_turn(
        self, session: ClientSession, event: HookEvent, *, was_answered: bool, was_shown: bool
    ) -> HookAnswer:
        if event.agent:
            # A sub-agent's task is not something that the user said.
            return NOTHING
        if session.client.shares_session and session.turn is not None and _names_task(session, event.text):
            session.nested += 1
            return NOTHING
        text, loaded = (self._without_injected(session, part) for part in (event.text, event.loaded))
        if event.source in _MACHINES or text.lstrip().startswith(_TASK_REPORT):
            self._note_report(session, text)
            return NOTHING
        content = _with_quotation(text, loaded)
        if not content or self._is_repeated(session, event, content):
            return NOTHING
        self._abort_turn(session, "interrupted")
        await self._find_compaction(session, event)
        if self._late_turns:
            await self.finish_late_turns()
        # Before the turn: a conversation that has begun is not briefed any more.
        opening = "" if was_answered else await self._session_text(session)
        session.user_message = {"role": "user", "content": content}
        messages = [*_call_messages("unseen", "client", {}, ""), session.user_message]
        session.turn = await _begin(session.conversation, messages, event.turn)
        session.turn_id, session.prompt, session.messages = event.turn, text, messages
        session.is_unsure = session.client.expands_commands
        session.open_calls, session.nested, session.calls, session.left_open = [], 0, 0, ""
        session.rules_due, session.started = "", None
        if was_answered and not was_shown:
            # A later point of the turn, or the next one, takes what is recalled.
            return NOTHING
        element = await session.turn.inject(messages, within=RECALL_WITHIN)
        if was_answered:
            # The script has shown about the same lines.
            return NOTHING
        block = _text_of(session, element)
        return HookAnswer(_joined(opening, block), notice=self._notice(session.client, block))

    def _is_repeated(self, session: ClientSession, event: HookEvent, text: str) -> bool:
        """Hooks may be installed twice, for the user and for the project."""
        if session.turn is None:
            return False
        if event.turn:
            return event.turn == session.turn_id
        return session.calls == 0 and session.user_message == {"role": "user", "content": text}

    def _notice(self, client: HookClient, block: str) -> str:
        """Lines for the user: how much was recalled, and what reviews have changed."""
        lines, notices = sum(line.startswith("- [") for line in block.splitlines()), []
        if self._config.hook_notice and lines:
            notices.append(f"afterturn recalled {lines} {'memory' if lines == 1 else 'memories'}")
        if client.shows_notices and self._reviewed:
            changed = describe_changes(*(self._reviewed.pop(name, 0) for name in ("saved", "changed", "removed")))
            notices.append(f"afterturn: {changed} `afterturn review log` lists it.")
        return "\n".join(notices)

    def _without_injected(self, session: ClientSession, text: str) -> str:
        """The prompt without what we have added to earlier ones, also in the form in which Gemini escapes it."""
        if "afterturn" not in text and "hook_context" not in text:
            return text
        for given in session.session_texts:
            text = text.replace(given, "").replace(given.replace("<", "&lt;").replace(">", "&gt;"), "")
        found = list(dict.fromkeys(_BLOCK.findall(text)))
        for part in found:
            plain = part.replace("&lt;", "<").replace("&gt;", ">")
            if block_hash(plain) in session.known_blocks:
                text = text.replace(part, "")
        return _EMPTY_WRAPPER.sub("", text).strip("\r\n")

    async def _find_turn(self, session: ClientSession) -> Turn | None:
        """The open turn. What the user typed in one that an earlier helper began is not known before its end."""
        if session.turn is None and session.left_open:
            session.turn_id, session.left_open = session.left_open, ""
            session.turn = await session.conversation.resume_turn(session.turn_id)
            session.prompt, session.user_message = "", None
            session.messages = _call_messages("unseen", "client", {}, "")
            session.is_unsure = session.client.expands_commands
        return session.turn

    async def _find_typed(self, session: ClientSession, event: HookEvent) -> None:
        """The text of a repository's command reaches us as the prompt. The transcript has what the user typed, `/name`.

        It is read at the first call, before the results of tools are in it: only its end is read. If it does not show
        what was typed when the turn ends, nothing was.
        """
        if not session.is_unsure:
            return
        said, _ = await asyncio.to_thread(find_exchange, event.client, event.transcript)
        if not said and event.kind is not EventKind.TURN_END:
            return
        session.is_unsure = False
        said = self._without_injected(session, said).strip()
        if said == session.prompt.strip():
            return
        if session.user_message is not None:
            session.user_message["content"] = _with_quotation(said, session.user_message["content"])
        session.prompt = said

    async def _end_turn(self, session: ClientSession, event: HookEvent) -> HookAnswer:
        if event.agent:
            return NOTHING
        if session.nested:
            session.nested -= 1
            return NOTHING
        turn = await self._find_turn(session)
        if turn is None:
            return NOTHING
        text, prompt = event.text, event.prompt
        if not text or session.user_message is None:
            said, answer = await asyncio.to_thread(find_exchange, event.client, event.transcript)
            text, prompt = text or (answer if _is_about(session.prompt, said) else ""), prompt or said
        if session.user_message is None and content_hash(prompt.strip()) == session.user_hash:
            session.prompt, session.user_message = prompt.strip(), {"role": "user", "content": prompt.strip()}
            # After the first two, which say that not everything was seen.
            session.messages.insert(2, session.user_message)
        await self._find_typed(session, event)
        session.turn = None
        for call in session.open_calls:
            session.messages.append({"role": "tool", "tool_call_id": call.id, "content": _UNSEEN})
        session.open_calls = []
        if text.strip():
            await self._finish(session, turn, session.messages, text)
        elif session.client.writes_transcript_late and event.transcript:
            self._late_turns.append(LateTurn(session, turn, session.prompt, session.messages, event.transcript))
        else:
            turn.abort("no_answer")
        return NOTHING

    async def finish_late_turns(self) -> None:
        """Looks into transcripts for answers that were not there when their turns ended."""
        waiting, self._late_turns = self._late_turns, []
        for late in waiting:
            client = late.session.client.name
            said, answer = await asyncio.to_thread(find_exchange, client, late.transcript)
            if answer and _is_about(late.prompt, said):
                await self._finish(late.session, late.turn, late.messages, answer)
            elif late.looks < _LOOKS_MAX:
                late.looks += 1
                self._late_turns.append(late)
            else:
                late.turn.abort("no_answer")

    async def _finish(self, session: ClientSession, turn: Turn, messages: list[dict[str, Any]], text: str) -> None:
        turn.finish([*messages, {"role": "assistant", "content": text}])
        if not await turn.wait_recorded(within=RECORDED_WITHIN):
            logger.warning("a turn of %s is not recorded yet", session.conversation.id)

    # Tools.

    async def _call_tool(self, session: ClientSession, event: HookEvent) -> HookAnswer:
        turn = await self._find_turn(session)
        if turn is None:
            # Agents also work without a prompt, for example when a task in the background has ended.
            advice = await session.conversation.before_tool(event.tool, event.arguments)
            return HookAnswer("" if advice.refusal else advice.text, advice.refusal or "")
        await self._find_typed(session, event)
        if turn.is_incognito and find_writing_tool(event.tool) is not None:
            return HookAnswer(refusal=_INCOGNITO)
        advice = await turn.before_tool(event.tool, event.arguments)
        refusal = advice.refusal or ""
        if event.agent or session.nested:
            # Firm rules hold in sub-agents too; their calls are not part of the user's turn.
            return HookAnswer(refusal=refusal)
        if not refusal:
            await self._leave_statement(session, event)
        session.calls += 1
        if not refusal and session.calls <= _CALLS_MAX:
            call = OpenCall(event.call or f"call-{session.calls}", event.tool, event.arguments)
            session.open_calls.append(call)
            session.messages.append(_call_messages(call.id, call.tool, call.arguments, "")[0])
        if refusal:
            return HookAnswer(refusal=refusal)
        if session.client.takes_at_call:
            return HookAnswer(advice.text)
        session.rules_due = _joined(session.rules_due, advice.text)
        return NOTHING

    async def _leave_statement(self, session: ClientSession, event: HookEvent) -> None:
        """Gives our MCP server the user's own words, if they say what this call of its tools wants to save."""
        name, arguments = find_writing_tool(event.tool), event.arguments
        if name is None or session.is_unsure or not isinstance(arguments, dict):
            return
        try:
            statement = await asyncio.to_thread(find_typed_statement, session.prompt, arguments)
            if statement is not None:
                # As a review of the turn writes it.
                text = resolve_times(statement.text, SystemClock().now())
                statement = replace(statement, text=text, conversation=session.conversation.id)
                await asyncio.to_thread(leave_statement, self._config.tenant, self._owner, name, arguments, statement)
        except AfterturnError as error:
            logger.warning("a call of a memory tool counts as a report: %s", error)

    async def _take_result(self, session: ClientSession, event: HookEvent, *, was_answered: bool) -> HookAnswer:
        turn = await self._find_turn(session)
        if turn is None or event.agent:
            return NOTHING
        same = [
            call for call in session.open_calls if (call.id == event.call if event.call else call.tool == event.tool)
        ]
        call = next((call for call in same if call.arguments == event.arguments), same[0] if same else None)
        if call is not None:
            session.open_calls.remove(call)
            session.nested = 0 if not session.open_calls else session.nested
            session.messages.append({"role": "tool", "tool_call_id": call.id, "content": event.text or _UNSEEN})
        elif not session.nested:
            # Its call was not reported.
            session.calls += 1
            session.messages += _call_messages(f"call-{session.calls}", event.tool, event.arguments, event.text)
        if session.nested or was_answered or not session.client.takes_late:
            return NOTHING
        await self._find_compaction(session, event)
        element = await turn.inject(session.messages)
        block = _text_of(session, element)
        rules, session.rules_due = session.rules_due, ""
        return HookAnswer(_joined(rules, block))

    def _note_report(self, session: ClientSession, text: str) -> None:
        """What a sub-agent or a task says reaches the user's agent."""
        if session.turn is not None:
            session.calls += 1
            session.messages += _call_messages(f"call-{session.calls}", "sub-agent", {}, text[:20_000])

    async def _find_compaction(self, session: ClientSession, event: HookEvent) -> None:
        """A compaction that the client does not report: what it was shown is not in its history any more."""
        if not session.client.has_transcript_of_history or not session.shown or not event.transcript:
            return
        shown = frozenset(session.shown)
        if not await asyncio.to_thread(are_in_history, event.client, event.transcript, shown):
            self._forget_shown(session)

    def _forget_shown(self, session: ClientSession) -> None:
        session.conversation.compacted()
        session.has_session_text = False
        session.shown.clear()

    async def _compact(self, session: ClientSession, *, was_answered: bool) -> HookAnswer:
        self._forget_shown(session)
        if was_answered or not session.client.takes_after_compaction:
            # The next safe point offers it.
            return NOTHING
        element = None
        if session.turn is not None:
            element = await session.turn.inject(session.messages, within=RECALL_WITHIN)
        block = _text_of(session, element)
        return HookAnswer(_joined(await self._session_text(session), block))


def _joined(*texts: str) -> str:
    return "\n\n".join(text for text in texts if text)


def _is_about(prompt: str, said: str) -> bool:
    """Whether an exchange in a transcript is that of a turn, by what the user typed, as far as it is known."""
    return prompt.strip() in said


def _with_quotation(typed: str, loaded: str) -> str:
    """A user's message with text that the client has added, in the form of a quotation: nobody typed it."""
    quoted = "\n".join(f"> {line}" for line in loaded.strip().splitlines())
    return "\n\n".join(part for part in (typed.strip("\r\n"), quoted) if part.strip())


async def _begin(conversation: Conversation, messages: list[dict[str, Any]], turn_id: str) -> Turn:
    try:
        return await conversation.start_turn(messages, id=turn_id or None)
    except (Conflict, NotFound):
        # A client that rewinds a session uses an id again.
        return await conversation.start_turn(messages)


def _names_task(session: ClientSession, prompt: str) -> bool:
    """Whether a prompt in a shared session is a sub-agent's: it says what an open call of the agent says."""
    # A call that the user interrupted stays open, and the next prompt may well name its file.
    calls = [call.arguments for call in session.open_calls if call.tool not in session.client.plain_tools]
    values = [one for given in calls for one in (given.values() if isinstance(given, dict) else [given])]
    tasks = [value.strip() for value in values if isinstance(value, str)]
    return any(len(task) >= _TASK_CHARS_MIN and task in prompt for task in tasks)


def _call_messages(call: str, tool: str, arguments: Any, result: str) -> list[dict[str, Any]]:
    written = str(arguments)[:_ARGUMENTS_CHARS_MAX]
    function = {"name": tool or "tool", "arguments": written}
    return [
        {"role": "assistant", "content": "", "tool_calls": [{"id": call, "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": call, "content": result or _UNSEEN},
    ]


def _text_of(session: ClientSession, element: dict[str, Any] | None) -> str:
    if element is None:
        return ""
    text = str(element["content"])
    session.known_blocks.add(block_hash(text))
    session.shown.update(_BULLET.findall(text))
    return text


_TAIL_BYTES = 512 * 1024
_SUFFIXES = (".jsonl", ".json")
_HISTORY_BYTES_MAX = 64 * 1024 * 1024
# Gemini CLI writes such a line when it replaces the whole history. Later lines add messages.
_REPLACED = b'{"$set":{"messages":'


def find_exchange(client: str, path: str) -> tuple[str, str]:
    """The user's last message and the last words of the assistant after it, each blank if there is none.

    Reads only the end of a regular file of this user; anything else is refused with one line in the log.
    """
    reader, answer = LINE_TRANSCRIPTS.get(client), ""
    if not path or reader is None:
        return "", ""
    try:
        with _open(path) as stream:
            start = max(0, os.fstat(stream.fileno()).st_size - _TAIL_BYTES)
            stream.seek(start)
            # The first line is cut unless it begins the file.
            lines = stream.read(_TAIL_BYTES).splitlines()[1 if start else 0 :]
    except (OSError, ValueError) as error:
        logger.warning("%s: the transcript is not read: %s", client, error)
        return "", ""
    for line in parse_objects(reversed(lines)):
        for message in reversed(reader.messages(line)):
            if message.role == "user":
                return message.text, answer
            answer = answer or message.text
    return "", answer


def are_in_history(client: str, path: str, shown: Collection[str]) -> bool:
    """Whether the model still sees all these parts of our blocks. True if the transcript cannot be read."""
    try:
        with _open(path) as stream:
            text = stream.read(_HISTORY_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        logger.warning("%s: the transcript is not read: %s", client, error)
        return True
    if not text or len(text) > _HISTORY_BYTES_MAX:
        return True
    history = text[max(0, text.rfind(_REPLACED)) :]
    return all(part.encode() in history for part in shown)


@contextmanager
def _open(path: str) -> Iterator[BinaryIO]:
    """Raises ValueError if it is not a file that a client of this user may have written. They write no links."""
    if not os.path.isabs(path) or not path.endswith(_SUFFIXES):
        raise ValueError("it is not an absolute path of a JSON file")
    with open_file(Path(path), os.O_NOFOLLOW) as stream:
        if os.fstat(stream.fileno()).st_uid != os.getuid():
            raise ValueError("it is not a file of this user")
        yield stream
