"""Looking back: what each turn recalled, where that went, and why every other memory did not come."""

from pathlib import Path

import pytest
from controlled_store import Stage, learn, learn_herbs, settled
from spoken import Message, OpenMemory, answer, assistant, call, user

import afterturn
from afterturn.config import Config
from afterturn.conversation.trace import TracedRecall, TracedTurn
from afterturn.errors import InvalidInput, InvalidName, NotFound
from afterturn.recall.explain import Explained
from afterturn.recall.scoring import ScoreKind
from afterturn.stores.sqlite.engine import open_engine
from afterturn.testing.clock import ManualClock
from afterturn.testing.entries import operation
from afterturn.types import Decision, Verb

CAT = "What is my cat called?"


async def spoken(
    memory: afterturn.Memory, messages: list[Message], text: str = CAT, conversation: str = "c", **where: object
) -> afterturn.Turn:
    """One recorded turn of Ada's, with its block if there is one."""
    messages.append(user(text))
    async with memory.conversation(conversation, user="ada", **where).turn(messages) as turn:  # type: ignore[arg-type]
        await turn.inject(messages)
        messages.append(assistant("Noted."))
    await turn.wait_recorded()
    assert await memory.drain()
    return turn


async def looked_at(memory: afterturn.Memory, turn: str | int = "last", conversation: str = "c") -> TracedTurn:
    (traced,) = (await memory.conversation(conversation, user="ada").trace(turn)).turns
    return traced


async def told(memory: afterturn.Memory, words: str, conversation: str = "c") -> Explained:
    """What became of the memory with these words in the last turn's recall."""
    traced = await looked_at(memory, conversation=conversation)
    everything = [one for recall in traced.recalls for one in (*recall.shown, *recall.left_out)]
    (found,) = [one for one in everything if words in one.text]
    return found


async def why(memory: afterturn.Memory, entry_id: str, *look_in: str, conversation: str = "c") -> Explained:
    (found,) = await memory.conversation(conversation, user="ada").why(entry_id, look_in=look_in)
    return found.explained


async def remembered(memory: afterturn.Memory, text: str, **fields: object) -> str:
    return (await memory.space("user:ada").add(text, **fields)).entry.id  # type: ignore[arg-type]


# What came.


async def test_a_turn_tells_what_came_when_and_where(memory: afterturn.Memory, clock: ManualClock) -> None:
    """R5, H1: the question, when it was asked and settled, the point, the size, each memory with its scores."""
    known = await remembered(memory, "Ada's cat is called Miso")
    messages: list[Message] = []
    turn = await spoken(memory, messages)
    traced = await looked_at(memory)
    (recall,) = traced.recalls
    (block,) = traced.blocks
    (shown,) = recall.shown
    text = str(messages[1]["content"])
    assert (traced.number, traced.turn.id, traced.turn.status) == (1, turn.id, "completed")
    assert (recall.row.question, recall.milliseconds, recall.fate) == (CAT, 0.0, "after the user's message")
    assert (block.text, block.size_bytes, block.memories) == (text, len(text.encode()), 1)
    assert (block.point, block.injected_at, block.carried_from) == ("user_message", clock.now(), ())
    assert block.tokens is not None
    assert (shown.ref, shown.why, shown.lane, shown.terms) == (known, "shown", "long_term", ("call", "cat"))
    assert (shown.text, 0 < shown.lexical < 1, 0 < shown.score < 1) == (
        *("just now, user: Ada's cat is called Miso", True, True),
    )


async def test_what_was_carried_is_told_in_both_turns(stage: Stage) -> None:
    """R8: where it was asked, where it was handed over, and from which turn the block has it."""
    async with stage.open() as memory:
        await learn_herbs(memory, stage.clock)
        messages: list[Message] = [user("What goes into the soup?")]
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            await settled(turn)
            messages.append(assistant("I do not know."))
        await turn.wait_recorded()
        stage.clock.advance(7.0)
        await spoken(memory, messages)
        first, second = (await memory.conversation("c", user="ada").trace()).turns
    (asked,), (handed_over, *_) = first.recalls, second.recalls
    assert [(one.turn, one.delivered_in) for one in (asked, handed_over)] == [(1, 2), (1, 2)]
    assert (first.blocks, second.blocks[0].carried_from) == ((), (1,))
    assert handed_over.row.delivered_at == handed_over.row.asked_at + 7.0


