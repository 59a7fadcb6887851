"""`make bench-turn`: delivery in the same turn, the time a host waits for memory, and tokens in prompts."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import re
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, TypeVar

import afterturn
from afterturn.config import Config
from afterturn.conversation.turn import PhaseName
from afterturn.evaluation.examination import scratch_folder
from afterturn.ports import Clock, Store, Unit
from afterturn.recall.block import find_blocks
from afterturn.stores.sqlite.store import open_store
from afterturn.testing.model import ScriptedModel
from afterturn.text import estimate_tokens
from afterturn.types import Event, UnitScope
from lab.bench.cost import Cost, cost_figures, cost_table, measure_cost, measure_open
from lab.bench.host import (
    AfterturnMode,
    BackgroundModel,
    Message,
    NoMemory,
    PerCall,
    PerTurn,
    SlowModel,
    learn,
    run_turn,
    script,
    select_first_three,
    timer,
)
from lab.bench.report import Figure, Goal, Progress, Report, Table, judge, make_report, milliseconds
from lab.bench.texts import SPACE, USER, memories, past, questions

R = TypeVar("R")
CALL_SECONDS = 0.5
HISTORY = 100
SETTLED_WITHIN = 10.0
FIRST_TURN_WITHIN = 60.0
SECTIONS = ("prompts", "waiting", "delivery", "cost")
EXPLAINED = (
    "An agent's loop with simulated models, with afterturn and with simpler ways to have memory. The worst "
    "measured case must meet the target."
)


@dataclass(frozen=True, slots=True)
class Case:
    """A fault in memory. `selector`: the seconds that the selecting model takes; None: it never answers."""

    name: str
    selector: float | None = None
    has_selector: bool = True
    hangs: bool = False


NO_SELECTOR = Case("no selector", has_selector=False)
SLOW = Case("selector 2,500 ms", 2.5)
SILENT = Case("selector never answers")
HANGING = Case("store hangs", 0.0, hangs=True)


@dataclass(frozen=True, slots=True)
class ConversationPlan:
    """A conversation, given as the number of steps of each turn."""

    name: str
    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Scale:
    """`others` are memories unrelated to the questions. `delivered` are (steps, turns).

    Every second first turn of a process begins at once, the others after one of `delays`, while the process loads.
    """

    call_seconds: float
    others: int
    courses: tuple[ConversationPlan, ...]
    waiting: tuple[Case, ...]
    waiting_steps: tuple[int, ...]
    rounds: int
    naive_within: float | None
    settings: Config
    delivered: tuple[tuple[int, int], ...]
    processes: int
    cost_rounds: int
    delays: tuple[float, ...] = (0.1, 0.3, 0.5, 0.7)


# 30 turns with 144 model calls, like a real conversation of a bot.
MIXED = (1, 2, 5, 14, 2) * 6
FULL = Scale(
    call_seconds=CALL_SECONDS,
    others=1000,
    courses=(
        ConversationPlan("20 turns of 14 steps", (14,) * 20),
        ConversationPlan(f"{sum(MIXED)} calls in {len(MIXED)} turns", MIXED),
    ),
    waiting=(Case("selector 100 ms", 0.1), SLOW, SILENT, HANGING),
    waiting_steps=(1, 5),
    rounds=8,
    naive_within=None,
    settings=Config(refined=True),
    delivered=((1, 40), (5, 10)),
    processes=60,
    cost_rounds=20,
)
QUICK = Scale(
    call_seconds=0.02,
    others=50,
    courses=(ConversationPlan("3 turns of 2 steps", (2,) * 3),),
    waiting=(SILENT, HANGING),
    waiting_steps=(1,),
    rounds=1,
    naive_within=0.2,
    settings=Config(refined=True, recall_timeout=0.2, close_timeout=0.2),
    delivered=((1, 2), (2, 1)),
    processes=2,
    cost_rounds=2,
)


def measure_turn(
    *,
    quick: bool = False,
    only: Sequence[str] = (),
    chroma: Sequence[str] = (),
    progress: Progress = lambda step: None,
) -> Report:
    """`only` names the sections to measure; by default all. `chroma` are folders in which chromadb is found."""
    sys.path += chroma
    scale = QUICK if quick else FULL
    with scratch_folder("afterturn-bench-") as folder:
        figures, tables = asyncio.run(_measure(folder / "memories.db", scale, only or SECTIONS, progress))
    arguments = [*(["--quick"] if quick else []), *(f"--only {name}" for name in only)]
    arguments += ["--chroma FOLDER"] if chroma else []
    return make_report("turn", arguments, EXPLAINED, figures, tables)


async def _measure(
    store: Path, scale: Scale, sections: Sequence[str], progress: Progress
) -> tuple[list[Figure], list[Table]]:
    texts = memories(scale.others)
    async with afterturn.open(store, Config()) as memory:
        await learn(memory, texts)
    figures: list[Figure] = []
    tables: list[Table] = []
    # First: the other sections add to the store.
    costs: list[Cost] = []
    growth: list[Figure] = []
    if "cost" in sections:
        costs, growth = await measure_cost(store, texts, scale.cost_rounds, progress)
        growth += measure_open(store)
    if "prompts" in sections:
        prompts = await measure_prompts(store, scale.courses, progress)
        figures += prompt_figures(prompts)
        tables.append(_prompt_table(prompts))
    if "waiting" in sections:
        waits = await measure_waiting(store, scale, progress)
        figures += wait_figures(waits)
        tables.append(_wait_table(waits, scale))
    if "delivery" in sections:
        deliveries = await measure_delivery(store, scale, progress)
        figures += delivery_figures(deliveries)
        tables.append(_delivery_table(deliveries, scale))
    if costs:
        figures += [*cost_figures(costs), *growth]
        tables.append(cost_table(costs))
    return figures, tables


def _worst(name: str, goal: Goal, found: Iterable[tuple[float, str]]) -> Figure:
    value, where = min(found) if goal.at_least else max(found)
    return judge(name, goal.unit, value, goal, where)


# Prompts: how many tokens of memory a model is shown, over whole conversations.

PER_CALL, PER_TURN, OURS = "recall per call", "recall per turn", "ours"
WAYS = (PER_CALL, PER_TURN, OURS)
_NAMED = re.compile(r"^- \[([^\]]+)\]", re.MULTILINE)
_PROMPTS = (
    "Whole conversations of one agent with tools, over the same memories. *Recall per call* searches before each "
    "model call and shows the result after the last message of that call alone. *Recall per turn* searches once for "
    "each user message and leaves the block in the conversation. *Injected* are memory's tokens that a prompt does not "
    "share with the one before it. *Carried* are memory's tokens summed over all prompts; both are estimates. Appended "
    "blocks stay in the prompt, but in the part that the provider caches. *Stable* is the share of prompts that begin "
    "with the whole prompt before them; *most often*, how many times one memory was put in; *repeats*, how many were "
    "put in while the prompt already had them."
)


@dataclass(frozen=True, slots=True)
class Prompts:
    """The counts of one conversation's prompts; the table explains them."""

    course: str
    way: str
    turns: int
    calls: int
    recalls: int
    injected: int
    carried: int
    stability: float
    repeats: int
    most_often: int


