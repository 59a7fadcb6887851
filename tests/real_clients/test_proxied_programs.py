"""aider from PyPI and Vercel's AI SDK from npm, with a memory through the proxy, against the scripted model server."""

from pathlib import Path

import pytest

from afterturn import blocking
from afterturn.config import Config
from afterturn.hosts.server.grant import make_grant
from afterturn.hosts.server.tokens import create_token
from afterturn.types import Filter, Kind
from lab.clients.model_server import Call, ModelServer, Rule, Say, follow
from lab.clients.proxied import run_ai_sdk, run_aider, served

pytestmark = pytest.mark.clients

SAID = "My cat Miso is allergic to chicken."
ASKED = "What food is my cat Miso allergic to?"
LINE = "Miso is allergic to chicken"
RULES = (
    Rule("chicken", (Say("Noted."),)),
    Rule("What food", (Call("look_up", {"what": "cats"}), Call("look_up", {"what": "soup"}), Say("No chicken."))),
)


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFTERTURN_STATE", str(tmp_path / "state"))


def make_token(conversation: str | None = None) -> str:
    grant = make_grant(Config(), space="user:ada", conversation=conversation)
    return create_token(grant, name=f"for {conversation}")[1]


def recorded(folder: Path) -> str:
    with blocking.open(folder / "memory.db", {"embedder": "none", "background": False}) as memory:
        return "\n".join(one.text for one in memory.space("user:ada").list(filter=Filter(kind=Kind.RECORD), limit=100))


def test_aider_remembers_what_was_said_in_another_conversation(tmp_path: Path):
    """It can set a base URL and a key: its key is a token for one conversation, and the server has the provider's."""
    (tmp_path / "key").write_text("sk-server\n")
    with ModelServer(follow([RULES[0]], otherwise="No chicken.")) as model:
        first, second = make_token("aider-monday"), make_token("aider-tuesday")
        options = [f"--upstream=openai={model.url}/v1", f"--upstream-key=openai={tmp_path / 'key'}"]
        with served(tmp_path, *options) as url:
            assert "Noted." in run_aider(url, first, tmp_path, SAID)
            assert "No chicken." in run_aider(url, second, tmp_path, ASKED)
    assert LINE not in model.requests[0].text.replace(SAID, "")
    (asked,) = [request for request in model.requests if ASKED in request.text]
    assert LINE in asked.text
    assert {part.role for part in asked.parts if "afterturn-" in part.text} == {"user"}
    assert {request.headers["authorization"] for request in model.requests} == {"Bearer sk-server"}
    said = recorded(tmp_path)
    assert SAID in said
    assert "No chicken." in said


@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
def test_ai_sdk_conversations_with_tools_share_a_memory(tmp_path: Path, api: str):
    """Two texts of one conversation, the second streamed, and then another conversation."""
    with ModelServer(follow(RULES)) as model:
        token = make_token()
        with served(tmp_path, f"--upstream=openai={model.url}", f"--upstream=anthropic={model.url}") as url:

            def talk(conversation: str, *texts: str) -> list:
                headers = {"x-afterturn-token": token, "x-afterturn-conversation": conversation}
                return run_ai_sdk(f"{url}/v1", headers, api, texts, tmp_path)

            answers = talk("monday", SAID, "And chicken soup?")
            assert [one["said"] for one in answers] == ["Noted.", "Noted."]
            assert talk("tuesday", ASKED) == [{"said": "No chicken.", "calls": ["cats", "soup"]}]
            assert talk("wednesday", "Hello!", ASKED)[1] == {"said": "No chicken.", "calls": ["cats", "soup"]}
    asked = [request for request in model.requests if ASKED in request.text]
    assert len(asked) == 6
    assert [request.count(LINE) for request in asked] == [1] * 6
    key = "x-api-key" if api == "messages" else "authorization"
    assert all("sk-client" in request.headers[key] for request in model.requests)
    said = recorded(tmp_path)
    assert "And chicken soup?" in said
    assert said.count(ASKED) == 2
