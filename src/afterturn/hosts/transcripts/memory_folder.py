"""Notes that coding agents keep as Markdown: `MEMORY.md`, an index, and topic files with front matter."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from afterturn.errors import InvalidFile
from afterturn.hosts.transcripts.transcript import folder_in, open_file, parse_timestamp
from afterturn.types import Draft, Origin, Target

INDEX = "MEMORY.md"
_KEEPERS = {"claude-code": ("CLAUDE_CONFIG_DIR", ".claude"), "qwen-code": ("QWEN_HOME", ".qwen")}
_FILE_BYTES_MAX = 256 * 1024
_ABOUT_THE_USER = ("user", "feedback")
_BULLET = re.compile(r"\s{0,3}(?:[-*+]|\d{1,3}[.)])\s+(?:\[[ xX]\]\s+)?")
_LINK = re.compile(r"\[[^\]\n]{1,200}\]\(([^)\s]{1,300})\)")
_FENCE = re.compile(r"\s{0,3}(?:```|~~~)")


@dataclass(frozen=True, slots=True)
class Note:
    """One statement of a file."""

    text: str
    at: float
    target: Target
    file: str

    def draft(self, project: str | None) -> Draft:
        """An agent wrote it, and nobody knows what it had read: it is kept as a report."""
        return Draft(
            text=self.text,
            origin=Origin.AGENT,
            target=self.target,
            project=project if self.target is Target.ENVIRONMENT else None,
            occurred_at=self.at,
            metadata={"file": self.file},
        )


def find_folders(home: Path | None, client: str) -> list[Path]:
    """The folders in which a client keeps notes about projects."""
    if client not in _KEEPERS:
        return []
    return sorted(path.parent for path in (folder_in(home, *_KEEPERS[client]) / "projects").glob(f"*/memory/{INDEX}"))


def read_folder(folder: Path) -> Iterator[Note]:
    """The statements of all Markdown files. A line of the index that only leads to a topic file is left out."""
    for file in sorted(folder.glob("*.md")):
        try:
            with open_file(file) as stream:
                content = stream.read(_FILE_BYTES_MAX).decode(errors="replace")
            changed = file.stat().st_mtime
        except OSError as error:
            raise InvalidFile(f"{file} cannot be read: {error.strerror}. Check its permissions.") from error
        fields, body = _split(content)
        kind = fields.get("type", "")
        target = Target.USER if kind in _ABOUT_THE_USER else Target.ENVIRONMENT
        at = parse_timestamp(fields.get("modified", "")) or changed
        for text in split_statements(body):
            links = _LINK.findall(text) if file.name == INDEX else ()
            if not any((folder / Path(link).name).is_file() for link in links):
                yield Note(text, at, target, file.name)


def _split(content: str) -> tuple[dict[str, str], str]:
    """Front matter and the rest."""
    lines = content.splitlines()
    if not lines or lines[0].strip() != "---" or "---" not in [line.strip() for line in lines[1:]]:
        return {}, content
    end = 1 + [line.strip() for line in lines[1:]].index("---")
    pairs = (line.split(":", 1) for line in lines[1:end] if ":" in line)
    return {key.strip(): value.strip().strip("\"'") for key, value in pairs}, "\n".join(lines[end + 1 :])


def split_statements(body: str) -> Iterator[str]:
    """One for each bullet and each paragraph, without headings, tables and code."""
    paragraph: list[str] = []
    in_code = False
    for line in [*body.splitlines(), ""]:
        fence = _FENCE.match(line) is not None
        in_code = in_code != fence
        bullet = None if in_code or fence else _BULLET.match(line)
        is_text = bool(line.strip()) and not (in_code or fence or line.lstrip().startswith(("#", "|", ">", "<!--")))
        if bullet is not None or not is_text:
            if paragraph:
                yield " ".join(paragraph)
            paragraph = [line[bullet.end() :].strip()] if bullet is not None else []
        else:
            paragraph.append(line.strip())