async def measure_prompts(store: Path, courses: Sequence[ConversationPlan], progress: Progress) -> list[Prompts]:
    """Copies `store`, so that each conversation begins with the same memories."""
    found = []
    for at, course in enumerate(courses):
        for way in WAYS:
            progress(f"prompts: {course.name}, {way}")
            path = store.with_name(f"prompts-{at}-{WAYS.index(way)}.db")
            async with afterturn.open(store, Config()) as memory:
                await memory.backup(path)
            found.append(await _converse(path, course, way))
    return found


async def _converse(path: Path, course: ConversationPlan, way: str) -> Prompts:
    model = ScriptedModel(*(line for steps in course.steps for line in script(steps)))
    started: list[Event] = []

    def count(event: Event) -> None:
        if event.name == "recall_started":
            started.append(event)

    config = Config()
    async with afterturn.open(path, config, on_event=count) as memory:
        await memory.ready()
        ours = AfterturnMode(memory.conversation("bench", user=USER))
        naive: dict[str, PerCall | PerTurn] = {
            PER_CALL: PerCall(memory.space(SPACE), config),
            PER_TURN: PerTurn(memory.space(SPACE), config),
        }
        messages = past(0)
        for question in questions(len(course.steps)):
            await run_turn(naive.get(way, ours), model, messages, question)
            if ours.turn is not None:
                await ours.turn.wait_recorded()
    recalls = naive[way].recalls if way in naive else len(started)
    return weigh(course, way, recalls, [list(call.messages) for call in model.calls])


