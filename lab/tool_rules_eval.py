"""Measures which standing rules are found for tool calls, beside plain word overlap: `make eval-tool-rules`."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from afterturn.text import STOP_WORDS, words
from afterturn.tool_rules.calls import read_call
from afterturn.tool_rules.triggers import find_trigger

CASES = Path(__file__).resolve().parent.parent / "tests" / "conversation" / "tool_rules.json"
# The share of a rule's words that must be in the call. Of the tenths, the one with the best F1 on the development half.
OVERLAP_MIN = 0.3
Finder = Callable[[str, str, Mapping[str, Any]], bool]


@dataclass(frozen=True, slots=True)
class Figures:
    """`harmless` are calls that no rule concerns; `touched` are those of them that were given a rule."""

    right: int
    wrong: int
    missed: int
    harmless: int
    touched: int
    milliseconds: float
    faults: tuple[str, ...]

    @property
    def precision(self) -> float:
        return self.right / max(1, self.right + self.wrong)

    @property
    def recall(self) -> float:
        return self.right / max(1, self.right + self.missed)


def by_matcher(rule: str, tool: str, arguments: Mapping[str, Any]) -> bool:
    return find_trigger(rule, read_call(tool, arguments)) is not None


def by_overlap(rule: str, tool: str, arguments: Mapping[str, Any]) -> bool:
    wanted = {word.lower() for word in words(rule)} - STOP_WORDS
    said = {word.lower() for word in words(f"{tool} {json.dumps(arguments)}")}
    return bool(wanted) and len(wanted & said) >= OVERLAP_MIN * len(wanted)


def measure(half: Mapping[str, Any], finds: Finder) -> Figures:
    right = wrong = missed = harmless = touched = 0
    faults = []
    started = time.perf_counter()
    for call in half["calls"]:
        labelled = set(call["rules"])
        found = {name for name, rule in half["rules"].items() if finds(rule, call["tool"], call["arguments"])}
        right, wrong, missed = (
            right + len(found & labelled),
            wrong + len(found - labelled),
            missed + len(labelled - found),
        )
        harmless += not labelled
        touched += not labelled and bool(found)
        if found != labelled:
            called = f"{call['tool']} {json.dumps(call['arguments'])}"
            faults.append(f"{called}: wrong {sorted(found - labelled)}, missed {sorted(labelled - found)}")
    milliseconds = (time.perf_counter() - started) * 1000 / len(half["calls"])
    return Figures(right, wrong, missed, harmless, touched, milliseconds, tuple(faults))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", nargs="?", type=Path, default=CASES, help="labelled rules and calls, as JSON")
    parser.add_argument("--show", action="store_true", help="print each call with a wrong or missed rule")
    given = parser.parse_args()
    cases = json.loads(given.file.read_text(encoding="utf-8"))
    print(f"{'half':<12} {'method':<13} {'precision':>9} {'recall':>7} {'harmless touched':>17} {'ms a call':>10}")
    for half in ("development", "held_out"):
        for name, finds in (("rules", by_matcher), ("word overlap", by_overlap)):
            found = measure(cases[half], finds)
            touched = f"{found.touched} of {found.harmless}"
            print(
                f"{half:<12} {name:<13} {found.precision:>8.1%} {found.recall:>7.1%} {touched:>17} "
                f"{found.milliseconds:>10.2f}"
            )
            if given.show and finds is by_matcher:
                print(*(f"  {fault}" for fault in found.faults), sep="\n")


if __name__ == "__main__":
    main()
