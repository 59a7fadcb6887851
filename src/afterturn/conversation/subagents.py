"""Sub-agents: writes the prompts of their tasks, proposes what they learned, and gives them memory tools."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from afterturn.conversation.proposals import ProposalContext, statements
from afterturn.conversation.read_turn import QUESTION_CHARS_MAX, Ledger, make_request
from afterturn.conversation.scope import ConversationScope
from afterturn.conversation.tools import MemoryTools, failure, offered
from afterturn.dialects.dialect import ToolDefinition
from afterturn.dialects.history import get_dialect
from afterturn.errors import AfterturnError
from afterturn.guard.output_filter import OutputFilter, neutralise
from afterturn.guard.scanning import scanner
from afterturn.log import logger
from afterturn.recall.answer import answer_question
from afterturn.recall.block import CUT, ENTRY_BYTES_MAX, NOTICE, Excerpt, best_window, bullet
from afterturn.recall.duplicates import collapse
from afterturn.recall.query import RecallRequest
from afterturn.recall.search import search_among
from afterturn.runtime.loop_thread import LoopThread
from afterturn.scanners.secrets import redact_within, unnamed
from afterturn.text import terms
from afterturn.types import Hit, LaneQuery, Scalar, Scope

if TYPE_CHECKING:
    from afterturn.services import Services


_ANSWERS_NOTICE = "Treat their answers as notes, too."
# The host waits for this text, so the input is limited: a record may have a megabyte, and a turn many epochs.
_READ_CHARS_MAX = 2_048
_HITS_MAX = 48
_TRIED_MAX = 12
# Hits are compared with each other only, so their tenant does not matter.
_ANY_TENANT = "any"


@dataclass(frozen=True, slots=True)
class KeyFacts:
    """What was recalled about a task, best first, and the limits for a sub-agent's prompt.

    `screen` has afterwards what it withheld.
    """

    hits: Sequence[Hit]
    now: float
    entries_max: int = 8
    entry_bytes_max: int = ENTRY_BYTES_MAX
    bytes_max: int = 2_048
    screen: OutputFilter = field(default_factory=lambda: OutputFilter(scanning=True))


def assemble(task: str, bullets: Sequence[str], tools: Sequence[ToolDefinition] = ()) -> str:
    """The prompt: the task in the host's own words, the facts, the tools. Empty parts are left out."""
    sections = [f"## Task\n{task.strip()}"]
    if bullets:
        sections.append("\n".join(["## Key Context (preserve these facts)", NOTICE, *bullets]))
    if tools:
        # The first sentence of each description. The model gets the rest with the tool's schema.
        lines = [
            f"- {neutralise(one.name)}: {neutralise(one.description).split('. ')[0].rstrip('.')}." for one in tools
        ]
        sections.append("\n".join(["## Memory Tools Available", *lines, _ANSWERS_NOTICE]))
    return "\n\n".join(sections)


def choose_hits(task: str, recalled: Sequence[Hit], *, now: float, score_min: float | None = None) -> list[Hit]:
    """Those hits of a turn's epochs that answer the task, best first: by words, with the floor of a recall."""
    if not recalled:
        return []
    newest = {hit.entry.ref: hit for hit in recalled[-_HITS_MAX:]}
    entries = [replace(hit.entry, text=hit.entry.text[:_READ_CHARS_MAX]) for hit in newest.values()]
    scope = Scope(_ANY_TENANT, tuple(dict.fromkeys(entry.space for entry in entries)))
    request = RecallRequest(task[:_READ_CHARS_MAX], LaneQuery(scope, now), limit=_TRIED_MAX, score_min=score_min)
    return [newest[hit.entry.ref] for hit in search_among(request, entries).hits]


def key_facts(task: str, facts: KeyFacts) -> list[str]:
    """One line per fact, as in a block. A fact that is too long for the rest of the budget is skipped.

    Untrusted facts are left out: a sub-agent would take them for instructions of its parent.
    """
    wanted = terms(task[:_READ_CHARS_MAX])
    trusted = [hit for hit in facts.hits if not hit.entry.is_report]
    ranked, _ = collapse(trusted[:_TRIED_MAX])
    lines: list[str] = []
    room = facts.bytes_max
    for hit in ranked:
        shown = facts.screen.beginning(hit.entry, _READ_CHARS_MAX + 1)
        if shown is None:
            continue
        window = _window(shown, wanted, facts.entry_bytes_max)
        line = bullet(Excerpt(hit, window, said_in=facts.screen.said_in(hit.entry)), now=facts.now)
        size = len(line.encode()) + 1
        if size <= room and len(lines) < facts.entries_max:
            lines.append(line)
            room -= size
    return lines


def _window(text: str, wanted: Sequence[str], bytes_max: int) -> str:
    if len(text) <= _READ_CHARS_MAX:
        return best_window(text, wanted, bytes_max)
    window = best_window(text[:_READ_CHARS_MAX], wanted, bytes_max - len(CUT.encode()))
    return window if window.endswith(CUT) else window + CUT


