"""`trace CONVERSATION` and `replay`: past turns, without texts that were forgotten."""

from __future__ import annotations

import json
import re
from contextlib import closing
from typing import TYPE_CHECKING

import apsw
import pytest

from afterturn import blocking

if TYPE_CHECKING:
    from tests.hosts.conftest import CommandLine

TALK = "support-42"
ESCAPES = "\x1b]0;PWNED\x07\x1b[31mRED\x9b2J\u202e\u2066\u200f"
ASKED = "What is my cat called?"


def talk(cli: CommandLine, *said: str, conversation: str = TALK, **settings: object) -> list[str]:
    """Turns of Ada's, one for each thing she says; what was injected in each."""
    injected = []
    with blocking.open(cli.store, {"embedder": "none", "background": False, "grace": 5.0, **settings}) as memory:
        messages: list[dict[str, object]] = []
        for number, text in enumerate(said, start=1):
            messages.append({"role": "user", "content": text})
            with memory.conversation(conversation, user="ada").turn(messages, id=f"t{number}") as turn:
                element = turn.inject(messages)
                messages.append({"role": "assistant", "content": "Noted."})
            assert turn.wait_recorded()
            injected.append("" if element is None else str(element["content"]))
    return injected


def squeezed(text: str) -> str:
    return re.sub(r"\s+", " ", text)


# trace


def test_trace_shows_a_conversation_turn_by_turn(cli: CommandLine) -> None:
    """R5: the question, the outcome, what came with its scores, what did not with the reason."""
    known = cli.add("Ada's cat is called Miso")
    old = cli.add("Ada's cat is called Tofu")
    cli("delete", old)
    talk(cli, ASKED, "thanks")
    out = cli("trace", TALK).out
    told = squeezed(out)
    assert told.startswith(f"Conversation {TALK} of user:ada, 2 turns Turn 1 ")
    assert f"asked {ASKED} (the user's message, " in told
    assert "delivered after the user's message, " in told
    assert re.search(rf"included: {known} just now, user: Ada's cat is called Miso chance \d\.\d\d · lexical", told)
    assert re.search(rf"not included: {old} Ada's cat is called Tofu deleted: it was deleted · search score \d", told)
    assert re.search(r"block after the user's message at [\d:.]+: 1 memory, \d+ bytes, \d+ tokens turn id t1", told)
    assert "recalled nothing: there was nothing to ask turn id t2" in told
    assert max(len(line) for line in out.splitlines()) < 140


@pytest.mark.standing
def test_a_standing_line_is_one_memory(cli: CommandLine) -> None:
    """R5: not one for each memory and message that the line was learned from."""
    talk(cli, "My sister Ruth is coeliac.", conversation="earlier", background=True)
    with blocking.open(cli.store) as memory:
        memory.drain(within=10.0)
    (block,) = talk(cli, "Good morning, what is new?")
    assert block.count("\n- ") == 1
    with blocking.open(cli.store) as memory:
        (told,) = memory.conversation(TALK, user="ada").trace().turns[0].blocks
    assert (len(told.refs), told.memories) == (2, 1)


def test_trace_as_json_is_one_document(cli: CommandLine) -> None:
    """R5: with every field, times as ISO-8601."""
    known = cli.add("Ada's cat is called Miso")
    talk(cli, ASKED)
    document = cli("trace", TALK, "--turn", "last", "--json").json
    (turn,) = document["turns"]
    (recall,) = turn["recalls"]
    (shown,) = recall["shown"]
    assert set(document) == {"space", "conversation", "turns_total", "turns"}
    assert set(turn) == {"number", "turn", "blocks", "recalls", "no_recall", "not_recorded", "rules"}
    assert (turn["no_recall"], turn["not_recorded"]) == (None, "")
    assert set(recall) == {"turn", "delivered_in", "milliseconds", "fate", "shown", "left_out", "row"}
    assert (shown["ref"], shown["why"], shown["lane"]) == (known, "shown", "long_term")
    assert recall["row"]["asked_at"].endswith("Z")
    assert turn["blocks"][0]["text"].startswith("<afterturn-memory>")


