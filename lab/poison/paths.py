"""The ways by which text of others is read by a model and could be written to memory.

Each path takes the world, the poison and a carrier, and lets somebody who obeys do whatever the poison asks for.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import afterturn
from afterturn.config import Config
from afterturn.conversation.compactor import SECTIONS
from afterturn.dialects import get_dialect
from afterturn.guard.output_filter import SNAPSHOT_TAG as TAG
from afterturn.hosts.cli.commands.transfer import LineReader
from afterturn.hosts.server.grant import Grant
from afterturn.hosts.server.tools import call_tool
from afterturn.space.markdown import show_controls
from afterturn.testing import ObedientModel
from afterturn.types import Draft, Entry, Filter, Kind, Origin
from lab.poison.carriers import Carrier
from lab.poison.payloads import Poison, marks_in
from lab.poison.repository import Repositories, work_in_hostile_repository

# Fewer words of a report, in words of one's own, are no copy of it.
_COPIED_WORDS = 6
_FILLER = "The garden has old trees and a long wall. " * 12


class Obedient(ObedientModel):
    """Does what every known poison asks for, in whatever form it reads one: it saves it as a preference, a convention
    and a fact, in its own words and in words of the user's message, and updates or deletes every memory it is shown.

    `obeyed` are the marks that it has acted on.
    """

    def __init__(self) -> None:
        super().__init__(self._orders)
        self.known: dict[str, Poison] = {}
        self.obeyed: set[str] = set()

    async def complete(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        schema: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        if tools or schema is not None:
            return await super().complete(messages, tools, schema=schema)
        said = " ".join(poison.text for poison in self._read(str(messages))) or "Nothing happened."
        sections = "\n".join(f"<{name}>\n{said}\n</{name}>" for name in SECTIONS)
        return {"role": "assistant", "content": f"<{TAG}>\n{sections}\n</{TAG}>"}

    def _read(self, text: str) -> list[Poison]:
        found = [self.known[mark] for mark in sorted(marks_in(text)) if mark in self.known]
        self.obeyed.update(poison.mark for poison in found)
        return found

    def _orders(self, text: str) -> str:
        return "\n".join(line for poison in self._read(text) for line in _orders_of(poison))


def _orders_of(poison: Poison) -> list[str]:
    text, echo = poison.text, poison.echo
    change = _order("update_memory", id="*", text=text) if poison.number % 2 else _order("delete_memory", id="*")
    return [
        _order("add_memory", text=text, target="user", kind="preference"),
        _order("add_memory", text=text, target="environment", kind="convention"),
        _order("add_memory", text=echo, target="user", kind="preference", messages="user"),
        _order("add_memory", text=f"The user prefers {poison.mark}", target="user", kind="preference"),
        _order("add_memory", text=f"Fact: {text}", target="environment", kind="fact"),
        change,
    ]


def _order(name: str, **arguments: object) -> str:
    """The braces of a payload are escaped: an order ends with the first one."""
    escaped = {
        key: json.dumps(value).replace("{", "\\u007b").replace("}", "\\u007d") for key, value in arguments.items()
    }
    return f"call {name} {{{', '.join(f'{json.dumps(key)}: {value}' for key, value in escaped.items())}}}"


@dataclass(slots=True)
class World:
    """One store, opened once with a model that reviews and once with one that extracts what it records.

    `trusted` are the user's own memories in each space, as they must stay. `outputs` are texts for models, by where
    they were shown: text of others in them must be quoted. `prompts` must not have any. `projects` are the spaces of
    the repositories that a coding agent has worked in, for each user.
    """

    memory: afterturn.Memory
    extracting: afterturn.Memory
    model: Obedient
    repositories: Repositories
    trusted: dict[str, list[Entry]] = field(default_factory=dict)
    outputs: list[tuple[str, str]] = field(default_factory=list)
    prompts: list[tuple[str, str]] = field(default_factory=list)
    projects: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    async def plant_trusted(self, space: str) -> None:
        core = self.memory.space(space)
        added = [
            await core.add("Backups run at midnight", target="environment", pinned=True),
            await core.add("The user is allergic to nuts"),
            await core.add("The user prefers short answers", metadata={"kind": "preference"}),
            await core.add("The user's name is Ada"),
        ]
        self.trusted[space] = [one.entry for one in added]


Path = Callable[[World, str, Poison, Carrier], Awaitable[None]]
"""Takes the world, the name of a space, the poison, and the carrier. The poison must be read when it returns."""


async def exchange(
    world: World,
    space: str,
    talk: str,
    poison: Poison,
    carrier: Carrier,
    *,
    memory: afterturn.Memory | None = None,
    pieces: Sequence[str] | None = None,
    subagent: bool = False,
    answer: str = "",
) -> list[Any]:
    """One turn in which the poison is read, and the assistant repeats it. Returns the host's list."""
    dialect = get_dialect(carrier.dialect)
    asked, elements = carrier.turn(poison.question, pieces or poison.pieces)
    messages: list[Any] = [asked]
    conversation = (memory or world.memory).conversation(talk, owner=space, dialect=carrier.dialect, subagent=subagent)
    async with conversation.turn(messages) as turn:
        await turn.inject(messages)
        messages.extend(elements)
        messages.append(dialect.make_message("assistant", answer or f"I will remember this: {poison.text}"))
    await turn.wait_recorded(within=30)
    return messages


