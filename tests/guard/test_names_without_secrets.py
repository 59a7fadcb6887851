"""Names and ids are stored, logged and shown as they are, so a secret in one is refused."""

from pathlib import Path

import pytest

import afterturn
from afterturn.errors import InvalidName
from afterturn.types import Draft, Kind, Origin

TOKEN = "ghp_" + "a1B2" * 9


async def test_a_group_with_a_secret_is_refused(ada: afterturn.Space) -> None:
    """G1: the message names the kind, and not the secret."""
    with pytest.raises(InvalidName, match=r"group contains a secret \(github token\)") as caught:
        await ada.add_many([Draft("Likes tea", origin=Origin.USER)], group=f"import {TOKEN}")
    assert TOKEN not in str(caught.value)
    assert await ada.list() == []


def test_a_space_with_a_secret_is_refused(memory: afterturn.Memory) -> None:
    """G1: as a space of its own, as an owner, and as the space that a conversation writes."""
    with pytest.raises(InvalidName, match="contains a secret"):
        memory.space(f"user:{TOKEN}")
    with pytest.raises(InvalidName, match="contains a secret"):
        memory.conversation("c", user=TOKEN)
    with pytest.raises(InvalidName, match="contains a secret"):
        memory.conversation("c", user="ada", writes=f"project:{TOKEN}")


def test_a_conversation_with_a_secret_as_its_id_is_refused(memory: afterturn.Memory) -> None:
    """G1: a session's token is not an id."""
    with pytest.raises(InvalidName, match="conversation contains a secret"):
        memory.conversation(f"session {TOKEN}", user="ada")


async def test_a_turn_continues_without_an_id_that_is_a_secret(memory: afterturn.Memory, tmp_path: Path) -> None:
    """G1, R1: a host's mistake does not end its turn."""
    messages: list[dict[str, object]] = [{"role": "user", "content": "Hello"}]
    async with memory.conversation("c", user="ada").turn(messages, id=TOKEN) as turn:
        messages.append({"role": "assistant", "content": "Hello!"})
    assert await turn.wait_recorded()
    assert turn.id != TOKEN
    assert not any(TOKEN.encode() in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    with pytest.raises(InvalidName, match="turn id contains a secret"):
        await memory.conversation("c", user="ada").start_turn(messages, id=TOKEN)


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("field", ["conversation", "turn", "owner"])
async def test_an_import_with_a_secret_as_an_id_is_refused(ada: afterturn.Space, kind: Kind, field: str) -> None:
    """G1: entries share these ids, so they cannot be renamed."""
    name = f"user:{TOKEN}" if field == "owner" else TOKEN
    with pytest.raises(InvalidName, match=f"{field} contains a secret"):
        await ada.add_many([Draft("Likes tea", origin=Origin.USER, kind=kind, **{field: name})])


def test_a_tenant_with_a_secret_is_refused(tmp_path: Path) -> None:
    """G1."""
    with pytest.raises(InvalidName, match="tenant contains a secret"):
        afterturn.open(tmp_path / "memory.db", tenant=TOKEN)


def test_an_id_may_look_random(memory: afterturn.Memory) -> None:
    """Ids of hosts do: only what an issuer's format shows to be a secret is refused."""
    for id in ("auth0_5f7c8ec7c33c6c004bbafe82", "msg_01XFDUDYJgAACzvnptvVoYEL", "key-2Ab9Kx77Qm12Zp45Wd89Lt03"):
        assert memory.conversation(id, user="ada") is not None


async def test_names_are_not_checked_while_scanning_is_off(opened) -> None:
    """G1: the host scans elsewhere."""
    async with opened(scanners="none") as memory:
        assert memory.space(f"user:{TOKEN}").name == f"user:{TOKEN}"


async def test_the_path_of_a_context_file_is_reported_without_a_secret(
    memory: afterturn.Memory, told, tmp_path
) -> None:
    """G1: the event is stored."""
    await memory.conversation("c", user="ada").standing(roots=[tmp_path / TOKEN]).block()
    (event,) = told.named("context_file_skipped")
    assert event.data["path"] == f"{tmp_path}/[redacted: github token]"
