"""Measure everyday conversations and print the tables of docs/evaluation.md as Markdown; `--page` writes them there.

It evaluates the file three times: as it is and again after small talk; after every question was asked twice before; and
with a perfect selector.
"""

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from afterturn.evaluation.everyday import CROWDED, EverydayMiss, WantedLine
from afterturn.evaluation.run import EvalOptions, evaluate
from afterturn.types import Decision

PAGE = Path(__file__).resolve().parent.parent / "docs" / "evaluation.md"
BEGIN, END = "<!-- everyday tables: begin -->", "<!-- everyday tables: end -->"
OURS, LIVED, PERFECT = "afterturn", "afterturn, lived in", "afterturn, perfect selector (upper bound)"
ALL_MISSES = 1_000_000
SMALL_TALK = 10
NOT_A_CANDIDATE = "not a candidate"
REASONS = {
    Decision.FLOOR: "below the minimum score",
    Decision.BUDGET: "no room in the block",
    Decision.RESTATED: "taken for a repetition",
    Decision.SHOWN: "shown without these words",
}

Figures = Mapping[str, Any]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="an everyday file")
    parser.add_argument("--page", action="store_true", help="also replace the tables of docs/evaluation.md")
    parser.add_argument("--embedder", help="the embedder to use; default: the setting")
    options = parser.parse_args(arguments)
    tables = "\n".join(measure(options.file, options.embedder))
    print(tables)
    if options.page:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        PAGE.write_text(f"{before}{BEGIN}\n{tables}\n{END}{after}", encoding="utf-8")


def measure(file: Path, embedder: str | None) -> Iterator[str]:
    (plain,) = evaluate([file], EvalOptions(embedder, misses=ALL_MISSES, small_talk=SMALL_TALK)).results.values()
    (lived,) = evaluate([file], EvalOptions(embedder, alone=True, lived=True)).results.values()
    (perfect,) = evaluate([file], EvalOptions(embedder, alone=True, selector="perfect")).results.values()
    systems = {
        OURS: plain["afterturn"],
        LIVED: lived["afterturn"],
        PERFECT: perfect["afterturn"],
        "BM25, ten lines": plain["bm25"],
        "ten random lines": plain["random"],
    }
    yield from overview(systems)
    yield ""
    yield from shares(plain["afterturn"])
    yield small_talk(plain[CROWDED]["small_talk"])
    yield ""
    yield "Right answers by kind of question and by language:"
    yield ""
    yield from parts(systems)
    yield ""
    yield "Where the missing lines of afterturn were:"
    yield ""
    yield from losses(plain["afterturn"]["missed"])


def overview(systems: Mapping[str, Figures]) -> Iterator[str]:
    titles = ("right", "right first", "an outdated line leads", "useful lines", "silent when it should be")
    yield from row("system", *titles, "lines", "tokens", "standing lines")
    for name, found in systems.items():
        yield from row(
            name,
            f"{found['right']}/{found['n']} ({100 * found['right'] / found['n']:.0f} %)",
            f"{found['first']} ({100 * found['first'] / found['n']:.0f} %)",
            f"{found['outdated_leads']}/{found['outdated_asked']}",
            f"{100 * (found['useful_share'] or 0):.1f} %",
            f"{found['silent']}/{found['silent_asked']}",
            f"{found['block_lines'] or 0:.1f}",
            f"{found['block_tokens'] or 0:.0f}",
            f"{found['standing_lines']:.1f}",
        )


def shares(found: Figures) -> Iterator[str]:
    """The share of right answers with its interval, and how far it is above BM25."""
    if "intervals" in found:
        low, high = found["intervals"]["right"]
        more = found["margins"]["bm25"]
        least, most = more["intervals"]["right"]
        yield f"95 % of the share of right answers, over people: {low:.2f} to {high:.2f}. It is above BM25's by"
        yield f"{more['right']:.2f} ({least:.2f} to {most:.2f})."


def small_talk(counts: Mapping[str, int]) -> str:
    lines = f"{counts['lost_lines']} of {counts['right_lines']} right lines"
    answers = f"{counts['lost_answers']} of {counts['right']} right answers"
    added = f"{counts['messages']} messages of small talk, {SMALL_TALK} times as many as before"
    return f"After {added}, {lines} and {answers} are lost."


def parts(systems: Mapping[str, Figures]) -> Iterator[str]:
    yield from row("questions", "n", *systems)
    for by in ("categories", "languages"):
        for name, found in systems[OURS][by].items():
            yield from row(name, str(found["n"]), *(str(one[by][name]["right"]) for one in systems.values()))


def losses(misses: Sequence[EverydayMiss]) -> Iterator[str]:
    """For each pattern that no line matched: what happened to the best of the memories that it matches."""
    counts: dict[str, Counter[str]] = {}
    for miss in misses:
        for wanted in miss.wanted.values() if miss.fault == "not right" else ():
            counts.setdefault(miss.category, Counter())[reason_of(wanted)] += 1
    reasons = sorted({reason for found in counts.values() for reason in found})
    yield from row("questions", *reasons)
    for kind in sorted(counts):
        yield from row(kind, *(str(counts[kind][reason]) for reason in reasons))
    yield from row("all", *(str(sum(found[reason] for found in counts.values())) for reason in reasons))


def reason_of(wanted: Sequence[WantedLine]) -> str:
    if not wanted:
        return "nothing recorded matches"
    best = min(wanted, key=lambda one: (one.place is None, one.place or 0))
    if best.why is None:
        return "no recall"
    return NOT_A_CANDIDATE if best.place is None else REASONS.get(best.why, best.why.replace("_", " "))


def row(first: str, *cells: str) -> Iterator[str]:
    """A row of a Markdown table; after the titles also the line below them."""
    yield f"| {' | '.join((first, *cells))} |"
    if first in ("system", "questions"):
        yield "|".join(("", "---", *["---:"] * len(cells), ""))


if __name__ == "__main__":
    main()
