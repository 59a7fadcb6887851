"""The frame of the labs: a store target, slices by seed, results that add up over runs, and tables in docs/trust.md.

A lab is a function that runs one seed. Each result is appended to a file of JSON lines as soon as its seed has ended,
so a full size of many hours can be reached in parts, and an interrupted run loses nothing.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import re
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "trust.md"
RESULTS = ROOT / ".lab" / "results.jsonl"
_SHOWN_MAX = 20
_MEMORY_FOLDER = Path("/dev/shm")


class StoreTarget(Protocol):
    """The kind of store that a lab runs against. `lab.postgres.stores` has the one for PostgreSQL."""

    kind: str

    def fresh(self) -> AbstractContextManager[Any]:
        """A new, empty place for one run: what `afterturn.open` takes, a path or a URL. It is removed afterwards."""

    def files(self, store: Path) -> list[Path]:
        """Every file that may hold bytes of the store. What moves from one to another is read in this order, too."""

    def transaction(self, store: Path, *, writes: bool) -> AbstractContextManager[None]:
        """An open transaction of another program, which reads, or holds the lock for writing."""

    def statements(self) -> AbstractContextManager[list[str]]:
        """The SQL of every statement that stores run inside, whoever opened them. Open the stores inside, too."""


class SqliteTarget:
    """Each run gets a new folder below `folder`, with one store in it. Without `folder`, in memory if possible."""

    kind = "sqlite"

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    @contextmanager
    def fresh(self) -> Iterator[Path]:
        parent = self._folder or (_MEMORY_FOLDER if _MEMORY_FOLDER.is_dir() else None)
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="afterturn-lab-", dir=parent, ignore_cleanup_errors=True) as folder:
            yield Path(folder) / "memory.db"

    def files(self, store: Path) -> list[Path]:
        # The database is last: a checkpoint may move bytes from the log to it while somebody reads the files.
        return sorted((path for path in store.parent.rglob("*") if path.is_file()), key=lambda path: path == store)

    @contextmanager
    def transaction(self, store: Path, *, writes: bool) -> Iterator[None]:
        import apsw

        connection = apsw.Connection(str(store))
        connection.set_busy_timeout(30_000)
        try:
            connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
            connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
            yield
        finally:
            connection.close(True)

    @contextmanager
    def statements(self) -> Iterator[list[str]]:
        import apsw

        seen: list[str] = []

        def watch(connection: apsw.Connection) -> None:
            connection.exec_trace = lambda cursor, sql, values: not seen.append(sql)  # type: ignore[func-returns-value]

        apsw.connection_hooks.append(watch)
        try:
            yield seen
        finally:
            apsw.connection_hooks.remove(watch)


@contextmanager
def open_target(text: str) -> Iterator[StoreTarget]:
    """`sqlite:`, `sqlite:FOLDER`, or `postgresql:`, which starts a server. Raises ValueError for another kind."""
    kind, _, rest = text.partition(":")
    if kind == "postgresql" and not rest:
        from lab.postgres.stores import open_target as open_postgres

        with open_postgres() as target:
            yield target
    elif kind == "sqlite":
        yield SqliteTarget(Path(rest) if rest else None)
    else:
        raise ValueError(f"{text!r} is not a store target. Use sqlite:, sqlite:FOLDER or postgresql:.")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one seed. `counts` are added up over seeds; of `worst`, the largest value counts.

    `broken` lists every promise that was not kept, as sentences.
    """

    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    worst: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a lab's table. `full` is the count of a full size; without it, the count is only reported.

    With `most`, it is a value of `worst` that must not be larger. With `each`, `count` begins the names of several
    counts: the line says how many there are, and the least of them.
    """

    label: str
    count: str
    full: int | None = None
    most: float | None = None
    unit: str = ""
    each: bool = False


@dataclass(frozen=True, slots=True)
class Lab:
    """`run` runs one seed. `broken` in the table counts the promises that were not kept. A lab that starts a store of
    its own kind names it in `store`."""

    name: str
    about: str
    seeds: str
    run: Callable[[int, StoreTarget, argparse.Namespace], Outcome]
    rows: tuple[Row, ...]
    broken: str
    add_options: Callable[[argparse.ArgumentParser], None] = lambda parser: None
    store: str = ""


def parse_seeds(text: str) -> list[int]:
    """`7`, `1-100`, or `1-5,9`."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def main(lab: Lab, arguments: Sequence[str] | None = None) -> int:
    """The exit code: 1 if a promise was broken."""
    parser = _parser(lab)
    options = parser.parse_args(arguments)
    if not options.add_up:
        status = _run_seeds(lab, options, _own_arguments(parser, options))
        if status == _INTERRUPTED:
            return status
    results = read_results(options.results, lab.name)
    print("\n".join(summary(lab, results)))
    if options.page:
        write_table(PAGE, lab, results)
    return 1 if any(result["broken"] for result in results) else 0


