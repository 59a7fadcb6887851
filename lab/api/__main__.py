"""Generates requests from the server's OpenAPI document with schemathesis, in an environment of its own below .api/.

`python -m lab.api run [--cases 10000] [--seed 1]`, `python -m lab.api lock [--upgrade]`.

Half of the requests choose names freely, half name what is there. No answer may be a server error, and every answer
must have a documented status, content type, schema and headers.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
from pathlib import Path

from lab.api.server import CONVERSATION, SPACE, RunningServer, serving

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".api"
_LOCK = Path(__file__).with_name("lock.txt")
_STAMP = FOLDER / "installed"
_UV = Path(sys.executable).parent / "uv"
_WANTED = "schemathesis>=4,<5\n"
# Those that are left out do not hold here: a text may be refused for what it says, a deleted memory can be read, and
# nobody sees the requests of others.
_UNUSED = ("positive_data_acceptance", "use_after_free", "ensure_resource_availability", "object_level_authorization")
_GENERATED = re.compile(r"^\s+(\d+) generated", re.MULTILINE)
# Of one operation, in a run of schemathesis; it adds those that it derives from the document.
_EXAMPLES = 40


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=["run", "lock"])
    parser.add_argument("--cases", type=int, default=10_000, help="at least this many requests")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--upgrade", action="store_true", help="with lock: take newer versions")
    given = parser.parse_args()
    if given.task == "lock":
        lock(upgrade=given.upgrade)
        return 0
    install()
    return run(given.cases, given.seed)


def run(cases: int, seed: int) -> int:
    """1 if an answer was wrong. Repeats with other seeds until there were enough requests."""
    total = failed = 0
    with serving("--without", "pages", "--rate", "100000") as server:
        generated = 1
        while total < cases:
            examples = min(_EXAMPLES, max(1, (cases - total) // 300))
            for known in (False, True):
                generated, code = _run_once(server, seed, examples, known=known)
                total, failed = total + generated, failed or code
            if failed or not generated:
                break
            seed += 1
        log = (server.folder / "server.log").read_text(encoding="utf-8")
    print(f"\n{total:,} requests, last seed {seed}: {'FAILED' if failed else 'no wrong answer'}")
    if "Traceback" in log:
        print(log)
        failed = 1
    return failed


def _run_once(server: RunningServer, seed: int, examples: int, *, known: bool) -> tuple[int, int]:
    """The number of requests, and the exit code of schemathesis."""
    config = server.folder / "schemathesis.toml"
    config.write_text(_known_names(server, seed) if known else "", encoding="utf-8")
    command = [str(FOLDER / "bin" / "schemathesis"), "--config-file", str(config), "run"]
    command += [f"{server.url}/api/v1/openapi.json", "--url", f"{server.url}/api/v1"]
    command += ["--header", f"Authorization: Bearer {server.token}", "--no-color", "--warnings", "off"]
    # A stream does not end by itself.
    command += ["--exclude-path", "/events", "--checks", "all", "--exclude-checks", ",".join(_UNUSED)]
    command += ["--max-examples", str(examples), "--seed", str(seed), "--request-timeout", "60"]
    done = subprocess.run(command, cwd=server.folder, capture_output=True, text=True, check=False)
    found = _GENERATED.search(done.stdout)
    generated = int(found[1]) if found else 0
    print(f"seed {seed}, {'known names' if known else 'any names'}: {generated:,} requests", flush=True)
    if done.returncode:
        print(done.stdout + done.stderr, flush=True)
    return generated, int(done.returncode != 0)


def _known_names(server: RunningServer, seed: int) -> str:
    """A memory and a turn that are there, as parameters for schemathesis."""
    turn, where = f"turn-{seed}", {"id": CONVERSATION, "owner": SPACE}
    said = [{"role": "user", "content": "Call me Max from now on."}]
    server.ask("/turns", {"conversation": where, "messages": said, "turn": turn})
    memory = server.ask(f"/spaces/{SPACE}/memories", {"text": f"Locker {seed} is free."})
    names = {"space": SPACE, "memory": memory["entry"]["id"], "conversation": CONVERSATION, "turn": turn}
    return "[parameters]\n" + "".join(f'"path.{name}" = "{value}"\n' for name, value in names.items())


def install() -> None:
    """Does nothing if it is there already. Raises CalledProcessError if a package cannot be installed."""
    wanted = hashlib.sha256(str(ROOT).encode() + _LOCK.read_bytes()).hexdigest()
    if _STAMP.is_file() and _STAMP.read_text(encoding="utf-8") == wanted:
        return
    print("Installing schemathesis into .api", flush=True)
    _run_uv("venv", "--quiet", "--clear", "--python", sys.executable, str(FOLDER))
    _run_uv("pip", "install", "--quiet", "--python", str(FOLDER / "bin" / "python"), "--requirement", str(_LOCK))
    _STAMP.write_text(wanted, encoding="utf-8")


def lock(*, upgrade: bool) -> None:
    command = ["pip", "compile", "-", "--universal", "--python-version", "3.11", "--generate-hashes", "--quiet"]
    command += ["--no-emit-index-url", "--custom-compile-command", "make lock-api", "--output-file", str(_LOCK)]
    subprocess.run([_UV, *command, *(["--upgrade"] if upgrade else [])], input=_WANTED, text=True, check=True)


def _run_uv(*arguments: str) -> None:
    subprocess.run([_UV, *arguments], check=True, stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main())
