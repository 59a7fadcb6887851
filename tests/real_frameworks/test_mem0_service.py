"""mem0's official SDKs for Python and Node, unchanged, against a real `afterturn serve`: every call, and what is
refused."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mem0_sdks import SDKS, Mem0Service, NodeSdk, PythonSdk, SdkError, serve

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
Sdk = PythonSdk | NodeSdk
Connect = Callable[[str], Sdk]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mem0Service]:
    """One for all tests here; each has users of its own."""
    folder = tmp_path_factory.mktemp("mem0")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AFTERTURN_STATE", str(folder / "state"))
        patch.setenv("MEM0_TELEMETRY", "false")
        patch.setenv("MEM0_DIR", str(folder / "mem0"))
        patch.setenv("HOME", str(folder))
        Mem0Service("").token("user:nobody")
        with serve(folder) as running:
            yield running


@pytest.fixture(params=SDKS)
def name(request: pytest.FixtureRequest) -> str:
    """The SDK, which is also a part of the users' names."""
    return str(request.param)


@pytest.fixture
def connect(service: Mem0Service, name: str) -> Iterator[Connect]:
    """Opens the SDK with a token."""
    opened: list[Sdk] = []

    def open_one(token: str) -> Sdk:
        opened.append(SDKS[name](service.url, token))
        return opened[-1]

    yield open_one
    for sdk in opened:
        sdk.close()


@pytest.fixture
def sdk(service: Mem0Service, connect: Connect) -> Sdk:
    """It serves many users, as a program with mem0's SDK does."""
    return connect(service.token("*"))


def add(sdk: Sdk, text: str, **options: Any) -> str:
    """Stores a memory word for word, and returns its id."""
    added = sdk.call("add", [{"role": "user", "content": text}], infer=False, **options)
    assert added["status"] == "SUCCEEDED"
    (one,) = added["results"]
    assert (one["data"], one["event"]) == ({"memory": text}, "ADD")
    return str(one["id"])


def texts(answer: Any) -> list[str]:
    return [one["memory"] for one in answer["results"]]


def refused(call: Callable[..., Any], *args: Any, **options: Any) -> SdkError:
    with pytest.raises(SdkError) as caught:
        call(*args, **options)
    return caught.value


def test_what_is_learned_from_an_add_is_in_its_event(service: Mem0Service, sdk: Sdk, name: str):
    user, said = f"event-{name}", [{"role": "user", "content": "I live in Berlin."}]
    added = sdk.call("add", said, user_id=user, metadata={"deep": {"a_b": [1]}})
    assert added["status"] == "PENDING"
    event = service.event(added["event_id"], service.token("*"))
    assert (event["id"], event["event_type"], event["status"]) == (added["event_id"], "ADD", "SUCCEEDED")
    (learned,) = event["results"]
    assert (learned["event"], learned["data"]) == ("ADD", {"memory": "The user lives in Berlin"})
    found = sdk.call("get", learned["id"])
    assert (found["memory"], found["user_id"], found["metadata"]) == (
        "The user lives in Berlin",
        user,
        {"deep": {"a_b": [1]}},
    )


def test_a_search_returns_the_best_with_their_scores(sdk: Sdk, name: str):
    user = f"search-{name}"
    add(sdk, "Ada lives in Oslo", user_id=user, metadata={"kind": "home"})
    add(sdk, "Ada drinks oolong", user_id=user, metadata={"kind": "drink"})
    found = sdk.call("search", "Where does Ada live?", filters={"user_id": user}, top_k=1)
    (hit,) = found["results"]
    assert (hit["memory"], hit["user_id"], hit["agent_id"], hit["metadata"]) == (
        "Ada lives in Oslo",
        user,
        None,
        {"kind": "home"},
    )
    assert 0.3 < hit["score"] <= 1
    assert set(hit["score_breakdown"]) == {"semantic", "bm25", "entity"}
    only = sdk.call("search", "Where does Ada live?", filters={"user_id": user}, fields=["memory"], top_k=1)
    assert only["results"] == [{"memory": "Ada lives in Oslo"}]