@pytest.mark.parametrize(
    "setting,erased,told",
    [
        ({"recall": False}, "", "recall was off turn id"),
        ({"recall_entries_max": 0}, "", "recall was off turn id"),
        ({}, "DELETE FROM recall", "its trace was removed since block after the user's message at "),
        ({}, "DELETE FROM recall; DELETE FROM timeline", "there was nothing to ask, recall was off, or its trace "),
    ],
)
def test_a_turn_without_a_recall_says_why_where_that_is_known(
    cli: CommandLine, setting: dict[str, object], erased: str, told: str
) -> None:
    """R6: switched off is not the same as nothing to ask, and neither is a trace that is gone."""
    cli.add("Ada's cat is called Miso")
    talk(cli, ASKED, **setting)
    with closing(apsw.Connection(str(cli.store))) as store:
        store.execute(erased)
    assert f"recalled nothing: {told}" in squeezed(cli("trace", TALK).out)


def test_a_turn_that_was_given_up_says_so_without_its_event(cli: CommandLine) -> None:
    """R5: its end is stored before the event, and outlives it."""
    messages = [{"role": "user", "content": ASKED}]
    with blocking.open(cli.store) as memory, memory.conversation(TALK, user="ada").turn(messages) as turn:
        turn.inject(messages)
        turn.abort("stopped by the user")
    with closing(apsw.Connection(str(cli.store))) as store:
        store.execute("DELETE FROM timeline")
    assert "recorded no: the host gave it up" in squeezed(cli("trace", TALK).out)


def test_a_long_trace_shows_the_last_turns_and_a_hint(cli: CommandLine) -> None:
    cli.add("Ada's cat is called Miso")
    talk(cli, *[ASKED] * 12)
    assert [line.split()[1] for line in cli("trace", TALK).out.splitlines() if line.startswith("Turn ")] == [
        str(number) for number in range(3, 13)
    ]
    code, shown = cli.on_a_terminal("trace", TALK, "--limit", "1", environment={"COLUMNS": "80", "NO_COLOR": "1"})
    assert (code, "Turn 12" in shown, "Turn 11" in shown) == (0, True, False)
    assert f"Earlier turns: afterturn trace {TALK} --limit 12, or --turn N" in shown
    assert max(len(line) for line in shown.splitlines()) <= 80


def test_only_what_matters_of_the_excluded_memories_is_shown(cli: CommandLine) -> None:
    for number in range(14):
        cli.add(f"Ada's cat is called Miso{number}")
    talk(cli, ASKED, recall_entries_max=2, recall_score_min=0.0)
    shown = [cli("trace", TALK, *options).out for options in ((), ("--turn", "1"), ("--turn", "1", "--all"))]
    assert [text.count("budget: ") for text in shown] == [5, 10, 12]
    assert f"and 7 more that were not included: afterturn trace {TALK} --turn 1\n" in shown[0]
    assert f"and 2 more that were not included: afterturn trace {TALK} --turn 1 --all\n" in shown[1]
    assert "more that were not included" not in shown[2]


def test_what_matched_too_little_is_shown_last(cli: CommandLine) -> None:
    """L5: a memory that was deleted says more than one that was below the floor."""
    cli("delete", cli.add("Ada's cat is called Tofu"))
    for number in range(10):
        cli.add(f"Ada's cat likes fish number {number}")
    talk(cli, ASKED, recall_score_min=0.99)
    reasons = re.findall(r"^ +(floor|deleted): ", cli("trace", TALK, "--turn", "1").out, re.MULTILINE)
    assert reasons == ["deleted", *["floor"] * 9]


def test_events_have_times_and_no_long_numbers(cli: CommandLine) -> None:
    talk(cli, ASKED)
    shown = cli("trace").out
    assert re.search(r"records 2 · ended at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\n", shown)
    assert re.search(r"recall settled +\d+\.\d ms", shown)
    assert not re.search(r"\d\.\d{4}", shown)


