"""Count what should not grow: files and lines by folder, settings, tiny helpers, packages, files that a message visits.

`ratchet.json` has the highest counts that are allowed; a test compares. `--write` lowers them to those of now. It never
raises one: what a change adds, it gives back elsewhere. A new folder gets a row of its own.
"""

import argparse
import ast
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import fields
from importlib.metadata import PackageNotFoundError, files, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "afterturn"
STORED = ROOT / "ratchet.json"
HELPER_LINES_MAX = 8
MEGABYTE = 1_000_000
# A registry has newer versions, and memory's loop may finish other work on the way: these counts may vary by so much.
VARYING = {"walk": 1.05, "install MB": 1.1}

Counts = dict[str, int]


def count_all() -> dict[str, Counts]:
    """The counts by group and name."""
    return {
        "files": dict(Counter(map(folder_of, modules()))),
        "lines": dict(count_lines()),
        "names": {"settings": count_settings(), "helpers called once": count_tiny_helpers()},
        "packages": {"packages": len(installed_with("afterturn"))},
        "install MB": {"MB": count_megabytes()},
        "walk": count_walk(),
    }


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def folder_of(path: Path) -> str:
    """The top-level folder. The server has a row of its own, as a program that most users do not start."""
    first, *others = path.relative_to(PACKAGE).parts
    if first == "hosts" and others[0] == "server":
        return "hosts/server"
    return first if others else "."


def count_lines() -> Counter[str]:
    lines: Counter[str] = Counter()
    for path in modules():
        lines[folder_of(path)] += path.read_text(encoding="utf-8").count("\n")
    return lines


def count_settings() -> int:
    from afterturn.config import Config

    return len(fields(Config))


def count_tiny_helpers() -> int:
    """Private functions of a module with at most eight lines that are named once in the package."""
    named: Counter[str] = Counter()
    tiny: list[str] = []
    for path in modules():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            named.update([node.id] if isinstance(node, ast.Name) else [])
            named.update([node.attr] if isinstance(node, ast.Attribute) else [])
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("_"):
                tiny += [node.name] if (node.end_lineno or 0) - node.lineno < HELPER_LINES_MAX else []
    return sum(named[name] == 1 for name in tiny)


def installed_with(distribution: str, seen: set[str] | None = None) -> set[str]:
    """The distribution and everything that a plain installation of it brings, by their declared requirements."""
    seen = set() if seen is None else seen
    key = canonicalize_name(distribution)
    if key in seen:
        return seen
    try:
        declared = requires(distribution) or []
    except PackageNotFoundError:  # wanted elsewhere, by another system or version
        return seen
    seen.add(key)
    for requirement in map(Requirement, declared):
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            installed_with(requirement.name, seen)
    return seen


def count_megabytes() -> int:
    """Of the packages of a plain installation, with the files of this one, without compiled modules."""
    others = [path.locate() for name in installed_with("afterturn") - {"afterturn"} for path in files(name) or ()]
    found = [Path(str(path)) for path in others] + list(PACKAGE.rglob("*"))
    sizes = (path.stat().st_size for path in found if path.suffix != ".pyc" and path.is_file())
    return -(-sum(sizes) // MEGABYTE)


def count_walk() -> Counts:
    """The files between a user message and its block. Calls depend on how threads interleave: see `make walk`."""
    done = subprocess.run([sys.executable, ROOT / "tools" / "walk.py", "--json"], check=True, capture_output=True)
    first = next(iter(json.loads(done.stdout).values()))
    return {"files": first["files"]}


def exceeded(stored: Mapping[str, Counts], counted: Mapping[str, Counts]) -> Iterator[str]:
    """One sentence for each count that is higher than allowed."""
    for group, counts in counted.items():
        for name, count in counts.items():
            most = stored.get(group, {}).get(name)
            if most is not None and count > most * VARYING.get(group, 1.0):
                yield f"{group}, {name}: {count:,} instead of at most {most:,}"


def lowered(stored: Mapping[str, Counts], counted: Mapping[str, Counts]) -> dict[str, Counts]:
    return {
        group: {name: min(count, stored.get(group, {}).get(name, count)) for name, count in sorted(counts.items())}
        for group, counts in counted.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="lower the counts in ratchet.json to those of now")
    asked = parser.parse_args()
    stored: dict[str, Counts] = json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {}
    counted = count_all()
    for group, counts in counted.items():
        for name, count in sorted(counts.items()):
            print(f"{group:12} {name:22} {count:8,} of {stored.get(group, {}).get(name, count):8,}")
    if asked.write and not (PACKAGE / "embedders" / "weights").exists():
        sys.exit("The encoder's weights are missing, so the size would be too small. Run `make ratchet ARGS=--write`.")
    if asked.write:
        STORED.write_text(json.dumps(lowered(stored, counted), indent=1) + "\n", encoding="utf-8")
    sys.exit("\n".join(exceeded(stored, counted)) or 0)


if __name__ == "__main__":
    main()
