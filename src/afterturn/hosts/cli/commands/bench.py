"""`bench`: measures afterturn on this machine, each figure beside the limit that the machine sets."""

from pathlib import Path
from typing import Any, Protocol

import click

from afterturn.hosts.cli.command import CONTEXT_SETTINGS, Group, command, help_when_alone
from afterturn.hosts.cli.console import progress, status
from afterturn.hosts.cli.document import print_document
from afterturn.hosts.cli.invocation import Invocation, shared_options

_HERE = "afterturn.hosts.cli.commands.bench"


@click.group(
    "bench",
    cls=Group,
    sections={
        "Commands": {
            "store": f"{_HERE}:store",
            "turn": f"{_HERE}:turn",
            "recall": f"{_HERE}:recall",
            "review": f"{_HERE}:review",
        }
    },
    examples="""
    $ afterturn bench store --quick
    $ afterturn bench recall --quick
    """,
    context_settings=CONTEXT_SETTINGS,
    invoke_without_command=True,
)
@shared_options
@click.pass_context
def bench(context: click.Context) -> None:
    """Measure this machine, ours beside the limit."""
    from afterturn.lab.ending import unwinding

    context.with_resource(unwinding())
    help_when_alone(context)


@command(
    "store",
    examples="""
    $ afterturn bench store
    $ afterturn bench store --quick --json
    """,
)
@click.option("--quick", is_flag=True, help="A small run: figures show the form and are not judged.")
@click.option("--markdown", is_flag=True, help="Print tables for a page.")
def store(invocation: Invocation, *, quick: bool, markdown: bool) -> None:
    """Measure adding, importing and starting turns.

    Uses stores of its own in a temporary folder. Each figure is taken in turns with a bare script that does the least
    that would do, so both have the same weather. Exit code 1 when a figure misses its target.
    """
    from afterturn.lab.bench.store import measure_store

    with status("Measuring") as told:
        report = measure_store(quick=quick, progress=told)
    _show(report, invocation, markdown=markdown)


@command(
    "turn",
    examples="""
    $ afterturn bench turn
    $ afterturn bench turn --quick --json
    """,
)
@click.option("--quick", is_flag=True, help="A small run: figures show the form and are not judged.")
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
    _show(report, invocation, markdown=markdown)


@command(
    "review",
    examples="""
    $ afterturn bench review
    $ afterturn bench review --quick --json
    """,
)
@click.option("--quick", is_flag=True, help="A small run: figures show the form and are not judged.")
@click.option("--markdown", is_flag=True, help="Print tables for a page.")
def review(invocation: Invocation, *, quick: bool, markdown: bool) -> None:
    """Measure what turns notice of the reviews behind them.

    Ten turns with a review after every third, beside the same turns without: with a model that answers, with one that
    hangs for ever, and with rules that learn from every turn. Exit code 1 when a figure misses its target.
    """
    from afterturn.lab.bench.review import measure_review

    with status("Measuring") as told:
        report = measure_review(quick=quick, progress=told)
    _show(report, invocation, markdown=markdown)


@command(
    "recall",
    examples="""
    $ afterturn bench recall --quick
    $ afterturn bench recall --only large --text conversations.json.gz --keep ~/stores
    """,
)
@click.option("--quick", is_flag=True, help="A small run: figures show the form and are not judged.")
@click.option("--markdown", is_flag=True, help="Print tables for a page.")
@click.option("--only", multiple=True, metavar="ROW", help="Only this row; may be given several times.")
@click.option("--spaces", type=click.IntRange(min=1), help="How many small spaces; 10,000 by default.")
@click.option("--text", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="Real text to remember.")
@click.option("--keep", type=click.Path(path_type=Path, file_okay=False), help="Keep the stores there for later runs.")
@click.option("--plots", type=click.Path(path_type=Path, file_okay=False), help="Draw the plots there.")
def recall(invocation: Invocation, *, markdown: bool, only: tuple[str, ...], **asked: Any) -> None:
    """Measure recall: many spaces, a large one, many callers.

    Rows: spaces, large, small, growth, concurrent, opening, memory. Each runs in a process of its own, beside the limit
    that the table names. A full run takes some twenty minutes, 15 GB of disk and 8 GB of memory. `--text` is a
    conversation file, lines of JSON with a "text", or plain text. Exit code 1 when a figure misses its target.
    """
    from afterturn.lab.bench.recall import measure_recall
    from afterturn.lab.bench.recall_scale import ROWS, Options

    if unknown := sorted(set(only) - set(ROWS)):
        raise click.BadParameter(f"{unknown[0]!r} is no row. Use one of: {', '.join(ROWS)}.", param_hint="--only")
    with status("Measuring") as told:
        report = measure_recall(Options(only=only or ROWS, **asked), progress=told)
    _show(report, invocation, markdown=markdown)


class _Report(Protocol):
    @property
    def passed(self) -> bool | None: ...

    def as_dict(self) -> dict[str, Any]: ...

    def as_markdown(self) -> str: ...

    def as_text(self) -> str: ...


def _show(report: _Report, invocation: Invocation, *, markdown: bool) -> None:
    """Ends the command with code 1 when a target was missed."""
    if invocation.json:
        print_document(report.as_dict())
    else:
        click.echo(report.as_markdown() if markdown else report.as_text())
    if report.passed is False:
        raise click.exceptions.Exit(1)
