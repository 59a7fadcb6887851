"""Text of others stays a quoted report though a model obeys it; and the lab notices what does not."""

import json
from pathlib import Path
from random import Random

import pytest

from afterturn.dialects import get_dialect
from afterturn.dialects.history import read_exchange
from afterturn.guard.pasted import typed_text
from lab.poison.__main__ import ARMS, LAB, plan, run_seed
from lab.poison.carriers import CARRIERS, Carrier
from lab.poison.paths import PATHS, World
from lab.poison.payloads import FORMS, OWN, Poison, make_poison, marks_in, read_payloads
from lab.poison.repository import WAYS
from lab.slices import SqliteTarget, table, without_log


async def test_no_text_of_others_becomes_more_than_a_report() -> None:
    """G2b: by every path, with scanners and without."""
    with without_log():
        outcome = await run_seed(1, SqliteTarget(), payloads=list(OWN), trials=2 * len(PATHS), gaps=(0, 2))
    assert outcome.broken == []
    assert [outcome.counts[arm] for arm in ARMS] == [2 * len(PATHS)] * 2
    assert {path: outcome.counts[f"path {path}"] for path in PATHS} == dict.fromkeys(PATHS, 4)
    assert outcome.counts["hidden"] == outcome.counts["trials"]
    # The rest was quarantined, or has no text that anybody reads.
    assert outcome.counts["obeyed"] >= outcome.counts["trials"] / 2


@pytest.mark.timeout(120)
async def test_a_hostile_repository_leaves_nothing_that_stands_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """G2b, P1: in every way in which it is read, with hooks and the memory server together."""
    for name in [name for name in PATHS if name != "hostile repository"]:
        monkeypatch.delitem(PATHS, name)
    with without_log():
        outcome = await run_seed(0, SqliteTarget(), payloads=list(OWN), trials=4 * len(WAYS), gaps=(0,))
    assert outcome.broken == []
    assert {way: outcome.counts[f"way {way}"] for way in WAYS} == dict.fromkeys(WAYS, 8)


async def _believes(world: World, space: str, poison: Poison, carrier: Carrier) -> None:
    """Somebody stores it as the user's own, and changes what the user said."""
    core = world.memory.space(space)
    await core.add(poison.text, pinned=True)
    await core.add(poison.echo, origin="background_review")
    await core.delete(world.trusted[space][1].id)


async def test_what_is_believed_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """G2b: the lab would see it in a system prompt, in a block, and in what was changed."""
    for name in list(PATHS):
        monkeypatch.delitem(PATHS, name)
    monkeypatch.setitem(PATHS, "believed", _believes)
    outcome = await run_seed(1, SqliteTarget(), payloads=list(OWN), trials=1, gaps=(0,))
    said = "\n".join(outcome.broken)
    wanted = ("in the standing block", "not quoted in block", "trusted by 100, privileged", "trusted by 60, plain")
    assert [part for part in (*wanted, "'The user is allergic to nuts' was changed") if part not in said] == []
    assert int(table(LAB, [{"counts": outcome.counts, "worst": {}, "broken": outcome.broken}])[-1][1]) >= 5


@pytest.mark.parametrize("carrier", CARRIERS, ids=lambda carrier: f"{carrier.dialect} {carrier.name}")
def test_every_place_carries_text_of_others(carrier: Carrier) -> None:
    """G2, G2b: a turn with it is tainted, and none of it is what the user typed."""
    dialect = get_dialect(carrier.dialect)
    poison = make_poison(Random(1), OWN[0], "plain", 1)
    asked, elements = carrier.turn(poison.question, poison.pieces)
    assert carrier.name == "item_reference" or poison.mark in str([asked, *elements])
    found = read_exchange(dialect, [asked, *elements, dialect.make_message("assistant", "Done.")], 0, str)
    typed = [typed_text(message.text) for message in found.messages if message.role == "user"]
    assert marks_in("\n".join(typed)) == set()
    assert found.is_untrusted or typed != [message.text for message in found.messages if message.role == "user"]


@pytest.mark.parametrize("form", FORMS)
def test_a_text_is_found_in_every_form(form: str) -> None:
    poison = make_poison(Random(2), OWN[3], form, 4)
    assert all(marks_in(piece) == {poison.mark} for piece in poison.pieces)
    assert (poison.text in poison.pieces) == (form in ("plain", "many messages back"))


def test_paths_forms_and_places_take_turns() -> None:
    trials = [trial for seed in range(14) for trial in plan(seed, list(OWN), 192)]
    pairs = {(trial.path, trial.poison.form) for trial in trials}
    assert len(pairs) == len(PATHS) * len(FORMS)
    assert {trial.carrier for trial in trials if trial.path == "background review"} == set(CARRIERS)


def test_a_corpus_is_read_from_files_and_folders(tmp_path: Path) -> None:
    lines = [{"text": "a", "label": 1}, {"text": "b", "label": 0}, {"text": "c"}, {"text": " "}, {"text": "a"}]
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    assert read_payloads([tmp_path]) == read_payloads([tmp_path / "x.jsonl"]) == ["a", "c"]
