"""Facts that were told a minute ago, in a space that has nothing else: default settings, only `turn` and `inject`."""

from collections.abc import Sequence
from pathlib import Path

import pytest

import afterturn

HOSTS = "alpha bravo charlie delta echo foxtrot golf hotel india juliet kilo lima".split()
SERVICES = "nginx postgres redis grafana kafka vault consul minio jenkins gitea loki haproxy".split()
pairs = zip(HOSTS, SERVICES, strict=True)
SERVERS = [f"host {host} runs {name} on port {8080 + at}" for at, (host, name) in enumerate(pairs)]


async def say(memory: afterturn.Memory, conversation: str, text: str, messages: list[dict[str, str]]) -> list[str]:
    """One turn of the README's loop. Returns the lines of its block."""
    messages.append({"role": "user", "content": text})
    before = len(messages)
    async with memory.conversation(conversation, user="ada").turn(messages) as turn:
        await turn.inject(messages, within=5.0)
        block = "\n".join(message["content"] for message in messages[before:])
        messages.append({"role": "assistant", "content": "Noted."})
    assert await turn.wait_recorded(within=30)
    return [line for line in block.splitlines() if line.startswith("- ")]


async def ask(path: Path, facts: Sequence[str], questions: Sequence[str]) -> list[list[str]]:
    """The lines for each question, in a conversation of its own, after the facts were told in another one."""
    async with afterturn.open(path) as memory:
        await memory.ready()
        told: list[dict[str, str]] = []
        for fact in facts:
            await say(memory, "told", fact, told)
        await memory.drain(within=30)
        return [await say(memory, f"asked {at}", question, []) for at, question in enumerate(questions)]


async def test_facts_that_look_alike_do_not_hide_each_other(tmp_path: Path) -> None:
    """L13: what distinguishes one of twelve is found, and a word that all of them have finds all."""
    questions = [
        "What runs on golf?",
        "Which host has redis?",
        "which port does nginx listen on",
        "Which hosts do we have?",
    ]
    *found, hosts = await ask(tmp_path / "memory.db", SERVERS, questions)
    assert [lines[0].partition("user: ")[2] for lines in found] == [SERVERS[6], SERVERS[2], SERVERS[0]]
    assert len(hosts) >= len(SERVERS) // 2


@pytest.mark.parametrize(
    "fact, question",
    [
        ("My bike is locked with the code 4711.", "What is the code of my bike lock?"),
        ("The parking permit has to be renewed in March.", "When do I have to renew the permit?"),
        ("Mein Zahnarzt heißt Dr. Lenz.", "Wie heißt mein Zahnarzt?"),
    ],
)
async def test_a_single_fact_is_found(tmp_path: Path, fact: str, question: str) -> None:
    """L13: a word is as rare in a space with one message as in a large one."""
    [lines] = await ask(tmp_path / "memory.db", [fact], [question])
    assert [line.partition("user: ")[2] for line in lines] == [fact]
