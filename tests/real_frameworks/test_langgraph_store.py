"""One suite for LangGraph's own stores and for ours, with and without an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from langgraph.store.base import (
    BaseStore,
    GetOp,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchItem,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore
from langgraph.store.sqlite import SqliteStore
from langgraph.store.sqlite.aio import AsyncSqliteStore

from afterturn.frameworks.langgraph_store import AfterturnStore
from afterturn.text import terms

pytestmark = pytest.mark.frameworks

ADA, BOB = ("memories", "ada"), ("memories", "bob")
DIMENSIONS = 256


def embed(texts: list[str]) -> list[list[float]]:
    """Words as vectors, for LangGraph's own stores; ours embeds by itself."""
    return [_embed_one(text) for text in texts]


def _embed_one(text: str) -> list[float]:
    vector = [1e-6] * DIMENSIONS
    for term in terms(text):
        vector[crc32(term.encode()) % DIMENSIONS] += 1.0
    return vector


class Calls:
    """A store whose methods are awaited, whether they are the ones with an event loop or the others."""

    def __init__(self, store: BaseStore, *, is_async: bool) -> None:
        self.store, self.is_async = store, is_async

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            if self.is_async:
                return await getattr(self.store, f"a{name}")(*args, **kwargs)
            return getattr(self.store, name)(*args, **kwargs)

        return call


async def open_store(kind: str, folder: Path, stack: AsyncExitStack, *fields: str, is_async: bool) -> BaseStore:
    chosen: dict[str, Any] = {"fields": list(fields)} if fields else {}
    match kind:
        case "InMemoryStore":
            return InMemoryStore(index={"dims": DIMENSIONS, "embed": embed, **chosen})
        case "SqliteStore" if is_async:
            store = await stack.enter_async_context(AsyncSqliteStore.from_conn_string(":memory:"))
            await store.setup()
            return store
        case "SqliteStore":
            blocking = stack.enter_context(SqliteStore.from_conn_string(":memory:"))
            blocking.setup()
            return blocking
        case _:
            return stack.enter_context(AfterturnStore(folder / "memory.db", index=chosen))


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def is_async(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(params=["InMemoryStore", "SqliteStore", "AfterturnStore"])
async def calls(request: pytest.FixtureRequest, is_async: bool, tmp_path: Path) -> AsyncIterator[Calls]:
    async with AsyncExitStack() as stack:
        yield Calls(await open_store(request.param, tmp_path, stack, is_async=is_async), is_async=is_async)


@pytest.fixture(params=["InMemoryStore", "AfterturnStore"])
async def opened(request: pytest.FixtureRequest, is_async: bool, tmp_path: Path) -> AsyncIterator[Callable[..., Any]]:
    """Stores that answer queries. SqliteStore needs a Python whose SQLite loads extensions for that."""
    async with AsyncExitStack() as stack:

        async def open_with(*fields: str) -> Calls:
            store = await open_store(request.param, tmp_path, stack, *fields, is_async=is_async)
            return Calls(store, is_async=is_async)

        yield open_with


@pytest.fixture
async def ranking(opened: Callable[..., Any]) -> Calls:
    return await opened()


def keys(items: list[Item] | list[SearchItem]) -> list[str]:
    return [item.key for item in items]


# The same for every store: items


async def test_an_item_comes_back_as_it_was_put(calls: Calls):
    await calls.put(ADA, "pet", {"text": "Ada has a cat", "age": 3})
    item = await calls.get(ADA, "pet")
    assert (item.namespace, item.key, item.value) == (ADA, "pet", {"text": "Ada has a cat", "age": 3})
    assert isinstance(item.created_at, datetime)
    assert item.created_at <= item.updated_at


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"whole": 7, "zero": 0, "negative": -2, "large": 2**53 + 1},
        {"tenth": 0.1, "small": 5e-324, "large": 1.7976931348623157e308, "whole": 2.0, "minus": -0.0},
        {"yes": True, "no": False, "none": None},
        {"nested": {"list": [1, [2, {"deep": "text"}], None], "empty": {}, "none": []}},
        {"unicode": "Zoë, 東京, 👩‍👩‍👧, cafe\u0301, \u200bzero", "ключ": "значение"},
        {"blank": "", "spaces": "  two  ", "lines": "a\nb\r\n\tc", "quotes": "\"'\\", "nul": "a\u0000b"},
        {"text": "a long note " * 2_000},
    ],
    ids=lambda value: next(iter(value), "empty"),
)
async def test_a_value_keeps_its_exact_content(calls: Calls, value: dict[str, Any]):
    await calls.put(ADA, "exact", value)
    found = (await calls.get(ADA, "exact")).value
    assert found == value
    assert repr(found) == repr(value)


