"""Keeps docs/behaviour.md true: finds the tests whose docstring opens with a rule's number and lists them there."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "behaviour.md"
PLACES = ("tests", "src/afterturn/testing")

_RULE = r"[RLHSCVGMAK]\d{1,2}"
_OPENING = re.compile(rf"{_RULE}(?:(?:, ?|/| and ){_RULE})*(?=[:,. ])")
_SECTION = re.compile(rf"^### ({_RULE})\b", re.MULTILINE)
_SHOWN = re.compile(r"\n+Shown by:\n(?:\n?- .*)*\n*", re.MULTILINE)


def rules_named(docstring: str | None) -> list[str]:
    """The rules that a docstring opens with: "L3: ..." gives L3, "C2, C3: ..." gives both."""
    opening = _OPENING.match(docstring or "")
    return re.findall(_RULE, opening.group()) if opening else []


def find_tests() -> dict[str, list[str]]:
    """`tests/file.py::test_name` by rule, in the order of the files."""
    found: dict[str, list[str]] = {}
    for place in PLACES:
        for path in sorted((ROOT / place).rglob("*.py")):
            for name, docstring in _tests(ast.parse(path.read_text(encoding="utf-8"))):
                for rule in rules_named(docstring):
                    found.setdefault(rule, []).append(f"{path.relative_to(ROOT).as_posix()}::{name}")
    return found


def rules_listed(page: str) -> list[str]:
    return _SECTION.findall(page)


def render(page: str, tests: dict[str, list[str]]) -> str:
    """The page with the list of tests under each rule written anew; everything else stays as it is."""
    head, *sections = re.split(r"(?m)^(?=##)", page)
    return (head + "".join(_section(section, tests) for section in sections)).rstrip("\n") + "\n"


def _section(section: str, tests: dict[str, list[str]]) -> str:
    rule = _SECTION.match(section)
    if rule is None:
        return section
    lines = "".join(f"- `{name}`\n" for name in tests.get(rule.group(1), []))
    return _SHOWN.sub("", section).rstrip("\n") + "\n" + (f"\nShown by:\n\n{lines}" if lines else "") + "\n"


def _tests(tree: ast.Module, prefix: str = "") -> Iterator[tuple[str, str | None]]:
    for node in tree.body:
        yield from _tests_in(node, prefix)


def _tests_in(node: ast.stmt, prefix: str) -> Iterator[tuple[str, str | None]]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
        yield prefix + node.name, ast.get_docstring(node)
    elif isinstance(node, ast.ClassDef):
        if any("StateMachine" in ast.unparse(base) for base in node.bases):
            yield prefix + node.name, ast.get_docstring(node)
        for child in node.body:
            yield from _tests_in(child, f"{prefix}{node.name}::")


def main() -> None:
    page = PAGE.read_text(encoding="utf-8")
    tests = find_tests()
    PAGE.write_text(render(page, tests), encoding="utf-8")
    listed = rules_listed(page)
    for rule in listed:
        if rule not in tests:
            print(f"{rule} is listed, but no test's docstring opens with it.")
    for rule in sorted(set(tests) - set(listed)):
        print(f"{rule} has tests, but docs/behaviour.md does not list it: {', '.join(tests[rule])}")


if __name__ == "__main__":
    main()