async def test_turns_are_named_by_number_by_id_and_as_the_last(memory: afterturn.Memory) -> None:
    """C3: hosts may call their turns "2"; an id comes before a number."""
    await remembered(memory, "Ada's cat is called Miso")
    conversation = memory.conversation("c", user="ada")
    for name in ("2", "one"):
        messages = [user(CAT)]
        async with conversation.turn(messages, id=name) as turn:
            messages.append(assistant("Miso."))
        await turn.wait_recorded()
    await memory.drain()
    names = [(await looked_at(memory, wanted)).turn.id for wanted in ("2", 1, "one", "last")]
    assert names == ["2", "2", "one", "one"]
    for nobody in (3, "three", 0):
        with pytest.raises(NotFound, match="has no turn"):
            await conversation.trace(nobody)
    with pytest.raises(NotFound, match="no conversation"):
        await memory.conversation("other", user="ada").trace()


async def test_of_a_long_conversation_the_newest_turns_are_told(memory: afterturn.Memory) -> None:
    messages: list[Message] = []
    for _ in range(4):
        await spoken(memory, messages)
    trace = await memory.conversation("c", user="ada").trace(limit=2)
    assert ([turn.number for turn in trace.turns], trace.turns_total) == ([3, 4], 4)


@pytest.mark.parametrize("limit", [0, 10_001, True, "ten", 1.5])
async def test_a_limit_that_is_none_is_refused(memory: afterturn.Memory, limit: object) -> None:
    with pytest.raises(InvalidInput, match="limit"):
        await memory.conversation("c", user="ada").trace(limit=limit)


async def test_an_acknowledgement_has_a_turn_and_no_recall(memory: afterturn.Memory) -> None:
    """R6: nothing was asked."""
    await spoken(memory, [], "ok, thanks")
    assert (await looked_at(memory)).recalls == ()


async def test_a_recall_that_was_given_up_says_so(stage: Stage) -> None:
    """R4, R5: what it would have found is not held against any memory."""
    async with stage.open() as memory:
        await learn(memory, stage.clock, ["Ada's cat is called Miso"])
        stage.store.searching.shut()
        messages = [user(CAT)]
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            await stage.held()
            turn.abort()
        stage.store.searching.open()
        await stage.heard("recall_ended")
        await memory.drain()
        recall = _only((await looked_at(memory)).recalls)
        (known,) = await memory.space("user:ada").list()
        answer = await why(memory, known.id)
    assert (recall.milliseconds, recall.fate, recall.left_out) == (None, "the turn was given up", ())
    assert (answer.why, answer.reason) == ("not_handed_over", "nothing was delivered: the turn was given up")


# What did not, as decided then.


async def test_below_the_floor(open_memory: OpenMemory) -> None:
    """L5: a poor match is not worth the model's attention."""
    async with open_memory(recall_score_min=0.9) as memory:
        known = await remembered(memory, "The cat weighs five kilos")
        await spoken(memory, [], "How heavy is my old grey cat by now, I wonder?")
        found = await told(memory, "five kilos")
        assert (found.why, found.reason) == (
            "floor",
            f"chance {found.score:.2f} is below recall_score_min (0.90)",
        )
        assert await why(memory, known) == found


async def test_a_score_says_whether_it_is_a_chance(memory: afterturn.Memory) -> None:
    """L13: a judged candidate has a chance; what was not a candidate has a search score, which is another thing."""
    old = await remembered(memory, "Ada's cat is called Tofu")
    await memory.space("user:ada").delete(old)
    known = await remembered(memory, "Ada's cat is called Miso")
    await spoken(memory, [])
    kinds = [(await why(memory, one)).score_kind for one in (known, old)]
    assert kinds == [ScoreKind.CHANCE, ScoreKind.SEARCH]


async def test_the_lines_of_a_profile_are_not_judged(memory: afterturn.Memory) -> None:
    """L13, L14: a broad question has no floor, so that another one changes nothing."""
    known = await remembered(memory, "Ada's cat is called Miso")
    await spoken(memory, [], "What do you know about me?")
    found = await why(memory, known)
    higher = await memory.conversation("c", user="ada").replay("last", changes={"recall_score_min": 1.0})
    assert (found.why, found.score_kind) == ("shown", ScoreKind.PROFILE)
    assert [block.changed for block in higher.blocks] == [block.stored for block in higher.blocks]


async def test_beyond_the_budget(open_memory: OpenMemory) -> None:
    """H9: what found no room."""
    async with open_memory(recall_entries_max=1) as memory:
        for text in ("Ada's cat is called Miso", "Ada's cat eats salmon"):
            await remembered(memory, text)
        await spoken(memory, [])
        assert [(await told(memory, word)).why for word in ("Miso", "salmon")] == ["shown", "budget"]