async def chat(memory: afterturn.Memory, space: str, talk: str, words: str, answer: str) -> str:
    """A turn without tools. Returns the block."""
    messages: list[Any] = [{"role": "user", "content": words}]
    async with memory.conversation(talk, owner=space).turn(messages) as turn:
        block = await turn.block()
        messages.append({"role": "assistant", "content": answer})
    await turn.wait_recorded(within=30)
    return block


async def _review(world: World, space: str, poison: Poison, carrier: Carrier) -> None:
    talk = f"review-{poison.mark}"
    if poison.form == "two turns":
        for piece in poison.pieces:
            await exchange(world, space, talk, poison, carrier, pieces=[piece])
        return
    if poison.form == "many messages back":
        await exchange(world, space, talk, poison, carrier, answer="I have read it.")
        for number in range(11):
            await chat(world.memory, space, talk, f"What is {number} plus one?", f"That is {number + 1}.")
        await chat(world.memory, space, talk, "Thank you for your help with that", poison.text)
        return
    await exchange(world, space, talk, poison, carrier)


async def _review_by_hand(world: World, space: str, poison: Poison, carrier: Carrier) -> None:
    talk = f"by-hand-{poison.mark}"
    await exchange(world, space, talk, poison, carrier)
    with suppress(afterturn.AfterturnError):  # nothing is left to review if the background was faster
        await world.memory.space(space).run_review(talk)


async def _extraction(world: World, space: str, poison: Poison, carrier: Carrier) -> None:
    await exchange(world, space, f"extract-{poison.mark}", poison, carrier, memory=world.extracting)


async def _compaction_review(world: World, space: str, poison: Poison, carrier: Carrier) -> None:
    """Messages that were never recorded, and are about to be lost."""
    asked, elements = carrier.turn(poison.question, poison.pieces)
    answer = get_dialect(carrier.dialect).make_message("assistant", poison.text)
    conversation = world.memory.conversation(f"lost-{poison.mark}", owner=space, dialect=carrier.dialect)
    conversation.compacting([asked, *elements, answer])


async def _compaction(world: World, space: str, poison: Poison, carrier: Carrier) -> None:
    """The model that summarises writes the poison into the summary, and the conversation goes on from there."""
    talk, dialect = f"compact-{poison.mark}", get_dialect(carrier.dialect)
    messages = await exchange(world, space, talk, poison, carrier)
    for words in ("How old are the trees?", "And how long is the wall?"):
        messages += [dialect.make_message("user", words), dialect.make_message("assistant", _FILLER)]
    conversation = world.memory.conversation(talk, owner=space, dialect=carrier.dialect)
    done = await conversation.compact(messages, limit_tokens=300)
    continued: list[Any] = [*done.messages, dialect.make_message("user", "Go on with the gardens, please.")]
    async with conversation.turn(continued) as turn:
        await turn.inject(continued)
        continued.append(dialect.make_message("assistant", f"As agreed: {poison.text}"))
    await turn.wait_recorded(within=30)


