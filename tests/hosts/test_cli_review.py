"""`review run | log | show | undo` and `usage`: what was learned, and how to undo it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest
from provider_server import ProviderServer
from provider_wires import Call, ChatWire, Reply

import afterturn
from afterturn import blocking
from afterturn.testing.model import ScriptedModel, call_tools
from afterturn.types import Purpose, UsageRow

if TYPE_CHECKING:
    from tests.hosts.conftest import CommandLine

TALK = "support-42"
SAID = "I always drink oolong tea.\nCoffee makes me nervous."
NOTHING = "Nothing to save."


def addition(text: str, **fields: object) -> tuple[str, Mapping[str, object]]:
    return "add_memory", {"text": text, "target": "user", "messages": [1], **fields}


def talk(cli: CommandLine, *said: str) -> None:
    """Turns of Ada's, one for each thing she says, that nothing is learned from yet."""
    with blocking.open(cli.store, {"embedder": "none", "background": False, "rules": False}) as memory:
        messages: list[dict[str, object]] = []
        for text in said:
            messages.append({"role": "user", "content": text})
            with memory.conversation(TALK, user="ada").turn(messages) as turn:
                messages.append({"role": "assistant", "content": "Noted."})
            assert turn.wait_recorded()


def reviewed(cli: CommandLine, *script: Any, **settings: object) -> str:
    """The id of a review of the conversation, by a model that says this."""
    model = ScriptedModel(*script)
    config = {"embedder": "none", "background": False, **settings}
    with blocking.open(cli.store, config, components=afterturn.Components(model=model)) as memory:
        review = memory.space("user:ada").run_review(TALK)
        assert review is not None
        return review.row.id


def squeezed(text: str) -> str:
    return re.sub(r"\s+", " ", text)


# show


def test_a_review_is_shown_as_a_difference_with_its_sources(cli: CommandLine) -> None:
    """V8, V5: what came, about what, where, and whose words say so; then what takes it back."""
    talk(cli, SAID)
    id = reviewed(cli, call_tools(addition("The user always drinks oolong tea")), NOTHING)
    (memory,) = cli("list", "--kind", "statement", "--json").lines
    out = cli("review", "show", id).out
    assert out.startswith(f"Review {id}: 1 saved\n")
    assert f"conversation  {TALK} of user:ada\n" in out
    assert re.search(r"cost +2 model calls, [\d,]+ tokens\n", out)
    assert (
        "\n+ The user always drinks oolong tea\n"
        f"    {memory['id']}, target user, in user:ada\n"
        "    from user, just now: I always drink oolong tea. Coffee makes me nervous.\n"
    ) in out
    assert out.endswith(f"\n(undo: afterturn review undo {id})\n")


def test_an_update_shows_the_old_and_the_new_text(cli: CommandLine) -> None:
    """V8: the older words with a minus, the newer ones with a plus; a delete has a minus alone."""
    tea, build = cli.add("The user drinks green tea"), cli.add("The user drinks coffee")
    talk(cli, SAID)
    change = ("update_memory", {"id": tea, "text": "The user always drinks oolong tea", "messages": [1]})
    id = reviewed(cli, call_tools(change, ("delete_memory", {"id": build, "messages": [1]})), NOTHING)
    out = cli("review", "show", id).out
    assert (
        f"\n- The user drinks green tea\n+ The user always drinks oolong tea\n    {tea} version 2, target user" in out
    )
    assert f"\n\n- The user drinks coffee\n    {build}, target user, in user:ada\n" in out


def test_refusals_are_explained_in_plain_words(cli: CommandLine) -> None:
    """V5, V8: and how often; a review that saved nothing offers no way back."""
    talk(cli, SAID)
    calls = [addition("The user was born in Trondheim in 1984"), addition("The user has 7 cats"), ("sing", {})]
    id = reviewed(cli, call_tools(*calls), NOTHING)
    out = cli("review", "show", id).out
    assert out.startswith(f"Review {id}: nothing saved, 3 refused\n")
    assert (
        "\nRefused:\n    contains names or numbers that nobody said (2 times)\n    the model's call could not be read\n"
        in out
    )
    assert "undo:" not in out