def weigh(course: ConversationPlan, way: str, recalls: int, prompts: Sequence[Sequence[Mapping[str, Any]]]) -> Prompts:
    """Counts the memories in each prompt."""
    before: Sequence[Mapping[str, Any]] = ()
    injected = carried = whole = repeats = 0
    shown: Counter[str] = Counter()
    for prompt in prompts:
        shared = shared_prefix(before, prompt)
        whole += bool(before) and shared == len(before)
        carried += _tokens(prompt)
        new = prompt[shared:]
        injected += _tokens(new)
        added = [name for message in new for name in _names(str(message.get("content")))]
        shown.update(added)
        known = {name for message in prompt[:shared] for name in _names(str(message.get("content")))}
        repeats += len(added) - len(set(added) - known)
        before = prompt
    stability = whole / max(1, len(prompts) - 1)
    most = max(shown.values(), default=0)
    turns, calls = len(course.steps), len(prompts)
    return Prompts(course.name, way, turns, calls, recalls, injected, carried, stability, repeats, most)


def shared_prefix(before: Sequence[object], prompt: Sequence[object]) -> int:
    """The number of equal messages at the beginning of both."""
    shared = 0
    while shared < min(len(before), len(prompt)) and before[shared] == prompt[shared]:
        shared += 1
    return shared


def _tokens(messages: Iterable[Mapping[str, Any]]) -> int:
    return sum(_weight(str(message.get("content"))) for message in messages)


@functools.lru_cache(maxsize=10_000)
def _weight(text: str) -> int:
    return sum(estimate_tokens(text[block.start : block.end]) for block in find_blocks(text))


@functools.lru_cache(maxsize=10_000)
def _names(text: str) -> tuple[str, ...]:
    return tuple(name for block in find_blocks(text) for name in _NAMED.findall(text[block.start : block.end]))


def prompt_figures(prompts: Sequence[Prompts]) -> list[Figure]:
    by_way = {(one.course, one.way): one for one in prompts}
    ours = [one for one in prompts if one.way == OURS]
    once, whole = Goal(1), Goal(100, "%", at_least=True)
    return [
        _worst("recalls per user message", once, ((one.recalls / one.turns, one.course) for one in ours)),
        _worst("prompts that begin with the one before", whole, ((one.stability * 100, one.course) for one in ours)),
        _worst("memories shown again while visible", Goal(0, ""), ((float(one.repeats), one.course) for one in ours)),
        _worst(
            "tokens injected, compared with recall per turn",
            once,
            ((one.injected / by_way[one.course, PER_TURN].injected, one.course) for one in ours),
        ),
        _worst(
            "tokens injected, compared with recall per call",
            once,
            ((one.injected / by_way[one.course, PER_CALL].injected, one.course) for one in ours),
        ),
    ]


def _prompt_table(found: Sequence[Prompts]) -> Table:
    columns = ("conversation", "way", "calls", "recalls", "injected", "carried", "stable", "most often", "repeats")
    rows = [
        (
            one.course,
            one.way,
            f"{one.calls}",
            f"{one.recalls}",
            f"{one.injected:,}",
            f"{one.carried:,}",
            f"{one.stability:.0%}",
            f"{one.most_often} ×",
            f"{one.repeats}",
        )
        for one in found
    ]
    return Table("Memory in prompts", _PROMPTS, columns, tuple(rows))


# Waiting: how much longer a turn takes with memory.

_WAITS = (
    "Turns of {} ms model calls behind {} messages, each in a conversation of its own, with a selecting model that is "
    "slow. *Verbs* is the time inside `turn()`, every `inject` and leaving. *Wall* is how much longer the whole turn "
    "took than the same loop without memory, which ran just before or after it. Both are medians, and the shares are "
    "of the turn without memory. *Awaiting everything* waits for the whole recall, selection included, before the "
    "first call; such an `inject` waits at most 30 s."
)


