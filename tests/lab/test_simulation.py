"""The simulation: one thread, virtual time, a real store, and a hundred orders of events, by seed."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import pytest

from afterturn.conversation.prefetcher import Prefetcher
from afterturn.conversation.recorder import Recorder
from afterturn.conversation.turn import Turn
from afterturn.errors import MemoryClosed
from afterturn.learning.review_jobs import ReviewJobs
from afterturn.stores.sql.conversations import Tombstones
from afterturn.stores.sql.session import Statement
from afterturn.types import ReviewRow, Step
from lab.simulation.run import Result, make_template, run_seed
from lab.simulation.templates import FileTemplate, Template
from lab.simulation.transcript import Kind, ListCheck, Message, PromiseBroken, check_pairs, check_references
from lab.simulation.world import SimLoop, SimWorker, Stuck, VirtualLoop, World

# The last two showed a fault once.
SEEDS = (*range(1, 101), 106, 303)
BLOCK = "<afterturn-memory>\n## Relevant Memory\n- [m1] today, user: tea\n</afterturn-memory>"


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    made = FileTemplate(tmp_path_factory.mktemp("sim") / "template.db")
    make_template(made)
    return made


@pytest.fixture
def run(template: Template, tmp_path: Path) -> Callable[[int], Result]:
    return lambda seed: run_seed(seed, tmp_path, template)


@pytest.fixture(scope="module")
def results(template: Template, tmp_path_factory: pytest.TempPathFactory) -> list[Result]:
    folder = tmp_path_factory.mktemp("runs")
    return [run_seed(seed, folder, template) for seed in SEEDS]


@pytest.mark.timeout(600)
def test_no_order_of_events_breaks_a_promise(results: list[Result]) -> None:
    """R3, R5, R7, H1, H3, H5, C1, C2, C4, C5, V4, V5, M2: hosts of all kinds, killed processes, stores and models in
    trouble, reviews, and somebody who forgets. `make simulation` runs thousands."""
    broken = {result.seed: result.broken for result in results if result.broken}
    assert broken == {}, f"python -m lab.simulation --seed {min(broken, default=0)} --trace"


def test_the_same_seed_gives_the_same_run(run: Callable[[int], Result]) -> None:
    """§13: a failing seed replays exactly."""
    logs = [run(seed).log for seed in range(1, 6)]
    assert [run(seed).log for seed in range(1, 6)] == logs
    assert len({"\n".join(log) for log in logs}) == len(logs)


def test_another_process_replays_a_seed(run: Callable[[int], Result]) -> None:
    """§13: neither addresses nor the hashes of texts have a say in what happens."""
    for seed in (28, 90):
        command = [sys.executable, "-m", "lab.simulation", "--seed", str(seed), "--trace"]
        done = subprocess.run(
            command, env={**os.environ, "PYTHONHASHSEED": "7"}, capture_output=True, text=True, timeout=60, check=True
        )
        assert done.stdout.splitlines()[:-1] == run(seed).log


@pytest.mark.timeout(600)
def test_the_runs_are_full_of_events(results: list[Result]) -> None:
    """§13: what is to be shown does happen: each kind of host, each end of a recall, deaths, troubles, recoveries,
    reviews and forgets."""
    told = "\n".join(line for result in results for line in result.log)
    wanted = [
        *("growing", "merging", "rebuilding", "hidden", "writing"),
        *("delivered", "empty", "degraded", "superseded", "cancelled", "undelivered"),
        *("is killed", "hangs for", "recall_carried", "speculation_ended", "compacted", "conversation_reset"),
        *("blocks_put_back", "recording_waits", "recording_recovered", "resumes", "cause=cue", "cause=interjection"),
        *("kind=rules state=saved", "kind=interval state=saved", "forgot talk-", "undid"),
    ]
    assert [word for word in wanted if word not in told] == []


async def _refuse(self: Recorder, held: object) -> None:
    return None


def _tell_nothing(self: Prefetcher, *values: object, **named: object) -> None:
    """Nothing is told of how it ended."""


async def _dawdle(self: Turn, *values: object, **named: object) -> None:
    await asyncio.sleep(0.3)


_report_once = ReviewJobs._report


def _report_twice(self: ReviewJobs, review: ReviewRow, steps: Sequence[Step]) -> None:
    _report_once(self, review, steps)
    _report_once(self, review, steps)


def _forget_nothing(self: Tombstones, *values: object, **named: object) -> Statement:
    return "SELECT 1 FROM tombstone WHERE 1 = 0", ()


@pytest.mark.slow
@pytest.mark.parametrize(
    "place, name, fault, rule, seed",
    [
        (Recorder, "_record", _refuse, "C4", 1),
        (Prefetcher, "_finish", _tell_nothing, "R5", 1),
        (Turn, "inject", _dawdle, "R7", 1),
        (ReviewJobs, "_report", _report_twice, "V4", 2),
        (Tombstones, "covering", _forget_nothing, "M2", 109),
    ],
)
def test_a_broken_promise_is_noticed(
    run: Callable[[int], Result],
    monkeypatch: pytest.MonkeyPatch,
    place: type[object],
    name: str,
    fault: Callable[..., object],
    rule: str,
    seed: int,
) -> None:
    """C4, R5, R7, V4, M2: a recorder that drops turns, a recall without an outcome, a hand-over that waits too long,
    a review that ends twice, a turn that outlives a forget.
    The seed that showed it before is tried first."""
    monkeypatch.setattr(place, name, fault)
    assert any(what.startswith(rule) for tried in (seed, *range(1, 121)) for what in run(tried).broken)


def _said(role: str, content: str | None, **more: object) -> Message:
    return {"role": role, "content": content, **more}


def test_a_message_between_a_call_and_its_response_is_noticed() -> None:
    """H1: by the lab's own eyes."""
    call = _said("assistant", None, tool_calls=[{"id": "a"}, {"id": "b"}])
    first, second = (_said("tool", "x", tool_call_id=name) for name in "ab")
    check_pairs([call, second, first, _said("user", "so?")])
    with pytest.raises(PromiseBroken, match="H1"):
        check_pairs([call, first, _said("user", BLOCK), second])


