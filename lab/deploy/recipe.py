"""Reads what deploy/ says to run: the stages of the Dockerfile, the services of compose.yaml, the unit of systemd."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"


@dataclass(slots=True)
class Stage:
    """The instructions of one FROM, in order. `entrypoint`, `command` and `health` are lists of words."""

    instructions: list[tuple[str, str]] = field(default_factory=list)

    def find(self, name: str) -> list[str]:
        return [rest for instruction, rest in self.instructions if instruction == name]

    def words(self, name: str) -> list[str]:
        """The last such instruction in its JSON form. Raises ValueError without one."""
        found = self.find(name)
        if not found or "[" not in found[-1]:
            raise ValueError(f"The last stage of the Dockerfile has no {name} with a list of words.")
        words: list[str] = json.loads(found[-1][found[-1].index("[") :])
        return words

    def environment(self) -> dict[str, str]:
        pairs = (word.partition("=") for rest in self.find("ENV") for word in shlex.split(rest))
        return {name: value for name, _, value in pairs}


def read_stages(text: str) -> list[Stage]:
    """Without comments. Raises ValueError for an instruction before the first FROM, other than ARG."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    stages: list[Stage] = []
    for line in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines():
        name, _, rest = line.partition(" ")
        if name == "FROM":
            stages.append(Stage())
        elif stages:
            stages[-1].instructions.append((name, rest.strip()))
        elif name != "ARG":
            raise ValueError(f"{line!r} is before the first FROM.")
    return stages


def read_compose() -> dict[str, Any]:
    """The services by name, with `$$` as the shell gets it."""
    document = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8").replace("$$", "$"))
    services: dict[str, Any] = document["services"]
    return services


def read_unit(text: str) -> dict[str, list[str]]:
    """All values of each key, of all sections."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found
