"""`eval`: measures what recall finds and delivers, on conversations with questions about them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from afterturn.errors import ConfigError
from afterturn.hosts.cli.command import F, Invocation, command
from afterturn.hosts.cli.output import count, progress, safe

if TYPE_CHECKING:
    from afterturn.evaluation.answering import Asking
    from afterturn.evaluation.run import Evaluation

# A whole history takes a small model on a small machine minutes.
_ANSWER_WITHIN = 600.0
_NAMED_MAX = 10


def _number(flag: str, least: int, **settings: Any) -> Callable[[F], F]:
    return click.option(flag, type=click.IntRange(min=least), metavar="N", **settings)


@command("eval")
@click.argument("datasets", metavar="DATASET...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--embedder", metavar="NAME", help="The embedder to use. Default: the setting `embedder`.")
@_number("--limit", 1, help="Ask only N questions per conversation.")
@click.option("--alone", is_flag=True, help="Do not run the two baselines (BM25 and vectors). Faster.")
@_number(
    "--misses",
    0,
    default=0,
    help="Show N questions whose evidence was not delivered, or N faults of everyday files, and the reasons.",
)
@click.option(
    "--host",
    type=click.Choice(["inject", "standing"]),
    default="inject",
    show_default=True,
    help="A host that calls `inject` only, or that puts the standing block into its system prompt too.",
)
@_number("--filler", 0, help="Add N pieces of small talk to each life. Default: none, or 150 for preferences.")
@click.option("--long", is_flag=True, help="Everyday files: the assistant answered with several paragraphs.")
@click.option("--half", is_flag=True, help="Everyday files: score every second question.")
@click.option("--lived", is_flag=True, help="As --half, and the others were asked and recorded twice before.")
@click.option("--user", metavar="NAME", help="Everyday files: examine only this person.")
@click.option(
    "--selector",
    type=click.Choice(["perfect"]),
    help="Everyday files: refine with a model that knows the answers. An upper bound.",
)
@_number("--people", 1, default=8, show_default=True, help="Preferences: how many people state them.")
@click.option("--markdown", is_flag=True, help="Print Markdown tables.")
@click.option("--answer", is_flag=True, help="Let a model answer the questions, and compare its replies.")
@click.option("--model", metavar="URL", help="An OpenAI-compatible server. Default: the setting `model_url`.")
@click.option("--model-name", metavar="NAME", help="The name of the model there. Default: the setting `model`.")
@click.option("--judge", is_flag=True, help="Let the same model judge the replies too.")
@_number(
    "--history-tokens", 1, default=32000, show_default=True, help="How many tokens of the whole history the model gets."
)
def evaluate(
    invocation: Invocation, *, datasets: tuple[Path, ...], markdown: bool, answer: bool, **options: Any
) -> None:
    """Measure what recall finds, compared with plain search."""
    from afterturn.evaluation import run
    from afterturn.evaluation.everyday import EvalOptions
    from afterturn.evaluation.report import as_markdown, as_text
    from afterturn.evaluation.run import end_on_sigterm

    wanted = EvalOptions(**{one.name: options[one.name] for one in fields(EvalOptions)})
    with end_on_sigterm(), progress("Asking") as report:
        if answer:
            found = run.answer(datasets, wanted, _asking(invocation, options), report)
        else:
            found = run.evaluate(datasets, wanted, report)
    _warn(found)
    invocation.answer(found.results, safe(as_markdown(found) if markdown else as_text(found)))


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
    model = OpenAICompatible(url, name, key=config.model_key, timeout=_ANSWER_WITHIN, service=service)
    return Asking(model, options["judge"], options["history_tokens"])


def _warn(found: Evaluation) -> None:
    if found.skipped:
        names = [path.name for path in found.skipped[:_NAMED_MAX]]
        more = len(found.skipped) - len(names)
        listed = ", ".join(names) + (f" and {more} more" if more else "")
        click.echo(f"Not used, because they contain nothing that can be measured: {safe(listed)}.", err=True)
    for missing, number in found.faults.items():
        recalls = count(number, "recall was", "recalls were")
        click.echo(f"{recalls} incomplete ({safe(missing)}), so the figures may be too low.", err=True)
