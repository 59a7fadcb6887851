"""Maintenance commands: trace, stats, doctor, worker, config; and output on a terminal."""

from __future__ import annotations

import json
import os
import pty
import signal
from contextlib import closing, suppress
from typing import TYPE_CHECKING

import apsw
import pytest

from afterturn import blocking

if TYPE_CHECKING:
    from tests.hosts.conftest import CommandLine


def have_a_turn(cli: CommandLine, conversation: str) -> None:
    with blocking.open(cli.store, {"background": False}) as memory:
        messages = [{"role": "user", "content": "Which tea should I buy for Ada?"}]
        with memory.conversation(conversation, user="ada").turn(messages) as turn:
            turn.inject(messages, within=5)
            messages.append({"role": "assistant", "content": "Oolong, as always."})
        assert turn.wait_recorded()


def test_trace_shows_a_turn_from_recall_to_recording(cli: CommandLine) -> None:
    cli.add("Ada prefers oolong tea to coffee")
    have_a_turn(cli, "support-42")
    out = cli("trace").out
    told = [line.split("  ")[1] for line in out.splitlines() if line[:1].isdigit() and line[2] == ":"]
    assert [name for name in told if name in ("recall started", "handed over", "recorded")] == [
        "recall started",
        "handed over",
        "recorded",
    ]
    assert "conversation support-42" in out
    assert "long term 1" in out


def test_a_narrow_terminal_cuts_texts_and_never_ids(cli: CommandLine) -> None:
    known = cli.add("Ada prefers " + "very " * 40 + "hot tea")
    _, shown = cli.on_a_terminal("list", environment={"COLUMNS": "60", "NO_COLOR": "1"})
    (row,) = [line for line in shown.splitlines() if line.startswith(known)]
    assert (len(row) <= 60, row.endswith("…")) == (True, True)


def test_trace_gives_json_lines_of_one_conversation(cli: CommandLine) -> None:
    cli.add("Ada prefers oolong tea to coffee")
    for conversation in ("one", "two"):
        have_a_turn(cli, conversation)
    events = cli("trace", "--conversation", "two", "--json").lines
    assert {event["conversation"] for event in events} == {"two"}
    assert all(event["at"].endswith("Z") for event in events)


def test_trace_of_a_quiet_space_says_so(cli: CommandLine) -> None:
    cli.add("tea")
    assert cli("trace", space="user:nobody").out == "There are no events yet.\n"


def test_recorded_messages_are_listed_and_found_with_their_speaker(cli: CommandLine) -> None:
    """C1: a completed turn's messages are recorded, one record each."""
    cli.add("unrelated")
    have_a_turn(cli, "support-42")
    rows = cli("list", "--kind", "record").out.splitlines()[1:]
    assert [row.split("  ")[-1].strip() for row in rows] == ["Oolong, as always.", "Which tea should I buy for Ada?"]
    assert all("support-42" in row for row in rows)
    lanes = {hit["lane"] for hit in cli("search", "oolong", "--json").json["hits"]}
    assert lanes == {"episodic"}


def test_stats_count_the_store_and_the_space(cli: CommandLine) -> None:
    cli.add("tea")
    numbers = cli("stats", "--json").json
    assert numbers["space"]["entries"] == {"statement.active": 1}
    assert numbers["store"]["size_bytes"] > 0
    cli("delete", cli.add("coffee"))
    shown = cli("stats").out
    assert shown.count("holds     1 statement\nalso      1 deleted statement\n") == 1
    assert "space  user:ada\nholds  1 statement\nalso   1 deleted statement\n" in shown
    assert "jobs      1 waiting\nturns     all recorded\nembedder  static; 1 entry waits for its vector\n" in shown


