"""`make demo`: its output is true, readable in a pipe, and it fails if memory fails."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from afterturn.testing import ModelCall, ScriptedModel
from lab.demo import late_recall, learning, party, subagent
from lab.demo.host import TOOLS, Comparison, Cost, run_tools
from lab.demo.scene import scenes
from lab.demo.story import DAYS, Exchange

pytestmark = pytest.mark.standing

COMMAND = [sys.executable, "-m", "lab.demo", "--fast"]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The output of a successful run of every scene."""
    return _run(tmp_path_factory.mktemp("demo"), "--all")


def _run(folder: Path, *options: str) -> str:
    command = [*COMMAND, *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_default_shows_the_main_job_on_a_page(tmp_path: Path) -> None:
    """M2: three days in three processes, what the model got, and what a forget erased."""
    shown = _run(tmp_path)
    lines = shown.splitlines()
    assert len(lines) <= 60
    assert max(map(len, lines)) <= 100
    assert len(set(re.findall(r"process (\d+)", shown))) == 4
    assert "The kitchen knows: no peanuts." in shown
    block = shown.split("┌─ the block that was added")[1].split("└")[0]
    assert "│ - My mother Grace is allergic to peanuts. " in block
    assert re.search(r"│ - \[\w{16}\] 2 days ago, user asked: A table for Friday's dinner", block)
    assert re.search(r"“555 0142” in the files: [1-9]\d* before, 0 now", shown)
    assert "I have no phone number for Grace." in shown
    assert "make demo ARGS=--all" in lines[-3]


def test_the_third_process_knows_what_ada_said_in_the_first(shown: str) -> None:
    processes = re.findall(r"process (\d+)", shown)
    third = shown.split("── Day 10")[1]
    assert len(set(processes)) == 7
    assert re.search(r"2 days ago, user asked: A table for Friday's dinner", third)
    assert "The kitchen knows: no peanuts." in third


def test_every_conversation_begins_with_the_standing_block(shown: str) -> None:
    """S5: by default a turn brings it, once for a conversation, with Ada's own words of the first day."""
    second, third = (_scene(shown, day) for day in ("Day 8", "Day 10"))
    assert [scene.count("delivered: the standing block") for scene in (second, third)] == [1, 1]
    block = third.split("│ <afterturn-standing>")[1].split("│ </afterturn-standing>")[0]
    assert "│ - My mother Grace is allergic to peanuts. " in block
    assert "│ - Dinner on Fridays: never before eight. " in block
    erased = _scene(shown, "Later that day")
    assert "delivered: the standing block" in erased.split("0 now")[1]


def test_the_right_column_shows_deliveries_and_recordings(shown: str) -> None:
    assert re.search(r"recalled in [\d.]+ ms: 1 long-term \+ \d episodic", shown)
    assert re.search(r"delivered after Ada: \d memories, \d+ tokens", shown)
    assert shown.count("│ recorded: ") == 23


def test_memories_that_the_model_sees_are_not_repeated(shown: str) -> None:
    """L3: the second turn of a conversation does not repeat the block of the first."""
    assert "match, but are in the history already" in shown


def test_a_forgotten_number_is_in_no_file_and_no_answer(shown: str) -> None:
    """M2: forgetting erases the bytes, and the next turn does not know."""
    assert re.search(r"“555 0142” in the files: [1-9]\d* before, 0 now", shown)
    assert "I have no phone number for Grace." in shown.split("0 now")[1]


def test_a_late_recall_is_carried_to_the_next_turn(shown: str) -> None:
    """R8: it ends after its turn, and the next turn gets its memories without another recall."""
    scene = _scene(shown, "Memory is slow")
    asked, again = scene.split("Please do.")
    assert "slowed down on purpose" in asked
    assert re.search(r"recalled in [2-9]\d\d\.\d ms", asked)
    carried = re.search(r"too late: (\d+) memories kept for the next turn", asked)
    assert carried
    assert "delivered" not in asked
    assert f"delivered after Ada: {carried[1]} memories" in again
    assert "found by the recall of the previous turn:" in again
    assert "recall starts" not in again
    assert "recalled in" not in again


def test_three_turns_deliver_eight_memories_without_repeating_one(shown: str) -> None:
    """L3: A B C, D E F, then what is left."""
    came = re.findall(r"│   \+ Party guest (\w+) ", _scene(shown, "Eight memories, three turns"))
    assert sorted(came) == sorted(party.GUESTS)
    assert [f"That makes {count}." in shown for count in (3, 6, 8)] == [True] * 3


def test_steps_of_a_tool_loop_recall_nothing(shown: str) -> None:
    """R1: eight tool steps start no recall."""
    scene = _scene(shown, "Eight memories, three turns")
    assert "8 match, but are in the history already" in scene
    assert "8 tool steps: no recall, nothing added" in scene


def test_memories_that_a_compaction_removed_are_recalled_again(shown: str) -> None:
    """H7, K1: the summary contains what memory had delivered, and removed memories are recalled again."""
    scene = _scene(shown, "The history is too long")
    before, after = re.findall(r"(\d+) tokens before, (\d+) after", scene)[0]
    assert int(after) < int(before)
    assert re.search(r"the summary named 1 guest, memory added [1-7]\b", scene)
    assert "again: Party guest Anna is a vegan." in scene


def test_knowledge_of_a_sub_agent_needs_approval(shown: str) -> None:
    """A1, A2, A3: it gets the turn's facts and a tool; its result is recalled after Ada approves it."""
    scene = _scene(shown, "A sub-agent learns")
    assert "## Key Context (preserve these facts)" in scene
    assert re.search(r"the tool returned \d+ memor", scene)
    assert "recalled before approval: no; now: yes" in scene
    assert "+ according to subagent: " in scene
    assert "Ordered at Rosa's bakery." in scene


def test_the_third_conversation_knows_what_the_first_mentioned(shown: str) -> None:
    """V1, V11, S1: one fact by a rule without a model, one by a review after three turns."""
    first, third = _scene(shown, "First conversation"), _scene(shown, "Second and third conversation")
    assert _learned(first) == ["Call the user Addie", "Long lists tire the user"]
    assert _standing(third) == ["Long lists tire the user", "And call me Addie, please."]
    assert "Good evening, Addie. At Casa Nova?" in third


def test_a_pasted_token_is_not_stored(shown: str) -> None:
    """G1: the message is shown as she wrote it, and stored with a mark in place of the token."""
    first = _scene(shown, "First conversation")
    assert learning.TOKEN in first
    assert "stored: my token is [redacted: github token]." in first


def test_a_review_is_shown_as_a_difference_and_undone(shown: str) -> None:
    """V8: the command prints the change and its source; after the undo the next conversation lacks it."""
    scene = _scene(shown, "Show what was learned")
    told, undone = scene.split("$ afterturn review undo")
    review = re.search(r"Review (\w+): 1 saved", told)
    assert review
    assert f"$ afterturn review show {review[1]}" in told
    assert "  + Long lists tire the user" in told
    assert re.search(r"from user, .*: Their waiter read us twenty desserts once\. Long lists tire me\.", told)
    assert "active -> undone" in undone
    assert _standing(undone) == ["And call me Addie, please."]
    assert "At Casa Nova, Satay" in undone


def test_an_approved_proposal_is_in_the_next_conversation(shown: str) -> None:
    """V8: it is in the inbox first, and in the next system prompt after the approval."""
    scene = _scene(shown, "Learn it again")
    waiting = re.search(r"(\w{16}) .* background review +Long lists tire the user", scene)
    assert waiting
    assert f"$ afterturn inbox approve {waiting[1]}" in scene
    assert _standing(scene) == ["Long lists tire the user", "And call me Addie, please."]
    assert "Good evening, Addie. At Casa Nova?" in scene


def test_it_ends_with_its_costs_and_savings(shown: str) -> None:
    """R1: recalls are not more than turns, whatever the number of model calls; an acknowledgement has none (R6)."""
    assert "57 messages of 13 conversations, and 13 statements" in shown
    assert "22 in 23 turns; the model was called 35 times" in shown
    ours, other = _numbers(r"([\d,]+) tokens of memory, none .*? have added ([\d,]+)", shown)
    assert 0 < ours < other
    ours, other = _numbers(r"([\d,]+) tokens of memory in all prompts.*? would have sent ([\d,]+):", shown)
    assert 0 < ours < other
    assert f"{1 - ours / other:.0%} are saved" in shown
    assert _numbers(r"by (\d+) reviews in the background: (\d+) model calls", shown) == [2, 6]


def test_the_last_command_explains_a_turn(shown: str) -> None:
    scene = _scene(shown, "Why each memory was recalled")
    assert "$ afterturn trace party --turn 3 --store .demo/memory.db --space user:ada" in scene
    assert "And the last guests at the party?" in scene
    assert "excluded: " in scene


def _scene(shown: str, title: str) -> str:
    return shown.split(f"── {title}")[1].split("\n──")[0]


def _learned(scene: str) -> list[str]:
    return re.findall(r"│   \+ (.*)", scene)


def _standing(scene: str) -> list[str]:
    """The standing memories in the last system prompt of the scene."""
    return re.findall(r"│   (?!and \d+ more)(.*)", scene.split("in the system prompt:")[-1].split("Ada  ")[0])


def _numbers(pattern: str, shown: str) -> list[int]:
    found = re.search(pattern, " ".join(shown.split()))
    assert found is not None
    return [int(number.replace(",", "")) for number in found.groups()]


def test_it_fits_a_terminal_and_is_plain_in_a_pipe(shown: str) -> None:
    lines = shown.splitlines()
    assert max(map(len, lines)) <= 100
    assert len(lines) <= 250
    assert max(scene.count("\n") for scene in shown.split("\n── ")) <= 42
    assert "\x1b" not in shown


@pytest.mark.slow
@pytest.mark.parametrize(
    "switched_off, missed",
    [
        # What stands still comes, so the first answer that fails is one about what Basil suggested.
        (("AFTERTURN_RECALL",), "knows: no peanuts"),
        (("AFTERTURN_RECALL", "AFTERTURN_STANDING"), "Casa Nova"),
    ],
)
def test_it_fails_with_one_clear_line_if_nothing_is_recalled(
    tmp_path: Path, switched_off: tuple[str, ...], missed: str
) -> None:
    done = subprocess.run(
        COMMAND,
        cwd=tmp_path,
        env={**os.environ, **dict.fromkeys(switched_off, "off")},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.splitlines()[-1] == (
        f"✗ Memory failed: Basil should have said “… {missed} …”. Is recall switched off?"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "variable, value, said",
    [
        ("AFTERTURN_RULES", "off", "there was no review. Are rules or reviews switched off?"),
        ("AFTERTURN_SCANNERS", "none", "a token is in its files. Is scanning switched off?"),
    ],
)
def test_it_fails_if_nothing_is_learned_or_a_token_is_stored(
    tmp_path: Path, variable: str, value: str, said: str
) -> None:
    """G1, V11: the first conversation checks the store itself."""
    at = next(number for number, scene in enumerate(scenes()) if scene.title.startswith("First conversation"))
    done = subprocess.run(
        [sys.executable, "-m", "lab.demo.scene", "memory.db", "cost.json", str(at), "--fast"],
        cwd=tmp_path,
        env={**os.environ, variable: value},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.splitlines()[-1] == f"✗ Memory failed: {said}"


@pytest.mark.slow
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


@pytest.mark.slow
def test_other_files_in_the_folder_stay_unchanged(tmp_path: Path) -> None:
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


_TALKS = {
    **{day.conversation: day.exchanges for day in DAYS if not day.forgets},
    "soup": (late_recall.ASKED, late_recall.ASKED_AGAIN),
    "party": (*party.ASKED, party.INVITE),
    "menu": (party.ASKED_LATER,),
    "order": (subagent.ASKED_LATER,),
    "third": (learning.THIRD,),
    "fourth": (learning.AFTER_UNDO,),
}


@pytest.mark.parametrize("talk", _TALKS.values(), ids=_TALKS)
async def test_without_memory_the_scripted_answers_are_different(talk: tuple[Exchange, ...]) -> None:
    """The script does not cheat: the messages of that day alone do not give Basil's good answers."""
    messages: list[dict[str, object]] = []
    for exchange in talk:
        model = ScriptedModel(*exchange.replies)
        messages.append({"role": "user", "content": exchange.says})
        messages.append(reply := await model.complete(messages, TOOLS))
        while reply.get("tool_calls"):
            messages.extend(await run_tools(reply["tool_calls"]))
            messages.append(reply := await model.complete(messages, TOOLS))
        assert not exchange.proof or exchange.proof not in reply["content"]


async def test_without_context_the_sub_agent_finds_nothing() -> None:
    model = ScriptedModel(subagent.SUB_AGENT[1])
    reply = await model.complete([{"role": "user", "content": f"## Task\n{subagent.TASK}"}])
    assert reply["content"] == "Any bakery will do."


async def test_without_the_message_the_reviewer_saves_nothing() -> None:
    reply = await learning.reviewer().complete([{"role": "user", "content": "Known memories:\n(none)"}])
    assert reply["content"] == "Nothing to save."


def test_costs_add_up() -> None:
    assert Cost(recalls=1, waited=0.5, read=3) + Cost(recalls=2, waited=0.25) == Cost(recalls=3, waited=0.75, read=3)


def test_recalling_at_every_call_adds_copies_until_a_compaction() -> None:
    """A block counts once when it is added, and in each prompt; the other host adds one per call."""
    cost, block = Cost(), "five words of one token"
    comparison = Comparison(cost)
    comparison.gave(block)
    calls = [ModelCall(({"role": "user", "content": block},), ())] * 3
    comparison.called(calls, block)
    comparison.compacted()
    comparison.called(calls[:1], block)
    assert (cost.added, cost.read) == (5, 20)
    assert (cost.each_call_added, cost.each_call_read) == (20, 5 + 10 + 15 + 5)
