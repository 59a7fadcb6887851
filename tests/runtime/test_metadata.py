"""Metadata that was read is everybody's."""

import copy
import json
import pickle

import pytest

from afterturn.types import ReadMetadata

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
def test_nobody_changes_it_for_others(change):
    """L3: the next answer has it as the store does."""
    with pytest.raises(TypeError, match="cannot be changed"):
        change(READ)
    assert READ == {"project": "api", "stars": 3}


@pytest.mark.parametrize("copied", [dict, copy.copy, copy.deepcopy, lambda read: pickle.loads(pickle.dumps(read))])
def test_a_copy_is_its_owner_s(copied):
    """L3: as any dictionary's, for who wants to change and store it."""
    own = copied(READ)
    own["stars"] = 4
    assert (type(own), own, READ["stars"]) == (dict, {"project": "api", "stars": 4}, 3)
    assert json.loads(json.dumps(READ)) == READ
