"""Values as JSON: field names as in `afterturn.base.types`, times as ISO-8601 in UTC."""

import json
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass

import click

from afterturn.hosts.cli.console import safe_json
from afterturn.hosts.cli.times import iso

_TIMES = frozenset(["at", "run_at", "valid_from", "valid_to"])


def jsonable(value: object) -> object:
    """Dataclasses become objects; what a host put into metadata stays as it is."""
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: _field(item.name, getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, tuple | list | set | frozenset):
        return [jsonable(item) for item in value]
    return value


def print_document(value: object) -> None:
    """One JSON document, indented for people who look at it."""
    click.echo(_dump(jsonable(value), indent=2))


def print_line(value: object) -> None:
    """One line of a JSON Lines stream."""
    click.echo(_dump(jsonable(value), indent=None))


def dump_line(value: object) -> str:
    return safe_json(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _field(name: str, value: object) -> object:
    if (name in _TIMES or name.endswith("_at")) and isinstance(value, int | float):
        return iso(value)
    return jsonable(value)


def _dump(value: object, *, indent: int | None) -> str:
    # A stream in another encoding than UTF-8 would turn some characters into escapes that JSON does not know.
    plain = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
    return safe_json(json.dumps(value, ensure_ascii=plain, indent=indent))
