"""What a writer does step by step, and the state that each step must lead to. Pure: child and judge share it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from random import Random

from afterturn.types import Status

WRITERS = 4
_WORDS = ("amber", "birch", "cobalt", "dune", "ember", "fjord", "granite", "harbour", "indigo", "juniper")


class Act(StrEnum):
    ADD = "add"
    UPDATE = "update"
    DELETE = "delete"
    FORGET = "forget"
    RECORD = "record"


@dataclass(frozen=True, slots=True)
class Step:
    """One operation in one space. `label` is the first word of every text it writes."""

    space: str
    act: Act
    label: str
    texts: tuple[str, ...] = ()

    def to_json(self) -> str:
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True)
class Held:
    """What a space holds under one label: a statement's newest version, or the records of one turn."""

    version: int
    status: Status
    texts: tuple[str, ...]
    is_record: bool = False


State = Mapping[str, Held]


def step_from_json(text: str) -> Step:
    fields = json.loads(text)
    return Step(fields["space"], Act(fields["act"]), fields["label"], tuple(fields["texts"]))


def space_of(writer: int) -> str:
    return f"user:writer-{writer}"


def after(state: State, step: Step) -> State:
    """The state that `step` leads to; it never leads halfway."""
    changed = dict(state)
    held = changed.pop(step.label, None)
    match step.act:
        case Act.ADD:
            changed[step.label] = Held(1, Status.ACTIVE, step.texts)
        case Act.RECORD:
            changed[step.label] = Held(1, Status.ACTIVE, step.texts, is_record=True)
        case Act.UPDATE:
            assert held is not None
            changed[step.label] = Held(held.version + 1, Status.ACTIVE, step.texts)
        case Act.DELETE:
            assert held is not None
            changed[step.label] = Held(held.version, Status.DELETED, held.texts)
        case Act.FORGET:
            pass
    return changed


def choose(random: Random, space: str, fresh_label: str, state: State) -> Step:
    """The next thing to do: mostly new things, but never many, so that each kind of step gets its share."""
    active = [label for label, held in state.items() if held.status is Status.ACTIVE and not held.is_record]
    act = random.choices(list(Act), weights=(4, 3, 1, 1 + len(state) // 20, 3))[0]
    if act is Act.FORGET and state:
        return Step(space, act, random.choice(list(state)))
    if act is Act.UPDATE and active:
        label = random.choice(active)
        return Step(space, act, label, (_sentence(random, label),))
    if act is Act.DELETE and active:
        return Step(space, act, random.choice(active))
    if act is Act.RECORD:
        return Step(space, act, fresh_label, (_sentence(random, fresh_label), _sentence(random, fresh_label)))
    return Step(space, Act.ADD, fresh_label, (_sentence(random, fresh_label),))


def _sentence(random: Random, label: str) -> str:
    words = random.choices(_WORDS, k=random.choice((5, 20, 200)))
    return f"{label} {random.randrange(10**9)} {' '.join(words)}"