async def test_said_by_another(open_memory: OpenMemory) -> None:
    """L10: a fact is stated once; the other, in other words, names what is shown for it."""
    async with open_memory(recall_score_min=0.0) as memory:
        agents = await remembered(memory, "Ada's cat is named Miso", origin="agent", clean=True)
        users = await remembered(memory, "Ada's cat is called Miso")
        await spoken(memory, [])
        assert (await told(memory, "called Miso")).ref == users
        left_out = await told(memory, "named Miso")
    assert (left_out.ref, left_out.why, left_out.by) == (agents, "restated", users)
    assert left_out.reason == f"another entry says the same: {users}"


async def test_too_far_behind_to_be_judged(memory: afterturn.Memory) -> None:
    """H9: a recall judges the best 32 and keeps no others, and the reason names no chance that was never computed."""
    known = [await remembered(memory, f"The cat of neighbour {at} is called Tom{at}") for at in range(60)]
    await spoken(memory, [])
    (recall,) = (await looked_at(memory)).recalls
    candidates = {one.ref for one in recall.row.candidates}
    assert len(candidates) == 32
    behind = next(one for one in known if one not in candidates)
    found = await why(memory, behind)
    assert (found.why, found.reason) == ("rank", "others match better, and only the best 32 are scored")


async def test_an_answer_in_the_line_of_its_question(memory: afterturn.Memory) -> None:
    """H9: it is in the block, although it has no line of its own."""
    messages = [user("When does the vet in Leeds open?")]
    async with memory.conversation("earlier", user="ada").turn(messages) as turn:
        messages.append(assistant("The vet in Leeds opens at nine each day."))
    await turn.wait_recorded()
    assert await memory.drain()
    await spoken(memory, shown := [], "When is the vet in Leeds open?")
    assert "Answer: The vet in Leeds opens at nine" in str(shown[1]["content"])
    (recall,) = (await looked_at(memory)).recalls
    asked, answered = recall.shown
    assert (answered.text, answered.score) == ("The vet in Leeds opens at nine each day.", asked.score)
    assert (answered.why, answered.by) == ("shown", asked.ref)
    assert answered.reason == f"it is in the block, as the answer in the line of {asked.ref}"


async def test_found_but_not_chosen_yet_when_the_turn_was_over(stage: Stage) -> None:
    """R5, R8: settled, carried, and never handed over."""
    async with stage.open() as memory:
        await learn(memory, stage.clock, ["Ada's cat is called Miso"])
        messages = [user(CAT)]
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            await settled(turn)
            messages.append(assistant("I do not know."))
        await turn.wait_recorded()
        memory.conversation("c", user="ada").reset()
        await stage.heard("recall_ended")
        await memory.drain()
        found = await told(memory, "Miso")
    reason = "nothing was delivered: the conversation was reset before it could be delivered"
    assert (found.why, found.reason) == ("not_handed_over", reason)


# What was held back from the search.


async def test_shown_by_an_earlier_block(memory: afterturn.Memory) -> None:
    """L3: excluded, since the model has it."""
    known = await remembered(memory, "Ada's cat is called Miso")
    messages: list[Message] = []
    await spoken(memory, messages)
    await spoken(memory, messages, "And what is my cat called in full?")
    assert (await told(memory, "Miso")).why is Decision.EXCLUDED
    assert (await why(memory, known)).why is Decision.EXCLUDED


@pytest.mark.parametrize("history", ["shown", "hidden"])
async def test_said_in_this_conversation(open_memory: OpenMemory, history: str) -> None:
    """L9: what the model sees, and what was learned from it, is not recalled, whether its host shows it or not."""
    async with open_memory() as memory:
        messages: list[Message] = []
        await spoken(memory, messages, "My cat is called Miso, by the way", history=history)
        if history == "hidden":
            messages.clear()
        await spoken(memory, messages, history=history)
        left_out = _only((await looked_at(memory)).recalls).left_out
    found = {one.lane: (one.why, one.text) for one in left_out if "Miso" in one.text}
    assert found == {
        "short_term": ("visible", "My cat is called Miso, by the way"),
        "long_term": ("visible", "The user's cat is called Miso"),
    }


async def test_replaced_by_a_newer_version(memory: afterturn.Memory) -> None:
    """L7: an older version that matches is told, with the one that took its place."""
    known = await remembered(memory, "Ada's cat is called Miso")
    await memory.space("user:ada").update(known, "Tofu lives here now")
    await spoken(memory, [])
    found = await told(memory, "Miso")
    assert (found.ref, found.why, found.by) == (known, "superseded", f"{known}.2")
    assert await why(memory, known) == found


