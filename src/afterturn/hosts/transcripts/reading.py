"""Finds and reads everything that a program left behind: conversations, and notes in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from afterturn.errors import InvalidFile
from afterturn.hosts.projects import find_project
from afterturn.hosts.transcripts.coding_agents import LINE_TRANSCRIPTS, CopilotTranscripts, OpencodeTranscripts
from afterturn.hosts.transcripts.data_exports import ChatGptExport, ClaudeExport
from afterturn.hosts.transcripts.memory_folder import INDEX, Note, find_folders, read_folder
from afterturn.hosts.transcripts.transcript import PastConversation, TranscriptReader
from afterturn.types import Draft

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
    """What a client left in a file, a folder, or a person's home folder. Raises InvalidFile if there is nothing."""
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
            project = _project_name(transcript.folder)
            projects.setdefault(file.parent, project)
            yield FoundConversation(transcript, project)
        report(done, len(files))
    for folder in folders:
        yield FoundNotes(
            folder, list(read_folder(folder)), projects.get(folder.parent, projects.get(folder.parent / "chats"))
        )


def _project_name(folder: str) -> str | None:
    """None if the transcript names no folder, or something that cannot be one."""
    try:
        return find_project(folder).name if folder else None
    except (OSError, ValueError):
        return None


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
