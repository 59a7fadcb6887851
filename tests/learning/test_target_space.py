"""In which space something that was learned belongs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from afterturn.learning.staging import TargetSpace, attributed_messages, find_target_space, find_target_space_for
from afterturn.testing.entries import entry
from afterturn.types import Origin, ReviewKind, ReviewMessage, ReviewRow, Target

USER, ENVIRONMENT = Target.USER, Target.ENVIRONMENT


def review(space: str, writes: str, *reads: str) -> ReviewRow:
    return ReviewRow("r1", ReviewKind.INTERVAL, "default", space, writes, 0.0, "c", reads=reads)


def said(speaker: str, role: str = "user") -> ReviewMessage:
    return ReviewMessage(role, speaker, "I live in Bergen", None, Origin.USER.trust, 0.0)


OWN = review("user:ada", "user:ada")
GRANTED = review("user:ada", "user:ada", "user:bob")
ADAS_PROJECT = review("user:ada", "project:x")
WITH_PROJECT = replace(OWN, environment="project:x")
TEAM = review("team:x", "team:x")
TEAM_WITH_BOB = review("team:x", "team:x", "user:bob")


@pytest.mark.parametrize(
    "row, target, speakers, target_space",
    [
        (OWN, USER, [], TargetSpace("user:ada")),
        (OWN, USER, ["user"], TargetSpace("user:ada")),
        (OWN, ENVIRONMENT, [""], TargetSpace("user:ada")),
        (OWN, USER, ["ada"], TargetSpace("user:ada", speaker="ada")),
        (OWN, USER, ["Ada"], TargetSpace("user:ada", speaker="Ada")),
        (OWN, USER, ["bob"], None),
        (OWN, ENVIRONMENT, ["bob"], None),
        (OWN, USER, ["user", "bob"], None),
        (OWN, USER, ["ada", "bob"], None),
        (GRANTED, USER, ["bob"], TargetSpace("user:bob", speaker="bob")),
        (GRANTED, ENVIRONMENT, ["bob"], TargetSpace("user:bob", speaker="bob")),
        (GRANTED, USER, ["ada", "bob"], None),
        (GRANTED, USER, ["eve"], None),
        (WITH_PROJECT, USER, ["user"], TargetSpace("user:ada")),
        (WITH_PROJECT, ENVIRONMENT, ["user"], TargetSpace("project:x")),
        (WITH_PROJECT, ENVIRONMENT, ["bob"], None),
        (ADAS_PROJECT, USER, ["user"], TargetSpace("user:ada")),
        (ADAS_PROJECT, ENVIRONMENT, ["user"], TargetSpace("project:x")),
        (ADAS_PROJECT, ENVIRONMENT, ["ada"], TargetSpace("user:ada", speaker="ada")),
        (ADAS_PROJECT, USER, ["bob"], TargetSpace("project:x", needs_approval=True, speaker="bob")),
        (TEAM, USER, ["user"], TargetSpace("team:x")),
        (TEAM, ENVIRONMENT, ["bob"], TargetSpace("team:x", needs_approval=True, speaker="bob")),
        (TEAM, USER, ["bob", "eve"], None),
        (TEAM_WITH_BOB, USER, ["bob"], TargetSpace("user:bob", speaker="bob")),
        (TEAM_WITH_BOB, USER, ["eve"], TargetSpace("team:x", needs_approval=True, speaker="eve")),
    ],
)
def test_a_statement_belongs_to_its_speaker(
    row: ReviewRow, target: Target, speakers: list[str], target_space: TargetSpace | None
) -> None:
    """L2: a speaker's words into that speaker's space, what is personal into no shared one without approval."""
    assert find_target_space(row, target, [said(speaker) for speaker in speakers]) == target_space


def test_only_users_are_speakers() -> None:
    """L2: the name of a tool or of an agent is nobody's space."""
    cited = [said("search", role="tool"), said("helper", role="assistant")]

    assert find_target_space(GRANTED, USER, cited) == TargetSpace("user:ada")


@pytest.mark.parametrize(
    "cited, target, speakers",
    [
        ([1], USER, ["agent", "bob"]),
        ([3], USER, ["agent", "ada"]),
        ([0, 1], USER, ["bob", "agent"]),
        ([1, 2], USER, ["agent", "ada"]),
        ([1], ENVIRONMENT, ["agent"]),
        ([4], USER, ["agent", "ada"]),
        ([5], USER, ["tool"]),
    ],
)
def test_what_the_agent_repeats_is_still_its_speakers(cited: list[int], target: Target, speakers: list[str]) -> None:
    """L2: a model that names only the agent's answer does not make bob's words ada's."""
    agent, tool = said("agent", role="assistant"), said("tool", role="tool")
    messages = [said("bob"), agent, said("ada"), agent, agent, tool]

    assert [message.speaker for message in attributed_messages(messages, cited, target)] == speakers


def test_an_agent_that_speaks_first_answers_nobody() -> None:
    """L2: there is nobody whose words it could repeat."""
    greeting = said("agent", role="assistant")

    assert attributed_messages([greeting, said("bob")], [0], USER) == [greeting]


@pytest.mark.parametrize(
    "row, space, target, owner, speaker, target_space",
    [
        (OWN, "user:ada", USER, None, "user", TargetSpace("user:ada")),
        (OWN, "user:ada", USER, "ada", "user", TargetSpace("user:ada")),
        (OWN, "user:ada", USER, None, "bob", None),
        (GRANTED, "user:ada", USER, None, "bob", None),
        (ADAS_PROJECT, "user:ada", USER, None, "user", TargetSpace("user:ada")),
        (ADAS_PROJECT, "project:x", USER, None, "user", None),
        (ADAS_PROJECT, "project:x", ENVIRONMENT, None, "user", TargetSpace("project:x")),
        (ADAS_PROJECT, "user:ada", ENVIRONMENT, None, "user", None),
        (TEAM, "team:x", ENVIRONMENT, None, "user", TargetSpace("team:x")),
        (TEAM, "team:x", ENVIRONMENT, "bob", "user", TargetSpace("team:x", needs_approval=True)),
        (TEAM, "team:x", ENVIRONMENT, None, "bob", TargetSpace("team:x", needs_approval=True, speaker="bob")),
        (TEAM_WITH_BOB, "team:x", ENVIRONMENT, None, "bob", None),
    ],
)
def test_a_memory_is_changed_by_those_whose_words_belong_where_it_is(
    row: ReviewRow, space: str, target: Target, owner: str | None, speaker: str, target_space: TargetSpace | None
) -> None:
    """L2: nobody rewrites in another's space; in a shared one, what somebody else said only with approval."""
    memory = entry("The user lives in Oslo", space=space, target=target, speaker=owner)

    assert find_target_space_for(row, memory, [said(speaker)]) == target_space