def test_stats_count_the_whole_store(cli: CommandLine) -> None:
    for space in ("user:ada", "user:bob"):
        cli("add", "tea", space=space)
    cli("add", "tea", "--tenant", "another")
    store = cli("stats", "--json", space=None).json["store"]
    assert (store["spaces"], store["entries"]) == (2, {"statement.active": 2})


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_printed(cli: CommandLine, shell: str) -> None:
    assert f"_AFTERTURN_COMPLETE={shell}_complete" in cli("completion", shell).out
    assert cli("completion", shell, "--json").json["shell"] == shell


def test_commands_and_options_are_completed(cli: CommandLine) -> None:
    words = {"_AFTERTURN_COMPLETE": "bash_complete", "COMP_WORDS": "afterturn list --sin", "COMP_CWORD": "2"}
    out, _ = cli.child(environment=words).communicate(timeout=60)
    assert out.decode().split() == ["plain,--since"]


def test_stats_need_no_space(cli: CommandLine) -> None:
    cli.add("tea")
    answer = cli("stats", "--json", space=None)
    assert list(answer.json) == ["store"]


def test_doctor_finds_a_healthy_store_well(cli: CommandLine) -> None:
    cli.add("tea")
    answer = cli("doctor", "--json", space=None)
    assert (answer.code, answer.json["healthy"]) == (0, True)
    assert {finding["level"] for finding in answer.json["findings"]} == {"ok"}


def test_doctor_prints_level_subject_and_message(cli: CommandLine) -> None:
    cli.add("tea")
    rows = cli("doctor").out.splitlines()
    assert rows
    assert all(row.startswith("ok  ") for row in rows)


def test_doctor_reports_a_damaged_store_with_exit_code_1(cli: CommandLine) -> None:
    cli.store.write_text("a shopping list\n" * 1_000)
    answer = cli("doctor")
    assert (answer.code, answer.err) == (1, "")
    assert answer.out.startswith("error  store  ")


def test_a_worker_does_what_there_is_to_do_once(cli: CommandLine) -> None:
    """C8: jobs are finished by whichever process opens the store to do them."""
    cli.add("tea")
    assert cli("stats", "--json").json["store"]["jobs"] == {"ready": 1}
    answer = cli("worker", "--once")
    done = "All jobs are done: 1 done here, 0 failed attempts. 0 waiting, 0 running, 0 dead.\n"
    assert (answer.code, answer.out) == (0, done)
    assert cli("stats", "--json").json["store"]["jobs"] == {}


def test_a_worker_says_in_json_what_it_did(cli: CommandLine) -> None:
    cli.add("tea")
    counts = {"waiting": 0, "running": 0, "dead": 0}
    assert cli("worker", "--once", "--retry", "--json").json == {
        "retried": 0,
        "drained": True,
        **counts,
        "done": 1,
        "failed": 0,
    }
    assert cli("worker", "--status", "--json").json == counts


def test_a_worker_counts_the_jobs_of_all_tenants(cli: CommandLine) -> None:
    """C8: and runs them, whichever tenant the settings name."""
    cli.add("tea")
    assert cli("worker", "--status", "--tenant", "acme").out == "1 waiting, 0 running, 0 dead.\n"
    assert cli("worker", "--once", "--json", "--tenant", "acme").json["done"] == 1
    assert cli("stats", "--json").json["store"]["jobs"] == {}


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_stops_cleanly_on_a_signal(cli: CommandLine, stop: signal.Signals) -> None:
    ours, theirs = pty.openpty()
    with cli.child("worker", stderr=theirs) as child:
        os.close(theirs)
        assert os.read(ours, 1_000).startswith(b"Working.")
        child.send_signal(stop)
        out, _ = child.communicate()
    os.close(ours)
    stopped = b"Stopped: 0 done here, 0 failed attempts. 0 waiting, 0 running, 0 dead.\n"
    assert (child.returncode, out) == (0, stopped)


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_waits_for_others_jobs_stops_on_a_signal(cli: CommandLine, stop: signal.Signals) -> None:
    """With --once, too."""
    cli.add("tea")
    with closing(apsw.Connection(str(cli.store))) as other:
        other.execute("UPDATE job SET state = 'leased', owner = 'another', leased_until = 4000000000")
    ours, theirs = pty.openpty()
    with cli.child("worker", "--once", stderr=theirs) as child:
        os.close(theirs)
        shown = b""
        while b"Working" not in shown:
            shown += os.read(ours, 1_000)
        child.send_signal(stop)
        # A terminal that nobody reads would stop the progress bar, and so the worker.
        with suppress(OSError):
            while os.read(ours, 1_000):
                pass
        out, _ = child.communicate()
    os.close(ours)
    assert (child.returncode, out[:9]) == (0, b"Stopped: ")
    assert b"1 running" in out


