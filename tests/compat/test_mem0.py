"""mem0's interface over afterturn, without mem0: shapes, scopes, filters, history and errors, in both classes."""

import asyncio
import inspect
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apsw
import pytest

import afterturn
from afterturn import blocking
from afterturn.compat.mem0 import AsyncMemory, Memory, ValidationError
from afterturn.space.verbs import SpaceCore
from lab.clients.model_server import ModelServer

MESSAGES = [
    {"role": "user", "content": "I'm planning to watch a movie tonight. Any recommendations?"},
    {"role": "assistant", "content": "How about a thriller? They can be quite engaging."},
    {"role": "user", "content": "I'm not a big fan of thrillers, but I love sci-fi movies."},
    {"role": "assistant", "content": "Got it! I'll suggest sci-fi movies in the future."},
]


class Waiting:
    """Calls an AsyncMemory as if it were a Memory, so that one test is for both."""

    def __init__(self, memory: AsyncMemory) -> None:
        self._memory = memory

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._memory, name)

        def call(*args: object, **kwargs: object) -> object:
            found = method(*args, **kwargs)
            return asyncio.run(found) if inspect.iscoroutine(found) else found

        return call


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


@pytest.fixture(params=[Memory, AsyncMemory])
def memory(request: pytest.FixtureRequest, store: Path) -> Iterator[Any]:
    opened = request.param.from_config({"afterturn": {"store": str(store)}})
    yield opened if request.param is Memory else Waiting(opened)
    opened.close()


@pytest.fixture
def origins(store: Path) -> Callable[[], dict[str, str]]:
    """The texts of Ada's space with their origins, as another program reads them."""

    def read() -> dict[str, str]:
        with blocking.open(store) as other:
            return {entry.text: str(entry.origin) for entry in other.space("user:ada").list()}

    return read


@pytest.fixture
def plain(store: Path) -> Iterator[Memory]:
    with Memory.from_config({"afterturn": {"store": str(store)}}) as opened:
        yield opened


def texts(answer: dict[str, Any]) -> list[str]:
    return [item["memory"] for item in answer["results"]]


# Adding


def test_messages_are_stored_word_for_word_without_infer(memory: Any):
    added = memory.add(MESSAGES, user_id="alice", infer=False)
    assert [(one["memory"], one["event"], one["role"]) for one in added["results"]] == [
        (message["content"], "ADD", message["role"]) for message in MESSAGES
    ]
    assert set(added["results"][0]) == {"id", "memory", "event", "actor_id", "role"}
    assert sorted(texts(memory.get_all(filters={"user_id": "alice"}))) == sorted(one["content"] for one in MESSAGES)


def test_what_is_added_with_infer_is_durable_when_add_returns(memory: Any, store: Path):
    """Another process finds the messages, although nobody has waited for the review."""
    added = memory.add(MESSAGES, user_id="alice")
    assert [(one["event"], one["role"]) for one in added["results"]] == [
        ("ADD", "user"),
        ("ADD", "assistant"),
        ("ADD", "user"),
        ("ADD", "assistant"),
    ]
    code = (
        "import sys, afterturn.blocking as b\n"
        "with b.open(sys.argv[1]) as m:\n"
        "    print(sum(one.kind == 'record' for one in m.space('user:alice').list()))"
    )
    run = subprocess.run([sys.executable, "-c", code, str(store)], capture_output=True, text=True, timeout=60)
    assert run.stdout.strip() == "4", run.stderr


def test_a_process_that_ends_without_closing_loses_nothing(store: Path):
    code = (
        "import sys\nfrom afterturn.compat.mem0 import Memory\n"
        "Memory.from_config({'afterturn': {'store': sys.argv[1]}}).add('My name is Alice.', user_id='alice')"
    )
    subprocess.run([sys.executable, "-c", code, str(store)], check=True, timeout=60)
    with Memory.from_config({"afterturn": {"store": str(store)}}) as later:
        assert texts(later.get_all(user_id="alice")) == ["The user's name is Alice"]


def test_wait_returns_what_was_learned(memory: Any):
    added = memory.add("My name is Alice and I live in Berlin.", user_id="alice", wait=True)
    assert [(one["memory"], one["event"]) for one in added["results"]] == [
        ("The user's name is Alice", "ADD"),
        ("The user lives in Berlin", "ADD"),
    ]
    listed = memory.get_all(filters={"user_id": "alice"})["results"]
    assert {one["id"] for one in listed} == {one["id"] for one in added["results"]}


def test_waiting_can_be_the_default(store: Path):
    with Memory.from_config({"afterturn": {"store": str(store), "wait": True}}) as memory:
        assert texts(memory.add("My name is Alice.", user_id="alice")) == ["The user's name is Alice"]
        assert memory.add("Thanks!", user_id="alice") == {"results": []}


def test_a_change_is_reported_as_an_update_with_the_older_text(plain: Memory):
    plain.add("My name is Alice.", user_id="alice", wait=True)
    (changed,) = plain.add("Actually, my name is Alicia.", user_id="alice", wait=True)["results"]
    assert (changed["event"], changed["memory"]) == ("UPDATE", "The user's name is Alicia")
    assert changed["previous_memory"] == "The user's name is Alice"


