"""A statement that a newer one supersedes takes the messages with it that it was learned from."""

from __future__ import annotations

from pathlib import Path

from simple_host import open_memory, say

from afterturn import Memory

BOTH = "My favorite color is blue. My cat Minka hides in the wardrobe during every thunderstorm."
OLD_DOSE, NEW_DOSE = "I take 75 micrograms of levothyroxine.", "My doctor raised my levothyroxine to 100."


async def tell(memory: Memory, *messages: str) -> None:
    for at, message in enumerate(messages):
        await say(memory.conversation(f"c{at}", user="ada"), message)
        assert await memory.drain(within=20)


async def ask(memory: Memory, question: str) -> str:
    messages: list[dict[str, str]] = [{"role": "user", "content": question}]
    async with memory.conversation("asked", user="ada").turn(messages) as turn:
        await turn.inject(messages, within=5.0)
        given = "\n".join(message["content"] for message in messages[1:])
        messages.append({"role": "assistant", "content": "One moment."})
    return given


async def test_the_message_of_a_superseded_statement_is_left_out(tmp_path: Path) -> None:
    """L12: in a turn, a search and the profile; the newer version takes its place, never the old value alone."""
    async with open_memory(tmp_path, rules=True) as memory:
        await tell(memory, "I live in Lyon.", "I live in Nantes now.")
        space = memory.space("user:ada")
        found = await space.search("Lyon")
        profile = await space.profile()
        block = await ask(memory, "Where do I live?")

    assert [hit.entry.text for hit in found.hits] == ["The user lives in Nantes now"]
    assert "Lyon" not in " ".join(entry.text for subject in profile.subjects for entry in subject.entries)
    assert "Nantes" in block
    assert "Lyon" not in block


async def test_a_message_with_other_facts_is_shown_as_earlier_after_the_new_value(tmp_path: Path) -> None:
    """L12."""
    async with open_memory(tmp_path, rules=True) as memory:
        await tell(memory, BOTH, "My favorite color is green.")
        found = await memory.space("user:ada").search("favorite color")
        block = await ask(memory, "What is my favorite color?")

    (old,) = [hit for hit in found.hits if hit.entry.text == BOTH]
    assert old.is_earlier
    assert "green" in found.hits[0].entry.text
    assert block.index("green") < block.index("blue")
    assert "(earlier, " in block


async def test_a_question_about_the_past_finds_the_old_message(tmp_path: Path) -> None:
    """L12."""
    async with open_memory(tmp_path, rules=True) as memory:
        await tell(memory, "I live in Lyon.", "I live in Nantes now.")
        found = await memory.space("user:ada").search("Where did I live before?")

    assert "I live in Lyon." in [hit.entry.text for hit in found.hits]


async def test_undoing_the_change_brings_the_message_back(tmp_path: Path) -> None:
    """L12, M2: what is not superseded any more is not outdated either."""
    async with open_memory(tmp_path, rules=True) as memory:
        await tell(memory, "I live in Lyon.", "My favorite color is green.")
        space = memory.space("user:ada")
        (home,) = [hit.entry for hit in (await space.search("Lyon")).hits if "lives" in hit.entry.text]
        await space.update(home.id, "The user lives in Nantes")
        changed = [hit.entry.text for hit in (await space.search("Lyon")).hits]
        await space.delete(home.id)
        back = [hit.entry.text for hit in (await space.search("Lyon")).hits]

    assert "I live in Lyon." not in changed
    assert back == ["I live in Lyon."]


async def test_a_dose_that_was_raised_is_not_shown_alone(tmp_path: Path) -> None:
    """L12: by the values in the messages, without a statement that was superseded."""
    async with open_memory(tmp_path, rules=False) as memory:
        await tell(memory, OLD_DOSE, NEW_DOSE)
        found = await memory.space("user:ada").search("levothyroxine")
        block = await ask(memory, "What is my dose of levothyroxine?")

    told = [(hit.entry.text, hit.is_earlier) for hit in found.hits if "levothyroxine" in hit.entry.text]
    assert told == [(NEW_DOSE, False), (OLD_DOSE, True)]
    assert "100" in block
    assert "75" not in block
