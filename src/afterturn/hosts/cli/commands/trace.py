"""`trace`: the timeline of a space, or the turns of one conversation with the reason for each memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import click

from afterturn.conversation.trace import NOT_RECORDED
from afterturn.errors import NotFound
from afterturn.hosts.cli.changes import shortened
from afterturn.hosts.cli.command import Invocation, command
from afterturn.hosts.cli.output import (
    age,
    count,
    dim,
    local,
    local_clock,
    note,
    one_line,
    print_commented,
    print_pairs,
    print_table,
    styled,
)
from afterturn.recall.explain import CAUSES, describe_point, describe_score
from afterturn.types import Decision, Event, NoRecallReason, Outcome, Phase, Scalar, TurnRow, TurnStatus

if TYPE_CHECKING:
    from afterturn.conversation.trace import Trace, TraceAnswer, TracedBlock, TracedRecall, TracedRule, TracedTurn
    from afterturn.recall.explain import Explained


_EVENTS = 200
_TURNS = 10


@command("trace")
@click.argument("name", metavar="[CONVERSATION]", required=False)
@click.option("--turn", metavar="N|ID|last", help="Only this turn, with more of what was left out.")
@click.option("--all", "everything", is_flag=True, help="Show everything that was left out.")
@click.option("--memory", metavar="ID", help="Show why this memory was recalled in the turn, or was not.")
@click.option(
    "--look-in", metavar="SPACE", multiple=True, help="Another space in which to look for --memory; repeatable."
)
@click.option("--conversation", metavar="ID", help="Without CONVERSATION: only events of this conversation.")
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    help=f"How many of the newest turns (default {_TURNS}) or events (default {_EVENTS}) to show.",
)
def trace(
    invocation: Invocation,
    name: str | None,
    turn: str | None,
    memory: str | None,
    limit: int | None,
    *,
    everything: bool,
    **options: str | tuple[str, ...] | None,
) -> None:
    """Show what memory did, turn by turn."""
    conversation, look_in = options["conversation"], options["look_in"]
    if name is None:
        if turn is not None or memory is not None or look_in or everything:
            raise click.UsageError("--turn, --all, --memory and --look-in need a CONVERSATION.")
        _print_events(invocation, conversation if isinstance(conversation, str) else None, limit or _EVENTS)
    elif memory is not None:
        _print_why(invocation, name, memory, turn, tuple(look_in or ()))
    else:
        most = None if everything else _LEFT_OUT_SHOWN if turn is None else _LEFT_OUT_OF_A_TURN
        _print_turns(invocation, name, turn, limit or _TURNS, most)


def _print_turns(invocation: Invocation, name: str, turn: str | None, limit: int, most: int | None) -> None:
    with invocation.memory() as memory:
        found = memory.conversation(name, owner=invocation.space_name()).trace(turn, limit=limit)
    if invocation.print_json(found):
        return
    print_trace(found, most, is_one=turn is not None)
    if turn is None and len(found.turns) < found.turns_total:
        note(f"Earlier turns: afterturn trace {one_line(name)} --limit {found.turns_total}, or --turn N")


def _print_why(invocation: Invocation, name: str, wanted: str, turn: str | None, look_in: Sequence[str]) -> None:
    with invocation.memory() as memory:
        conversation = memory.conversation(name, owner=invocation.space_name())
        try:
            answers = conversation.why(wanted, turn=turn, look_in=look_in)
        except NotFound:
            note("To look in another space, add --look-in SPACE.")
            raise
    if not invocation.print_json({"memory": wanted, "answers": answers}):
        print_answers(wanted, answers)


def _print_events(invocation: Invocation, conversation: str | None, limit: int) -> None:
    with invocation.in_space() as space:
        events = space.trace(conversation=conversation, limit=limit)
    if invocation.print_rows(events, empty="There are no events yet."):
        return
    # One heading a turn, so that interleaved conversations are separate.
    for heading, some in groupby(events, _heading):
        click.echo(dim(heading), color=True)
        rows = [(local_clock(one.at), one.name.replace("_", " "), _details(one.data)) for one in some]
        print_table(("", "", ""), rows, last_wraps=True)
    note("Show one conversation turn by turn: afterturn trace CONVERSATION")


def _heading(event: Event) -> str:
    parts = [("conversation", event.conversation), ("turn", event.turn)]
    named = "  ".join(f"{name} {one_line(value)}" for name, value in parts if value)
    return f"{local(event.at)[:10]}  {named or event.space}"


def _details(data: Mapping[str, Scalar]) -> str:
    """Without empty values and correlation ids; --json has them all."""
    shown = [(key, value) for key, value in data.items() if value not in ("", None) and key != "correlation"]
    return " · ".join(one_line(_detail(key, value)) for key, value in shown)


def _detail(key: str, value: Scalar) -> str:
    name = key.replace("_", " ")
    if key == "milliseconds" and isinstance(value, float):
        return _milliseconds(value)
    if key.endswith("_at") and isinstance(value, float):
        return f"{name} {local(value)}"
    return f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"


# How many left-out memories are shown without --turn and with it, and how much of a question.
_LEFT_OUT_SHOWN = 5
_LEFT_OUT_OF_A_TURN = 10
_QUESTION_CHARS = 300
_NAME_CHARS = len("delivered")
_NO_RECALL = {
    NoRecallReason.OFF: "recall was off",
    NoRecallReason.NOTHING_TO_ASK: "there was nothing to ask",
    NoRecallReason.OVERLOAD: "more turns began than memory could serve",
    NoRecallReason.NOT_BEGUN: "the turn ended before one began",
    NoRecallReason.GONE: "its trace was removed since",
    NoRecallReason.UNKNOWN: "there was nothing to ask, recall was off, or its trace was removed since",
}


def print_trace(trace: Trace, most: int | None, *, is_one: bool) -> None:
    """At most `most` memories that were left out of each turn, with all scores if `is_one`."""
    click.echo(f"Conversation {one_line(trace.conversation)} of {trace.space}, {count(trace.turns_total, 'turn')}")
    for turn in trace.turns:
        click.echo()
        _print_turn(trace, turn, most, is_one=is_one)


def print_answers(memory: str, answers: Sequence[TraceAnswer]) -> None:
    for answer in answers:
        found = answer.explained
        included = "was included" if found.why is Decision.SHOWN else "was not included"
        asked = f'"{shortened(answer.question, 80)}"' if answer.question else "something incognito"
        refined = ", after a model chose" if answer.phase == Phase.REFINED else ""
        click.echo(
            f"{memory} {included} in turn {answer.turn}, which asked {asked}{refined}: {one_line(found.reason)}."
        )
        if found.why is not Decision.SCOPE:
            click.echo(dim(f"  {_scores(found)}"), color=True)


def _print_turn(trace: Trace, turn: TracedTurn, most: int | None, *, is_one: bool) -> None:
    row = turn.turn
    click.echo(
        styled(f"Turn {turn.number}", "bold")
        + dim(f"  {local(row.started_at)} ({age(row.started_at)}), {_ended(row)}"),
        color=True,
    )
    if turn.not_recorded:
        _print_pairs([("recorded", f"no: {one_line(NOT_RECORDED.get(turn.not_recorded, turn.not_recorded))}")])
    if turn.no_recall is not None:
        _print_pairs([("recalled", f"nothing: {_NO_RECALL[turn.no_recall]}")])
    for number, recall in enumerate(turn.recalls):
        if number:
            click.echo()
        _print_recall(trace, turn, recall, most, is_one=is_one)
    rules = [("refused" if rule.refused else "rule", _rule(rule)) for rule in turn.rules]
    _print_pairs([*(("block", _block(block)) for block in turn.blocks), *rules, ("turn id", one_line(row.id))])


def _print_recall(trace: Trace, turn: TracedTurn, recall: TracedRecall, most: int | None, *, is_one: bool) -> None:
    _print_pairs(_pairs(turn, recall))
    if recall.row.turn == turn.turn.id and recall.delivered_in not in (None, turn.number):
        return
    # Entries that matched too little matter least.
    found = sorted(recall.left_out, key=lambda one: one.why is Decision.FLOOR)[:most]
    _print_memories("included", [(one.ref, one_line(one.text), _scores(one)) for one in recall.shown])
    left_out = []
    for one in found:
        score = _scores(one) if is_one or one.score is None else describe_score(one.score, one.score_kind)
        left_out.append((one.ref, shortened(one.text), f"{one.why}: {one_line(one.reason)} · {score}"))
    _print_memories("not included", left_out)
    more = len(recall.left_out) - len(found)
    if more:
        where = f"afterturn trace {one_line(trace.conversation)} --turn {turn.number}{' --all' if is_one else ''}"
        click.echo(dim(f"  and {more} more that were not included: {where}"), color=True)


def _print_memories(title: str, memories: Sequence[tuple[str, str, str]]) -> None:
    if memories:
        click.echo(dim(f"{title}:"), color=True)
        print_commented([(f"  {ref}", text, said) for ref, text, said in memories])


def _print_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Aligned with other pairs, though memories are printed in between."""
    print_pairs([(name.ljust(_NAME_CHARS), value) for name, value in pairs])