def test_a_model_that_is_configured_as_in_mem0_reviews_what_is_added(store: Path):
    with ModelServer() as server:
        llm = {"provider": "openai", "config": {"model": "m", "api_key": "k", "openai_base_url": f"{server.url}/v1"}}
        with Memory.from_config({"llm": llm, "afterturn": {"store": str(store)}}) as memory:
            memory.add("It was a long day.", user_id="alice", wait=True)
        assert server.requests


def test_a_text_a_message_and_a_list_can_be_added(memory: Any):
    memory.add("Likes tea", user_id="alice", infer=False)
    memory.add({"role": "user", "content": "Likes cake"}, user_id="alice", infer=False)
    memory.add([{"role": "user", "content": [{"type": "text", "text": "Likes jam"}]}], user_id="alice", infer=False)
    assert set(texts(memory.get_all(user_id="alice"))) == {"Likes tea", "Likes cake", "Likes jam"}


def test_system_messages_and_messages_without_text_are_left_out(memory: Any):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "assistant", "content": None}, {"content": "x"}]
    assert memory.add(messages, user_id="alice", infer=False) == {"results": []}
    assert memory.add(messages, user_id="alice") == {"results": []}


def test_the_same_words_are_one_memory_and_two_in_two_runs(memory: Any):
    first = memory.add("Likes tea", user_id="alice", infer=False)["results"][0]
    again = memory.add("Likes tea", user_id="alice", infer=False)["results"][0]
    assert (again["event"], again["id"]) == ("NONE", first["id"])
    tagged = memory.add("Likes tea", user_id="alice", infer=False, metadata={"drink": True})["results"][0]
    assert (tagged["event"], memory.get(first["id"])["metadata"]) == ("UPDATE", {"drink": True})
    other = memory.add("Likes tea", user_id="alice", run_id="r1", infer=False)["results"][0]
    assert other["event"] == "ADD"
    assert memory.get(other["id"])["run_id"] == "r1"


def test_a_secret_is_redacted_in_both_ways_of_adding(memory: Any, store: Path):
    secret = "sk-proj-" + "Ab3dEf6hIj9kLmN0pQr" * 2
    memory.add(f"My key is {secret}, keep it.", user_id="alice", infer=False)
    memory.add(f"Another one: {secret}", user_id="alice", metadata={"nested": {"key": secret}})
    memory.close()
    assert all(secret.encode() not in file.read_bytes() for file in store.parent.iterdir() if file.is_file())


def test_a_text_of_a_tool_is_stored_but_not_trusted(plain: Memory, store: Path):
    messages = [*MESSAGES[:1], {"role": "tool", "content": "The user's name is Mallory.", "tool_call_id": "c1"}]
    plain.add(messages, user_id="alice", infer=False)
    with blocking.open(store) as memory:
        (stored,) = [one for one in memory.space("user:alice").list() if "Mallory" in one.text]
    assert stored.is_report


def test_a_procedural_memory_is_one_memory_of_its_agent(memory: Any):
    added = memory.add(MESSAGES[:2], agent_id="guide", memory_type="procedural_memory")
    (item,) = memory.get_all(filters={"agent_id": "guide"})["results"]
    assert item["id"] == added["results"][0]["id"]
    assert item["memory"].splitlines()[1].startswith("assistant: How about")
    assert item["metadata"] == {"memory_type": "procedural_memory"}


# Reading


def test_search_returns_the_fields_of_mem0(memory: Any):
    memory.add("Loves sci-fi movies", user_id="alice", agent_id="guide", run_id="r1", infer=False, metadata={"n": 1})
    (item,) = memory.search("sci-fi", filters={"user_id": "alice"})["results"]
    assert list(item) == [
        *("id", "memory", "hash", "metadata", "created_at", "updated_at", "user_id", "agent_id", "run_id", "role"),
        "score",
    ]
    assert (item["user_id"], item["agent_id"], item["run_id"], item["role"]) == ("alice", "guide", "r1", "user")
    assert item["metadata"] == {"n": 1}
    assert 0 < item["score"] <= 1
    assert item["created_at"].endswith("+00:00")
    assert {**memory.get(item["id"]), "score": item["score"]} == item


def test_both_styles_of_search_find_the_same(memory: Any):
    for text in ("Loves sci-fi movies", "Loves old movies", "Loves jazz"):
        memory.add(text, user_id="alice", infer=False)
    new = memory.search("movies", filters={"user_id": "alice"}, top_k=2)
    assert memory.search("movies", user_id="alice", limit=2) == new
    assert memory.search("movies", filters={"AND": [{"user_id": "alice"}]}, top_k=2) == new
    assert len(new["results"]) == 2
    assert memory.get_all(user_id="alice", limit=2) == memory.get_all(filters={"user_id": "alice"}, top_k=2)
    assert memory.search("movies", user_id="alice", top_k=0) == {"results": []}


def test_a_threshold_leaves_out_what_matches_less(memory: Any):
    memory.add(["ignored"], user_id="alice")
    for text in ("Loves sci-fi movies", "Has a dentist"):
        memory.add(text, user_id="alice", infer=False)
    scores = [one["score"] for one in memory.search("sci-fi movies", user_id="alice", threshold=0)["results"]]
    assert len(scores) == 2
    assert texts(memory.search("sci-fi movies", user_id="alice", threshold=scores[0])) == ["Loves sci-fi movies"]


