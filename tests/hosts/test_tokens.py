"""Bearer tokens: shown once, stored as hashes, scoped, and refused from the moment that they are revoked."""

import json
from pathlib import Path

import pytest

from afterturn.config import state_folder
from afterturn.errors import InvalidFile, NotFound
from afterturn.hosts.server.grant import Grant
from afterturn.hosts.server.tokens import FILE, TokenVerifier, create_token, list_tokens, revoke_token
from afterturn.runtime.clock import SystemClock
from afterturn.scanners.secrets import redact

ADA = Grant("default", ("user:ada", "project:api"), "user:ada", agent="laptop")


@pytest.fixture(autouse=True)
def _state_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFTERTURN_STATE", str(tmp_path / "state"))


def test_only_the_hash_is_stored_in_a_file_of_the_owner():
    created, text = create_token(ADA, name="laptop")
    path = state_folder() / FILE
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    stored = path.read_text(encoding="utf-8")
    assert text not in stored
    assert text.removeprefix("afterturn_") not in stored
    assert created.digest in stored
    assert len(text) == len("afterturn_") + 43


def test_a_token_brings_its_grant():
    verifier = TokenVerifier()
    created, text = create_token(ADA, name="laptop")
    found = verifier.find(text)
    assert found == created
    assert found is not None
    assert found.grant == ADA


@pytest.mark.parametrize("wrong", ["", "x", "afterturn_", "afterturn_" + "A" * 43, "é" * 50, "\ud800", "x" * 100_000])
def test_another_text_is_no_token(wrong: str):
    create_token(ADA, name="laptop")
    assert TokenVerifier().find(wrong) is None


def test_the_hash_is_no_token():
    created, text = create_token(ADA, name="laptop")
    verifier = TokenVerifier()
    assert verifier.find(created.digest) is None
    assert verifier.find(created.id) is None
    assert verifier.find(text + "x") is None
    assert verifier.find(text) == created


def test_a_revoked_token_is_refused_at_once():
    verifier = TokenVerifier()
    kept, revoked = create_token(ADA, name="kept")[1], create_token(ADA, name="revoked")[1]
    assert verifier.find(revoked) is not None
    revoke_token("revoked")
    assert verifier.find(revoked) is None
    assert verifier.find(kept) is not None
    (state_folder() / FILE).unlink()
    assert verifier.find(kept) is None


def test_an_expired_token_is_refused():
    now = SystemClock().now()
    verifier = TokenVerifier()
    assert verifier.find(create_token(ADA, name="old", expires_at=now - 1)[1]) is None
    assert verifier.find(create_token(ADA, name="new", expires_at=now + 60)[1]) is not None


def test_a_name_that_two_tokens_have_revokes_neither():
    first = create_token(ADA, name="laptop")[0]
    create_token(ADA, name="laptop")
    with pytest.raises(NotFound, match="There are 2 tokens"):
        revoke_token("laptop")
    assert revoke_token(first.id) == first
    assert len(list_tokens()) == 1


@pytest.mark.parametrize(
    "damage",
    [
        "{",
        "[]",
        '{"tokens": 5}',
        '{"tokens": {"a": {}}}',
        '{"tokens": {"a": {"name": "n", "sha256": "s", "tenant": "t", "reads": [], "writes": null, '
        '"conversation": null, "created_at": 1, "expires_at": null}}}',
        '{"tokens": {"a": {"name": "n", "sha256": "s", "tenant": "t", "reads": ["user:a"], "writes": "user:b", '
        '"conversation": null, "created_at": 1, "expires_at": null}}}',
    ],
)
def test_a_damaged_file_accepts_nothing(damage: str):
    text = create_token(ADA, name="laptop")[1]
    (state_folder() / FILE).write_text(damage, encoding="utf-8")
    with pytest.raises(InvalidFile):
        TokenVerifier().find(text)


def test_the_scanner_knows_our_tokens():
    text = create_token(ADA, name="laptop")[1]
    assert redact(f"The token is {text}, keep it").text == "The token is [redacted: afterturn token], keep it"


def test_the_commands_create_list_and_revoke(cli):
    created = cli("token", "create", "--name", "laptop", "--reads", "project:api", "--days", "2")
    assert created.code == 0
    text = created.out.strip()
    assert TokenVerifier().find(text) is not None
    listed = cli("token", "list")
    assert text not in listed.out
    assert all(word in listed.out for word in ("laptop", "user:ada, project:api", "UTC"))
    (row,) = cli("token", "list", "--json").lines
    assert (row["reads"], row["writes"]) == (["user:ada", "project:api"], "user:ada")
    assert "sha256" not in json.dumps(row)
    assert cli("token", "revoke", "laptop").out.startswith("Revoked ")
    assert TokenVerifier().find(text) is None
    assert cli("token", "list").out.startswith("There are no tokens.")
    assert cli("token", "revoke", "laptop").code == 2


def test_the_commands_say_what_is_wrong(cli):
    assert cli("token", "create", "--name", "laptop", "--read-only", "--conversation", "talk-1").code == 0
    (row,) = cli("token", "list", "--json").lines
    assert (row["writes"], row["conversation"]) == (None, "talk-1")
    again = cli("token", "create", "--name", "laptop")
    assert (again.code, "already" in again.err) == (2, True)
    assert cli("token", "create", "--reads", "nonsense").code == 2
    assert cli("token", "create", "--days", "0").code == 2
    assert len(list_tokens()) == 1


def test_a_token_as_json_has_the_text_once(cli):
    created = cli("token", "create", "--json", "--tenant", "acme")
    assert TokenVerifier().find(created.json["token"]) is not None
    assert created.json["tenant"] == "acme"
