"""The table of docs/clients.md: what each client can do, from the outcome of the tests."""

import json
import re
from pathlib import Path

import pytest

from lab.clients.setup import HERE

PAGE = Path(__file__).parents[2] / "docs" / "clients.md"
_TABLE = re.compile(r"(?<=<!-- table -->\n).*?(?=<!-- end -->)", re.DOTALL)
TITLES = {
    "claude-code": ("Claude Code", "@anthropic-ai/claude-code"),
    "codex": ("Codex", "@openai/codex"),
    "gemini-cli": ("Gemini CLI", "@google/gemini-cli"),
    "qwen-code": ("Qwen Code", "@qwen-code/qwen-code"),
    "opencode": ("opencode", "opencode-ai"),
}


class CapabilityTable:
    """Outcomes by what a test shows and by client. A later failure replaces a success."""

    def __init__(self) -> None:
        self.outcomes: dict[str, dict[str, str]] = {}

    def note(self, shown: str, client: str, report: pytest.TestReport) -> None:
        row = self.outcomes.setdefault(shown, {})
        if report.failed:
            row[client] = "failed"
        elif report.skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else getattr(report, "wasxfail", "")
            row[client] = reason.removeprefix("Skipped: ")
        elif report.when == "call":
            row.setdefault(client, "yes")

    def text(self) -> str:
        versions = json.loads((HERE / "package.json").read_text())["dependencies"]
        header = [f"{title} {versions[package]}" for title, package in TITLES.values()]
        lines = [f"| | {' | '.join(header)} |", f"|---|{'---|' * len(TITLES)}"]
        for shown, row in self.outcomes.items():
            lines.append(f"| {shown} | {' | '.join(row.get(client, 'not run') for client in TITLES)} |")
        return "\n".join(lines) + "\n"

    def write(self) -> None:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(_TABLE.sub(lambda _: self.text(), page), encoding="utf-8")
