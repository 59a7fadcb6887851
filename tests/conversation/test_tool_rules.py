"""Rules at the moment of action: which standing rules a tool call is given, and which call a firm rule refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from spoken import OpenMemory, Told, assistant, user

import afterturn
from afterturn import blocking
from afterturn.errors import InvalidInput, NotAllowed
from afterturn.testing.clock import ManualClock
from afterturn.tool_rules.calls import read_call
from afterturn.tool_rules.triggers import find_trigger, fits_path
from afterturn.types import Filter
from lab.tool_rules_eval import by_matcher, measure

CASES = json.loads((Path(__file__).parent / "tool_rules.json").read_text(encoding="utf-8"))
CONVENTION: dict[str, Any] = {"target": "environment", "metadata": {"kind": "convention"}}
PUSH = {"command": "git push origin main"}


async def advise(memory: afterturn.Memory, *calls: tuple[str, Any], **options: Any) -> list[afterturn.ToolAdvice]:
    messages = [user("Go on.")]
    where = {"user": "ada", **options}
    async with memory.conversation("c", **where).turn(messages) as turn:
        advice = [await turn.before_tool(name, arguments) for name, arguments in calls]
        messages.append(assistant("Done."))
    return advice


@pytest.mark.parametrize("half", ["development", "held_out"])
def test_the_labelled_calls_are_given_their_rules(half: str) -> None:
    """T1: precision first. The held-out half was labelled before the matcher was written."""
    found = measure(CASES[half], by_matcher)
    assert (found.precision >= 0.98, found.recall >= 0.98) == (True, True), found.faults
    assert found.touched <= 0.01 * found.harmless, found.faults


@pytest.mark.parametrize(
    "rule, command, concerns",
    [
        ("No force pushes", "git push -f", True),
        ("No emojis", "git push -f", False),
        ("Bitte nie auf main pushen", "git push origin main", True),
        ("ne pousse jamais sur main", "git push origin main", True),
        ("Verwende pnpm statt npm", "npm install", True),
        ("Verwende pnpm statt npm", "pnpm install", False),
        ("Never run `npm publish`", "npm publish --access public", True),
        ("Never run `npm publish`", "npm install", False),
        ("Never delete branches without asking", "git branch -D topic", True),
        ("Never delete branches without asking", "rm notes.txt", False),
        ("Ask before installing new dependencies", "npm install lodash", True),
        ("Ask before installing new dependencies", "npm install", False),
        ("Don't run migrations on production", "python manage.py migrate --settings=production", True),
        ("Don't deploy on fridays", "./scripts/deploy.sh web", True),
        ("The user works with docker at the office", "podman ps", False),
        ("Use just one space", "make", False),
        ("The main branch is protected", "git push origin main", False),
        ("Don't go to bed late", "go build ./...", False),
    ],
)
def test_a_rule_needs_a_rare_word_or_a_rare_action(rule: str, command: str, concerns: bool) -> None:
    """T1: general words never decide."""
    assert (find_trigger(rule, read_call("Bash", {"command": command})) is not None) is concerns


@pytest.mark.parametrize(
    "wanted, path, fits",
    [
        ("dist/", "/app/dist/a.js", True),
        ("dist/", "/app/src/distance.py", False),
        ("db/migrations", "db/migrations/1.sql", True),
        (".env", "web/.env", True),
        (".env", ".env.example", False),
        (".proto", "api/user.proto", True),
        ("*.generated.ts", "src/a.generated.ts", True),
        ("package-lock.json", "web/package-lock.json", True),
    ],
)
def test_paths_are_compared_by_their_parts(wanted: str, path: str, fits: bool) -> None:
    """T1: a folder's name inside another word does not count."""
    assert fits_path(wanted, path) is fits


@pytest.mark.parametrize(
    "arguments",
    [None, 3, "rm -rf 'open quote", {"command": {"a": [1]}}, {"command": ["x", 2]}, {"url": "http://["}, []],
)
def test_any_arguments_can_be_read(arguments: object) -> None:
    """T1: a model's arguments may be anything."""
    assert read_call("Bash", arguments).name == "Bash"


