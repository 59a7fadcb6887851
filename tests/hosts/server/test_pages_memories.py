"""Memories, the inbox, people and projects, without a browser: what the forms change, and who may see what."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from served import CAT, HOST, WITHIN, make_service

from afterturn.config import Config
from afterturn.hosts.server.app import Service, make_app
from afterturn.hosts.server.grant import make_grant
from afterturn.memory import Memory, Space
from afterturn.types import Filter, Status

ORIGIN = f"http://{HOST}"
HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(2)>'
SignIn = Callable[..., httpx2.AsyncClient]


@pytest.fixture
async def service(tmp_path: Path, request: pytest.FixtureRequest) -> Service:
    service = make_service(tmp_path, **getattr(request, "param", {"rules": False}))
    service.options = replace(service.options, parts=frozenset({"api", "pages"}))
    return service


@pytest.fixture
async def sign_in(service: Service) -> AsyncIterator[Callable[..., Any]]:
    """Opens a session: `await sign_in(space=…, scopes=…)` returns a browser."""
    app, clients = make_app(service), list[httpx2.AsyncClient]()

    async def sign_in(tenant: str = "default", **grant: Any) -> httpx2.AsyncClient:
        transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
        headers = {"Accept": "text/html", "Origin": ORIGIN}
        client = httpx2.AsyncClient(transport=transport, base_url=ORIGIN, headers=headers, timeout=WITHIN)
        clients.append(client)
        code = service.sessions.create_link(make_grant(Config(tenant=tenant), **({"space": "*"} | grant)))
        assert (await client.get(f"/login?code={code}")).status_code == 303
        return client

    async with app.router.lifespan_context(app):
        yield sign_in
        for client in clients:
            await client.aclose()


@pytest.fixture
async def browser(sign_in: Any) -> httpx2.AsyncClient:
    client: httpx2.AsyncClient = await sign_in()
    return client


@pytest.fixture
async def memory(service: Service, sign_in: Any) -> Memory:
    return await service.memories.get("default")


@pytest.fixture
async def ada(memory: Memory) -> Space:
    return memory.space("user:ada")


async def see(browser: httpx2.AsyncClient, path: str, **query: Any) -> str:
    answer = await browser.get(path, params=query or None)
    assert answer.status_code == 200, answer.text
    return answer.text


async def post(browser: httpx2.AsyncClient, path: str, **fields: Any) -> str:
    """Sends a form, and returns the page after the redirect."""
    answer = await browser.post(path, data={"next": "/memories", **fields})
    if answer.status_code == 303:
        return await see(browser, answer.headers["location"])
    assert answer.status_code == 200, answer.text
    return answer.text


async def undo(browser: httpx2.AsyncClient, page: str) -> str:
    """Presses the Undo button of the notice."""
    notice = page[page.index('class="notice"') :]
    return await post(browser, "/undo", of=re.findall(r'name="of" value="([^"]+)"', notice))


async def talk(memory: Memory, messages: list[dict[str, str]], answer: str = "Noted.", **where: Any) -> None:
    conversation = memory.conversation("talk", user="ada", **where)
    async with conversation.turn(messages, id=f"turn-{len(messages)}") as turn:
        await turn.inject(messages, within=20)
        messages.append({"role": "assistant", "content": answer})
    assert await turn.wait_recorded()


class TestMemories:
    async def test_the_table_has_what_the_space_knows(self, browser: httpx2.AsyncClient, ada: Space):
        await ada.add(CAT, project="api")
        await ada.add("A page says that cats like fish", origin="web")
        page = await see(browser, "/memories")
        assert CAT in page
        assert "report" in page
        assert "never" in page
        assert CAT not in await see(browser, "/memories", origin="web")
        assert CAT not in await see(browser, "/memories", trust="reports")
        assert "fish" not in await see(browser, "/memories", project="api")

    async def test_search_finds_by_words_and_in_every_state(self, browser: httpx2.AsyncClient, ada: Space):
        added = await ada.add(CAT)
        await ada.add("Ada lives in Turin")
        assert "Turin" not in await see(browser, "/memories", q="chicken")
        await ada.delete(added.entry.id)
        assert CAT not in await see(browser, "/memories", q="chicken")
        assert CAT in await see(browser, "/memories", q="chicken", state="hidden")

    async def test_the_list_has_pages(self, browser: httpx2.AsyncClient, ada: Space):
        for number in range(60):
            await ada.add(f"Ada has seen film number {number}")
        page = await see(browser, "/memories")
        assert page.count('class="pick"') == 50
        found = re.search(r'href="([^"]+)" rel="next"', page)
        assert found is not None
        assert (await see(browser, found[1].replace("&amp;", "&"))).count('class="pick"') == 10

    async def test_how_often_and_when_it_was_shown(self, browser: httpx2.AsyncClient, memory: Memory, ada: Space):
        added = await ada.add(CAT)
        await talk(memory, [{"role": "user", "content": "What food is my cat allergic to?"}], standing="off")
        assert "1×" in await see(browser, "/memories")
        page = await see(browser, f"/memories/{added.entry.id}")
        assert "Shown in 1 turn<" in page
        assert "/turns/turn-1?owner=user%3Aada&amp;conversation=talk" in page

    async def test_several_are_changed_at_once_and_undone_at_once(self, browser: httpx2.AsyncClient, ada: Space):
        ids = [(await ada.add(text)).entry.id for text in (CAT, "Ada lives in Turin", "Ada plays the lute")]
        page = await post(browser, "/memories", space="user:ada", memory=ids[:2], do="pin")
        assert "2 memories pinned." in page
        assert len(await ada.list(filter=Filter(pinned=True))) == 2
        page = await post(browser, "/memories", space="user:ada", memory=ids[:2], do="hide")
        assert [one.text for one in await ada.list()] == ["Ada plays the lute"]
        await undo(browser, page)
        assert len(await ada.list()) == 3

    async def test_what_cannot_be_changed_is_said(self, browser: httpx2.AsyncClient, ada: Space):
        added = await ada.add(CAT)
        await ada.delete(added.entry.id)
        page = await post(browser, "/memories", space="user:ada", memory=added.entry.id, do="hide")
        assert "0 memories will not be brought up again. 1 memory not changed:" in page

    async def test_several_are_moved_and_come_back(self, browser: httpx2.AsyncClient, memory: Memory, ada: Space):
        ids = [(await ada.add(text)).entry.id for text in (CAT, "Grace lives in Turin")]
        page = await post(browser, "/memories", space="user:ada", memory=ids, do="move", to="user:grace")
        grace = memory.space("user:grace")
        assert await ada.list() == []
        assert {one.text for one in await grace.list()} == {CAT, "Grace lives in Turin"}
        await undo(browser, page)
        assert len(await ada.list()) == 2
        assert await grace.list() == []

    async def test_a_report_stays_a_report_when_it_is_moved(
        self, browser: httpx2.AsyncClient, memory: Memory, ada: Space
    ):
        page = await ada.add("A page says that cats like fish", origin="web")
        learned = await ada.add("Cats like fish", origin="background_review", sources=[page.entry.id])
        assert learned.entry.trust == 40
        for one in (learned, page):
            await post(browser, "/memories", space="user:ada", memory=one.entry.id, do="move", to="user:grace")
        moved, reported = await memory.space("user:grace").list()
        assert (reported.trust, moved.trust, reported.origin) == (40, 40, "web")
        assert moved.sources == (page.entry.id,)

    async def test_a_message_that_is_moved_becomes_a_memory_learned_from_it(
        self, browser: httpx2.AsyncClient, memory: Memory, ada: Space
    ):
        await talk(memory, [{"role": "user", "content": "Grace is allergic to peanuts."}])
        said = next(one for one in await ada.list() if "Grace" in one.text)
        await post(browser, "/fix/move", space="user:ada", memory=said.id, to="user:grace")
        (moved,) = await memory.space("user:grace").list()
        assert (moved.text, moved.kind, moved.sources) == (said.text, "statement", (said.id,))
        assert "Noted." in await see(browser, f"/memories/{moved.id}", space="user:grace")
        assert said.id not in [one.id for one in await ada.list()]

    async def test_several_are_forgotten_after_a_preview(self, browser: httpx2.AsyncClient, memory: Memory, ada: Space):
        messages = [{"role": "user", "content": "My cat Miso is allergic to chicken, by the way."}]
        await talk(memory, messages)
        (record,) = await ada.list(filter=Filter(metadata={}), limit=1)
        said = next(one for one in await ada.list() if "Miso" in one.text)
        learned = await ada.add(CAT, sources=[said.id])
        other = await ada.add("Ada lives in Turin")
        page = await post(browser, "/memories", space="user:ada", memory=[learned.entry.id], do="forget")
        assert CAT in page
        assert said.text in page
        assert len(await ada.list()) == 4
        fields = {"space": "user:ada", "memory": [learned.entry.id], "sources": "yes"}
        receipt = await post(browser, "/forget", **fields)
        assert "2 entries" in receipt
        assert "No key was destroyed." in receipt
        assert {one.id for one in await ada.list()} == {other.entry.id, record.id}

    async def test_versions_are_a_word_diff_with_undo(self, browser: httpx2.AsyncClient, ada: Space):
        added = await ada.add("Ada lives in Turin")
        await ada.update(added.entry.id, "Ada lives in Bergen")
        page = await see(browser, f"/memories/{added.entry.id}", space="user:ada")
        assert "Ada lives in <del>Turin</del><ins>Bergen</ins>" in page
        (operation,) = re.findall(r'name="of" value="([^"]+)"', page)
        assert "Undone." in await post(browser, "/undo", of=operation)
        assert (await ada.get(added.entry.id)).text == "Ada lives in Turin"

    async def test_the_source_is_shown_in_its_conversation(
        self, browser: httpx2.AsyncClient, memory: Memory, ada: Space
    ):
        await talk(memory, [{"role": "user", "content": "My cat Miso is allergic to chicken."}], answer="Poor Miso!")
        said = next(one for one in await ada.list() if "allergic" in one.text)
        learned = await ada.add("Miso must not eat chicken", sources=[said.id, "gone0000"])
        page = await see(browser, f"/memories/{learned.entry.id}")
        assert re.search(r'<li class="source">.*My cat Miso is allergic to chicken\.', page)
        assert "Poor Miso!" in page
        assert "1 more message forgotten" in page
        assert "Miso must not eat chicken" in await see(browser, f"/memories/{said.id}")

    @pytest.mark.parametrize("service", [{"rules": True}], indirect=True)
    async def test_whether_it_stands_also_in_the_words_of_its_message(
        self, browser: httpx2.AsyncClient, memory: Memory, ada: Space
    ):
        await talk(memory, [{"role": "user", "content": "We have a cat, Miso, who eats nothing with chicken in it."}])
        await memory.drain()
        (learned,) = await ada.list(filter=Filter(kind="statement"))
        other = await ada.add("A page says that cats like fish", origin="web")
        assert "yes, as a fact, in the words of its message" in await see(browser, f"/memories/{learned.id}")
        assert "yes, as a" not in await see(browser, f"/memories/{other.entry.id}")

    async def test_an_id_that_nobody_has_is_not_found(self, browser: httpx2.AsyncClient, ada: Space):
        await ada.add(CAT)
        answer = await browser.get("/memories/06nosuchmemory00")
        assert answer.status_code == 404


class TestInbox:
    async def test_an_empty_inbox_says_what_comes_here(self, browser: httpx2.AsyncClient):
        page = await see(browser, "/inbox")
        assert "Nothing waits for you" in page
        assert "sub-agents" in page

    async def test_a_change_is_a_diff_that_is_approved_and_undone(self, browser: httpx2.AsyncClient, ada: Space):
        added = await ada.add("Ada lives in Turin")
        await ada.update(added.entry.id, "Ada lives in Bergen", origin="agent")
        page = await see(browser, "/inbox")
        assert "<del>Turin</del><ins>Bergen</ins>" in page
        assert 'data-key="a"' in page
        page = await post(browser, "/inbox", space="user:ada", memory=added.entry.id, do="approve", next="/inbox")
        assert "Approved." in page
        assert (await ada.get(added.entry.id)).text == "Ada lives in Bergen"
        await undo(browser, page)
        assert (await ada.get(added.entry.id)).text == "Ada lives in Turin"
        assert len(await ada.proposals()) == 1

    async def test_a_proposal_is_edited_before_it_is_approved(self, browser: httpx2.AsyncClient, ada: Space):
        added = await ada.add("Ada wants short answers", origin="agent", metadata={"kind": "preference"})
        assert added.entry.status is Status.PROPOSED
        fields = {"space": "user:ada", "memory": added.entry.id, "do": "edit", "text": "Ada wants answers in Italian"}
        page = await post(browser, "/inbox", **fields, next="/inbox")
        now = await ada.get(added.entry.id)
        assert (now.text, now.status, now.origin) == ("Ada wants answers in Italian", "active", "user")
        await undo(browser, page)
        assert [one.text for one in await ada.proposals()] == ["Ada wants short answers"]

    async def test_rejecting_and_deciding_on_all(self, browser: httpx2.AsyncClient, ada: Space):
        kind = {"kind": "preference"}
        texts = ("Ada wants short answers", "Ada likes tables", "Ada hates tables")
        ids = [(await ada.add(text, origin="agent", metadata=kind)).entry.id for text in texts]
        await post(browser, "/inbox", space="user:ada", memory=ids[2], do="reject", next="/inbox")
        page = await post(browser, "/inbox", space="user:ada", memory=ids[:2], do="approve", next="/inbox")
        assert "Approved: 2." in page
        assert len(await ada.list()) == 2
        await undo(browser, page)
        assert {one.id for one in await ada.proposals()} == set(ids[:2])

    async def test_a_change_that_is_too_late_can_only_be_rejected(self, browser: httpx2.AsyncClient, ada: Space):
        added = await ada.add("Ada lives in Turin")
        await ada.update(added.entry.id, "Ada lives in Bergen", origin="agent")
        await ada.update(added.entry.id, "Ada lives in Utrecht")
        page = await see(browser, "/inbox")
        assert "The memory has changed since" in page
        assert "Ada lives in Utrecht" in page
        assert 'value="approve"' not in page
        answer = await browser.post("/inbox", data={"space": "user:ada", "memory": added.entry.id, "do": "approve"})
        assert answer.status_code == 409

    async def test_a_review_with_its_evidence_is_undone_as_a_whole(
        self, browser: httpx2.AsyncClient, memory: Memory, ada: Space
    ):
        await talk(memory, [{"role": "user", "content": "Remember that I always drink oolong tea."}])
        review = await ada.run_review("talk", rules=True)
        assert review is not None
        assert [one.text for one in await ada.list(filter=Filter(kind="statement"))]
        page = await see(browser, "/inbox")
        assert "Recent reviews" in page
        page = await post(browser, "/inbox/undo", space="user:ada", review=review.row.id, next="/inbox")
        assert await ada.list(filter=Filter(kind="statement")) == []
        await undo(browser, page)
        assert len(await ada.list(filter=Filter(kind="statement"))) == 1

    async def test_only_the_first_proposal_has_the_keys(self, browser: httpx2.AsyncClient, ada: Space):
        kind = {"kind": "preference"}
        for text in ("Ada wants short answers", "Ada likes tables"):
            await ada.add(text, origin="agent", metadata=kind)
        page = await see(browser, "/inbox")
        assert [page.count(f'data-key="{key}"') for key in "aerjk"] == [1, 1, 1, 1, 0]
        last = (await ada.proposals())[-1]
        page = await see(browser, "/inbox", at=last.id)
        assert [page.count(f'data-key="{key}"') for key in "aerjk"] == [1, 1, 1, 0, 1]


class TestAbout:
    async def test_the_block_is_what_a_new_conversation_gets(
        self, browser: httpx2.AsyncClient, memory: Memory, ada: Space
    ):
        await ada.add("Ada wants short answers", metadata={"kind": "preference"})
        page = await see(browser, "/about/user:ada")
        block = await memory.conversation("new", user="ada").standing().block()
        assert block.replace("<", "&lt;").replace(">", "&gt;").replace('"', "&#34;") in page
        assert f"{len(block.encode()):,} bytes" in page
        assert await ada.conversations() == ["new"]

    async def test_what_one_agent_learned_is_shown_for_that_agent(self, browser: httpx2.AsyncClient, ada: Space):
        await ada.add("Ada wants short answers", metadata={"kind": "preference"}, agent="basil")
        assert "- Ada wants short answers" in await see(browser, "/about/user:ada")
        assert "- Ada wants short answers" not in await see(browser, "/about/user:ada", agent="")

    async def test_a_conversation_becomes_incognito_and_is_listed(
        self, browser: httpx2.AsyncClient, memory: Memory, ada: Space
    ):
        await talk(memory, [{"role": "user", "content": "Hello, I am Ada."}])
        fields = {"space": "user:ada", "conversation": "talk", "next": "/about/user:ada"}
        page = await post(browser, "/incognito", **fields, on="yes")
        assert "talk is incognito" in page
        assert await memory.conversation("talk", user="ada").is_incognito()
        messages = [{"role": "user", "content": "I am thinking of leaving."}]
        async with memory.conversation("talk", user="ada").turn(messages) as turn:
            messages.append({"role": "assistant", "content": "I see."})
        await turn.wait_recorded()
        await post(browser, "/incognito", **fields, on="no")
        for _ in range(200):
            # Events are stored within a second.
            page = await see(browser, "/about/user:ada")
            if "had incognito turns" in page:
                break
            await asyncio.sleep(0.05)
        assert "had incognito turns" in page
        assert "leaving" not in page

    async def test_the_export_is_a_file_with_everything(self, browser: httpx2.AsyncClient, ada: Space):
        await ada.add(CAT)
        answer = await browser.get("/export", params={"space": "user:ada"})
        assert answer.headers["content-disposition"] == 'attachment; filename="user-ada.jsonl"'
        assert CAT in answer.text

    async def test_forgetting_everything_needs_the_name_and_leaves_a_receipt(
        self, browser: httpx2.AsyncClient, memory: Memory, ada: Space
    ):
        await ada.add(CAT)
        page = await see(browser, "/forget/space", space="user:ada", what="everything")
        assert "What is out of reach" in page
        assert CAT in page
        fields = {"space": "user:ada", "what": "everything"}
        answer = await browser.post("/forget/space", data={**fields, "typed": "user:grace"})
        assert answer.status_code == 400
        assert len(await ada.list()) == 1
        receipt = await post(browser, "/forget/space", **fields, typed="user:ada")
        assert "1 entry" in receipt
        assert [one.name for one in await memory.spaces()] == []

    async def test_one_conversation_is_forgotten(self, browser: httpx2.AsyncClient, memory: Memory, ada: Space):
        await ada.add(CAT)
        await talk(memory, [{"role": "user", "content": "Hello, I am Ada."}])
        fields = {"space": "user:ada", "what": "conversation", "name": "talk"}
        assert "Hello, I am Ada." in await see(browser, "/forget/space", **fields)
        assert "2 entries" in await post(browser, "/forget/space", **fields)
        assert [one.text for one in await ada.list()] == [CAT]


class TestAccess:
    @pytest.mark.parametrize(
        "path",
        [
            "/memories?space=user:grace",
            "/inbox?space=user:grace",
            "/about/user:grace",
            "/export?space=user:grace",
            "/forget/space?space=user:grace",
        ],
    )
    async def test_another_space_is_refused_whether_it_exists_or_not(self, sign_in: Any, memory: Memory, path: str):
        await memory.space("user:grace").add(CAT)
        ada = await sign_in(space="user:ada")
        refused = await ada.get(path)
        nobody = await ada.get(path.replace("grace", "nobody"))
        assert refused.status_code == nobody.status_code == 403
        assert refused.text.replace("grace", "nobody") == nobody.text
        assert CAT not in refused.text

    async def test_a_memory_of_another_space_is_as_unknown_as_none(self, sign_in: Any, memory: Memory):
        added = await memory.space("user:grace").add(CAT)
        ada = await sign_in(space="user:ada")
        found, none = await ada.get(f"/memories/{added.entry.id}"), await ada.get("/memories/06nosuchmemory00")
        assert found.status_code == none.status_code == 404

    async def test_another_tenant_sees_nothing(self, sign_in: Any, memory: Memory):
        added = await memory.space("user:ada").add(CAT)
        other = await sign_in(tenant="acme")
        assert "There are no memories yet" in await see(other, "/memories")
        assert "Nobody is known yet" in await see(other, "/about")
        assert (await other.get(f"/memories/{added.entry.id}?space=user:ada")).status_code == 404

    @pytest.mark.parametrize(
        "path, fields",
        [
            ("/memories", {"do": "hide"}),
            ("/memories", {"do": "move", "to": "user:other"}),
            ("/forget", {}),
            ("/inbox", {"do": "approve"}),
            ("/inbox/undo", {"review": "06nosuchreview00"}),
            ("/incognito", {"conversation": "talk", "on": "yes"}),
            ("/forget/space", {"what": "everything", "typed": "user:ada"}),
        ],
    )
    async def test_who_only_reads_changes_nothing(
        self, sign_in: Any, memory: Memory, path: str, fields: dict[str, str]
    ):
        ada = memory.space("user:ada")
        added = await ada.add(CAT)
        reader = await sign_in(space="user:ada", read_only=True)
        answer = await reader.post(path, data={"space": "user:ada", "memory": added.entry.id, **fields})
        assert answer.status_code == 403
        assert [one.text for one in await ada.list()] == [CAT]

    async def test_hostile_texts_are_only_text(self, browser: httpx2.AsyncClient, memory: Memory, ada: Space):
        where = {"project": HOSTILE[:60], "agent": HOSTILE[:60], "speaker": HOSTILE[:60], "conversation": HOSTILE[:60]}
        kind = {"kind": "preference"}
        added = await ada.add(f"Ada says {HOSTILE}", **where)
        await ada.update(added.entry.id, f"Ada now says {HOSTILE}")
        await ada.add(f"Ada wants {HOSTILE}", origin="agent", metadata=kind, **where)
        await memory.space(f"project:{HOSTILE[:60]}").add(f"A project {HOSTILE}", target="environment")
        for path in (
            "/memories",
            "/memories?state=any&kind=both&q=%3Cscript%3E",
            f"/memories/{added.entry.id}",
            f"/forget?space=user:ada&memory={added.entry.id}",
            "/inbox",
            "/about",
            "/about/user:ada",
            "/forget/space?space=user:ada",
            "/forget/space?space=user:ada&what=everything",
            "/forget/space?space=user:ada&what=speaker&name=%22%3E%3Cscript%3Ealert(1)%3C/script%3E",
        ):
            page = await see(browser, path)
            assert "<script>alert" not in page
            assert "<img" not in page
        assert "&lt;script&gt;alert" in await see(browser, "/memories")
