"""Rules at the moment of action: which of a conversation's standing rules concern the tool call that a model makes."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
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
from afterturn.types import Entry, Filter, Kind, Target

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
    named = [entry for entry in facts if entry.ref not in known and _names_a_tool(entry, scope, now)]
    lineage = StandingLineage(unit, scope.readable)
    entries += [entry for entry in named if lineage.is_trusted(entry)]
    screen = OutputFilter(scanning=config.scan_policy)
    found = []
    for entry in sorted(entries, key=lambda entry: not entry.firm):
        if entry.ref in standing.earlier:
            continue
        trigger = find_trigger(entry.text, call)
        if trigger is not None and (text := _shown(screen, entry)) is not None:
            found.append(ToolRule(entry.ref, entry.space, text, trigger.describe(), entry.firm))
    return found


def _names_a_tool(entry: Entry, scope: ConversationScope, now: float) -> bool:
    is_ours = entry.project in (None, scope.project) and entry.agent in (None, scope.agent)
    return is_ours and entry.holds(now) and _TOOL_OF_A_TEAM.search(entry.text) is not None


def _shown(screen: OutputFilter, entry: Entry) -> str | None:
    shown = screen.shown(entry)
    return None if shown is None else neutralise(" ".join(shown.split()))[:_RULE_CHARS_MAX]


def shown_name(name: object) -> str:
    """A tool's name for an event: models make names up."""
    return neutralise(str(name))[:_NAME_CHARS_MAX]


class GivenRules:
    """The rules that a turn was given, so that each is given once, and again only for the same call."""

    def __init__(self) -> None:
        self._calls: dict[str, set[str]] = {}

    def choose(self, rules: Iterable[ToolRule], name: str, arguments: object) -> ToolAdvice:
        """A firm rule refuses every call that it concerns."""
        known, call = list(rules), _hash_call(name, arguments)
        firm = [rule for rule in known if rule.firm]
        chosen = [rule for rule in known if rule.firm or self._is_due(rule, call)][:RULES_MAX]
        for rule in chosen:
            self._calls.setdefault(rule.ref, set()).add(call)
        return ToolAdvice(tuple(chosen), _refusal(firm) if firm else None)

    def _is_due(self, rule: ToolRule, call: str) -> bool:
        return rule.ref not in self._calls or call in self._calls[rule.ref]


def _refusal(firm: Sequence[ToolRule]) -> str:
    return f"Refused by your rule: {'; '.join(rule.text for rule in firm)} (afterturn list --firm)"


def _hash_call(name: str, arguments: object) -> str:
    try:
        written = json.dumps(arguments, sort_keys=True, default=str)
    except (TypeError, ValueError, RecursionError):
        written = repr(arguments)
    return hashlib.blake2b(f"{name}\0{written}".encode("utf-8", "replace"), digest_size=16).hexdigest()
