"""afterturn's mem0 interface compared with the real mem0: parameters, results, filters, errors, and its examples."""

import asyncio
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from afterturn.compat.mem0 import AsyncMemory, Memory
from lab.bench.compat import import_mem0, measure_compat, open_mem0
from lab.clients.model_server import ModelServer, Say

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

VERBS = ["add", "search", "get", "get_all", "update", "delete", "delete_all", "history", "reset", "close", "chat"]
MESSAGES = [
    {"role": "user", "content": "I am looking for a film for tonight."},
    {"role": "assistant", "content": "Do you like thrillers?"},
    {"role": "user", "content": "Not much, but I love science fiction.", "name": "alice"},
]


@pytest.fixture(scope="module")
def mem0(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return import_mem0(tmp_path_factory.mktemp("mem0"))


@pytest.fixture
def real(mem0: Any, tmp_path: Path) -> Iterator[Any]:
    memory = open_mem0(tmp_path / "real")
    yield memory
    memory.close()
    memory.vector_store.client.close()


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[Memory]:
    with Memory.from_config({"afterturn": {"store": str(tmp_path / "ours.db")}}) as memory:
        yield memory


@pytest.mark.parametrize("our_class", [Memory, AsyncMemory])
@pytest.mark.parametrize("verb", [*VERBS, "from_config", "__init__"])
def test_every_verb_has_the_parameters_of_the_real_one(mem0: Any, our_class: type, verb: str):
    wanted = inspect.signature(getattr(getattr(mem0, our_class.__name__), verb)).parameters
    found = inspect.signature(getattr(our_class, verb)).parameters
    shared = [found[name] for name in wanted if name in found]
    assert [name for name in wanted if name not in found] == []
    assert [name for name in found if name in wanted] == list(wanted)
    assert [one.kind for one in shared[1:]] == [one.kind for one in list(wanted.values())[1:]]
    plain = {name: one for name, one in wanted.items() if isinstance(one.default, int | float | str | None)}
    assert {name: found[name].default for name in plain} == {name: one.default for name, one in plain.items()}
    added = [one for name, one in found.items() if name not in wanted]
    assert all(one.default is not inspect.Parameter.empty for one in added)


def shape(value: object) -> object:
    """The keys of a result and the types of its values. A list has the shape of its first element."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value).__name__


def use(call: Callable[..., Any]) -> dict[str, object]:
    """Calls every verb with `infer=False` and returns the shapes of the results by verb."""
    ids = {"user_id": "alice", "agent_id": "guide", "run_id": "r1"}
    added = call("add", MESSAGES, **ids, metadata={"topic": "film", "deep": {"a": [1]}}, infer=False)
    first, second, named = (one["id"] for one in added["results"])
    found = {
        "add": added,
        "search": call("search", "science fiction", filters={"user_id": "alice"}, top_k=1, explain=True),
        "get": call("get", first),
        "get named": call("get", named),
        "get_all": call("get_all", filters={**ids, "actor_id": "alice"}),
        "get nothing": call("get", "2b0c7f0e-0b52-4f0f-9a52-1f5b8f0d9c11"),
        "update": call("update", first, "I found a film."),
        "update metadata": call("update", memory_id=first, metadata={"done": True}, expiration_date="2999-01-01"),
        "get updated": call("get", first),
        "delete": call("delete", memory_id=first),
        "history": call("history", first),
        "events": [row["event"] for row in call("history", first)],
        "history of nothing": call("history", "2b0c7f0e-0b52-4f0f-9a52-1f5b8f0d9c11"),
        "get deleted": call("get", first),
        "delete_all": call("delete_all", user_id="alice", run_id="r1"),
        "get_all of nothing": call("get_all", filters={"user_id": "alice"}),
        "get without metadata": call("get", call("add", "Tea", user_id="bob", infer=False)["results"][0]["id"]),
        "reset": call("reset"),
        "get_all after reset": call("get_all", filters={"user_id": "bob"}),
    }
    assert call("get", second) is None
    return {name: value if name == "events" else shape(value) for name, value in found.items()}


def test_results_have_the_keys_and_types_of_the_real_ones(real: Any, ours: Memory):
    assert use(lambda verb, *args, **kwargs: getattr(ours, verb)(*args, **kwargs)) == use(
        lambda verb, *args, **kwargs: getattr(real, verb)(*args, **kwargs)
    )


def test_results_of_the_async_class_have_the_keys_and_types_of_the_real_ones(mem0: Any, tmp_path: Path):
    found = []
    real = open_mem0(tmp_path, asynchronous=True)
    ours = AsyncMemory.from_config({"afterturn": {"store": str(tmp_path / "ours.db")}})
    with asyncio.Runner() as runner:
        for memory in (ours, real):
            found.append(use(lambda verb, *args, _m=memory, **kwargs: runner.run(getattr(_m, verb)(*args, **kwargs))))
            memory.close()
    real.vector_store.client.close()
    assert found[0] == found[1]


def test_what_a_model_extracts_has_the_keys_of_the_real_one(
    mem0: Any, tmp_path: Path, ours: Memory, model_server: ModelServer
):
    """The real mem0 asks a model; ours learns by rules, and `wait=True` returns what it learned."""
    model_server.script = lambda request: Say(json.dumps({"memory": [{"id": "0", "text": "The user is called Alice"}]}))
    llm = {"provider": "openai", "config": {"model": "m", "api_key": "k", "openai_base_url": f"{model_server.url}/v1"}}
    real = open_mem0(tmp_path / "real", llm=llm)
    theirs = real.add("My name is Alice.", user_id="alice")
    real.close()
    real.vector_store.client.close()
    mine = ours.add("My name is Alice.", user_id="alice", wait=True)
    assert shape(mine) == shape(theirs) == {"results": [{"id": "str", "memory": "str", "event": "str"}]}
    assert mine["results"][0]["event"] == theirs["results"][0]["event"] == "ADD"


STORED = {
    "cat": {"sort": "pet", "age": 3, "tags": ["small", "soft"], "since": "2026-01-05", "note": "a soft cat"},
    "dog": {"sort": "pet", "age": 7.5, "tags": ["big"], "since": "2026-03-01T10:00:00Z", "tame": True},
    "oak": {"sort": "plant", "age": 90, "tame": False, "note": "Tall", "at": {"city": "Rome", "parks": [{"no": 3}]}},
}
FILTERS: list[dict[str, Any]] = [
    {"sort": "pet"},
    {"sort": {"eq": "pet"}},
    {"sort": ["pet", "stone"]},
    {"tame": True},
    {"age": 3},
    {"age": {"gt": 3}},
    {"age": {"gte": 3, "lt": 90}},
    {"age": {"lte": 7.5}},
    {"age": {"in": [3, 90]}},
    {"sort": {"ne": "pet"}},
    {"sort": {"nin": ["plant"]}},
    {"tags": "soft"},
    {"tags": {"in": ["big", "small"]}},
    {"tags": {"ne": "big"}},
    {"note": {"contains": "soft"}},
    {"note": {"ne": "Tall"}},
    {"since": {"gte": "2026-02-01"}},
    {"missing": 1},
    {"missing": {"gt": 1}},
    {"AND": [{"sort": "pet"}, {"age": {"gt": 5}}]},
    {"OR": [{"age": 3}, {"sort": "plant"}]},
    {"NOT": [{"sort": "pet"}]},
    {"NOT": [{"sort": "plant"}, {"age": 3}]},
    {"sort": "pet", "NOT": [{"tags": "soft"}]},
    {"AND": [{"OR": [{"age": 3}, {"age": 90}]}, {"NOT": [{"sort": "plant"}]}]},
    {"role": "user"},
    {"at.city": "Rome"},
    {"at.city": {"ne": "Oslo"}},
    {"at.parks[].no": 3},
    {"at.parks.no": 3},
    {"tags[]": "soft"},
]


def test_filters_choose_what_the_real_ones_choose(real: Any, ours: Memory):
    for memory in (real, ours):
        for name, metadata in STORED.items():
            memory.add(name, user_id="alice", metadata=metadata, infer=False)
    different = {}
    for wanted in FILTERS:
        found = [
            sorted(one["memory"] for one in memory.get_all(filters={"user_id": "alice", **wanted})["results"])
            for memory in (real, ours)
        ]
        if found[0] != found[1]:
            different[str(wanted)] = found
    assert different == {}


BAD_CALLS: list[Callable[[Any], object]] = [
    lambda m: m.add("x"),
    lambda m: m.add(7, user_id="alice", infer=False),
    lambda m: m.add("x", user_id=" ", infer=False),
    lambda m: m.add("x", user_id="a b", infer=False),
    lambda m: m.add("x", user_id="alice", memory_type="other"),
    lambda m: m.add("x", user_id="alice", infer=False, expiration_date="soon"),
    lambda m: m.search("", filters={"user_id": "alice"}),
    lambda m: m.search(3, filters={"user_id": "alice"}),
    lambda m: m.search("x", filters={}),
    lambda m: m.search("x", filters={"user_id": "alice"}, top_k=-1),
    lambda m: m.search("x", filters={"user_id": "alice"}, threshold=1.5),
    lambda m: m.search("x", filters={"user_id": "alice", "age": {"like": 3}}),
    lambda m: m.search("x", filters={"user_id": "alice", "OR": []}),
    lambda m: m.get_all(filters={"sort": "pet"}),
    lambda m: m.delete_all(),
    lambda m: m.delete("2b0c7f0e-0b52-4f0f-9a52-1f5b8f0d9c11"),
    lambda m: m.update("2b0c7f0e-0b52-4f0f-9a52-1f5b8f0d9c11", "x"),
    lambda m: m.update("2b0c7f0e-0b52-4f0f-9a52-1f5b8f0d9c11"),
]


def test_what_the_real_one_refuses_is_refused_with_a_value_error(mem0: Any, real: Any, ours: Memory):
    for call in BAD_CALLS:
        with pytest.raises((ValueError, mem0.memory.main.Mem0ValidationError)) as theirs:
            call(real)
        with pytest.raises(ValueError, match=r"\w") as mine:
            call(ours)
        wanted = getattr(theirs.value, "error_code", None)
        assert getattr(mine.value, "error_code", None) == wanted


def test_a_configuration_object_of_mem0_is_accepted(mem0: Any, tmp_path: Path):
    config = mem0.configs.base.MemoryConfig(
        vector_store={"provider": "qdrant", "config": {"path": str(tmp_path / "q")}}
    )
    with Memory(config=config) as memory:
        memory.add("Likes tea", user_id="alice", infer=False)
    assert (tmp_path / "q" / "mem0.afterturn.db").exists()


# Programs in the shape of the examples in mem0's documentation: the quick start, the asynchronous memory, metadata and
# filters. They run with another import and are otherwise as a user of mem0 has them.

QUICK_START = """
import os
from mem0 import Memory

os.environ["OPENAI_API_KEY"] = "your-api-key"
m = Memory()
messages = [
    {"role": "user", "content": "We want to see a film tonight. What do you recommend?"},
    {"role": "assistant", "content": "A thriller, perhaps?"},
    {"role": "user", "content": "My name is Alice. I love sci-fi films."},
    {"role": "assistant", "content": "Then I will suggest sci-fi."},
]
result = m.add(messages, user_id="alice", metadata={"category": "films"})
m.add(messages, user_id="alice", agent_id="film-guide", run_id="session-1", metadata={"category": "films"})
m.add(messages, user_id="alice", metadata={"category": "films"}, infer=False)
memory_id = result["results"][0]["id"]

all_memories = m.get_all(user_id="alice")
assert all_memories == m.get_all(filters={"user_id": "alice"})
specific_memory = m.get(memory_id)
assert specific_memory["user_id"] == "alice" and specific_memory["metadata"] == {"category": "films"}
related = m.search(query="What do you know about me?", user_id="alice")
assert related["results"] and all(item["score"] > 0 for item in related["results"])
related = m.search("sci-fi", filters={"user_id": "alice"}, top_k=3)
assert "sci-fi" in related["results"][0]["memory"] and len(related["results"]) == 3

result = m.update(memory_id=memory_id, data="I love India, it is my favorite country.")
assert result == {"message": "Memory updated successfully!"}
assert m.get(memory_id)["memory"].startswith("I love India")
history = m.history(memory_id=memory_id)
assert [row["event"] for row in history] == ["ADD", "UPDATE"]
m.delete(memory_id=memory_id)
m.delete_all(user_id="alice")
assert m.get_all(user_id="alice")["results"] == []
m.reset()
print("done")
"""

CHAT = """
from mem0 import Memory

memory = Memory()


def chat_with_memories(message, user_id="default_user"):
    found = memory.search(query=message, filters={"user_id": user_id}, top_k=3)
    memories = "\\n".join(f"- {entry['memory']}" for entry in found["results"])
    messages = [{"role": "system", "content": f"User memories:\\n{memories}"}, {"role": "user", "content": message}]
    reply = "You are allergic to nuts." if "nuts" in memories else "Noted."
    messages.append({"role": "assistant", "content": reply})
    memory.add(messages, user_id=user_id)
    return reply


assert chat_with_memories("Hi, I'm Alex. I'm allergic to nuts.") == "Noted."
assert chat_with_memories("What am I allergic to?") == "You are allergic to nuts."
print("done")
"""

ASYNCHRONOUS = """
import asyncio
from mem0 import AsyncMemory


async def main():
    memory = AsyncMemory()
    await memory.add(
        messages=[
            {"role": "user", "content": "I'm travelling to SF"},
            {"role": "assistant", "content": "That's great to hear!"},
        ],
        user_id="alice",
    )
    found = await memory.search(query="Where am I travelling?", user_id="alice")
    assert "SF" in found["results"][0]["memory"]
    memory_id = found["results"][0]["id"]
    assert await memory.get(memory_id=memory_id)
    await memory.update(memory_id=memory_id, data="I'm travelling to Seattle")
    assert (await memory.get(memory_id))["memory"] == "I'm travelling to Seattle"
    assert len(await memory.history(memory_id=memory_id)) == 2
    await asyncio.gather(*(memory.add(f"Note {n}", user_id=f"user{n}", infer=False) for n in range(5)))
    await memory.delete(memory_id=memory_id)
    await memory.delete_all(user_id="alice")
    assert (await memory.get_all(user_id="alice"))["results"] == []


asyncio.run(main())
print("done")
"""

METADATA = """
from mem0 import Memory

config = {
    "vector_store": {"provider": "qdrant", "config": {"host": "localhost", "port": 6333}},
    "llm": {"provider": "openai", "config": {"model": "gpt-4.1-nano", "temperature": 0.1}},
    "embedder": {"provider": "openai", "config": {"model": "text-embedding-3-small"}},
    "history_db_path": "history.db",
    "version": "v1.1",
}
m = Memory.from_config(config_dict=config)
for text, metadata in (
    ("The release must go out", {"category": "work", "priority": 9, "status": "open", "assignee": "alice"}),
    ("The report was sent", {"category": "work", "priority": 8, "status": "completed", "assignee": "bob"}),
    ("The garden needs water", {"category": "personal", "priority": 3, "status": "open"}),
):
    m.add(text, user_id="manager", metadata=metadata, infer=False)


def found(**filters):
    answer = m.search("what must be done?", user_id="manager", filters=filters, threshold=0.0)
    return {one["memory"].split()[1] for one in answer["results"]}


assert found(category="work") == {"release", "report"}
assert found(priority={"gte": 8}, status={"ne": "completed"}) == {"release"}
assert found(category={"in": ["personal", "urgent"]}) == {"garden"}
assert found(assignee="*") == {"release", "report"}
assert found(OR=[{"category": "personal"}, {"priority": {"gte": 9}}]) == {"garden", "release"}
assert found(AND=[{"OR": [{"category": "work"}, {"category": "personal"}]}, {"NOT": [{"status": "completed"}]}]) == {
    "release",
    "garden",
}
try:
    m.search("test", user_id="manager", filters={"field": {"unknown": "value"}})
except ValueError as e:
    print(f"Filter error: {e}")
print("done")
"""


@pytest.mark.parametrize(
    "program", [QUICK_START, CHAT, ASYNCHRONOUS, METADATA], ids=["quick start", "chat", "async", "metadata"]
)
def test_examples_of_mem0_run_with_another_import(program: str, tmp_path: Path):
    source = program.replace("from mem0 import", "from afterturn.compat.mem0 import")
    assert source != program
    run = subprocess.run(
        [sys.executable, "-c", source],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        env={**os.environ, "AFTERTURN_STORE": str(tmp_path / "memory.db")},
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.endswith("done\n")


def test_the_benchmark_measures_both_in_one_run(mem0: Any, tmp_path: Path):
    file = tmp_path / "everyday.json"
    exchange = {"user": "My cat Miso is allergic to chicken.", "assistant": "Noted."}
    session = {"id": "s1", "at": "2026-09-01T10:00:00+00:00", "exchanges": [exchange]}
    question = {
        "id": "q1",
        "kind": "plain",
        "at": "2026-11-16T09:00:00+00:00",
        "turns": ["What is Miso allergic to?"],
        "right": ["chicken"],
        "stale": None,
        "bears": "chicken",
    }
    file.write_text(json.dumps({"users": [{"user": "mia", "sessions": [session], "questions": [question]}]}))
    report = measure_compat(quick=True, everyday=file)
    assert report.passed is None
    assert all(figure.baseline for figure in report.figures)
    assert [figure.ours for figure in report.figures if figure.name.startswith("right answers")] == [1, 1, 1]