@pytest.mark.parametrize("key", ["plain", "with space", " ", "a.b/c:d", "ключ", "x" * 500, "%25", "a\nb"])
async def test_a_key_is_any_text(calls: Calls, key: str):
    await calls.put(ADA, key, {"text": "something"})
    await calls.put(ADA, "another", {"text": "something else"})
    assert (await calls.get(ADA, key)).key == key
    assert sorted(keys(await calls.search(ADA))) == sorted([key, "another"])


@pytest.mark.parametrize(
    "label", ["with space", " edge ", "a:b", "a/b", "%2E", "100%", "Zoë", "user@host", "a\nb", "*"]
)
async def test_a_label_of_a_namespace_is_any_text_without_periods(calls: Calls, label: str):
    namespace = ("memories", label, "x")
    await calls.put(namespace, "k", {"text": "something"})
    assert (await calls.get(namespace, "k")).namespace == namespace
    assert await calls.list_namespaces() == [namespace]
    assert [item.namespace for item in await calls.search(("memories", label))] == [namespace]


async def test_what_was_never_put_is_none(calls: Calls):
    await calls.put(ADA, "pet", {"text": "cat"})
    assert await calls.get(ADA, "car") is None
    assert await calls.get(BOB, "pet") is None
    assert await calls.search(BOB) == []


async def test_a_put_replaces_the_whole_value(calls: Calls):
    await calls.put(ADA, "pet", {"text": "cat", "age": 3})
    first = await calls.get(ADA, "pet")
    await calls.put(ADA, "pet", {"text": "dog"})
    second = await calls.get(ADA, "pet")
    assert second.value == {"text": "dog"}
    assert second.updated_at >= first.updated_at
    assert keys(await calls.search(ADA)) == ["pet"]


async def test_a_changed_dictionary_does_not_change_the_item(calls: Calls):
    value = {"text": "cat"}
    await calls.put(ADA, "pet", value)
    value["text"] = "dog"
    assert (await calls.get(ADA, "pet")).value == {"text": "cat"}


async def test_a_deleted_item_is_gone_and_may_be_put_again(calls: Calls):
    for text in ("cat", "dog", "cat"):
        await calls.put(ADA, "pet", {"text": text})
        assert (await calls.get(ADA, "pet")).value == {"text": text}
        await calls.delete(ADA, "pet")
        assert await calls.get(ADA, "pet") is None
        assert await calls.search(ADA) == []


async def test_deleting_what_is_not_there_is_no_error(calls: Calls):
    await calls.delete(ADA, "pet")
    await calls.put(ADA, "car", {"text": "red"})
    await calls.delete(ADA, "pet")
    assert keys(await calls.search(ADA)) == ["car"]


async def test_items_with_equal_values_stay_apart(calls: Calls):
    for key in ("one", "two", "three"):
        await calls.put(ADA, key, {"text": "Ada has a cat"})
    await calls.delete(ADA, "two")
    await calls.put(ADA, "three", {"text": "Ada has a dog"})
    assert await calls.get(ADA, "two") is None
    assert (await calls.get(ADA, "one")).value == {"text": "Ada has a cat"}
    assert sorted(keys(await calls.search(ADA))) == ["one", "three"]


async def test_namespaces_do_not_share_keys(calls: Calls):
    spaces = [("a",), ("ab",), ("a", "b"), ("a", "b", "c"), ("b", "a")]
    for namespace in spaces:
        await calls.put(namespace, "k", {"text": "/".join(namespace)})
    for namespace in spaces:
        assert (await calls.get(namespace, "k")).value == {"text": "/".join(namespace)}
    await calls.delete(("a",), "k")
    assert (await calls.get(("a", "b"), "k")).value == {"text": "a/b"}