async def _remember_tool(world: World, space: str, poison: Poison, carrier: Carrier) -> None:
    conversation = world.memory.conversation(f"tool-{poison.mark}", owner=space, dialect=carrier.dialect)
    asked, elements = carrier.turn(poison.question, poison.pieces)
    messages: list[Any] = [asked]
    async with conversation.turn(messages) as turn:
        messages.extend(elements)
        tools = conversation.tools(remember=True)
        for target in ("user", "environment"):
            await tools.dispatch("remember_this", {"text": poison.text, "target": target})
        await tools.dispatch("remember_this", json.dumps({"text": poison.echo, "kind": "preference", "pinned": True}))
        await tools.dispatch("remember_this", {"text": poison.echo, "target": "user"})
        messages.append(get_dialect(carrier.dialect).make_message("assistant", poison.text))
    await turn.wait_recorded(within=30)
    world.model.obeyed.add(poison.mark)


async def _server(world: World, space: str, poison: Poison, carrier: Carrier) -> None:
    """A client of a server obeys: it adds the text in every form, and changes and deletes what the user said."""
    grant = Grant("default", (space,), space)

    async def call(name: str, **arguments: str) -> None:
        answer = await call_tool(world.memory, grant, name, arguments)
        world.outputs.append((name, answer.text))

    for kind in ("fact", "preference", "convention"):
        await call("add_memory", text=poison.text, kind=kind)
    await call("add_memory", text=poison.echo, target="user")
    for entry in world.trusted[space]:
        await call("update_memory", id=entry.id, text=poison.text)
        await call("delete_memory", id=entry.id)
    await call("search_memory", query=f"{poison.payload[:80]} {poison.mark}")
    await call("list_memories")
    world.model.obeyed.add(poison.mark)


async def _repository(world: World, space: str, poison: Poison, carrier: Carrier) -> None:
    trusted = [entry.id for entry in world.trusted[space]]
    outputs, prompts, projects = await work_in_hostile_repository(
        world.memory, world.repositories, space, poison, trusted, poison.number // len(PATHS)
    )
    world.outputs += outputs
    world.prompts += prompts
    world.projects[space] |= projects
    world.model.obeyed.add(poison.mark)


async def _report(world: World, space: str, poison: Poison) -> Entry | None:
    """The poison as a memory from the web. None if the guard refuses it."""
    with suppress(afterturn.AfterturnError):
        text = "\n".join(poison.pieces)
        return (await world.memory.space(space).add(text, origin="web", target="environment")).entry
    return None


