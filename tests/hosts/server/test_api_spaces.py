"""The verbs of spaces over HTTP."""

import json
from collections.abc import Callable

from served import CAT, QUESTION, Api

ANSWER = {"role": "assistant", "content": "Chicken."}


async def test_a_memory_is_added_once_and_found(api: Api):
    """G6: a repeated add returns the memory that is there."""
    first = await api.post("/spaces/user:ada/memories", text=CAT, metadata={"team": "a"}, pinned=True)
    again = await api.post("/spaces/user:ada/memories", text=CAT)
    assert (first["created"], again["created"]) == (True, False)
    assert again["entry"]["id"] == first["entry"]["id"]
    found = await api.get("/spaces/user:ada/search", query="cat food")
    assert [hit["entry"]["text"] for hit in found["hits"]] == [CAT]
    assert (await api.get("/spaces/user:ada/search", query="cat food", metadata='{"team": "b"}'))["hits"] == []
    assert (await api.get("/spaces"))["spaces"][0]["statements"] == 1


async def test_filters_lanes_and_times_narrow_a_search(api: Api):
    await api.add("Ada lives in Oslo.", occurred_at="2020-01-01T00:00:00Z", project="heron")
    for query in (
        {"kind": "record"},
        {"lane": ["episodic"]},
        {"project": "api"},
        {"since": "2021-01-01T00:00:00Z"},
        {"until": "1500000000"},
        {"as_of": "2019-01-01T00:00:00Z"},
        {"target": "environment"},
        {"pinned": True},
        {"firm": True},
        {"said_in": "c9"},
    ):
        assert (await api.get("/spaces/user:ada/search", query="Oslo", **query))["hits"] == [], query
        if "lane" not in query and "as_of" not in query:
            assert (await api.get("/spaces/user:ada/memories", **query))["memories"] == [], query
    assert (await api.get("/spaces/user:ada/search", query="Oslo", lane=["long_term"], until=1.7e9))["hits"]
    for wrong in ({"as_of": "yesterday"}, {"metadata": "[]"}, {"metadata": '{"a": {}}'}, {"lane": ["x"]}, {"limit": 0}):
        assert await api.status("GET", "/spaces/user:ada/search", params={"query": "x", **wrong}) == 400


async def test_a_list_has_pages(api: Api):
    ids = [await api.add(f"Locker {number} is free.") for number in range(5)]
    seen: list[str] = []
    before: str | None = None
    while True:
        page = await api.get("/spaces/user:ada/memories", limit=2, **({} if before is None else {"before": before}))
        seen += [one["id"] for one in page["memories"]]
        before = page["before"]
        if before is None:
            break
    assert seen == ids[::-1]


async def test_a_change_that_meets_another_one_is_a_conflict(api: Api):
    """M1: nothing is overwritten, and everything can be undone."""
    memory = await api.add("The tests take two minutes.")
    path = f"/spaces/user:ada/memories/{memory}"
    changed = await api.put(path, text="The tests take three minutes.", expected_version=1)
    assert changed["entry"]["version"] == 2
    body = {"text": "The tests take one minute.", "expected_version": 1}
    assert await api.status("PUT", path, json=body) == 409
    history = await api.get(f"{path}/history")
    assert [one["text"] for one in history["versions"]] == [
        "The tests take two minutes.",
        "The tests take three minutes.",
    ]
    undone = await api.post("/spaces/user:ada/undo", target=changed["operation"])
    assert undone["steps"]
    assert (await api.get(path))["text"] == "The tests take two minutes."
    assert (await api.get(path, version=2))["status"] == "undone"
    deleted = await api.ask("DELETE", path)
    assert deleted.json()["entry"]["status"] == "deleted"
    operations = (await api.get("/spaces/user:ada/operations"))["operations"]
    assert [one["verb"] for one in operations] == ["delete", "undo", "update", "add"]


async def test_rules_and_standing_lines_are_switched(api: Api):
    memory = await api.add("Never use npm, we use pnpm here.")
    path = f"/spaces/user:ada/memories/{memory}"
    assert (await api.put(f"{path}/firm", firm=True))["entry"]["firm"]
    assert not (await api.put(f"{path}/firm", firm=False))["entry"]["firm"]
    lines = (await api.get("/spaces/user:ada/standing"))["lines"]
    assert [one["entry"]["id"] for one in lines] == [memory]
    assert (await api.put(f"{path}/standing", hidden=True))["operation"]
    assert (await api.get("/spaces/user:ada/standing"))["lines"] == []
    (hidden,) = (await api.get("/spaces/user:ada/standing", left_out=True))["lines"]
    assert (hidden["entry"]["id"], hidden["left_out"]) == (memory, "hidden")


