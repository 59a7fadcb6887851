"""The processes of hooks: the script never fails, one helper is started, it ends, and nothing is lost."""

import contextlib
import itertools
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
from hooked import WITHIN, Hooks, wait_for

from afterturn import blocking
from afterturn.errors import InvalidFile
from afterturn.hosts.hooks import client as script
from afterturn.hosts.hooks import control
from afterturn.hosts.hooks.clients import hook_arguments
from afterturn.hosts.projects import note_project, set_paused
from afterturn.hosts.state import open_state_folder
from lab.patched_helper import start_patched_helper

PROMPT = json.dumps({"session_id": "s", "prompt": "What is my cat called?"}).encode()


def is_gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def learn(hooks: Hooks, text: str) -> None:
    with blocking.open(hooks.store, {"embedder": "none"}) as memory:
        memory.space("user:ada").add(text)


def test_trap_9_the_script_imports_nothing_but_a_few_parts_of_the_standard_library(hooks: Hooks) -> None:
    """A hook is a new process each time, so its cost is its start."""
    hooks.warm()
    program, *options = hook_arguments("claude-code", "UserPromptSubmit")
    command = [program, "-X", "importtime", *options]
    done = subprocess.run(command, input=PROMPT, env=hooks.environment, capture_output=True, check=True, timeout=60)
    modules = {line.rpartition("|")[2].strip() for line in done.stderr.decode().splitlines()}
    assert "posixpath" in modules
    assert modules & {"afterturn", "json", "re", "enum", "socket", "subprocess", "asyncio", "typing", "site"} == set()


def test_without_a_helper_a_prompt_is_answered_by_words_and_not_lost(hooks: Hooks) -> None:
    """The first prompt starts the helper, does not wait for it, and is recorded by it."""
    learn(hooks, "Ada's cat is called Miso")
    assert "Miso" in hooks.ask("claude-code", "s", "What is my cat called?")
    hooks.warm()
    hooks.answer("claude-code", "s", "Your cat is called Miso, as you said.")
    assert hooks.has("What is my cat called?")
    assert hooks.has("Your cat is called Miso, as you said.")


def test_the_helper_removes_typed_sentences_that_no_call_took(hooks: Hooks) -> None:
    folder = hooks.state / "typed-statements"
    folder.mkdir(parents=True, mode=0o700)
    for name in ("0" * 64, "1" * 64):
        (folder / name).write_text("{}")
    os.utime(folder / ("0" * 64), (0, 0))
    hooks.warm()
    wait_for(lambda: not (folder / ("0" * 64)).exists())
    assert (folder / ("1" * 64)).exists()


def test_a_hundred_hooks_at_once_start_one_helper_and_lose_nothing(hooks: Hooks) -> None:
    started = []
    for number in range(100):
        said = f"Number {number} on my list is item-{number}."
        payload = {"session_id": f"s{number}", "prompt": said, "submitted_prompt": said}
        started.append(hooks.start("qwen-code", "UserPromptSubmit", json.dumps(payload).encode()))
    for process in started:
        assert hooks.end(process) is not None
    hooks.warm()
    assert len(list(hooks.state.glob("*.lock"))) == 2  # the helper's, and that of the list of projects
    ended = [
        hooks.start(
            "qwen-code", "Stop", json.dumps({"session_id": f"s{n}", "last_assistant_message": f"ok-{n}"}).encode()
        )
        for n in range(100)
    ]
    for process in ended:
        assert hooks.end(process) == {}
    hooks.stop()
    recorded = hooks.texts()
    assert {f"Number {number} on my list is item-{number}." for number in range(100)} <= set(recorded)
    assert {f"ok-{number}" for number in range(100)} <= set(recorded)


def test_an_idle_helper_ends(tmp_path: Path) -> None:
    hooks = Hooks(tmp_path)
    helper = start_patched_helper(os.environ | hooks.environment, "afterturn.hosts.hooks.daemon.IDLE_TIMEOUT", 1)
    with hooks.entered():
        assert wait_for(lambda: next(iter(control.running_helpers()), None)).pid == helper.pid
    assert helper.wait(WITHIN) == 0
    assert list(hooks.state.glob("*.sock")) == []
    assert hooks.stop() == 0