def test_explain_adds_the_parts_of_the_score(memory: Any):
    memory.add("Loves sci-fi movies", user_id="alice", infer=False)
    (item,) = memory.search("sci-fi", user_id="alice", explain=True)["results"]
    assert item["score_details"]["final_score"] == item["score"]


def test_a_user_an_agent_and_a_run_have_memories_of_their_own(memory: Any):
    """A user's memories are read with the user's id, whichever agent or run has stored them."""
    memory.add("Likes tea", user_id="alice", infer=False)
    memory.add("Likes milk", user_id="alice", agent_id="guide", run_id="r1", infer=False)
    memory.add("Likes rum", user_id="bob", infer=False)
    memory.add("I am a guide", agent_id="guide", infer=False)
    memory.add("Step one", run_id="r1", infer=False)

    def listed(**ids: str) -> set[str]:
        found = texts(memory.get_all(filters=ids))
        assert set(texts(memory.search("likes guide step", filters=ids))) <= set(found)
        return set(found)

    assert listed(user_id="alice") == {"Likes tea", "Likes milk"}
    assert listed(user_id="alice", agent_id="guide") == {"Likes milk"}
    assert listed(user_id="alice", run_id="r1") == {"Likes milk"}
    assert listed(user_id="alice", run_id="r2") == set()
    assert listed(user_id="bob") == {"Likes rum"}
    assert listed(agent_id="guide") == {"I am a guide"}
    assert listed(run_id="r1") == {"Step one"}


def test_what_is_learned_has_the_metadata_and_the_run_of_its_message(memory: Any):
    memory.add("My name is Alice.", user_id="alice", run_id="r1", metadata={"tags": ["a", {"b": 1}]}, wait=True)
    (item,) = memory.search("name", filters={"user_id": "alice", "run_id": "r1"})["results"]
    assert (item["memory"], item["metadata"]) == ("The user's name is Alice", {"tags": ["a", {"b": 1}]})


def test_metadata_is_restored_as_it_was(memory: Any):
    metadata = {"n": 1, "x": 1.5, "yes": True, "none": None, "kind": "preference", "deep": {"a": [1, {"b": None}]}}
    (added,) = memory.add("Likes tea", user_id="alice", infer=False, metadata=metadata)["results"]
    assert memory.get(added["id"])["metadata"] == metadata


def test_metadata_cannot_change_whose_memory_it_is(memory: Any):
    memory.add("Likes tea", user_id="alice", infer=False, metadata={"user_id": "bob", "actor_id": "eve"})
    (item,) = memory.get_all(user_id="alice")["results"]
    assert (item["user_id"], item["metadata"], item.get("actor_id")) == ("alice", None, None)
    assert memory.get_all(user_id="bob") == {"results": []}


FILTERED = {
    "cat": {"kind_of": "pet", "age": 3, "tags": ["small", "soft"], "since": "2026-01-05"},
    "dog": {"kind_of": "pet", "age": 7, "tags": ["big"], "since": "2026-03-01"},
    "oak": {"kind_of": "Plant tall", "age": 90},
}


@pytest.mark.parametrize(
    "wanted, found",
    [
        ({"kind_of": "pet"}, "cat dog"),
        ({"age": {"eq": 3}}, "cat"),
        ({"age": {"ne": 3}}, "dog oak"),
        ({"age": {"gt": 3}}, "dog oak"),
        ({"age": {"gte": 3, "lt": 90}}, "cat dog"),
        ({"age": {"lte": 7}}, "cat dog"),
        ({"age": {"in": [3, 90]}}, "cat oak"),
        ({"age": [3, 90]}, "cat oak"),
        ({"age": {"nin": [3]}}, "dog oak"),
        ({"tags": "soft"}, "cat"),
        ({"since": {"gt": "2026-02-01"}}, "dog"),
        ({"kind_of": {"contains": "Plant"}}, "oak"),
        ({"kind_of": {"icontains": "PLANT"}}, "oak"),
        ({"since": "*"}, "cat dog"),
        ({"AND": [{"kind_of": "pet"}, {"age": {"gt": 5}}]}, "dog"),
        ({"OR": [{"age": 3}, {"age": {"gt": 50}}]}, "cat oak"),
        ({"NOT": [{"kind_of": "pet"}]}, "oak"),
        ({"OR": [{"age": 3}, {"AND": [{"kind_of": "pet"}, {"NOT": [{"age": 3}]}]}]}, "cat dog"),
        ({"missing": "x"}, ""),
        ({"role": "user"}, "cat dog oak"),
    ],
    ids=str,
)
def test_filters_of_mem0(plain: Memory, wanted: dict[str, Any], found: str):
    for name, metadata in FILTERED.items():
        plain.add(f"There is one {name}", user_id="alice", infer=False, metadata=metadata)
    for answer in (
        plain.search("there is one", filters={"user_id": "alice", **wanted}, threshold=0.0),
        plain.get_all(filters={"user_id": "alice", **wanted}),
    ):
        assert {text.split()[-1] for text in texts(answer)} == set(found.split())


