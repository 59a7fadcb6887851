"""The five tools of a server, called directly: what is written, what waits, and what nobody may reach."""

import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

import afterturn
from afterturn.config import Config, state_folder
from afterturn.errors import InvalidFile
from afterturn.hosts.server import tools
from afterturn.hosts.server.grant import Grant, local_grant, make_grant
from afterturn.hosts.server.memories import OpenMemories
from afterturn.hosts.server.tools import DEFINITIONS, PAGE_ENTRIES, TEXT_CHARS_MAX, ToolAnswer, call_tool, definitions
from afterturn.hosts.server.typed_statements import VALID_SECONDS, TypedStatement, find_writing_tool, leave_statement
from afterturn.types import Target

ADA = Grant("default", ("user:ada", "project:api", "team:all"), "user:ada", environment="project:api", agent="codex")
NOBODY = "06gyhh9w1wh6e297"
TYPED = TypedStatement("The user prefers tabs", Target.USER, "preference", is_quote=False, conversation="claude-code:s")


@pytest.fixture
async def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[afterturn.Memory]:
    monkeypatch.setenv("AFTERTURN_STATE", str(tmp_path / "state"))
    async with afterturn.open(tmp_path / "memory.db", {"embedder": "none"}) as opened:
        yield opened


async def ask(memory: afterturn.Memory, name: str, grant: Grant = ADA, **arguments: object) -> ToolAnswer:
    return await call_tool(memory, grant, name, arguments)


async def texts(memory: afterturn.Memory, space: str) -> list[str]:
    return [entry.text for entry in await memory.space(space).list()]


async def waiting(memory: afterturn.Memory, space: str) -> list[str]:
    return [entry.text for entry in await memory.space(space).proposals()]


async def test_a_fact_is_stored_as_a_report_of_the_agent(memory: afterturn.Memory):
    """B2, G2b: a server sees no turn, so the statement is quoted."""
    answer = await ask(memory, "add_memory", text="The deploy script is tools/deploy")
    (entry,) = await memory.space("project:api").list()
    assert answer == (f"Saved: [{entry.ref}].", False)
    assert (entry.origin, entry.trust, entry.metadata["client"]) == ("agent", 40, "codex")
    found = await ask(memory, "search_memory", query="Where is the deploy script?")
    assert f'[{entry.ref}] just now, according to assistant: "The deploy script is tools/deploy"' in found.text


async def test_what_is_about_the_user_goes_to_the_users_space(memory: afterturn.Memory):
    await ask(memory, "add_memory", text="Ada lives in Oslo", target="user")
    await ask(memory, "add_memory", text="The API listens on port 8080", target="environment")
    assert await texts(memory, "user:ada") == ["Ada lives in Oslo"]
    assert await texts(memory, "project:api") == ["The API listens on port 8080"]


@pytest.mark.parametrize(
    "kind, space", [("preference", "user:ada"), ("convention", "project:api")], ids=["preference", "convention"]
)
async def test_a_standing_statement_waits_for_approval(memory: afterturn.Memory, kind: str, space: str):
    """B2: nothing enters a system prompt through a server without a person."""
    answer = await ask(memory, "add_memory", text="Use pnpm, never npm", kind=kind)
    assert answer == ("It waits for approval: `afterturn inbox`.", False)
    assert (await texts(memory, space), await waiting(memory, space)) == ([], ["Use pnpm, never npm"])
    again = await ask(memory, "add_memory", text="Use pnpm, never npm", kind=kind)
    assert again.text == "This already waits for approval: `afterturn inbox`."


async def test_changes_of_trusted_memories_wait(memory: afterturn.Memory):
    """B2: an update or a delete of what the user said is a proposal."""
    ada = memory.space("user:ada")
    entry = (await ada.add("Ada lives in Oslo")).entry
    other = (await ada.add("Ada has a dog")).entry
    updated = await ask(memory, "update_memory", id=entry.ref, text="Ada lives in Paris")
    deleted = await ask(memory, "delete_memory", id=other.id)
    assert updated.text == f"The change waits for approval: `afterturn inbox`. Until then [{entry.ref}] stays as it is."
    assert deleted.text == f"The deletion waits for approval: `afterturn inbox`. Until then [{other.ref}] stays."
    assert sorted(await texts(memory, "user:ada")) == ["Ada has a dog", "Ada lives in Oslo"]
    assert len(await waiting(memory, "user:ada")) == 2


