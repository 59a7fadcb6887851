"""Transcripts of coding agents, as they lie in a person's home folder."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import apsw

from afterturn.errors import InvalidFile
from afterturn.hosts.transcripts.transcript import (
    MessageList,
    Object,
    PastConversation,
    TranscriptMessage,
    folder_in,
    json_lines,
    mapping,
    open_read_only,
    parse_timestamp,
    read_document,
    sequence,
    text_field,
    texts_of_parts,
)

# Commands of Claude Code and their output, which it stores as messages of the user.
_COMMANDS = ("<command-", "<local-command-", "<bash-", "<task-notification>")
# What Codex puts before the first message of the user.
_PREAMBLES = ("<environment_context>", "<user_instructions>", "# AGENTS.md instructions", "<skills_instructions>")


class ClaudeCodeTranscripts:
    name = "claude-code"

    def find(self, home: Path | None) -> Iterable[Path]:
        return sorted((folder_in(home, "CLAUDE_CONFIG_DIR", ".claude") / "projects").glob("*/*.jsonl"))

    def read(self, file: Path) -> Iterator[PastConversation]:
        found, folder, session = MessageList(), "", file.stem
        for line in json_lines(file):
            message = mapping(line.get("message"))
            if line.get("isSidechain") or line.get("isMeta") or line.get("isCompactSummary") or not message:
                continue
            folder, session = folder or text_field(line, "cwd"), text_field(line, "sessionId") or session
            text = texts_of_parts(message.get("content"), "text")
            id, at = text_field(line, "uuid"), parse_timestamp(line.get("timestamp"))
            if line.get("type") == "assistant":
                found.add(id, "assistant", text, at)
            elif line.get("type") == "user" and not text.lstrip().startswith(_COMMANDS):
                found.add(id, "user", text, at)
        yield PastConversation(self.name, session, found.messages, folder)


class CodexTranscripts:
    name = "codex"

    def find(self, home: Path | None) -> Iterable[Path]:
        return sorted((folder_in(home, "CODEX_HOME", ".codex") / "sessions").glob("*/*/*/rollout-*.jsonl"))

    def read(self, file: Path) -> Iterator[PastConversation]:
        found, folder, session = MessageList(), "", file.stem
        for number, line in enumerate(json_lines(file)):
            payload = mapping(line.get("payload"))
            if line.get("type") == "session_meta":
                if isinstance(payload.get("source"), dict):
                    return  # the session of a sub-agent
                folder, session = text_field(payload, "cwd"), text_field(payload, "id") or session
            elif line.get("type") == "response_item" and payload.get("type") == "message":
                text = texts_of_parts(payload.get("content"), "input_text", "output_text")
                id = text_field(payload, "id") or str(number)
                at = parse_timestamp(line.get("timestamp"))
                if payload.get("role") == "assistant":
                    found.add(id, "assistant", text, at)
                elif payload.get("role") == "user" and not text.lstrip().startswith(_PREAMBLES):
                    found.add(id, "user", text, at)
        yield PastConversation(self.name, session, found.messages, folder)


class GeminiCliTranscripts:
    name = "gemini-cli"

    def find(self, home: Path | None) -> Iterable[Path]:
        return sorted((folder_in(home, "GEMINI_CLI_HOME") / ".gemini" / "tmp").glob("*/chats/session-*.jsonl"))

    def read(self, file: Path) -> Iterator[PastConversation]:
        lines: dict[str, Object] = {}
        session = file.stem
        for line in json_lines(file):
            patch = mapping(line.get("$set"))
            if "sessionId" in line:
                if line.get("kind", "main") != "main":
                    return  # the session of a sub-agent
                session = text_field(line, "sessionId") or session
            elif "messages" in patch:
                # The whole list, for example after a compaction. What was said before it was said all the same.
                lines.update({text_field(mapping(one), "id"): mapping(one) for one in sequence(patch["messages"])})
            elif id := text_field(line, "id"):
                lines[id] = line
        found = MessageList()
        for id, line in lines.items():
            content = line.get("displayContent") or line.get("content")
            text, at = texts_of_parts(content, "text"), parse_timestamp(line.get("timestamp"))
            if line.get("type") == "user":
                found.add(id, "user", text, at)
            elif line.get("type") == "gemini":
                found.add(id, "assistant", text, at)
        yield PastConversation(self.name, session, found.messages, _folder_of_gemini(file))


def _folder_of_gemini(file: Path) -> str:
    """The folder whose short name the transcript's path contains."""
    if len(file.parents) < 4:
        return ""
    name, known = file.parents[1].name, mapping(read_document(file.parents[3] / "projects.json").get("projects"))
    return next((str(folder) for folder, short in known.items() if short == name), "")


class QwenCodeTranscripts:
    name = "qwen-code"

    def find(self, home: Path | None) -> Iterable[Path]:
        return sorted((folder_in(home, "QWEN_HOME", ".qwen") / "projects").glob("*/chats/*.jsonl"))

    def read(self, file: Path) -> Iterator[PastConversation]:
        found, folder, session = MessageList(), "", file.stem
        for line in json_lines(file):
            message, kind = mapping(line.get("message")), line.get("type")
            parts = [part for part in sequence(message.get("parts")) if not mapping(part).get("thought")]
            folder, session = folder or text_field(line, "cwd"), text_field(line, "sessionId") or session
            text = texts_of_parts(parts, "text")
            id, at = text_field(line, "uuid"), parse_timestamp(line.get("timestamp"))
            if kind == "assistant":
                found.add(id, "assistant", text, at)
            elif kind == "user" and line.get("provenance", "real_user") == "real_user":
                found.add(id, "user", text, at)
        yield PastConversation(self.name, session, found.messages, folder)


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
    found = MessageList()
    rows = connection.execute(
        "SELECT m.id, m.time_created, m.data, p.data FROM message AS m JOIN part AS p ON p.message_id = m.id "
        "WHERE m.session_id = ? ORDER BY m.time_created, m.id, p.id",
        (session,),
    )
    texts: dict[str, tuple[str, float, list[str]]] = {}
    for id, created, data, part in rows:
        try:
            message, content = mapping(json.loads(data)), mapping(json.loads(part))
        except (ValueError, TypeError, RecursionError):
            continue
        if content.get("type") == "text" and not content.get("synthetic") and not content.get("ignored"):
            entry = texts.setdefault(id, (text_field(message, "role"), parse_timestamp(created), []))
            entry[2].append(text_field(content, "text"))
    for id, (role, at, parts) in texts.items():
        if role == "user" or role == "assistant":
            found.add(id, "user" if role == "user" else "assistant", "\n".join(parts), at)
    return found.messages
