"""Writes docs/benchmarks.md anew: `tools/benchmarks.py [--text FILE] [PART ...]` measures and replaces those sections.

Others stay as they are. A full run of all takes most of an hour; the page changes when every part has printed.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE = DOCS / "benchmarks.md"
# The page opens with the store's figures; the others are sections behind them.
PARTS = {"store": "", "turn": "## Turns", "recall": "## Recall", "review": "## Reviews"}


def sections_of(page: str) -> dict[str, str]:
    """By part. What has no section is not there."""
    headings = {heading: part for part, heading in PARTS.items() if heading}
    found: dict[str, list[str]] = {"store": []}
    part = "store"
    for line in page.splitlines():
        part = headings.get(line, part)
        found.setdefault(part, []).append(line)
    return {name: text for name, lines in found.items() if (text := "\n".join(lines).strip())}


def page_of(sections: dict[str, str]) -> str:
    return "\n\n".join(sections[part] for part in PARTS if part in sections) + "\n"


def measured(part: str, extra: list[str]) -> str:
    """What the command prints. It ends with 1 when a target was missed, and the page says so."""
    command = [sys.executable, "-m", "lab.bench", part, "--markdown", *extra]
    done = subprocess.run(command, stdout=subprocess.PIPE, encoding="utf-8", check=False, cwd=DOCS.parent)
    if done.returncode not in (0, 1) or not re.search(r"^\| figure", done.stdout, re.MULTILINE):
        raise SystemExit(f"`{' '.join(command[2:])}` ended with {done.returncode}; {PAGE.name} stays as it is.")
    return done.stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all by default")
    parser.add_argument("--quick", action="store_true", help="show the form; the figures mean nothing")
    parser.add_argument("--text", help="real text for recall")
    parser.add_argument("--keep", help="a folder for the stores of recall, found again by the next run")
    asked = parser.parse_args()
    if unknown := set(asked.parts) - set(PARTS):
        parser.error(f"{sorted(unknown)[0]!r} is no part")
    given = [item for name in ("text", "keep") if (value := getattr(asked, name)) for item in (f"--{name}", value)]
    sections = sections_of(PAGE.read_text(encoding="utf-8")) if PAGE.exists() else {}
    for part in asked.parts or PARTS:
        extra = ["--quick"] if asked.quick else []
        sections[part] = measured(part, extra + (["--plots", str(DOCS / "plots"), *given] if part == "recall" else []))
    PAGE.write_text(page_of(sections), encoding="utf-8")


if __name__ == "__main__":
    main()