@pytest.mark.parametrize("namespace", [(), ("",), ("a", ""), ("a.b",), ("a", 1), ("langgraph", "x"), ("a\x00b",)])
async def test_an_invalid_namespace_is_refused(calls: Calls, namespace: Any):
    with pytest.raises(InvalidNamespaceError):
        await calls.put(namespace, "k", {"text": "something"})
    assert await calls.list_namespaces() == []


# The same for every store: searches without a query


async def test_a_search_covers_all_namespaces_below_its_prefix(calls: Calls):
    for namespace in (("a",), ("a", "b"), ("a", "b", "c"), ("ab",), ("b", "a")):
        await calls.put(namespace, "-".join(namespace), {"text": "something"})
    assert sorted(keys(await calls.search(("a",)))) == ["a", "a-b", "a-b-c"]
    assert sorted(keys(await calls.search(("a", "b")))) == ["a-b", "a-b-c"]
    assert sorted(keys(await calls.search(()))) == ["a", "a-b", "a-b-c", "ab", "b-a"]
    assert await calls.search(("c",)) == []


async def test_items_without_a_query_have_no_score(calls: Calls):
    await calls.put(ADA, "pet", {"text": "cat"})
    (found,) = await calls.search(ADA)
    assert (found.key, found.namespace, found.value, found.score) == ("pet", ADA, {"text": "cat"}, None)


async def test_pages_of_a_search_are_complete_and_disjoint(calls: Calls):
    for number in range(7):
        await calls.put(ADA, f"k{number}", {"number": number})
    pages = [keys(await calls.search(ADA, limit=3, offset=offset)) for offset in (0, 3, 6, 9)]
    assert [len(page) for page in pages] == [3, 3, 1, 0]
    assert sorted(chain.from_iterable(pages)) == [f"k{number}" for number in range(7)]
    assert len(await calls.search(ADA)) == 7


@pytest.mark.parametrize(
    "wanted, found",
    [
        ({"colour": "red"}, "ad"),
        ({"colour": "red", "size": 4}, "d"),
        ({"colour": {"$eq": "red"}}, "ad"),
        ({"size": 2}, "b"),
        ({"size": {"$eq": 2.0}}, "b"),
        ({"size": {"$ne": 2}}, "acd"),
        ({"size": {"$gt": 2}}, "cd"),
        ({"size": {"$gte": 2}}, "bcd"),
        ({"size": {"$lt": 2}}, "a"),
        ({"size": {"$lte": 2}}, "ab"),
        ({"size": {"$gt": 1, "$lt": 4}}, "bc"),
        ({"size": {"$gte": 1.5}, "colour": "red"}, "d"),
        ({"done": True}, "ab"),
        ({"done": False}, "cd"),
        ({"colour": "pink"}, ""),
        ({"missing": "x"}, ""),
        ({"missing": None}, "abcd"),
        ({}, "abcd"),
    ],
    ids=str,
)
async def test_a_filter_narrows_a_search(calls: Calls, wanted: dict[str, Any], found: str):
    for size, (key, colour) in enumerate([("a", "red"), ("b", "blue"), ("c", "green"), ("d", "red")], start=1):
        await calls.put(ADA, key, {"text": f"a {colour} thing", "colour": colour, "size": size, "done": size < 3})
    assert sorted(keys(await calls.search(ADA, filter=wanted))) == sorted(found)
    assert sorted(keys(await calls.search(ADA, filter=wanted, query="thing"))) == sorted(found)


async def test_a_filter_applies_before_the_limit(calls: Calls):
    for number in range(30):
        await calls.put(ADA, f"k{number:02}", {"text": "a note", "number": number})
    wanted = {"number": {"$gte": 25}}
    assert len(await calls.search(ADA, filter=wanted, limit=10)) == 5
    pages = [keys(await calls.search(ADA, filter=wanted, limit=2, offset=offset)) for offset in (0, 2, 4)]
    assert sorted(chain.from_iterable(pages)) == ["k25", "k26", "k27", "k28", "k29"]


async def test_an_unknown_operator_is_an_error(calls: Calls):
    await calls.put(ADA, "pet", {"size": 2})
    with pytest.raises(ValueError, match="Unsupported operator"):
        await calls.search(ADA, filter={"size": {"$around": 2}})


# The same for every store that answers queries