def test_a_waiting_change_prints_the_inbox_command(cli: CommandLine) -> None:
    """V8: with approval, a review's changes wait in the inbox."""
    talk(cli, SAID)
    text = "The user always drinks oolong tea"
    id = reviewed(cli, call_tools(addition(text)), NOTHING, approval="background")
    (waiting,) = cli("inbox", "--json").lines
    out = cli("review", "show", id).out
    assert out.startswith(f"Review {id}: 1 needs approval\n")
    assert f"; needs approval: afterturn inbox show {waiting['id']}\n" in out


def test_a_delete_that_took_a_waiting_change_along_is_one_change(cli: CommandLine) -> None:
    """V8: what waited for the memory went with it, and undo brings both back."""
    tea = cli.add("The user drinks green tea")
    talk(cli, SAID)
    change = ("update_memory", {"id": tea, "text": "The user always drinks oolong tea", "messages": [1]})
    reviewed(cli, call_tools(change), NOTHING, approval="background")
    talk(cli, "Forget what I said of green tea, the user drinks none")
    id = reviewed(cli, call_tools(("delete_memory", {"id": tea, "messages": [3]})), NOTHING)
    out = cli("review", "show", id).out
    assert f"\n- The user drinks green tea\n    {tea}, target user, in user:ada\n" in out
    assert cli("review", "undo", id).code == 0
    assert [line["id"] for line in cli("inbox", "--json").lines] == [tea]
    assert "undone since" in cli("review", "show", id).out


def test_a_review_as_json_has_its_row_its_changes_and_their_sources(cli: CommandLine) -> None:
    """V8: for programs."""
    talk(cli, SAID)
    id = reviewed(cli, call_tools(addition("The user always drinks oolong tea")), NOTHING)
    told = cli("review", "show", id, "--json").json
    assert (told["row"]["id"], told["row"]["state"], told["row"]["calls"]) == (id, "saved", 2)
    (change,) = told["changes"]
    assert (change["verb"], change["before"], change["state"]) == ("add", None, "active")
    assert [source["text"] for source in told["sources"]] == [SAID]
    assert change["after"]["sources"] == [told["sources"][0]["id"]]


def test_nothing_in_a_review_steers_a_terminal(cli: CommandLine) -> None:
    """V8: neither memory nor source; and there are no colours where there is no terminal."""
    talk(cli, "I always drink \x1b[31moolong\x9b2J tea")
    id = reviewed(cli, call_tools(addition("The user always drinks \x1b[31moolong\x9b2J tea")), NOTHING)
    out = cli("review", "show", id).out
    assert "+ The user always drinks \\x1b[31moolong\\x9b2J tea\n" in out
    assert "\x1b" not in out
    assert "\x9b" not in out


def test_on_a_terminal_what_comes_is_green(cli: CommandLine) -> None:
    """V8: colours there only."""
    talk(cli, SAID)
    id = reviewed(cli, call_tools(addition("The user always drinks oolong tea")), NOTHING)
    code, shown = cli.on_a_terminal("review", "show", id)
    assert code == 0
    assert "\x1b[32m+ The user always drinks oolong tea\x1b[0m" in shown


# log


def test_the_log_lists_reviews_newest_first_with_their_results(cli: CommandLine) -> None:
    """V8: also those that saved nothing."""
    talk(cli, SAID)
    first = reviewed(cli, call_tools(addition("The user always drinks oolong tea")), NOTHING)
    talk(cli, "What is the time?")
    second = reviewed(cli, NOTHING)
    header, *rows = cli("review", "log").out.splitlines()
    assert header.split("  ")[0] == "ID"
    assert [row.split()[0] for row in rows] == [second, first]
    assert [row.rsplit("  ", 1)[1] for row in rows] == ["nothing to save", "1 saved"]
    assert [line["id"] for line in cli("review", "log", "--json", "--before", second).lines] == [first]
    assert cli("review", "log", "--conversation", "another").out == "There are no reviews yet.\n"


