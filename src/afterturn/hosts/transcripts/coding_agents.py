"""Transcripts of coding agents: `messages` reads one line of each format, for imports and for hooks alike."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import apsw

from afterturn.errors import InvalidFile
from afterturn.hosts.transcripts.transcript import (
    Object,
    PastConversation,
    TranscriptMessage,
    folder_in,
    json_lines,
    mapping,
    may_be_typed,
    messages_of,
    open_read_only,
    parse_timestamp,
    read_document,
    sequence,
    text_field,
)

# Marks of lines of Claude Code that neither the user nor the main agent wrote.
_CLAUDE_MARKS = ("isSidechain", "isMeta", "isCompactSummary", "isVisibleInTranscriptOnly", "toolUseResult")
_QWEN_TYPED = (None, "mid_turn_user_message")


class LineTranscripts:
    """A format with one JSON object per line. `folder` is the client's, as for `folder_in`, with files by `pattern`."""

    name = ""
    folder: tuple[str, ...] = ()
    pattern = ""

    def find(self, home: Path | None) -> Iterable[Path]:
        return sorted(folder_in(home, *self.folder).glob(self.pattern))

    def messages(self, line: Object) -> list[TranscriptMessage]:
        """The messages of the user and the agent in a line."""
        raise NotImplementedError

    def about(self, line: Object) -> Object | None:
        """The session (`sessionId`) and its folder (`cwd`), as far as a line has them. None: it is a sub-agent's."""
        return line

    def folder_of(self, file: Path) -> str:
        return ""

    def read(self, file: Path) -> Iterator[PastConversation]:
        # A message that is written again takes the place of its earlier version.
        found: dict[tuple[str, str], TranscriptMessage] = {}
        session, folder = file.stem, self.folder_of(file)
        for number, line in enumerate(json_lines(file)):
            about = self.about(line)
            if about is None:
                return
            session, folder = text_field(about, "sessionId") or session, folder or text_field(about, "cwd")
            for message in self.messages(line):
                id = message.id or str(number)
                found[message.role, id] = replace(message, id=id)
        yield PastConversation(self.name, session, list(found.values()), folder)


class ClaudeCodeTranscripts(LineTranscripts):
    name = "claude-code"
    folder = ("CLAUDE_CONFIG_DIR", ".claude")
    pattern = "projects/*/*.jsonl"

    def messages(self, line: Object) -> list[TranscriptMessage]:
        # Older versions do not write an origin.
        origin = mapping(line.get("origin")).get("kind", "human")
        if any(line.get(mark) for mark in _CLAUDE_MARKS) or origin != "human":
            return []
        content, at = mapping(line.get("message")).get("content"), parse_timestamp(line.get("timestamp"))
        return messages_of(text_field(line, "uuid"), text_field(line, "type"), content, at)


class CodexTranscripts(LineTranscripts):
    name = "codex"
    folder = ("CODEX_HOME", ".codex")
    pattern = "sessions/*/*/*/rollout-*.jsonl"

    def messages(self, line: Object) -> list[TranscriptMessage]:
        item = mapping(line.get("payload"))
        if line.get("type") != "response_item" or item.get("type") != "message":
            return []
        at = parse_timestamp(line.get("timestamp"))
        return messages_of(text_field(item, "id"), text_field(item, "role"), item.get("content"), at)

    def about(self, line: Object) -> Object | None:
        if line.get("type") != "session_meta":
            return {}
        meta = mapping(line.get("payload"))
        return None if isinstance(meta.get("source"), dict) else {**meta, "sessionId": meta.get("id")}


