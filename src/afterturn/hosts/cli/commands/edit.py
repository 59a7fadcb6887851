"""`edit`: a space as Markdown in an editor. The changes are one group, which one `undo` reverts."""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from afterturn.errors import AfterturnError, InvalidFile
from afterturn.hosts.cli.changes import print_details, print_difference, shortened
from afterturn.hosts.cli.command import Invocation, command
from afterturn.hosts.cli.options import TARGETS
from afterturn.hosts.cli.output import as_object, confirm, count, one_line, safe
from afterturn.types import Entry, Status

if TYPE_CHECKING:
    from afterturn.space.markdown import Bullet, Edited, Edits, SkippedEdit


FILE_BYTES_MAX = 64 * 1024 * 1024
EXIT_NOT_ALL = 1


@dataclass(slots=True)
class _Draft:
    """The edited text. `path` is its temporary file until everything is applied; None if it is the user's own file."""

    text: str
    path: Path | None = None

    def saved_hint(self) -> str:
        return f" Your text is saved. To apply it: afterturn edit --file {self.path}" if self.path is not None else ""

    def discard(self) -> None:
        if self.path is not None:
            with suppress(FileNotFoundError):
                self.path.unlink()
            self.path = None


@command("edit")
@click.option("--target", type=click.Choice(TARGETS), help="Only what is about this.")
@click.option("--project", metavar="NAME", help="Only memories of this project. New ones belong to it too.")
@click.option("--file", "file", metavar="PATH|-", help="Apply this text instead of opening an editor.")
@click.option("--print", "printed", is_flag=True, help="Only print the text, to use with --file later.")
@click.option("--dry-run", is_flag=True, help="Only show the changes.")
@click.option("--yes", is_flag=True, help="Do not ask. Required without a terminal.")
def edit(
    invocation: Invocation,
    target: str | None,
    project: str | None,
    file: str | None,
    **switches: bool,
) -> None:
    """Edit a space's memories as Markdown, in $VISUAL or $EDITOR."""
    if file is not None and (target or project or switches["printed"]):
        raise click.UsageError("--file can only be combined with --dry-run and --yes.")
    if file is not None:
        _apply(invocation, _Draft(_read(file)), dry_run=switches["dry_run"], yes=switches["yes"])
        return
    with invocation.in_space() as space:
        text = space.as_markdown(target=target, project=project)
    if switches["printed"]:
        click.echo(safe(text), nl=False)
        return
    draft = _edited(invocation, text)
    if draft.text == text:
        draft.discard()
    _apply(invocation, draft, dry_run=switches["dry_run"], yes=switches["yes"])


def _edited(invocation: Invocation, text: str) -> _Draft:
    """The text after editing. From now on it is in a file that only the user can read, whatever fails."""
    descriptor, name = tempfile.mkstemp(prefix="afterturn-", suffix=".md")
    with os.fdopen(descriptor, "wb") as opened:
        opened.write(text.encode())
    path = Path(name)
    draft = _Draft(text, path)
    try:
        click.edit(filename=name)
        draft.text = _read(name)
    except (click.ClickException, AfterturnError, KeyboardInterrupt) as error:
        if _bytes_of(path) == text.encode():
            draft.discard()
        if isinstance(error, KeyboardInterrupt):
            _print_hint(invocation, draft.saved_hint())
            raise
        message = error.format_message() if isinstance(error, click.ClickException) else str(error)
        raise InvalidFile(
            f"{message.rstrip('.')}. Nothing was changed. Set VISUAL or EDITOR to your editor.{draft.saved_hint()}"
        ) from error
    return draft


def _read(name: str) -> str:
    try:
        content = sys.stdin.buffer.read(FILE_BYTES_MAX + 1) if name == "-" else _bytes_of(Path(name))
        if len(content) > FILE_BYTES_MAX:
            raise InvalidFile(
                f"{name} has more than {FILE_BYTES_MAX} bytes. Edit a part of the space with --target or --project."
            )
        return content.decode("utf-8-sig")
    except OSError as error:
        raise InvalidFile(f"{name} cannot be read: {error.strerror}. Check the name.") from error
    except UnicodeDecodeError as error:
        raise InvalidFile(f"{name} is not UTF-8 text (byte {error.start}). Save it as UTF-8.") from error


def _bytes_of(path: Path) -> bytes:
    with path.open("rb") as opened:
        return opened.read(FILE_BYTES_MAX + 1)


