"""What the gate makes of secrets and of lineage, with scanners on and off."""

from typing import Any

import pytest

from afterturn.config import Config
from afterturn.errors import InvalidInput, InvalidName, TooLarge
from afterturn.guard import gate as guard_gate
from afterturn.guard.gate import Gate, lowered
from afterturn.testing.clock import ManualClock, SequentialIds
from afterturn.types import Draft, Kind, Origin, Verdict

TOKEN = "ghp_" + "a1B2" * 9
ON = Gate(Config(), ManualClock(), SequentialIds())
OFF = Gate(Config(scanners="none"), ManualClock(), SequentialIds())
TRUSTED = [Origin.USER, Origin.AGENT, Origin.BACKGROUND_REVIEW]
UNTRUSTED = [Origin.SUBAGENT, Origin.TOOL, Origin.WEB, Origin.IMPORT]


@pytest.mark.parametrize("origin", TRUSTED)
@pytest.mark.parametrize("kind", list(Kind))
def test_a_trusted_origins_secret_is_redacted_and_the_reason_kept(origin: Origin, kind: Kind) -> None:
    """G1, G2: the statement stays, the secret does not, not even in the draft."""
    admitted = ON.admit_import(Draft(f"The key is {TOKEN}", kind=kind, origin=origin))
    assert (admitted.verdict, admitted.reason) == (Verdict.REDACT, "github token redacted")
    assert admitted.text == admitted.draft.text == "The key is [redacted: github token]"
    assert not any("ghp" in term for term in admitted.terms)


@pytest.mark.parametrize("origin", UNTRUSTED)
@pytest.mark.parametrize("kind", list(Kind))
def test_what_is_redacted_for_the_trusted_is_quarantined_for_others(origin: Origin, kind: Kind) -> None:
    """G2: and redacted as well."""
    admitted = ON.admit_import(Draft(f"The key is {TOKEN}", kind=kind, origin=origin))
    assert (admitted.verdict, TOKEN in repr(admitted)) == (Verdict.QUARANTINE, False)


@pytest.mark.parametrize("origin, verdict", [(Origin.AGENT, Verdict.REDACT), (Origin.TOOL, Verdict.QUARANTINE)])
def test_a_record_is_redacted_like_a_statement(origin: Origin, verdict: Verdict) -> None:
    """G1, G2: a message as it was said, but for its secret."""
    admitted = ON.admit_record(Draft(f"  {TOKEN}\n", origin=origin))
    assert admitted is not None
    assert (admitted.text, admitted.verdict) == ("  [redacted: github token]\n", verdict)


def test_a_message_that_was_redacted_before_is_judged_by_what_was_in_it() -> None:
    """G2: where it was redacted makes no difference, and a mark that somebody wrote is no secret."""
    text = "key [redacted: github token]"
    before = ON.admit_record(Draft(text, origin=Origin.TOOL), redacted=("github token",))
    forged = ON.admit_record(Draft(text, origin=Origin.TOOL))
    assert before is not None
    assert forged is not None
    assert (before.verdict, before.reason) == (Verdict.QUARANTINE, "github token redacted")
    assert forged.verdict is Verdict.ALLOW


def test_a_secret_at_the_end_of_what_fits_is_not_cut_in_half(monkeypatch: pytest.MonkeyPatch) -> None:
    """G1: what is left of a token that a limit cuts is no token that a scanner knows."""
    monkeypatch.setattr(guard_gate, "RECORD_BYTES_MAX", 1024)
    admitted = ON.admit_record(Draft("x " * 500 + TOKEN + " y" * 500))
    assert admitted is not None
    assert ("ghp_" in admitted.text, "cut from" in admitted.reason) == (False, True)


def test_a_statement_is_weighed_without_its_secret() -> None:
    """G1, G5: a key may make it too long; what is far too long is not looked through at all."""
    key = "-----BEGIN RSA PRIVATE KEY-----\n" + "aB3d" * 2000 + "\n-----END RSA PRIVATE KEY-----"
    assert ON.admit(Draft(f"{'x' * 500} {key}")).text == f"{'x' * 500} [redacted: private key]"
    with pytest.raises(TooLarge) as refused:
        ON.admit(Draft("x" * 100_000 + TOKEN))
    assert refused.value.size_bytes == 100_000 + len(TOKEN)


def test_secrets_in_metadata_are_redacted_too() -> None:
    """G1: whoever hides one beside the text."""
    admitted = ON.admit(Draft("Deployed", metadata={"with": TOKEN, "tries": 3}, sources=("a",)))
    assert admitted.draft.metadata == {"with": "[redacted: github token]", "tries": 3}
    assert (admitted.verdict, admitted.draft.sources) == (Verdict.REDACT, ("a",))


NAMED = [
    ("speaker", {"speaker": f"bot {TOKEN}"}),
    ("project", {"project": TOKEN}),
    ("agent", {"agent": TOKEN}),
    ("source", {"sources": ("a", TOKEN)}),
    ("metadata key", {"metadata": {TOKEN: 1, "b": 2}}),
]


