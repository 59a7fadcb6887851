"""The answer to a prompt without a helper: recall by words alone, in the process of the hook's script.

Loads neither asyncio nor numpy. It does not know what the model has seen before.
"""

from __future__ import annotations

import json

from afterturn.config import load_config
from afterturn.errors import StoreUnavailable
from afterturn.hosts.hooks.clients import CLIENTS
from afterturn.hosts.hooks.events import EventKind, HookAnswer, check_folder
from afterturn.hosts.projects import current_user_space, find_project, is_paused
from afterturn.oneshot import recall_block_once


def answer_prompt(client: str, event: str, payload: bytes, cwd: str) -> tuple[bytes, str]:
    """The client's JSON, and "shown" if it has a block. Raises AfterturnError, or ValueError for a bad payload."""
    adapter = CLIENTS[client]
    found = adapter.read(event, json.loads(payload or b"{}"))
    if found is None or found.kind is not EventKind.PROMPT or found.agent:
        return b"{}", ""
    asked, folder = found.text or found.loaded, check_folder(found.cwd, cwd)
    if not asked.strip() or is_paused(folder):
        return b"{}", ""
    config, project = load_config(), find_project(folder)
    try:
        block = recall_block_once(
            asked,
            space=current_user_space(config),
            reads=(project.space, *project.merged),
            trusted_only=adapter.trusted_only,
            project=project.name,
            # The helper brings it when it runs.
            standing=False,
            config=config,
        )
    except StoreUnavailable:
        # Nothing is remembered yet.
        return b"{}", ""
    return json.dumps(adapter.write(found, HookAnswer(block))).encode(), "shown" if block else ""
