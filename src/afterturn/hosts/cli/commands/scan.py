"""`scan`: what the scanners find in files, without a store."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import click

from afterturn.errors import InvalidFile
from afterturn.guard.scanning import scanner
from afterturn.hosts.cli.command import Invocation, command
from afterturn.hosts.cli.output import count, one_line, print_table
from afterturn.scanners.detection import ScanAction

_FILE_BYTES_MAX = 256 * 1024 * 1024
_LINES = (".jsonl", ".ndjson")
_CONSEQUENCES = {
    ScanAction.REDACT: "redacted",
    ScanAction.REFUSE: "refused",
    ScanAction.SUSPECT: "quarantined if untrusted, flagged otherwise",
}


class ScannedDetection(NamedTuple):
    """One detection. `line` is the line of a JSON Lines file, 0 for a text."""

    file: str
    line: int
    kind: str
    action: ScanAction


@command("scan")
@click.argument("files", metavar="[FILE|-]...", nargs=-1)
@click.option("--lines", is_flag=True, help="Read stdin as JSON Lines. Files that end in .jsonl are read so anyway.")
@click.option("--personal-data", is_flag=True, help="Find personal data too, whatever the setting is.")
def scan(invocation: Invocation, files: tuple[str, ...], *, lines: bool, personal_data: bool) -> None:
    """Show what the scanners find in files: secrets, hidden text, links that carry data out, instructions to a
    model."""
    policy = invocation.config().scan_policy
    if personal_data and policy.personal_data == "off":
        policy = replace(policy, personal_data="redact")
    group = scanner(scanning=policy)
    found: list[ScannedDetection] = []
    for file in files or ("-",):
        for number, text in _texts(file, _read(file), lines=lines):
            found += [ScannedDetection(file, number, one.kind, one.action) for one in group.find(text)]
            found += [ScannedDetection(file, number, kind, ScanAction.SUSPECT) for kind in group.suspect(text)]
    rows = [one._asdict() for one in found]
    if not invocation.print_rows(rows, empty=f"Nothing was found in {count(len(files) or 1, 'file')}."):
        print_table(
            ("WHERE", "WHAT", "WHAT FOLLOWS"),
            [(_place(one), one_line(one.kind), _CONSEQUENCES[one.action]) for one in found],
        )
    if found:
        raise click.exceptions.Exit(1)


def _texts(file: str, content: str, *, lines: bool) -> Iterator[tuple[int, str]]:
    if not (file.endswith(_LINES) or (file == "-" and lines)):
        yield 0, content
        return
    is_export = False
    for number, line in enumerate(content.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            raise InvalidFile(f"Line {number} of {file} is not JSON. Correct it, or scan the file as text.") from None
        if isinstance(row, dict) and (is_export or "afterturn_export" in row):
            is_export, row = True, row.get("entry")
            if row is None:
                continue
        text = row.get("text") if isinstance(row, dict) else row
        if not isinstance(text, str):
            raise InvalidFile(f"Line {number} of {file} has no `text`. Use objects with `text`, or texts.")
        yield number, text


def _read(file: str) -> str:
    try:
        content = sys.stdin.buffer.read(_FILE_BYTES_MAX + 1) if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise InvalidFile(f"{file} cannot be read: {error.strerror}. Check the name.") from error
    if len(content) > _FILE_BYTES_MAX:
        raise InvalidFile(f"{file} is larger than {_FILE_BYTES_MAX:,} bytes. Split it.")
    return content.decode("utf-8", "replace")


def _place(found: ScannedDetection) -> str:
    name = "stdin" if found.file == "-" else one_line(found.file)
    return f"{name}:{found.line}" if found.line else name