def test_a_stopped_helper_leaves_no_process_and_no_socket(hooks: Hooks) -> None:
    pid = hooks.warm().pid
    assert hooks.stop() == 1
    wait_for(lambda: is_gone(pid))
    assert list(hooks.state.glob("*.sock")) == []


def test_after_a_crash_the_next_hook_starts_another_helper(hooks: Hooks) -> None:
    """A socket and a lock file that were left behind are no obstacle."""
    learn(hooks, "Ada's cat is called Miso")
    first = hooks.warm().pid
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: is_gone(first))
    assert len(list(hooks.state.glob("*.sock"))) == 1
    assert "Miso" in hooks.ask("claude-code", "s", "What is my cat called?")
    assert hooks.warm().pid != first


def test_a_turn_that_a_crash_interrupted_is_recorded_as_tainted(hooks: Hooks, tmp_path: Path) -> None:
    """G2b: the events of the first helper are not known, so anything may have been read."""
    hooks.warm()
    hooks.ask("claude-code", "s", "What does the page say about ospreys?", prompt_id="p1")
    first = hooks.warm().pid
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: is_gone(first))
    hooks.warm()
    transcript = tmp_path / "s.jsonl"
    transcript.write_text(json.dumps({"type": "user", "message": {"content": "What does the page say about ospreys?"}}))
    hooks.answer("claude-code", "s", "Ospreys dive from thirty meters.", transcript_path=str(transcript))
    hooks.stop()
    with blocking.open(hooks.store, {"embedder": "none"}, background=False) as memory:
        found = [one for one in memory.space("user:ada").list(limit=50) if one.text.startswith("Ospreys")]
    assert [entry.is_report for entry in found] == [True]


def test_a_helper_whose_package_changed_starts_again(hooks: Hooks, tmp_path: Path) -> None:
    """The settings file stands for any file that it was started with."""
    config = tmp_path / "config.toml"
    config.write_text("hook_notice = false\nstanding_chars_max = 0\n")
    hooks.environment["AFTERTURN_CONFIG"] = str(config)
    before = hooks.warm()
    hooks.tell("claude-code", "Please remember that the parrot is called Kiwi.")
    config.write_text("hook_notice = true\nstanding_chars_max = 0\n")
    wait_for(lambda: "start" in hooks.log())
    hooks.warm()
    asked = wait_for(lambda: hooks.run("claude-code", "UserPromptSubmit", "s2", prompt="What is the parrot called?"))
    assert before.pid > 0
    assert "systemMessage" in asked


def test_the_user_is_shown_what_a_review_has_saved(hooks: Hooks) -> None:
    """V7: one line at the next prompt, in a client that shows lines, and once."""
    hooks.environment["AFTERTURN_REVIEW_VERBOSE"] = "true"
    hooks.warm()
    hooks.tell("claude-code", "I always use pnpm instead of npm.")
    hooks.run("opencode", "UserPromptSubmit", "s1", prompt="Hello there, what shall we do?")
    sessions = map(str, itertools.count())

    def shown() -> str:
        asked = hooks.run("codex", "UserPromptSubmit", next(sessions), prompt="Which package manager do I use?")
        return str(asked.get("systemMessage", ""))

    saved = "afterturn: Saved 1 memory from your last conversation. `afterturn review log` lists it."
    assert wait_for(shown) == saved
    assert shown() == ""


def test_another_installation_is_served_without_a_restart(hooks: Hooks) -> None:
    """Two installations would make each other's helper start again at every event."""
    served = hooks.warm().served
    (name,) = [path.name for path in hooks.state.glob("*.sock")]
    request = b"\0".join([script.PROTOCOL, b"another version", b"codex", b"Stop", b"/", b"", b'{"session_id": "s"}'])
    folder = os.open(hooks.state, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(f"/proc/self/fd/{folder}/{name}")
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(100) == b"={}"
    os.close(folder)
    assert hooks.warm().served > served


def test_only_the_owner_can_reach_the_helper(hooks: Hooks) -> None:
    """Folder and socket have the modes of private files, and the peer's user is checked."""
    hooks.warm()
    assert stat.S_IMODE(hooks.state.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) & 0o077 for path in hooks.state.iterdir()}
    assert {name for name, others in modes.items() if others} == set()


