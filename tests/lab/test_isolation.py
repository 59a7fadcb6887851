"""Many tenants and spaces in one store see nothing of each other; and the lab notices a missing scope check."""

import inspect
import re

import pytest

import afterturn
from afterturn.hosts.cli.app import SECTIONS
from lab.isolation import surfaces, world
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
    assert result.counts["mem0"] > 0


def _verbs(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name))}


# Not for the words of a space: for the whole store, or without its content. `jobs` counts those of all tenants.
# `watch` reports ids and kinds of changes, without texts, in the spaces that it names.
OF_THE_STORE = {
    "watch",
    "backup",
    "restore",
    "ready",
    "drain",
    "jobs",
    "start",
    "close",
    "start_closing",
    "wait_closed",
    "wait_stored",
}
# `migrate` copies a store or a tenant and prints counts of rows.
NOT_ABOUT_A_SPACE = {
    "completion",
    "config",
    "eval",
    "models",
    "worker",
    "backup",
    "restore",
    "migrate",
    "scan",
    "project",
    "install",
    "uninstall",
    "token",
    "helper",
    "pause",
    "resume",
}
# What is behind them is called directly: `apply_edits`, `add_many` and a server's tools.
INTERACTIVE = {"edit", "import", "mcp", "serve", "ui"}
# `turn` and `block` call the same code; the rest needs a model that summarises, or ends a turn.
SAME_AS_OTHERS = {"inject_now", "block_now", "start_turn", "finish", "complete", "compact"}


def test_every_verb_and_command_is_a_surface_of_the_lab():
    """A new one must be called here too, or be named above with a reason."""
    source = inspect.getsource(surfaces) + inspect.getsource(world)
    called = set(re.findall(r"\.(\w+)\(", source))
    verbs = set().union(*map(_verbs, (afterturn.Space, afterturn.Conversation, afterturn.Turn, afterturn.Memory)))
    assert verbs - called - OF_THE_STORE - SAME_AS_OTHERS == set()
    run = {line[0] for line in (*surfaces.COMMANDS, *surfaces.TENANT_COMMANDS)}
    commands = {name for section in SECTIONS.values() for name in section}
    assert commands - run - NOT_ABOUT_A_SPACE - INTERACTIVE == set()


@pytest.mark.parametrize("mutant", NUMBERED)
def test_every_mutant_changes_one_place_and_still_compiles(mutant: Fault):
    assert mutant.apply(SOURCE) != (SOURCE / "afterturn" / mutant.file).read_text(encoding="utf-8")
    mutant.check(SOURCE)


@pytest.mark.slow
def test_a_missing_scope_check_is_noticed():
    """For real, with one mutant; `make lab-isolation ARGS=--mutants` tries all."""
    mutant = next(mutant for mutant in MUTANTS if mutant.effect == "a review of another space is shown")
    assert "review" in try_mutant(mutant).caught