def test_a_filter_that_few_memories_meet_finds_them_behind_many_others(plain: Memory):
    plain.add([{"role": "user", "content": f"Tea number {n}"} for n in range(300)], user_id="alice", infer=False)
    plain.add("There was tea somewhere, long ago", user_id="alice", infer=False, metadata={"rare": 1})
    answer = plain.search("tea number", filters={"user_id": "alice", "rare": 1}, top_k=2, threshold=0.0)
    assert texts(answer) == ["There was tea somewhere, long ago"]


# Changing


def test_update_delete_and_history(memory: Any):
    (added,) = memory.add("Likes tea", user_id="alice", infer=False, metadata={"n": 1})["results"]
    memory_id = added["id"]
    assert memory.update(memory_id, "Likes coffee") == {"message": "Memory updated successfully!"}
    assert memory.update(memory_id, metadata={"m": [2]}) == {"message": "Memory updated successfully!"}
    item = memory.get(memory_id)
    assert (item["memory"], item["metadata"]) == ("Likes coffee", {"n": 1, "m": [2]})
    assert item["created_at"] < item["updated_at"]
    memory.update(memory_id, data="Likes cocoa")
    assert memory.delete(memory_id) == {"message": "Memory deleted successfully!"}
    assert memory.get(memory_id) is None
    assert memory.search("cocoa", user_id="alice") == {"results": []}
    rows = memory.history(memory_id)
    assert [(row["event"], row["old_memory"], row["new_memory"], row["is_deleted"]) for row in rows] == [
        ("ADD", None, "Likes tea", False),
        ("UPDATE", "Likes tea", "Likes coffee", False),
        ("UPDATE", "Likes coffee", "Likes coffee", False),
        ("UPDATE", "Likes coffee", "Likes cocoa", False),
        ("DELETE", "Likes cocoa", None, True),
    ]
    assert {row["memory_id"] for row in rows} == {memory_id}


def test_a_recorded_message_can_be_updated_under_its_id(memory: Any):
    (added,) = memory.add("Likes cricket", user_id="alice", metadata={"n": {"deep": 1}})["results"]
    memory_id = added["id"]
    memory.update(memory_id, text="Likes tennis")
    memory.update(memory_id, text="Likes golf", metadata={"m": 2})
    (item,) = memory.get_all(user_id="alice")["results"]
    assert (item["id"], item["memory"], item["role"]) == (memory_id, "Likes golf", "user")
    assert item["metadata"] == {"n": {"deep": 1}, "m": 2}
    memory.delete(memory_id)
    assert memory.get(memory_id) is None
    assert [(row["event"], row["old_memory"], row["new_memory"]) for row in memory.history(memory_id)] == [
        ("ADD", None, "Likes cricket"),
        ("UPDATE", "Likes cricket", "Likes tennis"),
        ("UPDATE", "Likes tennis", "Likes golf"),
        ("DELETE", "Likes golf", None),
    ]


def test_delete_all_deletes_what_the_ids_name(memory: Any):
    for ids in ({"user_id": "alice"}, {"user_id": "alice", "run_id": "r1"}, {"user_id": "bob"}):
        memory.add(MESSAGES, **ids, infer=False)
    assert memory.delete_all(user_id="alice", run_id="r1") == {"message": "Memories deleted successfully!"}
    assert len(texts(memory.get_all(user_id="alice"))) == 4
    memory.delete_all(user_id="alice")
    assert memory.get_all(user_id="alice") == {"results": []}
    assert len(texts(memory.get_all(user_id="bob"))) == 4


def test_a_memory_whose_source_is_not_an_id_is_found(memory: Any, store: Path):
    """An import takes any words as a source."""
    learned = afterturn.Draft("Ada likes tea", origin=afterturn.Origin.BACKGROUND_REVIEW, sources=("ticket 5",))
    with blocking.open(store) as other:
        other.space("user:ada").add_many([learned], clean=True)
    assert texts(memory.get_all(filters={"user_id": "ada"})) == ["Ada likes tea"]


@pytest.mark.parametrize("verb", ["delete_all", "reset"])
async def test_what_another_process_has_forgotten_meanwhile_is_deleted(
    store: Path, monkeypatch: pytest.MonkeyPatch, verb: str
):
    """It is gone between the list and the deletion."""
    async with AsyncMemory.from_config({"afterturn": {"store": str(store)}}) as memory:
        for text in ("Ada likes tea", "Ada likes jam"):
            await memory.add(text, user_id="ada", infer=False)

        async def list_then_forget(space: SpaceCore, **options: Any) -> Any:
            found = await listed(space, **options)
            if len(found) == 2:
                async with afterturn.open(store) as other:
                    await other.space("user:ada").forget(memory=found[0].id)
            return found

        listed = SpaceCore.list
        monkeypatch.setattr(SpaceCore, "list", list_then_forget)
        await (memory.reset() if verb == "reset" else memory.delete_all(user_id="ada"))
        assert texts(await memory.get_all(filters={"user_id": "ada"})) == []


def test_reset_hides_users_agents_and_runs_and_can_be_undone(memory: Any, store: Path):
    """M1: the store may have memories that another program has written."""
    with blocking.open(store) as native:
        native.space("project:api").add("The API uses pnpm")
    memory.add("Likes tea", user_id="alice", infer=False)
    memory.add("Step one", run_id="r1")
    memory.reset()
    with blocking.open(store) as native:
        assert [one.name for one in native.spaces() if one.statements + one.records] == ["project:api"]
        alice = native.space("user:alice")
        alice.undo(alice.operations(limit=1)[0].id)
        assert [entry.text for entry in alice.list(limit=10)] == ["Likes tea"]
    memory.reset()
    memory.add("Likes milk", user_id="alice")
    assert texts(memory.get_all(user_id="alice")) == ["Likes milk"]


