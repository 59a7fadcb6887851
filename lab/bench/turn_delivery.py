"""Of turns whose fast recall had something, how many showed it to the model in the same turn."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import afterturn
from afterturn.base.config import Config
from afterturn.base.slot import Slot
from afterturn.base.types import Event
from afterturn.context.block import find_blocks
from lab.bench.report import Progress
from lab.bench.turn_corpus import USER, past, questions
from lab.bench.turn_host import Choosing, Message, Ours, Paced, run_turn
from lab.bench.turn_waiting import CALL_SECONDS

SETTLED_WITHIN = 10.0
HISTORY = 20
FIRST_TURN = "lab.bench.turn_first"
FIRST_TURN_WITHIN = 60.0
FIRST_AT_ONCE = "first turn of a process, at once"
FIRST_LATER = "first turn of a process, while vectors load"


@dataclass(frozen=True, slots=True)
class Selecting:
    """How long the selector takes. Without one, recall has no refined phase."""

    name: str
    is_there: bool = True
    seconds: float | None = 0.0


SELECTORS = (
    Selecting("no selector", is_there=False),
    Selecting("selector 0 ms", seconds=0.0),
    Selecting("selector 100 ms", seconds=0.1),
    Selecting("selector 900 ms", seconds=0.9),
    Selecting("selector 2,500 ms", seconds=2.5),
    Selecting("selector never answers", seconds=None),
)


@dataclass(frozen=True, slots=True)
class Delivery:
    """`relevant`: turns whose fast recall found something; `delivered`: those of them whose model was shown it.

    A recall that did not settle in 10 s counts as one that had something. `waited` is what a turn spent in memory's
    verbs, in seconds: the median, and the longest.
    """

    kind: str
    grace: float
    steps: int
    turns: int
    relevant: int
    delivered: int
    waited: float
    waited_max: float

    @property
    def share(self) -> float:
        return self.delivered / self.relevant if self.relevant else 0.0


@dataclass(frozen=True, slots=True)
class DeliveryScale:
    """How many turns of so many steps each selector gets, and how many processes are started for their first turn.

    Every other first turn begins at once, the others `delays` seconds after opening, around when vectors are loaded.
    """

    selectors: tuple[Selecting, ...]
    turns: tuple[tuple[int, int], ...]
    processes: int
    delays: tuple[float, ...] = (0.3, 0.5, 0.55, 0.6, 0.7)


FULL = DeliveryScale(SELECTORS, turns=((1, 100), (2, 40), (5, 20), (14, 10)), processes=60)
QUICK = DeliveryScale((SELECTORS[0], SELECTORS[5]), turns=((1, 3), (2, 1)), processes=2)


@dataclass(frozen=True, slots=True)
class Seen:
    """One turn: whether its fast recall had something, whether the model was shown it, and the time in the verbs."""

    had_something: bool
    shown: bool
    spent: float


class Heard:
    """What memory told about the recall of each turn: how many memories it has found."""

    def __init__(self) -> None:
        self._found: dict[str, Slot[int]] = {}

    def __call__(self, event: Event) -> None:
        if event.name == "recall_settled":
            self._slot(event.turn).settle(int(event.data["memories"] or 0))

    async def found(self, turn: str) -> int | None:
        """None: nothing was told in time."""
        return await self._slot(turn).wait(within=SETTLED_WITHIN)

    def _slot(self, turn: str) -> Slot[int]:
        return self._found.setdefault(turn, Slot())


async def measure_delivery(store: Path, scale: DeliveryScale, told: Progress) -> list[Delivery]:
    """By number of steps and selector, at the default grace and, without a selector, at grace 0."""
    found = []
    default = Config().grace
    for selecting, grace in ((SELECTORS[0], 0.0), *((one, default) for one in scale.selectors)):
        heard = Heard()
        config = Config(grace=grace, refined=selecting.is_there)
        async with afterturn.open(store, config, model=Choosing(selecting.seconds), on_event=heard) as memory:
            await memory.ready()
            for steps, turns in scale.turns:
                told(f"delivery: {selecting.name}, grace {grace * 1000:g} ms, {steps} steps")
                name = f"{SELECTORS.index(selecting)}-{grace}-{steps}"
                seen = [await deliver(memory, heard, steps, f"{name}-{at}", at) for at in range(turns)]
                found.append(tally(selecting.name, grace, steps, seen))
    return [*found, *await _first_turns(store, scale, told)]


async def deliver(memory: afterturn.Memory, heard: Heard, steps: int, name: str, at: int) -> Seen:
    """One turn in the conversation `name`, which must be new: then nothing is known to the model yet."""
    messages: list[Message] = past(HISTORY)
    way, model = Ours(memory.conversation(name, user=USER)), Paced(steps, CALL_SECONDS)
    await run_turn(way, model, messages, questions(at + 1)[at])
    # The list of the last call is the same one that the answer was appended to since: it holds all that was shown.
    shown = any(find_blocks(str(message.get("content"))) for message in model.shown)
    assert way.turn is not None
    return Seen(await heard.found(way.turn.id) != 0, shown, way.spent)


def tally(kind: str, grace: float, steps: int, seen: Sequence[Seen]) -> Delivery:
    relevant = [turn.shown for turn in seen if turn.had_something]
    spent = [turn.spent for turn in seen]
    return Delivery(kind, grace, steps, len(seen), len(relevant), sum(relevant), median(spent), max(spent))


async def _first_turns(store: Path, scale: DeliveryScale, told: Progress) -> list[Delivery]:
    """Each in a process of its own, which opens the store and begins its first turn, with no tools, at once or soon."""
    seen: dict[str, list[Seen]] = {}
    for at in range(scale.processes):
        told(f"delivery: first turn of process {at + 1} of {scale.processes}")
        delay = scale.delays[at // 2 % len(scale.delays)] if at % 2 else 0.0
        seen.setdefault(FIRST_LATER if delay else FIRST_AT_ONCE, []).append(await _first_turn(store, at, delay))
    return [tally(kind, Config().grace, 1, found) for kind, found in seen.items()]


async def _first_turn(store: Path, at: int, delay: float) -> Seen:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", FIRST_TURN, str(store), str(at), str(delay), stdout=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(FIRST_TURN_WITHIN):
            out, _ = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode != 0:
        raise RuntimeError(f"The process of a first turn ended with {child.returncode}. Run `python -m {FIRST_TURN}`.")
    return Seen(**json.loads(out))