async def test_deleted_undone_and_proposed(memory: afterturn.Memory) -> None:
    """L7, A3: none of them is recalled, and each says why."""
    ada = memory.space("user:ada")
    await ada.delete(await remembered(memory, "Ada's cat is called Miso"))
    await ada.undo((await ada.add("Ada's cat is called Tofu")).operation or "")
    tools = memory.conversation("c", user="ada").tools(remember=True)
    await tools.dispatch("remember_this", {"text": "Ada's cat is called Rex"})
    await spoken(memory, [])
    found = [(await told(memory, word)).why for word in ("Miso", "Tofu", "Rex")]
    assert found == ["deleted", "undone", "proposed"]


@pytest.mark.parametrize("decided", [False, True], ids=["waits", "rejected"])
async def test_a_withdrawal_is_not_told_of_beside_its_memory(
    memory: afterturn.Memory, tmp_path: Path, clock: ManualClock, *, decided: bool
) -> None:
    """L7, V8: it has the same words, and the memory itself is told of."""
    known, step = await remembered(memory, "Ada's cat is called Miso"), operation(Verb.DELETE, at=clock.now())
    engine = open_engine(tmp_path / "memory.db", Config(), clock)
    engine.write_now(lambda unit: unit.memories.propose_delete(step, known, expected_version=1))
    await spoken(memory, [])
    clock.advance(10)
    if decided:
        engine.write_now(lambda unit: unit.memories.delete(operation(Verb.DELETE, at=clock.now()), known))
    engine.close()
    found = await told(memory, "Miso")
    assert (found.ref, found.why) == (known, "shown")
    assert (await why(memory, known)).why == "shown"


async def test_not_valid_at_that_time(memory: afterturn.Memory, clock: ManualClock) -> None:
    """L7: expired, or not in force yet."""
    now = clock.now()
    await remembered(memory, "Ada's cat is called Miso", expires_at=now + 5)
    await remembered(memory, "Ada's cat is called Tofu", valid_from=now + 1000)
    clock.advance(10)
    await spoken(memory, [])
    assert [(await told(memory, word)).why for word in ("Miso", "Tofu")] == ["expired", "expired"]


async def test_what_changed_later_is_judged_as_it_was(memory: afterturn.Memory, clock: ManualClock) -> None:
    """L7: deleted after the recall, it was there when it was asked; added after it, it was not."""
    ada = memory.space("user:ada")
    known = await remembered(memory, "Ada's cat is called Miso")
    await spoken(memory, [])
    clock.advance(10)
    await ada.delete(known)
    later = await remembered(memory, "Ada's cat is called Tofu")
    assert (await told(memory, "Miso")).why is Decision.SHOWN
    assert (await why(memory, later)).reason == "it was stored later"
    recall = _only((await looked_at(memory)).recalls)
    assert later not in [one.ref for one in recall.left_out]


async def test_a_tools_output_is_out_of_reach(memory: afterturn.Memory) -> None:
    """C6: evidence for a review, not recalled."""
    messages = [user("Look it up, please"), call("one"), answer("one", "The cat is called Miso"), assistant("Done.")]
    async with memory.conversation("earlier", user="ada").turn(messages) as turn:
        turn.complete(messages)
    await turn.wait_recorded()
    await spoken(memory, [])
    found = await told(memory, "Miso")
    assert (found.why, found.lane) == ("scope", "episodic")
    assert "evidence" in found.reason


async def test_a_record_is_left_out_for_the_memory_that_rests_on_it(memory: afterturn.Memory) -> None:
    """L10: a memory that says as much excludes the records it rests on."""
    said = "Please remember this for later when I ask you: the cat is called Miso"
    record, known = await _learned(memory, said, "Ada's cat is called Miso")
    await spoken(memory, [])
    found = await why(memory, record)
    assert (found.why, found.by) == ("restated", known)


async def test_a_record_is_not_left_out_for_what_was_learned_from_a_part_of_it(open_memory: OpenMemory) -> None:
    """L10: it comes itself, and then the part does not."""
    async with open_memory(recall_entries_max=1, rules=False) as memory:
        said = "Call me Max. My cat Miso sleeps on the red sofa in the kitchen."
        record, known = await _learned(memory, said, "Call the user Max")
        await spoken(memory, [], "Where does my cat Miso sleep?", conversation="first")
        first = [await why(memory, one, conversation="first") for one in (record, known)]
    assert [one.why for one in first] == ["shown", "restated"]