def test_a_memory_expires_at_the_end_of_its_day(memory: Any):
    memory.add("Past", user_id="alice", infer=False, expiration_date="2020-01-01")
    (later,) = memory.add("To come", user_id="alice", infer=False, expiration_date="2999-01-01")["results"]
    memory.add("Past message", user_id="alice", expiration_date="2020-01-01")
    assert texts(memory.get_all(user_id="alice")) == ["To come"]
    assert texts(memory.search("past or to come", user_id="alice", threshold=0.0)) == ["To come"]
    assert set(texts(memory.get_all(user_id="alice", show_expired=True))) == {"Past", "To come", "Past message"}
    assert memory.get(later["id"])["expiration_date"] == "2999-01-01"
    memory.update(later["id"], expiration_date=None)
    assert "expiration_date" not in memory.get(later["id"])


def test_a_timestamp_says_when_it_was_said(memory: Any):
    memory.add("Likes tea", user_id="alice", infer=False, timestamp="2026-01-05T10:00:00+00:00")
    memory.add("Likes milk", user_id="alice", timestamp=1_767_607_200)
    assert {one["created_at"] for one in memory.get_all(user_id="alice")["results"]} == {"2026-01-05T10:00:00+00:00"}


def test_other_programs_see_the_same_memories(plain: Memory, store: Path):
    plain.add("My sister Ruth is coeliac.", user_id="alice", metadata={"topic": "family"})
    with blocking.open(store) as native:
        native.space("user:alice").add("Alice plays the cello")
        found = native.space("user:alice").list(filter=afterturn.Filter(metadata={"topic": "family"}))
    assert [entry.text for entry in found] == ["My sister Ruth is coeliac."]
    assert "Alice plays the cello" in texts(plain.search("cello", user_id="alice"))


