"""`afterturn helper`, `pause`, `resume` and what `doctor` says about hooks."""

import json
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hooked import Hooks

from afterturn.hosts.hooks import client as script
from afterturn.hosts.hooks import control
from afterturn.hosts.projects import find_project


def command(hooks: Hooks, *arguments: str) -> Any:
    """The output of `afterturn … --json` as this user, in the folder of the project."""
    program = "import sys; from afterturn.hosts.cli.app import run; sys.exit(run(sys.argv[1:]))"
    environment = {**hooks.environment, "PYTHONPATH": ":".join(path for path in sys.path if path)}
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments, "--json"],
        env=environment,
        cwd=hooks.project,
        capture_output=True,
        timeout=60,
        check=True,
    )
    return json.loads(done.stdout)


def test_the_helper_is_shown_and_stopped(hooks: Hooks) -> None:
    assert command(hooks, "helper") == {"paused": False, "paused_projects": [], "helpers": []}
    pid = hooks.warm().pid
    (found,) = command(hooks, "helper", "status")["helpers"]
    assert (found["pid"], found["served"] > 0, found["failed"]) == (pid, True, 0)
    assert command(hooks, "helper", "stop") == {"stopped": 1}
    assert command(hooks, "helper", "status")["helpers"] == []
    assert command(hooks, "helper", "stop") == {"stopped": 0}


def test_a_helper_of_another_version_is_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It may say more than this version knows."""
    monkeypatch.setenv("AFTERTURN_STATE", str(tmp_path))
    status = {"pid": 7, "version": "9.9", "served": 2, "failed": 1, "waiting": 3}

    def answer() -> None:
        connection, _ = server.accept()
        with connection:
            while connection.recv(4096):
                pass
            connection.sendall(json.dumps(status).encode())

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(tmp_path / "hooks-x.sock"))
        server.listen()
        answering = threading.Thread(target=answer)
        answering.start()
        try:
            assert control.running_helpers() == [control.HelperStatus("hooks-x", 7, "9.9", 2, 1)]
        finally:
            answering.join()


def test_after_uninstall_no_helper_is_left(hooks: Hooks) -> None:
    hooks.warm()
    command(hooks, "uninstall", "claude-code")
    assert command(hooks, "helper")["helpers"] == []


def test_a_helper_that_is_being_started_is_stopped_too(hooks: Hooks) -> None:
    hooks.run("claude-code", "Stop", "s", last_assistant_message="x")
    assert hooks.stop() == 1
    assert command(hooks, "helper")["helpers"] == []


def test_the_log_shows_what_was_refused(hooks: Hooks) -> None:
    hooks.warm()
    hooks.send("codex", "Stop", b"not json")
    assert any("refused" in line for line in command(hooks, "helper", "log")["lines"])


def test_hooks_are_paused_and_resumed(hooks: Hooks) -> None:
    assert command(hooks, "pause") == {"paused": True}
    assert command(hooks, "helper")["paused"] is True
    assert command(hooks, "resume") == {"paused": False}
    assert command(hooks, "helper")["paused"] is False


def test_the_hooks_of_one_project_are_paused_and_resumed(hooks: Hooks) -> None:
    space = find_project(hooks.project).space
    assert command(hooks, "pause", "--project") == {"paused": True, "project": space}
    assert command(hooks, "helper") == {"paused": False, "paused_projects": [space], "helpers": []}
    (listed,) = command(hooks, "project", "list")
    assert listed == {"space": space, "folder": str(hooks.project), "into": None, "paused": True}
    assert command(hooks, "resume", "--project") == {"paused": False, "project": space}
    assert command(hooks, "helper")["paused_projects"] == []


def test_doctor_shows_what_hooks_could_not_do(hooks: Hooks) -> None:
    hooks.warm()
    script.note_failure(str(hooks.state), "claude-code Stop: OSError: no space left")
    with open(hooks.state / "hook-failures.log", "a", encoding="utf-8") as log:
        log.write("1000000000 claude-code Stop: OSError: long ago\n")
    findings = command(hooks, "doctor")["findings"]
    assert not [one for one in findings if "long ago" in one["message"]]
    assert [one["level"] for one in findings if "no space left" in one["message"]] == ["warning"]