def test_a_memory_shown_twice_is_noticed() -> None:
    """H5: by the lab's own eyes."""
    check_references([_said("user", BLOCK), _said("assistant", BLOCK)])
    with pytest.raises(PromiseBroken, match="H5: m1"):
        check_references([_said("user", BLOCK), _said("user", f"and\n{BLOCK}")])


@pytest.mark.parametrize("kind", [Kind.GROWING, Kind.MERGING, Kind.REBUILDING])
def test_a_changed_message_is_noticed(kind: Kind) -> None:
    """H3: by the lab's own eyes, in lists of every kind."""
    messages = [_said("user", "tea?"), _said("assistant", "yes"), _said("user", "why?")]
    watch = ListCheck(messages, kind)
    watch.check(None)
    messages[0] = _said("user", "coffee?")
    with pytest.raises(PromiseBroken, match=r"H[36]"):
        watch.check(None)


def test_time_passes_only_while_nobody_has_anything_to_do() -> None:
    """§13: a day of waiting takes no time, and is a day to everybody."""
    world = World(1)
    loop = VirtualLoop(world, "host", pausing=False)
    world.add(loop)

    async def wait() -> float:
        await asyncio.sleep(86_400)
        return asyncio.get_running_loop().time()

    assert loop.run_until_complete(wait()) == world.monotonic() == pytest.approx(86_400)
    loop.close()


def test_a_wait_for_nothing_is_reported() -> None:
    """§13: where a real program would hang, a simulated one says so."""
    world = World(1)
    loop = VirtualLoop(world, "host", pausing=False)
    world.add(loop)
    with pytest.raises(Stuck, match="host"):
        loop.run_until_complete(asyncio.Event().wait())
    for task in asyncio.all_tasks(loop):
        task.cancel()
    world.run(lambda: not asyncio.all_tasks(loop))
    loop.close()


@pytest.mark.parametrize("seed", range(20))
def test_work_of_one_thread_keeps_its_order(seed: int) -> None:
    """§13: chance decides when a thread goes on, never in which order it works."""
    world = World(seed)
    done: list[int] = []
    worker = SimWorker(world, "one", 1, Random(seed).random)
    for number in range(5):
        worker.post(lambda number=number: done.append(number))
    assert worker.close(within=1_000)
    assert done == [0, 1, 2, 3, 4]
    with pytest.raises(MemoryClosed):
        worker.post(lambda: None)


def test_work_that_takes_too_long_is_not_waited_for() -> None:
    """§13: closing a worker is bounded, as it is outside."""
    world = World(1)
    worker = SimWorker(world, "slow", 1, lambda: 10.0)
    worker.post(lambda: None)
    assert not worker.close(within=1.0)
    assert world.monotonic() == 1.0
    assert worker.close(within=20.0)


def test_a_private_loop_ends_for_good() -> None:
    """§2: on virtual time as in a thread: what was accepted is done, then nothing more is."""
    world = World(1)
    loop, seen = SimLoop(world, "memory"), []
    loop.start()

    async def last() -> None:
        seen.append("last")

    loop.post(seen.append, "first")
    loop.end(last)
    world.run(lambda: loop.gone)
    assert seen == ["first", "last"]
    with pytest.raises(MemoryClosed):
        loop.post(seen.append, "late")