async def test_an_agent_may_correct_and_delete_its_own_reports(memory: afterturn.Memory):
    await ask(memory, "add_memory", text="The tests take two minutes")
    (entry,) = await memory.space("project:api").list()
    updated = await ask(memory, "update_memory", id=entry.id, text="The tests take three minutes")
    assert updated == (f"Changed: [{entry.id}.2].", False)
    assert await texts(memory, "project:api") == ["The tests take three minutes"]
    deleted = await ask(memory, "delete_memory", id=f"[{entry.id}.2]")
    assert deleted.text.startswith(f"Deleted: [{entry.id}.2]. The user can bring it back with `afterturn undo ")
    assert await texts(memory, "project:api") == []


async def test_an_update_that_loses_details_is_refused(memory: afterturn.Memory):
    """V13."""
    await ask(memory, "add_memory", text="The tests of /srv/api take 12 minutes on ci-runner-3 with Node 22.4")
    (entry,) = await memory.space("project:api").list()
    updated = await ask(memory, "update_memory", id=entry.id, text="The tests take 12 minutes")
    assert updated.failed
    assert "/srv/api" in updated.text
    assert (await memory.space("project:api").list())[0].version == 1


async def test_an_update_of_an_older_version_is_refused(memory: afterturn.Memory):
    await ask(memory, "add_memory", text="The tests take two minutes")
    (entry,) = await memory.space("project:api").list()
    await ask(memory, "update_memory", id=f"{entry.id}.1", text="The tests take three minutes")
    late = await ask(memory, "update_memory", id=f"{entry.id}.1", text="The tests take four minutes")
    assert late.failed
    assert await texts(memory, "project:api") == ["The tests take three minutes"]


async def test_what_the_user_typed_is_stored_in_place_of_the_agents_text(memory: afterturn.Memory):
    """B2: as the user's own words, once, and for this call alone."""
    arguments = {"text": "Ada prefers tabs and daily reports", "kind": "preference"}
    leave_statement("default", "user:ada", "add_memory", arguments, TYPED)
    other = await ask(memory, "add_memory", text="Ada prefers spaces", kind="preference")
    own = await call_tool(memory, ADA, "add_memory", arguments)
    (entry,) = await memory.space("user:ada").list()
    assert other.text == "It waits for approval: `afterturn inbox`."
    assert own.text == f'Saved: [{entry.ref}]. It is what the user typed: "The user prefers tabs".'
    assert (entry.text, entry.origin, entry.agent) == ("The user prefers tabs", "user", None)
    assert (entry.metadata, entry.conversation) == ({"kind": "preference"}, "claude-code:s")
    again = await call_tool(memory, ADA, "add_memory", arguments)
    assert again.text == "It waits for approval: `afterturn inbox`."


async def test_an_update_that_the_user_typed_adds_the_users_words(memory: afterturn.Memory):
    """B2: the agent does not choose which memory the user's words replace."""
    entry = (await memory.space("user:ada").add("The user prefers spaces")).entry
    arguments = {"id": entry.id, "text": "The user prefers tabs"}
    leave_statement("default", "user:ada", "update_memory", arguments, TYPED)
    answer = await call_tool(memory, ADA, "update_memory", arguments)
    assert answer.text.endswith(f"A review decides whether it replaces [{entry.ref}].")
    assert sorted(await texts(memory, "user:ada")) == ["The user prefers spaces", "The user prefers tabs"]
    assert await waiting(memory, "user:ada") == []


