"""What is forgotten while work is under way is gone; and the lab notices what stays or comes back."""

import fcntl

import pytest

from lab.erasure.__main__ import run_seed
from lab.erasure.paths import PATHS, Garden, Planted
from lab.slices import SqliteTarget, without_log


async def test_a_word_that_came_in_by_any_path_is_gone():
    """M2: at once for every verb and process, in the bytes of every file, and for good."""
    with without_log():
        outcome = await run_seed(3, SqliteTarget(), sentinels=len(PATHS))
    assert outcome.broken == []
    assert outcome.counts["sentinels"] == len(PATHS)
    assert outcome.counts["answered erased"] + outcome.counts["answered pending"] == len(PATHS)


async def _comes_back(garden: Garden, space: str, word: str) -> Planted:
    """Somebody says it again after it was forgotten."""
    core = garden.memory.space(space)
    added = await core.add(f"The hint is {word}")
    return Planted(lambda: core.forget(memory=added.entry.id), [lambda: core.add(f"The hint is {word}")])


async def _stays(garden: Garden, space: str, word: str) -> Planted:
    """It was also said elsewhere."""
    core = garden.memory.space(space)
    added = await core.add(f"The hint is {word}")
    await core.add(f"The second hint is {word}")
    return Planted(lambda: core.forget(memory=added.entry.id))


@pytest.mark.parametrize(
    "path, found",
    [
        (_comes_back, ("after the work that was under way: search", "after closing, memory.db", "has come back")),
        (_stays, ("path: search of the same process", "path: export of another process", "after it was erased")),
    ],
)
async def test_a_word_that_stays_or_comes_back_is_noticed(
    monkeypatch: pytest.MonkeyPatch, path, found: tuple[str, ...]
):
    """M2: the lab would see it."""
    for name in list(PATHS):
        monkeypatch.delitem(PATHS, name)
    monkeypatch.setitem(PATHS, "path", path)
    outcome = await run_seed(1, SqliteTarget(), sentinels=1)
    said = "\n".join(outcome.broken).replace("path, after", "path: after")
    assert [part for part in found if part not in said] == []


@pytest.mark.parametrize("is_closing, broken", [(True, 0), (False, 1)])
async def test_only_a_file_that_a_closing_process_writes_may_be_out_of_reach(
    monkeypatch: pytest.MonkeyPatch, is_closing: bool, broken: int
):
    """M2: `forget` names a file that it cannot read; the lab excuses only the one that its own process writes."""

    async def path(garden: Garden, space: str, word: str) -> Planted:
        core = garden.memory.space(space)
        added = await core.add(f"The hint is {word}")
        garden.began_closing += is_closing

        async def forget():
            folder = garden.store.with_name(f"{garden.store.name}.waiting")
            folder.mkdir(exist_ok=True)
            written = folder / "1-ab.jsonl"
            with written.open("w") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                forgotten = await core.forget(memory=added.entry.id)
                written.unlink()
            return forgotten

        return Planted(forget)

    for name in list(PATHS):
        monkeypatch.delitem(PATHS, name)
    monkeypatch.setitem(PATHS, "path", path)
    outcome = await run_seed(1, SqliteTarget(), sentinels=1)
    assert len(outcome.broken) == broken
    assert all("out of reach are" in one and "1-ab.jsonl" in one for one in outcome.broken)
