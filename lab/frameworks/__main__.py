"""Installs frameworks, runs their tests, and writes the table of docs/frameworks.md.

python -m lab.frameworks test [NAME ...] [--page] [--minutes 20]
python -m lab.frameworks install [NAME ...]
python -m lab.frameworks lock [NAME ...] [--upgrade]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

from lab.frameworks.environments import FOLDER, ROOT, Environment, choose, install, lock
from lab.frameworks.page import write_page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=["test", "install", "lock"])
    parser.add_argument("names", nargs="*", metavar="NAME", help="environments; all of them if none is named")
    parser.add_argument("--page", action="store_true", help="write what was shown into docs/frameworks.md")
    parser.add_argument("--minutes", type=float, help="start no further environment after this time")
    parser.add_argument("--upgrade", action="store_true", help="with lock: take newer versions")
    given = parser.parse_args()
    chosen = choose(given.names)
    if given.task == "lock":
        for environment in chosen:
            lock(environment, upgrade=given.upgrade)
    elif given.task == "install":
        for environment in chosen:
            install(environment)
    else:
        sys.exit(test(chosen, minutes=given.minutes, page=given.page))


def test(chosen: list[Environment], *, minutes: float | None, page: bool) -> int:
    """0 if all tests that were started have passed. Says which environments were left out."""
    ends = None if minutes is None else time.monotonic() + minutes * 60
    outcomes: dict[str, str] = {}
    for environment in chosen:
        if ends is not None and time.monotonic() > ends:
            outcomes[environment.name] = "NOT RUN: the time was over"
            continue
        outcomes[environment.name] = run(environment)
    print("\nFrameworks:")
    for name, outcome in outcomes.items():
        print(f"  {name:16} {outcome}")
    if page:
        write_page()
    return int(any(outcome.startswith("FAILED") for outcome in outcomes.values()))


def run(environment: Environment) -> str:
    started = time.monotonic()
    try:
        install(environment)
    except subprocess.CalledProcessError:
        return "FAILED: could not be installed"
    results = FOLDER / f"{environment.name}.json"
    results.unlink(missing_ok=True)
    print(f"\n{environment.title} {environment.version}", flush=True)
    command = [str(environment.python), *"-m pytest -m frameworks -q -W default -p no:cacheprovider".split()]
    command += ["--results", str(results), *map(str, environment.test_files)]
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        return f"FAILED with code {done.returncode}"
    if not has_right_types(environment):
        return "FAILED: the types of the adapter are wrong"
    return f"passed in {time.monotonic() - started:.0f} s"


def has_right_types(environment: Environment) -> bool:
    """mypy on the adapter, with the types of its framework. It shares the cache of `make check`."""
    if not environment.adapter_files:
        return True
    command = [sys.executable, "-m", "mypy", "--python-executable", str(environment.python)]
    command += map(str, environment.adapter_files)
    return subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, check=False).returncode == 0


if __name__ == "__main__":
    main()