def _apply(invocation: Invocation, draft: _Draft, *, dry_run: bool, yes: bool) -> None:
    try:
        edited = _agreed(invocation, draft, dry_run=dry_run, yes=yes)
    except AfterturnError as error:
        # Every message says where the text is saved.
        error.args = (f"{error}{draft.saved_hint()}", *error.args[1:])
        raise
    except (click.exceptions.Exit, click.Abort, KeyboardInterrupt):
        _print_hint(invocation, draft.saved_hint())
        raise
    if edited is not None and edited.skipped:
        raise click.exceptions.Exit(EXIT_NOT_ALL)


def _agreed(invocation: Invocation, draft: _Draft, *, dry_run: bool, yes: bool) -> Edited | None:
    """The applied edits; None if there were none, or for a dry run."""
    with invocation.in_space() as space:
        edits = space.compare_markdown(draft.text)
        if not edits.edits and not edits.skipped:
            draft.discard()
            invocation.answer({"group": None, "changed": [], "existing": 0, "skipped": []}, "Nothing was changed.")
            return None
        for at, edit in enumerate(() if invocation.json else edits.edits):
            if at:
                click.echo()
            before, bullet, report = edit.before, edit.bullet, edit.copied_from
            print_difference(None if before is None else before.text, None if bullet is None else bullet.text)
            why = [] if report is None else [f"a report from {report.origin}, because it repeats words of {report.id}"]
            print_details([", ".join([*_details(before, bullet), *why])])
        if dry_run:
            saved_as = None if draft.path is None else str(draft.path)
            _print_result(invocation, edits, saved_as, f"Nothing was changed.{draft.saved_hint()}")
            return None
        if edits.edits and not yes:
            confirm(f"change {count(len(edits.edits), 'memory', 'memories')} of {invocation.space_name()}")
        edited = space.apply_edits(edits)
    draft.discard()
    saved = _keep(invocation, edited.skipped)
    hint = f"Your text for these is saved. Check it, then: afterturn edit --file {saved}\n" if saved is not None else ""
    _print_result(invocation, edited, None if saved is None else str(saved), hint + summary(edited))
    return edited


def _keep(invocation: Invocation, skipped: tuple[SkippedEdit, ...]) -> Path | None:
    """The file with the text of edits that were not applied; None if all were."""
    from afterturn.space.markdown import render_skipped

    text = render_skipped(invocation.space_name(), skipped)
    if not text:
        return None
    descriptor, name = tempfile.mkstemp(prefix="afterturn-skipped-", suffix=".md")
    with os.fdopen(descriptor, "wb") as opened:
        opened.write(text.encode())
    return Path(name)


def _print_result(invocation: Invocation, result: Edits | Edited, saved_as: str | None, text: str) -> None:
    if invocation.print_json({**as_object(result), "saved_as": saved_as}):
        return
    click.echo()
    if result.skipped:
        click.echo("Not applied:")
    print_details(shortened(one.reason, _REASON_CHARS) for one in result.skipped)
    click.echo(text)


def _print_hint(invocation: Invocation, text: str) -> None:
    if text and not invocation.json:
        click.echo(text.strip(), err=True)


_REASON_CHARS = 400


def summary(edited: Edited) -> str:
    done = Counter(
        "deleted" if one.status is Status.DELETED else "added" if one.version == 1 else "changed"
        for one in (changed.entry for changed in edited.changed)
    )
    parts = [f"{done[word]} {word}" for word in ("added", "changed", "deleted") if done[word]]
    parts += [f"{edited.existing} already known"] if edited.existing else []
    parts += [f"{len(edited.skipped)} not applied"] if edited.skipped else []
    back = f"  (undo: afterturn undo {edited.group})" if edited.group is not None else ""
    return f"{', '.join(parts) or 'Nothing was changed'}{back}"


def _details(before: Entry | None, bullet: Bullet | None) -> list[str]:
    """Which memory it is, and what changes apart from its text."""
    if before is None and bullet is not None:
        parts = [f"target {bullet.target}", f"project {one_line(bullet.project)}" if bullet.project else ""]
        return [part for part in [*parts, "pinned" if bullet.pinned else ""] if part]
    assert before is not None
    if bullet is None:
        return [before.id, f"target {before.target}", *(["pinned"] if before.pinned else [])]
    moved = [
        f"target {before.target} -> {bullet.target}"
        if bullet.target is not before.target
        else f"target {before.target}",
        f"project {_named(before.project)} -> {_named(bullet.project)}" if bullet.project != before.project else "",
        "" if bullet.pinned == before.pinned else "pinned" if bullet.pinned else "no longer pinned",
    ]
    return [f"{before.id} version {before.version}", *(part for part in moved if part)]


def _named(project: str | None) -> str:
    return "none" if project is None else one_line(project)