def test_the_example_runs_without_a_key(tmp_path: Path):
    example = Path(__file__).parents[2] / "examples" / "frameworks" / "mem0_app.py"
    assert len(example.read_text(encoding="utf-8").splitlines()) <= 15
    run = subprocess.run([sys.executable, example], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert run.stdout == "Noted.\nI remember: My cat Miso is allergic to chicken.\n", run.stderr


# What programs of mem0 read


def test_a_search_and_a_list_return_what_states_something(memory: Any):
    """L11: questions, orders and acknowledgements are recorded; they are returned on request."""
    said = ["My cat Miso is allergic to chicken.", "What food is my cat allergic to?", "Please book a table."]
    for text in said:
        memory.add([{"role": "user", "content": text}, {"role": "assistant", "content": "Noted."}], user_id="alice")
    assert texts(memory.get_all(user_id="alice")) == said[:1]
    assert texts(memory.search("What food is my cat allergic to?", user_id="alice")) == said[:1]
    assert set(texts(memory.get_all(user_id="alice", records=True))) == {*said, "Noted."}
    assert said[1] in texts(memory.search(said[1], user_id="alice", records=True, threshold=0.0))


def test_a_message_is_returned_for_what_was_not_learned_from_it(memory: Any):
    added = memory.add("I love hiking and I'm vegetarian.", user_id="alice", wait=True)
    both = ["The user is vegetarian", "I love hiking and I'm vegetarian."]
    assert [(one["event"], one["memory"]) for one in added["results"]] == [("ADD", text) for text in both]
    assert sorted(texts(memory.get_all(user_id="alice"))) == sorted(both)
    assert texts(memory.search("hiking", user_id="alice"))[0] == both[1]


@pytest.mark.parametrize(
    "said, is_listed",
    [
        ("I'm allergic to nuts, I live in Rome and I play the piano.", True),
        ("I love hiking, and I'm a vegetarian who hates tofu.", True),
        ("Thanks for asking, my name is Alice and I live in Berlin, by the way.", False),
    ],
)
def test_a_message_is_listed_for_a_clause_that_was_not_learned(memory: Any, said: str, is_listed: bool):
    added = memory.add(said, user_id="alice", wait=True)
    assert (said in texts(added)) is (said in texts(memory.get_all(user_id="alice"))) is is_listed


def test_the_default_threshold_leaves_out_what_has_nothing_to_do_with_the_query(memory: Any):
    """L13: a score is the chance that a memory helps."""
    for text in ("My cat Miso is allergic to chicken", "My sister Ruth lives in Porto", "I work as a nurse in Leeds"):
        memory.add(text, user_id="alice", infer=False)
    for query in ("quantum chromodynamics lattice", "asdf qwer zxcv", "Explain the Krebs cycle"):
        assert memory.search(query, user_id="alice") == {"results": []}
        assert len(memory.search(query, user_id="alice", threshold=0.0)["results"]) == 3
    found = memory.search("Where does Ruth live?", user_id="alice", rerank=True)["results"]
    assert texts({"results": found}) == ["My sister Ruth lives in Porto"]
    assert found[0]["rerank_score"] == found[0]["score"] > 0.5


def test_a_broad_question_is_answered_from_the_profile(memory: Any):
    """L14: as it is in turns."""
    memory.add("My sister Ruth lives in Porto", user_id="alice", infer=False)
    (found,) = memory.search("What do you know about me?", user_id="alice")["results"]
    assert found["memory"] == "My sister Ruth lives in Porto"
    assert found["score"] > 0.1


def test_a_dotted_key_reaches_into_metadata(memory: Any):
    for name, metadata in (("one", {"at": {"city": "Porto"}}), ("two", {"at": [{"city": "Rome"}]}), ("three", {})):
        memory.add(name, user_id="alice", infer=False, metadata=metadata)
    assert texts(memory.get_all(filters={"user_id": "alice", "at.city": "Porto"})) == ["one"]
    assert texts(memory.get_all(filters={"user_id": "alice", "at[].city": {"in": ["Rome"]}})) == ["two"]
    assert texts(memory.get_all(filters={"user_id": "alice", "at.city": "*"})) == ["one"]


def test_delete_all_of_an_agent_or_a_run_reaches_every_user(memory: Any, caplog: pytest.LogCaptureFixture):
    """All given ids must match. Memories that have others are left alone."""
    for ids in ({"user_id": "alice"}, {"user_id": "alice", "agent_id": "guide", "run_id": "r1"}, {"run_id": "r1"}):
        memory.add("Likes tea", **ids, infer=False)
    memory.add("Likes milk", user_id="bob", agent_id="guide")
    assert memory.delete_all(agent_id="guide", run_id="r1") == {"message": "Memories deleted successfully!"}
    assert len(texts(memory.get_all(user_id="alice"))) == len(texts(memory.get_all(run_id="r1"))) == 1
    assert texts(memory.get_all(user_id="bob")) == ["Likes milk"]
    memory.delete_all(agent_id="guide")
    memory.delete_all(run_id="r1")
    assert memory.get_all(user_id="bob") == memory.get_all(run_id="r1") == {"results": []}
    assert texts(memory.get_all(user_id="alice")) == ["Likes tea"]
    assert "found nothing" not in caplog.text
    memory.delete_all(run_id="r1")
    assert "found nothing of Entities(user_id=None, agent_id=None, run_id='r1')" in caplog.text


def test_nothing_is_learned_from_messages_that_were_deleted(memory: Any, store: Path):
    """Neither by a review that is under way."""
    messages = [{"role": "user", "content": "My name is Alice. I love sci-fi films."}, *MESSAGES]
    memory.add(messages, user_id="alice")
    memory.add(messages, user_id="alice", agent_id="guide", run_id="r1")
    memory.delete_all(user_id="alice")
    with blocking.open(store) as native:
        assert native.drain()
    assert texts(memory.get_all(user_id="alice")) == []


@pytest.mark.parametrize("empty", ["", "  ", [], [{"role": "user", "content": ""}], {"role": "user", "content": " "}])
@pytest.mark.parametrize("infer", [True, False])
def test_an_empty_text_adds_nothing(memory: Any, empty: Any, infer: bool):
    assert memory.add(empty, user_id="alice", infer=infer) == {"results": []}
    assert memory.get_all(user_id="alice", top_k=0) == {"results": []}


def test_the_attributes_of_mem0_can_be_read(plain: Memory, store: Path):
    """Programs print them. What mem0's parts do is left to the verbs."""
    assert (plain.api_version, plain.collection_name, plain.reranker, plain.custom_instructions) == (
        *("v1.1", "mem0"),
        *(None, None),
    )
    assert plain.config.version == "v1.1"
    assert plain.config.vector_store.provider == plain.config.llm.provider == plain.config.embedder.provider
    assert plain.config.vector_store.config.collection_name == plain.vector_store.collection_name == "mem0"
    assert plain.db.db_path == plain.config.history_db_path == str(store)
    assert plain.embedding_model.config.model == plain.config.embedder.config["model"] == "static"
    assert plain.llm.config.model is None
    with pytest.raises(AttributeError, match=r"has no 'embed' here, only config\. Use Memory"):
        plain.embedding_model.embed("tea")


# Errors


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda m: m.add("x"), "At least one of 'user_id', 'agent_id', or 'run_id' must be provided"),
        (lambda m: m.add(7, user_id="alice"), "messages must be str, dict, or list"),
        (lambda m: m.add("x", user_id="alice", memory_type="other"), "Invalid 'memory_type'"),
        (lambda m: m.add("x", user_id="  "), "Invalid user_id: cannot be empty"),
        (lambda m: m.add("x", user_id="a b"), "Invalid user_id: cannot contain whitespace"),
        (lambda m: m.add("x", user_id="alice", metadata=[1]), "metadata is a list"),
        (lambda m: m.add("x", user_id="alice", expiration_date="soon"), "YYYY-MM-DD"),
        (lambda m: m.add("x", user_id=["alice"]), "is not one identifier. Provide one"),
        (lambda m: m.delete_all(user_id=["alice"]), "is not one identifier. Provide one"),
        (lambda m: m.get_all(user_id="*"), "Ask for each user_id"),
        (lambda m: m.search("x"), "filters must contain at least one of"),
        (lambda m: m.search("x", filters={"category": "a"}), "filters must contain at least one of"),
        (lambda m: m.search("x", filters={"user_id": "*"}), "belongs to somebody"),
        (lambda m: m.search("x", filters={"user_id": {"in": ["a", "b"]}}), "Name one"),
        (lambda m: m.search("x", filters={"user_id": "a"}, user_id="b"), "two values for user_id"),
        (lambda m: m.search("  ", user_id="alice"), "Invalid query"),
        (lambda m: m.search(None, user_id="alice"), "Invalid query"),
        (lambda m: m.search("x", user_id="alice", top_k=-1), "Invalid top_k"),
        (lambda m: m.search("x", user_id="alice", top_k="3"), "top_k must be a valid integer"),
        (lambda m: m.search("x", user_id="alice", threshold=2), "Invalid threshold"),
        (lambda m: m.search("x", filters={"user_id": "a", "n": {"like": 1}}), "Unsupported metadata filter operator"),
        (lambda m: m.search("x", filters={"user_id": "a", "OR": []}), "OR operator requires a non-empty list"),
        (lambda m: m.search("x", filters={"user_id": "a", "NOT": {"n": 1}}), "NOT operator requires a list"),
        (lambda m: m.search("x", user_id="alice", show_expired=True), "does not support show_expired"),
        (lambda m: m.get_all(), "filters must contain at least one of"),
        (lambda m: m.delete_all(), "At least one filter is required"),
        (lambda m: m.delete("06gyjz5kd1h5es2k-dXNlcjphbGljZQ"), "not found"),
        (lambda m: m.delete("6f1c2f0e-0b52-4f0f-9a52-1f5b8f0d9c11"), "not found"),
        (lambda m: m.update("nonsense", "x"), "not found"),
        (lambda m: m.update("nonsense"), "At least one of text, metadata, or expiration_date"),
    ],
)
def test_bad_input_is_a_value_error_that_says_what_to_do(memory: Any, call: Callable[[Any], object], message: str):
    with pytest.raises(ValueError, match=message):
        call(memory)


