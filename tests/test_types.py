"""Values are frozen, slotted and compared by their fields; stored metadata cannot be changed."""

import copy
import json
import pickle
from dataclasses import FrozenInstanceError, fields, replace
from pickle import dumps, loads
from typing import Any

import pytest

from afterturn.config import Config
from afterturn.types import Draft, Entry, Filter, Hit, Lane, ReadMetadata, Scope, SearchResults, Status

ENTRY = Entry(
    "tea",
    id="e1",
    version=1,
    space="user:ada",
    status=Status.ACTIVE,
    trust=100,
    content_hash="h",
    recorded_at=1.0,
    occurred_at=2.0,
)
HIT = Hit(ENTRY, Lane.LONG_TERM, 0.9, 0.8, None, ("tea",))
VALUES = [
    Scope("default", ("user:ada",)),
    ENTRY,
    HIT,
    SearchResults("tea?", (HIT,), ("vectors",), "c"),
    Filter(),
    Config(),
]
# A field of each, and another value for it.
OTHERS: dict[type, tuple[str, Any]] = {
    Scope: ("spaces", ("user:grace",)),
    Entry: ("text", "coffee"),
    Hit: ("score", 0.1),
    SearchResults: ("missing", ()),
    Filter: ("agent", "a"),
    Config: ("grace", 1.0),
}


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_values_with_equal_fields_are_equal(value: Any) -> None:
    """§2: a copy is the same, one that differs in a field is not, and nothing of another class is."""
    name, other = OTHERS[type(value)]
    assert value == replace(value)
    assert value != replace(value, **{name: other})
    assert value != tuple(getattr(value, item.name) for item in fields(value))
    assert loads(dumps(value)) == value


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_values_cannot_be_changed(value: Any) -> None:
    """§2: frozen, and with no room for anything else."""
    name, other = OTHERS[type(value)]
    with pytest.raises(FrozenInstanceError):
        setattr(value, name, other)
    with pytest.raises(FrozenInstanceError):
        delattr(value, name)
    assert not hasattr(value, "__dict__")


def test_a_secret_setting_is_not_shown() -> None:
    """§2: no key is in a representation."""
    shown = repr(Config(model_key="hunter2", model="small"))
    assert "hunter2" not in shown
    assert "model='small'" in shown


READ = ReadMetadata(project="api", stars=3)


@pytest.mark.parametrize(
    "change",
    [
        lambda read: read.__setitem__("stars", 4),
        lambda read: read.__delitem__("stars"),
        lambda read: read.update(stars=4),
        lambda read: read.__ior__({"stars": 4}),
        lambda read: read.pop("stars"),
        lambda read: read.popitem(),
        lambda read: read.setdefault("more", 1),
        lambda read: read.clear(),
    ],
)
def test_stored_metadata_cannot_be_changed(change):
    """L3: the next answer has it as the store does."""
    with pytest.raises(TypeError, match="cannot be changed"):
        change(READ)
    assert READ == {"project": "api", "stars": 3}


@pytest.mark.parametrize("copied", [dict, copy.copy, copy.deepcopy, lambda read: pickle.loads(pickle.dumps(read))])
def test_a_copy_of_metadata_can_be_changed(copied):
    """L3: as any dictionary's, for who wants to change and store it."""
    own = copied(READ)
    own["stars"] = 4
    assert (type(own), own, READ["stars"]) == (dict, {"project": "api", "stars": 4}, 3)
    assert json.loads(json.dumps(READ)) == READ


def test_values_can_be_put_into_a_set():
    """L3: frozen values hash without their metadata, and equal ones alike."""
    one, same, other = (Draft(text="tea", metadata=given) for given in ({"a": 1}, {"a": 1}, {"a": 2}))
    assert ({one, same}, len({one, other})) == ({one}, 2)
    assert len({Filter(), Filter(metadata={"a": 1}), Filter()}) == 2
