"""`eval-rules`: how well the rule-based reviewer learns."""

from __future__ import annotations

from pathlib import Path

import click

from afterturn.hosts.cli.command import command
from afterturn.hosts.cli.console import safe
from afterturn.hosts.cli.document import print_document
from afterturn.hosts.cli.invocation import Invocation


@command(
    "eval-rules",
    examples="""
    $ afterturn eval-rules tests/learn/rule_cases/said.jsonl
    $ afterturn eval-rules locomo.json.gz orders.jsonl --show 10
    """,
)
@click.argument(
    "files", metavar="FILE...", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option("--show", type=click.IntRange(min=0), default=0, metavar="N", help="Show N of what was found or missed.")
def evaluate_rules(invocation: Invocation, *, files: tuple[Path, ...], show: int) -> None:
    """Measure what the rule-based reviewer learns.

    Of messages that say what they teach, precision and recall, for the half that rules were written by and for the half
    that is held out. Of conversations and utterances, how often it would write. Nothing is stored.
    """
    from afterturn.lab.eval.rules import measure
    from afterturn.lab.eval.rules_report import as_text

    measured = measure(files)
    if invocation.json:
        print_document(measured.figures())
    else:
        click.echo(safe(as_text(measured, shown=show)))