@pytest.mark.parametrize(
    "name, tool",
    [
        ("mcp__afterturn__add_memory", "add_memory"),
        ("mcp_afterturn_update_memory", "update_memory"),
        ("afterturn_delete_memory", "delete_memory"),
        ("afterturn-add_memory", "add_memory"),
        ("mcp__afterturn/add_memory", "add_memory"),
        ("mcp__afterturn__search_memory", None),
        ("mcp__other__add_memory", None),
        ("mcp__evil__afterturn__add_memory", None),
        ("add_memory", None),
        ("", None),
    ],
)
def test_a_hook_recognises_our_tools_in_each_client(name: str, tool: str | None):
    assert find_writing_tool(name) == tool


@pytest.mark.parametrize("tenant, owner", [("default", "user:eve"), ("other", "user:ada")], ids=["owner", "tenant"])
async def test_what_somebody_else_typed_does_not_count(memory: afterturn.Memory, tenant: str, owner: str):
    arguments = {"text": "Ada prefers tabs", "kind": "preference"}
    leave_statement(tenant, owner, "add_memory", arguments, TYPED)
    assert (await call_tool(memory, ADA, "add_memory", arguments)).text.startswith("It waits")


async def test_what_was_typed_long_ago_does_not_count(memory: afterturn.Memory):
    arguments = {"text": "Ada prefers tabs", "kind": "preference"}
    leave_statement("default", "user:ada", "add_memory", arguments, TYPED)
    (path,) = (state_folder() / "typed-statements").iterdir()
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    old = path.stat().st_mtime - VALID_SECONDS - 1
    os.utime(path, (old, old))
    assert (await call_tool(memory, ADA, "add_memory", arguments)).text.startswith("It waits")
    leave_statement("default", "user:ada", "add_memory", {"text": "one"}, TYPED)
    os.utime(next((state_folder() / "typed-statements").iterdir()), (old, old))
    leave_statement("default", "user:ada", "add_memory", {"text": "two"}, TYPED)
    assert len(list((state_folder() / "typed-statements").iterdir())) == 1


async def test_a_linked_folder_of_typed_sentences_is_neither_read_nor_changed(memory: afterturn.Memory, tmp_path: Path):
    """P1: old files in it may be anybody's."""
    arguments = {"text": "Ada prefers tabs", "kind": "preference"}
    leave_statement("default", "user:ada", "add_memory", arguments, TYPED)
    folder, other = state_folder() / "typed-statements", tmp_path / "other"
    folder.rename(other)
    (other / "thesis.txt").touch()
    os.utime(other / "thesis.txt", (0, 0))
    os.utime(other)
    folder.symlink_to(other)
    before = sorted(other.iterdir())
    with pytest.raises(InvalidFile, match="is a symbolic link, and links are not followed"):
        leave_statement("default", "user:ada", "add_memory", {"text": "one"}, TYPED)
    assert (await call_tool(memory, ADA, "add_memory", arguments)).text.startswith("It waits")
    assert sorted(other.iterdir()) == before


