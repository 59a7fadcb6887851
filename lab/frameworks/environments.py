"""Creates the environments of the frameworks from their lock files, below .frameworks/, which git ignores.

Most frameworks cannot be installed together: they need different versions of the same packages.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".frameworks"
LOCKS = Path(__file__).parent / "locks"
_UV = Path(sys.executable).parent / "uv"
_NPM_FILES = ("package.json", "package-lock.json")
_TESTING = ("hypothesis", "psutil", "pytest", "pytest-asyncio", "pytest-timeout")


@dataclass(frozen=True, slots=True)
class Environment:
    """`extras` are those of afterturn, `more` are packages that only the tests need. `package` names its version."""

    name: str
    title: str
    package: str
    extras: tuple[str, ...]
    more: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    # Modules of afterturn.frameworks; that of the same name if none is given.
    adapters: tuple[str, ...] | None = None
    # A folder beside this file with package.json and package-lock.json, for tests that also run a package from npm.
    npm: str | None = None

    @property
    def lock(self) -> Path:
        return LOCKS / f"{self.name}.txt"

    @property
    def npm_files(self) -> list[Path]:
        return [Path(__file__).parent / self.npm / name for name in _NPM_FILES] if self.npm else []

    @property
    def python(self) -> Path:
        return FOLDER / self.name / "bin" / "python"

    @property
    def test_files(self) -> list[Path]:
        names = self.tests or (self.name,)
        return [ROOT / "tests" / "real_frameworks" / f"test_{name}.py" for name in names]

    @property
    def adapter_files(self) -> list[Path]:
        names = (self.name,) if self.adapters is None else self.adapters
        return [ROOT / "src" / "afterturn" / "frameworks" / f"{name}.py" for name in names]

    @property
    def version(self) -> str:
        """The locked version of the framework."""
        lines = self.lock.read_text(encoding="utf-8").splitlines()
        return next(line.partition("==")[2].split()[0] for line in lines if line.startswith(f"{self.package}=="))


ENVIRONMENTS = {
    one.name: one
    for one in (
        Environment(
            "langchain",
            "LangChain",
            "langchain",
            ("langchain", "langgraph"),
            ("langchain-openai", "langgraph-checkpoint-sqlite"),
            ("langchain", "langgraph_store", "langgraph_store_memory", "import_langgraph"),
            ("langchain", "langgraph_store"),
        ),
        Environment(
            "openai_agents",
            "OpenAI Agents SDK",
            "openai-agents",
            ("openai-agents",),
            adapters=("openai_agents", "openai_session"),
        ),
        Environment("pydantic_ai", "Pydantic AI", "pydantic-ai-slim", ("pydantic-ai",), ("pydantic-ai-slim[openai]",)),
        Environment("google_adk", "Google ADK", "google-adk", ("google-adk",)),
        Environment("claude_agent", "Claude Agent SDK", "claude-agent-sdk", ("claude-agent-sdk",)),
        Environment(
            "agent_framework",
            "Microsoft Agent Framework",
            "agent-framework-core",
            ("agent-framework",),
            ("agent-framework-openai", "agent-framework-orchestrations"),
        ),
        Environment(
            "strands",
            "Strands Agents",
            "strands-agents",
            ("strands",),
            ("strands-agents[openai]",),
            ("strands", "bedrock"),
        ),
        Environment("anthropic", "Anthropic SDK", "anthropic", ("anthropic",), adapters=("anthropic_tool",)),
        Environment(
            "llama_index", "LlamaIndex", "llama-index-core", ("llama-index",), ("llama-index-llms-openai-like",)
        ),
        Environment("crewai", "CrewAI", "crewai", ("crewai",)),
        Environment("agno", "Agno", "agno", ("agno",), ("openai",)),
        Environment(
            "mem0",
            "mem0",
            "mem0ai",
            ("server",),
            ("mem0ai>=2.2,<3",),
            ("mem0", "import_mem0", "mem0_service"),
            (),
            npm="mem0_node",
        ),
    )
}


def choose(names: Sequence[str]) -> list[Environment]:
    """All of them if none is named. Ends the program for a name that is unknown."""
    if unknown := [name for name in names if name not in ENVIRONMENTS]:
        sys.exit(f"{unknown[0]!r} is not an environment. Choose from: {', '.join(ENVIRONMENTS)}.")
    return [ENVIRONMENTS[name] for name in names] or list(ENVIRONMENTS.values())


def install(environment: Environment) -> None:
    """Does nothing if it is there already. Raises CalledProcessError if a package cannot be installed."""
    FOLDER.mkdir(exist_ok=True)
    with _alone(environment):
        stamp = FOLDER / environment.name / "installed"
        if stamp.is_file() and stamp.read_text(encoding="utf-8") == _wanted(environment):
            return
        print(f"Installing {environment.title} into .frameworks/{environment.name}", flush=True)
        folder, python = str(FOLDER / environment.name), str(environment.python)
        _run("venv", "--quiet", "--clear", "--python", sys.executable, folder)
        _run("pip", "install", "--quiet", "--python", python, "--requirement", str(environment.lock))
        _run("pip", "install", "--quiet", "--python", python, "--no-deps", "--editable", str(ROOT))
        if environment.npm:
            _install_npm(environment)
        stamp.write_text(_wanted(environment), encoding="utf-8")


def _install_npm(environment: Environment) -> None:
    """Installs into node_modules of the environment. The lock file names no registry: npm asks the configured one."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        sys.exit("npm and Node 18 or newer were not found. On Debian: apt-get install npm")
    for file in environment.npm_files:
        shutil.copy(file, FOLDER / environment.name)
    command = "npm install --no-save --no-audit --no-fund --ignore-scripts --legacy-peer-deps --loglevel=error"
    folder = FOLDER / environment.name
    subprocess.run(command.split(), cwd=folder, stdin=subprocess.DEVNULL, check=True)


def lock(environment: Environment, *, upgrade: bool) -> None:
    """Writes the exact versions of everything that the environment has."""
    extras = f"[{','.join(environment.extras)}]" if environment.extras else ""
    wanted = [f"afterturn{extras} @ {ROOT.as_uri()}"]
    given = "\n".join([*wanted, *environment.more, *_TESTING])
    command = ["pip", "compile", "-", "--quiet", "--universal", "--python-version", "3.11", "--no-header"]
    command += ["--no-annotate", "--no-emit-index-url", "--no-emit-package", "afterturn"]
    command += ["--output-file", str(environment.lock), *(["--upgrade"] if upgrade else [])]
    subprocess.run([_UV, *command], input=given, text=True, check=True, cwd=ROOT)


def _run(*arguments: str) -> None:
    subprocess.run([_UV, *arguments], check=True, stdin=subprocess.DEVNULL, cwd=ROOT)


def _wanted(environment: Environment) -> str:
    """The folder is part of it: an environment that was moved cannot be used."""
    files = [environment.lock, ROOT / "pyproject.toml", *environment.npm_files]
    return hashlib.sha256(b"\0".join([str(ROOT).encode(), *(file.read_bytes() for file in files)])).hexdigest()


@contextmanager
def _alone(environment: Environment) -> Iterator[None]:
    """If two processes install it at once, the second waits and then has nothing to do."""
    with (FOLDER / f"{environment.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
