"""`consolidate`: tidies up a space now, or shows what that would do."""

import click

from afterturn.hosts.cli.command import command
from afterturn.hosts.cli.console import count, status
from afterturn.hosts.cli.document import print_document
from afterturn.hosts.cli.invocation import Invocation


@command(
    "consolidate",
    examples="""
    $ afterturn consolidate --dry-run
    $ afterturn consolidate --space user:ada
    $ afterturn review undo 0k3v8r2c4d5e6f7g
    """,
)
@click.option("--dry-run", is_flag=True, help="Only show what would go, and why.")
def consolidate(invocation: Invocation, *, dry_run: bool) -> None:
    """Merge what says the same, drop what something newer contradicts, let unused memories fade.

    Memories fade only with the setting `fade_days`; pinned ones stay. It is a review like any other: `review undo`
    takes it back.
    """
    from afterturn.hosts.cli.reviewed import print_changes, print_review

    with invocation.in_space() as space, status("Consolidating"):
        done = space.consolidate(dry_run=dry_run)
    if invocation.json:
        print_document(done)
    elif not done.changes:
        click.echo("There is nothing to tidy up.")
    elif dry_run:
        click.echo(f"{count(len(done.changes), 'memory', 'memories')} would go:")
        print_changes(done, {})
    else:
        print_review(done, {})