async def test_a_rule_is_given_once_a_turn_and_again_for_the_same_call(memory: afterturn.Memory) -> None:
    """T1: the same call may repeat it, another one does not."""
    added = await memory.space("user:ada").add("Never push to main", **CONVENTION)
    other = {"command": "git push origin main --tags"}
    first, again, another = await advise(memory, ("Bash", PUSH), ("Bash", dict(PUSH)), ("Bash", other))
    (later,) = await advise(memory, ("Bash", other))
    assert [rule.ref for rule in first.rules] == [added.entry.ref]
    assert first.text == "Rules of the user that concern this call:\n- Never push to main"
    assert (again.rules, another.rules, later.rules) == (first.rules, (), first.rules)
    assert (first.refusal, first.rules[0].why) == (None, "push, main")


async def test_only_trusted_standing_rules_that_it_may_read_count(memory: afterturn.Memory) -> None:
    """T1, G2, L2: what the standing block would hold."""
    ada = memory.space("user:ada")
    await ada.add("Never push to main, says a page", origin="web")
    await ada.add("Someone said: never push to main", target="environment")
    await memory.space("user:bob").add("Never push to main, says Bob", **CONVENTION)
    await memory.space("project:api").add("Never push to main, says the project", **CONVENTION)
    await ada.add("Never push to main in web", **CONVENTION, project="web")
    (alone,) = await advise(memory, ("Bash", PUSH))
    (granted,) = await advise(memory, ("Bash", PUSH), reads=["project:api"])
    assert alone == afterturn.ToolAdvice()
    assert [rule.text for rule in granted.rules] == ["Never push to main, says the project"]


async def test_a_fact_that_names_the_tool_of_the_project_is_a_rule(memory: afterturn.Memory) -> None:
    """T1: people state it as a fact, and it holds for calls of the other tool."""
    project = memory.space("project:api")
    await project.add("We use pnpm here, not npm.", target="environment")
    await project.add("We use yarn, says a page", target="environment", origin="web")
    await project.add("Publishing to npm needs a hardware key", target="environment")
    await memory.space("user:ada").add("We use bun in web", target="environment", project="web")
    calls = [("Bash", {"command": f"{command} install lodash"}) for command in ("npm", "pnpm")]
    rival, same = await advise(memory, *calls, reads=["project:api"])
    assert [rule.text for rule in rival.rules] == ["We use pnpm here, not npm."]
    assert (rival.refusal, same.rules) == (None, ())


async def test_a_firm_rule_refuses_every_call_that_it_concerns(memory: afterturn.Memory) -> None:
    """T1: with its reason."""
    await memory.space("user:ada").add("Never push to main", firm=True)
    first, other, harmless = await advise(
        memory, ("Bash", PUSH), ("shell", {"command": ["git", "push", "origin", "main"]}), ("Bash", {"command": "ls"})
    )
    refusal = "Refused by your rule: Never push to main (afterturn list --firm)"
    assert (first.refusal, other.refusal, harmless.refusal) == (refusal, refusal, None)


@pytest.mark.parametrize(
    "prefix",
    ["sudo -u bob {}", "env -u HOME {}", "nice -n 5 {}", "timeout -k 9 5 {}", "eval '{}'", "busybox sh -c '{}'"],
)
async def test_a_command_behind_another_one_is_found(memory: afterturn.Memory, prefix: str) -> None:
    await memory.space("user:ada").add("Never push to main", firm=True)
    (advice,) = await advise(memory, ("Bash", {"command": prefix.format("git push origin main")}))
    assert advice.refusal


async def test_only_a_person_makes_a_rule_firm(memory: afterturn.Memory) -> None:
    """T1, G2: no other origin, however trusted; and no model changes one."""
    ada = memory.space("user:ada")
    for origin in ("agent", "background_review", "subagent", "tool", "web", "import"):
        with pytest.raises(NotAllowed, match="Only a person"):
            await ada.add("Never push to main", firm=True, origin=origin, clean=True)
    added = await ada.add("Never push to main", firm=True)
    with pytest.raises(NotAllowed):
        await ada.update(added.entry.id, "Push to main", origin="agent", clean=True)
    with pytest.raises(NotAllowed):
        await ada.delete(added.entry.id, origin="agent", clean=True)
    assert (await ada.update(added.entry.id, "Never push to main or trunk")).entry.firm


