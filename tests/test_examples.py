"""The programs in examples/ run as they are, each in a process of its own, with servers on loopback only."""

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.api.server import serving
from tests.models.chat_server import ChatServer, answer

pytestmark = pytest.mark.standing

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
# No example may depend on how busy this machine is.
ENVIRONMENT = {**os.environ, "AFTERTURN_GRACE": "10"}
WITHIN = 100.0


def run(folder: Path, name: str, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        cwd=folder,
        env=ENVIRONMENT,
        input=stdin,
        capture_output=True,
        encoding="utf-8",
        timeout=WITHIN,
        check=False,
    )


def test_every_example_is_listed_and_says_how_to_run_it():
    listed = re.findall(r"\]\((\w+\.py)\)", (EXAMPLES / "README.md").read_text(encoding="utf-8"))
    assert sorted(listed) == sorted(path.name for path in EXAMPLES.glob("*.py"))
    for name in listed:
        assert f"python examples/{name}" in (EXAMPLES / name).read_text(encoding="utf-8").split('"""')[1]


def test_chat_loop_remembers_in_the_next_process(tmp_path: Path):
    monday = run(tmp_path, "chat_loop.py", "monday", stdin="My cat Miso is allergic to chicken.\n")
    tuesday = run(tmp_path, "chat_loop.py", "tuesday", stdin="What food is my cat allergic to?\n")
    assert monday.stdout == "Noted.\n", monday.stderr
    assert "My cat Miso is allergic to chicken." in tuesday.stdout, tuesday.stderr


def test_tools_are_called_and_the_proposal_is_approved(tmp_path: Path):
    done = run(tmp_path, "tools.py")
    assert done.returncode == 0, done.stderr
    assert "user: The staging database listens on port 5433" in done.stdout
    assert done.stdout.endswith("assistant: Staging listens on port 5433.\napproved: Staging is updated at noon\n")


@pytest.fixture
def chat_app(tmp_path: Path) -> Iterator[str]:
    """The address of the real server, on a free port."""
    command = [sys.executable, "-u", str(EXAMPLES / "fastapi_app.py"), "--port", "0", "--store", str(tmp_path / "m.db")]
    with subprocess.Popen(command, env=ENVIRONMENT, stderr=subprocess.PIPE, encoding="utf-8") as server:
        assert server.stderr is not None
        try:
            log = []
            for line in server.stderr:
                log.append(line)
                if found := re.search(r"running on (http://127\.0\.0\.1:\d+)", line):
                    yield found[1]
                    break
            else:
                pytest.fail("".join(log))
        finally:
            server.terminate()
            server.communicate(timeout=WITHIN)


def call(method: str, url: str, body: dict[str, str] | None = None) -> Any:
    request = urllib.request.Request(
        url, json.dumps(body).encode() if body else None, {"content-type": "application/json"}, method=method
    )
    with urllib.request.urlopen(request, timeout=WITHIN) as response:
        return json.load(response)


def test_fastapi_app_keeps_users_apart_and_forgets(chat_app: str):
    question = {"text": "What food is my cat allergic to?"}
    call("POST", f"{chat_app}/users/ada/chats/monday", {"text": "My cat Miso is allergic to chicken."})
    assert "allergic to chicken" in call("POST", f"{chat_app}/users/ada/chats/tuesday", question)["text"]
    assert call("POST", f"{chat_app}/users/bob/chats/tuesday", question) == {"text": "Noted."}
    assert "My cat Miso is allergic to chicken." in call("GET", f"{chat_app}/users/ada/memories")

    assert call("DELETE", f"{chat_app}/users/ada")["text"] in ("erased", "pending")
    assert call("GET", f"{chat_app}/users/ada/memories") == []
    assert question["text"] in call("GET", f"{chat_app}/users/bob/memories")


def test_a_turn_with_curl_gets_its_block_and_is_recorded(tmp_path: Path):
    """Twice, as somebody would try it: the second turn of the conversation sees the first one's words, too."""
    script = EXAMPLES / "http" / "turn.sh"
    with serving("--without", "pages") as server:
        known = {**os.environ, "MEMORY_URL": server.url, "AFTERTURN_TOKEN": server.demo_token("user:demo")}
        for _ in range(2):
            done = subprocess.run(
                ["sh", str(script)],
                env=known,
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=WITHIN,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
            remembered, started, inserted, finished, trace = map(json.loads, done.stdout.splitlines()[1::2])
            assert remembered["entry"]["text"] == "My cat Miso is allergic to chicken."
            assert started["status"] == "open"
            assert "Miso is allergic to chicken" in inserted["inserted"][0]["element"]["content"]
            assert finished["recorded"] is True
            assert [turn["id"] for turn in trace["turns"]] == [started["turn"]]
        refused = subprocess.run(
            ["sh", str(script)],
            env={**known, "AFTERTURN_TOKEN": "wrong"},
            capture_output=True,
            text=True,
            timeout=WITHIN,
            check=False,
        )
    assert refused.returncode != 0
    assert "A valid token is missing" in refused.stdout


def test_a_local_model_reviews_a_change_of_mind(tmp_path: Path):
    """The model's answers are scripted; the server, the calls and the review are real."""
    tea = {"text": "The user drinks tea", "target": "user", "messages": [1]}
    function = {"name": "add_memory", "arguments": json.dumps(tea)}
    added = answer(None, tool_calls=[{"id": "a", "type": "function", "function": function}])
    with ChatServer(added, answer("Nothing to save.")) as server:
        done = run(tmp_path, "review_with_local_model.py", "--url", server.url)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("+ The user drinks tea\n1 changes.")
    assert "I went back to tea after all." in json.dumps(server.received[0].body)


def test_without_a_model_server_the_review_says_what_to_do(tmp_path: Path):
    with ChatServer(answer()) as server:
        closed = server.url
    done = run(tmp_path, "review_with_local_model.py", "--url", closed)
    assert done.returncode == 1
    assert f"The model server {closed} can" in done.stderr
    assert "Traceback" not in done.stderr
