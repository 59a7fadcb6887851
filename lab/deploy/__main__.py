"""Checks deploy/: linters, then the steps of the files themselves, run without containers.

`python -m lab.deploy check`, `python -m lab.deploy lock [--upgrade]`.

No container is built or started, and no unit is started by systemd. What is run instead: the commands of the
Dockerfile's build stage in a temporary folder, the image's command line and health check, the unit's command line with
its variables, and the entry point of compose.yaml with a real PostgreSQL server, if the machine has one.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from lab.deploy.recipe import DEPLOY, Stage, read_compose, read_stages, read_unit
from lab.postgres.server import PostgresServer

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".deploy"
_LOCK = Path(__file__).with_name("lock.txt")
_REQUIREMENTS = DEPLOY / "requirements.txt"
_EXTRAS = "server,postgres,keys"
_UV = Path(sys.executable).parent / "uv"
_WITHIN = 60.0
# Of systemd-analyze security, in tenths: 0 is the least exposed, 100 the most.
_EXPOSURE_MAX = 20
_HOME, _PROGRAMS, _PORT = "/var/lib/afterturn", "/usr/local/lib/afterturn", "7433"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=["check", "lock"])
    parser.add_argument("--upgrade", action="store_true", help="with lock: take newer versions")
    given = parser.parse_args()
    if given.task == "lock":
        lock(upgrade=given.upgrade)
        return 0
    install_linters()
    started, left_out = time.monotonic(), ["Docker: no image is built and no container is started"]
    with tempfile.TemporaryDirectory(prefix="afterturn-deploy-") as name:
        folder = Path(name)
        left_out += lint()
        last = build(folder)
        run_image(folder, last)
        left_out += run_unit(folder)
        left_out += run_compose(folder, last)
    print(f"\ndeploy/ is right, in {time.monotonic() - started:.0f} seconds. NOT run here:")
    print("".join(f"  {one}\n" for one in left_out), end="")
    return 0


# ---------------------------------------------------------------- Linters


def lint() -> list[str]:
    """Returns what could not be checked. Raises CalledProcessError for a finding."""
    tools = FOLDER / "bin"
    _run(tools / "hadolint", DEPLOY / "Dockerfile")
    _run(tools / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", DEPLOY / "compose.yaml")
    _run(tools / "shellcheck", DEPLOY / "database.sh", *sorted((ROOT / "examples" / "http").glob("*.sh")))
    print("hadolint, the schema of Compose and shellcheck find nothing.", flush=True)
    return []


# ---------------------------------------------------------------- The image


def build(folder: Path) -> Stage:
    """Runs the commands of the build stage in `folder`, and returns the last stage."""
    first, last = read_stages((DEPLOY / "Dockerfile").read_text(encoding="utf-8"))
    source = folder / "source"
    # A Python with pip, as the base image has.
    _run(sys.executable, "-m", "venv", folder / "base")
    known = {**os.environ, "PIP_QUIET": "1", "PATH": f"{folder / 'base' / 'bin'}:{os.environ['PATH']}"}
    for name, rest in first.instructions:
        if name == "COPY":
            *given, target = rest.split()
            _copy([ROOT / one for one in given], source / target, given)
        elif name == "RUN":
            command = rest.replace(_PROGRAMS, str(folder / "afterturn"))
            print(f"RUN {rest}", flush=True)
            _run("sh", "-euc", command, cwd=source, env=known)
    shutil.rmtree(folder / "base")
    programs = folder / "afterturn"
    found = sorted(path.name for path in (programs / "bin").iterdir() if re.fullmatch(r"(pip|gcc|uv)[\d.]*", path.name))
    assert not found, f"The image would have {found}."
    size = sum(path.lstat().st_size for path in programs.rglob("*") if path.is_file())
    print(f"{programs.name}: {size / 1e6:.0f} MB, apart from Python itself", flush=True)
    return last


def _copy(given: Sequence[Path], target: Path, names: Sequence[str]) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for path, name in zip(given, names, strict=True):
        if path.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "weights")
            shutil.copytree(
                path,
                target.parent / target.name / (name if name != target.name else ""),
                ignore=ignored,
                dirs_exist_ok=True,
            )
        else:
            shutil.copy(path, target)


def run_image(folder: Path, image: Stage) -> None:
    """The image's own command, its health check, and what `docker stop` does."""
    home = folder / "home"
    home.mkdir()
    known = _environment(folder, home, image.environment())
    entry, command = image.words("ENTRYPOINT"), image.words("CMD")
    refused = subprocess.run([*entry, *command], env=known, capture_output=True, text=True, check=False)
    assert refused.returncode == 2, refused
    assert "no valid token" in refused.stderr, refused.stderr
    token = _run(*entry, "token", "create", "--name", "lab", "--space", "user:ada", env=known)
    with _serving([*entry, *command], known) as port:
        check = [word.replace(_PORT, port) for word in image.words("HEALTHCHECK")]
        _run(*check, env=known)
        _use(f"http://localhost:{port}", token)
    stopped = subprocess.run(check, env=known, capture_output=True, check=False)
    assert stopped.returncode != 0, "The health check passes without a server."
    print("The image's command serves, its health check passes, and SIGTERM ends it.", flush=True)


