"""Measures which changed values recall recognises, on pairs of sentences: an older and a newer one.

    python -m lab.changed_values [FILE.tsv] [--show]

A row has a language, 1 if the newer sentence changes what the older one says and 0 if it is about something else, and
the two sentences. `changed_values.tsv` was written before the code that it measures.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from afterturn.recall.what_holds import find_replaced
from afterturn.testing.entries import DAY, NOW, hit
from afterturn.types import Lane

PAIRS_PATH = Path(__file__).with_name("changed_values.tsv")


class ValuePair(NamedTuple):
    language: str
    is_change: bool
    older: str
    newer: str

    @property
    def is_found(self) -> bool:
        older = hit(self.older, id="r001", lane=Lane.EPISODIC, occurred_at=NOW - DAY).entry
        newer = hit(self.newer, id="r002", lane=Lane.EPISODIC, occurred_at=NOW).entry
        return older.ref in find_replaced([older, newer])


def read_pairs(path: Path = PAIRS_PATH) -> Iterator[ValuePair]:
    for row in path.read_text(encoding="utf-8").splitlines():
        language, is_change, older, newer = row.split("\t")
        yield ValuePair(language, is_change == "1", older, newer)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", nargs="?", type=Path, default=PAIRS_PATH)
    parser.add_argument("--show", action="store_true", help="print each pair that is judged wrongly")
    chosen = parser.parse_args()
    counts: Counter[tuple[str, bool, bool]] = Counter()
    for pair in read_pairs(chosen.pairs):
        is_found = pair.is_found
        for group in ("all", "English" if pair.language == "en" else "other languages"):
            counts[group, pair.is_change, is_found] += 1
        if chosen.show and is_found != pair.is_change:
            print(f"{'falsely found' if is_found else 'missed'}: {pair.older} | {pair.newer}")
    for group in ("English", "other languages", "all"):
        found, missed = counts[group, True, True], counts[group, True, False]
        false, right = counts[group, False, True], counts[group, False, False]
        print(f"{group}: found {found} of {found + missed}, falsely found {false} of {false + right}")


if __name__ == "__main__":
    main()
