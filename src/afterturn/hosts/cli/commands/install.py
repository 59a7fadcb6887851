"""`install`, `uninstall`, `helper`, `pause`, `resume`: memory in coding agents, and the process that answers hooks."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Sequence
from pathlib import Path

import click

from afterturn.errors import DeadlineExceeded, InvalidInput
from afterturn.hosts.cli.command import Invocation, command, commands, group
from afterturn.hosts.cli.output import one_line, print_document, print_table, safe
from afterturn.hosts.hooks.control import (
    are_hooks_paused,
    pause_hooks,
    read_log,
    resume_hooks,
    running_helpers,
    stop_helpers,
)
from afterturn.hosts.install.clients import CLIENTS, ClientFiles, has_server
from afterturn.hosts.install.entries import State
from afterturn.hosts.install.installer import (
    FileChange,
    FileState,
    backup_of,
    find_states,
    plan_install,
    plan_uninstall,
    remove_created_folders,
    write_change,
)
from afterturn.hosts.projects import find_project, known_projects, set_paused

_CLIENT = click.Choice(list(CLIENTS))
_PROJECT = click.option(
    "--project", "in_project", is_flag=True, help="Use the configuration of the project in the current folder."
)
_HERE = click.option("--project", "in_project", is_flag=True, help="Only in the project of the current folder.")
_DRY_RUN = click.option("--dry-run", is_flag=True, help="Print what would change, and change nothing.")


@command("install")
@click.argument("client", type=_CLIENT, required=False)
@click.option("--status", is_flag=True, help="Only show what is installed.")
@_PROJECT
@_DRY_RUN
def install(invocation: Invocation, *, client: str | None, status: bool, in_project: bool, dry_run: bool) -> None:
    """Add memory to a coding agent; without a client, list the clients and what is installed."""
    if client is None or status:
        if dry_run or (client is None and in_project and not status):
            raise InvalidInput("Name the client, for example `afterturn install claude-code`.")
        _print_states(invocation, list(CLIENTS.values()) if client is None else [CLIENTS[client]])
        return
    files = CLIENTS[client]
    changes = [plan_install(target) for target in files.targets(_root(in_project=in_project))]
    if not dry_run:
        for change in changes:
            write_change(change)
    notes = (
        [] if has_server() else ["The MCP server was left out. To add it: pip install 'afterturn[mcp]', then again."]
    )
    if in_project:
        notes.append("The entries name the Python of this machine. Leave them out of commits that others use.")
        notes.append(f"{files.title} may ask whether you trust this project before it uses them.")
    _report(invocation, files, changes, [*notes, files.next_step], dry_run=dry_run, done="added to")


@command("uninstall")
@click.argument("client", type=_CLIENT)
@_PROJECT
@_DRY_RUN
def uninstall(invocation: Invocation, *, client: str, in_project: bool, dry_run: bool) -> None:
    """Remove what `install` added to a coding agent. Memories stay."""
    files = CLIENTS[client]
    targets = files.targets(_root(in_project=in_project))
    changes = [plan_uninstall(target) for target in targets]
    if not dry_run:
        for change in changes:
            write_change(change)
        remove_created_folders(targets)
        with contextlib.suppress(DeadlineExceeded):
            # It also ends by itself.
            stop_helpers()
    _report(invocation, files, changes, [], dry_run=dry_run, done="removed from")


def _root(*, in_project: bool) -> Path | None:
    return find_project(Path.cwd()).root if in_project else None


def _report(
    invocation: Invocation,
    files: ClientFiles,
    changes: Sequence[FileChange],
    notes: Sequence[str],
    *,
    dry_run: bool,
    done: str,
) -> None:
    changed = [change for change in changes if change.is_needed]
    if invocation.json:
        written = [
            {
                "file": str(change.path),
                "parts": list(change.titles),
                "kept": list(change.kept),
                "changed": change.is_needed,
                "backup": str(backup_of(change.path)) if change.is_needed and change.backup is not None else None,
            }
            for change in changes
        ]
        print_document({"client": files.name, "dry_run": dry_run, "files": written, "notes": list(notes)})
        return
    if dry_run:
        for change in changed:
            before, after = (change.before or "").splitlines(), (change.after or "").splitlines()
            name = str(change.path)
            click.echo(safe("\n".join(difflib.unified_diff(before, after, name, name, lineterm=""))))
    for change in changes:
        for title in change.kept:
            click.echo(f"{one_line(str(change.path))} has another {title} named afterturn. It was left alone.")
    if not changed:
        click.echo(f"{files.title}: nothing to change.")
        return
    for change in changed:
        what = " and ".join(change.titles)
        click.echo(f"{files.title}: {what} {'would be ' if dry_run else ''}{done} {one_line(str(change.path))}")
        if change.backup is not None and not dry_run:
            click.echo(f"  the file as it was: {one_line(str(backup_of(change.path)))}")
    for line in () if dry_run else notes:
        click.echo(line)


def _print_states(invocation: Invocation, clients: Sequence[ClientFiles]) -> None:
    root = find_project(Path.cwd()).root
    rows = []
    for files in clients:
        user, project = list(find_states(files.targets(None))), list(find_states(files.targets(root)))
        rows.append((files, _summary(user), _summary(project), user + project))
    if invocation.print_json(
        [
            {
                "client": files.name,
                "found": files.is_found(),
                "user": for_user,
                "project": for_project,
                "files": [
                    {"file": str(state.path), "parts": state.parts, "problem": state.problem or None}
                    for state in states
                ],
            }
            for files, for_user, for_project, states in rows
        ]
    ):
        return
    table = [
        (files.name, files.title, "yes" if files.is_found() else "no", for_user, for_project)
        for files, for_user, for_project, _ in rows
    ]
    print_table(("CLIENT", "", "FOUND", "YOURS", "THIS PROJECT"), table)
    for _, _, _, states in rows:
        for state in states:
            if state.problem:
                click.echo(one_line(state.problem), err=True)


def _summary(states: Sequence[FileState]) -> str:
    if any(state.problem for state in states):
        return "unreadable"
    found = {part for state in states for part in state.parts.values() if part is not State.FOREIGN}
    if found <= {State.ABSENT}:
        return "not installed"
    return "installed" if found == {State.CURRENT} else "outdated"


@group("helper", commands(__name__, status="status", stop="stop", log="log"), alone="status")
def helper() -> None:
    """The process that answers the hooks of coding agents; without a command, show it.

    Hooks start it when they need it. It ends by itself when it has had nothing to do for a while.
    """


@command("status")
def status(invocation: Invocation) -> None:
    """Show the helpers that run, and whether hooks are paused."""
    helpers, is_paused = running_helpers(), are_hooks_paused()
    projects = [one for one in known_projects() if one.is_paused]
    paused = {"paused": is_paused, "paused_projects": [one.space for one in projects]}
    if invocation.print_json({**paused, "helpers": helpers}):
        return
    if is_paused:
        click.echo("Hooks are paused. `afterturn resume` starts them again.")
    for one in projects:
        click.echo(
            f"Hooks are paused in {one_line(str(one.root))}. `afterturn resume --project` there starts them again."
        )
    if not helpers:
        click.echo("No helper runs. The next hook starts one.")
        return
    rows = [(str(one.pid), one_line(one.version), f"{one.served:,}", f"{one.failed:,}") for one in helpers]
    print_table(("PROCESS", "VERSION", "EVENTS", "FAILED"), rows)


@command("stop")
def stop(invocation: Invocation) -> None:
    """Stop the helper. The next hook starts another one."""
    stopped = stop_helpers()
    invocation.answer(
        {"stopped": stopped},
        "No helper runs." if not stopped else "Stopped." if stopped == 1 else f"Stopped {stopped} helpers.",
    )


@command("log")
@click.option("--lines", type=click.IntRange(min=1), default=50, show_default=True, help="How many lines to print.")
def log(invocation: Invocation, *, lines: int) -> None:
    """Print the newest lines of the helper's log."""
    found = read_log(lines)
    if invocation.print_json({"lines": found}):
        return
    for line in found or ["The helper has written nothing yet."]:
        click.echo(one_line(line))


@command("pause")
@_HERE
def pause(invocation: Invocation, *, in_project: bool) -> None:
    """Pause the hooks of all coding agents: nothing is recalled and nothing is recorded.

    With --project only in that project, its worktrees and subfolders. The tools of the MCP server still work.
    """
    if in_project:
        space = set_paused(Path.cwd(), paused=True)
        invocation.answer({"paused": True, "project": space}, f"Paused in {space}. Undo: afterturn resume --project")
        return
    pause_hooks()
    invocation.answer({"paused": True}, "Paused. `afterturn resume` starts hooks again.")


@command("resume")
@_HERE
def resume(invocation: Invocation, *, in_project: bool) -> None:
    """Start the hooks of all coding agents again. Projects that you paused stay paused."""
    if in_project:
        space = set_paused(Path.cwd(), paused=False)
        invocation.answer({"paused": False, "project": space}, f"Resumed in {space}.")
        return
    was_paused = resume_hooks()
    invocation.answer({"paused": False}, "Resumed." if was_paused else "Hooks were not paused.")