def test_a_validation_error_has_the_attributes_of_mem0(plain: Memory):
    with pytest.raises(ValidationError) as caught:
        plain.add("x")
    assert caught.value.error_code == "VALIDATION_001"
    assert set(caught.value.details) == {"provided_ids"}
    assert caught.value.suggestion


def test_an_unknown_id_is_none_and_has_no_history(memory: Any):
    for unknown in ("6f1c2f0e-0b52-4f0f-9a52-1f5b8f0d9c11", "", "06gyjz5kd1h5es2k-dXNlcjphbGljZQ", "x-cHJvamVjdDphcGk"):
        assert memory.get(unknown) is None
        assert memory.history(unknown) == []


def test_an_id_of_another_tenant_finds_nothing(store: Path):
    settings = {"store": str(store)}
    with Memory.from_config({"afterturn": {**settings, "tenant": "one"}}) as first:
        (added,) = first.add("Likes tea", user_id="alice", infer=False)["results"]
    with Memory.from_config({"afterturn": {**settings, "tenant": "two"}}) as second:
        assert second.get(added["id"]) is None
        assert second.search("tea", user_id="alice") == {"results": []}
        second.reset()
    with Memory.from_config({"afterturn": {**settings, "tenant": "one"}}) as first:
        assert texts(first.get_all(user_id="alice")) == ["Likes tea"]


# Opening


def test_parts_of_the_configuration_that_do_not_apply_are_named_in_one_warning(
    store: Path, caplog: pytest.LogCaptureFixture
):
    config = {
        "embedder": {"provider": "openai"},
        "reranker": {"provider": "cohere"},
        "vector_store": {"provider": "pgvector", "config": {"host": "localhost"}},
        "version": "v1.1",
        "afterturn": {"store": str(store)},
    }
    Memory.from_config(config).close()
    (warning,) = [one.getMessage() for one in caplog.records if "configuration" in one.getMessage()]
    assert "embedder, reranker" in warning
    assert "version" not in warning


def test_the_path_of_a_vector_store_is_the_folder_of_the_store(tmp_path: Path):
    vector_store = {"provider": "qdrant", "config": {"path": str(tmp_path / "q"), "collection_name": "notes"}}
    with Memory.from_config({"vector_store": vector_store}) as memory:
        memory.add("Likes tea", user_id="alice", infer=False)
    assert (tmp_path / "q" / "notes.afterturn.db").exists()


def test_a_configuration_object_counts_with_what_was_set(store: Path):
    config = SimpleNamespace(
        model_fields_set={"afterturn"},
        afterturn={"store": str(store)},
        vector_store={"config": {"path": str(store.parent / "default")}},
    )
    with Memory(config=config) as memory:
        memory.add("Likes tea", user_id="alice", infer=False)
    assert store.exists()


def test_without_a_configuration_it_opens_the_configured_store(monkeypatch: pytest.MonkeyPatch, store: Path):
    monkeypatch.setenv("AFTERTURN_STORE", str(store))
    with Memory() as memory:
        memory.add("Likes tea", user_id="alice", infer=False)
    with blocking.open(store) as native:
        assert [entry.text for entry in native.space("user:alice").list()] == ["Likes tea"]