# ---------------------------------------------------------------- systemd


def run_unit(folder: Path) -> list[str]:
    """The unit as systemd reads it, and its command with its variables."""
    text = (DEPLOY / "afterturn.service").read_text(encoding="utf-8")
    unit = read_unit(text)
    # The state folder of a dynamic user is behind a link.
    private = folder / "private"
    private.mkdir(mode=0o700)
    home = folder / "linked"
    home.symlink_to(private)
    variables = dict(one.split("=", 1) for one in unit["Environment"])
    known = _environment(folder, home, variables)
    command = unit["ExecStart"][0].replace(_PROGRAMS, str(folder / "afterturn")).split()
    token = _run(command[0], "token", "create", "--name", "lab", "--space", "user:ada", env=known)
    with _serving(command, known) as port:
        _use(f"http://127.0.0.1:{port}", token)
    print("The unit's command serves with the unit's variables.", flush=True)
    left_out = ["systemd: the unit is not started, so its restrictions are not tried"]
    if shutil.which("systemd-analyze") is None:
        return [*left_out, "systemd-analyze verify: not on this machine (Debian: apt-get install systemd)"]
    file = folder / "afterturn.service"
    file.write_text(text.replace(_PROGRAMS, str(folder / "afterturn")), encoding="utf-8")
    _run("systemd-analyze", "verify", "--man=no", file)
    report = _run("systemd-analyze", "security", "--offline=true", f"--threshold={_EXPOSURE_MAX}", file)
    print(report.strip().splitlines()[-1].removeprefix("→ "), flush=True)
    return left_out


# ---------------------------------------------------------------- Compose


def run_compose(folder: Path, image: Stage) -> list[str]:
    """The service and the worker on a real PostgreSQL server, which database.sh has set up."""
    binaries = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
    if not binaries or shutil.which("psql") is None:
        return ["Compose's service and worker: PostgreSQL is not on this machine (Debian: apt-get install postgresql)"]
    services = read_compose()
    secret, home = folder / "database_password", folder / "composed"
    secret.write_text('it\'s a "test"\n', encoding="utf-8")
    home.mkdir()
    with PostgresServer(binaries=binaries[-1].parent) as server:
        database = {"PGHOST": "127.0.0.1", "PGPORT": str(server.port), "DATABASE_PASSWORD_FILE": str(secret)}
        _run("createdb", "--username", "postgres", "afterturn", env={**os.environ, **database})
        _run("sh", DEPLOY / "database.sh", env={**os.environ, **database})

        def prepare(name: str) -> tuple[list[str], list[str], dict[str, str]]:
            """The entry point, the command and the variables of a service."""
            service = services[name]
            variables = {**image.environment(), **service["environment"]}
            variables["AFTERTURN_STORE"] = variables["AFTERTURN_STORE"].replace(
                "database:5432", f"127.0.0.1:{server.port}"
            )
            entry = [word.replace("/run/secrets/database_password", str(secret)) for word in service["entrypoint"]]
            command = [re.sub(r"^\$\{\w+:-(.*)\}$", r"\1", word) for word in service["command"]]
            return entry, command, _environment(folder, home, variables)

        entry, command, known = prepare("server")
        token = _run(*entry, "token", "create", "--name", "lab", "--space", "user:ada", env=known)
        own_entry, own_command, own = prepare("worker")
        with subprocess.Popen([*own_entry, *own_command], env=own, cwd=home, stdout=subprocess.DEVNULL) as worker:
            try:
                with _serving([*entry, *command], known) as port:
                    # The server runs no jobs, so the worker makes the vector that finds it.
                    _use(f"http://localhost:{port}", token)
            finally:
                worker.terminate()
                worker.wait(timeout=_WITHIN)
        assert worker.returncode in (0, -signal.SIGTERM), f"The worker ended with code {worker.returncode}."
        check = services["worker"]["healthcheck"]["test"][1].replace("/run/secrets/database_password", str(secret))
        _run("sh", "-c", check, env=known)
        found = json.loads(_run(*entry, "doctor", "--json", env=known))["findings"]
        # That the role is no superuser, and that the server's log gets no texts, are among the findings.
        wrong = [one for one in found if one["level"] != "ok"]
        assert found, "afterturn doctor found nothing at all."
        assert not wrong, f"afterturn doctor warns: {wrong}"
    print("Compose's service and worker run on PostgreSQL, and doctor finds nothing wrong.", flush=True)
    return []


