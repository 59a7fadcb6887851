"""`make lab-isolation`: random operations on every surface by many tenants and spaces, with a canary in each.

Four checks: no output has a canary that its caller may not see; nothing that others do changes what a space sees, its
scores and counts included; an id of somebody else gives the same answer and runs the same SQL statements as an id of
nobody; no prompt of a model mixes spaces that were not granted together. `--mutants` removes one scope check of the
source at a time: the lab must fail for each.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from random import Random
from unittest.mock import patch

from afterturn.errors import AfterturnError
from lab import slices
from lab.isolation.mutants import MUTANTS, try_mutants
from lab.isolation.surfaces import PROBES, UNEXPECTED, Probe, Surfaces, observe, outcome
from lab.isolation.world import CANARY, TALKS, Party, World, make_world
from lab.postgres.stores import PostgresTarget
from lab.slices import Lab, Outcome, Row, StoreTarget

_TRIES = 4
_SILENCE = 2.0
_SILENCES_MAX = 20
# The polling of the job queue, in transactions of its own.
_BACKGROUND = re.compile(r"BEGIN|COMMIT|ROLLBACK|SELECT .* FROM job |WITH due AS .* UPDATE job SET state = 'leased'")
_BURST = 40


@patch("afterturn.recall.search.SEARCH_SCORE_MIN", 0.0)
async def run_seed(
    seed: int,
    target: StoreTarget,
    *,
    tenants: int = 10,
    spaces: int = 12,
    operations: int = 4_000,
    stop_early: bool = False,
) -> Outcome:
    """With `stop_early`, nothing more is tried after the first broken promise."""
    random, result = Random(seed), Outcome(seed)
    with _without_embedder(), target.fresh() as store, target.statements() as statements:
        try:
            async with make_world(store, random, tenants=tenants, spaces=spaces, vectors=seed % 2 == 0) as world:
                read_tables = partial(target.read_tables, store) if isinstance(target, PostgresTarget) else None
                surfaces = Surfaces(world, random, read_tables)
                await _run_world(world, surfaces, random, operations, statements, result, stop_early=stop_early)
        except AfterturnError as error:
            result.broken.append(f"a space cannot be set up next to the others: {type(error).__name__}: {error}")
    return result


@contextmanager
def _without_embedder() -> Iterator[None]:
    """Commands and one-shot recalls read their settings from the environment."""
    before = os.environ.get("AFTERTURN_EMBEDDER")
    os.environ["AFTERTURN_EMBEDDER"] = "none"
    try:
        yield
    finally:
        if before is None:
            del os.environ["AFTERTURN_EMBEDDER"]
        else:
            os.environ["AFTERTURN_EMBEDDER"] = before


async def _run_world(
    world: World,
    surfaces: Surfaces,
    random: Random,
    operations: int,
    statements: list[str],
    result: Outcome,
    *,
    stop_early: bool,
) -> None:
    result.counts["spaces"] = len(world.parties)
    for party in world.quiet:
        await observe(party)
    for _ in range(0, operations, _BURST):
        await _act(world, surfaces, random, result)
        if stop_early and result.broken:
            return
    await _forget_namesakes(world, random, result)
    if stop_early and result.broken:
        return
    await _probe(world, surfaces, random, statements, result)
    _check_prompts(world, result)


async def _act(world: World, surfaces: Surfaces, random: Random, result: Outcome) -> None:
    """A burst of operations. Before and after it, a quiet party looks at everything that it has."""
    witness = random.choice(world.quiet)
    before = await observe(witness)
    for _ in range(_BURST):
        name, operation, allowed = surfaces.choose()
        party = random.choice(world.active)
        shown = await outcome(operation(party))
        result.counts["operations"] += 1
        result.counts.update(kind for kind in ("mem0", "langgraph", "rows of a role") if kind in name)
        if shown.startswith(UNEXPECTED):
            result.broken.append(f"{name} of {party.tenant}/{party.space}: {shown[:300]}")
        for leaked in sorted(set(CANARY.findall(shown)) - allowed(party)):
            result.broken.append(f"{name} of {party.tenant}/{party.space} shows {leaked}: {_near(shown, leaked)}")
    await _compare_views(witness, before, result)
    world.clock.advance(60)


async def _forget_namesakes(world: World, random: Random, result: Outcome) -> None:
    """Conversations have the same ids in every space. One party forgets its own, and all the quiet ones look."""
    before = {party: await observe(party) for party in world.quiet}
    forgetter = random.choice(world.active)
    for talk in TALKS:
        await outcome(forgetter.core.forget(conversation=talk))
    for party, seen in before.items():
        await _compare_views(party, seen, result)


async def _compare_views(witness: Party, before: dict[str, str], result: Outcome) -> None:
    after = await observe(witness)
    for what in before:
        result.counts["comparisons"] += 1
        if before[what] != after[what]:
            changed = _difference(before[what], after[what])
            result.broken.append(f"{what} of {witness.tenant}/{witness.space} changed by others: {changed}")


async def _probe(world: World, surfaces: Surfaces, random: Random, statements: list[str], result: Outcome) -> None:
    """Every verb that takes an id, with an id of the same tenant, of another tenant, and of nobody."""
    await _silence(statements)
    for name, (kind, probe) in PROBES.items():
        for same_tenant in (True, False):
            party = random.choice(world.quiet)
            others = [one for one in world.parties if (one.tenant == party.tenant) is same_tenant and one is not party]
            owned = set(party.names[kind])
            # In another tenant, of a space with the same name if possible: only the tenant tells them apart.
            alike = [one for one in others if same_tenant or one.space == party.space]
            foreign = [id for one in alike for id in one.names[kind] if id not in owned]
            foreign = foreign or [id for one in others for id in one.names[kind] if id not in owned]
            if not foreign:
                continue
            result.counts["probes"] += 1
            chosen = random.choice(foreign)
            trouble = await _compare(party, probe, chosen, surfaces.unused(kind, chosen), statements)
            if trouble:
                where = "the same tenant" if same_tenant else "another tenant"
                result.broken.append(f"{name} with an id of {where} differs from one of nobody: {trouble}")


async def _compare(party: Party, probe: Probe, foreign: str, missing: str, statements: list[str]) -> str:
    """Tries again in silence, because statements of the background may come between."""
    trouble = ""
    for attempt in range(_TRIES):
        seen = []
        for id in (missing, foreign, missing):
            if attempt:
                await _silence(statements)
            del statements[:]
            said = (await outcome(probe(party, id))).replace(id, "ID")
            await asyncio.sleep(0)
            seen.append((said, _of_a_call(statements)))
        first, other, again = seen
        if first == other or other == again:
            return ""
        if first[0] != other[0]:
            trouble = f"says {other[0][:200]!r} instead of {first[0][:200]!r}"
        else:
            more, fewer = Counter(other[1]) - Counter(first[1]), Counter(first[1]) - Counter(other[1])
            trouble = f"runs {sorted(more)!r} and not {sorted(fewer)!r}"
    return trouble


async def _silence(statements: list[str]) -> None:
    """Returns when events are stored and jobs are done, which begin within two seconds after a call."""
    for _ in range(_SILENCES_MAX):
        del statements[:]
        await asyncio.sleep(_SILENCE)
        if not _of_a_call(statements):
            return


def _of_a_call(statements: Sequence[str]) -> list[str]:
    plain = [" ".join(sql.split()) for sql in list(statements)]
    return sorted(sql for sql in plain if not _BACKGROUND.match(sql))


def _check_prompts(world: World, result: Outcome) -> None:
    granted = [party.readable for party in world.parties]
    for prompt in world.model.prompts:
        result.counts["prompts"] += 1
        if not any(prompt <= readable for readable in granted):
            result.broken.append(f"a prompt of the model mixes {sorted(prompt)}")


def _near(text: str, word: str) -> str:
    at = text.index(word)
    return text[max(0, at - 120) : at + 80]


def _difference(before: str, after: str) -> str:
    at = next((at for at, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]), 0)
    return f"{before[max(0, at - 80) : at + 80]!r} became {after[max(0, at - 80) : at + 80]!r}"


def _run(seed: int, target: StoreTarget, options: argparse.Namespace) -> Outcome:
    if options.mutants:
        return try_mutants(seed)
    sizes = {"tenants": options.tenants, "spaces": options.spaces, "operations": options.operations}
    return asyncio.run(run_seed(seed, target, **sizes, stop_early=options.stop_early))


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tenants", type=int, default=10, help="tenants in one store")
    parser.add_argument("--spaces", type=int, default=12, help="spaces of each tenant")
    parser.add_argument("--operations", type=int, default=4_000, help="random operations of each seed")
    parser.add_argument("--stop-early", action="store_true", help="end a seed at its first broken promise")
    parser.add_argument(
        "--mutants", action="store_true", help="instead: run a short seed with each scope check of the source removed"
    )


LAB = Lab(
    "isolation",
    "random operations of many tenants and spaces on every surface, with a canary in each.",
    "1-10",
    _run,
    (
        Row("random operations", "operations", full=1_000_000),
        Row("of them through mem0's interface", "mem0"),
        Row("of them through LangGraph's store", "langgraph"),
        Row("of them queries of every table by an ordinary role of PostgreSQL", "rows of a role"),
        Row("what a space sees, before and after others acted", "comparisons"),
        Row("ids of others compared with ids of nobody", "probes"),
        Row("prompts of models searched for canaries", "prompts"),
        Row("spaces with a canary, over all stores", "spaces"),
        Row("copies of the source without one scope check, noticed", "mutants caught", full=len(MUTANTS)),
    ),
    "leaks, differences, or mixed prompts",
    _options,
)


def main(arguments: list[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    # Mutants need no seed of their own; seed 0 keeps their result apart.
    return slices.main(LAB, [*given, "--seeds", "0"] if "--mutants" in given else given)


if __name__ == "__main__":
    sys.exit(main())