async def _learned(memory: afterturn.Memory, said: str, statement: str) -> tuple[str, str]:
    """The ids of a message in an earlier conversation, and of a statement that rests on it."""
    await spoken(memory, [], said, conversation="earlier")
    (record,) = [entry.id for entry in await memory.space("user:ada").list() if entry.text == said]
    known = await remembered(memory, statement, sources=[record])
    await memory.drain()
    return record, known


async def test_no_word_in_common(memory: afterturn.Memory) -> None:
    """L5: what has nothing to do with it is not listed, and says so when asked."""
    known = await remembered(memory, "The train leaves at nine")
    await spoken(memory, [])
    assert _only((await looked_at(memory)).recalls).left_out == ()
    assert (await why(memory, known)).why in (Decision.UNRELATED, Decision.FLOOR)


async def test_more_was_found_than_is_weighed(stage: Stage) -> None:
    """L3: only the best are weighed at all."""
    async with stage.open(recall_entries_max=8, recall_score_min=0.0) as memory:
        said = "sleeps on the red velvet sofa in the kitchen"
        await learn(memory, stage.clock, [f"Cat number {number} {said}" for number in range(80)])
        await spoken(memory, [], f"Which cat {said}?")
        left_out = _only((await looked_at(memory)).recalls).left_out
    assert {one.why for one in left_out} == {"budget", "rank"}
    assert sum(one.why is Decision.RANK for one in left_out) == 16
    assert "only the best 64 are scored" in left_out[-1].reason


# What is not to be told.


async def test_another_space_is_never_told_of_unless_it_is_named(memory: afterturn.Memory) -> None:
    """L2: a memory outside of the conversation's spaces is as good as none, but for who names id and space."""
    await remembered(memory, "Ada's cat is called Miso")
    secret = (await memory.space("team:x").add("The cat of team x is called Tofu")).entry.id
    await spoken(memory, [])
    conversation = memory.conversation("c", user="ada")
    assert "Tofu" not in str(await conversation.trace())
    with pytest.raises(NotFound) as hidden:
        await conversation.why(secret)
    with pytest.raises(NotFound) as nonesuch:
        await conversation.why("0000000000000000")
    assert str(hidden.value).replace(secret, "") == str(nonesuch.value).replace("0000000000000000", "")
    with pytest.raises(NotFound):
        await conversation.why(secret, look_in=["team:y"])
    found = await why(memory, secret, "team:x")
    assert (found.why, found.text) == ("scope", "")
    assert found.reason == "it is in team:x, which this conversation could not read (only user:ada)"


async def test_a_space_that_was_granted_is_told_of(memory: afterturn.Memory) -> None:
    """L2: what the conversation could read is part of its trace."""
    known = (await memory.space("team:x").add("The cat of team x is called Tofu")).entry.id
    await memory.space("team:x").delete(known)
    await spoken(memory, [], reads=["team:x"])
    found = await told(memory, "Tofu")
    assert (found.why, found.space) == ("deleted", "team:x")


async def test_another_tenants_and_another_owners_conversations_are_not_told(memory: afterturn.Memory) -> None:
    """L2: the same id under another owner is another conversation."""
    await remembered(memory, "Ada's cat is called Miso")
    await spoken(memory, [])
    with pytest.raises(NotFound):
        await memory.conversation("c", user="bob").trace()


async def test_what_was_forgotten_is_not_told_of(memory: afterturn.Memory) -> None:
    """M2: neither among what came nor among what did not."""
    ada = memory.space("user:ada")
    gone = await remembered(memory, "Ada's cat is called Miso")
    await remembered(memory, "Ada's other cat is called Tofu")
    await spoken(memory, [])
    await ada.forget(memory=gone)
    traced = await looked_at(memory)
    assert gone not in str(traced)
    assert "Miso" not in str(traced)
    assert (traced.blocks[0].text, traced.blocks[0].tokens, traced.blocks[0].memories) == ("", None, 1)
    with pytest.raises(NotFound):
        await memory.conversation("c", user="ada").why(gone)


@pytest.mark.parametrize("wanted", ["", "no id!", "abcd.x", 7])
async def test_what_is_no_id_is_refused(memory: afterturn.Memory, wanted: object) -> None:
    with pytest.raises((InvalidName, InvalidInput)):
        await memory.conversation("c", user="ada").why(wanted)


def _only(recalls: tuple[TracedRecall, ...]) -> TracedRecall:
    (recall,) = recalls
    return recall