# undo


def test_undoing_a_review_restores_exactly_and_can_be_undone(cli: CommandLine) -> None:
    """V8, M1: with one command, in one go."""
    tea = cli.add("The user drinks green tea")
    talk(cli, SAID)
    change = ("update_memory", {"id": tea, "text": "The user always drinks oolong tea", "messages": [1]})
    id = reviewed(cli, call_tools(change, addition("Coffee makes the user nervous")), NOTHING)
    assert len(cli("list", "--kind", "statement", "--json").lines) == 2
    answer = cli("review", "undo", id)
    assert answer.code == 0
    assert [(line["id"], line["text"]) for line in cli("list", "--kind", "statement", "--json").lines] == [
        (tea, "The user drinks green tea")
    ]
    assert "undone since" in cli("review", "show", id).out
    back = re.search(r"\(undo: afterturn undo (\w+)\)", answer.out)
    assert back is not None
    assert cli("undo", back.group(1)).code == 0
    assert len(cli("list", "--kind", "statement", "--json").lines) == 2


def test_a_review_whose_memory_was_changed_since_is_not_undone(cli: CommandLine) -> None:
    """V8, M1: all or nothing, and the message says why."""
    talk(cli, SAID)
    calls = [addition("The user always drinks oolong tea"), addition("Coffee makes the user nervous")]
    id = reviewed(cli, call_tools(*calls), NOTHING)
    changed = cli("list", "--kind", "statement", "--json").lines[0]["id"]
    cli("update", changed, "Something else")
    answer = cli("review", "undo", id)
    assert (answer.code, answer.out) == (2, "")
    assert len(cli("list", "--kind", "statement", "--json").lines) == 2


@pytest.mark.parametrize("verb", ["show", "undo"])
def test_a_review_that_is_not_there_is_bad_input(cli: CommandLine, verb: str) -> None:
    """V8: with one line that says so."""
    cli.add("The user drinks green tea")
    answer = cli("review", verb, "0000000000000000")
    assert (answer.code, answer.out, len(answer.err.splitlines())) == (2, "", 1)


# run