class GeminiCliTranscripts(LineTranscripts):
    name = "gemini-cli"
    folder = ("GEMINI_CLI_HOME",)
    pattern = ".gemini/tmp/*/chats/session-*.jsonl"

    def messages(self, line: Object) -> list[TranscriptMessage]:
        # A patch has the whole list, for example after a compaction. Messages before it count all the same.
        patched = map(mapping, sequence(mapping(line.get("$set")).get("messages")))
        return [message for one in (line, *patched) for message in self._message(one)]

    def _message(self, line: Object) -> list[TranscriptMessage]:
        """The displayed text is the typed one; the content has files and the text of commands, too."""
        role = {"user": "user", "gemini": "assistant"}.get(text_field(line, "type"), "")
        content = line.get("content")
        typed = line.get("displayContent") if may_be_typed(content) else None
        return messages_of(text_field(line, "id"), role, typed or content, parse_timestamp(line.get("timestamp")))

    def about(self, line: Object) -> Object | None:
        return line if "sessionId" not in line or line.get("kind", "main") == "main" else None

    def folder_of(self, file: Path) -> str:
        """The folder whose short name the transcript's path contains."""
        if len(file.parents) < 4:
            return ""
        name, known = file.parents[1].name, mapping(read_document(file.parents[3] / "projects.json").get("projects"))
        return next((str(folder) for folder, short in known.items() if short == name), "")


class QwenCodeTranscripts(LineTranscripts):
    name = "qwen-code"
    folder = ("QWEN_HOME", ".qwen")
    pattern = "projects/*/chats/*.jsonl"

    def messages(self, line: Object) -> list[TranscriptMessage]:
        role, content = text_field(line, "type"), mapping(line.get("message")).get("parts")
        is_others = line.get("isSidechain") or line.get("agentId")
        if role == "user" and not is_others:
            # Older versions write neither. A subtype is a notification, a timer or another agent.
            is_others = line.get("provenance") not in (None, "real_user") or line.get("subtype") not in _QWEN_TYPED
            # As in Gemini CLI.
            typed = text_field(mapping(line.get("systemPayload")), "displayText") if may_be_typed(content) else ""
            content = typed or content
        at = parse_timestamp(line.get("timestamp"))
        return [] if is_others else messages_of(text_field(line, "uuid"), role, content, at)


class CopilotTranscripts(LineTranscripts):
    """Only hooks read it: there is no import from Copilot."""

    name = "copilot"

    def messages(self, line: Object) -> list[TranscriptMessage]:
        role, data = text_field(line, "type").removesuffix(".message"), mapping(line.get("data"))
        is_others = line.get("agentId") or data.get("parentToolCallId") or data.get("isAutopilotContinuation")
        # A skill, a command or another agent is named as the source.
        if is_others or data.get("source") not in (None, "user"):
            return []
        return messages_of(text_field(line, "id"), role, data.get("content"), parse_timestamp(line.get("timestamp")))


LINE_TRANSCRIPTS: dict[str, LineTranscripts] = {
    reader.name: reader
    for reader in (
        ClaudeCodeTranscripts(),
        CodexTranscripts(),
        GeminiCliTranscripts(),
        QwenCodeTranscripts(),
        CopilotTranscripts(),
    )
}


class OpencodeTranscripts:
    name = "opencode"

    def find(self, home: Path | None) -> Iterable[Path]:
        file = folder_in(home, "XDG_DATA_HOME", ".local", "share") / "opencode" / "opencode.db"
        return [file] if file.exists() else []

    def read(self, file: Path) -> Iterator[PastConversation]:
        """Reads the database of opencode without changing it; opencode may be running."""
        try:
            with open_read_only(file) as connection:
                chosen = "SELECT id, directory FROM session WHERE parent_id IS NULL ORDER BY time_created"
                for session, folder in list(connection.execute(chosen)):
                    yield PastConversation(self.name, session, _opencode_messages(connection, session), folder or "")
        except apsw.Error as error:
            raise InvalidFile(f"{file} cannot be read: {error}. Name the database of opencode.") from error


def _opencode_messages(connection: apsw.Connection, session: str) -> list[TranscriptMessage]:
    rows = connection.execute(
        "SELECT m.id, m.time_created, m.data, p.data FROM message AS m JOIN part AS p ON p.message_id = m.id "
        "WHERE m.session_id = ? ORDER BY m.time_created, m.id, p.id",
        (session,),
    )
    parts: dict[str, tuple[str, float, list[Object]]] = {}
    for id, created, data, part in rows:
        try:
            message, content = mapping(json.loads(data)), mapping(json.loads(part))
        except (ValueError, TypeError, RecursionError):
            continue
        parts.setdefault(id, (text_field(message, "role"), parse_timestamp(created), []))[2].append(content)
    return [one for id, (role, at, content) in parts.items() for one in messages_of(id, role, content, at)]
