"""mem0's two official SDKs behind one interface, so that each test runs with both, and the server that they talk to."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from afterturn.config import Config
from afterturn.hosts.server.grant import make_grant
from afterturn.hosts.server.tokens import create_token

DRIVER = Path(__file__).with_name("mem0_sdk.cjs")
PACKAGES = Path(__file__).parents[2] / ".frameworks" / "mem0"
WITHIN = 60.0
# Values in which the SDK for Node leaves the names of keys as they are.
_OPAQUE = ("metadata", "profile")


class SdkError(Exception):
    """What a call has raised: the class of the SDK's error and its code, the same in both SDKs."""

    def __init__(self, name: str, code: str, message: str) -> None:
        super().__init__(message)
        self.name = name
        self.code = code


class PythonSdk:
    """PyPI's mem0ai, in this process."""

    def __init__(self, url: str, token: str) -> None:
        from mem0 import MemoryClient

        self._client = MemoryClient(host=url, api_key=token)

    def call(self, method: str, *args: Any, **options: Any) -> Any:
        from mem0.exceptions import MemoryError

        try:
            return getattr(self._client, method)(*args, **options)
        except MemoryError as error:
            raise SdkError(type(error).__name__, error.error_code, error.message) from error
        except Exception as error:  # the SDK's own checks raise ValueError
            raise SdkError(type(error).__name__, "", str(error)) from error

    def update(self, memory_id: str, **fields: Any) -> Any:
        return self.call("update", memory_id, **fields)

    def batch_delete(self, *ids: str) -> Any:
        return self.call("batch_delete", [{"memory_id": one} for one in ids])

    def feedback(self, memory_id: str, feedback: str, reason: str) -> Any:
        return self.call("feedback", memory_id, feedback, reason)

    def profile(self, user: str) -> Any:
        return self.call("get_profile", user)

    def generate_profile(self, user: str) -> Any:
        return self.call("generate_profile", user)

    def unsupported(self) -> dict[str, Callable[[], Any]]:
        return {
            "get_project": lambda: self.call("get_project"),
            "get_webhooks": lambda: self.call("get_webhooks", "p"),
            "create_memory_export": lambda: self.call("create_memory_export", "{}", user_id="ada"),
            "get_memory_export": lambda: self.call("get_memory_export", user_id="ada"),
            "get_summary": lambda: self.call("get_summary", {"user_id": "ada"}),
            "get_profile_settings": lambda: self.call("get_profile_settings"),
            "sample_profiles": lambda: self.call("sample_profiles", 1),
        }

    def close(self) -> None:
        self._client.client.close()


class NodeSdk:
    """npm's mem0ai, in a process of Node. Keys of options and of answers are translated to those of Python."""

    def __init__(self, url: str, token: str) -> None:
        command = ["node", str(DRIVER), str(PACKAGES), url, token]
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def call(self, method: str, *args: Any, **options: Any) -> Any:
        given = [*args, {_camel(key): value for key, value in options.items()}] if options else args
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(json.dumps({"method": _camel(method), "args": given}) + "\n")
        self._child.stdin.flush()
        answer = json.loads(self._child.stdout.readline())
        if "error" in answer:
            raise SdkError(answer["error"]["name"], answer["error"]["code"], answer["error"]["message"])
        return _snake_keys(answer["result"])

    def update(self, memory_id: str, **fields: Any) -> Any:
        return self.call("update", memory_id, **fields)

    def batch_delete(self, *ids: str) -> Any:
        return self.call("batch_delete", list(ids))

    def feedback(self, memory_id: str, feedback: str, reason: str) -> Any:
        return self.call("feedback", memory_id=memory_id, feedback=feedback, feedback_reason=reason)

    def profile(self, user: str) -> Any:
        return self.call("get_profile", entity_id=user)

    def generate_profile(self, user: str) -> Any:
        return self.call("generate_profile", entity_id=user)

    def unsupported(self) -> dict[str, Callable[[], Any]]:
        filters = {"user_id": "ada"}
        return {
            "get_project": lambda: self.call("get_project", fields=["custom_instructions"]),
            "update_project": lambda: self.call("update_project", custom_instructions="none"),
            "get_webhooks": lambda: self.call("get_webhooks", project_id="p"),
            "create_webhook": lambda: self.call("create_webhook", name="w", url="http://x", event_types=["memory_add"]),
            "delete_webhook": lambda: self.call("delete_webhook", webhook_id="w"),
            "create_memory_export": lambda: self.call("create_memory_export", filters=filters, schema={}),
            "get_memory_export": lambda: self.call("get_memory_export", filters=filters),
            "get_profile_settings": lambda: self.call("get_profile_settings"),
            "update_profile_settings": lambda: self.call("update_profile_settings", enabled=True),
            "sample_profiles": lambda: self.call("sample_profiles", limit=1),
        }

    def close(self) -> None:
        _, errors = self._child.communicate(timeout=WITHIN)
        assert errors == ""


SDKS = {"python": PythonSdk, "node": NodeSdk}


class Mem0Service:
    """`afterturn serve` as a process of its own. `url` is what an SDK gets as its host."""

    def __init__(self, url: str) -> None:
        self.url = url

    def token(self, space: str, *, tenant: str = "default", **options: Any) -> str:
        return create_token(make_grant(Config(tenant=tenant), space=space, **options), name=space)[1]

    def event(self, event_id: str, token: str) -> dict[str, Any]:
        """The event when its learning has ended. No SDK has a call for it."""
        import httpx

        ends = time.monotonic() + WITHIN
        while True:
            answer = httpx.get(f"{self.url}/v1/event/{event_id}/", headers={"Authorization": f"Token {token}"})
            found: dict[str, Any] = answer.raise_for_status().json()
            if found["status"] not in ("PENDING", "RUNNING"):
                return found
            assert time.monotonic() < ends, found


@contextmanager
def serve(folder: Path, *options: str) -> Iterator[Mem0Service]:
    """Neither SDK sends telemetry, and AFTERTURN_STATE must name the folder of the tokens already."""
    known = {**os.environ, "AFTERTURN_STORE": str(folder / "memory.db")}
    command = [sys.executable, "-m", "afterturn", "serve", "--port", "0", "--without", "mcp", *options]
    with subprocess.Popen(command, env=known, cwd=folder, stderr=subprocess.PIPE, text=True) as child:
        try:
            assert child.stderr is not None
            line = child.stderr.readline()
            assert line.startswith("Serving http://"), line
            yield Mem0Service(line.split()[1].removesuffix(".") + "/mem0")
        finally:
            child.terminate()
            child.wait(timeout=WITHIN)


def _camel(name: str) -> str:
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), name)


def _snake_keys(value: Any) -> Any:
    if isinstance(value, list):
        return [_snake_keys(each) for each in value]
    if not isinstance(value, Mapping):
        return value
    snake = {re.sub(r"[A-Z]", lambda found: "_" + found[0].lower(), key): key for key in value}
    return {name: value[key] if name in _OPAQUE else _snake_keys(value[key]) for name, key in snake.items()}
