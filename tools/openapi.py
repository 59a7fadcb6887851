"""The OpenAPI document of the server's API: `python tools/openapi.py` prints it, and `make docs` lists its routes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from afterturn.hosts.server.api import PATH, make_api

_PAGE = Path(__file__).resolve().parents[1] / "docs" / "http.md"
_HEADING = "## All routes\n"


def http_page() -> str:
    """docs/http.md as it is written, with the list of routes in the end."""
    written = _PAGE.read_text(encoding="utf-8").partition(_HEADING)[0].rstrip()
    rows = "".join(
        f"| {method.upper()} `{path}` | {_summary(operation)} | {_fields(document, operation)} |\n"
        for document in [make_api(None).openapi()]
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    )
    return (
        f"{written}\n\n{_HEADING}\nThis list is generated from the OpenAPI document by `make docs`. All paths are "
        f"below `{PATH}`; the document has the fields of every answer.\n\n| route | | query, body |\n|---|---|---|\n"
        f"{rows}"
    )


def _summary(operation: dict[str, Any]) -> str:
    first = str(operation["description"]).split("\n\n")[0]
    return " ".join(first.split()).replace("|", "\\|")


def _fields(document: dict[str, Any], operation: dict[str, Any]) -> str:
    """The names of the query and of the body; those that are needed first."""
    query = [
        (one["name"], one.get("required", False)) for one in operation.get("parameters", ()) if one["in"] == "query"
    ]
    names = [*query]
    if (body := operation.get("requestBody")) is not None:
        name = body["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        schema = document["components"]["schemas"][name]
        names += [(name, name in schema.get("required", ())) for name in schema["properties"]]
    ordered = sorted(names, key=lambda one: not one[1])
    return ", ".join(f"`{name}`" if needed else f"[`{name}`]" for name, needed in ordered)


def main() -> None:
    print(json.dumps(make_api(None).openapi(), indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