def test_a_process_of_another_user_gets_no_answer(hooks: Hooks) -> None:
    """Even if somebody opens the folder and the socket. Only root can try it; anybody else asks as themselves."""
    hooks.warm()
    (path,) = hooks.state.glob("*.sock")
    folders = [folder for folder in path.parents if Path(tempfile.gettempdir()) in folder.parents]
    modes = {opened: stat.S_IMODE(opened.stat().st_mode) for opened in (path, *folders)}
    for opened in modes:
        opened.chmod(0o777)
    program = (
        "import os, socket, sys, contextlib\n"
        "with contextlib.suppress(PermissionError): os.setuid(65534)\n"
        "connection = socket.socket(socket.AF_UNIX); connection.connect(sys.argv[1]); answer = b''\n"
        "with contextlib.suppress(OSError):\n"
        "    connection.sendall(b'afterturn-helper status'); connection.shutdown(1); answer = connection.recv(1000)\n"
        "print(os.getuid(), len(answer))"
    )
    try:
        done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, check=True, timeout=60)
    finally:
        for opened, mode in modes.items():
            opened.chmod(mode)
    uid, size = map(int, done.stdout.split())
    assert (uid == os.getuid()) is (size > 0)


@pytest.mark.parametrize(
    "payload",
    [
        b"not json",
        b"[1, 2]",
        b'{"session_id": 7, "prompt": "x"}',
        b'{"session_id": "s", "prompt": {"a": 1}}',
        b'{"session_id": "s", "prompt": "' + b"x" * 1_100_000 + b'"}',
        b"[" * 100_000,
        b"\xff\xfe\x00",
    ],
    ids=["no json", "a list", "a number", "an object", "a megabyte", "deep", "bytes"],
)
def test_hostile_payloads_are_refused_with_one_line(warm: Hooks, payload: bytes) -> None:
    """One line at most: the log repeats no line for some time."""
    before, lines = warm.warm().failed, len(warm.log().splitlines())
    assert warm.send("claude-code", "UserPromptSubmit", payload) == {}
    assert warm.warm().failed == before + 1
    assert len(warm.log().splitlines()) <= lines + 1
    assert "an event was refused" in warm.log()


