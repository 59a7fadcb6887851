"""Runs the real script of a hook, which starts a real helper, in folders of its own."""

import contextlib
import itertools
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from afterturn import blocking
from afterturn.hosts.hooks import control
from afterturn.hosts.hooks.clients import hook_arguments

_PROMPTS = {"gemini-cli": "BeforeAgent", "copilot": "userPromptSubmitted"}
_ENDS = {"gemini-cli": "AfterAgent", "copilot": "agentStop"}
_numbers = itertools.count(1)
WITHIN = 100


class Hooks:
    """One user with a state folder, a store and a project."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.folder = folder
        self.project = folder / "project"
        self.project.mkdir()
        self.state = folder / "state"
        self.store = folder / "memory.db"
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "AFTERTURN_STATE": str(self.state),
            "AFTERTURN_STORE": str(self.store),
            "AFTERTURN_SPACE": "user:ada",
            "AFTERTURN_EMBEDDER": "none",
            **settings,
        }

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """The environment of this user, for functions that are called in this process."""
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.environment.items():
                patch.setenv(name, value)
            patch.setattr(control, "_ANSWER_WITHIN", WITHIN)
            patch.setattr(control, "_STOP_WITHIN", WITHIN)
            yield

    def start(self, client: str, event: str, payload: bytes) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            hook_arguments(client, event),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.project,
            env=self.environment,
        )
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(payload)
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.stdin = None
        return process

    def end(self, process: subprocess.Popen[bytes]) -> Any:
        out, err = process.communicate(timeout=WITHIN)
        assert (process.returncode, err) == (0, b"")
        return json.loads(out)

    def send(self, client: str, event: str, payload: bytes) -> Any:
        return self.end(self.start(client, event, payload))

    def run(self, client: str, event: str, session: str, **fields: object) -> Any:
        """The script's answer. `session` is the client's session id."""
        names = {"session_id": session, "sessionId": session, "hook_event_name": event, "cwd": str(self.project)}
        return self.send(client, event, json.dumps({**names, **fields}).encode())

    def context(self, client: str, event: str, session: str, **fields: object) -> str:
        """The text for the model in the script's answer."""
        answer = self.run(client, event, session, **fields)
        nested = answer.get("hookSpecificOutput", answer)
        return str(nested.get("additionalContext", nested.get("context", "")))

    def ask(self, client: str, session: str, text: str, **fields: object) -> str:
        """The user's prompt; what is recalled for it."""
        # Qwen Code names what was typed apart from what it makes of it.
        typed = {"submitted_prompt": text} if client == "qwen-code" else {}
        fields = {"prompt": text, **typed, **fields}
        return self.context(client, _PROMPTS.get(client, "UserPromptSubmit"), session, **fields)

    def answer(self, client: str, session: str, text: str, **fields: object) -> Any:
        """The end of a turn."""
        said = {"last_assistant_message": text, "prompt_response": text}
        return self.run(client, _ENDS.get(client, "Stop"), session, **said, **fields)

    def tell(self, client: str, text: str) -> None:
        """A whole conversation, in which the user says something."""
        session = f"told-{next(_numbers)}"
        self.ask(client, session, text)
        self.answer(client, session, "Understood.", **self.typed(client, session, text))

    def typed(self, client: str, session: str, text: str) -> dict[str, str]:
        """The field of an event that names the transcript, where the helper reads from it what was typed."""
        if client != "gemini-cli":
            return {}
        path = self.folder / f"{session}.jsonl"
        path.write_text(json.dumps({"id": "1", "type": "user", "content": [{"text": text}]}) + "\n")
        return {"transcript_path": str(path)}

    def warm(self) -> control.HelperStatus:
        """Waits for a helper, and starts one if there is none."""
        self.run("claude-code", "SessionEnd", "warm")
        with self.entered():
            return wait_for(lambda: next(iter(control.running_helpers()), None))

    def stop(self) -> int:
        with self.entered():
            return control.stop_helpers()

    def texts(self) -> list[str]:
        """Everything that is stored, statements and messages."""
        with blocking.open(self.store, {"embedder": "none"}, background=False) as memory:
            return [entry.text for one in memory.spaces() for entry in memory.space(one.name).list(limit=500)]

    def has(self, part: str) -> bool:
        """Whether something with these words is stored, now or soon: a slow machine answers before it has recorded."""
        return bool(wait_for(lambda: [text for text in self.texts() if part in text]))

    def log(self) -> str:
        return "\n".join(path.read_text() for path in self.state.glob("*.log"))


def wait_for(look: Any, seconds: float = WITHIN) -> Any:
    """The first result of `look` that is not empty."""
    never = threading.Event()
    for _ in range(int(seconds / 0.05)):
        if found := look():
            return found
        never.wait(0.05)
    raise AssertionError("it did not happen in time")
