"""What a user said is in the model's sight in later conversations, with default settings and `inject` alone."""

import re
from pathlib import Path

import pytest
from hosted import Listed
from spoken import assistant, user

import afterturn
from afterturn.testing.clock import ManualClock

pytestmark = pytest.mark.standing
RULES = (Path(__file__).resolve().parents[2] / "docs" / "rules.md").read_text(encoding="utf-8")
# The rows of the first table: what the user says, and what is learned from it.
EXAMPLES = re.findall(
    r'^\| "([^"|]+)"(?: after "([^"|]+)")? \| ([^|]+?) \| [a-z]+, (?:user|environment) \|$', RULES, re.M
)
SMALL_TALK = (
    "I had toast this morning.",
    "The bus was late again.",
    "What rhymes with window?",
    "I'm a bit tired today.",
)


async def tell(memory: afterturn.Memory, *texts: str) -> None:
    """Each in a conversation of its own, after some small talk."""
    for number, text in enumerate([*SMALL_TALK, *texts]):
        messages: Listed = [user(text)]
        async with memory.conversation(f"told-{number}", user="ada").turn(messages) as turn:
            await turn.inject(messages, within=10)
            messages.append(assistant("I see."))
        assert await turn.wait_recorded()
    assert await memory.drain()


async def see(memory: afterturn.Memory, question: str) -> str:
    """What the model is given for a question in a new conversation."""
    messages: Listed = [user(question)]
    async with memory.conversation(f"asked: {question}", user="ada").turn(messages, incognito=True) as turn:
        await turn.inject(messages, within=10)
        turn.abort()
    return "\n".join(str(message["content"]) for message in messages[1:])


async def test_six_facts_reach_the_model_when_they_are_asked_for(tmp_path: Path) -> None:
    """S5, S1, L12: a name, a convention, a relative, a language, a manager, and a dose that was raised since."""
    async with afterturn.open(tmp_path / "memory.db") as memory:
        await tell(
            memory,
            "Call me Max.",
            "We use pnpm here, not npm.",
            "My sister Ruth is coeliac.",
            "Always answer me in French.",
            "My manager at Brightwell is Aylin.",
            "I take 75 micrograms of levothyroxine.",
            "My doctor raised my levothyroxine to 100.",
        )
        assert "Max" in await see(memory, "What is my name?")
        assert "pnpm" in await see(memory, "Add lodash to the project.")
        assert "coeliac" in await see(memory, "What can Ruth eat?")
        assert "French" in await see(memory, "Write a haiku about rain.")
        assert "Aylin" in await see(memory, "What's my boss's name?")
        dose = await see(memory, "How much levothyroxine do I take?")
        assert "100" in dose
        assert "75" not in dose
        assert "toast" not in dose + await see(memory, "Hello!")


async def test_what_a_standing_line_replaces_is_not_recalled_as_if_it_held(tmp_path: Path) -> None:
    """L12: also if a rule learned the older sentence as a statement, and the newer one is only a message."""
    async with afterturn.open(tmp_path / "memory.db") as memory:
        dose, raised = "I take 75 micrograms of levothyroxine every morning", "doctor raised my levothyroxine to 100"
        await tell(memory, dose, raised)
        seen = await see(memory, "How much thyroid medication do I take?")
    assert f"- {raised}\n" in seen
    assert all("(earlier, " in line for line in seen.splitlines() if dose in line)


async def test_a_message_is_recalled_for_what_its_standing_sentence_does_not_say(tmp_path: Path) -> None:
    """S5: only the second sentence lasts, and a question asks about the first."""
    async with afterturn.open(tmp_path / "memory.db") as memory:
        await tell(memory, "Whitby's off. My husband's mum Margaret lives in Carlisle and broke her hip.")
        seen = await see(memory, "Did we go to Whitby?")
    assert "- My husband's mum Margaret lives in Carlisle and broke her hip." in seen
    assert "Whitby's off" in seen


async def test_what_a_standing_line_changed_without_a_word_of_change_is_marked(tmp_path: Path) -> None:
    """L12: the standing block leaves it out, and a recall does not bring it back as if it held."""
    clock = ManualClock()
    async with afterturn.open(tmp_path / "memory.db", components=afterturn.Components(clock=clock)) as memory:
        await tell(memory, "phone is a pixel 7, cracked to bits")
        clock.advance(3 * 86_400.0)
        await tell(memory, "finally binned the pixel, got a fairphone now")
        clock.advance(30 * 86_400.0)
        seen = await see(memory, "what phone case fits mine")
    assert "- finally binned the pixel, got a fairphone now" in seen
    assert re.search(r"\(earlier, [\d-]+\), user: phone is a pixel", seen), seen


async def test_thanks_are_not_recalled_for_thanks(tmp_path: Path) -> None:
    """L5: they are no answer to anything."""
    async with afterturn.open(tmp_path / "memory.db") as memory:
        await tell(memory, "ありがとう")
        assert await see(memory, "本当にありがとう") == ""


async def test_where_the_user_moved_to_is_known(tmp_path: Path) -> None:
    """S1: what changed in a life lasts, also if the sentence says on which day it happened."""
    async with afterturn.open(tmp_path / "memory.db") as memory:
        await tell(memory, "we live in Berlin", "we moved to Hamburg last weekend!")
        seen = await see(memory, "Where do I live?")
    assert "Hamburg" in seen
    assert "Berlin" not in seen.partition("Hamburg")[0]


def test_the_page_about_rules_has_examples() -> None:
    assert len(EXAMPLES) >= 12


@pytest.mark.parametrize("said, before, learned", EXAMPLES)
async def test_every_example_of_learning_reaches_the_model(
    tmp_path: Path, said: str, before: str, learned: str
) -> None:
    """S5, V11: the sentences that the documentation gives as examples of learning."""
    async with afterturn.open(tmp_path / "memory.db") as memory:
        await tell(memory, *([before] if before else []), said)
        sight = (await see(memory, "Hello!")).casefold()
    wanted = re.sub(r"\(replaces [^)]*\)|The user's?|Call the user", "", learned.replace("Answer in", ""))
    missing = [word for word in re.findall(r"\w{4,}", wanted.casefold()) if word[:4] not in sight]
    assert len(missing) <= 1, sight