def _pairs(turn: TracedTurn, recall: TracedRecall) -> list[tuple[str, str]]:
    row = recall.row
    question = "incognito" if row.settings.get("incognito") else shortened(row.question, _QUESTION_CHARS)
    asked = f"{question} ({CAUSES[row.cause]}, {local_clock(row.asked_at)})"
    if row.phase is Phase.REFINED:
        pairs = [("chosen", "by a model, from what was found")]
        if row.settings.get("refined") == "only":
            pairs = [("asked", asked), *pairs]
    elif recall.turn not in (None, turn.number):
        pairs = [("carried", f"from turn {recall.turn}"), ("asked", asked)]
    else:
        pairs = [("asked", asked)]
    took, delivered = "it never finished", f"no: {recall.fate}"
    if recall.milliseconds is not None:
        missing = f", missing: {', '.join(row.missing)}" if row.missing else ""
        ahead = ", started while the user was typing" if row.settings.get("speculated") else ""
        took = f"{_milliseconds(recall.milliseconds)}{missing}{ahead}"
    if row.outcome is Outcome.DELIVERED:
        assert row.delivered_at is not None
        later = f"in turn {recall.delivered_in}, " if recall.delivered_in not in (None, turn.number) else ""
        after = _milliseconds((row.delivered_at - row.asked_at) * 1000)
        delivered = f"{later}{recall.fate}, {after} after the question"
    return [*pairs, ("took", took), ("delivered", delivered)]


