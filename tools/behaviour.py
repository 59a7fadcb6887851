"""Prints the tests of each rule in docs/behaviour.md: `make rules`, or `make rules ARGS="H3 L6"` for some of them.

A test belongs to a rule if its docstring starts with the rule's code.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "behaviour.md"
FOLDERS = ("tests", "src/afterturn/testing")

_RULE = r"[A-Z]\d{1,2}[a-z]?"
_OPENING = re.compile(rf"{_RULE}(?:(?:, ?|/| and ){_RULE})*(?=[:,. ])")
_HEADING = re.compile(rf"^### ({_RULE}) (.+)$", re.MULTILINE)


def find_rules(page: str) -> list[tuple[str, str]]:
    """The code and the title of each rule, in the order of the page."""
    return _HEADING.findall(page)


def rules_named(docstring: str | None) -> list[str]:
    """The codes at the start of a docstring: "L3: ..." gives L3, "C2, C3: ..." gives both."""
    opening = _OPENING.match(docstring or "")
    return re.findall(_RULE, opening.group()) if opening else []


def find_tests() -> dict[str, list[str]]:
    """`tests/file.py::test_name` by rule, in the order of the files."""
    found: dict[str, list[str]] = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for name, docstring in _tests(ast.parse(path.read_text(encoding="utf-8")).body):
                for rule in rules_named(docstring):
                    found.setdefault(rule, []).append(f"{path.relative_to(ROOT).as_posix()}::{name}")
    return found


def _tests(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, str | None]]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield prefix + node.name, ast.get_docstring(node)
        elif isinstance(node, ast.ClassDef):
            if any("StateMachine" in ast.unparse(base) for base in node.bases):
                yield prefix + node.name, ast.get_docstring(node)
            yield from _tests(node.body, f"{prefix}{node.name}::")


def main(wanted: list[str]) -> None:
    rules = find_rules(PAGE.read_text(encoding="utf-8"))
    unknown = set(wanted) - {rule for rule, _ in rules}
    if unknown:
        sys.exit(f"docs/behaviour.md has no rule {', '.join(sorted(unknown))}.")
    tests = find_tests()
    for rule, title in rules:
        if not wanted or rule in wanted:
            print(f"{rule} {title}")
            print("".join(f"  {name}\n" for name in tests.get(rule, [])))


if __name__ == "__main__":
    main(sys.argv[1:])
