"""What is talked about in simulated conversations: a few topics, each with memories to be recalled."""

from __future__ import annotations

import re
from random import Random

TOPICS = {
    "tea": "green jasmine oolong kettle",
    "sailing": "harbour regatta keel anchor",
    "compiler": "parser lexer bytecode linker",
    "garden": "tulip compost greenhouse rake",
    "opera": "soprano libretto overture aria",
}
MEMORIES_EACH = 4
OWNERS = ("user:ada", "user:bob")
# Words that a user says once, in one message: wherever one of them is found, it came from there.
MARK = re.compile(r"mark\d{9}")


def memories(owner: str) -> list[str]:
    """What the store knows before the first turn."""
    name = owner.partition(":")[2]
    return [
        f"{name} noted about {topic} number {number}: {words.split()[number % 4]}"
        for topic, words in TOPICS.items()
        for number in range(MEMORIES_EACH)
    ]


def question(random: Random) -> str:
    if random.random() < 0.1:
        return random.choice(["ok", "thanks", "…", "👍"])
    if random.random() < 0.2:
        return (
            f"{random.choice(['Remember that I like', 'I prefer', 'I have seen'])} mark{random.randrange(10**9):09d}."
        )
    topic = random.choice(sorted(TOPICS))
    return f"{random.choice(['What of', 'Tell me of', 'And'])} {topic} {random.choice(TOPICS[topic].split())}?"


def answer(random: Random) -> str:
    topic = random.choice(sorted(TOPICS))
    return f"Here is what there is on {topic}, part {random.randrange(1000)}."


def result(random: Random) -> str:
    return f"file {random.randrange(1000)} holds {random.choice(sorted(TOPICS))}"