@pytest.mark.parametrize("what, fields", NAMED, ids=lambda value: value if isinstance(value, str) else "")
def test_a_name_that_is_a_secret_is_refused(what: str, fields: dict[str, Any]) -> None:
    """G1: and the message does not repeat it. Nothing is refused while scanning is off."""
    with pytest.raises(InvalidInput, match=f"The {what} contains a secret") as refused:
        ON.admit(Draft("Deployed", **fields))
    assert TOKEN not in str(refused.value)
    assert OFF.admit(Draft("Deployed", **fields)).verdict is Verdict.ALLOW


def test_a_secret_as_the_id_of_a_conversation_is_refused() -> None:
    """G1, M2: the id is how an entry is found again and forgotten, so it cannot be redacted."""
    with pytest.raises(InvalidName, match="conversation contains a secret"):
        ON.admit(Draft("Deployed", conversation=TOKEN))
    assert OFF.admit(Draft("Deployed", conversation=TOKEN)).draft.conversation == TOKEN


@pytest.mark.parametrize("admit", ["admit_record", "admit_import"])
def test_a_recorded_message_goes_on_without_secrets_in_its_names(admit: str) -> None:
    """G1: it is kept, since nobody is there to be told; what ties messages together stays."""
    said = Draft(
        "Deployed",
        kind=Kind.RECORD,
        speaker=f"bot {TOKEN}",
        project=TOKEN,
        agent="deployer",
        conversation="c",
        sources=("a", TOKEN),
        metadata={TOKEN: 1, "b": 2},
    )
    admitted = getattr(ON, admit)(said)
    draft = admitted.draft
    assert (draft.speaker, draft.project) == ("bot [redacted: github token]", "[redacted: github token]")
    assert (draft.agent, draft.conversation, draft.sources, draft.metadata) == ("deployer", "c", ("a",), {"b": 2})
    assert (admitted.verdict, admitted.reason) == (Verdict.REDACT, "github token redacted")


def test_metadata_that_is_none_is_still_refused_by_name() -> None:
    """G1: looking for secrets takes nothing for granted."""
    with pytest.raises(InvalidInput, match="Metadata"):
        ON.admit(Draft("Deployed", metadata=[TOKEN]))  # type: ignore[arg-type]


@pytest.mark.parametrize("origin", list(Origin))
def test_nothing_is_scanned_while_scanning_is_off(origin: Origin) -> None:
    """G1: a host may do that itself; whose words they are still counts."""
    admitted = OFF.admit(Draft(f"The key is {TOKEN}", origin=origin, metadata={"with": TOKEN}))
    assert (admitted.text, admitted.verdict) == (f"The key is {TOKEN}", Verdict.ALLOW)
    assert admitted.trust == origin.trust


@pytest.mark.parametrize("gate", [ON, OFF])
@pytest.mark.parametrize(
    "origin, lineage, trust",
    [
        (Origin.BACKGROUND_REVIEW, (100, 40), 40),
        (Origin.BACKGROUND_REVIEW, (100, 80), 60),
        (Origin.USER, (20, 40), 20),
        (Origin.TOOL, (100,), 40),
        (Origin.AGENT, (), 80),
    ],
)
def test_trust_is_the_least_of_the_origin_and_of_what_it_rests_on(
    gate: Gate, origin: Origin, lineage: tuple[int, ...], trust: int
) -> None:
    """G2: by lineage, for statements and records, whether anything is scanned or not."""
    statement, record = Draft("Ada likes tea", origin=origin), Draft("tea", kind=Kind.RECORD, origin=origin)
    said = gate.admit_record(record, lineage=lineage)
    assert said is not None
    admitted = [gate.admit(statement, lineage=lineage), gate.admit_import(record, lineage=lineage), said]
    assert [one.trust for one in admitted] == [trust] * 3


def test_what_turns_out_to_rest_on_less_is_quarantined_with_its_secret() -> None:
    """G2: a review that read a tool's output is trusted as far as the tool."""
    admitted = ON.admit(Draft(f"The key is {TOKEN}", origin=Origin.BACKGROUND_REVIEW))
    assert (admitted.verdict, lowered(admitted, [100]).verdict) == (Verdict.REDACT, Verdict.REDACT)
    assert (lowered(admitted, [40]).verdict, lowered(admitted, [40]).trust) == (Verdict.QUARANTINE, 40)


def test_two_statements_that_differ_in_their_secret_are_one() -> None:
    """G6: duplicates are told after redaction."""
    other = "ghp_" + "Z9y8" * 9
    texts = [f"Ada's key is {token}" for token in (TOKEN, other)]
    assert len({ON.admit(Draft(text)).content_hash for text in texts}) == 1
    assert len({OFF.admit(Draft(text)).content_hash for text in texts}) == 2
