"""Every surface of the library, called with names and ids of one's own, of others, and of nobody.

An operation returns what a caller would see: its result, or its error. `Reach` says whose canaries may be in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import TypeAlias

from afterturn.errors import AfterturnError
from afterturn.hosts.cli.app import run as run_command
from afterturn.hosts.server.grant import Grant
from afterturn.hosts.server.tools import call_tool
from afterturn.oneshot import recall_block_once, recall_once
from afterturn.types import Draft, Filter, Kind, Status
from lab.isolation.faces import HAS_LANGGRAPH, call_langgraph, call_mem0, mem0_id, mem0_user
from lab.isolation.world import CANARY, GROUP, QUESTION, SETTINGS, SPEAKER, Party, World, say

MISSING = {"conversation": "talk-nobody", "turn": "turn-nobody"}
UNEXPECTED = "unexpected"
_NOBODY = "nobody0001"
_ID_LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
# Every space says so, and each in its own words of metadata.
_SAME = "The house has a green door"
_EVERYTHING = Filter(statuses=tuple(Status))

Operation: TypeAlias = Callable[[Party], Awaitable[object]]
ReadTables: TypeAlias = Callable[[str | None], str]
Probe: TypeAlias = Callable[[Party, str], Awaitable[object]]


class Surfaces:
    """`by_space` may show only the party's canary, `by_conversation` also its friend's, `by_tenant` its tenant's.

    A space's traces, reviews and export contain the blocks of its conversations, and so its friend's canary.
    """

    def __init__(self, world: World, random: Random, read_tables: ReadTables | None = None) -> None:
        """`read_tables` returns the rows that a role of the server sees for a tenant, or without one."""
        self._world = world
        self._random = random
        self._read_tables = read_tables
        self._at = 0
        self.by_space: dict[str, Operation] = {
            **{name: getattr(self, f"_{name}") for name in (*_SPACE_VERBS, *_LANGGRAPH_VERBS)},
            **{f"{name} by id": self._with_any_id(kind, probe) for name, (kind, probe) in PROBES.items()},
            **{f"cli {' '.join(line)}": self._command(line) for line in COMMANDS},
        }
        self.by_conversation: dict[str, Operation] = {name: getattr(self, f"_{name}") for name in _CONVERSATION_VERBS}
        self.by_tenant: dict[str, Operation] = {
            **{name: getattr(self, f"_{name}") for name in (*_TENANT_VERBS, *_LANGGRAPH_TENANT_VERBS)},
            **{f"cli {' '.join(line)}": self._command(line) for line in TENANT_COMMANDS},
            **({} if read_tables is None else {"rows of a role": self._rows_of_a_role}),
        }

    def choose(self) -> tuple[str, Operation, Callable[[Party], frozenset[str]]]:
        """An operation, and whose canaries it may show."""
        kind = self._random.choices(("space", "conversation", "tenant"), (70, 25, 5))[0]
        if kind == "space":
            name = self._random.choices(list(self.by_space), [_weight(one) for one in self.by_space])[0]
            if any(word in name.split(" --")[0] for word in _OF_CONVERSATIONS):
                return name, self.by_space[name], lambda party: party.readable
            return name, self.by_space[name], lambda party: frozenset({party.canary})
        if kind == "conversation":
            name = self._random.choice(list(self.by_conversation))
            return name, self.by_conversation[name], lambda party: party.readable
        name = self._random.choices(list(self.by_tenant), [_weight(one) for one in self.by_tenant])[0]
        return name, self.by_tenant[name], lambda party: self._world.of_tenant(party.tenant)

    def _any(self, kind: str, party: Party) -> str:
        """An id of the party, of anybody else, or of nobody."""
        roll = self._random.random()
        if roll < 0.4:
            return self._random.choice(party.names[kind] or [MISSING.get(kind, _NOBODY)])
        if roll < 0.8:
            whose = self._random.choice(self._world.quiet if roll < 0.6 else self._world.parties)
            return self._random.choice(whose.names[kind] or [MISSING.get(kind, _NOBODY)])
        return MISSING.get(kind, _NOBODY)

    def unused(self, kind: str, like: str) -> str:
        """An id of nobody that sorts next to `like`, because pages begin after an id, whether it exists or not: no id
        of another party may be between them."""
        taken = sorted({like, *(name for party in self._world.parties for name in party.names[kind])})
        following = taken[taken.index(like) + 1 :]
        near = [new for letter in _ID_LETTERS if (new := like[:-1] + letter) > like]
        return next((new for new in near if not following or new < following[0]), f"{like}0")

    def _with_any_id(self, kind: str, probe: Probe) -> Operation:
        async def act(party: Party) -> object:
            return await probe(party, self._any(kind, party))

        return act

    def _text(self, party: Party) -> str:
        self._at += 1
        return f"The kitchen has {party.canary} tea of shelf {self._at}"

    # The verbs of a space.

    async def _add_firm(self, party: Party) -> object:
        return await party.core.add(f"Never push to main. {self._text(party)}", firm=True)

    async def _add(self, party: Party) -> object:
        added = await party.core.add(self._text(party), sources=[self._any("entry", party)])
        party.names["entry"].append(added.entry.id)
        party.names["operation"].append(added.operation or _NOBODY)
        return added

    async def _add_same(self, party: Party) -> object:
        added = await party.core.add(_SAME, metadata={"shelf": party.canary})
        party.names["entry"].append(added.entry.id)
        return added

    async def _add_many(self, party: Party) -> object:
        drafts = [Draft(self._text(party), proposed=self._random.random() < 0.5) for _ in range(2)]
        drafts.append(Draft(self._text(party), kind=Kind.RECORD, conversation="talk-1", owner=party.space))
        added = await party.core.add_many(drafts, group=GROUP)
        party.names["proposal"] += [entry.id for entry in await party.core.proposals(limit=5)]
        return added

    async def _search(self, party: Party) -> object:
        return await party.core.search(
            self._question(),
            limit=50,
            conversation=self._any("conversation", party),
            exclude=[self._any("entry", party)],
        )

    async def _search_as_of(self, party: Party) -> object:
        return await party.core.search(self._question(), limit=50, as_of=party.clock.now())

    async def _search_for_another(self, party: Party) -> object:
        """Somebody else's canary: the answer repeats the question, so only what it found counts."""
        other = self._random.choice(self._world.parties)
        return (await party.core.search(f"{other.canary} tea", limit=50)).hits

    async def _list(self, party: Party) -> object:
        return await party.core.list(limit=200, filter=_EVERYTHING)

    async def _profile(self, party: Party) -> object:
        return await party.core.profile()

    async def _operations(self, party: Party) -> object:
        return await party.core.operations(limit=200)

    async def _proposals(self, party: Party) -> object:
        return await party.core.proposals(limit=200)

    async def _reviews(self, party: Party) -> object:
        return await party.core.reviews(conversation=self._any("conversation", party))

    async def _run_rules(self, party: Party) -> object:
        return await party.core.run_review(self._any("conversation", party), rules=True)

    async def _usage(self, party: Party) -> object:
        return await party.core.usage()

    async def _consolidate(self, party: Party) -> object:
        return await party.core.consolidate(dry_run=self._random.random() < 0.8)

    async def _edit(self, party: Party) -> object:
        """Somebody else's Markdown, with their ids and no word of theirs."""
        other = self._random.choice(self._world.parties)
        text = CANARY.sub("changed", await other.core.as_markdown())
        return await party.core.apply_edits(await party.core.compare_markdown(text))

    async def _as_markdown(self, party: Party) -> object:
        return await party.core.as_markdown()

    async def _trace(self, party: Party) -> object:
        return await party.core.trace(conversation=self._any("conversation", party))

    async def _conversations(self, party: Party) -> object:
        return await party.core.conversations(turn=self._any("turn", party))

    async def _export(self, party: Party) -> object:
        return await party.core.export()

    async def _stats(self, party: Party) -> object:
        return await party.core.stats()

    async def _standing_audit(self, party: Party) -> object:
        return await party.core.standing_audit()

    async def _forget(self, party: Party) -> object:
        kind = self._random.choice(("memory", "conversation", "source", "speaker"))
        named = {"memory": "entry", "source": "entry", "conversation": "conversation"}
        about = {kind: SPEAKER if kind == "speaker" else self._any(named[kind], party)}
        return await party.core.forget(**about)  # type: ignore[arg-type]

    async def _recall_once(self, party: Party) -> object:
        config = {**SETTINGS, "tenant": party.tenant}
        return await asyncio.to_thread(
            lambda: recall_once(self._question(), space=party.space, store=self._world.store, config=config)
        )

    async def _recall_block_once(self, party: Party) -> object:
        config = {**SETTINGS, "tenant": party.tenant}
        return await asyncio.to_thread(
            lambda: recall_block_once(self._question(), space=party.space, store=self._world.store, config=config)
        )

    # The tools of a server.

    async def _server_add(self, party: Party) -> object:
        kind = self._random.choice(("fact", "preference", "convention"))
        return await serve(party, "add_memory", text=self._text(party), kind=kind)

    async def _server_list(self, party: Party) -> object:
        return await serve(party, "list_memories")

    async def _server_search(self, party: Party) -> object:
        talk = self._any("conversation", party)
        return await serve(party, "search_memory", query=self._question(), conversation=talk)

    # mem0's interface.

    async def _mem0_add(self, party: Party) -> object:
        said = [{"role": "user", "content": f"I prefer this: {self._text(party)}"}]
        infer = self._random.random() < 0.5
        return await call_mem0(party, lambda mem0: mem0.add(said, infer=infer, **mem0_user(party)))

    async def _mem0_search(self, party: Party) -> object:
        return await call_mem0(
            party, lambda mem0: mem0.search(self._question(), filters=mem0_user(party), top_k=50, threshold=0.0)
        )

    async def _mem0_get_all(self, party: Party) -> object:
        return await call_mem0(party, lambda mem0: mem0.get_all(filters=mem0_user(party), top_k=100))

    async def _mem0_delete_all(self, party: Party) -> object:
        talk = self._any("conversation", party)
        return await call_mem0(party, lambda mem0: mem0.delete_all(run_id=talk, **mem0_user(party)))

    # LangGraph's store.

    async def _langgraph_put(self, party: Party) -> object:
        key, text = self._random.choice(("tea", "door")), self._text(party)
        return await call_langgraph(party, lambda store, space: store.aput(space, key, {"text": text}))

    async def _langgraph_get(self, party: Party) -> object:
        return await call_langgraph(party, lambda store, space: store.aget(space, self._random.choice(("tea", "door"))))

    async def _langgraph_search(self, party: Party) -> object:
        query = self._random.choice((None, self._question()))
        return await call_langgraph(party, lambda store, space: store.asearch(space, query=query, limit=50))

    async def _langgraph_delete(self, party: Party) -> object:
        return await call_langgraph(party, lambda store, space: store.adelete(space, "door"))

    async def _langgraph_namespaces(self, party: Party) -> object:
        return await call_langgraph(party, lambda store, space: store.alist_namespaces(limit=1_000))

    async def _langgraph_search_all(self, party: Party) -> object:
        return await call_langgraph(party, lambda store, space: store.asearch((), query=self._question(), limit=200))

    # The verbs of a conversation.

    async def _turn(self, party: Party) -> object:
        self._at += 1
        talk, turn = self._any("conversation", party), f"turn-{self._random.randrange(40)}"
        party.names["conversation"].append(talk)
        party.names["turn"].append(turn)
        return await say(party, talk, turn, f"{self._question()} I prefer {party.canary} number {self._at}.")

    async def _block(self, party: Party) -> object:
        messages: list[object] = [party.dialect.make_message("user", self._question())]
        async with party.conversation(self._any("conversation", party)).turn(messages) as turn:
            shown = [await turn.block(), turn.delegate(QUESTION), await turn.delegate_with_recall(QUESTION)]
            turn.abort()
        return shown

    async def _long_turn(self, party: Party) -> object:
        """With everything that a host may report, and what its model is shown after it."""
        talk = party.conversation(self._any("conversation", party))
        messages: list[object] = [party.dialect.make_message("user", self._question())]
        talk.expect(self._question())
        async with talk.turn(messages) as turn:
            await turn.inject(messages)
            turn.cue("the attic")
            await turn.is_clean(messages)
            turn.returned(QUESTION, self._text(party))
            advice = await turn.before_tool("Bash", {"command": "git push origin main"})
            interjected = self._question()
            messages.append(party.dialect.make_message("user", interjected))
            turn.interject(interjected)
            await turn.inject(messages)
            messages.append(party.dialect.make_message("assistant", self._text(party)))
        talk.compacting(messages)
        talk.compacted(messages[-1:])
        if self._random.random() < 0.2:
            talk.reset()
        return messages, advice

    async def _briefing(self, party: Party) -> object:
        return await party.conversation(self._any("conversation", party)).briefing()

    async def _incognito(self, party: Party) -> object:
        talk = party.conversation(self._any("conversation", party))
        await talk.set_incognito(self._random.random() < 0.2)
        return await talk.is_incognito()

    async def _standing(self, party: Party) -> object:
        standing = party.conversation(self._any("conversation", party)).standing()
        return [
            await standing.refresh(),
            await standing.relevant_context(self._question()),
            await standing.project_context(),
            await standing.task_context("agent"),
            await standing.search(self._question()),
        ]

    async def _search_tool(self, party: Party) -> object:
        tools = party.conversation(self._any("conversation", party)).tools(remember=True)
        scope = self._random.choice(("project", "global"))
        return await tools.dispatch("search_memory", {"query": self._question(), "scope": scope})

    async def _remember_tool(self, party: Party) -> object:
        tools = party.conversation(self._any("conversation", party)).tools(remember=True)
        return await tools.dispatch("remember_this", {"text": self._text(party)})

    async def _why(self, party: Party) -> object:
        talk = party.conversation(self._any("conversation", party))
        return await talk.why(self._any("entry", party), turn=self._any("turn", party))

    async def _trace_turn(self, party: Party) -> object:
        return await party.conversation(self._any("conversation", party)).trace(self._any("turn", party))

    async def _replay(self, party: Party) -> object:
        return await party.conversation(self._any("conversation", party)).replay(self._any("turn", party))

    # The verbs of a tenant.

    async def _spaces(self, party: Party) -> object:
        return await party.memory.spaces()

    async def _memory_stats(self, party: Party) -> object:
        return await party.memory.stats()

    async def _memory_usage(self, party: Party) -> object:
        return await party.memory.usage()

    async def _memory_timeline(self, party: Party) -> object:
        return await party.memory.timeline()

    async def _memory_showings(self, party: Party) -> object:
        return await party.memory.showings([one.ref for one in await party.core.list(limit=50)])

    async def _doctor(self, party: Party) -> object:
        return await party.memory.check()

    async def _retry_dead(self, party: Party) -> object:
        return await party.memory.retry_dead()

    async def _rows_of_a_role(self, party: Party) -> object:
        """Queries without a condition, by the role that the hosts have: with the tenant's setting, and without it."""
        assert self._read_tables is not None
        unnamed = set(CANARY.findall(await asyncio.to_thread(self._read_tables, None)))
        assert not unnamed, f"without a tenant a role sees {sorted(unnamed)}"
        return await asyncio.to_thread(self._read_tables, party.tenant)

    # The command line, in this process.

    def _command(self, line: Sequence[str]) -> Operation:
        async def act(party: Party) -> object:
            kinds = {"ID": "entry", "TALK": "conversation", "TURN": "turn", "REVIEW": "review"}
            kinds |= {"PROPOSAL": "proposal", "OPERATION": "operation"}
            given = [self._any(kinds[word], party) if word in kinds else word for word in line]
            given = [word.replace("TEXT", self._text(party)).replace("QUESTION", self._question()) for word in given]
            shared = ["--store", str(self._world.store), "--tenant", party.tenant, "--space", party.space]
            return await asyncio.to_thread(_printed, [*given, *shared])

        return act

    def _question(self) -> str:
        return self._random.choice((QUESTION, "tea", "What do you know about me?", "Where is the tea, in the attic?"))