@dataclass(frozen=True, slots=True)
class Waits:
    """Medians over the rounds, in seconds. `bare` is the turn without memory."""

    case: str
    way: str
    grace: float | None
    steps: int
    rounds: int
    bare: float
    verbs: float
    wall: float


async def measure_waiting(store: Path, scale: Scale, progress: Progress) -> list[Waits]:
    """afterturn at grace 0, at the default, and waiting for the whole recall; each alternates with the same loop
    without memory.
    """
    found = []
    for case in scale.waiting:
        for grace in (0.0, Config().grace):
            async with _open(store, case, scale, grace) as memory:
                for steps in scale.waiting_steps:
                    progress(f"waiting: {case.name}, grace {grace * 1000:g} ms, {steps} steps")
                    pairs = _Pairs(memory, case, f"{case.name}-{grace}", steps, scale.call_seconds)
                    found.append(_waits(case, "ours", grace, steps, await pairs.run(scale.rounds)))
        async with _open(store, case, scale, 0.0) as memory:
            progress(f"waiting: {case.name}, awaiting everything")
            pairs = _Pairs(memory, case, f"{case.name}-all", 1, scale.call_seconds, "refined", scale.naive_within)
            found.append(_waits(case, "awaiting everything", None, 1, await pairs.run(1)))
    return found


def _open(store: Path, case: Case, scale: Scale, grace: float) -> afterturn.Memory:
    parts = afterturn.Components(store=UnreadableStore) if case.hangs else afterturn.Components()
    return afterturn.open(
        store,
        replace(scale.settings, grace=grace),
        model=BackgroundModel(case.selector, select_first_three),
        components=parts,
    )


