"""Checks that a framework is installed, in a version that its adapter was tested with: the ranges of the extras."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import metadata

from afterturn.errors import ExtraMissing
from afterturn.log import logger

_REQUIREMENT = re.compile(
    r"(?P<name>[\w.-]+)\s*(?:\[[^\]]*\])?\s*\(?(?P<range>[^;)]*)\)?\s*;.*extra\s*==\s*['\"](?P<extra>[^'\"]+)"
)
# The extras of frameworks have no other bounds.
_BOUND = re.compile(r"(>=|<)\s*([\d.]+)")
_checked: set[str] = set()


def check_framework(extra: str) -> None:
    """Raises ExtraMissing if a package of the extra is missing. Warns once of a version outside the tested range."""
    for name, bounds in _required_by(extra):
        try:
            installed = metadata.version(name)
        except metadata.PackageNotFoundError as error:
            raise ExtraMissing(f"{name} is not installed. Run `pip install 'afterturn[{extra}]'`.") from error
        version = _release(installed)
        is_tested = all((version >= _release(limit)) is (sign == ">=") for sign, limit in _BOUND.findall(bounds))
        if name not in _checked and not is_tested:
            _checked.add(name)
            logger.warning(
                "%s %s is installed; afterturn was tested with %s%s. It may work, but install that if it does not.",
                *(name, installed, name, bounds),
            )


def _required_by(extra: str) -> Iterator[tuple[str, str]]:
    """Names and ranges. Empty if afterturn runs without being installed, from a source tree."""
    try:
        requirements = metadata.requires("afterturn") or []
    except metadata.PackageNotFoundError:
        return
    for requirement in requirements:
        found = _REQUIREMENT.match(requirement)
        if found is not None and found["extra"] == extra:
            yield found["name"], found["range"].strip()


def _release(version: str) -> tuple[int, ...]:
    """The numbers at the beginning: 1.4.0rc1 counts as 1.4.0, and 2 is the same as 2.0.0."""
    numbers = re.match(r"\d+(?:\.\d+)*", version)
    parts = [int(part) for part in numbers[0].split(".")] if numbers else []
    return tuple([*parts, 0, 0, 0][:3])