async def put_hobbies(ranking: Calls) -> None:
    await ranking.put(ADA, "pet", {"text": "Ada has a grey cat called Miso"})
    await ranking.put(ADA, "food", {"text": "Ada eats pizza with olives on Fridays"})
    await ranking.put(ADA, "job", {"text": "Ada repairs old clocks in Geneva"})
    await ranking.put(BOB, "food", {"text": "Bob eats pizza with pineapple"})


@pytest.mark.parametrize("query, best", [("grey cat", "pet"), ("pizza olives", "food"), ("old clocks", "job")])
async def test_a_query_ranks_the_items(ranking: Calls, query: str, best: str):
    await put_hobbies(ranking)
    found = await ranking.search(ADA, query=query)
    assert sorted(keys(found)) == ["food", "job", "pet"]
    assert found[0].key == best
    scores = [item.score for item in found]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] > scores[1]


async def test_a_query_covers_the_namespaces_below_its_prefix_alone(ranking: Calls):
    await put_hobbies(ranking)
    assert {item.namespace for item in await ranking.search(ADA, query="pizza")} == {ADA}
    both = await ranking.search(("memories",), query="pizza", limit=2)
    assert {item.namespace for item in both} == {ADA, BOB}


async def test_pages_of_a_query_follow_one_another(ranking: Calls):
    await put_hobbies(ranking)
    whole = keys(await ranking.search(ADA, query="pizza", limit=10))
    pages = [keys(await ranking.search(ADA, query="pizza", limit=1, offset=offset)) for offset in (0, 1, 2, 3)]
    assert pages == [[key] for key in whole] + [[]]


async def test_an_empty_query_is_none(ranking: Calls):
    await put_hobbies(ranking)
    assert sorted(keys(await ranking.search(ADA, query=""))) == ["food", "job", "pet"]


async def test_a_changed_item_is_found_by_its_new_text(ranking: Calls):
    await put_hobbies(ranking)
    await ranking.put(ADA, "pet", {"text": "Ada has an elephant"})
    await ranking.put(ADA, "job", {"text": "Ada paints grey cats"})
    assert (await ranking.search(ADA, query="grey cat"))[0].key == "job"
    assert (await ranking.search(ADA, query="elephant"))[0].key == "pet"


async def test_a_deleted_item_is_not_found(ranking: Calls):
    await put_hobbies(ranking)
    await ranking.delete(ADA, "pet")
    assert sorted(keys(await ranking.search(ADA, query="grey cat"))) == ["food", "job"]


async def test_a_query_searches_the_fields_of_an_item_s_index(ranking: Calls):
    await ranking.put(ADA, "one", {"title": "apples", "body": "stones and sand"}, index=["title"])
    await ranking.put(ADA, "two", {"title": "stones", "body": "apples apples"}, index=["title"])
    assert (await ranking.search(ADA, query="apples"))[0].key == "one"
    assert (await ranking.search(ADA, query="stones"))[0].key == "two"


async def test_paths_of_an_index_reach_into_lists(ranking: Calls):
    notes = [{"text": "about tulips"}, {"text": "about violins"}]
    await ranking.put(ADA, "one", {"notes": notes, "tags": ["x"]}, index=["notes[*].text"])
    await ranking.put(ADA, "two", {"notes": [{"text": "about trains"}], "last": ["tulips"]}, index=["notes[-1].text"])
    assert (await ranking.search(ADA, query="violins"))[0].key == "one"
    assert (await ranking.search(ADA, query="tulips"))[0].key == "one"
    assert (await ranking.search(ADA, query="trains"))[0].key == "two"


async def test_the_store_s_own_fields_are_searched_by_default(opened: Callable[..., Any]):
    ranking = await opened("title")
    await ranking.put(ADA, "one", {"title": "apples", "body": "stones and sand"})
    await ranking.put(ADA, "two", {"title": "stones", "body": "apples apples"})
    assert (await ranking.search(ADA, query="apples"))[0].key == "one"


async def test_an_item_that_is_not_indexed_is_never_ranked(ranking: Calls):
    await ranking.put(ADA, "hidden", {"text": "the secret recipe for pizza"}, index=False)
    await ranking.put(ADA, "shown", {"text": "a walk on Sundays"})
    ranked = [item for item in await ranking.search(ADA, query="secret recipe pizza") if item.score is not None]
    assert keys(ranked) == ["shown"]
    assert (await ranking.get(ADA, "hidden")).value == {"text": "the secret recipe for pizza"}
    assert sorted(keys(await ranking.search(ADA))) == ["hidden", "shown"]
    assert keys(await ranking.search(ADA, filter={"text": "the secret recipe for pizza"})) == ["hidden"]


