"""The steps of writers and learners, and the state after each step. Pure functions, shared by workload and judge."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from random import Random

from afterturn.types import Status

WRITERS = 4
_WORDS = ("amber", "birch", "cobalt", "dune", "ember", "fjord", "granite", "harbour", "indigo", "juniper")


class StepKind(StrEnum):
    ADD = "add"
    UPDATE = "update"
    DELETE = "delete"
    FORGET = "forget"
    RECORD = "record"
    LEARN = "learn"
    REVIEW = "review"
    TIDY = "tidy"


WRITING = (StepKind.ADD, StepKind.UPDATE, StepKind.DELETE, StepKind.FORGET, StepKind.RECORD)
LEARNER = "user:learner"
"""The space of learning steps. Each has a label of its own, which every text has that it leads to."""
LEARNED_BY_A_REVIEW = 3


@dataclass(frozen=True, slots=True)
class Step:
    """One operation in one space. `label` is the first word of every text it writes."""

    space: str
    act: StepKind
    label: str
    texts: tuple[str, ...] = ()

    def to_json(self) -> str:
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True)
class ExpectedEntry:
    """The content of a space under one label: a statement's newest version, or the records of one turn."""

    version: int
    status: Status
    texts: tuple[str, ...]
    is_record: bool = False


State = Mapping[str, ExpectedEntry]


def step_from_json(text: str) -> Step:
    fields = json.loads(text)
    return Step(fields["space"], StepKind(fields["act"]), fields["label"], tuple(fields["texts"]))


def space_of(writer: int) -> str:
    return f"user:writer-{writer}"


def after(state: State, step: Step) -> State:
    """The state after `step`. A step is applied completely or not at all."""
    changed = dict(state)
    held = changed.pop(step.label, None)
    match step.act:
        case StepKind.ADD:
            changed[step.label] = ExpectedEntry(1, Status.ACTIVE, step.texts)
        case StepKind.RECORD:
            changed[step.label] = ExpectedEntry(1, Status.ACTIVE, step.texts, is_record=True)
        case StepKind.UPDATE:
            assert held is not None
            changed[step.label] = ExpectedEntry(held.version + 1, Status.ACTIVE, step.texts)
        case StepKind.DELETE:
            assert held is not None
            changed[step.label] = ExpectedEntry(held.version, Status.DELETED, held.texts)
        case StepKind.FORGET | StepKind.LEARN | StepKind.REVIEW | StepKind.TIDY:
            pass
    return changed


def choose(random: Random, space: str, fresh_label: str, state: State) -> Step:
    """The next step: mostly new entries, but a limited number, so that every kind of step occurs."""
    active = [label for label, held in state.items() if held.status is Status.ACTIVE and not held.is_record]
    act = random.choices(WRITING, weights=(4, 3, 1, 1 + len(state) // 20, 3))[0]
    if act is StepKind.FORGET and state:
        return Step(space, act, random.choice(list(state)))
    if act is StepKind.UPDATE and active:
        label = random.choice(active)
        return Step(space, act, label, (_sentence(random, label),))
    if act is StepKind.DELETE and active:
        return Step(space, act, random.choice(active))
    if act is StepKind.RECORD:
        return Step(space, act, fresh_label, (_sentence(random, fresh_label), _sentence(random, fresh_label)))
    return Step(space, StepKind.ADD, fresh_label, (_sentence(random, fresh_label),))


def _sentence(random: Random, label: str) -> str:
    words = random.choices(_WORDS, k=random.choice((5, 20, 200)))
    return f"{label} {random.randrange(10**9)} {' '.join(words)}"