def test_the_hosted_client_says_what_to_use():
    with pytest.raises(ImportError, match="Use Memory, which takes the same calls"):
        from afterturn.compat.mem0 import MemoryClient  # noqa: F401
    with pytest.raises(ImportError, match="Use AsyncMemory"):
        from afterturn.compat.mem0 import AsyncMemoryClient  # noqa: F401


def test_several_threads_may_add_and_search_at_once(plain: Memory):
    def work(number: int) -> set[str]:
        owners: set[str] = set()
        for step in range(10):
            plain.add(f"Thread {number} was at step {step}", user_id=f"user{number}", infer=bool(step % 2))
            found = plain.search("which step", user_id=f"user{number}", threshold=0.0)["results"]
            owners |= {item["user_id"] for item in found}
        return owners

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(work, range(4))) == [{f"user{number}"} for number in range(4)]
    for number in range(4):
        assert len(texts(plain.get_all(user_id=f"user{number}", limit=50))) == 10


async def test_both_classes_in_a_running_loop(store: Path):
    async with AsyncMemory.from_config({"afterturn": {"store": str(store)}}) as memory:
        await asyncio.gather(*(memory.add(f"Fact {n}", user_id="alice", infer=False) for n in range(20)))
        assert len((await memory.get_all(user_id="alice", limit=50))["results"]) == 20


def test_results_are_plain_json(plain: Memory):
    plain.add(MESSAGES, user_id="alice", metadata={"deep": {"a": 1}})
    answers = [plain.get_all(user_id="alice"), plain.search("movies", user_id="alice", explain=True)]
    assert json.loads(json.dumps(answers)) == answers


def test_messages_that_the_store_does_not_take_are_kept_in_a_file(store: Path, caplog: pytest.LogCaptureFixture):
    """C2: a store that is locked is reported, and what was added is stored later."""
    settings = {"store": str(store), "busy_timeout": 0.05, "close_timeout": 1.0}
    with Memory.from_config({"afterturn": settings}) as memory:
        memory.add("Likes tea", user_id="alice")
        lock = apsw.Connection(str(store))
        lock.set_busy_timeout(10_000)
        lock.execute("BEGIN IMMEDIATE")
        assert memory.add("Likes milk", user_id="alice") == {"results": []}
        assert "they wait in a file" in caplog.text
    lock.execute("ROLLBACK")
    lock.close()
    with blocking.open(store) as native:
        assert native.drain()
        assert {entry.text for entry in native.space("user:alice").list()} == {"Likes tea", "Likes milk"}


def test_other_metadata_does_not_make_a_tools_words_the_users(memory: Any, origins: Callable[[], dict[str, str]]):
    """G2: neither when a message is added again, nor when only the metadata of a memory or a record is updated."""
    tool = [{"role": "tool", "content": "The user loves snakes"}]
    memory.add(tool, user_id="ada", infer=False)
    memory.add(tool, user_id="ada", infer=False, metadata={"page": 2})
    said = memory.add(
        [{"role": "user", "content": "Hi"}, {"role": "tool", "content": "The user loves bats"}], user_id="ada"
    )
    memory.update(said["results"][1]["id"], metadata={"page": 3})
    assert origins() == {"The user loves snakes": "tool", "The user loves bats": "tool", "Hi": "user"}
    memory.update(said["results"][1]["id"], text="I love bats")
    assert origins() == {"The user loves snakes": "tool", "I love bats": "user", "Hi": "user"}


@pytest.mark.parametrize("day", [5, ["x"], "never", "9999-12-31"])
def test_a_strange_expiration_date_in_metadata_is_only_metadata(memory: Any, day: object):
    """One message cannot keep all others of the user from being found."""
    memory.add("Ada likes green tea", user_id="ada", infer=False)
    memory.add("Ada keeps bees", user_id="ada", metadata={"expiration_date": day})
    memory.add("Ada has a cat", user_id="ada", infer=False, metadata={"expiration_date": day})
    found = memory.get_all(filters={"user_id": "ada"})["results"]
    assert {one["memory"] for one in found} == {"Ada likes green tea", "Ada keeps bees", "Ada has a cat"}
    assert memory.search("green tea", filters={"user_id": "ada"})["results"][0]["memory"] == "Ada likes green tea"


def test_what_cannot_be_read_is_refused_as_mem0_refuses(memory: Any):
    """Each with a ValueError that says what to do."""
    deep: dict[str, Any] = {}
    for _ in range(5_000):
        deep = {"AND": [deep]}
    with pytest.raises(ValueError, match="flatter"):
        memory.add("Ada likes tea", user_id="ada", infer=False, metadata={"deep": deep})
    with pytest.raises(ValueError, match="flatter"):
        memory.get_all(filters={"user_id": "ada", **deep})
    with pytest.raises(ValueError, match="needs a list"):
        memory.search("tea", filters={"user_id": "ada", "n": {"in": 5}})
    assert memory.get("abcd-\u00e9") is None
    assert memory.history("../../-dXNlcjphZGE") == []


def test_metadata_of_another_interface_is_no_obstacle(memory: Any, store: Path):
    """A space may be used through several interfaces."""
    with blocking.open(store) as other:
        other.space("user:ada").add("Ada likes tea", metadata={"mem0": "5", "expiration_date": 7})
    (found,) = memory.get_all(filters={"user_id": "ada"})["results"]
    assert found["metadata"] == {"mem0": "5"}
