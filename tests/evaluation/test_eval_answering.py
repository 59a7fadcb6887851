"""`afterturn eval --answer` with a real server on loopback, which knows only its prompt."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterturn.evaluation.answering import contains, history, says_yes, token_f1
from afterturn.evaluation.datasets import Item
from afterturn.hosts.cli.app import run

SYSTEMS = {"no_memory", "full_history", "bm25", "afterturn"}
LINES = (
    ("user", "My sister Clara moved to Lisbon in spring."),
    ("assistant", "How nice for Clara."),
    ("user", "The piano went to Mabel."),
)
QUESTIONS = (("Where did my sister Clara move to?", "Lisbon"), ("To whom did the piano go?", "Mabel"))


class KnowingServer:
    """Says the one name that stands in its prompt. It takes no call in which `refused` stands."""

    def __init__(self) -> None:
        self.prompts: list[list[dict[str, str]]] = []
        self.refused = "nothing of the kind"
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> "KnowingServer":
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def reply(self, messages: list[dict[str, str]]) -> str:
        self.prompts.append(messages)
        asked = messages[-1]["content"]
        if "Given answer:" in asked:
            return "Yes." if asked.split("Given answer: ")[1].startswith(("Lisbon", "Mabel")) else "No."
        told = " ".join(message["content"] for message in messages)
        known = [answer for question, answer in QUESTIONS if answer in told and question == asked]
        return known[0] if known else "I do not know."

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                message = {"role": "assistant", "content": server.reply(body["messages"])}
                document = json.dumps({"choices": [{"index": 0, "finish_reason": "stop", "message": message}]}).encode()
                self.send_response(401 if server.refused in str(body["messages"]) else 200)
                self.send_header("content-length", str(len(document)))
                self.end_headers()
                self.wfile.write(document)

            def log_message(self, *words: object) -> None:
                """Says nothing."""

        return Handler


@pytest.fixture
def server() -> Iterator[KnowingServer]:
    with KnowingServer() as started:
        yield started


@pytest.fixture
def data(tmp_path: Path) -> Path:
    items = [
        {"id": str(at), "session": "s", "date": "8 May, 2023", "speaker": speaker, "text": text}
        for at, (speaker, text) in enumerate(LINES)
    ]
    questions: list[dict[str, Any]] = [
        {"qid": question, "question": question, "answer": answer, "category": "all", "evidence": ["0"]}
        for question, answer in QUESTIONS
    ]
    questions.append({"qid": "open", "question": "And?", "answer": None, "category": "all", "evidence": ["0"]})
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps([{"conv_id": "one", "items": items, "questions": questions}]), encoding="utf-8")
    return path


def test_each_question_with_an_answer_is_asked_in_four_ways(
    server: KnowingServer, data: Path, capsys: pytest.CaptureFixture[str]
):
    assert run(["eval", str(data), "--answer", "--model", server.url, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["tiny"]
    assert {name: figures["n"] for name, figures in found.items()} == dict.fromkeys(SYSTEMS, 2)
    assert {name: figures["contains"] for name, figures in found.items()} == {
        "no_memory": 0,
        "full_history": 1,
        "bm25": 1,
        "afterturn": 1,
    }
    assert found["no_memory"]["worse_than_ours"] == 2
    assert found["afterturn"]["replies"][0]["reply"] == "Lisbon"
    assert len(server.prompts) == 8


def test_the_same_model_judges_when_it_is_asked_to(
    server: KnowingServer, data: Path, capsys: pytest.CaptureFixture[str]
):
    assert run(["eval", str(data), "--answer", "--judge", "--model", server.url, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["tiny"]
    assert (found["afterturn"]["judged"], found["no_memory"]["judged"]) == (1, 0)


def test_a_history_that_does_not_fit_is_cut_and_the_report_says_so(
    server: KnowingServer, data: Path, capsys: pytest.CaptureFixture[str]
):
    assert run(["eval", str(data), "--answer", "--model", server.url, "--history-tokens", "30"]) == 0
    shown = capsys.readouterr().out
    assert "for 2 questions the oldest messages were left out" in shown
    assert "full_history was better than afterturn on 0 questions, and worse on 1" in shown


def test_a_model_that_takes_no_call_ends_the_run_with_its_error(
    server: KnowingServer, data: Path, capsys: pytest.CaptureFixture[str]
):
    server.refused = ""
    assert run(["eval", str(data), "--answer", "--model", server.url]) == 2
    assert "401" in capsys.readouterr().err


def test_questions_that_got_no_reply_are_counted_apart(
    server: KnowingServer, data: Path, capsys: pytest.CaptureFixture[str]
):
    server.refused = "## Relevant Memory"
    assert run(["eval", str(data), "--answer", "--model", server.url]) == 0
    shown = capsys.readouterr().out
    assert "afterturn: the model gave no reply to 2 questions" in shown
    assert "full_history: the model" not in shown


def test_without_a_model_the_error_names_the_option(data: Path, capsys: pytest.CaptureFixture[str]):
    assert run(["eval", str(data), "--answer"]) == 2
    assert "--model" in capsys.readouterr().err


def test_an_error_about_a_model_names_the_option(
    server: KnowingServer, data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """A message tells what to change: the option where there was one, else the setting."""
    assert run(["eval", str(data), "--answer", "--model", "nowhere"]) == 2
    monkeypatch.setenv("AFTERTURN_MODEL_URL", "nowhere")
    assert run(["eval", str(data), "--answer"]) == 2
    of_option, of_setting = capsys.readouterr().err.strip().splitlines()
    assert "--model is 'nowhere'" in of_option
    assert "model_url is 'nowhere'" in of_setting


def test_a_history_keeps_its_newest_lines_in_their_order():
    items = [Item(str(at), "s", "Ann", f"line {at}", at * 86_400.0) for at in range(20)]
    text, is_cut = history(items, 60)
    lines = text.splitlines()
    assert is_cut
    assert lines[-1] == "[1970-01-20] Ann: line 19"
    assert lines == sorted(lines)
    whole, is_cut = history(items, 10_000)
    assert (len(whole.splitlines()), is_cut) == (20, False)


@pytest.mark.parametrize(
    "reply,expected,f1",
    [("Lisbon", "lisbon", 1), ("In Lisbon, Portugal", "Lisbon", 0.5), ("the cat", "A cat!", 1), ("", "x", 0)],
)
def test_token_f1_is_the_one_of_question_answering(reply: str, expected: str, f1: float):
    assert token_f1(reply, expected) == pytest.approx(f1)


@given(first=st.text(), second=st.text())
def test_token_f1_is_a_share_and_does_not_mind_the_order(first: str, second: str):
    assert 0 <= token_f1(first, second) <= 1
    assert token_f1(first, second) == token_f1(second, first)


@pytest.mark.parametrize(
    "reply,expected,found",
    [
        ("It was Lisbon.", "Lisbon", True),
        ("Lisbonne", "Lisbon", False),
        ("7 May 2023", "7 May", True),
        ("x", "", False),
    ],
)
def test_an_answer_is_contained_word_by_word(reply: str, expected: str, found: bool):
    assert contains(reply, expected) is found


@pytest.mark.parametrize(
    "reply,yes", [("Yes", True), ("**Yes**, it does", True), ("No, yes", False), ("perhaps", False)]
)
def test_the_first_word_of_a_judge_decides(reply: str, yes: bool):
    assert says_yes(reply) is yes
