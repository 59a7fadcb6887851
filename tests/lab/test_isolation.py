"""Many tenants and spaces in one store see nothing of each other; and the lab notices a missing scope check."""

import pytest

from lab.isolation.__main__ import run_seed
from lab.isolation.mutants import MUTANTS, try_mutant
from lab.mutations import SOURCE, Fault
from lab.slices import SqliteTarget

NUMBERED = [pytest.param(mutant, id=f"{number}-{mutant.file}") for number, mutant in enumerate(MUTANTS, 1)]


@pytest.mark.parametrize("seed", [1, 2])
async def test_nobody_sees_what_belongs_to_others(seed: int):
    """L2: every surface, by words alone and with vectors; also scores, counts, errors and existence."""
    result = await run_seed(seed, SqliteTarget(), tenants=3, spaces=6, operations=200)
    assert result.broken == []
    assert (result.counts["operations"], result.counts["spaces"]) == (200, 18)
    assert result.counts["comparisons"] > 40
    assert result.counts["probes"] > 30
    assert result.counts["prompts"] > 10


@pytest.mark.parametrize("mutant", NUMBERED)
def test_every_mutant_changes_one_place_and_still_compiles(mutant: Fault):
    content = mutant.apply(SOURCE)
    assert content != (SOURCE / "afterturn" / mutant.file).read_text(encoding="utf-8")
    compile(content, mutant.file, "exec")


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_missing_scope_check_is_noticed():
    """For real, with one mutant; `make lab-isolation ARGS=--mutants` tries all."""
    mutant = next(mutant for mutant in MUTANTS if mutant.effect == "a review of another space is shown")
    assert "review" in try_mutant(mutant).caught