def test_config_show_prints_the_source_of_each_value(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    file = cli.folder / "config.toml"
    file.write_text("grace = 0.5\ntenant = 'north'\n")
    monkeypatch.setenv("AFTERTURN_CONFIG", str(file))
    monkeypatch.setenv("AFTERTURN_TENANT", "south")
    shown = cli("config", "show", "--json").json
    assert shown["store"] == {"value": str(cli.store), "from": "argument"}
    assert shown["tenant"] == {"value": "south", "from": "AFTERTURN_TENANT"}
    assert shown["grace"] == {"value": 0.5, "from": str(file)}
    assert shown["recall"] == {"value": True, "from": "default"}


def test_config_show_hides_a_password(cli: CommandLine) -> None:
    shown = cli("--store", "postgresql://ada:hunter22@db/memory", "config", "show").out
    assert "postgresql://ada:***@db/memory" in shown
    assert "hunter22" not in shown


@pytest.mark.parametrize("form", [(), ("--json",)], ids=["table", "json"])
@pytest.mark.parametrize("url", ["https://host/v1", "https://ada:hunter22@host/v1", "https://ada:hunter22@[host/v1"])
def test_config_show_hides_the_models_key(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, form: tuple[str, ...], url: str
) -> None:
    monkeypatch.setenv("AFTERTURN_MODEL_KEY", "sk-hunter22")
    monkeypatch.setenv("AFTERTURN_MODEL_URL", url)
    shown = cli("config", "show", *form).out
    assert "***" in shown
    assert "hunter22" not in shown


def test_config_path_and_schema(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFTERTURN_CONFIG", str(cli.folder / "mine.toml"))
    assert cli("config", "path").out == f"{cli.folder / 'mine.toml'}\n"
    assert cli("config", "path", "--json").json == {"path": str(cli.folder / "mine.toml"), "exists": False}
    assert cli("config", "schema").json["properties"]["grace"]["default"] == 0.2


def test_forget_asks_on_a_terminal_and_takes_no_for_an_answer(cli: CommandLine) -> None:
    known = cli.add("tea")
    code, shown = cli.on_a_terminal("forget", known, keys=b"n\n")
    assert code == 1
    assert "This will erase 1 entry of user:ada permanently. Continue?" in shown
    assert "Nothing was changed." in shown
    assert known in cli("list").out


def test_forget_erases_when_the_answer_is_yes(cli: CommandLine) -> None:
    known = cli.add("tea")
    code, shown = cli.on_a_terminal("forget", known, keys=b"y\n")
    assert (code, "1 entry erased." in shown) == (0, True)
    assert cli("list").out == "Nothing found.\n"


def test_progress_is_shown_on_a_terminal_and_keeps_off_stdout(cli: CommandLine) -> None:
    file = cli.folder / "notes.jsonl"
    file.write_text("".join(json.dumps({"text": f"note {number}"}) + "\n" for number in range(1_000)))
    out = cli.folder / "out.txt"
    with out.open("wb") as stdout:
        _, shown = cli.on_a_terminal("import", str(file), stdout=stdout)
    assert "Importing" in shown
    assert "1000/1000" in shown
    assert out.read_text().startswith("1,000 memories imported into user:ada\n")
