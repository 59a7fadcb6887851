"""`make demo`, run as a newcomer would: it tells the truth, looks right in a pipe, and fails when memory fails."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from afterturn.lab.demo.host import Cost
from afterturn.lab.demo.restaurants import TOOLS, run_tools
from afterturn.lab.demo.story import DAYS, Day
from afterturn.testing import ScriptedModel

COMMAND = [sys.executable, "-m", "afterturn.lab.demo", "--fast"]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the demonstration printed; it has ended well."""
    folder = tmp_path_factory.mktemp("demo")
    done = subprocess.run(COMMAND, cwd=folder, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_what_was_told_in_the_first_process_is_known_in_the_third(shown: str) -> None:
    processes = re.findall(r"process (\d+)", shown)
    third = shown.split("── Day 10")[1]
    assert len(set(processes)) == 4
    assert "9 days ago, user: When you book dinner for my mother Grace" in third
    assert "The kitchen knows: no peanuts." in third


def test_the_timeline_tells_when_memories_were_handed_over_and_recorded(shown: str) -> None:
    assert re.search(r"recalled in [\d.]+ ms: 1 long-term \+ \d episodic", shown)
    assert re.search(r"handed over after Ada: \d memories, \d+ tokens", shown)
    assert shown.count("recorded for good") == 7


def test_what_is_in_sight_is_not_repeated(shown: str) -> None:
    """L3: the second turn of a conversation recalls nothing that its first one was given."""
    assert "that match are in sight: not repeated" in shown


def test_what_was_forgotten_is_in_no_file_and_not_known_any_more(shown: str) -> None:
    """M2: forgetting erases the bytes, and the next turn does not know."""
    assert re.search(r"“555 0142” in the files: [1-9]\d* before, 0 now", shown)
    assert "I have no phone number for Grace." in shown.split("0 now")[1]


def test_it_ends_with_what_was_remembered_and_what_it_cost(shown: str) -> None:
    """R1: recalls are as many as turns, not as many as model calls."""
    assert "16 messages of 4 conversations and 1 statement" in shown
    assert "7 in 7 turns; the model was called 10 times" in shown
    added, copied = re.findall(r"([\d,]+) added once; one copy per model call would be ([\d,]+)", shown)[0]
    assert int(added.replace(",", "")) < int(copied.replace(",", ""))


def test_it_fits_a_terminal_and_is_plain_in_a_pipe(shown: str) -> None:
    lines = shown.splitlines()
    assert max(map(len, lines)) <= 100
    assert len(lines) <= 80
    assert "\x1b" not in shown


def test_it_fails_with_one_clear_line_when_nothing_is_recalled(tmp_path: Path) -> None:
    done = subprocess.run(
        COMMAND,
        cwd=tmp_path,
        env={**os.environ, "AFTERTURN_RECALL": "off"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.splitlines()[-1] == (
        "✗ Memory failed: Basil should have said “… Casa Nova …”. Is recall switched off?"
    )


@pytest.mark.parametrize("no_color, coloured", [("", True), ("1", False)])
def test_a_terminal_gets_colours_unless_it_wants_none(tmp_path: Path, no_color: str, coloured: bool) -> None:
    environment = {**os.environ, "NO_COLOR": no_color, "TERM": "xterm-256color", "AFTERTURN_RECORDING": "off"}
    reader, writer = pty.openpty()
    done = subprocess.run(COMMAND, cwd=tmp_path, env=environment, stdout=writer, timeout=100, check=False)
    os.close(writer)
    seen = os.read(reader, 65_536)
    os.close(reader)
    assert done.returncode == 1
    assert (b"\x1b[" in seen) is coloured


def test_what_else_is_in_the_folder_is_left_alone(tmp_path: Path) -> None:
    kept = tmp_path / ".demo" / "notes.txt"
    kept.parent.mkdir()
    kept.write_text("mine", encoding="utf-8")
    left = kept.with_name("memory.db")
    left.write_text("not a store", encoding="utf-8")
    environment = {**os.environ, "AFTERTURN_RECORDING": "off"}
    done = subprocess.run(
        COMMAND, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    assert "the turn was not recorded" in done.stdout
    assert kept.read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("day", [day for day in DAYS if not day.forgets], ids=lambda day: day.conversation)
async def test_without_memory_no_answer_holds_its_proof(day: Day) -> None:
    """The script can not cheat: what Ada says on the day itself is not enough for Basil's good answers."""
    messages: list[dict[str, object]] = []
    for exchange in day.exchanges:
        model = ScriptedModel(*exchange.replies)
        messages.append({"role": "user", "content": exchange.says})
        messages.append(reply := await model.complete(messages, TOOLS))
        while reply.get("tool_calls"):
            messages.extend(await run_tools(reply["tool_calls"]))
            messages.append(reply := await model.complete(messages, TOOLS))
        assert not exchange.proof or exchange.proof not in reply["content"]


def test_costs_add_up() -> None:
    total = Cost(recalls=1, waited=0.5, handed_over=["a"]) + Cost(recalls=2, waited=0.25, handed_over=["a", "b"])
    assert total == Cost(recalls=3, waited=0.75, handed_over=["a", "a", "b"])