_INTERRUPTED = 130
_OF_THE_FRAME = ("seeds", "store", "results", "add_up", "page")


def _own_arguments(parser: argparse.ArgumentParser, options: argparse.Namespace) -> str:
    """The lab's own options that differ from their defaults, as they are given in a command. Files without folders."""
    words: list[str] = []
    for name, value in vars(options).items():
        if name not in _OF_THE_FRAME and value != parser.get_default(name):
            values = [] if value is True else value if isinstance(value, list) else [value]
            words += [
                f"--{name.replace('_', '-')}",
                *(one.name if isinstance(one, Path) else str(one) for one in values),
            ]
    return " ".join(words)


def _run_seeds(lab: Lab, options: argparse.Namespace, arguments: str) -> int:
    seeds, failed = parse_seeds(options.seeds), 0
    try:
        with open_target(options.store) as target:
            for number, seed in enumerate(seeds, 1):
                began = time.monotonic()
                outcome = lab.run(seed, target, options)
                failed += bool(outcome.broken)
                seconds = time.monotonic() - began
                store = lab.store or target.kind
                append_result(options.results, lab.name, store, outcome, seconds=seconds, arguments=arguments)
                _show(number, len(seeds), outcome, seconds)
    except KeyboardInterrupt:
        print("Interrupted. The seeds that have ended are in the results.", file=sys.stderr)
        return _INTERRUPTED
    return 1 if failed else 0


def _show(number: int, total: int, outcome: Outcome, seconds: float) -> None:
    done = ", ".join(f"{count:,} {what}" for what, count in sorted(outcome.counts.items()))
    values = ", ".join(f"{what} {value:.3g}" for what, value in sorted(outcome.worst.items()))
    state = "BROKEN" if outcome.broken else "ok"
    print(f"[{number}/{total}] seed {outcome.seed}: {state}, {seconds:.0f} s, {done} {values}", file=sys.stderr)
    for what in outcome.broken[:_SHOWN_MAX]:
        print(f"    {what}", file=sys.stderr)
    sys.stderr.flush()


def _parser(lab: Lab) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m lab.{lab.name}",
        description=f"make lab-{lab.name}: {lab.about}",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--seeds", default=lab.seeds, help="seeds, such as 7, 1-100 or 1-5,9")
    parser.add_argument(
        "--store", default="sqlite:", help="the store target: sqlite:, sqlite:FOLDER, or postgresql: for lab-isolation"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="the file to which results are appended")
    parser.add_argument("--add-up", action="store_true", help="run nothing, print the sum of all results in the file")
    parser.add_argument("--page", action="store_true", help="write the sum as a table to docs/trust.md")
    lab.add_options(parser)
    return parser


@contextmanager
def without_log() -> Iterator[None]:
    """Hides afterturn's warnings where a lab causes the trouble itself."""
    log = logging.getLogger("afterturn")
    earlier = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(earlier)


# Results


def append_result(
    results: Path, lab: str, store: str, outcome: Outcome, *, seconds: float, arguments: str = ""
) -> None:
    line = {
        "lab": lab,
        "store": store,
        "seed": outcome.seed,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "seconds": round(seconds, 1),
        "arguments": arguments,
        "counts": dict(outcome.counts),
        "worst": outcome.worst,
        "broken": outcome.broken[:_SHOWN_MAX],
    }
    results.parent.mkdir(parents=True, exist_ok=True)
    with results.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, ensure_ascii=False) + "\n")