def test_a_review_on_request_asks_the_model_of_the_settings(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """V2: and shows what came of it."""
    talk(cli, SAID)
    call = Call("c1", "add_memory", dict(addition("The user always drinks oolong tea")[1]))
    replies = [Reply("", (call,)), Reply(NOTHING)]
    with ProviderServer(ChatWire(), replies).serving() as server:
        monkeypatch.setenv("AFTERTURN_MODEL_URL", f"{server.origin}/v1")
        monkeypatch.setenv("AFTERTURN_MODEL", "small")
        answer = cli("review", "run", TALK)
        again = cli("review", "run", TALK)
    assert (answer.code, answer.err) == (0, "")
    assert "\n+ The user always drinks oolong tea\n" in answer.out
    assert again.out.startswith("There is nothing new to review.")


def test_a_model_that_cannot_be_reached_is_reported_at_once(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """V12, C8: the review waits as a job, and goes on when somebody runs jobs and the model is there again."""
    talk(cli, SAID)
    with ProviderServer(ChatWire(), [Reply(NOTHING)]).serving() as server:
        url = f"{server.origin}/v1"
    monkeypatch.setenv("AFTERTURN_MODEL_URL", url)
    monkeypatch.setenv("AFTERTURN_MODEL", "small")
    answer = cli("review", "run", TALK)
    assert (answer.code, answer.out) == (2, "")
    assert "failed and will be tried again (ModelUnavailable" in answer.err
    assert "waiting, last try failed: ModelUnavailable: The model server" in cli("review", "log").out
    assert cli("review", "log", "--json").lines[0]["reason"].startswith("ModelUnavailable: The model server")
    assert "1 review waits. `afterturn review log` shows why." in cli("doctor").out
    [warning] = [record for record in caplog.records if record.name == "afterturn"]
    assert ("failed on attempt 1: ModelUnavailable" in warning.getMessage(), warning.exc_info) == (True, None)


def test_a_model_that_does_not_answer_in_time_has_changed_nothing(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """V4: the review is given up, says so, and is not tried again."""
    talk(cli, SAID)
    hanging = Event()
    with ProviderServer(ChatWire(), [Reply(NOTHING)]).serving() as server:
        server.before_reply = lambda: hanging.wait(20) and None
        monkeypatch.setenv("AFTERTURN_MODEL_URL", f"{server.origin}/v1")
        monkeypatch.setenv("AFTERTURN_MODEL", "small")
        monkeypatch.setenv("AFTERTURN_REVIEW_TIMEOUT", "0.3")
        answer = cli("review", "run", TALK)
        hanging.set()
    assert answer.code == 1
    assert "timed out after review_timeout; nothing saved" in answer.out
    rows = cli("review", "log").out.splitlines()[1:]
    assert len(rows) == 1
    assert "timed out" in rows[0]


def test_without_a_model_the_error_names_the_settings_and_the_rules(cli: CommandLine) -> None:
    """V2, V11: nothing is scheduled."""
    talk(cli, SAID)
    answer = cli("review", "run", TALK)
    assert (answer.code, answer.out) == (2, "")
    assert "model_url" in answer.err
    assert "--rules" in answer.err
    assert cli("review", "log").out == "There are no reviews yet.\n"


def test_rules_need_no_model(cli: CommandLine) -> None:
    """V11: what was said outright is learned."""
    talk(cli, "Please remember that my sister is called Maria.")
    answer = cli("review", "run", TALK, "--rules")
    assert answer.code == 0, answer.err
    assert answer.out.splitlines()[0].endswith(": 1 saved")
    (learned,) = cli("list", "--kind", "statement", "--json").lines
    assert "Maria" in learned["text"]


def test_a_conversation_that_is_recorded_elsewhere_is_reviewed_there(cli: CommandLine) -> None:
    """L2, V8: --writes names the space; either space shows the review and takes all of it back."""
    said = "Please remember that the staging server is called Hugin. My sister is called Maria."
    with blocking.open(cli.store, {"embedder": "none", "background": False, "rules": False}) as memory:
        messages: list[dict[str, object]] = [{"role": "user", "content": said}]
        conversation = memory.conversation(TALK, user="ada", reads=["project:api"], writes="project:api")
        with conversation.turn(messages) as turn:
            messages.append({"role": "assistant", "content": "Noted."})
        assert turn.wait_recorded()
    assert "project:api" in cli("review", "run", TALK, "--rules", "--writes", "project:api").out
    (row,) = cli("review", "log", "--json").lines
    for space in row["spaces"]:
        shown = cli("review", "show", row["id"], space=space)
        assert shown.code == 0
        assert "from user, just now: Please remember that the staging server" in shown.out
    assert cli("review", "show", row["id"], space="user:bob").code == 2
    assert cli("review", "undo", row["id"], space=row["spaces"][0]).code == 0
    assert "undone since" in cli("review", "show", row["id"]).out


def test_a_conversation_that_nobody_had_is_bad_input(cli: CommandLine) -> None:
    """V2: the message says where to look."""
    cli.add("The user drinks green tea")
    answer = cli("review", "run", "nobody", "--rules")
    assert answer.code == 2
    assert "nobody" in answer.err


# consolidate


def test_consolidation_is_shown_before_it_is_done_and_can_be_taken_back(cli: CommandLine) -> None:
    """V10, V8: what goes, for what; a dry run changes nothing."""
    older = cli.add("The user's favourite tea is oolong tea", "--origin", "agent")
    newer = cli.add("The user's favourite tea is the oolong tea", "--origin", "agent")
    dry = cli("consolidate", "--dry-run")
    assert (dry.code, dry.err) == (0, "")
    assert dry.out.startswith("1 memory would be removed:\n\n- The user's favourite tea is ")
    gone, stays = (older, newer) if f"    {older}, target user" in dry.out else (newer, older)
    assert f"    duplicate of {stays}\n" in dry.out
    assert len(cli("list", "--json").lines) == 2
    done = cli("consolidate")
    assert f"    {gone}, target user, in user:ada\n" in done.out
    (line,) = cli("list", "--json").lines
    assert line["id"] == stays
    (row,) = cli("review", "log", "--json").lines
    assert done.out.endswith(f"(undo: afterturn review undo {row['id']})\n")
    assert cli("review", "undo", row["id"]).code == 0
    assert len(cli("list", "--json").lines) == 2


def test_where_nothing_is_to_be_tidied_consolidation_says_so(cli: CommandLine) -> None:
    """V10: it is no error."""
    cli.add("The user drinks green tea")
    assert cli("consolidate").out == "Nothing to consolidate.\n"


# usage


def spend(cli: CommandLine, *spent: UsageRow) -> None:
    with blocking.open(cli.store, {"embedder": "none", "background": False}) as memory:
        memory._loop.wait(_spend(memory, spent))


async def _spend(memory: blocking.Memory, spent: tuple[UsageRow, ...]) -> None:
    for one in spent:
        await memory._services.store.write(lambda unit, one=one: unit.usage.add("default", one), at=None)


def day(offset: int = 0) -> str:
    return (datetime.now(UTC) + timedelta(days=offset)).date().isoformat()


def test_usage_is_shown_by_day_space_and_purpose(cli: CommandLine) -> None:
    """V12: with the share that we had to estimate, and a line for all of it."""
    spend(
        cli,
        UsageRow("user:ada", day(), Purpose.REVIEW, 2, 1500, 100),
        UsageRow("user:ada", day(-1), Purpose.RECALL, 1, 300, 100, estimated=100),
        UsageRow("user:ada", day(-30), Purpose.RECALL, 1, 1, 1),
        UsageRow("user:bob", day(), Purpose.RECALL, 1, 7, 7),
    )
    header, *rows = cli("usage").out.splitlines()
    assert header.split("  ")[0] == "DAY"
    assert [row.split() for row in rows] == [
        [day(), "user:ada", "review", "2", "1,500", "100"],
        [day(-1), "user:ada", "recall", "1", "300", "100", "25%"],
        ["all", "3", "1,800", "200", "5%"],
    ]
    assert len(cli("usage", "--days", "60", "--json").lines) == 3
    assert {line["space"] for line in cli("usage", "--all", "--json").lines} == {"user:ada", "user:bob"}
    assert len(cli("usage", "--json", space=None).lines) == 3


def test_usage_is_held_against_the_limit(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """V12: it says when models pause."""
    spend(cli, UsageRow("user:ada", day(), Purpose.REVIEW, 2, 1500, 100))
    monkeypatch.setenv("AFTERTURN_TOKENS_PER_DAY_MAX", "1000")
    out = cli("usage").out
    assert out.endswith("\nuser:ada has used 1,600 of today's 1,000 tokens; models are paused until tomorrow.\n")
    monkeypatch.setenv("AFTERTURN_TOKENS_PER_DAY_MAX", "2000")
    assert cli("usage").out.endswith("has used 1,600 of today's 2,000 tokens.\n")


def test_where_no_model_was_asked_usage_says_so(cli: CommandLine) -> None:
    """V12: it is no error."""
    cli.add("The user drinks green tea")
    assert (cli("usage").code, cli("usage").out) == (0, "No model was called in the last 7 days.\n")


def test_an_invalid_review_id_is_called_one_and_the_message_names_its_list(cli: CommandLine) -> None:
    talk(cli, SAID)
    expected = "'zzz' is not a valid review id. Copy one from `afterturn review log`."
    assert all(expected in cli("review", command, "zzz").err for command in ("show", "undo"))
