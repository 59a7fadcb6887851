"""Measure everyday conversations and print the tables of docs/evaluation.md as Markdown; `--page` writes them there.

It evaluates the file as it is, with much small talk, with long answers, after every second question was asked before,
for a host that has the standing block in its system prompt, and with a perfect selector.
"""

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from afterturn.evaluation.everyday import EvalOptions, EverydayMiss, WantedLine
from afterturn.evaluation.run import evaluate
from afterturn.types import Decision

PAGE = Path(__file__).resolve().parent.parent / "docs" / "evaluation.md"
BEGIN, END = "<!-- everyday tables: begin -->", "<!-- everyday tables: end -->"
OURS, PERFECT = "afterturn", "afterturn, perfect selector (upper bound)"
ALL_MISSES = 1_000_000
FILLER = 400
# For the preferences.
PEOPLE, SMALL_TALK = 8, 150
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
    parser.add_argument("--preferences", type=Path, help="a preferences file, for one more table")
    parser.add_argument("--filler", type=int, default=FILLER, help="how many pieces of small talk; default: 400")
    options = parser.parse_args(arguments)
    tables = "\n".join(measure(options.file, options.embedder, options.filler))
    if options.preferences is not None:
        tables += "\n\n" + "\n".join(preferences(options.preferences, options.embedder))
    print(tables)
    if options.page:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        PAGE.write_text(f"{before}{BEGIN}\n{tables}\n{END}{after}", encoding="utf-8")


def measure(file: Path, embedder: str | None, filler: int) -> Iterator[str]:
    def run(**wanted: Any) -> Mapping[str, Figures]:
        (found,) = evaluate([file], EvalOptions(embedder, **wanted)).results.values()
        return found

    plain, crowded, talk = run(misses=ALL_MISSES), run(filler=filler), f"{filler} pieces of small talk"
    systems = {
        OURS: plain[OURS],
        f"afterturn, {talk}": crowded[OURS],
        "afterturn, long answers": run(alone=True, long=True)[OURS],
        "afterturn, standing block in the system prompt": run(alone=True, host="standing")[OURS],
        "afterturn, every second question": run(alone=True, half=True)[OURS],
        "afterturn, the same, the others asked twice before": run(alone=True, lived=True)[OURS],
        PERFECT: run(alone=True, selector="perfect")[OURS],
        "BM25, ten lines": plain["bm25"],
        f"BM25, ten lines, {talk}": crowded["bm25"],
        "the newest messages": plain["dump"],
        f"the newest messages, {talk}": crowded["dump"],
    }
    yield from overview(systems)
    yield ""
    yield from shares(plain[OURS])
    yield ""
    yield "Answers by kind of question and by language:"
    yield ""
    whole = {name: found for name, found in systems.items() if found["n"] == plain[OURS]["n"]}
    yield from parts(whole)
    yield ""
    yield "Where the missing lines of afterturn were:"
    yield ""
    yield from losses(plain[OURS]["missed"])


def overview(systems: Mapping[str, Figures]) -> Iterator[str]:
    titles = ("answerable", "stale", "outdated stands", "useful lines", "tokens", "silent", "no shared word")
    yield from row("system", *titles, "shared word", "right first", "standing tokens")
    for name, found in systems.items():
        asked = max(1, found["answerable_asked"])
        yield from row(
            name,
            f"{found['answerable']}/{found['answerable_asked']} ({100 * found['answerable'] / asked:.0f} %)",
            f"{found['stale']}/{found['stale_asked']}",
            f"{found['outdated_stands']}/{found['stale_asked']}",
            f"{100 * (found['useful_share'] or 0):.1f} %",
            f"{found['block_tokens'] or 0:.0f}",
            f"{found['silent']}/{found['silent_asked']}",
            f"{found['no_word']}/{found['no_word_asked']}",
            f"{found['word']}/{found['word_asked']}",
            f"{found['first']}/{found['n']}",
            f"{found['standing_tokens']:.0f}",
        )


def shares(found: Figures) -> Iterator[str]:
    """The share of answered questions with its interval, and how far it is above BM25."""
    if "intervals" in found:
        low, high = found["intervals"]["answerable"]
        more = found["margins"]["bm25"]
        least, most = more["intervals"]["answerable"]
        yield f"95 % of the share of answerable questions, over people: {low:.2f} to {high:.2f}. It is above BM25's by"
        yield f"{more['answerable']:.2f} ({least:.2f} to {most:.2f})."


def preferences(file: Path, embedder: str | None) -> Iterator[str]:
    (systems,) = evaluate([file], EvalOptions(embedder, filler=SMALL_TALK, people=PEOPLE)).results.values()
    yield "A preference that was stated once, and a task that needs it:"
    yield ""
    yield from row("system", "reached", "in the block", "in standing lines", "lines", "tokens", "standing tokens")
    for name, found in systems.items():
        percents = [f"{100 * found[figure]:.0f} %" for figure in ("reached", "in_block", "in_standing")]
        sizes = [f"{found['block_lines']:.1f}", f"{found['block_tokens']:.0f}", f"{found['standing_tokens']:.0f}"]
        yield from row(name, *percents, *sizes)


def parts(systems: Mapping[str, Figures]) -> Iterator[str]:
    yield from row("questions", "n", *systems)
    for by in ("categories", "languages"):
        for name, found in systems[OURS][by].items():
            if found["answerable_asked"]:
                counts = [str(one[by][name]["answerable"]) for one in systems.values()]
                yield from row(name, str(found["answerable_asked"]), *counts)


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
