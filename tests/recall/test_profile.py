"""The profile: what a space knows now, by subject, and the answers to broad questions that are made from it."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

import afterturn
from afterturn import blocking
from afterturn.recall.broad_questions import read_broad_question
from afterturn.recall.profile import RECORDS_READ_MAX, STATEMENTS_ENOUGH, Profile, group_by_subject, profile_hits
from afterturn.recall.query import RecallRequest
from afterturn.testing.clock import ManualClock
from afterturn.testing.entries import hit
from afterturn.types import Draft, Hit, Kind, LaneQuery, Origin, Scope, Target
from afterturn.utterance import states_about_speaker

ADA = Scope("default", ("user:ada",))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def memory(tmp_path: Path, clock: ManualClock) -> AsyncIterator[afterturn.Memory]:
    parts = afterturn.Components(clock=clock)
    settings = {"embedder": "none", "background": False}
    async with afterturn.open(tmp_path / "memory.db", settings, components=parts) as opened:
        yield opened


def texts(profile: Profile) -> list[str]:
    return [entry.text for subject in profile.subjects for entry in subject.entries]


def names(*statements: str) -> dict[str, list[str]]:
    """What is said, oldest first, by subject."""
    entries = [hit(text, id=f"e{at:03}", occurred_at=float(at)).entry for at, text in enumerate(statements)]
    return {subject.name: [entry.text for entry in subject.entries] for subject in group_by_subject(entries)}


async def record(memory: afterturn.Memory, *said: str, conversation: str = "c1") -> None:
    drafts = [
        Draft(text, kind=Kind.RECORD, conversation=conversation, position=at, occurred_at=1000.0 + at)
        for at, text in enumerate(said)
    ]
    await memory.space("user:ada").add_many(drafts)


async def answer(memory: afterturn.Memory, question: str, **admitted: object) -> list[Hit]:
    asked = read_broad_question(question)
    assert asked is not None
    query = LaneQuery(ADA, memory._services.clock.now())._replace(**admitted)
    request = RecallRequest(question, query, limit=20, score_min=0.5)
    return await memory._services.store.read(lambda unit: profile_hits(unit, request, asked, limit=10), at=None)


def test_statements_are_grouped_by_the_names_and_things_that_they_share() -> None:
    """L14: newest first in each; the subject with the newest comes first."""
    assert names(
        "My sister Ruth is coeliac",
        "I work at the library",
        "The dog is called Biscuit",
        "Ruth lives in Leeds",
        "We took Biscuit to the vet",
    ) == {
        "Biscuit": ["We took Biscuit to the vet", "The dog is called Biscuit"],
        "Ruth": ["Ruth lives in Leeds", "My sister Ruth is coeliac"],
        "user": ["I work at the library"],
    }


@pytest.mark.parametrize(
    "statements, name",
    [
        (("mein Betrieb ist in Marburg", "der Betrieb hat vier Leute", "ich trinke Tee"), "Betrieb"),
        (("ma sœur clara se marie en juin", "ma sœur habite à annecy", "je travaille à nantes"), "sœur"),
        (("大宮に引っ越した", "会場は大宮です", "猫がいます"), "大宮"),
    ],
)
def test_subjects_are_found_in_other_languages(statements: tuple[str, ...], name: str) -> None:
    """L14: by how names are written, and by what people call theirs."""
    assert len(names(*statements)[name]) == 2


def test_a_name_that_is_everywhere_is_no_subject() -> None:
    """L14: statements about the user name the user."""
    found = names("Ada drinks tea", "Ada rides a bike", "Ada lives in Turin", "Ada has a cat", "Ada hates rain")
    assert list(found) == ["user"]


def test_what_is_about_the_environment_is_apart() -> None:
    """L14: under its project if it has one."""
    first = replace(hit("Deploys take four minutes", id="e001").entry, target=Target.ENVIRONMENT, project="api")
    second = replace(hit("Builds run at night", id="e002").entry, target=Target.ENVIRONMENT)
    third = hit("I drink tea", id="e003").entry
    assert {subject.name for subject in group_by_subject([first, second, third])} == {"api", "environment", "user"}


async def test_a_profile_has_what_holds_now_and_is_trusted(memory: afterturn.Memory, clock: ManualClock) -> None:
    """L14, L7, G2: nothing that was replaced, deleted, proposed, has expired, or came from a page."""
    ada = memory.space("user:ada")
    tea = await ada.add("Ada drinks tea")
    await ada.update(tea.entry.id, "Ada drinks oolong")
    gone = await ada.add("Ada rides a bike")
    await ada.delete(gone.entry.id)
    await ada.add("Ada is in Rome", expires_at=clock.now() + 10)
    await ada.add("Ada will be in Oslo", valid_from=clock.now() + 100)
    await ada.add("Ada owes me money", origin="web")
    clock.advance(20)
    assert texts(await ada.profile()) == ["Ada drinks oolong"]


async def test_while_few_statements_are_known_what_the_user_said_is_added(memory: afterturn.Memory) -> None:
    """L14, L11: what states something; no questions, orders or thanks."""
    await record(
        memory,
        "I live in Turin with my wife",
        "what is the weather like?",
        "thanks a lot!",
        "translate this sentence for me",
        "my brother is allergic to nuts",
    )
    ada = memory.space("user:ada")
    assert texts(await ada.profile()) == ["my brother is allergic to nuts", "I live in Turin with my wife"]
    for number in range(STATEMENTS_ENOUGH):
        await ada.add(f"Ada keeps {number} bees in hive {number * 7}")
    assert not any("Turin" in text for text in texts(await ada.profile(limit=200)))


async def test_what_a_statement_was_learned_from_is_not_told_again(memory: afterturn.Memory) -> None:
    """L10: nor what says the same."""
    await record(memory, "I moved to Turin last week")
    ada = memory.space("user:ada")
    (said,) = await ada.list()
    await ada.add("The user moved to Turin on 2 March", origin="background_review", sources=[said.id])
    await ada.add("Ada drinks tea")
    await ada.add("ada drinks TEA!", target="environment")
    assert len(texts(await ada.profile())) == 2


async def test_a_message_that_says_more_than_was_learned_from_it_stays(memory: afterturn.Memory) -> None:
    """L10: nothing is lost."""
    await record(memory, "I moved to Turin, where my brother runs a bakery and my cousin teaches the violin")
    ada = memory.space("user:ada")
    (said,) = await ada.list()
    await ada.add("The user moved to Turin", origin="background_review", sources=[said.id])
    assert len(texts(await ada.profile())) == 2


async def test_a_profile_is_bounded_and_can_be_narrowed(memory: afterturn.Memory) -> None:
    """L14: of many statements, those that tell most; of a project, nothing of another."""
    ada = memory.space("user:ada")
    for number in range(8):
        await ada.add(f"Ada has seen film number {number}")
    await ada.add("The shop uses yarn", project="shop", target="environment")
    await ada.add("The api uses pnpm", project="api", target="environment")
    assert len(texts(await ada.profile(limit=3))) == 3
    narrowed = texts(await ada.profile(project="api"))
    assert ("The api uses pnpm" in narrowed, "The shop uses yarn" in narrowed) == (True, False)
    with pytest.raises(afterturn.InvalidInput):
        await ada.profile(limit=0)


def test_hosts_without_a_loop_have_the_same_profile(tmp_path: Path) -> None:
    """L14: on both facades."""
    with blocking.open(tmp_path / "memory.db", {"embedder": "none"}) as memory:
        ada = memory.space("user:ada")
        assert ada.profile() == Profile("user:ada", ())
        ada.add("Ada drinks tea")
        assert texts(ada.profile()) == ["Ada drinks tea"]


async def test_a_broad_question_is_answered_in_order_of_worth(memory: afterturn.Memory) -> None:
    """L14: a statement is worth more than what was only said, and nothing is told twice."""
    ada = memory.space("user:ada")
    await record(memory, "my cat Mimi is eleven years old", "My cat Mimi is eleven years old!", "I play the cello")
    await ada.add("The user works at the library")
    hits = await answer(memory, "What do you know about me?")
    assert hits[0].entry.text == "The user works at the library"
    assert {hit.entry.text for hit in hits[1:]} == {"I play the cello", "My cat Mimi is eleven years old!"}
    scores = [hit.score for hit in hits]
    assert scores == sorted(scores, reverse=True)
    assert 0 < scores[-1] <= scores[0] <= 1


async def test_a_narrower_question_prefers_its_subject(memory: afterturn.Memory) -> None:
    """L14: by its words, by what belongs to a family, and by the names that are introduced with it."""
    await record(
        memory,
        "I play the cello in an orchestra in Leeds",
        "my husband Dev works at the hospital",
        "my bike is a Brompton with three gears",
        "Dev is off nights from December",
        "I study Norwegian at the college",
    )
    family = [hit.entry.text for hit in await answer(memory, "What do you know about my family?")]
    assert set(family[:2]) == {"my husband Dev works at the hospital", "Dev is off nights from December"}
    bike = [hit.entry.text for hit in await answer(memory, "what do you know about my bike?")]
    assert bike[0] == "my bike is a Brompton with three gears"


async def test_a_question_about_the_project_prefers_what_is_about_it(memory: afterturn.Memory) -> None:
    """L14: memories about the environment, or with a project."""
    ada = memory.space("user:ada")
    await ada.add("Ada plays the cello in an orchestra")
    await ada.add("Deploys run on Thursday with the new script", target="environment")
    hits = await answer(memory, "Summarise this project")
    assert hits[0].entry.target is Target.ENVIRONMENT


async def test_an_answer_excludes_what_the_model_sees(memory: afterturn.Memory) -> None:
    """L3, L9: by reference, by message, and what was learned from visible messages alone."""
    await record(memory, "I moved to Turin", "I play the cello")
    ada = memory.space("user:ada")
    cello, turin = await ada.list()
    await ada.add("The user lives in Turin", origin="background_review", sources=[turin.id])
    tea = await ada.add("Ada drinks tea")
    hits = await answer(
        memory,
        "What do you know about me?",
        excluded_refs=frozenset([tea.entry.ref]),
        visible_hashes=frozenset([turin.content_hash]),
    )
    assert [hit.entry.id for hit in hits] == [cello.id]


@pytest.mark.parametrize(
    "told, remarks",
    [
        ("my brother Aldo is allergic to nuts", ("hello again", "thanks!", "haha nice", "good night", "I am bored")),
        ("meine Schwester Ilse wohnt seit März in Freiburg", ("hallo", "danke dir", "na gut", "gute nacht")),
        ("ma fille Zoé est allergique aux noix", ("bonjour", "merci beaucoup", "bonne nuit", "ah bon")),
        ("妹は京都の大学で化学を勉強している", ("こんにちは", "ありがとう", "おやすみ", "なるほど")),
    ],
)
async def test_small_talk_does_not_push_a_fact_out_of_the_profile(
    memory: afterturn.Memory, told: str, remarks: tuple[str, ...]
) -> None:
    """L14: however much of it follows."""
    await record(memory, told)
    for part in range(8):
        await record(memory, *(remarks * 30), conversation=f"small talk {part}")
    assert told in texts(await memory.space("user:ada").profile(limit=5))
    assert told in [hit.entry.text for hit in await answer(memory, "What do you know about me?")]


async def test_of_many_facts_those_are_read_that_tell_most(memory: afterturn.Memory) -> None:
    """L14: remarks that state little come after them, even if they are newer."""
    facts = [f"my cousin number {number} runs a bakery with {number} ovens in Turin" for number in range(3)]
    await record(memory, *facts)
    await record(memory, *(f"I am in mood {number}" for number in range(RECORDS_READ_MAX + 100)), conversation="c2")
    assert set(facts) <= set(texts(await memory.space("user:ada").profile(limit=100)))


def test_how_much_a_message_tells_about_its_speaker() -> None:
    """L11: statements about oneself most, questions and orders little."""
    told = states_about_speaker("I'm a nurse and I work at night")
    assert told > states_about_speaker("The museum opens at ten")
    assert told > states_about_speaker("Book a table for two")
    assert states_about_speaker("Where is the museum?") < 0.3
    assert states_about_speaker("I wrote this: " + "long text " * 400) == 0


async def test_only_the_user_is_asked_about_the_user(memory: afterturn.Memory) -> None:
    """G2b: what the assistant or a tool said is not a statement of the user's."""
    drafts = [
        Draft("I am a helpful assistant and I live in a computer", kind=Kind.RECORD, origin=Origin.AGENT),
        Draft("my own server runs at home in the cellar", kind=Kind.RECORD, origin=Origin.TOOL),
    ]
    await memory.space("user:ada").add_many(drafts)
    assert await answer(memory, "What do you know about me?") == []
