"""The TypeScript client's generated types. `make test-typescript` runs its own tests."""

import json
from pathlib import Path

import pytest

from client_types import TARGET, client_types

CLIENT = Path(__file__).resolve().parent.parent / "clients" / "typescript"


def test_the_types_are_those_of_the_api():
    """Run `make client-types` if this fails."""
    assert TARGET.read_text(encoding="utf-8") == client_types()


def test_the_types_say_what_may_be_left_out_and_what_may_be_null():
    answer = {"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}, "why": {"default": ""}}}
    body = {
        "type": "object",
        "description": "A body.\n\nIt ends a comment: */.",
        "required": ["text"],
        "properties": {
            "text": {"type": "string"},
            "tags": {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
            "kind": {"$ref": "#/components/schemas/Kind"},
        },
    }
    found = client_types(_document(Answer=answer, Body=body, Kind={"type": "string", "enum": ["a", "b"]}))
    assert "export interface Answer {\n  id: string;\n  why: unknown;\n}" in found
    assert "/** A body. It ends a comment: * /. */\nexport interface Body {" in found
    assert "  text: string;\n  tags?: (string | null)[];\n  kind?: Kind;\n" in found
    assert 'export type Kind = "a" | "b";' in found
    assert "  put: { path: { id: string }; query: { limit?: number }; body: Body; answer: Answer };" in found
    assert '  put: ["PUT", "/things/{id}"],' in found


def test_a_schema_that_cannot_be_expressed_is_refused():
    with pytest.raises(ValueError, match="cannot express this schema"):
        client_types(_document(Answer={"allOf": [{"type": "string"}]}, Body={"type": "object"}))


def test_the_client_has_the_licence_of_the_project_and_names_no_registry():
    assert (CLIENT / "LICENSE").read_bytes() == (CLIENT.parents[1] / "LICENSE").read_bytes()
    locked = json.loads((CLIENT / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    assert [name for name, package in locked.items() if "resolved" in package] == []
    wanted = json.loads((CLIENT / "package.json").read_text(encoding="utf-8"))["devDependencies"]
    assert locked[""]["devDependencies"] == wanted


def _document(**schemas: object) -> dict[str, object]:
    parameters = [
        {"in": "path", "name": "id", "required": True, "schema": {"type": "string"}},
        {"in": "query", "name": "limit", "schema": {"type": "integer"}},
    ]

    def content(name: str) -> dict[str, object]:
        return {"content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}}

    operation = {"operationId": "put", "parameters": parameters, "requestBody": content("Body")}
    operation["responses"] = {"200": content("Answer")}
    return {"components": {"schemas": schemas}, "paths": {"/things/{id}": {"put": operation}}}
