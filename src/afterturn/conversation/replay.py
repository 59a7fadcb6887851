"""Replay: renders the blocks of a past turn again from stored recalls, and compares them with what was injected.

Only reads. With other settings, the block is chosen again from what was found; the search is not repeated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from afterturn.config import KEYS, SHAPING, Config
from afterturn.conversation.trace import find_turns
from afterturn.errors import ConfigError
from afterturn.guard.output_filter import OutputFilter
from afterturn.ports import Unit
from afterturn.recall.answer import compose, load_hits, mark_late
from afterturn.recall.block import Block
from afterturn.recall.duplicates import collapse
from afterturn.recall.relevance import worth_showing
from afterturn.recall.scoring import ScoreKind, best_first, score_kind_of
from afterturn.types import BlockRow, ConversationKey, Decision, Hit, Outcome, Phase, RecallRow, Scalar, Scope

_OFFERED = (Decision.SHOWN, Decision.BUDGET)


@dataclass(frozen=True, slots=True)
class Replayed:
    """One block of a turn, rendered again. `identical` says whether its bytes are those that were delivered.

    `hash` is empty if something was found and nothing was delivered. `stored` is the delivered text, empty once
    something in it was forgotten. `reason` says why the block is not identical. `changed` is the block under other
    settings: None if no settings were given, empty if there would be no block.
    """

    hash: str
    point: str
    questions: tuple[str, ...]
    stored: str
    rendered: str
    identical: bool
    reason: str = ""
    changed: str | None = None


@dataclass(frozen=True, slots=True)
class Replay:
    """A turn rendered again. `settings` are those that shaped its blocks, `changes` those that replace them."""

    space: str
    conversation: str
    number: int
    turn: str
    settings: Mapping[str, Scalar]
    changes: Mapping[str, Scalar]
    blocks: tuple[Replayed, ...]

    @property
    def identical(self) -> bool:
        return all(block.identical for block in self.blocks)


def check_changes(changes: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """The changes with values as in Config. Raises ConfigError for a setting that changes the search, not the block."""
    for name in changes:
        if name in KEYS and name not in SHAPING:
            raise ConfigError(
                f"{name!r} cannot be replayed: a replay chooses only from what the recall found. {_REPLAYABLE}"
            )
        if name not in KEYS:
            raise ConfigError(f"{name!r} is not a setting. {_REPLAYABLE}")
    config = Config(**changes)  # type: ignore[arg-type]  # checked by Config itself, which names what is wrong
    return {name: getattr(config, name) for name in changes}


_REPLAYABLE = f"Settings that can be replayed: {', '.join(SHAPING)}."


def replay(unit: Unit, key: ConversationKey, wanted: str | int, changes: Mapping[str, Scalar]) -> Replay:
    """`changes` come from `check_changes`. Raises NotFound if there is no such turn."""
    ((number, turn),) = find_turns(unit, key, wanted)
    rows = unit.recalls.page(key, turn=turn.id)
    handed_over = [row for row in rows if row.block and row.delivered_in == turn.id]
    blocks = {block.hash: block for block in unit.conversations.blocks(key)}
    groups = [
        [row for row in handed_over if row.block == name] for name in dict.fromkeys(row.block for row in handed_over)
    ]
    groups += [[row] for row in rows if row.outcome is Outcome.EMPTY and not row.block and row.candidates]
    replayed = {row.block for row in handed_over}
    others = [block for block in blocks.values() if block.turn == turn.id and block.hash not in replayed]
    return Replay(
        space=key.space,
        conversation=key.id,
        number=number,
        turn=turn.id,
        settings={name: row.settings[name] for row in rows[-1:] for name in SHAPING if name in row.settings},
        changes=changes,
        blocks=(
            *(_replayed(unit, key, group, blocks.get(group[0].block), changes) for group in groups),
            *(_not_replayed(block) for block in others),
        ),
    )


def _replayed(
    unit: Unit,
    key: ConversationKey,
    rows: Sequence[RecallRow],
    block: BlockRow | None,
    changes: Mapping[str, Scalar],
) -> Replayed:
    ordered = sorted(rows, key=lambda row: int(row.settings.get("order") or 0))
    name = rows[0].block
    # If nothing was handed over, there is nothing to compare with.
    again = _rendered(unit, key, ordered, {}) if name else None
    other = _rendered(unit, key, ordered, changes) if changes else None
    identical = (again.hash if again else "") == name
    return Replayed(
        hash=name,
        point=rows[0].point,
        questions=tuple(dict.fromkeys(row.question for row in ordered)),
        stored=block.text if block else "",
        rendered=again.text if again else "",
        identical=identical,
        reason="" if identical else _why_other(block, again, rows),
        changed=(other.text if other else "") if changes else None,
    )


def _rendered(
    unit: Unit, key: ConversationKey, rows: Sequence[RecallRow], changes: Mapping[str, Scalar]
) -> Block | None:
    shaping = {name: rows[0].settings[name] for name in SHAPING}
    config = Config(**{**shaping, **changes})  # type: ignore[arg-type]
    is_other_floor = "recall_score_min" in changes
    hits = []
    for row in rows:
        found = _hits(unit, key, row, config if is_other_floor else None)
        is_late = row.delivered_in not in ("", row.turn)
        hits += mark_late(found, row.question, row.cause) if is_late else found
    made_at = rows[0].settings.get("made_at", rows[0].settled_at or rows[0].asked_at)
    assert isinstance(made_at, int | float)
    if not hits or config.recall_entries_max == 0:
        return None
    projects = rows[0].settings.get("projects")
    at_hand = None if projects is None else str(projects).splitlines()
    screen = OutputFilter(scanning=config.scan_policy, projects=at_hand)
    return compose(hits, config, visible_bytes=rows[0].visible_bytes, now=made_at, screen=screen)


def _hits(unit: Unit, key: ConversationKey, row: RecallRow, other: Config | None) -> list[Hit]:
    """The hits that were to be handed over, in order. With another floor, chosen again from all that were found."""
    scope = Scope(key.tenant, row.reads or (key.space,))
    if other is None or row.phase is Phase.REFINED or score_kind_of(row) is ScoreKind.PROFILE:
        offered = [candidate for candidate in row.candidates if candidate.decision in _OFFERED]
        return list(load_hits(unit, scope, row.terms, offered))
    found = [one for one in row.candidates if one.decision not in (Decision.VISIBLE, Decision.STALE)]
    hits = best_first(load_hits(unit, scope, row.terms, found))
    return collapse(worth_showing(hits, other.recall_score_min))[0]


def _why_other(block: BlockRow | None, again: Block | None, rows: Sequence[RecallRow]) -> str:
    if any(row.settings.get("incognito") for row in rows):
        return "the turn was incognito, so its question is not stored"
    if block is None:
        return "the block is no longer in the store"
    shown = len(again.refs) if again else 0
    if not block.text or len(block.refs) < shown:
        return "a memory that was in it, or competed with it, has been forgotten since"
    if again is not None and set(again.refs) != set(block.refs):
        return "other memories would be shown now"
    return "the same memories are rendered differently now"


def _not_replayed(block: BlockRow) -> Replayed:
    """A block without a stored recall. Context files are not memories, so their block counts as identical."""
    reason = (
        "its recall is no longer stored" if block.refs else "it contains context files, which are not rendered again"
    )
    return Replayed(
        hash=block.hash,
        point=block.point,
        questions=(),
        stored=block.text,
        rendered="" if block.refs else block.text,
        identical=not block.refs,
        reason=reason,
    )