def read_results(results: Path, lab: str) -> list[dict[str, Any]]:
    """The newest result of each seed and store: a seed that ran twice counts once."""
    newest: dict[tuple[str, int], dict[str, Any]] = {}
    if results.exists():
        for line in results.read_text(encoding="utf-8").splitlines():
            result = json.loads(line)
            if result["lab"] == lab:
                newest[result["store"], result["seed"]] = result
    return [newest[key] for key in sorted(newest)]


def add_up(results: Sequence[dict[str, Any]]) -> tuple[Counter[str], dict[str, float], int]:
    """The sums, the worst values, and how many promises were broken."""
    counts: Counter[str] = Counter()
    worst: dict[str, float] = {}
    for result in results:
        counts.update(result["counts"])
        for name, value in result["worst"].items():
            worst[name] = max(value, worst.get(name, value))
    return counts, worst, sum(len(result["broken"]) for result in results)


def table(lab: Lab, results: Sequence[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """Rows of: what, measured, wanted."""
    counts, worst, broken = add_up(results)
    rows = [_cells(row, counts, worst) for row in lab.rows]
    return [*rows, (lab.broken, str(broken), "0")]


def _cells(row: Row, counts: Counter[str], worst: dict[str, float]) -> tuple[str, str, str]:
    if row.most is not None:
        measured = f"{worst[row.count]:.2g} {row.unit}" if row.count in worst else "not measured"
        return row.label, measured.strip(), f"< {row.most:g} {row.unit}".strip()
    if row.each:
        found = [count for name, count in counts.items() if name.startswith(row.count)]
        return row.label, f"{len(found)}, each ≥ {min(found):,}" if found else "0", ""
    if row.full is None:
        return row.label, f"{counts[row.count]:,}", ""
    share = 100 * counts[row.count] / row.full
    reached = "reached" if share >= 100 else f"{share:.2g} % reached"
    return row.label, f"{counts[row.count]:,}", f"≥ {row.full:,} ({reached})"


def summary(lab: Lab, results: Sequence[dict[str, Any]]) -> list[str]:
    if not results:
        return [f"lab-{lab.name}: no results yet."]
    lines = [f"lab-{lab.name}: {_about(results)}"]
    lines += [f"  {label:<58} {measured:>14}  {wanted}" for label, measured, wanted in table(lab, results)]
    faults = [what for result in results for what in result["broken"]]
    return [*lines, *(f"    {what}" for what in faults[:_SHOWN_MAX])]


def _about(results: Sequence[dict[str, Any]]) -> str:
    days = sorted({result["at"][:10] for result in results})
    when = days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"
    hours = sum(result["seconds"] for result in results) / 3600
    stores = ", ".join(sorted({result["store"] for result in results}))
    return f"{len(results)} seed{'s' * (len(results) != 1)} on {stores}, {when}, {hours:.1f} hours"


def write_table(page: Path, lab: Lab, results: Sequence[dict[str, Any]]) -> None:
    """Replaces the text between the lab's two marks in the page. Raises LookupError if they are missing."""
    by_arguments: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for result in results:
        by_arguments[result["arguments"]].append(result)
    commands = [
        f"`make lab-{lab.name} SEEDS={_seeds(some)}" + (f' ARGS="{arguments}"`' if arguments else "`")
        for arguments, some in by_arguments.items()
    ]
    lines = ["| measured | result | full size or limit |", "|---|---:|---|"]
    lines += [f"| {label} | {measured} | {wanted} |" for label, measured, wanted in table(lab, results)]
    machine = f"Python {platform.python_version()}, apsw {version('apsw')}, {platform.system()}, {os.cpu_count()} cores"
    lines += ["", f"{', '.join(commands)}: {_about(results)}. {machine}."]
    begin, end = f"<!-- lab-{lab.name} -->", f"<!-- end of lab-{lab.name} -->"
    text = page.read_text(encoding="utf-8")
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if not pattern.search(text):
        raise LookupError(f"{page} has no {begin}.")
    body = "\n".join([begin, "", *lines, "", end])
    page.write_text(pattern.sub(lambda _: body, text), encoding="utf-8")


def _seeds(results: Sequence[dict[str, Any]]) -> str:
    """The seeds as ranges, such as `1-20` or `1-5,9`."""
    ranges: list[list[int]] = []
    for seed in sorted({result["seed"] for result in results}):
        if ranges and ranges[-1][1] == seed - 1:
            ranges[-1][1] = seed
        else:
            ranges.append([seed, seed])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
