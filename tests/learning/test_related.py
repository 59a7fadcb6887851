"""What a review is shown of what is known already."""

from __future__ import annotations

from pathlib import Path

import pytest
from simple_host import open_memory, say

from afterturn.testing.model import ScriptedModel

NOTHING = "Nothing to save."
TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


async def shown(path: Path, origin: str, **config: object) -> str:
    """What the model sees of a memory that was written while nobody scanned."""
    async with open_memory(path, scanners="none") as memory:
        await memory.space("user:ada").add(f"The deploy token is {TOKEN}", origin=origin)
        await memory.space("user:ada").add("Deploys are on Tuesdays")
    model = ScriptedModel(NOTHING)
    async with open_memory(path, model, review_interval=1, **config) as memory:
        await say(memory.conversation("c", user="ada"), "where is the token for the next one?")
        assert await memory.drain(within=20)
    (call,) = model.calls
    known: str = call.messages[1]["content"].split("The conversation:")[0]
    assert "Deploys are on Tuesdays" in known
    return known


async def test_a_secret_in_what_is_known_is_not_shown_to_the_model(tmp_path: Path) -> None:
    """G3: known memories are looked at once more; a trusted one is shown without it."""
    known = await shown(tmp_path, "user")

    assert TOKEN not in known
    assert "The deploy token is [redacted" in known


@pytest.mark.parametrize("origin", ["web", "tool"])
async def test_what_is_not_trusted_and_holds_a_secret_is_left_out(tmp_path: Path, origin: str) -> None:
    """G3: none of it is shown."""
    assert "The deploy token" not in await shown(tmp_path, origin)


async def test_without_scanning_what_is_known_is_shown_as_it_is(tmp_path: Path) -> None:
    """G3: for hosts whose texts are scanned elsewhere."""
    assert TOKEN in await shown(tmp_path, "user", scanners="none")