# ---------------------------------------------------------------- Programs


def _environment(folder: Path, home: Path, variables: Mapping[str, str]) -> dict[str, str]:
    """The variables, with the folders of the image as folders of ours, and nothing of this machine."""
    moved = {name: value.replace(_HOME, str(home)) for name, value in variables.items() if name != "PATH"}
    return {"PATH": f"{folder / 'afterturn' / 'bin'}:{os.environ['PATH']}", "HOME": str(home), **moved}


@contextmanager
def _serving(command: Sequence[str], known: Mapping[str, str]) -> Iterator[str]:
    """The port of the server, which SIGTERM must end: uvicorn closes everything, and sends itself the signal again."""
    with subprocess.Popen(
        [*command, "--port", "0"], env=dict(known), cwd=known["HOME"], stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stderr is not None
        try:
            line = child.stderr.readline()
            if not line.startswith("Serving http"):
                raise RuntimeError(f"the server did not start: {line}{child.stderr.read()}")
            yield line.split()[1].removesuffix(".").rpartition(":")[2]
        finally:
            child.send_signal(signal.SIGTERM)
            rest = child.communicate(timeout=_WITHIN)[1]
    assert child.returncode in (0, -signal.SIGTERM), f"the server ended with code {child.returncode}: {rest}"


def _use(url: str, token: str) -> None:
    """Adds a memory and finds it by its meaning, so the wheel has the weights of the embedder, which takes a moment."""

    def ask(path: str, body: Mapping[str, str] | None = None) -> str:
        headers = {"Authorization": f"Bearer {token.strip()}", "Content-Type": "application/json"}
        request = urllib.request.Request(url + path, json.dumps(body).encode() if body else None, headers)
        with urllib.request.urlopen(request, timeout=_WITHIN) as answer:
            return str(answer.read().decode())

    assert ask("/readyz") == "ok\n"
    ask("/api/v1/spaces/user:ada/memories", {"text": "My cat Miso is allergic to chicken."})
    until = time.monotonic() + _WITHIN
    while (found := json.loads(ask("/api/v1/spaces/user:ada/search?query=pet+food&score_min=0")))["missing"]:
        assert time.monotonic() < until, f"The embedder was not loaded within {_WITHIN:g} seconds."
        time.sleep(0.1)
    assert "Miso" in found["hits"][0]["entry"]["text"]


def _run(*command: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    """What it prints. Ends the program for another exit code than 0."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=None if env is None else dict(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nended with code {done.returncode}:\n{done.stdout}")
    return done.stdout


def install_linters() -> None:
    """Does nothing if they are there already."""
    wanted = hashlib.sha256(str(ROOT).encode() + _LOCK.read_bytes()).hexdigest()
    stamp = FOLDER / "installed"
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return
    print("Installing linters into .deploy", flush=True)
    _run(_UV, "venv", "--quiet", "--clear", "--python", sys.executable, FOLDER)
    _run(_UV, "pip", "install", "--quiet", "--python", FOLDER / "bin" / "python", "--requirement", _LOCK)
    stamp.write_text(wanted, encoding="utf-8")


def lock(*, upgrade: bool) -> None:
    """Writes the versions of the linters, and of what the image installs."""
    for target, wanted in (
        (_LOCK, "check-jsonschema\nhadolint-bin\nshellcheck-py\n"),
        (_REQUIREMENTS, f"afterturn[{_EXTRAS}] @ {ROOT.as_uri()}\n"),
    ):
        command = ["pip", "compile", "-", "--universal", "--python-version", "3.11", "--generate-hashes", "--quiet"]
        command += ["--no-annotate", "--no-emit-index-url", "--no-emit-package", "afterturn"]
        command += ["--custom-compile-command", "make lock-deploy", "--output-file", str(target)]
        subprocess.run([_UV, *command, *(["--upgrade"] if upgrade else [])], input=wanted, text=True, check=True)


if __name__ == "__main__":
    sys.exit(main())