@pytest.mark.parametrize(
    "condition, wanted",
    [
        ({"city": "Oslo"}, {"one", "two"}),
        ({"metadata": {"city": "Oslo"}}, {"one", "two"}),
        ({"OR": [{"n": {"gte": 3}}, {"n": {"lt": 2}}]}, {"one", "three"}),
        ({"NOT": [{"city": "Oslo"}]}, {"three"}),
        ({"n": {"in": [2, 3]}}, {"two", "three"}),
        ({"city": {"ne": "Oslo"}}, {"three"}),
        ({"city": {"icontains": "OS"}}, {"one", "two"}),
        ({"keywords": {"contains": "two"}}, {"two"}),
        ({"app_id": "shop"}, {"three"}),
        ({"agent_id": "guide"}, {"one"}),
        ({"created_at": {"gt": "2999-01-01"}}, set()),
    ],
)
def test_filters_have_the_operators_of_the_platform(sdk: Sdk, name: str, condition: dict, wanted: set[str]):
    user = f"filters-{name}"
    if not sdk.call("get_all", filters={"user_id": user})["results"]:
        add(sdk, "one", user_id=user, agent_id="guide", metadata={"city": "Oslo", "n": 1})
        add(sdk, "two", user_id=user, metadata={"city": "Oslo", "n": 2})
        add(sdk, "three", user_id=user, app_id="shop", metadata={"city": "Rome", "n": 3})
    found = sdk.call("get_all", filters={"AND": [{"user_id": user}, condition]})
    assert set(texts(found)) == wanted


def test_all_memories_come_in_pages(sdk: Sdk, name: str):
    user = f"pages-{name}"
    for number in range(5):
        add(sdk, f"Locker {number} is free", user_id=user)
    pages = [sdk.call("get_all", filters={"user_id": user}, page=number, page_size=2) for number in (1, 2, 3, 4)]
    assert [len(page["results"]) for page in pages] == [2, 2, 1, 0]
    assert [page["count"] for page in pages] == [5] * 4
    assert len({text for page in pages for text in texts(page)}) == 5
    assert (pages[0]["previous"], pages[2]["next"]) == (None, None)
    assert "page=2" in pages[0]["next"]
    assert "page=1" in pages[1]["previous"]


def test_a_memory_is_updated_and_its_history_says_so(sdk: Sdk, name: str):
    user = f"update-{name}"
    memory_id = add(sdk, "Likes tea", user_id=user, metadata={"a": 1})
    sdk.update(memory_id, text="Likes coffee", metadata={"b": 2}, expiration_date="2999-01-01")
    found = sdk.call("get", memory_id)
    assert (found["memory"], found["metadata"], found["expiration_date"]) == (
        "Likes coffee",
        {"a": 1, "b": 2},
        "2999-01-01",
    )
    rows = sdk.call("history", memory_id)
    assert [(row["event"], row["old_memory"], row["new_memory"]) for row in rows] == [
        ("ADD", None, "Likes tea"),
        ("UPDATE", "Likes tea", "Likes coffee"),
    ]
    assert {row["memory_id"] for row in rows} == {memory_id}


def test_a_deleted_memory_is_not_found(sdk: Sdk, name: str):
    memory_id = add(sdk, "Likes tea", user_id=f"delete-{name}")
    assert "deleted" in sdk.call("delete", memory_id)["message"]
    for call in (
        lambda: sdk.call("get", memory_id),
        lambda: sdk.call("delete", memory_id),
        lambda: sdk.update(memory_id, text="Likes coffee"),
    ):
        error = refused(call)
        assert error.name == "MemoryNotFoundError"
        assert "not found" in str(error)
    assert [row["event"] for row in sdk.call("history", memory_id)] == ["ADD", "DELETE"]


def test_delete_all_deletes_what_its_ids_name_and_nothing_else(sdk: Sdk, name: str):
    user, other = f"all-{name}", f"all-other-{name}"
    add(sdk, "in the shop", user_id=user, app_id="shop")
    add(sdk, "on the trip", user_id=user, run_id="trip")
    add(sdk, "at home", user_id=user)
    add(sdk, "of the other", user_id=other, run_id="trip")
    add(sdk, "of nobody", run_id=f"trip-{name}")

    def left(**ids: str) -> set[str]:
        return set(texts(sdk.call("get_all", filters=ids)))

    sdk.call("delete_all", user_id=user, app_id="shop")
    assert left(user_id=user) == {"on the trip", "at home"}
    sdk.call("delete_all", user_id=user, run_id="trip")
    assert left(user_id=user) == {"at home"}
    sdk.call("delete_all", run_id=f"trip-{name}")
    assert left(run_id=f"trip-{name}") == set()
    sdk.call("delete_all", user_id=user)
    assert (left(user_id=user), left(user_id=other)) == (set(), {"of the other"})


def test_batches_update_and_delete(sdk: Sdk, name: str):
    user = f"batch-{name}"
    first, second, third = (add(sdk, text, user_id=user) for text in ("one", "two", "three"))
    key = "memoryId" if isinstance(sdk, NodeSdk) else "memory_id"
    changes = [{key: first, "text": "ONE!"}, {key: second, "text": "TWO!"}]
    assert sdk.call("batch_update", changes)["message"] == "Successfully updated 2 memories"
    assert set(texts(sdk.call("get_all", filters={"user_id": user}))) == {"ONE!", "TWO!", "three"}
    assert sdk.batch_delete(first, third)["message"] == "Successfully deleted 2 memories"
    assert texts(sdk.call("get_all", filters={"user_id": user})) == ["TWO!"]
    assert refused(sdk.batch_delete, second, third).name == "MemoryNotFoundError"
    assert texts(sdk.call("get_all", filters={"user_id": user})) == ["TWO!"]