async def serve(party: Party, name: str, **arguments: str) -> object:
    """One call of a client whose token is for the party's space."""
    return await call_tool(party.memory, Grant(party.tenant, (party.space,), party.space), name, arguments)


def _printed(arguments: list[str]) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = run_command(arguments)
    return f"{code} {out.getvalue()}"


def _weight(name: str) -> float:
    """A command opens the store for itself, which takes as long as forty calls."""
    return 0.1 if name.startswith("cli ") else 1.0


# One id each. The same call with an id of somebody else and of nobody must do and say the same.
PROBES: dict[str, tuple[str, Probe]] = {
    "get": ("entry", lambda party, id: party.core.get(id)),
    "get a version": ("entry", lambda party, id: party.core.get(id, version=2)),
    "list before": ("entry", lambda party, id: party.core.list(before=id)),
    "history": ("entry", lambda party, id: party.core.history(id)),
    "set_firm": ("entry", lambda party, id: party.core.set_firm(id)),
    "set_pinned": ("entry", lambda party, id: party.core.set_pinned(id)),
    "hide_standing": ("entry", lambda party, id: party.core.hide_standing(id)),
    "update": ("entry", lambda party, id: party.core.update(id, f"The {party.canary} tea has changed")),
    "delete": ("entry", lambda party, id: party.core.delete(id)),
    "update by a server": ("entry", lambda party, id: serve(party, "update_memory", id=id, text="It has changed")),
    "delete by a server": ("entry", lambda party, id: serve(party, "delete_memory", id=id)),
    "get by mem0": ("entry", lambda party, id: call_mem0(party, lambda mem0: mem0.get(mem0_id(party, id)))),
    "history by mem0": ("entry", lambda party, id: call_mem0(party, lambda mem0: mem0.history(mem0_id(party, id)))),
    "update by mem0": (
        "entry",
        lambda party, id: call_mem0(party, lambda mem0: mem0.update(mem0_id(party, id), text="It has changed")),
    ),
    "delete by mem0": ("entry", lambda party, id: call_mem0(party, lambda mem0: mem0.delete(mem0_id(party, id)))),
    "forget a memory": ("entry", lambda party, id: party.core.forget(memory=id)),
    "forget a source": ("entry", lambda party, id: party.core.forget(source=id)),
    "undo": ("operation", lambda party, id: party.core.undo(id)),
    "proposal": ("proposal", lambda party, id: party.core.proposal(id)),
    "proposals before": ("proposal", lambda party, id: party.core.proposals(before=id)),
    "approve": ("proposal", lambda party, id: party.core.approve(id)),
    "reject": ("proposal", lambda party, id: party.core.reject(id)),
    "approve several": ("proposal", lambda party, id: party.core.approve_all([id])),
    "reject several": ("proposal", lambda party, id: party.core.reject_all([id])),
    "review": ("review", lambda party, id: party.core.review(id)),
    "reviews before": ("review", lambda party, id: party.core.reviews(before=id)),
    "undo a review": ("review", lambda party, id: party.core.undo_review(id)),
    "why": ("entry", lambda party, id: party.conversation("talk-1").why(id)),
    "trace of a conversation": ("conversation", lambda party, id: party.core.trace(conversation=id)),
    "turns of a conversation": ("conversation", lambda party, id: party.conversation(id).trace()),
    "audit of a conversation": ("conversation", lambda party, id: party.core.standing_audit(conversation=id)),
    "run a review": ("conversation", lambda party, id: party.core.run_review(id)),
    "forget a conversation": ("conversation", lambda party, id: party.core.forget(conversation=id)),
    "replay": ("turn", lambda party, id: party.conversation("talk-1").replay(id)),
    "trace of a turn": ("turn", lambda party, id: party.conversation("talk-1").trace(id)),
    "resume a turn": ("turn", lambda party, id: party.conversation("talk-1").resume_turn(id)),
    "conversations with a turn": ("turn", lambda party, id: party.core.conversations(turn=id)),
}
_SPACE_VERBS = (
    "add",
    "add_firm",
    "add_same",
    "add_many",
    "search",
    "search_as_of",
    "search_for_another",
    "list",
    "profile",
    "operations",
    "proposals",
    "reviews",
    "run_rules",
    "usage",
    "consolidate",
    "edit",
    "as_markdown",
    "trace",
    "conversations",
    "export",
    "stats",
    "standing_audit",
    "forget",
    "recall_once",
    "recall_block_once",
    "server_add",
    "server_list",
    "server_search",
    "mem0_add",
    "mem0_search",
    "mem0_get_all",
    "mem0_delete_all",
)
_LANGGRAPH_VERBS = ("langgraph_put", "langgraph_get", "langgraph_search", "langgraph_delete") if HAS_LANGGRAPH else ()
_LANGGRAPH_TENANT_VERBS = ("langgraph_namespaces", "langgraph_search_all") if HAS_LANGGRAPH else ()
_CONVERSATION_VERBS = (
    "turn",
    "long_turn",
    "block",
    "standing",
    "search_tool",
    "remember_tool",
    "why",
    "trace_turn",
    "replay",
    "incognito",
    "briefing",
)
_OF_CONVERSATIONS = ("trace", "turn", "why", "replay", "review", "export", "run_rules", "block", "conversation")
_TENANT_VERBS = ("spaces", "memory_stats", "memory_usage", "memory_timeline", "memory_showings", "retry_dead", "doctor")
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("add", "TEXT"),
    ("search", "QUESTION"),
    ("search", "QUESTION", "--json", "--conversation", "TALK"),
    ("profile",),
    ("list", "--status", "any", "--json"),
    ("show", "ID"),
    ("update", "ID", "TEXT"),
    ("delete", "ID"),
    ("firm", "ID"),
    ("history",),
    ("history", "ID", "--json"),
    ("inbox",),
    ("inbox", "show", "PROPOSAL"),
    ("inbox", "approve", "PROPOSAL"),
    ("inbox", "reject", "PROPOSAL"),
    ("inbox", "approve", "--conversation", "TALK"),
    ("review", "log"),
    ("review", "show", "REVIEW"),
    ("review", "undo", "REVIEW"),
    ("review", "run", "TALK", "--rules"),
    ("undo", "OPERATION"),
    ("replay", "TURN", "--conversation", "TALK"),
    ("trace",),
    ("trace", "TALK"),
    ("export",),
    ("standing", "show"),
    ("standing", "hide", "ID"),
    ("standing", "unhide", "ID"),
    ("standing", "audit"),
    ("incognito", "status", "TALK"),
    ("usage",),
    ("forget", "ID", "--dry-run"),
    ("forget", "--conversation", "TALK", "--dry-run"),
    ("consolidate", "--dry-run"),
)


