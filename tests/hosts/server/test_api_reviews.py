"""The inbox and the reviews over HTTP."""

import asyncio

import pytest
from served import Api

from afterturn.memory import Space

ANSWER = {"role": "assistant", "content": "Noted."}


async def propose(api: Api, text: str) -> str:
    """A statement of an agent that would stand waits for a person."""
    added = await api.post("/spaces/user:ada/memories", text=text, origin="agent", metadata={"kind": "preference"})
    assert added["entry"]["status"] == "proposed", added
    return str(added["entry"]["id"])


async def test_proposals_are_approved_rejected_and_edited(api: Api):
    """V8: a person decides, and every decision can be undone."""
    first, second, third = [await propose(api, f"Prefers {what} answers.") for what in ("short", "long", "polite")]
    listed = (await api.get("/spaces/user:ada/proposals"))["proposals"]
    assert [one["id"] for one in listed] == [third, second, first]
    assert (await api.get(f"/spaces/user:ada/proposals/{first}"))["obstacle"] == ""
    approved = await api.post(f"/spaces/user:ada/proposals/{first}/approve")
    assert approved["entry"]["status"] == "active"
    assert await api.status("POST", f"/spaces/user:ada/proposals/{first}/approve") == 409
    rejected = await api.post(f"/spaces/user:ada/proposals/{second}/reject")
    await api.post("/spaces/user:ada/undo", target=rejected["operation"])
    edited = await api.post(f"/spaces/user:ada/proposals/{third}/edit", text="Prefers kind answers.")
    assert [one["entry"]["text"] for one in edited["changed"]] == ["Prefers polite answers.", "Prefers kind answers."]
    assert (await api.get(f"/spaces/user:ada/memories/{third}"))["text"] == "Prefers kind answers."
    for one in reversed(edited["changed"]):
        await api.post("/spaces/user:ada/undo", target=one["operation"])
    waiting = await api.get("/spaces/user:ada/proposals", limit=1)
    assert waiting["before"] == third
    assert (await api.get("/spaces/user:ada/proposals", before=third))["proposals"][0]["id"] == second


async def test_an_edit_that_is_refused_leaves_the_proposal_waiting(api: Api):
    proposal = await propose(api, "Prefers short answers.")
    assert await api.status("POST", f"/spaces/user:ada/proposals/{proposal}/edit", json={"text": " "}) == 400
    assert [one["id"] for one in (await api.get("/spaces/user:ada/proposals"))["proposals"]] == [proposal]


async def test_an_edit_that_takes_too_long_leaves_the_proposal_waiting(api: Api, monkeypatch: pytest.MonkeyPatch):
    """V8: the text that a person has corrected does not stand."""

    async def update(self: Space, *_: object, **__: object) -> None:
        await asyncio.Event().wait()

    proposal = await propose(api, "Prefers short answers.")
    monkeypatch.setattr(Space, "update", update)
    monkeypatch.setattr("afterturn.hosts.server.app.REQUEST_SECONDS", 0.5)
    body = {"text": "Prefers long answers."}
    assert await api.status("POST", f"/spaces/user:ada/proposals/{proposal}/edit", json=body) == 503
    assert [one["id"] for one in (await api.get("/spaces/user:ada/proposals"))["proposals"]] == [proposal]


async def test_several_are_decided_at_once(api: Api):
    ids = [await propose(api, f"Prefers {what} answers.") for what in ("short", "long")]
    decided = await api.post("/spaces/user:ada/proposals/approve", ids=[*ids, "06gyhh9w1wh6e297"])
    assert [one["entry"]["id"] for one in decided["changed"]] == ids
    assert list(decided["skipped"]) == ["06gyhh9w1wh6e297"]
    await api.post("/spaces/user:ada/undo", target=decided["group"])
    assert len((await api.post("/spaces/user:ada/proposals/reject", ids=ids))["changed"]) == 2


async def test_a_review_is_run_listed_and_undone(api: Api):
    """V8: a review is a diff that one request takes back."""
    messages = [{"role": "user", "content": "Call me Max from now on."}]
    await api.start(messages)
    assert (await api.verb("finish", messages=[*messages, ANSWER]))["recorded"]
    await api.post("/spaces/user:ada/reviews", conversation="c1", rules=True)
    reviews = (await api.get("/spaces/user:ada/reviews"))["reviews"]
    saved = next(one["id"] for one in reviews if one["state"] == "saved")
    review = await api.get(f"/spaces/user:ada/reviews/{saved}")
    assert "Max" in review["changes"][0]["after"]["text"]
    assert (await api.post(f"/spaces/user:ada/reviews/{saved}/undo"))["undone"]
    assert await api.status("POST", f"/spaces/user:ada/reviews/{saved}/undo") == 409
    assert await api.status("GET", "/spaces/user:ada/reviews/06gyhh9w1wh6e297") == 404
    # Without a model there is nothing that could review.
    assert await api.status("POST", "/spaces/user:ada/reviews", json={"conversation": "c1"}) == 400
