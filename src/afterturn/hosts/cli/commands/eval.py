"""`eval`: what recall finds and hands over, on conversations with questions about them."""

from pathlib import Path
from typing import Any

import click

from afterturn.hosts.cli.command import command
from afterturn.hosts.cli.console import progress, safe
from afterturn.hosts.cli.document import print_document
from afterturn.hosts.cli.invocation import Invocation


@command(
    "eval",
    examples="""
    $ afterturn eval locomo.json.gz
    $ afterturn eval data/ --limit 20 --json
    """,
)
@click.argument("datasets", metavar="DATASET...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--embedder", metavar="NAME", help="Which vectors; default: the setting `embedder`.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Ask N questions of each conversation.")
@click.option("--alone", is_flag=True, help="Leave out BM25 and dense search: faster.")
@click.option("--markdown", is_flag=True, help="Print tables for a page.")
def evaluate(invocation: Invocation, *, datasets: tuple[Path, ...], markdown: bool, **wanted: Any) -> None:
    """Measure what recall finds, beside plain search.

    Conversations with questions go into a store of their own in a temporary folder, and every question begins a turn
    there. A folder is looked through for what can be used; what can not is named. Exit code 2 when nothing can.
    """
    from afterturn.lab.eval.report import as_markdown, as_text
    from afterturn.lab.eval.run import Wanted
    from afterturn.lab.eval.run import evaluate as run

    with progress("Asking") as told:
        found = run(datasets, Wanted(**wanted), told)
    if found.passed_over:
        names = ", ".join(path.name for path in found.passed_over)
        click.echo(f"Passed over, for nothing in them can be examined: {safe(names)}.", err=True)
    if invocation.json:
        print_document(found.results)
    else:
        click.echo(safe(as_markdown(found) if markdown else as_text(found)))
