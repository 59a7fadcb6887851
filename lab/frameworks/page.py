"""The table of docs/frameworks.md: what each framework supports, from the outcome of the tests."""

from __future__ import annotations

import json
import re

from lab.frameworks.environments import ENVIRONMENTS, FOLDER, ROOT

PAGE = ROOT / "docs" / "frameworks.md"
_TABLE = re.compile(r"(?<=<!-- table -->\n).*?(?=<!-- end -->)", re.DOTALL)
# Frameworks whose adapter takes part in turns. The others have a store only, and tests without rows.
TURNS = ("langchain", "openai_agents", "pydantic_ai", "google_adk", "claude_agent", "agent_framework", "strands")
# Why a framework cannot have a row.
REASONS: dict[tuple[str, str], str] = {}


def write_page() -> None:
    """Leaves a row as "not run" for a framework whose tests were not run on this machine."""
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(_TABLE.sub(lambda _: make_table(), page), encoding="utf-8")


def make_table() -> str:
    shown = {name: _read(name) for name in TURNS}
    rows = list(dict.fromkeys(row for results in shown.values() for row in results))
    titles = [f"{ENVIRONMENTS[name].title} {ENVIRONMENTS[name].version}" for name in TURNS]
    lines = [f"| | {' | '.join(titles)} |", f"|---|{'---|' * len(titles)}"]
    for row in rows:
        cells = [
            shown[name].get(row) or REASONS.get((name, row), "not run" if not shown[name] else "no") for name in TURNS
        ]
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _read(name: str) -> dict[str, str]:
    path = FOLDER / f"{name}.json"
    results: dict[str, str] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return results
