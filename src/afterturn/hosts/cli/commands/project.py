"""`project`: the folders that have a memory of their own, and which of them share one."""

from __future__ import annotations

from pathlib import Path

import click

from afterturn.errors import InvalidInput
from afterturn.hosts.cli.command import Invocation, command, commands, group
from afterturn.hosts.cli.output import note, one_line, print_table
from afterturn.hosts.projects import (
    PROJECT,
    KnownProject,
    find_project,
    known_projects,
    merge_projects,
    note_project,
    own_space,
    separate_project,
)
from afterturn.validation import check_space


@group(
    "project",
    commands(__name__, list="list_projects", show="show", merge="merge", move="move", separate="separate"),
    alone="list",
)
def project() -> None:
    """Projects with a memory of their own; without a command, list them."""


@command("list")
def list_projects(invocation: Invocation) -> None:
    """List the projects that agents used on this machine."""
    known = known_projects()
    if invocation.print_json(
        [
            {"space": one.space, "folder": one.root and str(one.root), "into": one.into, "paused": one.is_paused}
            for one in known
        ]
    ):
        return
    if not known:
        click.echo("No agent has used a project yet.")
        return
    print_table(("PROJECT", "FOLDER", "MEMORY"), [_row(one) for one in known])
    note("What a project knows: afterturn list --space PROJECT")


def _row(one: KnownProject) -> tuple[str, ...]:
    folder = "unknown" if one.root is None else one_line(str(one.root)) + ("" if one.root.exists() else "  (missing)")
    memory = f"merged into {one.into}" if one.into else "its own"
    return (one.space, folder, f"{memory}, hooks are paused" if one.is_paused else memory)


@command("show")
@click.argument("folder", default=".", type=click.Path(path_type=Path))
def show(invocation: Invocation, folder: Path) -> None:
    """Show the project of a folder, by default of the current one."""
    found = find_project(folder)
    if invocation.print_json({"space": found.space, "folder": str(found.root), "reads": [found.space, *found.merged]}):
        return
    click.echo(f"{found.space}  {one_line(str(found.root))}")
    for other in found.merged:
        click.echo(f"reads {other} too")


@command("merge")
@click.argument("project")
@click.argument("into")
def merge(invocation: Invocation, project: str, into: str) -> None:
    """Let PROJECT use the memory of INTO, for example two clones of one repository."""
    _merge(invocation, _space_of(project), _space_of(into))


@command("move")
@click.argument("project")
@click.argument("folder", default=".", type=click.Path(path_type=Path))
def move(invocation: Invocation, project: str, folder: Path) -> None:
    """Let FOLDER, by default the current one, continue the memory of PROJECT, whose folder was moved or renamed.

    PROJECT is its former folder or its space: `afterturn project list` shows projects whose folder is missing.
    """
    if not folder.is_dir():
        raise InvalidInput(f"{folder} is not a folder. Name the folder that the project is in now.")
    note_project(folder)
    _merge(invocation, own_space(folder), _space_of(project))


def _merge(invocation: Invocation, space: str, into: str) -> None:
    if space == into:
        raise InvalidInput(f"Both are {space} already. Name two different projects.")
    merge_projects(space, into)
    if invocation.print_json({"space": space, "into": into}):
        return
    click.echo(f"{space} now uses the memory of {into}")
    click.echo(f"Undo: afterturn project separate {space}")


@command("separate")
@click.argument("project")
def separate(invocation: Invocation, project: str) -> None:
    """Give PROJECT its own memory again. Memories learned while it was merged stay where they are."""
    space = _space_of(project)
    if not separate_project(space):
        raise InvalidInput(
            f"{space} is not merged into another project. `afterturn project list` shows those that are."
        )
    invocation.answer({"space": space}, f"{space} uses its own memory")


def _space_of(project: str) -> str:
    if project.startswith(PROJECT):
        return check_space(project)
    folder = Path(project).expanduser()
    for known in known_projects():
        if known.root == folder.absolute() and not folder.exists():
            return known.space
    if not folder.is_dir():
        raise InvalidInput(f"{project} is neither a folder nor a project. `afterturn project list` shows the projects.")
    note_project(folder)
    return own_space(folder)