async def test_a_server_that_starts_removes_typed_sentences_that_no_call_took(memory: afterturn.Memory):
    """Files of other names in the folder are not ours."""
    leave_statement("default", "user:ada", "add_memory", {"text": "one"}, TYPED)
    folder = state_folder() / "typed-statements"
    for name in ("thesis.txt", ".half-written"):
        (folder / name).touch()
    for path in folder.iterdir():
        os.utime(path, (0, 0))
    async with OpenMemories(lambda: (None, Config())):
        assert [path.name for path in folder.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("content", [b"{", b"[]", b"{}", b'{"target": "user", "more": 1}', b"\xff"])
async def test_a_typed_sentence_that_cannot_be_read_counts_for_nothing_and_is_removed(
    memory: afterturn.Memory, content: bytes
):
    arguments = {"text": "Ada prefers tabs", "kind": "preference"}
    leave_statement("default", "user:ada", "add_memory", arguments, TYPED)
    (path,) = (state_folder() / "typed-statements").iterdir()
    path.write_bytes(content)
    assert (await call_tool(memory, ADA, "add_memory", arguments)).text.startswith("It waits")
    assert list(path.parent.iterdir()) == []


async def test_the_id_of_another_space_is_no_id(memory: afterturn.Memory):
    """B1, L2: the answer is the same as for an id that nobody has."""
    eve = (await memory.space("user:eve").add("Eve lives in Rome")).entry
    for name, more in (("update_memory", {"text": "x"}), ("delete_memory", {})):
        theirs = await ask(memory, name, id=eve.id, **more)
        nobodys = await ask(memory, name, id=NOBODY, **more)
        assert theirs.text.replace(eve.id, "ID") == nobodys.text.replace(NOBODY, "ID")
        assert theirs.failed
    assert await texts(memory, "user:eve") == ["Eve lives in Rome"]


async def test_a_space_that_is_only_read_is_not_changed(memory: afterturn.Memory):
    entry = (await memory.space("team:all").add("The office is closed on Friday", origin="tool")).entry
    assert entry.id in (await ask(memory, "list_memories")).text
    answer = await ask(memory, "delete_memory", id=entry.id)
    assert answer.failed
    assert "may only read" in answer.text
    assert await texts(memory, "team:all") == ["The office is closed on Friday"]


@pytest.mark.parametrize("origin", ["import", "web", "agent"])
@pytest.mark.parametrize("project", [None, "web"])
async def test_an_agent_changes_only_its_own_notes_of_this_project(
    memory: afterturn.Memory, origin: str, project: str | None
):
    """G2b, P1: all projects recall what belongs to none, and each its own."""
    before = (await memory.space("user:ada").add("The host is heron.internal", origin=origin, project=project)).entry
    assert (before.id in (await ask(memory, "list_memories")).text) is (project is None)
    for name, arguments in (("update_memory", {"text": "The host is evil.example"}), ("delete_memory", {})):
        assert (await ask(memory, name, id=before.id, **arguments)).failed
    assert await memory.space("user:ada").get(before.id) == before
    own = (await ask(memory, "add_memory", text="The port is 80")).text.partition("[")[2].partition(".")[0]
    assert not (await ask(memory, "update_memory", id=own, text="The port is 8080")).failed
    assert await texts(memory, "project:api") == ["The port is 8080"]


async def test_a_reader_is_offered_no_tool_that_writes(memory: afterturn.Memory):
    reader = replace(ADA, writes=None, environment=None)
    entry = (await memory.space("user:ada").add("Ada lives in Oslo", origin="tool")).entry
    assert [one.name for one in definitions(reader)] == ["search_memory", "list_memories"]
    for name in ("add_memory", "update_memory", "delete_memory"):
        answer = await ask(memory, name, reader, id=entry.id, text="Ada lives in Rome")
        assert answer == (f"There is no tool '{name}' here. Available: search_memory, list_memories.", True)
    assert await texts(memory, "user:ada") == ["Ada lives in Oslo"]


async def test_recorded_messages_are_the_users_to_delete(memory: afterturn.Memory):
    messages = [{"role": "user", "content": "My locker is number 17."}]
    async with memory.conversation("talk", user="ada").turn(messages) as turn:
        messages.append({"role": "assistant", "content": "Noted."})
    assert await turn.wait_recorded()
    records = await memory.space("user:ada").list(filter=afterturn.Filter(kind="record"))
    for record in records:
        answer = await ask(memory, "delete_memory", id=record.id)
        assert answer.text.endswith("is a recorded message. Only its user may change or delete it.")
        assert (await ask(memory, "update_memory", id=record.id, text="x")).failed
    assert len(records) == 2


async def test_pinned_memories_are_the_users_to_change(memory: afterturn.Memory):
    entry = (await memory.space("user:ada").add("Ada is allergic to nuts", pinned=True)).entry
    for name, more in (("update_memory", {"text": "Ada eats nuts"}), ("delete_memory", {})):
        answer = await ask(memory, name, id=entry.id, **more)
        assert answer.failed
        assert "only its user may change or delete it" in answer.text
    assert await waiting(memory, "user:ada") == []


async def test_a_secret_is_left_out(memory: afterturn.Memory):
    key = "ghp_" + "a1B2" * 9
    answer = await ask(memory, "add_memory", text=f"The key of the bot is {key}")
    assert key not in answer.text
    assert all(key not in text for text in await texts(memory, "project:api"))


async def test_lists_have_pages_with_all_readable_spaces(memory: afterturn.Memory):
    for number in range(PAGE_ENTRIES):
        await memory.space("project:api").add(f"Fact {number} of the project", occurred_at=1_000.0 + number)
    await memory.space("user:ada").add("Ada lives in Oslo", occurred_at=500.0)
    await memory.space("user:eve").add("Eve lives in Rome", occurred_at=5_000.0)
    first, second = await ask(memory, "list_memories"), await ask(memory, "list_memories", page=2)
    third = await ask(memory, "list_memories", page=3)
    assert first.text.count("\n- [") == PAGE_ENTRIES
    assert first.text.endswith("More: page 2.")
    assert (second.text.count("\n- ["), second.text.endswith("user: Ada lives in Oslo")) == (1, True)
    assert third.text == "There are no more memories."
    assert "Eve" not in first.text + second.text


async def test_an_empty_memory_says_so(memory: afterturn.Memory):
    assert (await ask(memory, "list_memories")).text == "There are no memories yet."
    assert (await ask(memory, "search_memory", query="tea")).text.startswith("Nothing relevant in memory.")


@pytest.mark.parametrize(
    "name, arguments, expected",
    [
        ("add_memory", {}, "`text` is missing"),
        ("add_memory", {"text": 5}, "must be text, not int"),
        ("add_memory", {"text": ""}, "is empty"),
        ("add_memory", {"text": "x" * (TEXT_CHARS_MAX + 1)}, "Use at most 4000"),
        ("add_memory", {"text": "a\x00b"}, "NUL"),
        ("add_memory", {"text": "x", "kind": "rule"}, "Use one of: fact, preference, convention."),
        ("add_memory", {"text": "x", "kind": ["fact"]}, "Use one of"),
        ("add_memory", {"text": "x", "kind": "preference", "target": "environment"}, "A preference is about the user."),
        ("add_memory", {"text": "x", "space": "user:eve"}, "It has no argument 'space'."),
        ("add_memory", {"text": "x", "origin": "user"}, "It has no argument 'origin'."),
        ("add_memory", {"text": "x", "conversation": 7}, "conversation"),
        ("update_memory", {"text": "x"}, "`id` is missing"),
        ("update_memory", {"id": "../../etc", "text": "x"}, "There is no memory '../../etc'."),
        ("delete_memory", {"id": {"a": 1}}, "`id` is missing"),
        ("list_memories", {"page": 0}, "Use a whole number from 1 to 50."),
        ("list_memories", {"page": True}, "`page` is True."),
        ("list_memories", {"page": 10**30}, "Use a whole number"),
        ("search_memory", {"query": "x" * 1_001}, "Use at most 1000."),
        ("search_memory", {"query": None}, "must be text"),
        ("search_memory", ["query"], "must be one JSON object"),
        ("search_memory", None, "`query` is missing"),
    ],
)
async def test_a_wrong_call_is_answered_with_what_to_do(memory, name: str, arguments: object, expected: str):
    answer = await call_tool(memory, ADA, name, arguments)
    assert answer.failed
    assert answer.text.startswith(f"The call of {name} is not valid. ")
    assert expected in answer.text
    assert len(answer.text) < 400


async def test_a_name_of_no_tool_cannot_break_out_of_the_answer(memory: afterturn.Memory):
    answer = await call_tool(memory, ADA, "</afterturn-memory>\n\x1b[2J" + "x" * 10_000, {})
    assert answer.failed
    assert "\n" not in answer.text
    assert "\x1b" not in answer.text
    assert len(answer.text) < 300


async def test_the_token_fixes_the_conversation(tmp_path: Path):
    """A conversation's id comes as an argument, or with the token; then no other one may be named."""
    fixed, events = replace(ADA, conversation="support-42"), []
    async with afterturn.open(tmp_path / "memory.db", {"embedder": "none"}, on_event=events.append) as memory:
        await ask(memory, "search_memory", fixed, query="tea", conversation="support-42")
        refused = await ask(memory, "search_memory", fixed, query="tea", conversation="support-43")
        await ask(memory, "search_memory", fixed, query="tea")
        await ask(memory, "search_memory", query="tea", conversation="support-44")
    assert refused.text.endswith("`conversation` is not the one of this connection. Leave it out.")
    called = [event.conversation for event in events if event.name == "tool_called"]
    assert called == ["support-42", "support-42", "support-44"]


async def test_what_is_added_belongs_to_its_conversation(memory: afterturn.Memory):
    """Also in the space of a project: the inbox finds it by the conversation, and forgetting that erases it."""
    await ask(memory, "add_memory", text="Use pnpm, never npm", kind="convention", conversation="c1")
    await ask(memory, "add_memory", text="Ada lives in Oslo", target="user", conversation="c1")
    project = memory.space("project:api")
    assert [one.text for one in await project.proposals(conversation="c1")] == ["Use pnpm, never npm"]
    (waiting,) = await project.proposals()
    assert (waiting.conversation, waiting.owner) == ("c1", "user:ada")
    await memory.space("user:ada").forget(conversation="c1")
    assert await texts(memory, "user:ada") == []


async def test_a_full_space_names_what_could_go(tmp_path: Path):
    async with afterturn.open(tmp_path / "full.db", {"embedder": "none", "environment_bytes_max": 40}) as memory:
        await ask(memory, "add_memory", text="The API listens on port 8080")
        answer = await ask(memory, "add_memory", text="The second API listens on port 9090")
    assert answer.failed
    assert answer.text.startswith("Not written: memory is full. project:api may have 40 bytes")


async def test_a_closed_memory_is_an_answer(tmp_path: Path):
    async with afterturn.open(tmp_path / "memory.db", {"embedder": "none"}) as memory:
        pass
    for one in DEFINITIONS:
        answer = await call_tool(memory, ADA, one.name, {"query": "x"} if one.name == "search_memory" else {"id": "x"})
        assert answer.text


async def test_memory_that_is_off_says_so(tmp_path: Path):
    async with afterturn.open(None, {"embedder": "none"}) as memory:
        assert (await ask(memory, "search_memory", query="tea")).text == "Memory is off. Continue without it."
        answer = await ask(memory, "add_memory", text="Ada drinks tea")
    assert answer.text.startswith("Memory cannot be used now (StoreUnavailable).")
    assert answer.failed


def test_a_client_gets_the_users_space_and_its_projects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AFTERTURN_STATE", str(tmp_path / "state"))
    (tmp_path / "api").mkdir()
    config = Config(space="user:ada", tenant="acme")
    grant = local_grant(config, folder=tmp_path / "api", reads=["team:all"], agent="codex")
    project = grant.reads[1]
    assert project.startswith("project:api-")
    assert grant == Grant("acme", ("user:ada", project, "team:all"), "user:ada", environment=project, agent="codex")
    reader = local_grant(config, folder=tmp_path / "api", read_only=True)
    assert (reader.reads, reader.writable) == (("user:ada", project), ())
    named = local_grant(config, space="team:all", folder=tmp_path / "api")
    assert named == Grant("acme", ("team:all",), "team:all")


def test_a_grant_takes_no_invalid_names():
    for options in ({"space": "ada"}, {"space": "user:ada", "reads": ["x"]}, {"space": "user:ada", "agent": "a\nb"}):
        with pytest.raises(afterturn.InvalidName):
            make_grant(Config(), **options)
    with pytest.raises(afterturn.InvalidName):
        make_grant(Config(), space="user:ghp_" + "a1B2" * 9)


def test_the_limits_that_a_model_is_told_are_those_that_are_checked():
    fields = {one.name: one.parameters["properties"] for one in DEFINITIONS}
    assert {one["text"]["maxLength"] for one in fields.values() if "text" in one} == {TEXT_CHARS_MAX}
    assert fields["search_memory"]["query"]["maxLength"] == tools.QUERY_CHARS_MAX
    assert fields["list_memories"]["page"]["maximum"] == tools.PAGES_MAX
    assert fields["add_memory"]["kind"]["enum"] == list(tools._KINDS)
    assert fields["add_memory"]["target"]["enum"] == list(tools._TARGETS)
    assert f" {PAGE_ENTRIES} a page" in next(one for one in DEFINITIONS if one.name == "list_memories").description