async def _search_tool(world: World, space: str, poison: Poison, carrier: Carrier) -> None:
    await _report(world, space, poison)
    conversation = world.memory.conversation(f"search-{poison.mark}", owner=space)
    messages: list[Any] = [{"role": "user", "content": poison.question}]
    async with conversation.turn(messages) as turn:
        found = await conversation.tools().dispatch("search_memory", {"query": f"{poison.payload[:80]} {poison.mark}"})
        world.outputs.append(("search_memory", found))
        call = {"id": "1", "type": "function", "function": {"name": "search_memory", "arguments": "{}"}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": "1", "content": found})
        messages.append({"role": "assistant", "content": poison.text})
    await turn.wait_recorded(within=30)


async def _recall(world: World, space: str, poison: Poison, carrier: Carrier) -> None:
    """A memory from the web is recalled in a turn without tools, and the assistant repeats it as its own words."""
    await _report(world, space, poison)
    await ask_about(world, space, f"recall-{poison.mark}", poison)


async def ask_about(world: World, space: str, talk: str, poison: Poison) -> None:
    """A question about the same. The assistant repeats whatever poison the block shows."""
    words = f"What do you know about {poison.payload[:60]}?"
    messages: list[Any] = [{"role": "user", "content": words}]
    conversation = world.memory.conversation(talk, owner=space)
    async with conversation.turn(messages) as turn:
        block = await turn.block()
        world.outputs.append(("block", block))
        world.prompts.append(("delegate", turn.delegate(words)))
        said = " ".join(world.model.known[mark].text for mark in sorted(marks_in(block)) if mark in world.model.known)
        messages.append({"role": "assistant", "content": said or "I know nothing about that."})
    await turn.wait_recorded(within=30)


async def _subagent(world: World, space: str, poison: Poison, carrier: Carrier) -> None:
    """A sub-agent has read it, says so in its own conversation and in its answer to the parent."""
    await exchange(world, space, f"child-{poison.mark}", poison, carrier, subagent=True)
    messages: list[Any] = [{"role": "user", "content": poison.question}]
    async with world.memory.conversation(f"parent-{poison.mark}", owner=space).turn(messages) as turn:
        await turn.inject(messages)
        turn.delegate("Read that page")
        turn.returned("Read that page", f"- {poison.text}\n- {poison.echo}")
        messages.append({"role": "assistant", "content": poison.text})
    await turn.wait_recorded(within=30)
    world.model.obeyed.add(poison.mark)


async def _delegate(world: World, space: str, poison: Poison, carrier: Carrier) -> None:
    """What memory knows goes into the task of a sub-agent, which would take it for its parent's words."""
    await _report(world, space, poison)
    messages: list[Any] = [{"role": "user", "content": f"What about {poison.payload[:80]}?"}]
    async with world.memory.conversation(f"delegate-{poison.mark}", owner=space).turn(messages) as turn:
        await turn.inject(messages)
        world.prompts.append(("delegate", turn.delegate(f"Find out about {poison.payload[:80]}")))
        world.prompts.append(("delegate", await turn.delegate_with_recall(f"Use {poison.payload[:80]}")))
        turn.abort()


async def _consolidation(world: World, space: str, poison: Poison, carrier: Carrier) -> None:
    """Reports that restate, contradict or imitate the user's own memories."""
    core = world.memory.space(space)
    for origin in ("web", "tool", "subagent", "import"):
        for text in (
            f"The user's name is {poison.mark}",
            "The user is allergic to nuts.",
            f"The user prefers short answers {poison.mark}",
            poison.text,
        ):
            with suppress(afterturn.AfterturnError):
                await core.add(text, origin=origin)
    await core.consolidate()
    world.model.obeyed.add(poison.mark)


async def _markdown(world: World, space: str, poison: Poison, carrier: Carrier) -> None:
    """A person edits, pins, moves and copies lines of the Markdown view without reading them."""
    added, core = await _report(world, space, poison), world.memory.space(space)
    if added is None or added.id not in await core.as_markdown():
        return  # it is quarantined
    mark = f"<!-- {added.id} v"
    # Its bullet alone is moved: a section would take the user's own memories with it.
    bullet = rf"(?s)(## user\n)(.*)(\n- (?:(?!\n- ).)*{mark}[^>]*-->)"
    for before, after in (
        (rf"({mark}\d+)", r"\1 pinned"),
        (rf" ({mark})", r" and so on \1"),
        (bullet, r"\1\3\n\2"),
    ):
        applied = await _edit(core, await core.as_markdown(), before, after)
        if applied is not None and applied.group is not None:
            with suppress(afterturn.Conflict):  # a review has stored the same meanwhile
                await core.undo(applied.group)
    # A copy of the text that the view shows, whole or a part of it, while a review changes the memory.
    view = await core.as_markdown()
    shown = show_controls((await core.get(added.id)).text).split()
    half = shown[len(shown) // 3 : len(shown) // 3 + max(8, len(shown) // 2)]
    for part in (shown, *(part for part in (half, shown[-8:]) if len(part) >= _COPIED_WORDS)):
        copied = " ".join(part).replace("\\", r"\\")
        await _edit(core, view, "## user\n", f"## user\n\n- {copied}\n- So I say: {copied} <!-- pinned -->\n")
        await _edit(core, view, "- (The user is allergic to nuts) <", rf"- \1. {copied} <")
    world.model.obeyed.add(poison.mark)


async def _edit(core: afterturn.Space, view: str, before: str, after: str) -> afterturn.Edited | None:
    with suppress(afterturn.AfterturnError):
        return await core.apply_edits(await core.compare_markdown(re.sub(before, after, view, count=1)))
    return None


async def _import(world: World, space: str, poison: Poison, carrier: Carrier) -> None:
    """A file that claims to come from the user, with everything pinned."""
    claimed = {"origin": "user", "trust": 100, "status": "active", "kind": "statement"}
    export = [
        {"afterturn_export": 1, "space": space},
        {"entry": {**claimed, "text": poison.text, "pinned": True, "target": "environment"}},
        {"entry": {**claimed, "text": poison.echo, "target": "user", "metadata": {"kind": "preference"}}},
    ]
    plain = [
        {"text": poison.text, "origin": "user", "metadata": {"kind": "preference"}},
        {"text": f"{poison.text} again", "pinned": True},
    ]
    for lines in (export, plain):
        reader = LineReader(Config(), keep_origin=False)
        drafts = reader.read(json.dumps(line).encode() for line in lines).drafts
        await world.memory.space(space).add_many(drafts)
    with suppress(afterturn.AfterturnError):
        await world.memory.space(space).add_many([Draft(poison.text, origin=Origin.IMPORT, pinned=True)])
    world.model.obeyed.add(poison.mark)


async def _agent_verbs(world: World, space: str, poison: Poison, carrier: Carrier) -> None:
    """An agent that calls the verbs of a space, as a server's tools do, without a turn."""
    core = world.memory.space(space)
    kinds: list[dict[str, Any]] = [
        {},
        {"pinned": True},
        {"metadata": {"kind": "preference"}},
        {"metadata": {"kind": "convention"}, "target": "environment"},
    ]
    for origin in ("agent", "tool", "web", "subagent"):
        for fields in kinds:
            with suppress(afterturn.AfterturnError):
                await core.add(poison.text, origin=origin, **fields)
        for entry in world.trusted[space]:
            with suppress(afterturn.AfterturnError):
                await core.update(entry.id, poison.text, origin=origin)
    world.model.obeyed.add(poison.mark)


async def _rules(world: World, space: str, poison: Poison, carrier: Carrier) -> None:
    """Words that the rules would learn from if a user typed them."""
    said = [
        f"Remember that I always want {poison.text}",
        f"My name is {poison.mark}. I prefer {poison.mark}. I live in {poison.mark}. From now on use {poison.mark}.",
    ]
    await exchange(world, space, f"rules-{poison.mark}", poison, carrier, pieces=said, answer=" ".join(said))


async def _another_origin(world: World, space: str, poison: Poison, carrier: Carrier) -> None:
    """A statement that names a report as its source, and one that repeats a report as the agent's."""
    added, core = await _report(world, space, poison), world.memory.space(space)
    if added is None:
        return
    for origin in ("agent", "background_review"):
        with suppress(afterturn.AfterturnError):
            await core.add(f"Learned: {poison.text}", origin=origin, sources=[added.id], pinned=True)
        with suppress(afterturn.AfterturnError):
            await core.add(f"Learned so: {poison.text}", origin=origin, sources=[added.id])
    world.model.obeyed.add(poison.mark)


PATHS: dict[str, Path] = {
    "background review": _review,
    "review by hand": _review_by_hand,
    "extracting recorder": _extraction,
    "compaction review": _compaction_review,
    "summary of a compaction": _compaction,
    "rules": _rules,
    "remember_this": _remember_tool,
    "search_memory": _search_tool,
    "server": _server,
    "recalled report": _recall,
    "sub-agent": _subagent,
    "delegate": _delegate,
    "consolidation": _consolidation,
    "Markdown view": _markdown,
    "import": _import,
    "agent's verbs": _agent_verbs,
    "named sources": _another_origin,
    "hostile repository": _repository,
}
# The paths that begin with a turn of a host, in some message format.
OF_A_TURN = frozenset(list(PATHS)[:7]) | {"sub-agent"}
STATEMENTS = Filter(kind=Kind.STATEMENT)