# The same for every store: namespaces

TREE = [("a", "b", "c"), ("a", "b", "d", "e"), ("a", "b", "d", "i"), ("a", "b", "f"), ("a", "c", "f"), ("b",), ("ab",)]


@pytest.mark.parametrize(
    "wanted, found",
    [
        ({}, sorted(TREE)),
        ({"prefix": ("a", "b")}, [TREE[0], TREE[1], TREE[2], TREE[3]]),
        ({"prefix": ("a",), "suffix": ("f",)}, [TREE[3], TREE[4]]),
        ({"suffix": ("f",)}, [TREE[3], TREE[4]]),
        ({"suffix": ("d", "*")}, [TREE[1], TREE[2]]),
        ({"prefix": ("a", "*", "f")}, [TREE[3], TREE[4]]),
        ({"prefix": ("*", "b")}, [TREE[0], TREE[1], TREE[2], TREE[3]]),
        ({"prefix": ("a", "b"), "max_depth": 3}, [("a", "b", "c"), ("a", "b", "d"), ("a", "b", "f")]),
        ({"max_depth": 1}, [("a",), ("ab",), ("b",)]),
        ({"limit": 2}, sorted(TREE)[:2]),
        ({"limit": 3, "offset": 5}, sorted(TREE)[5:]),
        ({"max_depth": 1, "offset": 1, "limit": 1}, [("ab",)]),
        ({"prefix": ("z",)}, []),
        ({"prefix": ("a", "b", "d", "e", "x")}, []),
    ],
    ids=str,
)
async def test_namespaces_are_listed_by_pattern(calls: Calls, wanted: dict[str, Any], found: list[tuple[str, ...]]):
    for namespace in TREE:
        await calls.put(namespace, "k", {"text": "something"})
    assert await calls.list_namespaces(**wanted) == found


# The same for every store: batches


async def test_a_batch_answers_in_the_order_of_its_operations(calls: Calls):
    await calls.put(ADA, "pet", {"text": "cat"})
    results = await calls.batch(
        [
            PutOp(BOB, "pet", {"text": "dog"}),
            GetOp(ADA, "pet"),
            SearchOp(ADA),
            GetOp(ADA, "car"),
            ListNamespacesOp(match_conditions=(MatchCondition("prefix", ("memories",)),)),
        ]
    )
    assert [results[0], results[1].value, keys(results[2]), results[3]] == [None, {"text": "cat"}, ["pet"], None]
    assert ADA in results[4]
    assert (await calls.get(BOB, "pet")).value == {"text": "dog"}


async def test_reads_of_a_batch_see_what_was_before_its_puts(calls: Calls):
    await calls.put(ADA, "pet", {"text": "cat"})
    before = await calls.batch([PutOp(ADA, "pet", {"text": "dog"}), GetOp(ADA, "pet")])
    assert before[1].value == {"text": "cat"}
    assert (await calls.get(ADA, "pet")).value == {"text": "dog"}


async def test_the_last_put_of_a_key_in_a_batch_counts(calls: Calls):
    await calls.put(ADA, "gone", {"text": "cat"})
    await calls.batch(
        [
            PutOp(ADA, "kept", {"text": "one"}),
            PutOp(ADA, "kept", {"text": "two"}),
            PutOp(ADA, "gone", {"text": "three"}),
            PutOp(ADA, "gone", None),
            PutOp(ADA, "back", None),
            PutOp(ADA, "back", {"text": "four"}),
        ]
    )
    assert {item.key: item.value["text"] for item in await calls.search(ADA)} == {"kept": "two", "back": "four"}


async def test_concurrent_puts_of_one_key_leave_one_item(calls: Calls):
    def put(number: int) -> None:
        calls.store.put(ADA, "pet", {"text": f"cat {number}"})

    if calls.is_async:
        await asyncio.gather(*(calls.put(ADA, "pet", {"text": f"cat {number}"}) for number in range(20)))
    else:
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(put, range(20)))
    (found,) = await calls.search(ADA)
    assert found.value in [{"text": f"cat {number}"} for number in range(20)]
