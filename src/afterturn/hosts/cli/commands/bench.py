"""`bench`: measures afterturn on this machine, each figure beside the limit that the machine sets."""

import click

from afterturn.hosts.cli.command import CONTEXT_SETTINGS, Group, command, help_when_alone
from afterturn.hosts.cli.console import progress, status
from afterturn.hosts.cli.document import print_document
from afterturn.hosts.cli.invocation import Invocation, shared_options

_HERE = "afterturn.hosts.cli.commands.bench"


@click.group(
    "bench",
    cls=Group,
    sections={"Commands": {"store": f"{_HERE}:store", "turn": f"{_HERE}:turn"}},
    examples="""
    $ afterturn bench store --quick
    $ afterturn bench turn --quick
    """,
    context_settings=CONTEXT_SETTINGS,
    invoke_without_command=True,
)
@shared_options
@click.pass_context
def bench(context: click.Context) -> None:
    """Measure this machine, ours beside the limit."""
    help_when_alone(context)


@command(
    "store",
    examples="""
    $ afterturn bench store
    $ afterturn bench store --quick --json
    """,
)
@click.option("--quick", is_flag=True, help="A small run: the figures are rough.")
@click.option("--markdown", is_flag=True, help="Print tables for a page.")
def store(invocation: Invocation, *, quick: bool, markdown: bool) -> None:
    """Measure adding, importing and starting turns.

    Uses stores of its own in a temporary folder. Each figure is taken in turns with a bare script that does the least
    that would do, so both have the same weather. Exit code 1 when a figure misses its target.
    """
    from afterturn.lab.bench.store import measure_store

    with status("Measuring") as told:
        report = measure_store(quick=quick, progress=told)
    if invocation.json:
        print_document(report.as_dict())
    else:
        click.echo(report.as_markdown() if markdown else report.as_text())
    if not report.passed:
        raise click.exceptions.Exit(1)


@command(
    "turn",
    examples="""
    $ afterturn bench turn
    $ afterturn bench turn --quick --json
    """,
)
@click.option("--quick", is_flag=True, help="A small run: the figures are rough.")
@click.option("--markdown", is_flag=True, help="Print tables for a page.")
def turn(invocation: Invocation, *, quick: bool, markdown: bool) -> None:
    """Measure what memory costs turns and what reaches the model.

    Uses stores of its own in a temporary folder, and models that are played. Tokens and recalls stand beside those of
    simpler ways to have memory, times beside the same loop without memory. A full run takes a quarter of an hour. Exit
    code 1 when a figure misses its target.
    """
    from afterturn.lab.bench.turn import measure_turn

    with progress("Measuring turns") as told:
        report = measure_turn(quick=quick, progress=lambda step, done, total: told(done, total))
    if invocation.json:
        print_document(report.as_dict())
    else:
        click.echo(report.as_markdown() if markdown else report.as_text())
    if not report.passed:
        raise click.exceptions.Exit(1)
