"""A conversation's turns told to a person: what was asked, what came of it, and why the rest did not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from afterturn.base.turns import NoRecall, Outcome, Phase, TurnRow, TurnStatus, Why
from afterturn.hosts.cli.console import count, dim, one_line, print_pairs, print_told, styled
from afterturn.hosts.cli.times import age, local, local_clock
from afterturn.recall.reasons import occasion, place

if TYPE_CHECKING:
    from afterturn.recall.explain import Explained
    from afterturn.turn.explaining import Answer, Trace, TracedBlock, TracedRecall, TracedTurn

# Of what was left out, so many are told unless one turn is asked for, and so much of each.
_LEFT_OUT_TOLD = 5
_TEXT_CHARS = 160
_QUESTION_CHARS = 300
_NAME_CHARS = len("handed over")
_NO_RECALL = {
    NoRecall.OFF: "recall was off",
    NoRecall.NOTHING_TO_ASK: "there was nothing to ask",
    NoRecall.NOT_BEGUN: "none had begun when the turn was left",
    NoRecall.GONE: "its trace is gone by now",
    NoRecall.UNKNOWN: "there was nothing to ask, recall was off, or its trace is gone by now",
}


def print_trace(trace: Trace, *, whole: bool) -> None:
    """`whole`: with all that was left out."""
    click.echo(f"Conversation {one_line(trace.conversation)} of {trace.space}, {count(trace.turns_total, 'turn')}")
    for turn in trace.turns:
        click.echo()
        _print_turn(trace, turn, whole=whole)


def print_answers(memory: str, answers: Sequence[Answer]) -> None:
    for answer in answers:
        told = answer.explained
        came = "came" if told.why is Why.SHOWN else "did not come"
        asked = f'"{_shortened(answer.question, 80)}"'
        refined = ", as a model chose" if answer.phase == Phase.REFINED else ""
        click.echo(f"{memory} {came} to turn {answer.turn}, which asked {asked}{refined}: {one_line(told.reason)}.")
        if told.why is not Why.SCOPE:
            click.echo(dim(f"  {_scores(told)}"), color=True)


def _print_turn(trace: Trace, turn: TracedTurn, *, whole: bool) -> None:
    row = turn.turn
    click.echo(styled(f"Turn {turn.number}", "bold") + dim(f"  {_when(row)}, {_ended(row)}"), color=True)
    if turn.no_recall is not None:
        _print_pairs([("recalled", f"nothing: {_NO_RECALL[turn.no_recall]}")])
    for number, recall in enumerate(turn.recalls):
        if number:
            click.echo()
        _print_recall(trace, turn, recall, whole=whole)
    _print_pairs([*(("block", _block(block)) for block in turn.blocks), ("turn id", one_line(row.id))])


def _print_recall(trace: Trace, turn: TracedTurn, recall: TracedRecall, *, whole: bool) -> None:
    _print_pairs(_pairs(turn, recall))
    if recall.row.turn == turn.turn.id and recall.delivered_in not in (None, turn.number):
        return
    told = recall.left_out if whole else recall.left_out[:_LEFT_OUT_TOLD]
    _print_memories("came", [(one.ref, one_line(one.text), _scores(one)) for one in recall.shown])
    _print_memories("did not come", [(one.ref, _shortened(one.text), _left_out(one, whole=whole)) for one in told])
    more = len(recall.left_out) - len(told)
    if more:
        where = f"afterturn trace {one_line(trace.conversation)} --turn {turn.number}"
        click.echo(dim(f"  and {more} more that did not come: {where}"), color=True)


def _print_memories(title: str, memories: Sequence[tuple[str, str, str]]) -> None:
    if memories:
        click.echo(dim(f"{title}:"), color=True)
        print_told([(f"  {ref}", text, said) for ref, text, said in memories])


def _print_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """One below the other, with memories in between, they still stand in two columns."""
    print_pairs([(name.ljust(_NAME_CHARS), value) for name, value in pairs])


def _pairs(turn: TracedTurn, recall: TracedRecall) -> list[tuple[str, str]]:
    row = recall.row
    asked = f"{_shortened(row.question, _QUESTION_CHARS)} ({occasion(row.cause)}, {local_clock(row.asked_at)})"
    if row.phase is Phase.REFINED:
        pairs = [("chosen", "by a model, among what was found")]
    elif recall.turn not in (None, turn.number):
        pairs = [("carried", f"from turn {recall.turn}"), ("asked", asked)]
    else:
        pairs = [("asked", asked)]
    return [*pairs, ("settled", _settled(recall)), ("handed over", _handed_over(turn, recall))]


def _settled(recall: TracedRecall) -> str:
    row = recall.row
    if recall.milliseconds is None:
        return "never"
    missing = f", missing: {', '.join(row.missing)}" if row.missing else ""
    ahead = ", asked ahead while the user was typing" if row.settings.get("speculated") else ""
    return f"after {_milliseconds(recall.milliseconds)}{missing}{ahead}"


def _handed_over(turn: TracedTurn, recall: TracedRecall) -> str:
    row = recall.row
    if row.outcome is not Outcome.DELIVERED:
        return f"not: {recall.fate}"
    assert row.delivered_at is not None
    later = f"in turn {recall.delivered_in}, " if recall.delivered_in not in (None, turn.number) else ""
    return f"{later}{recall.fate}, {_milliseconds((row.delivered_at - row.asked_at) * 1000)} after it was asked"


def _milliseconds(value: float) -> str:
    return f"{value:.1f} ms" if value < 10_000 else f"{value / 1000:,.0f} s"


def _block(block: TracedBlock) -> str:
    size = f"{block.size_bytes:,} bytes" + (f", {block.tokens:,} tokens" if block.tokens is not None else "")
    holds = count(block.memories, "memory", "memories") if block.memories else "no memory that is left"
    if not block.memories and block.text:
        holds = "context files"
    carried = f", carried from turn {', '.join(map(str, block.carried_from))}" if block.carried_from else ""
    return f"{place(block.point)} at {local_clock(block.injected_at)}: {holds}, {size}{carried}"


def _left_out(one: Explained, *, whole: bool) -> str:
    score = _scores(one) if whole or one.score is None else f"score {one.score:.2f}"
    return f"{one.why}: {one_line(one.reason)} · {score}"


def _scores(one: Explained) -> str:
    matched = f" ({', '.join(one_line(term) for term in one.terms)})" if one.terms else ""
    parts = [
        "" if one.score is None else f"score {one.score:.2f}",
        "" if one.lexical is None else f"lexical {one.lexical:.2f}{matched}",
        "" if one.similarity is None else f"similarity {one.similarity:.2f}",
        str(one.lane),
    ]
    return " · ".join(part for part in parts if part)


def _when(row: TurnRow) -> str:
    return f"{local(row.started_at)} ({age(row.started_at)})"


def _ended(row: TurnRow) -> str:
    if row.status is TurnStatus.OPEN:
        return "still open"
    recorded = "recorded" if row.recorded_at is not None else "not recorded"
    return f"{row.status}, {recorded}"


def _shortened(text: str, most: int = _TEXT_CHARS) -> str:
    line = one_line(text[: 4 * most])
    return line if len(line) <= most else line[: most - 1] + "…"