class UnreadableStore:
    """A SQLite store whose reads never return after it has opened, like a network drive that is gone."""

    def __init__(self, path: Path, config: Config, clock: Clock) -> None:
        self._inner: Store = open_store(path, config, clock)

    async def read(self, work: Callable[[Unit], R], *, at: UnitScope) -> R:
        await timer(None)
        return await self._inner.read(work, at=at)

    def write(self, work: Callable[[Unit], R], *, at: UnitScope) -> Awaitable[R]:
        return self._inner.write(work, at=at)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Turns without and with memory, one after the other, in conversations whose names begin with `name`."""

    memory: afterturn.Memory
    case: Case
    name: str
    steps: int
    call_seconds: float
    phase: PhaseName = "fast"
    within: float | None = None

    async def run(self, rounds: int) -> list[tuple[float, float, float]]:
        """For each round: the turn without memory, the turn with it, and its time in calls to memory.

        One extra round warms up and is not counted, unless there is only one. The order changes with every round.
        """
        # With a store that hangs it is never ready; its embedder is, by then.
        await self.memory.ready(within=1.0 if self.case.hangs else 10.0)
        counted = range(rounds if rounds == 1 else rounds + 1)
        found = [await self._both(at, question) for at, question in zip(counted, questions(rounds + 1), strict=False)]
        return found[-rounds:]

    async def _both(self, at: int, question: str) -> tuple[float, float, float]:
        # A new conversation: nothing is visible yet, so there is always something to inject.
        conversation = self.memory.conversation(f"{self.name}-{self.steps}-{at}", user=USER)
        ours = AfterturnMode(conversation, phase=self.phase, within=self.within)
        took = {}
        for way in (NoMemory(), ours) if at % 2 else (ours, NoMemory()):
            began = perf_counter()
            await run_turn(way, SlowModel(self.steps, self.call_seconds), past(HISTORY), question)
            took[way is ours] = perf_counter() - began
            if ours.turn is not None and not self.case.hangs:
                await ours.turn.wait_recorded()
                await self.memory.drain()
        return took[False], took[True], ours.spent


def _waits(case: Case, way: str, grace: float | None, steps: int, pairs: Sequence[tuple[float, float, float]]) -> Waits:
    bare, verbs = median(bare for bare, _, _ in pairs), median(verbs for _, _, verbs in pairs)
    wall = median(ours - bare for bare, ours, _ in pairs)
    return Waits(case.name, way, grace, steps, len(pairs), bare, verbs, wall)


def wait_figures(waits: Sequence[Waits]) -> list[Figure]:
    found: dict[bool, list[tuple[float, str]]] = defaultdict(list)
    for one in waits:
        if one.grace is not None:
            share = (one.wall - one.grace) / one.bare * 100
            found[one.grace > 0].append((share, f"{one.case}, {one.steps} steps"))
    return [
        _worst("added to a turn at grace 0", Goal(1, "%"), found[False]),
        _worst("added to a turn beyond the default grace", Goal(1, "%"), found[True]),
    ]


def _wait_table(found: Sequence[Waits], scale: Scale) -> Table:
    columns = ("memory", "way", "steps", "turn", "verbs", "share", "wall", "share", "rounds")
    rows = [
        (
            one.case,
            one.way if one.grace is None else f"{one.way}, grace {one.grace * 1000:g} ms",
            f"{one.steps}",
            milliseconds(one.bare),
            milliseconds(one.verbs),
            f"{one.verbs / one.bare:.2%}",
            milliseconds(one.wall),
            f"{one.wall / one.bare:.2%}",
            f"{one.rounds}",
        )
        for one in found
    ]
    return Table("Time added to a turn", _WAITS.format(f"{scale.call_seconds * 1000:g}", HISTORY), columns, tuple(rows))


# Delivery: of turns whose fast recall found something, how many showed it to the model in the same turn.

FIRST_AT_ONCE = "first turn of a process, at once"
FIRST_LATER = "first turn of a process, while it loads"
_DELIVERIES = (
    "Turns of {} ms model calls, one right after the other, each in a conversation of its own. *Relevant* are turns "
    "whose fast recall found something, *delivered* those of them whose model was shown it before the turn ended. *In "
    "verbs* is the time that a turn spent in memory's verbs. First turns are each of a new process, without tools."
)


@dataclass(frozen=True, slots=True)
class Delivery:
    """`waited` is seconds in calls to memory. A recall that does not settle within 10 s counts as relevant."""

    kind: str
    grace: float
    steps: int
    turns: int
    relevant: int
    delivered: int
    waited: float
    waited_max: float


@dataclass(frozen=True, slots=True)
class DeliveredTurn:
    """One turn: whether its fast recall found something, whether the model got it, and the time in calls to memory."""

    had_something: bool
    shown: bool
    spent: float


class RecallCounter:
    """An event handler that counts the memories that each turn's recall found."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._changed = threading.Condition()

    def __call__(self, event: Event) -> None:
        if event.name == "recall_settled":
            with self._changed:
                self._counts[event.turn] = int(event.data["memories"] or 0)
                self._changed.notify_all()

    async def count(self, turn: str) -> int | None:
        """None if the recall did not settle in time."""
        return await asyncio.to_thread(self._wait, turn)

    def _wait(self, turn: str) -> int | None:
        with self._changed:
            self._changed.wait_for(lambda: turn in self._counts, timeout=SETTLED_WITHIN)
            return self._counts.get(turn)


