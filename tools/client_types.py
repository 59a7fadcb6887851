"""The types of the TypeScript client, made from the server's OpenAPI document: `make client-types` writes them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from afterturn.hosts.server.api import make_api

TARGET = Path(__file__).resolve().parents[1] / "clients" / "typescript" / "src" / "schema.ts"
_JSON = "application/json"
_TYPES = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}
_NAME = re.compile(r"[A-Za-z_$][\w$]*")

Schema = Mapping[str, Any]


def client_types(document: Schema | None = None) -> str:
    """The whole file. Raises ValueError for a schema that this generator does not know."""
    document = make_api(None).openapi() if document is None else document
    schemas = document["components"]["schemas"]
    sent = frozenset(_names_in_requests(document))
    parts = ["// Generated from the OpenAPI document by `make client-types`. Do not edit it."]
    parts += [_declaration(name, schemas[name], is_sent=name in sent) for name in sorted(schemas)]
    routes = sorted(_routes(document))
    parts.append(
        "/** What each route takes and answers, by the operationId of the OpenAPI document. */\n"
        "export interface Routes {\n" + "".join(f"  {name}: {shape};\n" for name, _, _, shape in routes) + "}"
    )
    methods = "".join(f"  {name}: [{json.dumps(method)}, {json.dumps(path)}],\n" for name, method, path, _ in routes)
    parts.append(f"export const ROUTES = {{\n{methods}}} as const;")
    return "\n\n".join(parts) + "\n"


def _declaration(name: str, schema: Schema, *, is_sent: bool) -> str:
    about = _comment(schema, "")
    if schema.get("type") != "object":
        return f"{about}export type {name} = {_type(schema)};"
    return f"{about}export interface {name} {_members(schema, is_sent=is_sent)}"


def _members(schema: Schema, *, is_sent: bool) -> str:
    """What is sent may leave out fields that have a default; an answer has all fields."""
    needed = schema.get("required", ())
    lines = [
        f"{_comment(field, '  ')}  {name}{'?' if is_sent and name not in needed else ''}: {_type(field)};\n"
        for name, field in schema.get("properties", {}).items()
    ]
    return "{\n" + "".join(lines) + "}" if lines else "{}"


def _type(schema: Schema) -> str:
    if reference := schema.get("$ref"):
        return str(reference).rpartition("/")[2]
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return " | ".join(map(json.dumps, schema["enum"]))
    if options := schema.get("anyOf"):
        return " | ".join(dict.fromkeys(map(_type, options)))
    kind = schema.get("type")
    if kind == "array":
        found = _type(schema["items"])
        return f"({found})[]" if " | " in found else f"{found}[]"
    if kind == "object":
        more = schema.get("additionalProperties", True)
        return f"Record<string, {'unknown' if more is True else _type(more)}>"
    if kind is None and not {"allOf", "oneOf", "not", "prefixItems"} & schema.keys():
        return "unknown"
    if kind not in _TYPES:
        raise ValueError(f"The client's types cannot express this schema: {json.dumps(schema)}")
    return _TYPES[kind]


def _routes(document: Schema) -> Iterator[tuple[str, str, str, str]]:
    """The operationId, method, path and TypeScript type of each route."""
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            parameters = operation.get("parameters", ())
            places = {place: _object([one for one in parameters if one["in"] == place]) for place in ("path", "query")}
            sent = _type_of_content(operation.get("requestBody", {}), otherwise="null")
            answer = _type_of_content(operation["responses"]["200"], otherwise="string")
            shape = f"{{ path: {places['path']}; query: {places['query']}; body: {sent}; answer: {answer} }}"
            yield operation["operationId"], method.upper(), path, shape


def _type_of_content(described: Schema, *, otherwise: str) -> str:
    content = described.get("content", {}).get(_JSON)
    return otherwise if content is None else _type(content["schema"])


def _object(parameters: list[Schema]) -> str:
    fields = [
        f"{one['name']}{'' if one.get('required') else '?'}: {_type(one['schema'])}"
        for one in parameters
        if _NAME.fullmatch(one["name"])
    ]
    return f"{{ {'; '.join(fields)} }}" if fields else "{}"


def _names_in_requests(document: Schema) -> set[str]:
    """The schemas that requests contain."""
    schemas, found = document["components"]["schemas"], set[str]()
    waiting = [
        operation["requestBody"]
        for operations in document["paths"].values()
        for operation in operations.values()
        if "requestBody" in operation
    ]
    while waiting:
        names = set(re.findall(r"#/components/schemas/(\w+)", json.dumps(waiting.pop()))) - found
        found |= names
        waiting += [schemas[name] for name in names]
    return found


def _comment(schema: Schema, indent: str) -> str:
    text = " ".join(str(schema.get("description", "")).split()).replace("*/", "* /")
    return f"{indent}/** {text} */\n" if text else ""


def main() -> None:
    TARGET.write_text(client_types(), encoding="utf-8")


if __name__ == "__main__":
    main()
