"""Values are frozen, slotted and compared by their fields."""

from dataclasses import FrozenInstanceError, fields, replace
from pickle import dumps, loads
from typing import Any

import pytest

from afterturn.config import Config
from afterturn.types import Entry, Filter, Hit, Lane, Scope, SearchResults, Status

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
def test_values_can_not_be_changed(value: Any) -> None:
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
