"""mem0's routes without an SDK: the self-hosted shape, input that no SDK sends, and what a token may reach."""

import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from afterturn.config import Config
from afterturn.hosts.server.app import ServerOptions, Service, make_app
from afterturn.hosts.server.grant import make_grant
from afterturn.hosts.server.tokens import create_token

HOST = "testserver"
SECRET = "Bob keeps the spare key under the third pot"


def make_token(space: str, *, tenant: str = "default", **options: Any) -> str:
    return create_token(make_grant(Config(tenant=tenant), space=space, **options), name=space)[1]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """One server for all tests here; each has users of its own."""
    folder = tmp_path_factory.mktemp("mem0")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AFTERTURN_STATE", str(folder / "state"))
        config = Config(embedder="none")
        options = ServerOptions("127.0.0.1", [HOST], parts=frozenset({"mem0"}))
        with TestClient(make_app(Service(lambda: (folder / "memory.db", config), options))) as found:
            yield found


class Caller:
    def __init__(self, client: TestClient, token: str) -> None:
        self._client = client
        self._token = token

    def __call__(self, method: str, path: str, body: object = None, **query: str) -> Any:
        """The answer's JSON. Raises AssertionError if it is an error."""
        answer = self.send(method, path, body, **query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def send(self, method: str, path: str, body: object = None, **query: str) -> Any:
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        headers = {"X-API-Key": self._token}
        return self._client.request(method, f"/mem0{path}", content=content, params=query, headers=headers)


@pytest.fixture
def everybody(client: TestClient) -> Caller:
    return Caller(client, make_token("*"))


def test_the_self_hosted_shape_has_all_its_routes(everybody: Caller):
    said = {"messages": [{"role": "user", "content": "Ada likes tea"}], "user_id": "small", "infer": False}
    (added,) = everybody("POST", "/memories", said)["results"]
    assert (added["memory"], added["event"]) == ("Ada likes tea", "ADD")
    assert [one["id"] for one in everybody("GET", "/memories", user_id="small")["results"]] == [added["id"]]
    found = everybody("POST", "/search", {"query": "tea", "user_id": "small", "threshold": 0.0})["results"]
    assert [one["memory"] for one in found] == ["Ada likes tea"]
    path = f"/memories/{added['id']}"
    assert everybody("PUT", path, {"text": "Ada likes coffee"})["message"] == "Memory updated successfully!"
    assert everybody("GET", path)["memory"] == "Ada likes coffee"
    assert [row["event"] for row in everybody("GET", f"{path}/history")] == ["ADD", "UPDATE"]
    assert everybody("DELETE", path)["message"] == "Memory deleted successfully!"
    everybody("POST", "/memories", {**said, "infer": True})
    assert everybody("DELETE", "/memories", user_id="small")["deleted"] == 1
    assert everybody("GET", "/memories", user_id="small")["results"] == []


def test_a_token_sees_only_its_own_events(client: TestClient, everybody: Caller):
    """B1: events of others are neither listed nor read."""
    ada, bob = Caller(client, make_token("user:e-ada")), Caller(client, make_token("user:e-bob"))
    ids = {}
    for name, caller in (("e-ada", ada), ("e-bob", bob)):
        body = {"messages": [{"role": "user", "content": f"I am {name}."}], "user_id": name}
        ids[name] = caller("POST", "/v3/memories/add/", body)["event_id"]
    assert [one["id"] for one in ada("GET", "/v1/events/")["results"]] == [ids["e-ada"]]
    assert {one["id"] for one in everybody("GET", "/v1/events/")["results"]} >= set(ids.values())
    assert ada.send("GET", f"/v1/event/{ids['e-bob']}/").status_code == 404
    assert ada("GET", f"/v1/event/{ids['e-ada']}/")["event_type"] == "ADD"


def test_delete_all_refuses_what_it_does_not_know(everybody: Caller):
    """An id that is misspelt must not widen what is deleted."""
    body = {"messages": [{"role": "user", "content": "kept"}], "user_id": "wide", "infer": False}
    everybody("POST", "/v3/memories/add/", body)
    for query in ({}, {"user_id": "wide", "runid": "r"}, {"user_id": "wide", "filters": "{}"}, {"user_id": "*"}):
        answer = everybody.send("DELETE", "/v1/memories/", **query)
        assert (answer.status_code, bool(answer.json()["detail"])) == (400, True)
    assert [one["memory"] for one in everybody("GET", "/memories", user_id="wide")["results"]] == ["kept"]


@pytest.mark.parametrize(
    "body",
    [b"{", b"[]", b'"x"', b"\xff", b'{"query": NaN}', b'{"top_k": 1e999}', b'{"query": "\\ud800"}', b"[" * 100_000],
)
def test_a_body_that_is_not_a_json_object_is_refused(everybody: Caller, body: bytes):
    answer = everybody.send("POST", "/v3/memories/search/", body)
    assert answer.status_code == 400
    assert answer.json()["detail"] == answer.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/v1/ping", "/v9/", "/memories/", "/", "/v1/memories/x/y/z/"])
def test_an_unknown_route_is_answered_with_json(everybody: Caller, path: str):
    answer = everybody.send("GET", path)
    assert answer.status_code == 404
    assert "mem0's API has no" in answer.json()["detail"]


def test_a_text_may_be_as_long_as_mem0_allows(everybody: Caller):
    text = "The kettle is red. " * 3000
    body = {"messages": [{"role": "user", "content": text}], "user_id": "long", "infer": False}
    everybody("POST", "/v3/memories/add/", body)
    assert everybody("GET", "/memories", user_id="long")["results"][0]["memory"].startswith("The kettle is red.")
    body["messages"] = [{"role": "user", "content": text * 2}]
    answer = everybody.send("POST", "/v3/memories/add/", body)
    assert (answer.status_code, answer.json()["error"]["type"]) == (413, "TooLarge")


_WEIRD: tuple[Any, ...] = (
    None,
    True,
    -1,
    1.5,
    10**400,
    "",
    " ",
    "*",
    "a b",
    "\0",
    "x" * 5000,
    [],
    [1],
    {},
    {"a": {"b": []}},
)
_FIELDS = {
    "/v3/memories/add/": "messages user_id agent_id app_id run_id metadata infer timestamp expiration_date filters",
    "/v3/memories/search/": "query filters top_k threshold fields categories show_expired reference_date user_id",
    "/v3/memories/": "filters start_date end_date categories fields keywords show_expired user_id app_id",
    "/v1/feedback/": "memory_id feedback feedback_reason",
    "/v2/profiles/jobs/": "operation entity_type entity_id",
    "/memories": "messages user_id metadata infer",
}


@pytest.mark.parametrize("path", _FIELDS)
def test_no_value_of_a_field_fails_the_server_or_shows_what_others_have(
    client: TestClient, everybody: Caller, path: str
):
    """B1: with a token of one user, each field has each of many wrong values, and the filters name another user."""
    stored = {"messages": [{"role": "user", "content": SECRET}], "user_id": "w-bob", "infer": False}
    everybody("POST", "/memories", stored)
    ada = Caller(client, make_token("user:w-ada"))
    whole = {"messages": [{"role": "user", "content": "I like tea."}], "query": "key", "user_id": "w-ada"}
    whole |= {"operation": "trigger", "entity_type": "user", "entity_id": "w-ada"}
    seen = set()
    for field, value in itertools.product(_FIELDS[path].split(), (*_WEIRD, {"user_id": "w-bob"}, "w-bob")):
        answer = ada.send("POST", path, {**whole, field: value})
        assert answer.status_code < 500, (field, value, answer.text)
        assert "third pot" not in answer.text
        seen.add(answer.status_code)
    assert 400 in seen or 404 in seen
    assert [one["memory"] for one in everybody("GET", "/memories", user_id="w-bob")["results"]] == [SECRET]


def test_the_audit_log_names_the_spaces_that_a_request_has_reached(client: TestClient):
    caller = Caller(client, make_token("user:audited"))
    caller("POST", "/search", {"query": "tea", "user_id": "audited"})
    caller.send("POST", "/search", {"query": "tea", "user_id": "somebody"})
    body = {"messages": [{"role": "user", "content": "I like tea."}], "user_id": "audited"}
    caller("POST", "/memories", body)
    log = (Path(os.environ["AFTERTURN_STATE"]) / "audit.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in log.splitlines()]
    mine = [one for one in rows if one["name"] == "user:audited"]
    assert [(one.get("reads"), one.get("writes"), one["status"]) for one in mine] == [
        (["user:audited"], None, 200),
        (["user:somebody"], None, 403),
        (None, ["user:audited"], 200),
    ]
    assert "tea" not in log


def test_metrics_count_each_route_by_its_name(client: TestClient):
    token = make_token("user:counted", tenant="counted")
    Caller(client, token)("POST", "/search", {"query": "tea", "user_id": "counted"})
    metrics = client.get("/metrics", headers={"X-API-Key": token}).text
    assert 'afterturn_http_requests_total{method="POST",route="mem0_search",status="200"} 1' in metrics.splitlines()


def test_a_token_for_one_conversation_adds_to_that_run_alone(client: TestClient):
    caller = Caller(client, make_token("user:bound", conversation="support-42"))
    body = {"messages": [{"role": "user", "content": "I like tea."}], "user_id": "bound"}
    for more in ({}, {"run_id": "support-43"}):
        assert caller.send("POST", "/v3/memories/add/", {**body, **more}).status_code == 403
    assert caller("POST", "/v3/memories/add/", {**body, "run_id": "support-42"})["status"] == "PENDING"


def test_a_token_for_one_conversation_removes_nothing_else(client: TestClient):
    everything = Caller(client, make_token("user:bound"))
    everything("POST", "/v3/memories/add/", {"messages": "I like tea.", "user_id": "bound", "infer": False})
    caller = Caller(client, make_token("user:bound", conversation="support-42"))
    assert caller.send("DELETE", "/v2/entities/user/bound/").status_code == 403
    assert caller.send("DELETE", "/v1/memories/", user_id="bound").status_code == 403
    assert caller.send("DELETE", "/v1/memories/", user_id="bound", run_id="support-43").status_code == 403
    assert caller("DELETE", "/v1/memories/", user_id="bound", run_id="support-42")["message"]
    assert everything("POST", "/v3/memories/", {"filters": {"user_id": "bound"}})["count"] == 1


def test_a_long_page_number_or_a_strange_id_is_refused(everybody: Caller):
    for query in ({"page": "0"}, {"page": "9" * 50}, {"page_size": "1001"}, {"page": "²"}, {"page": "x"}):
        assert everybody.send("POST", "/v3/memories/", {"filters": {"user_id": "p"}}, **query).status_code == 400
    for memory_id in ("x", "-", "x-dXNlcjo", "x-cHJvamVjdDp4", "%00-dXNlcjphZGE", "%2e%2e", "x" * 5000):
        for method in ("GET", "PUT", "DELETE"):
            answer = everybody.send(method, f"/v1/memories/{memory_id}/", {"text": "x"} if method == "PUT" else None)
            assert answer.status_code == 404, (memory_id, answer.text)