def test_users_are_listed_and_deleted_for_good(service: Mem0Service, connect: Connect, name: str):
    sdk = connect(service.token("*", tenant=f"users-{name}"))
    add(sdk, "Likes tea", user_id="ada")
    add(sdk, "Likes rum", user_id="bob")
    memory_id = add(sdk, "Is polite", agent_id="guide")
    users = sdk.call("users")
    assert {(one["type"], one["name"], one["total_memories"]) for one in users["results"]} == {
        ("user", "ada", 1),
        ("user", "bob", 1),
        ("agent", "guide", 1),
    }
    sdk.call("delete_users", user_id="ada")
    assert {one["name"] for one in sdk.call("users")["results"]} == {"bob", "guide"}
    sdk.call("delete_users")
    assert sdk.call("users")["results"] == []
    assert refused(sdk.call, "history", memory_id).name == "MemoryNotFoundError"


def test_feedback_is_kept_with_the_memory(sdk: Sdk, name: str):
    memory_id = add(sdk, "Likes tea", user_id=f"feedback-{name}")
    assert sdk.feedback(memory_id, "NEGATIVE", "It is coffee")["feedback"] == "NEGATIVE"
    found = sdk.call("get", memory_id)
    assert found["metadata"] == {"feedback": "NEGATIVE", "feedback_reason": "It is coffee"}


def test_a_profile_says_what_is_known_now(sdk: Sdk, name: str):
    user = f"profile-{name}"
    assert sdk.profile(user)["status"] == "insufficient_data"
    add(sdk, "The user lives in Oslo", user_id=user)
    job = sdk.generate_profile(user)
    assert sdk.call("get_profile_job", job["status_url"])["job"]["status"] == "succeeded"
    found = sdk.profile(user)
    assert (found["status"], found["profile"], found["entity_id"]) == (
        "succeeded",
        {"user": ["The user lives in Oslo"]},
        user,
    )


def test_what_only_the_platform_has_is_refused_with_a_sentence(sdk: Sdk):
    for method, call in sdk.unsupported().items():
        error = refused(call)
        assert error.code == "HTTP_501", (method, error)
        assert "here." in str(error)


def test_errors_have_the_classes_of_the_sdk(service: Mem0Service, sdk: Sdk, connect: Connect, name: str):
    user = f"errors-{name}"
    wrong = {
        "no id": lambda: sdk.call("add", [{"role": "user", "content": "Likes tea"}]),
        "no id to delete": lambda: sdk.call("delete_all"),
        "everybody": lambda: sdk.call("delete_all", user_id="*"),
        "ids as filters": lambda: sdk.call("delete_all", user_id=user, filters={"run_id": "r"}),
        "operator": lambda: sdk.call("search", "tea", filters={"user_id": user, "n": {"near": 1}}),
        "two users": lambda: sdk.call("search", "tea", filters={"AND": [{"user_id": user}, {"user_id": "bob"}]}),
        "any user": lambda: sdk.call("get_all", filters={"OR": [{"user_id": user}, {"user_id": "bob"}]}),
        "page": lambda: sdk.call("get_all", filters={"user_id": user}, page=-1),
        "date": lambda: sdk.call("add", [{"role": "user", "content": "x"}], user_id=user, expiration_date="soon"),
    }
    for case, call in wrong.items():
        error = refused(call)
        assert (error.name, error.code) == ("ValidationError", "HTTP_400"), (case, error)
    assert refused(sdk.call, "get", "2b0c7f0e-0b52-4f0f-9a52-1f5b8f0d9c11").name == "MemoryNotFoundError"
    if name == "node":
        # Its constructor does not fail, and says so on standard error.
        stranger = NodeSdk(service.url, "wrong")
        assert refused(stranger.call, "users").name == "AuthenticationError"
        assert "A valid token is missing" in stranger._child.communicate()[1]
    else:
        with pytest.raises(ValueError, match="401"):
            connect("wrong")


def test_too_many_requests_are_refused(service: Mem0Service, name: str, tmp_path: Path):
    with serve(tmp_path, "--rate", "1") as slow:
        sdk = SDKS[name](slow.url, slow.token(f"user:rate-{name}"))
        error = refused(lambda: [sdk.call("users") for _ in range(50)])
        sdk.close()
    assert (error.name, error.code) == ("RateLimitError", "HTTP_429")
    assert "Too many requests" in str(error)


