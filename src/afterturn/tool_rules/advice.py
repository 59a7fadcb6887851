"""Rules at the moment of action: which of a conversation's standing rules concern the tool call that a model makes."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from afterturn.config import Config
from afterturn.guard.output_filter import OutputFilter, neutralise
from afterturn.ports import Unit
from afterturn.standing.lineage import StandingLineage
from afterturn.standing.memories import StandingReader, find_standing_memories
from afterturn.text import regex
from afterturn.tool_rules.calls import read_call
from afterturn.tool_rules.triggers import find_trigger
from afterturn.types import Filter, Kind, Target

if TYPE_CHECKING:
    from afterturn.conversation.scope import ConversationScope

# More rules than this would not be read. Firm ones come first.
RULES_MAX = 5
_RULE_CHARS_MAX = 500
_NAME_CHARS_MAX = 60
_FACTS = Filter(kind=Kind.STATEMENT, target=Target.ENVIRONMENT)
_FACTS_MAX = 200
# A fact that says which tool is used here is a rule for calls of another one.
_TOOL_OF_A_TEAM = regex(
    r"\b(?:we|(?:this|our|the) (?:\w+ )?(?:project|repo|repository|codebase|team|stack|app))\s(?:\w+\s)?uses?\s",
    re.IGNORECASE,
)
_TITLE = "Rules of the user that concern this call:"


@dataclass(frozen=True, slots=True)
class ToolRule:
    """A rule that concerns a tool call. `ref` is the memory, in `space`; `why` are the words that decided."""

    ref: str
    space: str
    text: str
    why: str
    firm: bool = False


@dataclass(frozen=True, slots=True)
class ToolAdvice:
    """The rules that concern a tool call. With a `refusal`, do not run the tool: give the model this text instead."""

    rules: tuple[ToolRule, ...] = ()
    refusal: str | None = None

    @property
    def text(self) -> str:
        """The rules for the model, one line each; empty if there is none."""
        return "\n".join([_TITLE, *(f"- {rule.text}" for rule in self.rules)]) if self.rules else ""


NO_ADVICE = ToolAdvice()


def find_tool_rules(
    unit: Unit, scope: ConversationScope, config: Config, name: str, arguments: object, *, now: float
) -> list[ToolRule]:
    """All rules that concern the call, firm ones first: standing ones, and facts such as "we use pnpm here, not npm".

    Only those that the user typed or a person approved, of spaces that the conversation may read.
    """
    call = read_call(name, arguments)
    reader = StandingReader(scope.readable, now, scope.agent, scope.project, scope.owner)
    standing = find_standing_memories(unit, reader)
    entries = [*standing.conventions, *standing.pinned, *standing.preferences]
    known = {entry.ref for entry in entries}
    facts = unit.memories.page(scope.readable, _FACTS, limit=_FACTS_MAX)
    projects, agents = (None, scope.project), (None, scope.agent)
    named = [
        entry
        for entry in facts
        if entry.ref not in known and entry.project in projects and entry.agent in agents and entry.holds(now)
    ]
    lineage = StandingLineage(unit, scope.readable)
    entries += [entry for entry in named if _TOOL_OF_A_TEAM.search(entry.text) and lineage.is_trusted(entry)]
    screen = OutputFilter(scanning=config.scan_policy)
    found = []
    for entry in sorted(entries, key=lambda entry: not entry.firm):
        if entry.ref in standing.earlier:
            continue
        trigger = find_trigger(entry.text, call)
        if trigger is not None and (shown := screen.shown(entry)) is not None:
            text = neutralise(" ".join(shown.split()))[:_RULE_CHARS_MAX]
            found.append(ToolRule(entry.ref, entry.space, text, trigger.describe(), entry.firm))
    return found


def shown_name(name: object) -> str:
    """A tool's name for an event: models make names up."""
    return neutralise(str(name))[:_NAME_CHARS_MAX]


class GivenRules:
    """The rules that a turn was given, so that each is given once, and again only for the same call."""

    def __init__(self) -> None:
        self._calls: dict[str, set[str]] = {}

    def choose(self, rules: Iterable[ToolRule], name: str, arguments: object) -> ToolAdvice:
        """A firm rule refuses every call that it concerns."""
        try:
            written = json.dumps(arguments, sort_keys=True, default=str)
        except (TypeError, ValueError, RecursionError):
            written = repr(arguments)
        call = hashlib.blake2b(f"{name}\0{written}".encode("utf-8", "replace"), digest_size=16).hexdigest()
        known = list(rules)
        chosen = [rule for rule in known if rule.firm or call in self._calls.get(rule.ref, (call,))][:RULES_MAX]
        for rule in chosen:
            self._calls.setdefault(rule.ref, set()).add(call)
        firm = [rule.text for rule in known if rule.firm]
        refusal = f"Refused by your rule: {'; '.join(firm)} (afterturn list --firm)" if firm else None
        return ToolAdvice(tuple(chosen), refusal)
