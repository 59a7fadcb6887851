"""The commands of docs/proxy.md, as a reader would paste them, against the scripted model server."""

import subprocess
from pathlib import Path

import pytest
from proxy_world import make_token

from lab.clients.model_server import ModelServer, follow
from lab.clients.proxied import served
from test_docs import ROOT, fences_of

SERVED = "http://127.0.0.1:7433"


def run(command: str, url: str, token: str) -> str:
    assert SERVED in command
    keys = {"TOKEN": token, "OPENAI_API_KEY": "sk-openai", "ANTHROPIC_API_KEY": "sk-ant", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        ["bash", "-c", command.replace(SERVED, url)], env=keys, capture_output=True, text=True, timeout=100, check=True
    )
    return done.stdout


@pytest.mark.standing
def test_the_commands_of_the_page_show_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AFTERTURN_STATE", str(tmp_path / "state"))
    page = (ROOT / "docs" / "proxy.md").read_text(encoding="utf-8")
    first, second = [fence.body for fence in fences_of(page) if fence.language == "sh"]
    token = make_token()
    with ModelServer(follow((), otherwise="Noted.")) as model:
        upstreams = [f"--upstream=openai={model.url}/v1", f"--upstream=anthropic={model.url}"]
        with served(tmp_path, *upstreams) as url:
            assert '"Noted."' in run(first, url, token)
            answer = run(second, url, token)
    assert answer.startswith("HTTP/1.1 200 OK")
    assert "\nx-afterturn-lines: 1" in answer
    assert "\nx-afterturn-turn: " in answer
    said, asked = model.requests
    assert said.headers["authorization"] == "Bearer sk-openai"
    assert asked.headers["x-api-key"] == "sk-ant"
    assert asked.count("allergic to chicken") == 1