async def measure_delivery(store: Path, scale: Scale, progress: Progress) -> list[Delivery]:
    """Without a selector at grace 0 and at the default; with slow and silent selectors at the default."""
    found = []
    default = Config().grace
    for case, grace in ((NO_SELECTOR, 0.0), (NO_SELECTOR, default), (SLOW, default), (SILENT, default)):
        settled = RecallCounter()
        # What stands is not recalled, and this measures recalls.
        config = Config(grace=grace, refined=case.has_selector, standing=False)
        async with afterturn.open(
            store, config, model=BackgroundModel(case.selector, select_first_three), on_event=settled
        ) as memory:
            await memory.ready()
            for steps, turns in scale.delivered:
                progress(f"delivery: {case.name}, grace {grace * 1000:g} ms, {steps} steps")
                name = f"{case.name}-{grace}-{steps}"
                seen = [await _deliver(memory, settled, steps, scale, f"{name}-{at}", at) for at in range(turns)]
                found.append(tally(case.name, grace, steps, seen))
    first: dict[str, list[DeliveredTurn]] = {}
    # This process only writes the bytecode.
    await _start_first_turn(store, scale.processes, 0.0, quick=scale is QUICK)
    for at in range(scale.processes):
        progress(f"delivery: first turn of process {at + 1} of {scale.processes}")
        delay = scale.delays[at // 2 % len(scale.delays)] if at % 2 else 0.0
        seen_first = await _start_first_turn(store, at, delay, quick=scale is QUICK)
        first.setdefault(FIRST_LATER if delay else FIRST_AT_ONCE, []).append(seen_first)
    return [*found, *(tally(kind, default, 1, seen) for kind, seen in first.items())]


async def _deliver(
    memory: afterturn.Memory, settled: RecallCounter, steps: int, scale: Scale, name: str, at: int
) -> DeliveredTurn:
    """One turn in the conversation `name`. It must be new, so that no memories are visible yet."""
    messages: list[Message] = past(20)
    way, model = AfterturnMode(memory.conversation(name, user=USER)), SlowModel(steps, scale.call_seconds)
    await run_turn(way, model, messages, questions(at + 1)[at])
    # The list of the last call contains everything that the model saw, because the answer was appended to it.
    shown = any(find_blocks(str(message.get("content"))) for message in model.shown)
    assert way.turn is not None
    return DeliveredTurn(await settled.count(way.turn.id) != 0, shown, way.spent)


def tally(kind: str, grace: float, steps: int, seen: Sequence[DeliveredTurn]) -> Delivery:
    relevant = [turn.shown for turn in seen if turn.had_something]
    spent = [turn.spent for turn in seen]
    return Delivery(kind, grace, steps, len(seen), len(relevant), sum(relevant), median(spent), max(spent))


async def _start_first_turn(store: Path, at: int, delay: float, *, quick: bool) -> DeliveredTurn:
    arguments = [str(store), str(at), str(delay), *(["--quick"] if quick else [])]
    # With bytecode, as an installed package has it: compiling a module holds Python's lock.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(store.with_name("bytecode"))
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "lab.bench.turn", *arguments, stdout=asyncio.subprocess.PIPE, env=environment
    )
    try:
        async with asyncio.timeout(FIRST_TURN_WITHIN):
            out, _ = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode != 0:
        raise RuntimeError(f"The process of a first turn ended with {child.returncode}. Its standard error says why.")
    return DeliveredTurn(**json.loads(out))


async def first_turn(store: Path, number: int, delay: float, scale: Scale) -> DeliveredTurn:
    """The first turn of this process, `delay` seconds after memory was opened, without a standing block."""
    settled = RecallCounter()
    async with afterturn.open(store, Config(standing=False), on_event=settled) as memory:
        if delay:
            await timer(delay)
        return await _deliver(memory, settled, 1, scale, f"first-{number}", number)


def delivery_figures(deliveries: Sequence[Delivery]) -> list[Figure]:
    tool_free = [one for one in deliveries if one.grace == Config().grace and one.steps == 1]
    first = [one for one in tool_free if one.kind in (FIRST_AT_ONCE, FIRST_LATER)]
    goal = Goal(99, "%", at_least=True)
    return [
        _worst("turns without tools delivered, first turns included", goal, [_share(tool_free)]),
        _worst("first turns of processes delivered", goal, [_share(first)]),
    ]


def _share(deliveries: Sequence[Delivery]) -> tuple[float, str]:
    relevant, delivered = sum(one.relevant for one in deliveries), sum(one.delivered for one in deliveries)
    return 100 * delivered / max(1, relevant), f"{delivered} of {relevant}"


def _delivery_table(found: Sequence[Delivery], scale: Scale) -> Table:
    columns = ("turns", "grace", "steps", "relevant", "delivered", "share", "in verbs", "longest")
    rows = [
        (
            one.kind,
            milliseconds(one.grace),
            f"{one.steps}",
            f"{one.relevant} of {one.turns}",
            f"{one.delivered}",
            f"{one.delivered / max(1, one.relevant):.1%}",
            milliseconds(one.waited),
            milliseconds(one.waited_max),
        )
        for one in found
    ]
    return Table(
        "Delivery in the same turn", _DELIVERIES.format(f"{scale.call_seconds * 1000:g}"), columns, tuple(rows)
    )


if __name__ == "__main__":
    _store, _number, _delay, *_rest = sys.argv[1:]
    _scale = QUICK if _rest else FULL
    print(json.dumps(asdict(asyncio.run(first_turn(Path(_store), int(_number), float(_delay), _scale)))))
