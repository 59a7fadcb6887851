"""What a model is told by its memory tools when the guard says no."""

import pytest

import afterturn
from afterturn.config import Config
from afterturn.guard import gate as guard_gate
from afterturn.testing import EventLog
from afterturn.types import Status

TOKEN = "ghp_" + "a1B2" * 9
STOP = "Stop proposing memories"


def question(text: str = "Which port?") -> list[dict[str, object]]:
    return [{"role": "user", "content": text}]


@pytest.mark.parametrize("scanners", [Config().scanners, "none"])
async def test_a_model_over_budget_is_told_what_could_go(opened, told: EventLog, scanners: str) -> None:
    """G4: the list, by id and beginning; nothing is proposed."""
    async with opened(environment_bytes_max=40, scanners=scanners) as memory:
        ada = memory.space("user:ada")
        held = (await ada.add("The port is 5432, since 2019", target="environment")).entry
        tools = memory.conversation("c", user="ada").tools(remember=True)
        answer = await tools.dispatch("remember_this", {"text": "Node 22 is used everywhere"})
        assert await ada.proposals() == []
    assert f'{held.id} "The port is 5432, since 2019"' in answer
    assert "40 bytes" in answer
    failed = told.wait("tool_failed").data
    assert (failed["tool"], failed["reason"]) == ("remember_this", "OverBudget")


async def test_after_three_failures_in_a_turn_a_model_is_told_to_stop(opened) -> None:
    """G4: counted for the turn, whichever tools object the host asks, and not for the next one."""
    async with opened(environment_bytes_max=10) as memory:
        conversation = memory.conversation("c", user="ada")
        async with conversation.turn(question()) as turn:
            answers = [
                await conversation.tools(remember=True).dispatch(
                    "remember_this", {"text": f"Node {n} is used everywhere"}
                )
                for n in range(3)
            ]
            short = await conversation.tools(remember=True).dispatch("remember_this", {"text": "tea"})
            found = await conversation.tools(remember=True).dispatch("search_memory", {"query": "tea"})
            turn.abort()
        async with conversation.turn(question()) as turn:
            next_turn = await conversation.tools(remember=True).dispatch("remember_this", {"text": "tea"})
            turn.abort()
    assert [STOP in answer for answer in answers] == [False, False, True]
    assert (short.endswith("go on with the task."), STOP in found) == (True, False)
    assert next_turn.startswith("Proposed.")


async def test_whatever_fails_counts(opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """G4: a call that is no call, and a text that is too long."""
    monkeypatch.setattr(guard_gate, "STATEMENT_BYTES_MAX", 64)
    async with opened() as memory:
        conversation = memory.conversation("c", user="ada")
        async with conversation.turn(question()) as turn:
            tools = conversation.tools(remember=True)
            answers = [
                await tools.dispatch("remember_this", arguments)
                for arguments in ("{not json", {"text": "x" * 100}, {"text": "tea", "target": "me"}, {"text": "tea"})
            ]
            turn.abort()
        assert await memory.space("user:ada").proposals() == []
    assert [STOP in answer for answer in answers] == [False, False, True, True]


async def test_between_turns_nothing_is_counted(opened) -> None:
    """G4: tools that outlive a turn are no worse for what failed in it."""
    async with opened(environment_bytes_max=10) as memory:
        tools = memory.conversation("c", user="ada").tools(remember=True)
        failed = [await tools.dispatch("remember_this", {"text": "Node 22 is used everywhere"}) for _ in range(4)]
        assert [STOP in answer for answer in failed] == [False] * 4
        assert (await tools.dispatch("remember_this", {"text": "tea"})).startswith("Proposed.")


async def test_what_could_go_is_not_told_of_a_space_that_may_not_be_read(opened) -> None:
    """G4, L2: writing a space is no grant to read it."""
    async with opened(environment_bytes_max=40) as memory:
        held = (await memory.space("team:x").add("The vault is behind the clock", target="environment")).entry
        tools = memory.conversation("c", user="ada", writes="team:x").tools(remember=True)
        answer = await tools.dispatch("remember_this", {"text": "Node 22 is used everywhere"})
    assert "memory is full" in answer
    assert not any(told in answer for told in ("vault", held.id))


async def test_a_proposal_with_a_secret_is_set_aside(memory: afterturn.Memory, told: EventLog) -> None:
    """A3, G2: for people, not for the inbox; the model is told to leave secrets out."""
    ada = memory.space("user:ada")
    tools = memory.conversation("c", user="ada").tools(remember=True)
    answer = await tools.dispatch("remember_this", {"text": f"Deploy with {TOKEN}"})
    assert "Leave secrets out." in answer
    assert (await ada.proposals(), await ada.list()) == ([], [])
    assert told.wait("proposal_refused").data == {"reason": Status.QUARANTINED}
    assert told.named("proposed") == []


async def test_what_a_sub_agent_learned_is_proposed_as_far_as_it_fits(opened, told: EventLog) -> None:
    """A3, G4: what is too much is told by an event without any memory's words, and the rest waits."""
    async with opened(environment_bytes_max=40) as memory:
        ada = memory.space("user:ada")
        async with memory.conversation("c", user="ada").turn(question()) as turn:
            turn.returned(f"Use {TOKEN}", ["Node 22 is used", "x" * 41, "The port is 5433"])
            told.wait("proposed", count=2)
            turn.abort()
        waiting = await ada.proposals()
    assert sorted(entry.text for entry in waiting) == ["Node 22 is used", "The port is 5433"]
    assert {entry.metadata["task"] for entry in waiting} == {"Use [redacted: github token]"}
    assert {(entry.origin, entry.trust) for entry in waiting} == {("subagent", 40)}
    assert told.wait("proposal_refused").data == {"reason": "OverBudget"}


async def test_what_is_looked_up_is_asked_without_a_secret(memory: afterturn.Memory) -> None:
    """A2, G1: a query is embedded like any other question."""
    await memory.space("user:ada").add("The api is deployed with make ship", target="environment")
    tools = memory.conversation("c", user="ada").tools()
    assert "make ship" in await tools.dispatch("search_memory", {"query": f"api deployed {TOKEN}"})
    assert "Nothing relevant" in await tools.dispatch("search_memory", {"query": TOKEN})