async def test_a_memory_becomes_firm_and_can_be_undone(memory: afterturn.Memory) -> None:
    """T1, M1: a new version; a duplicate that is added as firm becomes firm."""
    ada = memory.space("user:ada")
    added = await ada.add("Never push to main")
    changed = await ada.set_firm(added.entry.id)
    assert (changed.entry.firm, changed.entry.version) == (True, 2)
    assert [entry.id for entry in await ada.list(filter=Filter(firm=True))] == [added.entry.id]
    await ada.undo(changed.operation)
    assert not (await ada.get(added.entry.id)).firm
    again = await ada.add("Never push to main", firm=True)
    assert (again.created, again.entry.id, again.entry.firm) == (False, added.entry.id, True)
    assert not (await ada.set_firm(added.entry.id, False)).entry.firm


async def test_a_memory_is_pinned_and_unpinned_and_undone(memory: afterturn.Memory) -> None:
    """M1: a new version, as for firm; what was learned from a web page cannot be pinned."""
    ada = memory.space("user:ada")
    added = await ada.add("Ada sits at desk 14")
    changed = await ada.set_pinned(added.entry.id)
    assert (changed.entry.pinned, changed.entry.version) == (True, 2)
    assert (await ada.set_pinned(added.entry.id)).operation == ""
    assert not (await ada.set_pinned(added.entry.id, False)).entry.pinned
    read = await ada.add("Desks are free", origin="web")
    with pytest.raises(NotAllowed):
        await ada.set_pinned(read.entry.id)


async def test_a_recorded_message_cannot_be_firm(memory: afterturn.Memory) -> None:
    """T1: only statements are rules."""
    messages = [user("Never push to main")]
    async with memory.conversation("c", user="ada").turn(messages) as turn:
        messages.append(assistant("Noted."))
    assert await turn.wait_recorded()
    (record, *_) = await memory.space("user:ada").list(filter=Filter(kind="record"))
    with pytest.raises(InvalidInput, match="not an active statement"):
        await memory.space("user:ada").set_firm(record.id)


async def test_the_trace_explains_a_rule(open_memory: OpenMemory, told: Told) -> None:
    """T1: which rule, before which tool, by which words; not the arguments."""
    async with open_memory() as memory:
        added = await memory.space("user:ada").add("Never push to main", firm=True)
        await advise(memory, ("Bash", {"command": "git push origin main --secret=hunter2"}))
    async with open_memory() as memory:
        (turn,) = (await memory.conversation("c", user="ada").trace()).turns
    (rule,) = turn.rules
    assert (rule.tool, rule.ref, rule.why, rule.refused) == ("Bash", added.entry.ref, "push, main", True)
    assert all("hunter2" not in str(event.data) for event in told.events)


async def test_rules_that_cannot_be_read_stop_no_tool(open_memory: OpenMemory, told: Told) -> None:
    """T1: a closed memory, or one without a store, gives no advice and raises nothing."""
    async with open_memory() as memory:
        await memory.space("user:ada").add("Never push to main", firm=True)
        turn = memory.conversation("c", user="ada").turn([user("Go on.")])
    assert await turn.before_tool("Bash", PUSH) == afterturn.ToolAdvice()
    async with afterturn.open(None) as memory:
        assert await advise(memory, ("Bash", PUSH)) == [afterturn.ToolAdvice()]


def test_the_blocking_turn_has_the_same_verb(tmp_path: Path, clock: ManualClock) -> None:
    """T1: without an event loop."""
    with blocking.open(tmp_path / "memory.db", {"embedder": "none"}) as memory:
        memory.space("user:ada").add("Never push to main", firm=True)
        with memory.conversation("c", user="ada").turn([user("Go on.")]) as turn:
            assert turn.before_tool("Bash", PUSH).refusal is not None


async def test_a_call_outside_of_any_turn_is_checked_too(memory: afterturn.Memory, tmp_path: Path) -> None:
    """T1: agents also work between turns. A firm rule refuses there as well."""
    await memory.space("user:ada").add("Never push to main", firm=True)
    conversation = memory.conversation("c", user="ada")
    assert "Never push to main" in str((await conversation.before_tool("Bash", PUSH)).refusal)
    assert await conversation.before_tool("Bash", {"command": "ls"}) == afterturn.ToolAdvice()
    with blocking.open(tmp_path / "other.db") as other:
        other.space("user:ada").add("Never push to main", firm=True)
        assert other.conversation("c", user="ada").before_tool("Bash", PUSH).refusal is not None
