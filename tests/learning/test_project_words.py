"""What the user says about a project is learned in the project's space."""

from pathlib import Path

import pytest

import afterturn


@pytest.mark.parametrize(
    "said, kind",
    [
        ("Please always answer in German in this repository.", "convention"),
        ("I hate mocks in our tests.", "convention"),
        ("Remember that I prefer tabs in this project.", "fact"),
    ],
)
async def test_a_preference_that_speaks_of_the_project_stays_in_its_space(tmp_path: Path, said: str, kind: str):
    """P1: without a space for the environment, it is the user's as before."""
    async with afterturn.open(tmp_path / "memory.db", {"embedder": "none"}) as memory:
        for user, environment in (("ada", "project:api"), ("bob", None)):
            talk = memory.conversation("talk", user=user, environment=environment)
            messages = [{"role": "user", "content": said}]
            async with talk.turn(messages):
                messages.append({"role": "assistant", "content": "Noted."})
        await memory.drain(within=30)
        statements = afterturn.Filter(kind="statement")
        ada, project, bob = [
            await memory.space(name).list(filter=statements) for name in ("user:ada", "project:api", "user:bob")
        ]
    assert (len(ada), len(project), len(bob)) == (0, 1, 1)
    assert project[0].metadata["kind"] == kind
    assert (project[0].target, bob[0].target) == ("environment", "user")