def test_a_transcript_outside_of_what_a_client_writes_is_not_read(warm: Hooks, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text('{"type": "assistant", "message": {"content": "the words of a private file"}}')
    (tmp_path / "link.jsonl").symlink_to(secret)
    for path in (secret, tmp_path / "link.jsonl", Path("/etc/passwd"), Path("/dev/zero"), tmp_path):
        warm.ask("claude-code", f"s{path.name}", "What does the file say?")
        assert warm.run("claude-code", "Stop", f"s{path.name}", transcript_path=str(path)) == {}
    assert "the words of a private file" not in warm.texts()
    assert "the transcript is not read" in warm.log()


def test_a_payload_of_many_megabytes_is_answered_with_nothing(warm: Hooks) -> None:
    assert warm.send("claude-code", "UserPromptSubmit", b" " * (script.PAYLOAD_BYTES_MAX + 1)) == {}
    with warm.entered():
        assert any("more than" in one.text for one in control.hook_failures())


def test_a_broken_store_never_reaches_the_agent(hooks: Hooks) -> None:
    """The client behaves as before; the failure is a line for `afterturn doctor`."""
    hooks.store.write_bytes(b"this is not a database, " * 500)
    assert hooks.run("claude-code", "UserPromptSubmit", "s", prompt="What is my cat called?") == {}
    assert hooks.run("claude-code", "Stop", "s", last_assistant_message="I do not know.") == {}
    with hooks.entered():
        wait_for(lambda: any("helper cannot start" in one.text for one in control.hook_failures()))
        # So the next tool calls do not wait for a helper.
        wait_for(lambda: script.start_helper(str(hooks.state)) is False)


def test_a_state_folder_that_cannot_be_used_never_reaches_the_agent(hooks: Hooks) -> None:
    hooks.environment["AFTERTURN_STATE"] = "/proc/nowhere/state"
    assert hooks.run("claude-code", "UserPromptSubmit", "s", prompt="What is my cat called?") == {}


def test_a_relative_state_folder_is_not_used(hooks: Hooks) -> None:
    """It would be in the project, whose files somebody else may have written."""
    hooks.environment["AFTERTURN_STATE"] = "state"
    (hooks.project / "state").mkdir()
    assert hooks.run("claude-code", "UserPromptSubmit", "s", prompt="What is my cat called?") == {}
    assert list((hooks.project / "state").iterdir()) == []
    with hooks.entered(), pytest.raises(InvalidFile, match="not an absolute path"):
        control.pause_hooks()
    hooks.environment["AFTERTURN_STATE"] = str(hooks.state)


def test_an_event_that_a_hanging_helper_has_not_taken_is_not_lost(hooks: Hooks) -> None:
    pid = hooks.warm().pid
    os.kill(pid, signal.SIGSTOP)
    long = {"prompt": "Please read this list of numbers. " + "7 " * 400_000}
    assert hooks.run("claude-code", "UserPromptSubmit", "s", **long) == {}
    os.kill(pid, signal.SIGKILL)
    assert len(list(hooks.state.glob("*.queue/*"))) == 1


def test_a_helper_that_hangs_costs_a_hook_its_limit_at_most(hooks: Hooks) -> None:
    pid = hooks.warm().pid
    os.kill(pid, signal.SIGSTOP)
    try:
        assert hooks.run("claude-code", "UserPromptSubmit", "s", prompt="What is my cat called?") == {}
    finally:
        os.kill(pid, signal.SIGCONT)
    with hooks.entered():
        assert any("did not answer in time" in one.text for one in control.hook_failures())


def test_an_event_is_not_lost_if_the_limit_is_over_while_it_is_left_in_a_file(hooks: Hooks) -> None:
    """The alarm comes when the file is about to get its name."""
    program = (
        "import os, signal, sys\n"
        "from afterturn.hosts.hooks import client\n"
        "def interrupt(event, arguments):\n"
        "    if event == 'os.rename': signal.raise_signal(signal.SIGALRM)\n"
        "sys.addaudithook(interrupt)\n"
        "client.run_hook('claude-code', 'Stop')"
    )
    with hooks.entered():
        # No helper is started, which would take the file.
        (open_state_folder() / f"{script.helper_name()}.failed").touch()
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, input=b'{"session_id": "s"}', env=hooks.environment, capture_output=True, check=True, timeout=60
    )
    assert done.stdout == b"{}"
    assert [path.suffix for path in hooks.state.glob("*.queue/*")] == [""]


def test_paused_hooks_answer_and_record_nothing(hooks: Hooks) -> None:
    learn(hooks, "Ada's cat is called Miso")
    with hooks.entered():
        control.pause_hooks()
    assert hooks.ask("claude-code", "s", "What is my cat called?") == ""
    hooks.answer("claude-code", "s", "It is called Miso, I think.")
    with hooks.entered():
        assert control.running_helpers() == []
        assert control.resume_hooks()
    # In other sessions too: a hook leaves an agent that waits too long without an answer.
    sessions = itertools.chain(["s"], map(str, itertools.count()))
    assert wait_for(lambda: "Miso" in hooks.ask("claude-code", next(sessions), "What is my cat called?"))
    hooks.warm()
    assert "It is called Miso, I think." not in hooks.texts()


