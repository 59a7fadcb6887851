"""`make simulation`: runs seeds, prints those that broke a promise, and how to run one again."""

import argparse
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab.postgres.stores import find_url
from lab.simulation.run import Result, make_template, run_seed
from lab.simulation.templates import DatabaseTemplate, FileTemplate, Template

_MEMORY_FOLDER = Path("/dev/shm")


def main() -> int:
    arguments = _parser().parse_args()
    seeds = [arguments.seed] if arguments.seed is not None else _range(arguments.seeds)
    with (
        tempfile.TemporaryDirectory(prefix="afterturn-simulation-", dir=_fast_folder()) as folder,
        _template(arguments.store, Path(folder)) as template,
    ):
        results = _run(seeds, Path(folder), template, is_traced=arguments.trace)
    failing = [result for result in results if result.broken]
    for result in failing[:20]:
        print(f"seed {result.seed}")
        print("\n".join(f"  {what}" for what in result.broken[:5]))
    print(f"{len(results)} seeds, {len(failing)} failing: {' '.join(str(result.seed) for result in failing[:50])}")
    if failing:
        print(f"Run one again: python -m lab.simulation --seed {failing[0].seed} --trace")
    return 1 if failing else 0


@contextmanager
def _template(store: str | None, folder: Path) -> Iterator[Template]:
    if store is None:
        yield FileTemplate(folder / "template.db")
        return
    with find_url(store) as url:
        template = DatabaseTemplate(url, folder, f"simulation_{uuid.uuid4().hex[:8]}")
        try:
            yield template
        finally:
            template.remove()


def _run(seeds: list[int], folder: Path, template: Template, *, is_traced: bool) -> list[Result]:
    make_template(template)
    if is_traced or not sys.stderr.isatty():
        return [run_seed(seed, folder, template, on_line=print if is_traced else None) for seed in seeds]
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    return [run_seed(seed, folder, template) for seed in track(seeds, "Simulating", console=console)]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lab.simulation", description=__doc__)
    parser.add_argument("--seeds", default="1-1000", help="the seeds to run, as FIRST-LAST (default 1-1000)")
    parser.add_argument("--seed", type=int, help="run only this seed")
    parser.add_argument(
        "--store", help="postgresql: starts a server; or the URL of a database, as a role that may create others"
    )
    parser.add_argument("--trace", action="store_true", help="print every event")
    return parser


def _range(text: str) -> list[int]:
    first, _, last = text.partition("-")
    return list(range(int(first), int(last or first) + 1))


def _fast_folder() -> str | None:
    """A folder in RAM if there is one: the simulation does not test power cuts."""
    return str(_MEMORY_FOLDER) if _MEMORY_FOLDER.is_dir() else None


if __name__ == "__main__":
    sys.exit(main())
