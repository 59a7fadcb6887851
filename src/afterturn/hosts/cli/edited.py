"""A person's edits told back to them: the difference before it is done, and what could not be done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from afterturn.base.types import Changed, Entry, Status
from afterturn.hosts.cli.console import one_line
from afterturn.hosts.cli.differences import print_details, print_difference, shortened

if TYPE_CHECKING:
    from afterturn.space.applying import Edited
    from afterturn.space.editing import Edit, Edits, Left
    from afterturn.space.markdown import Bullet

_REASON_CHARS = 400


def print_edits(edits: Edits) -> None:
    for at, edit in enumerate(edits.edits):
        if at:
            click.echo()
        _print_edit(edit)


def print_left(left: Sequence[Left]) -> None:
    if left:
        click.echo("Not done:")
    for one in left:
        print_details([shortened(one.reason, _REASON_CHARS)])


def summary(edited: Edited) -> str:
    done = Counter(_did(one) for one in edited.changed)
    told = [f"{done[word]} {word}" for word in ("added", "changed", "deleted") if done[word]]
    told += [f"{edited.known} known already"] if edited.known else []
    told += [f"{len(edited.left)} not done"] if edited.left else []
    back = f"  (back: afterturn undo {edited.group})" if edited.group is not None else ""
    return f"{', '.join(told) or 'Nothing was changed'}{back}"


def _did(changed: Changed) -> str:
    if changed.entry.status is Status.DELETED:
        return "deleted"
    return "added" if changed.entry.version == 1 else "changed"


def _print_edit(edit: Edit) -> None:
    before, bullet = edit.before, edit.bullet
    print_difference(None if before is None else before.text, None if bullet is None else bullet.text)
    print_details([", ".join(_details(before, bullet))])


def _details(before: Entry | None, bullet: Bullet | None) -> list[str]:
    """Which memory, and what becomes of what stands beside its words."""
    if before is None and bullet is not None:
        told = [f"about {bullet.target}", f"project {one_line(bullet.project)}" if bullet.project else ""]
        return [part for part in [*told, "pinned" if bullet.pinned else ""] if part]
    assert before is not None
    if bullet is None:
        return [before.id, f"about {before.target}", *(["pinned"] if before.pinned else [])]
    moved = [
        f"about {before.target} -> {bullet.target}" if bullet.target is not before.target else f"about {before.target}",
        f"project {_named(before.project)} -> {_named(bullet.project)}" if bullet.project != before.project else "",
        "" if bullet.pinned == before.pinned else "pinned" if bullet.pinned else "no longer pinned",
    ]
    return [f"{before.id} version {before.version}", *(part for part in moved if part)]


def _named(project: str | None) -> str:
    return "none" if project is None else one_line(project)
