"""`search`: searches as a turn would, and shows why each hit was found."""

from dataclasses import replace
from typing import Any

import click

from afterturn.hosts.cli.command import Invocation, command
from afterturn.hosts.cli.options import as_filter, filter_options, range_options, read_text, time_option, time_range
from afterturn.hosts.cli.output import age, dim, note, one_line, status
from afterturn.recall.block import describe_author
from afterturn.recall.scoring import SEARCH_SCORE_MIN, above_floor
from afterturn.types import Hit, Lane, SearchResults
from afterturn.validation import check_id

_WAIT = 5.0


@command("search")
@click.argument("words", metavar="QUERY...|-", nargs=-1, required=True)
@click.option("--limit", type=click.IntRange(1, 200), default=10, show_default=True, help="How many to show at most.")
@click.option(
    "--lane",
    "lanes",
    type=click.Choice([str(lane) for lane in Lane]),
    multiple=True,
    help="Only this lane; repeatable. short_term needs --conversation.",
)
@click.option(
    "--conversation", metavar="ID", help="Search from this conversation: its messages are the lane short_term."
)
@time_option("--as-of", help="Search what was known at this time.")
@click.option(
    "--floor",
    type=click.FloatRange(0, 1),
    default=SEARCH_SCORE_MIN,
    show_default=True,
    help="Show nothing if the best score is lower; 0 shows everything.",
)
@range_options
@click.option("--exclude", metavar="ID", multiple=True, help="Leave this memory out; repeatable.")
@filter_options
def search(
    invocation: Invocation,
    words: tuple[str, ...],
    limit: int,
    lanes: tuple[str, ...],
    as_of: float | None,
    **options: Any,
) -> None:
    """Find relevant memories, best first, and show why."""
    text, name = read_text(" ".join(words)), invocation.space_name()
    since, until = time_range(options)
    with invocation.memory(vectors=as_of is None) as memory:
        # New memories have no vector yet; five seconds are enough for about ten thousand.
        with status("Making vectors of new memories"):
            if as_of is None and memory.ready(within=_WAIT):
                memory.drain(within=_WAIT)
        ranked = memory.space(name).search(
            text,
            limit=limit,
            lanes=tuple(Lane(lane) for lane in lanes) or None,
            conversation=options["conversation"],
            as_of=as_of,
            filter=as_filter(options, since=since, until=until),
            exclude=[check_id(id) for id in options["exclude"]],
            score_min=0.0,
        )
    floor = options["floor"]
    found = replace(ranked, hits=tuple(above_floor(ranked.hits, floor)))
    if invocation.print_json(found):
        return
    _print(found)
    if found.missing and as_of is None:
        note("`afterturn doctor` shows why.")
    if ranked.hits and not found.hits:
        nearest = ranked.hits[0]
        best = f"Nothing reaches the minimum score of {floor:.2f}. The best has {nearest.score:.2f}"
        click.echo(dim(f"{best}: {one_line(nearest.entry.text)}"), color=True)


def _print(found: SearchResults) -> None:
    for hit in found.hits:
        click.echo(f"{hit.entry.id}  {one_line(hit.entry.text)}")
        click.echo(dim(f"{'':{len(hit.entry.id)}}  {explain(hit)}"), color=True)
    if not found.hits:
        click.echo("Nothing found.")
    if found.missing:
        click.echo(dim(f"Searched without: {', '.join(found.missing)}."), color=True)


def explain(hit: Hit) -> str:
    """One line: the score and its parts, the lane, the age and the author."""
    matched = f" ({', '.join(one_line(term) for term in hit.terms)})" if hit.terms else ""
    similarity = "none" if hit.similarity is None else f"{hit.similarity:.2f}"
    parts = (
        f"score {hit.score:.2f}",
        f"lexical {hit.lexical:.2f}{matched}",
        f"similarity {similarity}",
        str(hit.lane),
        age(hit.entry.occurred_at),
        f"from {one_line(describe_author(hit.entry))}",
    )
    return " · ".join(parts)