def test_hooks_that_are_paused_in_one_project_work_in_the_others(hooks: Hooks) -> None:
    """Without a helper and with one, in a folder of the project, and in the middle of a turn."""
    learn(hooks, "Ada's cat is called Miso")
    (hooks.project / ".git" / "objects").mkdir(parents=True)
    (hooks.project / ".git" / "HEAD").touch()
    (inner := hooks.project / "src").mkdir()
    (other := hooks.folder / "other").mkdir()
    with hooks.entered():
        set_paused(hooks.project, paused=True)
    assert hooks.ask("claude-code", "s1", "What is my cat called?", cwd=str(inner)) == ""
    hooks.answer("claude-code", "s1", "It is called Miso, I think.", cwd=str(inner))
    hooks.warm()
    assert hooks.ask("claude-code", "s2", "What is my cat called?") == ""
    assert "Miso" in hooks.ask("claude-code", "s3", "What is my cat called?", cwd=str(other))
    hooks.answer("claude-code", "s3", "Miso, as you said elsewhere.", cwd=str(other))
    with hooks.entered():
        set_paused(hooks.project, paused=False)
    assert "Miso" in hooks.ask("claude-code", "s4", "What is my cat called?")
    with hooks.entered():
        set_paused(hooks.project, paused=True)
    hooks.answer("claude-code", "s4", "Miso, as I said in the paused turn.")
    assert hooks.has("Miso, as you said elsewhere.")
    hooks.stop()
    assert not [text for text in hooks.texts() if "I think" in text or "paused turn" in text]


def test_the_helper_does_not_inherit_the_keys_of_the_agent(hooks: Hooks) -> None:
    hooks.environment["ANTHROPIC_API_KEY"] = "a-key"
    environment = psutil.Process(hooks.warm().pid).environ()
    assert "ANTHROPIC_API_KEY" not in environment
    assert environment["AFTERTURN_SPACE"] == "user:ada"


@pytest.mark.parametrize("name", ["hook-failures.log", "paused", "lock", "log", "projects.json.lock"])
def test_no_file_of_the_state_folder_is_written_through_a_link(hooks: Hooks, tmp_path: Path, name: str) -> None:
    """P1"""
    away = tmp_path / "away"
    with hooks.entered():
        folder = str(open_state_folder())
        (hooks.state / (f"{script.helper_name()}.{name}" if name in ("lock", "log") else name)).symlink_to(away)
        script.note_failure(folder, "a failure")
        earlier = psutil.Process().children()
        for write in (control.pause_hooks, lambda: script.start_helper(folder), lambda: note_project(tmp_path)):
            with contextlib.suppress(OSError):
                write()
    hooks.stop()
    for helper in psutil.Process().children():
        if helper not in earlier:
            helper.wait()
    assert not away.exists()


def test_a_linked_queue_is_neither_written_nor_emptied(hooks: Hooks, tmp_path: Path) -> None:
    """P1: an event that was read is deleted, so nothing behind a link is read."""
    away = tmp_path / "away"
    away.mkdir()
    (away / "mine").write_bytes(b"mine")
    with hooks.entered():
        folder = open_state_folder()
        (folder / f"{script.helper_name()}.queue").symlink_to(away)
        with pytest.raises(OSError, match="symbolic link"):
            script.put_in_queue(str(folder), b"{}")
    hooks.warm()
    hooks.stop()
    assert [path.name for path in away.iterdir()] == ["mine"]


def test_a_helper_whose_store_was_removed_opens_the_new_one(hooks: Hooks) -> None:
    """C4: it notices that when it reads, too, and no event is lost."""
    first = hooks.warm()
    hooks.tell("claude-code", "The boat is called Merle.")
    assert hooks.has("Merle")
    for file in hooks.folder.glob("memory.db*"):
        if file.is_file():
            file.unlink()
    assert "Merle" not in hooks.ask("claude-code", "asking", "What is the boat called?")
    hooks.answer("claude-code", "asking", "I do not know.")
    assert hooks.has("What is the boat called?")
    assert not [text for text in hooks.texts() if "Merle" in text]
    assert hooks.warm().pid == first.pid
    assert "the store's file was removed or replaced" in hooks.log()