def test_one_memory_gets_one_sentence(cli: CommandLine) -> None:
    """L3, L7: why it came, and why it did not."""
    known, other = cli.add("Ada's cat is called Miso"), cli.add("The train leaves at nine")
    talk(cli, ASKED, "And what is my cat called in full?")
    first = cli("trace", TALK, "--memory", known, "--turn", "1").out.splitlines()[0]
    assert first == f'{known} was included in turn 1, which asked "{ASKED}": it is in the block.'
    last = cli("trace", TALK, "--memory", known).out.splitlines()[0]
    assert "was not included in turn 2" in last
    assert last.endswith('": an earlier block shows it, or was about to show it.')
    assert "has no word in common with the question" in cli("trace", TALK, "--memory", other).out
    (answer,) = cli("trace", TALK, "--memory", known, "--json").json["answers"]
    assert (answer["turn"], answer["explained"]["why"]) == (2, "excluded")


def test_a_memory_of_another_space_is_known_only_to_who_names_it(cli: CommandLine) -> None:
    """L2: the answer for one that exists elsewhere is the answer for none."""
    cli.add("Ada's cat is called Miso")
    secret = cli("add", "The cat of team x is called Tofu", "--json", space="team:x").json["entry"]["id"]
    talk(cli, ASKED)
    hidden, none = cli("trace", TALK, "--memory", secret), cli("trace", TALK, "--memory", "0000000000000000")
    assert (hidden.code, hidden.out, none.code) == (2, "", 2)
    assert hidden.err.replace(secret, "") == none.err.replace("0000000000000000", "")
    named = cli("trace", TALK, "--memory", secret, "--look-in", "team:x")
    assert "it is in team:x, which this conversation could not read (only user:ada)." in named.out
    assert "Tofu" not in named.out + cli("trace", TALK, "--json").out


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--turn", "1"], "need a CONVERSATION"),
        (["--memory", "0k3v8r2c4d5e6f7g"], "need a CONVERSATION"),
        (["nobody"], "There is no conversation 'nobody' in user:ada"),
        ([TALK, "--turn", "9"], "has no turn '9'"),
        ([TALK, "--memory", "no id!"], "is not a valid memory id"),
        ([TALK, "--memory", "0k3v8r2c4d5e6f7g", "--look-in", "nowhere"], "is not a valid space name"),
    ],
)
def test_an_impossible_trace_is_a_one_line_error(cli: CommandLine, arguments: list[str], said: str) -> None:
    cli.add("Ada's cat is called Miso")
    talk(cli, ASKED)
    answer = cli("trace", *arguments)
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert said in answer.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["trace", TALK],
        ["trace", TALK, "--turn", "1"],
        ["trace", TALK, "--memory", "ID"],
        ["replay", "t1"],
        ["replay", "t1", "--config", "recall_entries_max=1"],
    ],
)
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_texts_of_memories_never_control_the_terminal(cli: CommandLine, arguments: list[str], form: list[str]) -> None:
    """H4: escapes in memories, in questions and in names are shown, not acted on."""
    known = cli.add("Ada's cat is called Miso " + ESCAPES)
    cli.add("Ada's cat is old " + ESCAPES)
    talk(cli, ASKED + ESCAPES)
    answer = cli(*(known if argument == "ID" else argument for argument in arguments), *form)
    assert (answer.code, "Miso" in answer.out or "ID" in arguments) == (0, True)
    assert not set(answer.out + answer.err) & set("\x1b\x07\x9b\u202e\u2066\u200f")


# replay


def test_replay_prints_the_block_and_says_that_it_is_the_same(cli: CommandLine) -> None:
    """H3: byte for byte, by the turn's id alone or as a conversation's number."""
    cli.add("Ada's cat is called Miso")
    (injected,) = talk(cli, ASKED)
    for arguments in (["t1"], ["1", "--conversation", TALK], ["last", "--conversation", TALK]):
        answer = cli("replay", *arguments)
        head, _, text = answer.out.partition("<")
        assert (answer.code, "<" + text) == (0, injected + "\n")
        assert f"{len(injected.encode())} bytes: identical to what was injected" in head
    (block,) = cli("replay", "t1", "--json").json["blocks"]
    assert (block["identical"], block["rendered"], block["changed"]) == (True, injected, None)


