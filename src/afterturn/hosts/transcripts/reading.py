"""Finds and reads everything that a program left behind: conversations, notes in Markdown, and data exports."""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from afterturn.errors import InvalidFile
from afterturn.hosts.projects import find_project
from afterturn.hosts.transcripts.coding_agents import LINE_TRANSCRIPTS, CopilotTranscripts, OpencodeTranscripts
from afterturn.hosts.transcripts.memory_folder import INDEX, Note, find_folders, read_folder
from afterturn.hosts.transcripts.transcript import (
    Object,
    PastConversation,
    TranscriptMessage,
    TranscriptReader,
    mapping,
    may_be_typed,
    messages_of,
    open_file,
    parse_timestamp,
    sequence,
    text_field,
)
from afterturn.types import Draft

_FILE = "conversations.json"
_HIDDEN = ("is_visually_hidden_from_conversation", "is_user_system_message")
_BYTES_MAX = 4 * 1024**3
# Conversations are packed to a tenth or so. A file that unpacks to much more is made to fill memory.
_RATIO_MAX, _SMALL_BYTES = 100, 16 * 1024**2


class ChatGptExport:
    name = "chatgpt"

    def find(self, home: Path | None) -> Iterable[Path]:
        return ()

    def read(self, file: Path) -> Iterator[PastConversation]:
        for conversation in _conversations(file):
            nodes = mapping(conversation.get("mapping"))
            found: list[TranscriptMessage] = []
            for id, message in _branch(nodes, text_field(conversation, "current_node")):
                role = text_field(mapping(message.get("author")), "role")
                content = mapping(message.get("content"))
                at = parse_timestamp(message.get("create_time")) or parse_timestamp(conversation.get("create_time"))
                metadata = mapping(message.get("metadata"))
                # Custom instructions are in the role of the user, and hidden.
                is_hidden = any(metadata.get(mark) for mark in _HIDDEN) or message.get("recipient", "all") != "all"
                if content.get("content_type") in ("text", "multimodal_text") and not is_hidden:
                    texts = [part for part in sequence(content.get("parts")) if isinstance(part, str)]
                    found += messages_of(id, role, texts, at)
            session = text_field(conversation, "conversation_id") or text_field(conversation, "id")
            yield PastConversation(self.name, session or "unknown", found)


def _branch(nodes: Mapping[str, Any], current: str) -> list[tuple[str, Object]]:
    """The messages from the first to the current one. Answers that were generated again are on other branches."""
    found: list[tuple[str, Object]] = []
    seen: set[str] = set()
    while current in nodes and current not in seen:
        seen.add(current)
        node = mapping(nodes[current])
        found.append((current, mapping(node.get("message"))))
        current = text_field(node, "parent")
    return found[::-1]


class ClaudeExport:
    name = "claude"

    def find(self, home: Path | None) -> Iterable[Path]:
        return ()

    def read(self, file: Path) -> Iterator[PastConversation]:
        for conversation in _conversations(file):
            found: list[TranscriptMessage] = []
            for message in map(mapping, sequence(conversation.get("chat_messages"))):
                id, at = text_field(message, "uuid"), parse_timestamp(message.get("created_at"))
                role = {"human": "user", "assistant": "assistant"}.get(text_field(message, "sender"), "")
                said = messages_of(id, role, message.get("content"), at)
                if not said and may_be_typed(message.get("content")):
                    # Older exports have only this. The text of attachments is in neither field.
                    said = messages_of(id, role, message.get("text"), at)
                found += said
            yield PastConversation(self.name, text_field(conversation, "uuid") or "unknown", found)


def _conversations(file: Path) -> Iterator[Object]:
    try:
        value = json.loads(_content(file))
    except (ValueError, RecursionError) as error:
        raise InvalidFile(f"{file} is not JSON: {error}. Name an export of this program.") from error
    if not isinstance(value, list):
        raise InvalidFile(f"{file} is not a list of conversations. Name the export's {_FILE}.")
    return (mapping(one) for one in value)


def _content(file: Path) -> bytes:
    try:
        with open_file(file / _FILE if file.is_dir() else file) as stream:
            if not zipfile.is_zipfile(stream):
                stream.seek(0)
                return stream.read()
            with zipfile.ZipFile(stream) as archive:
                return _unpack(archive, file)
    except (OSError, RuntimeError, zlib.error, zipfile.BadZipFile) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise InvalidFile(f"{file} cannot be read: {reason}. Name the data export, or its {_FILE}.") from error


def _unpack(archive: zipfile.ZipFile, file: Path) -> bytes:
    found = next((one for one in archive.infolist() if one.filename.rsplit("/", 1)[-1] == _FILE), None)
    if found is None:
        raise InvalidFile(f"{file} contains no {_FILE}. Name the ZIP file of the data export.")
    if found.file_size > _BYTES_MAX:
        raise InvalidFile(f"{found.filename} in {file} is larger than 4 GiB. Unpack it and divide it.")
    if found.file_size > max(_SMALL_BYTES, _RATIO_MAX * found.compress_size):
        raise InvalidFile(f"{found.filename} in {file} unpacks to {found.file_size:,} bytes, which is not plausible.")
    return archive.read(found)


_ALL: tuple[TranscriptReader, ...] = (
    *LINE_TRANSCRIPTS.values(),
    OpencodeTranscripts(),
    ChatGptExport(),
    ClaudeExport(),
)
READERS = {reader.name: reader for reader in _ALL if reader.name != CopilotTranscripts.name}


@dataclass(frozen=True, slots=True)
class FoundConversation:
    transcript: PastConversation
    project: str | None

    def drafts(self, since: float | None) -> list[Draft]:
        return list(self.transcript.drafts(self.project, since))


@dataclass(frozen=True, slots=True)
class FoundNotes:
    folder: Path
    notes: Sequence[Note]
    project: str | None

    def drafts(self, since: float | None) -> list[Draft]:
        return [note.draft(self.project) for note in self.notes if since is None or note.at >= since]


def read_everything(
    client: str, path: Path | None, report: Callable[[int, int], None]
) -> Iterator[FoundConversation | FoundNotes]:
    """A client's conversations and notes in a file, folder or home folder. Raises InvalidFile if there is nothing."""
    reader = READERS[client]
    files, folders = _find(reader, path)
    if not files and not folders:
        where = path if path is not None else Path.home()
        raise InvalidFile(
            f"There is nothing of {client} in {where}. Name its file or folder: import --from {client} PATH"
        )
    projects: dict[Path, str | None] = {}
    for done, file in enumerate(files, start=1):
        for transcript in reader.read(file):
            try:
                project = find_project(transcript.folder).name if transcript.folder else None
            except (OSError, ValueError):
                project = None  # the transcript names something that cannot be a folder
            projects.setdefault(file.parent, project)
            yield FoundConversation(transcript, project)
        report(done, len(files))
    for folder in folders:
        yield FoundNotes(
            folder, list(read_folder(folder)), projects.get(folder.parent, projects.get(folder.parent / "chats"))
        )


def _find(reader: TranscriptReader, path: Path | None) -> tuple[list[Path], list[Path]]:
    """Files with conversations, and folders with notes."""
    if path is None:
        return list(reader.find(None)), find_folders(None, reader.name)
    if not path.exists():
        raise InvalidFile(f"{path} does not exist. Check the name.")
    if path.is_file() or (path / "conversations.json").exists():
        return [path], []
    if (path / INDEX).is_file():
        return [], [path]
    files, folders = list(reader.find(path)), find_folders(path, reader.name)
    return (files, folders) if files or folders else (sorted(path.rglob("*.jsonl")), [])
