"""`add`, `update`, `firm`, `delete`: change one memory by hand."""

from __future__ import annotations

from typing import Any

import click

from afterturn.hosts.cli.command import Invocation, command
from afterturn.hosts.cli.options import TARGETS, metadata_option, read_text, time_option
from afterturn.hosts.cli.output import one_line
from afterturn.types import Entry, Origin, Status, Target
from afterturn.validation import check_id


@command("add")
@click.argument("text", metavar="TEXT|-")
@click.option("--target", type=click.Choice(TARGETS), default="user", show_default=True, help="What it is about.")
@click.option(
    "--origin",
    type=click.Choice([str(origin) for origin in Origin]),
    default="user",
    show_default=True,
    help="Who says it. The trust depends on it.",
)
@click.option("--agent", metavar="NAME", help="The agent it belongs to.")
@click.option("--project", metavar="NAME", help="The project it belongs to.")
@click.option("--speaker", metavar="NAME", help="Who said it.")
@metadata_option("Metadata to filter by; repeatable.")
@click.option("--pinned", is_flag=True, help="Always include it in the standing context.")
@click.option("--firm", is_flag=True, help="A rule that refuses the tool calls that it concerns.")
@time_option("--occurred-at", help="When it happened, if not now.")
@time_option("--valid-from", help="True from this time on.")
@time_option("--valid-to", help="True until this time.")
@time_option("--expires-at", help="Not recalled after this time.")
@click.option(
    "--source", "sources", metavar="ID", multiple=True, help="The id of a message it was learned from; repeatable."
)
def add(invocation: Invocation, **given: Any) -> None:
    """Add one statement."""
    text = read_text(given.pop("text"))
    given["target"] = Target(given["target"])
    given["origin"] = Origin(given["origin"])
    given["metadata"] = dict(given["metadata"])
    with invocation.in_space(create=True) as space:
        added = space.add(text, **given)
    if invocation.print_json(added):
        return
    if not added.created:
        click.echo(f"{added.entry.id}  already in {added.entry.space}")
        return
    click.echo(f"{added.entry.id}  added to {added.entry.space}  (undo: afterturn undo {added.operation})")
    _print_verdict(added.entry)


@command("update")
@click.argument("id")
@click.argument("text", metavar="TEXT|-")
@click.option("--expected-version", type=click.IntRange(min=1), help="Fail if the memory is at another version.")
def update(invocation: Invocation, id: str, text: str, expected_version: int | None) -> None:
    """Replace a memory's text. The old version stays in its history."""
    content = read_text(text)
    with invocation.in_space() as space:
        changed = space.update(check_id(id), content, expected_version=expected_version)
    invocation.answer_changed(changed, f"updated to version {changed.entry.version}")
    if not invocation.json:
        _print_verdict(changed.entry)


def _print_verdict(entry: Entry) -> None:
    """Reports what the guard changed."""
    if entry.status is Status.QUARANTINED:
        click.echo(f"Quarantined, and never shown to a model: {one_line(entry.reason)}.", err=True)
    elif entry.reason:
        click.echo(f"The guard changed the text: {one_line(entry.reason)}.", err=True)
    if entry.status is Status.PROPOSED:
        click.echo(f"It needs approval: afterturn inbox show {entry.id}", err=True)


@command("firm")
@click.argument("id")
@click.option("--off", is_flag=True, help="It is no longer firm.")
def firm(invocation: Invocation, id: str, *, off: bool) -> None:
    """Make a memory a firm rule: tool calls that it concerns are refused.

    Only you can do this: no model, review, tool or import without your consent makes a rule firm.
    """
    with invocation.in_space() as space:
        changed = space.set_firm(check_id(id), not off)
    invocation.answer_changed(changed, "no longer firm" if off else "firm")


@command("delete")
@click.argument("id")
def delete(invocation: Invocation, id: str) -> None:
    """Hide a memory. `undo` brings it back; `forget` erases permanently."""
    with invocation.in_space() as space:
        changed = space.delete(check_id(id))
    invocation.answer_changed(changed, "deleted")
