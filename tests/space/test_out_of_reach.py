"""What a forget does not erase, it names: backups, and spaces that recorded a conversation of another."""

from pathlib import Path

import pytest

import afterturn
from afterturn.testing.clock import ManualClock


async def say(memory: afterturn.Memory, conversation: str, text: str, **options: str) -> None:
    messages = [{"role": "user", "content": text}, {"role": "assistant", "content": "Noted."}]
    async with memory.conversation(conversation, user="ada", **options).turn(messages, speaker="ada") as turn:
        pass
    assert await turn.wait_recorded(within=20.0)


@pytest.mark.parametrize("chosen", [{"everything": True}, {"conversation": "c"}, {"speaker": "ada"}], ids=str)
async def test_a_project_that_recorded_the_conversation_is_named(
    memory: afterturn.Memory, ada: afterturn.Space, chosen: dict[str, object]
) -> None:
    """M2, L2: the words are in the project's space, which has its own forget."""
    await say(memory, "c", "The port is 8123", reads=("project:p",), writes="project:p")
    forgotten = await ada.forget(**chosen)  # type: ignore[arg-type]
    assert forgotten.out_of_reach == ("the space project:p, which has records of conversations of user:ada",)
    there = await memory.space("project:p").forget(conversation="c")
    assert (there.erased, there.out_of_reach) == (2, ())
    assert (await ada.forget(**chosen)).out_of_reach == ()  # type: ignore[arg-type]


async def test_other_conversations_and_spaces_are_not_named(memory: afterturn.Memory, ada: afterturn.Space) -> None:
    """M2: only what belongs to the conversation that is forgotten."""
    await say(memory, "other", "The port is 8123", reads=("project:p",), writes="project:p")
    await say(memory, "c", "I like tea")
    assert (await ada.forget(conversation="c")).out_of_reach == ()
    assert (await memory.space("user:bob").forget(everything=True)).out_of_reach == ()


async def test_backups_are_named_until_they_are_deleted(
    memory: afterturn.Memory, ada: afterturn.Space, clock: ManualClock, tmp_path: Path
) -> None:
    """M2: wherever they are, also after another restore and in the next process."""
    entry = (await ada.add("The word is zanzibar")).entry
    first, second = tmp_path / "first.db", tmp_path / "elsewhere" / "second.db"
    second.parent.mkdir()
    await memory.backup(first)
    clock.advance(60.0)
    await memory.backup(second)
    await memory.restore(first)
    assert (await ada.forget(memory=entry.id)).out_of_reach == (str(first), str(second))
    second.unlink()
    assert (await ada.forget(everything=True)).out_of_reach == (str(first),)
    async with afterturn.open(tmp_path / "memory.db", {"embedder": "none"}) as again:
        assert (await again.space("user:ada").forget(everything=True)).out_of_reach == (str(first),)


async def test_a_backup_on_a_disk_that_is_away_is_still_named(
    memory: afterturn.Memory, ada: afterturn.Space, tmp_path: Path
) -> None:
    """M2: it comes back with the disk."""
    disk = tmp_path / "disk"
    disk.mkdir()
    await memory.backup(disk / "copy.db")
    disk.rename(tmp_path / "away")
    assert (await ada.forget(everything=True)).out_of_reach == (str(disk / "copy.db"),)