def test_a_token_for_one_user_cannot_reach_another(service: Mem0Service, sdk: Sdk, connect: Connect, name: str):
    """B1: by name, by the id of a memory, by a list, and in another tenant."""
    ada, bob = f"ada-{name}", f"bob-{name}"
    secret = add(sdk, "Bob lives in Rome", user_id=bob)
    event = sdk.call("add", [{"role": "user", "content": "I drink rum."}], user_id=bob)["event_id"]
    for token in (service.token(f"user:{ada}"), service.token("*", tenant=f"other-{name}")):
        mine = connect(token)
        kept = add(mine, "Ada lives in Oslo", user_id=ada)
        for method, *args in (("get", secret), ("history", secret), ("delete", secret)):
            assert refused(mine.call, method, *args).name == "MemoryNotFoundError"
        assert refused(mine.update, secret, text="Bob lives in Oslo").name == "MemoryNotFoundError"
        assert refused(mine.feedback, secret, "NEGATIVE", "").name == "MemoryNotFoundError"
        assert refused(mine.batch_delete, kept, secret).name == "MemoryNotFoundError"
        assert refused(mine.call, "get", event).name == "MemoryNotFoundError"
        assert {one["name"] for one in mine.call("users")["results"]} == {ada}
    mine = connect(service.token(f"user:{ada}"))
    for call in (
        lambda: mine.call("add", [{"role": "user", "content": "x"}], user_id=bob),
        lambda: mine.call("search", "Rome", filters={"user_id": bob}),
        lambda: mine.call("search", "Rome", filters={"metadata": {"user_id": bob}}),
        lambda: mine.call("get_all", filters={"AND": [{"AND": [{"user_id": bob}]}]}),
        lambda: mine.call("get_all", filters={"run_id": "any"}),
        lambda: mine.call("delete_all", user_id=bob),
        lambda: mine.call("delete_all", run_id="any"),
        lambda: mine.profile(bob),
        lambda: mine.generate_profile(bob),
    ):
        error = refused(call)
        assert (error.name, error.code) == ("AuthenticationError", "HTTP_403")
    assert "This token may not" in str(refused(mine.call, "delete_users", user_id=bob))
    nested = {"AND": [{"user_id": ada}, {"OR": [{"user_id": bob}, {"user_id": ada}]}]}
    assert texts(mine.call("get_all", filters=nested)) == ["Ada lives in Oslo"]
    assert texts(sdk.call("get_all", filters={"user_id": bob}))[-1] == "Bob lives in Rome"
    assert sdk.call("get", secret)["memory"] == "Bob lives in Rome"


def test_a_token_that_only_reads_changes_nothing(service: Mem0Service, sdk: Sdk, connect: Connect, name: str):
    """B1: nor does one without the scope for erasing erase a person."""
    user = f"reader-{name}"
    memory_id = add(sdk, "Likes tea", user_id=user)
    reader = connect(service.token(f"user:{user}", read_only=True))
    assert texts(reader.call("search", "tea", filters={"user_id": user})) == ["Likes tea"]
    for call in (
        lambda: reader.call("add", [{"role": "user", "content": "x"}], user_id=user),
        lambda: reader.update(memory_id, text="x"),
        lambda: reader.call("delete", memory_id),
        lambda: reader.call("delete_all", user_id=user),
        lambda: reader.batch_delete(memory_id),
        lambda: reader.feedback(memory_id, "POSITIVE", ""),
    ):
        assert refused(call).code == "HTTP_403"
    writer = connect(service.token(f"user:{user}", scopes=("read", "write")))
    assert "forget" in str(refused(writer.call, "delete_users", user_id=user))
    assert sdk.call("get", memory_id)["memory"] == "Likes tea"


def test_the_async_client_of_python_works_too(service: Mem0Service):
    from mem0 import AsyncMemoryClient

    async def use() -> list[str]:
        async with AsyncMemoryClient(host=service.url, api_key=service.token("user:async")) as client:
            await client.add("Likes tea", user_id="async", infer=False)
            return texts(await client.search("tea", filters={"user_id": "async"}))

    assert asyncio.run(use()) == ["Likes tea"]


def test_options_of_the_python_client_name_the_user_in_filters(service: Mem0Service):
    from mem0.client.types import AddMemoryOptions, SearchMemoryOptions

    sdk = PythonSdk(service.url, service.token("user:typed"))
    sdk.call("add", "Likes tea", AddMemoryOptions(filters={"user_id": "typed"}, infer=False, metadata={"a": 1}))
    found = sdk.call("search", "tea", SearchMemoryOptions(filters={"user_id": "typed"}, rerank=True))
    assert [(one["memory"], one["metadata"]) for one in found["results"]] == [("Likes tea", {"a": 1})]
    sdk.close()
