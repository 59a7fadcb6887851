"""The generated parts of docs/frameworks.md: the table from the outcome of the tests, and the programs of examples/."""

from __future__ import annotations

import json
import re

from lab.frameworks.environments import ENVIRONMENTS, FOLDER, ROOT

PAGE = ROOT / "docs" / "frameworks.md"
EXAMPLES = ROOT / "examples" / "frameworks"
_TABLE = re.compile(r"(<!-- table -->\n).*?(?=<!-- end -->)", re.DOTALL)
_EXAMPLE = re.compile(r"(<!-- example: (\w+\.py) -->\n).*?(?=<!-- end -->)", re.DOTALL)
# The others are stores and tools, which take no part in turns, so their tests have no rows.
TURNS = tuple(name for name in ENVIRONMENTS if name not in ("anthropic", "mem0"))


def write_page() -> None:
    """Rows of a framework whose tests were not run on this machine say so."""
    PAGE.write_text(
        _TABLE.sub(lambda found: found[1] + make_table(), with_examples(PAGE.read_text("utf-8"))), encoding="utf-8"
    )


def with_examples(page: str) -> str:
    """The page with the programs as they are now."""
    return _EXAMPLE.sub(lambda found: f"{found[1]}```py\n{(EXAMPLES / found[2]).read_text('utf-8')}```\n", page)


def make_table() -> str:
    shown = {name: _read(name) for name in TURNS}
    rows = list(dict.fromkeys(row for results in shown.values() for row in results))
    titles = [f"{ENVIRONMENTS[name].title} {ENVIRONMENTS[name].version}" for name in TURNS]
    lines = [f"| | {' | '.join(titles)} |", f"|---|{'---|' * len(titles)}"]
    for row in rows:
        cells = [shown[name].get(row, "no") if shown[name] else "not run" for name in TURNS]
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _read(name: str) -> dict[str, str]:
    path = FOLDER / f"{name}.json"
    results: dict[str, str] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return results