def test_replay_shows_the_difference_that_a_setting_would_have_made(cli: CommandLine) -> None:
    """H9: as a diff; a file's other settings are named and left aside."""
    cli.add("Ada's cat eats salmon")
    cli.add("Ada's cat is called Miso")
    talk(cli, ASKED)
    out = cli("replay", "t1", "--config", "recall_entries_max=1").out
    assert re.search(r"^-- \[\w+\] just now.*salmon$", out, re.MULTILINE)
    assert "+++ with recall_entries_max=1" in out
    assert "No difference with recall_entries_max=5." in cli("replay", "t1", "--config", "recall_entries_max=5").out
    file = cli.folder / "smaller.toml"
    file.write_text("recall_entries_max = 1\ngrace = 0.2\n", encoding="utf-8")
    from_file = cli("replay", "t1", "--config", str(file)).out
    assert "Ignored, because they do not affect a block: grace." in from_file
    assert "+++ with recall_entries_max=1" in from_file


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["t1", "--config", "embedder=none"], "'embedder' cannot be replayed"),
        (
            ["t1", "--config", "colour=red"],
            "'colour' is not a setting. Settings that can be replayed: recall_entries_max",
        ),
        (["t1", "--config", "recall_entries_max=many"], "It must be an integer"),
        (["t1", "--config", "recall_entries_max=[1]"], "has no plain value"),
        (["t1", "--config", "nowhere.toml"], "is neither KEY=VALUE nor a file that can be read"),
        (["t9"], "No conversation of user:ada has a turn with the id 't9'"),
        (["1"], "A number or `last` needs --conversation ID"),
        (["9", "--conversation", TALK], "has no turn '9'"),
    ],
)
def test_an_impossible_replay_is_a_one_line_error(cli: CommandLine, arguments: list[str], said: str) -> None:
    cli.add("Ada's cat is called Miso")
    talk(cli, ASKED)
    answer = cli("replay", *arguments)
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert said in answer.err


def test_a_turns_id_that_two_conversations_use_needs_one_of_them(cli: CommandLine) -> None:
    """C3: hosts choose ids."""
    cli.add("Ada's cat is called Miso")
    for conversation in ("one", "two"):
        talk(cli, ASKED, conversation=conversation)
    answer = cli("replay", "t1")
    assert (answer.code, "Several conversations have a turn 't1': one, two." in answer.err) == (2, True)
    assert cli("replay", "t1", "--conversation", "two").out.startswith("Turn 1 of two, 1 block")


def test_replay_says_what_was_forgotten(cli: CommandLine) -> None:
    """M2: nothing of it comes out, and that is no fault."""
    gone = cli.add("Ada's cat is called Miso")
    talk(cli, ASKED)
    cli("forget", gone, "--yes")
    answer = cli("replay", "t1")
    assert (answer.code, "has been forgotten since" in answer.out) == (0, True)
    assert not {"Miso", gone} & set(re.findall(r"\w+", answer.out))


def test_other_bytes_make_an_exit_code(cli: CommandLine) -> None:
    """H3: a block that comes out otherwise though everything is there is worth a look."""
    cli.add("Ada's cat is called Miso")
    talk(cli, ASKED)
    store = apsw.Connection(str(cli.store))
    for key, detail in list(store.execute("SELECT key, detail FROM recall")):
        row = json.loads(detail)
        row["settings"]["made_at"] += 86_400 * 3
        store.execute("UPDATE recall SET detail = ? WHERE key = ?", (json.dumps(row), key))
    store.close()
    answer = cli("replay", "t1")
    assert (answer.code, "the same memories are rendered differently now" in answer.out) == (1, True)
    assert "3 days ago" in answer.out


def test_a_turn_that_got_nothing_shows_what_a_lower_floor_would_have_given(cli: CommandLine) -> None:
    """L5: its candidates were kept, too."""
    cli.add("The cat weighs five kilos")
    asked = "How heavy is my old grey cat by now, I wonder?"
    talk(cli, asked, recall_score_min=0.9)
    assert cli("replay", "t1").out.splitlines()[-1] == f"nothing was delivered for '{asked}'"
    lower = cli("replay", "t1", "--config", "recall_score_min=0.1").out
    assert re.search(r"^\+- \[\w+\] just now, user: The cat weighs five kilos$", lower, re.MULTILINE)


def test_a_turn_without_a_block_has_nothing_to_replay(cli: CommandLine) -> None:
    cli.add("Ada's cat is called Miso")
    talk(cli, "thanks")
    assert "The turn found nothing" in cli("replay", "t1").out
