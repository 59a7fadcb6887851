"""Judges the standing lines of the invented lives in `lab/lives`, with the default settings.

    python -m lab.standing_lines               each life is told to a new memory; then its standing block is read
    python -m lab.standing_lines --show adela  only some people, with their lines and labels

A line is right if its sentence is labelled as lasting and nothing said later made it untrue, or if it also has the
sentence that did. A third of the facts of these lives change.
"""

from __future__ import annotations

import argparse
import asyncio
import re
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory

import afterturn
from afterturn.lasting_facts import FactKind
from afterturn.testing import ManualClock
from lab.lives import Life, LifeSentence, read_lives

DAY = 86_400.0
_MATCHED_CHARS = 40


async def standing_lines(life: Life, path: Path) -> list[str]:
    """Tells a life to a new memory, a conversation for each day, and returns the lines that stand two days later."""
    clock = ManualClock(life.sentences[0].said_at)
    async with afterturn.open(path, components=afterturn.Components(clock=clock)) as memory:
        await memory.ready()
        for day, of_day in groupby(life.sentences, key=lambda one: one.said_at // DAY):
            conversation, messages = memory.conversation(f"day {day}", user=life.name), []
            for _, sentences in groupby(of_day, key=lambda one: one.message):
                said = list(sentences)
                clock.advance(max(0.0, said[0].said_at - clock.now()))
                messages.append({"role": "user", "content": " ".join(one.text for one in said)})
                async with conversation.turn(messages) as turn:
                    messages.append({"role": "assistant", "content": "Noted."})
                if not await turn.wait_recorded(within=60):
                    raise RuntimeError(f"a turn of {life.name} was not recorded")
        if not await memory.drain(within=120):
            raise RuntimeError(f"jobs of {life.name} are left")
        clock.advance(2 * DAY)
        block = await memory.conversation("later", user=life.name).standing().block() or ""
    return [line[2:] for line in block.splitlines() if line.startswith("- ")]


def judge(life: Life, line: str) -> str:
    """Right, outdated, passing, or unknown if it is not a sentence of this life."""
    changed = {name for sentence in life.sentences for name in sentence.changes}
    found = [sentence for sentence in life.sentences if _is_in(sentence, line)]
    if not found:
        return "unknown"
    labelled = [one for one in found if one.name or one.kind is not FactKind.PASSING]
    if not labelled:
        return "passing"
    # A line may have the sentence that changed it: "I have a Polo (later, 2026-03-01: sold the Polo)".
    said = {name for sentence in life.sentences if _words(sentence.text) in _words(line) for name in sentence.changes}
    return "outdated" if all(one.name in changed - said for one in labelled) else "right"


def _is_in(sentence: LifeSentence, line: str) -> bool:
    # Dates that were added to relative times are in parentheses.
    shown, said = _words(re.sub(r"\((?:later, .*|[^()]*\d[^()]*)\)", "", line)), _words(sentence.text)
    return bool(said) and (said[:_MATCHED_CHARS] in shown or shown[:_MATCHED_CHARS] in said)


def _words(text: str) -> str:
    return re.sub(r"\W+", " ", text.casefold()).strip()


async def run(lives: Sequence[Life], shown: Sequence[str]) -> Counter[str]:
    total: Counter[str] = Counter()
    with TemporaryDirectory() as folder:
        for life in lives:
            for line in await standing_lines(life, Path(folder) / f"{life.name}.db"):
                label = judge(life, line)
                total[label] += 1
                if life.name in shown:
                    print(f"{label:9} {line}")
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--show", nargs="+", default=[], metavar="NAME", help="print the lines of these people only")
    chosen = parser.parse_args()
    lives = [life for life in read_lives() if not chosen.show or life.name in chosen.show]
    if not lives:
        parser.error(f"nobody is called {' or '.join(chosen.show)}; the files of lab/lives have the names")
    total = asyncio.run(run(lives, chosen.show))
    lines = total.total()
    print(f"{lines} lines of {len(lives)} lives: " + ", ".join(f"{name} {total[name] / lines:.0%}" for name in total))


if __name__ == "__main__":
    main()