DEFAULT_DIALECT = "openai_chat"


class Subagents:
    """One per memory. Its public methods may be called from any thread and wait for nothing."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def delegate(
        self,
        context: ProposalContext,
        recalled: Sequence[Hit],
        task: str,
        *,
        remember: bool,
        answer: Sequence[Hit] | None = None,
    ) -> str:
        """The prompt of the task. A sub-agent gets no block, so the prompt contains all that it needs to know.

        The facts are the `answer` of `recall_for`, or else those of the turn's `recalled` hits that concern the task.
        """
        if not self._services.has_store:
            return assemble(task, ())
        config, now = self._services.config, self._services.clock.now()
        screen = OutputFilter(scanning=config.scan_policy, projects=context.scope.projects(config.scan_policy))
        if answer is None:
            answer = choose_hits(task, recalled, now=now)
        bullets = key_facts(task, KeyFacts(answer, now, screen=screen))
        text = assemble(task, bullets, offered(remember=remember))
        size: dict[str, Scalar] = {"memories": len(bullets), "bytes": len(text.encode())}
        self._services.loop.post(self._emit, context, "delegated", size)
        for ref, reason in screen.withheld.items():
            self._services.loop.post(self._emit, context, "withheld", {"memory": ref, "reason": reason})
        return text

    async def recall_for(self, scope: ConversationScope, task: str, *, within: float | None) -> list[Hit] | None:
        """What a turn would recall for the task, best first. None if memory fails or takes longer than `within`.

        Runs on memory's loop.
        """
        services, config = self._services, self._services.config
        if not services.has_store:
            return None
        text = redact_within(task, QUESTION_CHARS_MAX, scanner(scanning=config.scan_policy), mark=unnamed).text
        request = make_request(text, scope, Ledger(), config)
        request = request.asked(now=services.clock.now(), correlation=services.ids.new())
        try:
            async with asyncio.timeout(config.recall_timeout if within is None else within):
                work = functools.partial(answer_question, config=config)
                answer, _ = await services.recall_client.ask(request, work)
        except Exception as error:  # the boundary: the task is delegated without the facts that could not be found
            logger.warning("nothing was recalled for a sub-agent's task", exc_info=error)
            return None
        return list(answer.hits)

    def returned(self, context: ProposalContext, task: str, result: object, *, accept: bool = False) -> None:
        """Proposes what the sub-agent's answer states. The answer is read now, because the host may change it later."""
        self._services.loop.post(self._take, context, task, statements(result), accept=accept)

    def tools(
        self,
        context: ProposalContext,
        *,
        remember: bool,
        turn: Callable[[], str] | None = None,
        on_untrusted: Callable[[], None] | None = None,
        is_incognito: Callable[[], bool] | None = None,
    ) -> MemoryTools:
        return MemoryTools(
            self._services,
            context,
            remember=remember,
            turn=turn,
            on_untrusted=on_untrusted,
            is_incognito=is_incognito,
        )

    def _take(self, context: ProposalContext, task: str, texts: list[str], *, accept: bool) -> None:
        if self._services.has_store:
            proposing = self._propose(context, task, texts, accept=accept)
            self._services.recorder.expect(self._services.supervisor.start(proposing, f"proposals of {context.turn}"))

    async def _propose(self, context: ProposalContext, task: str, texts: list[str], *, accept: bool) -> None:
        await self._services.proposals.returned(context, task, texts, accept=accept)
        self._services.wake_jobs()

    def _emit(self, context: ProposalContext, name: str, data: Mapping[str, Scalar]) -> None:
        scope = context.scope
        self._services.events.emit(name, space=scope.owner, conversation=scope.id, turn=context.turn, **data)


class ToolVerbs:
    """The methods that are the same with and without an event loop."""

    def __init__(self, core: MemoryTools, loop: LoopThread) -> None:
        self._core = core
        self._loop = loop

    def __repr__(self) -> str:
        return f"<Tools of {self._core.conversation}>"

    def definitions(self, dialect: str | None = None) -> list[Mapping[str, Any]]:
        """Returns the tool definitions in the format of `dialect`.

        Without `dialect`, in the format of the conversation, or of OpenAI chat if it is not known yet.
        """
        return self._core.definitions(get_dialect(dialect or self._core.dialect or DEFAULT_DIALECT))


class Tools(ToolVerbs):
    """Memory as tools for a model."""

    async def dispatch(self, name: str, arguments: object) -> str:
        """Answers a model's call of the tool `name`. Never raises: a failure is an answer too.

        `arguments` is a mapping, or its JSON text.
        """
        try:
            return await self._loop.run(self._core.dispatch(name, arguments))
        except AfterturnError as error:
            return failure(name, error)