async def test_forget_says_before_what_will_go(api: Api):
    """M2: every selector; the preview changes nothing."""
    await api.start(QUESTION)
    await api.verb("finish", messages=[*QUESTION, ANSWER])
    (answer, _) = (await api.get("/spaces/user:ada/memories", kind="record"))["memories"]
    memory = await api.add("Miso eats no chicken.", sources=[answer["id"]], speaker="ada")
    for selector, matching in (
        ({"memory": memory}, 1),
        ({"conversation": "c1"}, 2),
        ({"source": answer["id"]}, 1),
        ({"speaker": "ada"}, 1),
        ({"everything": True}, 3),
    ):
        shown = await api.post("/spaces/user:ada/forget/preview", **selector)
        assert shown["matching"] == matching, selector
        assert len(shown["entries"]) == matching
        assert sum(shown["kinds"].values()) == matching
    shown = await api.post("/spaces/user:ada/forget/preview", memory=memory)
    assert [one["id"] for one in shown["sources"]] == [answer["id"]]
    forgotten = await api.post("/spaces/user:ada/forget", memory=memory, sources=True)
    assert forgotten["erased"] >= 2
    assert forgotten["sources"] == [answer["id"]]
    assert await api.status("GET", f"/spaces/user:ada/memories/{memory}") == 404
    assert (await api.post("/spaces/user:ada/forget", everything=True))["state"] in ("erased", "pending")
    assert (await api.get("/spaces/user:ada/memories"))["memories"] == []
    for wrong in ({}, {"memory": memory, "everything": True}, {"speaker": "ada", "sources": True}):
        assert await api.status("POST", "/spaces/user:ada/forget", json=wrong) == 400


async def test_an_export_is_lines_of_json(api: Api):
    """M4: everything held on a space."""
    await api.add(CAT)
    await api.start(QUESTION)
    await api.verb("finish", messages=[*await api.inject(QUESTION), ANSWER])
    answer = await api.ask("GET", "/spaces/user:ada/export")
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    kinds = [next(iter(json.loads(line))) for line in answer.text.splitlines()]
    assert kinds[0] == "afterturn_export"
    assert {"entry", "operation", "step", "conversation", "turn", "block", "recall"} <= set(kinds)


async def test_names_may_have_slashes_and_any_script(connect: Callable[..., Api]):
    space = "project:github.com/ada/メモ リ?&#%"
    api = connect("paths", space="*")
    path = f"/spaces/{quoted(space)}/memories"
    memory = (await api.post(path, text=CAT))["entry"]["id"]
    assert (await api.get(f"{path}/{memory}"))["space"] == space
    assert [one["name"] for one in (await api.get("/spaces"))["spaces"]] == [space]
    talking = api.speaking_in(id="a/b c", owner=space)
    await talking.start(QUESTION, "turn/ü 1")
    assert (await talking.verb("finish", quoted("turn/ü 1"), messages=[*QUESTION, ANSWER]))["recorded"]
    trace = await api.get(f"/conversations/{quoted('a/b c')}/trace", owner=space)
    assert trace["turns"][0]["id"] == "turn/ü 1"
    assert (await api.get(f"/spaces/{quoted(space)}/conversations"))["conversations"] == ["a/b c"]
    assert (await api.get(f"/spaces/{quoted(space)}/conversations", turn="turn/ü 1"))["conversations"] == ["a/b c"]


def quoted(name: str) -> str:
    from urllib.parse import quote

    return quote(name, safe="")


async def test_counts_profile_and_usage(connect: Callable[..., Api]):
    api = connect("all", space="*")
    await api.add("I am a nurse.")
    profile = await api.get("/spaces/user:ada/profile")
    assert [one["name"] for one in profile["subjects"]] == ["user"]
    stats = await api.get("/spaces/user:ada/stats")
    assert stats["entries"] == {"statement.active": 1}
    whole = await api.get("/stats")
    assert (whole["tenant"], whole["spaces"]) == ("default", 1)
    assert "store" not in whole
    assert (await api.get("/usage")) == {"usage": []}
    assert (await api.get("/spaces/user:ada/usage")) == {"usage": []}


async def test_errors_have_one_form(api: Api):
    for method, path, options, status in (
        ("GET", "/spaces/user:ada/memories/06gyhh9w1wh6e297", {}, 404),
        ("GET", "/spaces/user:ada/memories/UPPER", {}, 400),
        ("GET", "/spaces/nonsense/memories", {}, 400),
        ("GET", "/no/such/path", {}, 404),
        ("PATCH", "/spaces", {}, 405),
        ("POST", "/spaces/user:ada/memories", {"content": b"{"}, 400),
        ("POST", "/spaces/user:ada/memories", {"json": {"text": ""}}, 400),
        ("POST", "/spaces/user:ada/memories", {"json": {"text": "x", "typo": 1}}, 400),
        ("POST", "/spaces/user:ada/memories", {"content": rb'{"text": "\ud800"}'}, 400),
        ("POST", "/spaces/user:ada/memories", {"content": rb'{"text": "x", "metadata": {"\ud800": "y"}}'}, 400),
        ("POST", "/spaces/user:ada/memories", {"content": b"[" * 100_000}, 400),
        ("POST", "/spaces/user:ada/memories", {"content": b'{"text": "x", "occurred_at": NaN}'}, 400),
        ("POST", "/turns", {"json": {"conversation": {"id": "c"}, "messages": "text"}}, 400),
        ("POST", "/turns", {"json": {"conversation": {"id": "a\nb"}, "messages": []}}, 400),
    ):
        assert await api.status(method, path, **options) == status, (method, path, options)
