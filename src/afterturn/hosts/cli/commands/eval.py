"""`eval`: what recall finds and hands over, on conversations with questions about them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from afterturn.errors import ConfigError
from afterturn.hosts.cli.command import Invocation, command
from afterturn.hosts.cli.output import print_document, progress, safe

if TYPE_CHECKING:
    from afterturn.evaluation.answering import Asking
    from afterturn.evaluation.run import Evaluation

# A whole history takes a small model on a small machine minutes.
_ANSWER_WITHIN = 600.0
_NAMED_MAX = 10


@command(
    "eval",
    examples="""
    $ afterturn eval locomo.json.gz
    $ afterturn eval data/ --limit 20 --json
    $ afterturn eval locomo.json.gz --answer --model http://localhost:8080/v1 --limit 10
    """,
)
@click.argument("datasets", metavar="DATASET...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--embedder", metavar="NAME", help="Which vectors; default: the setting `embedder`.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Ask N questions of each conversation.")
@click.option("--alone", is_flag=True, help="Leave out BM25 and dense search: faster.")
@click.option("--misses", type=click.IntRange(min=0), default=0, metavar="N", help="Show N questions that were missed.")
@click.option("--markdown", is_flag=True, help="Print tables for a page.")
@click.option("--answer", is_flag=True, help="Have a model answer, and compare its replies.")
@click.option("--model", metavar="URL", help="An OpenAI-compatible server. Default: the setting `model_url`.")
@click.option("--model-name", metavar="NAME", help="The model behind it. Default: the setting `model`.")
@click.option("--judge", is_flag=True, help="Have the same model judge the replies too.")
@click.option(
    "--history-tokens",
    type=click.IntRange(min=1),
    default=32_000,
    show_default=True,
    metavar="N",
    help="How much of a whole history is given to the model.",
)
def evaluate(
    invocation: Invocation, *, datasets: tuple[Path, ...], markdown: bool, answer: bool, **options: Any
) -> None:
    """Measure what recall finds, beside plain search.

    Conversations with questions go into a store of their own in a temporary folder, and every question begins a turn
    there. A folder is looked through for what can be used; what can not is named. Exit code 2 when nothing can.

    With --answer, a model is asked each question four times: with no memory, with all that was said, with what BM25
    finds, and with what afterturn hands over.
    """
    from afterturn.evaluation import run
    from afterturn.evaluation.report import as_markdown, as_text
    from afterturn.evaluation.run import unwinding

    wanted = run.Wanted(options["embedder"], options["limit"], options["alone"], options["misses"])
    with unwinding(), progress("Asking") as told:
        if answer:
            found = run.answer(datasets, wanted, _asking(invocation, options), told)
        else:
            found = run.evaluate(datasets, wanted, told)
    _warn(found)
    if invocation.json:
        print_document(found.results)
    else:
        click.echo(safe(as_markdown(found) if markdown else as_text(found)))


def _asking(invocation: Invocation, options: dict[str, Any]) -> Asking:
    from afterturn.evaluation.answering import Asking
    from afterturn.models.chat import CHAT, OpenAICompatible

    config = invocation.config()
    url = options["model"] or config.model_url
    if not url:
        raise ConfigError("No model is named. Pass --model URL, such as http://localhost:8080/v1, or set model_url.")
    name = options["model_name"] or config.model or ""
    service = replace(
        CHAT,
        url="--model" if options["model"] else CHAT.url,
        model=CHAT.model if config.model and not options["model_name"] else "--model-name",
    )
    timeout = max(config.model_timeout, _ANSWER_WITHIN)
    model = OpenAICompatible(url, name, key=config.model_key, timeout=timeout, service=service)
    return Asking(model, options["judge"], options["history_tokens"])


def _warn(found: Evaluation) -> None:
    if found.passed_over:
        names = [path.name for path in found.passed_over[:_NAMED_MAX]]
        more = len(found.passed_over) - len(names)
        listed = ", ".join(names) + (f" and {more} more" if more else "")
        click.echo(f"Passed over, for nothing in them can be examined: {safe(listed)}.", err=True)
    for missing, count in found.faults.items():
        click.echo(f"{count} recalls had to do without {safe(missing)}: the figures may be too low.", err=True)