def _milliseconds(value: float) -> str:
    return f"{value:.1f} ms" if value < 10_000 else f"{value / 1000:,.0f} s"


def _block(block: TracedBlock) -> str:
    size = f"{block.size_bytes:,} bytes" + (f", {block.tokens:,} tokens" if block.tokens is not None else "")
    holds = count(block.memories, "memory", "memories") if block.memories else "no remaining memory"
    if not block.memories and block.text:
        holds = "context files"
    carried = f", carried from turn {', '.join(map(str, block.carried_from))}" if block.carried_from else ""
    return f"{describe_point(block.point)} at {local_clock(block.injected_at)}: {holds}, {size}{carried}"


def _rule(rule: TracedRule) -> str:
    return f"{one_line(rule.rule)} (before {one_line(rule.tool)}: {one_line(rule.why)}; {rule.ref})"


def _scores(one: Explained) -> str:
    matched = f" ({', '.join(one_line(term) for term in one.terms)})" if one.terms else ""
    parts = [
        "" if one.score is None else describe_score(one.score, one.score_kind),
        "" if one.lexical is None else f"lexical {one.lexical:.2f}{matched}",
        "" if one.similarity is None else f"similarity {one.similarity:.2f}",
        str(one.lane),
    ]
    return " · ".join(part for part in parts if part)


def _ended(row: TurnRow) -> str:
    if row.status is TurnStatus.OPEN:
        return "still open, incognito" if row.incognito else "still open"
    recorded = "recorded" if row.recorded_at is not None else "not recorded"
    return f"{row.status}, {recorded}{', incognito' if row.incognito else ''}"
