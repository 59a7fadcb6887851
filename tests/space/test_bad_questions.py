"""What the direct verbs make of arguments that no store could take: one error of our own, and nothing done."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, tzinfo
from typing import Any

import pytest

import afterturn
from afterturn.errors import InvalidInput
from afterturn.types import Draft, Filter, Kind

HALF = "\ud800"
KNOWN = "0k3v8r2c4d5e6f7g"

BAD_CALLS: dict[str, Callable[[Any], Awaitable[object]]] = {
    "metadata value": lambda space: space.add("tea", metadata={"k": HALF}),
    "metadata key": lambda space: space.add("tea", metadata={HALF: 1}),
    "metadata list": lambda space: space.add("tea", metadata=[1]),
    "metadata empty text": lambda space: space.add("tea", metadata=""),
    "sources text": lambda space: space.add("tea", sources="abcd"),
    "sources number": lambda space: space.add("tea", sources=5),
    "pinned text": lambda space: space.add("tea", pinned="no"),
    "target list": lambda space: space.add("tea", target=["user"]),
    "origin list": lambda space: space.add("tea", origin=["user"]),
    "time true": lambda space: space.add("tea", occurred_at=True),
    "time text": lambda space: space.add("tea", valid_to="soon"),
    "lanes unknown": lambda space: space.search("tea", lanes=["x"]),
    "lanes text": lambda space: space.search("tea", lanes="long_term"),
    "lanes number": lambda space: space.search("tea", lanes=5),
    "search conversation": lambda space: space.search("tea", conversation=HALF),
    "search limit": lambda space: space.search("tea", limit=True),
    "search as_of": lambda space: space.search("tea", as_of=True),
    "search filter": lambda space: space.search("tea", filter=None),
    "search as_of text": lambda space: space.search("tea", as_of="soon"),
    "search as_of local": lambda space: space.search("tea", as_of="2026-11-15T09:30"),
    "search exclude text": lambda space: space.search("tea", exclude="06gy24q73vc4bwqn"),
    "search score": lambda space: space.search("tea", score_min=1.1),
    "search score text": lambda space: space.search("tea", score_min="0.5"),
    "search exclude ids": lambda space: space.search("tea", exclude=[3]),
    "filter since": lambda space: space.list(filter=Filter(since="last week")),
    "filter since local": lambda space: space.search("tea", filter=Filter(since="2026-11-15")),
    "filter until": lambda space: space.search("tea", filter=Filter(until=True)),
    "filter range": lambda space: space.list(filter=Filter(since=20.0, until=10.0)),
    "filter agent": lambda space: space.list(filter=Filter(agent=HALF)),
    "filter origin": lambda space: space.list(filter=Filter(origin="nobody")),
    "filter trusted": lambda space: space.list(filter=Filter(trusted=1)),  # type: ignore[arg-type]
    "filter kind": lambda space: space.list(filter=Filter(kind="poem")),  # type: ignore[arg-type]
    "filter pinned": lambda space: space.list(filter=Filter(pinned="no")),  # type: ignore[arg-type]
    "filter statuses": lambda space: space.list(filter=Filter(statuses=("asleep",))),  # type: ignore[arg-type]
    "filter statuses text": lambda space: space.list(filter=Filter(statuses="active")),  # type: ignore[arg-type]
    "filter key": lambda space: space.list(filter=Filter(metadata={HALF: "x"})),
    "filter value": lambda space: space.list(filter=Filter(metadata={"a": HALF})),
    "filter object": lambda space: space.list(filter=Filter(metadata={"a": object()})),  # type: ignore[dict-item]
    "filter not a number": lambda space: space.list(filter=Filter(metadata={"a": float("nan")})),
    "filter metadata list": lambda space: space.list(filter=Filter(metadata=[1])),  # type: ignore[arg-type]
    "before half": lambda space: space.list(before=HALF),
    "before number": lambda space: space.list(before=5),
    "list limit": lambda space: space.list(limit=True),
    "version huge": lambda space: space.get(KNOWN, version=2**70),
    "version negative": lambda space: space.get(KNOWN, version=-1),
    "version true": lambda space: space.get(KNOWN, version=True),
    "expected version": lambda space: space.update(KNOWN, "tea", expected_version="1"),
    "expected version huge": lambda space: space.update(KNOWN, "tea", expected_version=2**70),
    "forget speaker": lambda space: space.forget(speaker=HALF),
    "forget source": lambda space: space.forget(source=HALF),
    "forget conversation": lambda space: space.forget(conversation=object()),
    "forget blank conversation": lambda space: space.forget(conversation=""),
    "forget everything text": lambda space: space.forget(everything="no"),
    "forget everything one": lambda space: space.forget(everything=1),
    "forget nothing but zero": lambda space: space.forget(memory=KNOWN, everything=0),
    "trace conversation": lambda space: space.trace(conversation=object()),
    "undo half": lambda space: space.undo(HALF),
    "add_many text": lambda space: space.add_many("abc"),
    "add_many number": lambda space: space.add_many(5),
    "add_many group": lambda space: space.add_many([Draft("tea")], group=HALF),
    "add_many id": lambda space: space.add_many([Draft("tea", id="\x1b[2J..;")]),
    "add_many time": lambda space: space.add_many([Draft("tea", occurred_at=float("inf"))]),
    "add_many position": lambda space: space.add_many([Draft("tea", kind=Kind.RECORD, position=2**63)]),
}


@pytest.mark.parametrize("call", BAD_CALLS.values(), ids=BAD_CALLS)
async def test_a_bad_argument_is_one_error_of_ours_and_does_nothing(
    ada: afterturn.Space, call: Callable[[Any], Awaitable[object]]
) -> None:
    """G1: outside input is checked once, at the edge, whatever it is."""
    await ada.add_many([Draft("Ada likes coffee", id=KNOWN)])
    with pytest.raises(InvalidInput):
        await call(ada)
    assert [entry.text for entry in await ada.list()] == ["Ada likes coffee"]


class Unsure(tzinfo):
    """A zone that does not know its offset."""

    def utcoffset(self, _: datetime | None) -> None:
        return None

    def tzname(self, _: datetime | None) -> None:
        return None

    def dst(self, _: datetime | None) -> None:
        return None


async def test_the_ends_of_the_calendar_are_times_too(ada: afterturn.Space) -> None:
    """G1: no datetime gives an error that is not ours."""
    assert (await ada.add("Ada likes tea", occurred_at=datetime.min.replace(tzinfo=UTC))).created
    with pytest.raises(InvalidInput):
        await ada.add("Ada likes coffee", occurred_at=datetime.max.replace(tzinfo=UTC))
    with pytest.raises(InvalidInput, match="no time zone"):
        await ada.add("Ada likes coffee", occurred_at=datetime(2026, 1, 1, tzinfo=Unsure()))


@pytest.mark.parametrize(
    "stored, asked", [(1, 1.0), (1.0, 1), (-0.0, 0), (0, -0.0), (1e22, 10**22), (2, (1.0, 2.0)), (2, [2, 3])]
)
async def test_equal_numbers_are_equal_in_a_filter(ada: afterturn.Space, stored: Any, asked: Any) -> None:
    """L2: equality is the number's, not its spelling's; a list is as good as a tuple."""
    await ada.add("Ada likes tea", metadata={"tier": stored})
    assert len(await ada.list(filter=Filter(metadata={"tier": asked}))) == 1


async def test_true_is_no_number_in_a_filter(ada: afterturn.Space) -> None:
    """L2: as in JSON."""
    await ada.add("Ada likes tea", metadata={"tier": True})
    assert await ada.list(filter=Filter(metadata={"tier": 1})) == []
    assert len(await ada.list(filter=Filter(metadata={"tier": True}))) == 1


async def test_names_of_lanes_and_kinds_do_as_well_as_the_values(ada: afterturn.Space) -> None:
    """What reads like a lane is one."""
    await ada.add("Ada likes tea")
    found = await ada.search("tea", lanes=["long_term"], filter=Filter(kind="statement"))  # type: ignore[list-item]
    assert len(found.hits) == 1


async def test_a_range_that_ends_before_it_begins_is_shown_as_dates(ada: afterturn.Space) -> None:
    """G1: dates, as most callers write them, whatever was passed."""
    with pytest.raises(
        InvalidInput, match=r"since \(1970-01-01T00:00:20\+00:00\) is not before its until \(1970-01-01"
    ):
        await ada.list(filter=Filter(since=20.0, until=20.0))