TENANT_COMMANDS: tuple[tuple[str, ...], ...] = (("spaces",), ("stats", "--json"), ("doctor",))


async def outcome(operation: Awaitable[object]) -> str:
    """What a caller would see: the result, or the error with everything that it carries."""
    try:
        return repr(await operation)
    except AfterturnError as error:
        return f"{type(error).__name__}: {error} {vars(error)!r}"
    except Exception as error:  # noqa: BLE001 the boundary of one operation: the lab reports it
        return f"{UNEXPECTED} {type(error).__name__}: {error}"


async def observe(party: Party) -> dict[str, str]:
    """Everything that a party sees of its own space, scores and counts included."""
    space = party.core
    found = await space.search(QUESTION, limit=200)
    return {
        "search": repr((found.hits, found.missing)),
        "list": repr(await space.list(limit=1000, filter=_EVERYTHING)),
        "profile": repr(await space.profile()),
        "stats": repr(await space.stats()),
        "operations": repr(await space.operations(limit=1000)),
        "proposals": repr(await space.proposals(limit=1000)),
        "reviews": repr(await space.reviews(limit=1000)),
        "conversations": repr(await space.conversations(limit=1000)),
        "export": repr(await space.export()),
        "trace": repr(await space.trace(limit=1000)),
        "usage": repr(await space.usage()),
        **(await _observe_tenant(party) if party.is_quiet_tenant else {}),
    }


async def _observe_tenant(party: Party) -> dict[str, str]:
    """The size of the file is everybody's."""
    counted = await party.memory.stats()
    return {
        "the tenant's spaces": repr(await party.memory.spaces()),
        "the tenant's usage": repr(await party.memory.usage()),
        "the tenant's counts": repr({name: value for name, value in counted.items() if name != "size_bytes"}),
    }
